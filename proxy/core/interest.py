"""What this proxy has registered at the site: the expressions that its sessions need, as records of the site log."""

from __future__ import annotations

from collections.abc import Iterable

from federation.site.state import SiteState
from proxy.core.effects import Append
from proxy.core.lease import Lease
from proxy.core.output import Output
from proxy.session.session import Session
from waypost.batches import batches
from waypost.errors import WaypostError
from waypost.identity import ProxyId, SessionId
from waypost.limits import LOG_BATCH, LOG_BATCH_BYTES
from waypost.records import InterestRegistered


class Interest:
    """Registers what sessions need, once for each change.

    Args:
        proxy: our own name.
        lease: says in which incarnation we register.
        state: the site's state, folded from its log: what is registered up to here.
        output: takes the appends.
    """

    def __init__(self, proxy: ProxyId, lease: Lease, state: SiteState, output: Output) -> None:
        self._proxy = proxy
        self._lease = lease
        self._state = state
        self._output = output
        self._registered: dict[SessionId, InterestRegistered] = {}
        """What we registered last for each session in this incarnation."""
        self._offsets: dict[SessionId, int] = {}
        """Where in the log that stands, as the log has answered."""

    def register(self, session: Session) -> None:
        """Append a record to the site log with the expressions and keys that the session needs, unless they are what
        was registered last.
        """
        self._append([self._needed(session)])

    def register_all(self, sessions: Iterable[Session]) -> None:
        """Append records to the site log of what these sessions need, in few appends; a session that needs what was
        registered last is left out.
        """
        needed = [self._needed(session) for session in sessions]
        for batch in batches(needed, _size, max_items=LOG_BATCH, max_bytes=LOG_BATCH_BYTES):
            self._append(batch)

    def correct(self, sessions: Iterable[Session]) -> None:
        """Register the needs of these sessions again where the log, read beyond the last registration, has others.
        Sessions whose needs were not registered yet, or whose append failed, are registered too.

        An append without an answer may come to stand behind later ones: then the log has an earlier registration in
        force.
        """
        inexact = [session for session in sessions if not self.is_exact(session)]
        for session in inexact:
            offset = self._offsets.get(session.id)
            if offset is not None and self._state.position > offset:
                self.forget(session.id)
        self.register_all(inexact)

    def withdraw(self, session: SessionId) -> None:
        """Append a record to the site log that this proxy needs nothing for the session any more, unless such an append
        is under way.
        """
        self._append([InterestRegistered(self._proxy, self._lease.incarnation, session, ())])

    def forget(self, session: SessionId) -> None:
        """Forget what was registered for the session, so that the next :meth:`register` appends it again."""
        self._registered.pop(session, None)
        self._offsets.pop(session, None)

    def is_covered(self, session: Session) -> bool:
        """Tell whether the log, as far as it is read, has a registration of ours with all expressions that the session
        needs. Keys are not compared. False also if the session needs none and none is registered.
        """
        registered = self._state.registered.get((self._proxy, session.id))
        if registered is None:
            return False
        needed = session.subscriptions.interest_expressions()
        return needed == registered.expressions or set(needed) <= set(registered.expressions)

    def is_installed(self, session: Session) -> bool:
        """Tell whether the session needs nothing, or the log, as far as it is read, has a registration of ours with all
        expressions that it needs (:meth:`is_covered`).

        Registrations of other proxies do not count: they could end at any time.
        """
        return not session.subscriptions.interest_expressions() or self.is_covered(session)

    def is_exact(self, session: Session) -> bool:
        """Tell whether the log, as far as it is read, has exactly the expressions and keys that the session needs."""
        registered = self._state.registered.get((self._proxy, session.id))
        needed, by = session.subscriptions.interest_expressions(), session.subscriptions.interest_protections()
        return not needed if registered is None else (registered.expressions, registered.protections) == (needed, by)

    def _needed(self, session: Session) -> InterestRegistered:
        expressions, protections = (
            session.subscriptions.interest_expressions(),
            session.subscriptions.interest_protections(),
        )
        return InterestRegistered(self._proxy, self._lease.incarnation, session.id, expressions, protections)

    def _append(self, needed: Iterable[InterestRegistered]) -> None:
        news = [interest for interest in needed if self._registered.get(interest.session) != interest]
        if not news:
            return
        for interest in news:
            self.forget(interest.session)
            self._registered[interest.session] = interest

        def on_done(answer: list[int] | WaypostError) -> None:
            for number, interest in enumerate(news):
                is_last = self._registered.get(interest.session) is interest
                if isinstance(answer, WaypostError) or (not interest.expressions and is_last):
                    self.forget(interest.session)
                elif is_last:
                    self._offsets[interest.session] = answer[number]

        self._output.emit(Append(news, on_done))


def _size(interest: InterestRegistered) -> int:
    return 200 + sum(map(len, interest.expressions))
