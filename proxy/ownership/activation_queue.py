"""Sessions that the store says are ours wake: each takes its next epoch (handover rule 1), a bounded number at a time.

A proxy may come back with a hundred thousand of them, and the registry does not take so many claims before the lease
must be renewed. So they stand in line; whoever is waited for goes first, be it for a client or for another proxy.
"""

from __future__ import annotations

from federation.ports import Claimed
from proxy.core.context import Context
from proxy.core.effects import claim_row
from proxy.core.events import Activated, NotActivated
from proxy.session.session import Role, Session
from waypost.errors import WaypostError
from waypost.identity import Epoch, Ownership, SessionId


class ActivationQueue:
    """The line of sessions that sleep.

    What came of a claim is reported, Activated or NotActivated; until that is handled, nobody claims again.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._waited_for: dict[SessionId, Ownership | None] = {}
        self._others: dict[SessionId, Ownership | None] = {}
        self._under_way = 0

    def __len__(self) -> int:
        """Return how many wait for their turn."""
        return len(self._waited_for) + len(self._others)

    def wake(self, session: Session, row: Ownership | None, *, waited_for: bool = False) -> None:
        """Wake the session in its turn: take the next epoch, after the row's and all that the copy was ever served at.

        Args:
            row: as the registry has it, or had it last; None: it has lost it.
        """
        if not self._context.lease.may_serve() or session.is_activating:
            return
        if waited_for or session.id in self._waited_for:
            self._others.pop(session.id, None)
            self._waited_for[session.id] = row
        else:
            self._others[session.id] = row
        self._go_on()

    def fence(self) -> None:
        """Nobody wakes without a lease; with the next one all are called again."""
        self._waited_for.clear()
        self._others.clear()

    def _claim(self, session: Session, row: Ownership | None) -> None:
        self._under_way += 1
        session.is_activating = True
        if row is not None:
            session.epoch = max(session.epoch, row.epoch)
        new, life = Ownership(self._context.proxy, Epoch(session.epoch + 1)), self._context.lease.incarnation

        def on_done(answer: Claimed | WaypostError) -> None:
            self._under_way -= 1
            session.is_activating = False
            # What was taken under an earlier lease, the sweep finds, and takes the next epoch for it.
            if self._context.lease.incarnation == life and self._context.lease.may_serve():
                won = isinstance(answer, Claimed) and answer.won
                self._context.counters.rows_lost += int(won and row is None)
                self._answered(session, new.epoch, answer)
            self._go_on()

        self._context.outbox.emit(claim_row(session.id, row, new, on_done))

    def _go_on(self) -> None:
        while self._under_way < self._context.settings.bounds.wakes_at_once and len(self):
            line = self._waited_for or self._others
            identity = next(iter(line))
            row = line.pop(identity)
            session = self._context.sessions.get(identity)
            if session is not None and session.role is Role.DORMANT and not session.is_activating:
                self._claim(session, row)

    def _answered(self, session: Session, epoch: Epoch, answer: Claimed | WaypostError) -> None:
        if self._context.sessions.get(session.id) is not session or session.role is not Role.DORMANT:
            return
        if isinstance(answer, WaypostError):
            return
        current = answer.current
        if answer.won:
            session.is_activating = True
            self._context.events.report(Activated(session, epoch, self._context.lease.incarnation))
        elif current is not None and current.proxy == self._context.proxy and not current.outlives(session.epoch):
            # An earlier life of ours may have served at that epoch: take the one after it. A row of an epoch before
            # that of the copy is one of a registry that went back, and may be corrected yet.
            if current.epoch >= session.epoch:
                self._claim(session, current)
        else:
            session.is_activating = True
            self._context.events.report(NotActivated(session, current))
