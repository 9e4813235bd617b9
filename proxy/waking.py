"""Sessions that the store says are ours wake: each takes its next epoch (handover rule 1), a bounded number at a time.

A proxy may come back with a hundred thousand of them, and the registry does not take so many claims before the lease
must be renewed. So they stand in line; whoever is waited for goes first, be it for a client or for another proxy.
"""

from __future__ import annotations

from collections.abc import Callable

from federation.ports import Claimed
from proxy.context import Context
from proxy.effects import ClaimRow
from proxy.session import Role, Session
from waypost.errors import WaypostError
from waypost.identity import Epoch, Ownership, SessionId


class Waking:
    """The line of sessions that sleep.

    Args:
        serve: called with the epoch that was taken for the session.
        release: called where the registry names another owner, or a later session of the same name.
    """

    def __init__(
        self,
        context: Context,
        serve: Callable[[Session, Epoch], None],
        release: Callable[[Session, Ownership | None], None],
    ) -> None:
        self._context = context
        self._serve = serve
        self._release = release
        self._waited_for: dict[SessionId, None] = {}
        self._others: dict[SessionId, None] = {}
        self._under_way = 0

    def __len__(self) -> int:
        """Return how many wait for their turn."""
        return len(self._waited_for) + len(self._others)

    def wake(self, session: Session, *, waited_for: bool = False) -> None:
        """Wake the session in its turn."""
        if not self._context.may_serve() or session.waking:
            return
        if waited_for:
            self._others.pop(session.id, None)
            self._waited_for[session.id] = None
        elif session.id not in self._waited_for:
            self._others[session.id] = None
        self._go_on()

    def fence(self) -> None:
        """Nobody wakes without a lease; with the next one all are called again."""
        self._waited_for.clear()
        self._others.clear()

    def _go_on(self) -> None:
        while self._under_way < self._context.settings.bounds.wakes_at_once and len(self):
            line = self._waited_for or self._others
            identity = next(iter(line))
            del line[identity]
            session = self._context.sessions.get(identity)
            if session is not None and session.role is Role.DORMANT and not session.waking:
                self._claim(session)

    def _claim(self, session: Session) -> None:
        self._under_way += 1
        session.waking = True
        mine = Ownership(self._context.proxy, session.epoch)
        new, life = mine.next(self._context.proxy), self._context.incarnation

        def then(answer: Claimed | WaypostError) -> None:
            self._under_way -= 1
            session.waking = False
            # What was taken under an earlier lease, the sweep finds, and takes the next epoch for it.
            if self._context.incarnation == life and self._context.may_serve():
                self._answered(session, new.epoch, answer)
            self._go_on()

        self._context.emit(ClaimRow(session.id, mine, new, then))

    def _answered(self, session: Session, epoch: Epoch, answer: Claimed | WaypostError) -> None:
        if self._context.sessions.get(session.id) is not session or session.role is not Role.DORMANT:
            return
        if isinstance(answer, WaypostError):
            return
        current = answer.current
        if answer.won:
            self._serve(session, epoch)
        elif current is not None and current.proxy == self._context.proxy and not current.outlives(session.epoch):
            # An earlier life of ours may have served at that epoch: take the one after it.
            session.epoch = current.epoch
            self.wake(session, waited_for=True)
        else:
            # Somebody else's, or of a later generation: what the store has is none of it (handover rule 22).
            self._release(session, current)
