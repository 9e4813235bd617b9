"""The checkpoints of a changelog that keeps one record for each session and epoch, as a table in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from waypost.checkpoint import Checkpoint, decode_checkpoint
from waypost.errors import BadRecord
from waypost.identity import SessionId

DAMAGED = sys.maxsize
FIRST = ".0"
"""Behind the epoch in the key of a first checkpoint: many may write one of an epoch that only one of them will have."""


def checkpoint_key(checkpoint: Checkpoint) -> bytes:
    """Return the key: of one key the last record stays, whoever wrote it. A first checkpoint has a key of its own."""
    return _key(checkpoint.session, f"{checkpoint.epoch}{'' if checkpoint.serial else FIRST}")


def _key(session: SessionId, suffix: str) -> bytes:
    return f"{session}|{suffix}".encode()


def _epoch(suffix: str) -> int:
    return int(suffix.removesuffix(FIRST))


@dataclass(slots=True)
class _Entry:
    rank: tuple[int, int] = (-1, -1)
    body: bytes = b""
    suffixes: set[str] = field(default_factory=set)
    """What the keys end with of which the changelog still has a record."""


def _rank(epoch: int, value: bytes) -> tuple[int, int]:
    """One that cannot be read may be the highest of its epoch: better no session now than an older one (P5)."""
    try:
        return decode_checkpoint(value).rank
    except BadRecord:
        return (epoch, DAMAGED)


class CheckpointTable:
    """Fed with the changelog's records in their order, it knows the highest checkpoint of every session."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        session, _, suffix = key.decode().rpartition("|")
        entry = self._entries.setdefault(session, _Entry())
        if value is None:
            entry.suffixes.discard(suffix)
            if not entry.suffixes:
                # What is outdated goes when there is a higher one: so the session was deleted.
                del self._entries[session]
            return
        entry.suffixes.add(suffix)
        rank = _rank(_epoch(suffix), value)
        if rank > entry.rank:
            entry.rank, entry.body = rank, value

    def latest(self, session: SessionId) -> Checkpoint | None:
        entry = self._entries.get(session)
        return decode_checkpoint(entry.body) if entry is not None and entry.body else None

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Whether to write it: a higher one may be there, which compaction would then throw away for it.

        Raises CheckpointOutdated.
        """
        entry = self._entries.get(checkpoint.session)
        if entry is not None:
            checkpoint.check_above(entry.rank, is_damaged=entry.rank[1] == DAMAGED)
        return entry is None or checkpoint.rank > entry.rank

    def outdated_by(self, checkpoint: Checkpoint) -> list[bytes]:
        """Return the keys of the session's lower epochs."""
        return self.keys_of(checkpoint.session, checkpoint.epoch - 1)

    def keys_of(self, session: SessionId, epoch: int) -> list[bytes]:
        """Return the keys of the session's epochs up to this one."""
        entry = self._entries.get(session, _Entry())
        return [_key(session, suffix) for suffix in sorted(entry.suffixes) if _epoch(suffix) <= epoch]
