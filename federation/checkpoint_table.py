"""The checkpoints of a changelog that keeps one record for each session and epoch, as a table in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from waypost.checkpoint import Checkpoint, decode_checkpoint
from waypost.errors import BadRecord
from waypost.identity import SessionId

DAMAGED = sys.maxsize
FIRST = ".0"
"""The suffix of the key of a first checkpoint, behind the epoch: several proxies may write one of an epoch that only
one of them will have.
"""


def checkpoint_key(checkpoint: Checkpoint) -> bytes:
    """Return the record's key: compaction keeps the last record of a key. A first checkpoint has a key of its own."""
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
    """The suffixes of the keys of which the changelog still has a record."""


def _rank(epoch: int, value: bytes) -> tuple[int, int]:
    """Return the rank; an unreadable one may be the highest of its epoch: better no session now than an older one
    (P5).
    """
    try:
        return decode_checkpoint(value).rank
    except BadRecord:
        return (epoch, DAMAGED)


class CheckpointTable:
    """The highest checkpoint of every session, from the changelog's records, applied in their order."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply the next record; `value` None removes the key."""
        session, _, suffix = key.decode().rpartition("|")
        entry = self._entries.setdefault(session, _Entry())
        if value is None:
            entry.suffixes.discard(suffix)
            if not entry.suffixes:
                # Outdated keys are removed only below a higher one: so the session was deleted.
                del self._entries[session]
            return
        entry.suffixes.add(suffix)
        rank = _rank(_epoch(suffix), value)
        if rank > entry.rank:
            entry.rank, entry.body = rank, value

    def latest(self, session: SessionId) -> Checkpoint | None:
        """Return the session's highest checkpoint; None: there is none. Raises BadRecord: it is damaged."""
        entry = self._entries.get(session)
        return decode_checkpoint(entry.body) if entry is not None and entry.body else None

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Tell whether to write the checkpoint; compaction would remove a higher one of its key in favour of it.

        Raises:
            CheckpointOutdated: there is one that counts more (handover rule 19).
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
