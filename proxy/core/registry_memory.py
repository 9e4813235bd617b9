"""What this proxy remembers of the registry's rows: sessions that nobody has any more, and rows that went back."""

from __future__ import annotations

from typing import NamedTuple

from handover.acquisition import NO_EPOCH
from proxy.core.cluster_view import ClusterView
from proxy.core.counters import Counters
from proxy.core.settings import Settings
from proxy.core.step_time import StepTime
from waypost.identity import Epoch, Ownership, SessionId

LOST_ROWS_KEPT_MS = 600_000
"""For so long it is remembered that the registry had a later row: by then nobody corrects it any more."""
SWEEPS_TO_ACTIVATE = 5
"""In so many sweeps more, whoever has a copy that nobody corrects has taken the session's next epoch."""
SWEEPS_PER_ROUND = 15
"""In so many sweeps all of many sessions are looked at."""


class Lost(NamedTuple):
    """A session that nobody has any more.

    Args:
        row: its last row in the registry.
        why: how that is known, for people.
    """

    row: Ownership
    why: str


class RegistryMemory:
    """Remembers as long as the registry says what it said then; :meth:`prune` forgets the rest."""

    def __init__(self, settings: Settings, time: StepTime, cluster: ClusterView, counters: Counters) -> None:
        self._settings = settings
        self._time = time
        self._cluster = cluster
        self._counters = counters
        self.lost: dict[SessionId, Lost] = {}
        """Sessions that nobody has any more."""
        self._earlier_rows: dict[SessionId, tuple[Ownership | None, int]] = {}
        """Rows that a registry which went back has of sessions, and since when, in ms of the engine's clock."""
        self._lost_rows: dict[SessionId, tuple[Ownership, int]] = {}
        """The latest rows of sessions that the registry has lost, and since when, until it has one as late again."""
        self._rows_lost_ms = -(1 << 60)
        """The time at which the registry was last seen to have lost rows."""

    def declare_lost(self, session: SessionId, row: Ownership, why: str) -> None:
        """Remember that no proxy has the session any more; it can be made anew only after it was deleted. The cluster
        view gets the row, and the loss is counted.

        Args:
            row: the session's row in the registry; the lost session is the one of this owner and epoch.
            why: the reason, for people.
        """
        self._cluster.owned_by(session, row)
        if self.lost.get(session) != Lost(row, why):
            self.lost[session] = Lost(row, why)
            self._counters.damaged["session"] += 1

    def why_lost(self, session: SessionId, epoch: Epoch) -> str:
        """Return why nobody has the session that this proxy owns at `epoch`; empty: it is not known to be lost."""
        lost = self.lost.get(session)
        return lost.why if lost is not None and lost.row == Ownership(self._settings.proxy, epoch) else ""

    def row_lost(self, session: SessionId, row: Ownership) -> None:
        """Remember that the registry has lost a row: the registry was restored from an older copy, or is another one.

        Who serves a session, or did so until its lease ended, writes its row again; :attr:`awaits_row_repair` leaves
        time for that. Only the row of the highest epoch is remembered of each session (handover rule 28).

        Args:
            row: the session's row before the loss.
        """
        now = self._time.now_ms
        if row.epoch > _epoch(self.lost_row(session)):
            self._lost_rows[session] = (row, now)
            if not row.deleted:
                self._rows_lost_ms = now

    def lost_row(self, session: SessionId) -> Ownership | None:
        """Return the latest row of the session that the registry has lost; None: it has lost none."""
        lost = self._lost_rows.get(session)
        return None if lost is None else lost[0]

    @property
    def awaits_row_repair(self) -> bool:
        """Whether owners may still write rows again that the registry has lost within `Settings.row_repair_ms`."""
        return self._time.now_ms < self._rows_lost_ms + self._settings.row_repair_ms

    def is_final(self, session: SessionId, row: Ownership | None, *, allow_activation: bool = False) -> bool:
        """Tell whether a row that is older than one known here has stood for so long that nobody will correct it. The
        caller has compared the rows.

        An older row is one of a registry that was restored from an older copy. The owner of a later epoch writes its
        row again as soon as it knows of that (handover rule 28). The time of a row begins with the first call for it,
        which returns False, and anew when the row has changed since the last call.

        Args:
            row: the row that the registry has now; None: it has none.
            allow_activation: wait longer: a proxy with a copy of the session on its disk has time to take its next
                epoch.
        """
        now, row = self._time.now_ms, _as_told(row)
        known, since_ms = self._earlier_rows.get(session, (row, now))
        if known != row:
            since_ms = now
        self._earlier_rows[session] = (row, since_ms)
        sweeps = SWEEPS_PER_ROUND + 1 + (SWEEPS_TO_ACTIVATE if allow_activation else 0)
        return now >= since_ms + sweeps * self._settings.row_sweep_ms

    def forget(self, session: SessionId) -> None:
        """Forget all that is remembered of a session, because it is served here."""
        self.lost.pop(session, None)
        self._earlier_rows.pop(session, None)
        self._lost_rows.pop(session, None)

    def prune(self) -> None:
        """Forget what the registry's rows contradict by now, and lost rows that are older than LOST_ROWS_KEPT_MS."""
        owners = self._cluster.owners
        for session in [session for session, lost in self.lost.items() if owners.get(session) != lost.row]:
            del self.lost[session]
        earlier = self._earlier_rows.items()
        for session in [session for session, (row, _) in earlier if _as_told(owners.get(session)) != row]:
            del self._earlier_rows[session]
        oldest = self._time.now_ms - LOST_ROWS_KEPT_MS
        for session in [
            session
            for session, (row, since_ms) in self._lost_rows.items()
            if _epoch(owners.get(session)) >= row.epoch or since_ms < oldest
        ]:
            del self._lost_rows[session]


def _epoch(row: Ownership | None) -> Epoch:
    return NO_EPOCH if row is None else row.epoch


def _as_told(row: Ownership | None) -> Ownership | None:
    """Return a row as the watch tells of it: a session without one counts as deleted only to whoever reads it."""
    return None if row is None or row.deleted else row
