"""The checkpoints of a changelog that keeps one record for each session and epoch, as a table in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from waypost.checkpoint import Checkpoint, decode_checkpoint
from waypost.errors import BadRecord
from waypost.identity import Epoch, SessionId


def checkpoint_key(session: SessionId, epoch: Epoch) -> bytes:
    return f"{session}|{epoch}".encode()


@dataclass(slots=True)
class _Entry:
    rank: tuple[int, int] = (-1, -1)
    body: bytes = b""
    epochs: set[int] = field(default_factory=set)
    """The epochs of which the changelog still has a record."""


def _rank(epoch: int, value: bytes) -> tuple[int, int]:
    """One that cannot be read may be the highest of its epoch: better no session now than an older one (P5)."""
    try:
        return decode_checkpoint(value).rank
    except BadRecord:
        return (epoch, sys.maxsize)


class CheckpointTable:
    """Fed with the changelog's records in their order, it knows the highest checkpoint of every session."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        session, _, epoch = key.decode().rpartition("|")
        entry = self._entries.setdefault(session, _Entry())
        if value is None:
            entry.epochs.discard(int(epoch))
            return
        entry.epochs.add(int(epoch))
        rank = _rank(int(epoch), value)
        if rank > entry.rank:
            entry.rank, entry.body = rank, value

    def latest(self, session: SessionId) -> Checkpoint | None:
        entry = self._entries.get(session)
        return decode_checkpoint(entry.body) if entry is not None and entry.body else None

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Whether to write it: a higher one may be there, which compaction would then throw away for it."""
        entry = self._entries.get(checkpoint.session)
        return entry is None or checkpoint.rank > entry.rank

    def outdated_by(self, checkpoint: Checkpoint) -> list[bytes]:
        """Return the keys of the session's lower epochs."""
        entry = self._entries.get(checkpoint.session, _Entry())
        return [
            checkpoint_key(checkpoint.session, Epoch(epoch))
            for epoch in sorted(entry.epochs)
            if epoch < checkpoint.epoch
        ]
