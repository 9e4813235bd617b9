"""The checkpoints of a changelog that keeps one record for each session and epoch, as a table in memory."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import NamedTuple

from waypost.checkpoint import Checkpoint, Rank, decode_checkpoint
from waypost.errors import BadRecord
from waypost.identity import SessionId

DAMAGED = sys.maxsize
FIRST = ".0"
"""The suffix of the key of a first checkpoint, behind the epoch: several proxies may write one of an epoch that only
one of them will have.
"""


def checkpoint_key(checkpoint: Checkpoint) -> bytes:
    """Return the key of the checkpoint's record, SESSION|EPOCH, in a first checkpoint with a suffix of its own.

    Compaction of the topic keeps the last record of a key.
    """
    return _key(checkpoint.session, f"{checkpoint.epoch}{'' if checkpoint.serial else FIRST}")


def _key(session: SessionId, suffix: str) -> bytes:
    return f"{session}|{suffix}".encode()


def _epoch(suffix: str) -> int:
    return int(suffix.removesuffix(FIRST))


class _Highest(NamedTuple):
    rank: Rank = (-1, -1)
    body: bytes = b""

    @property
    def is_damaged(self) -> bool:
        return self.rank[1] == DAMAGED


NONE = _Highest()


@dataclass(slots=True)
class _Entry:
    of_owners: _Highest = NONE
    of_makers: _Highest = NONE
    """First checkpoints, of whoever tried to make the session: they hide no owner's."""
    suffixes: set[str] = field(default_factory=set)
    """The suffixes of the keys of which the changelog still has a record."""

    def remove(self, suffix: str) -> None:
        self.suffixes.discard(suffix)
        epoch, is_first = _epoch(suffix), suffix.endswith(FIRST)
        if is_first and self.of_makers.rank[0] == epoch:
            self.of_makers = NONE
        if not is_first and self.of_owners.rank[0] == epoch:
            self.of_owners = NONE


def _read(value: bytes) -> Checkpoint | None:
    """Return the checkpoint; None: it is damaged."""
    try:
        return decode_checkpoint(value)
    except BadRecord:
        return None


class CheckpointTable:
    """The highest checkpoints of every session, from the changelog's records, applied in their order."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}

    def apply(self, key: bytes, value: bytes | None) -> None:
        """Apply the next record of the changelog.

        Args:
            key: as :func:`checkpoint_key` returns it.
            value: an encoded checkpoint, which may be damaged; None removes the key. One that is whole counts under its
                own name, whatever the key is.

        Raises:
            ValueError: the key is none.
        """
        checkpoint = None if value is None else _read(value)
        if checkpoint is not None:
            key = checkpoint_key(checkpoint)
        session, _, suffix = key.decode().rpartition("|")
        _epoch(suffix)
        entry = self._entries.setdefault(session, _Entry())
        if value is None:
            entry.remove(suffix)
            if not entry.suffixes:
                del self._entries[session]
            return
        entry.suffixes.add(suffix)
        # One that cannot be read may be the highest of its epoch: better no session now than an older one (P5).
        rank = (_epoch(suffix), DAMAGED) if checkpoint is None else checkpoint.rank
        read = _Highest(rank, value)
        if suffix.endswith(FIRST):
            entry.of_makers = max(entry.of_makers, read)
        else:
            entry.of_owners = max(entry.of_owners, read)

    def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, the lower one first
        (:meth:`federation.ports.Changelog.latest`).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher. Empty: there is no checkpoint of the session.

        Raises:
            BadRecord: one that counts is damaged.
        """
        entry = self._entries.get(session)
        if entry is None:
            return ()
        of_owner = (decode_checkpoint(entry.of_owners.body),) if entry.of_owners != NONE else ()
        is_hidden = entry.of_makers.rank < entry.of_owners.rank or (of_owner and entry.of_makers.is_damaged)
        if is_hidden or entry.of_makers == NONE:
            return of_owner
        return (*of_owner, decode_checkpoint(entry.of_makers.body))

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Check that the checkpoint may be written, and tell whether it has to be; nothing changes. Ask before each
        write, because compaction would remove a higher checkpoint of its key in favour of it.

        Returns:
            False: it is a first checkpoint, and one of its rank is there.

        Raises:
            CheckpointOutdated: there is one that counts more (handover rule 19), or an owner's of the same rank. One
                that cannot be read counts as the highest of its epoch.
        """
        entry = self._entries.get(checkpoint.session, _Entry())
        highest = max(entry.of_owners, entry.of_makers) if checkpoint.is_first else entry.of_owners
        checkpoint.check_above(highest.rank, is_damaged=highest.is_damaged)
        return checkpoint.rank > highest.rank

    def outdated_by(self, checkpoint: Checkpoint) -> list[bytes]:
        """Return the keys to be removed once the checkpoint is written: those of the session's lower epochs.

        Empty for a first checkpoint, which outdates nothing.
        """
        return [] if checkpoint.is_first else self.keys_of(checkpoint.session, checkpoint.epoch - 1)

    def keys_of(self, session: SessionId, epoch: int) -> list[bytes]:
        """Return the keys that the changelog has of a session's epochs up to `epoch`, inclusive, ascending by epoch."""
        entry = self._entries.get(session, _Entry())
        return [_key(session, suffix) for suffix in sorted(entry.suffixes, key=_epoch) if _epoch(suffix) <= epoch]
