"""The checkpoints of a changelog that keeps nothing but the highest ones: of owners, and of whoever makes a session."""

from __future__ import annotations

from collections.abc import Mapping

from waypost.checkpoint import Checkpoint
from waypost.identity import SessionId


class HighestCheckpoints:
    """Of each session the highest checkpoint of an owner, and the highest first one, which hides none of an owner's."""

    def __init__(self) -> None:
        self._of_owners: dict[SessionId, Checkpoint] = {}
        self._first: dict[SessionId, Checkpoint] = {}

    def put(self, checkpoint: Checkpoint) -> None:
        """Add a checkpoint in place of the session's highest one of its kind: an owner's, or a first one (`is_first`).

        A first checkpoint that is there already changes nothing.

        Raises:
            CheckpointOutdated: there is one that counts more, or an owner's of the same rank (handover rule 19).
        """
        kinds = (self._of_owners, self._first) if checkpoint.is_first else (self._of_owners,)
        known = [kind[checkpoint.session] for kind in kinds if checkpoint.session in kind]
        for other in known:
            checkpoint.check_above(other.rank)
        if all(other.rank < checkpoint.rank for other in known):
            kinds[-1][checkpoint.session] = checkpoint

    def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, the lower one first
        (:meth:`federation.ports.Changelog.latest`).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher. Empty: there is no checkpoint of the session.
        """
        of_owner, first = self._of_owners.get(session), self._first.get(session)
        is_above = first is not None and (of_owner is None or first.rank > of_owner.rank)
        return tuple(filter(None, (of_owner, first if is_above else None)))

    def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions, each up to the given epoch, inclusive."""
        for session, epoch in deleted.items():
            for kind in (self._of_owners, self._first):
                if session in kind and kind[session].epoch <= epoch:
                    del kind[session]
