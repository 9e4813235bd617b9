"""The sessions of a proxy: the only way to put one, to remove one, and to mark one as changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, ValuesView

from proxy.core.interest import Interest
from proxy.core.lease import Lease
from proxy.core.matcher import Matcher
from proxy.core.takeover_backoff import TakeoverBackoff
from proxy.core.transfer_table import RunningTransfers
from proxy.session.role import Role
from proxy.session.session import Session
from waypost.errors import LimitExceeded
from waypost.identity import SessionId


class SessionTable(Mapping[SessionId, Session]):
    """Sessions by name. The matcher knows the subscriptions of those that are in here, and of no others.

    Args:
        lease: none is served without it.
        interest: registers at the site what the sessions need.
    """

    def __init__(self, lease: Lease, interest: Interest) -> None:
        self._lease = lease
        self.interest = interest
        self.transfers = RunningTransfers()
        self.takeover_backoff = TakeoverBackoff()
        self._sessions: dict[SessionId, Session] = {}
        self._changed: dict[SessionId, bool] = {}
        """What the store does not have yet: session -> whether its descriptor is among it."""
        self.departures = 0
        """How many receivers have left for good at this proxy; connections and relays that are older than such an
        event are told by it.
        """
        self.matcher = Matcher()
        self._described: dict[SessionId, int] = {}
        self._described_bytes = 0

    def __getitem__(self, session: SessionId) -> Session:
        return self._sessions[session]

    def __iter__(self) -> Iterator[SessionId]:
        return iter(self._sessions)

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: object) -> bool:
        return session in self._sessions

    def receiver_left(self) -> int:
        """Count one more receiver that has left for good; return :attr:`departures`."""
        self.departures += 1
        return self.departures

    def values(self) -> ValuesView[Session]:
        """Return a view of the sessions; do not put or remove one while iterating over it."""
        return self._sessions.values()

    def put(self, session: Session) -> None:
        """Add the session, in place of any other one of its name, and match by its subscriptions.

        The session is not marked as changed: the caller calls :meth:`mark_changed` if the store is to have it.
        """
        self._sessions[session.id] = session
        self.matcher.put(session)

    def subscriptions_changed(self, session: Session) -> None:
        """Match by the subscriptions that the session has now; a session that is not in here is ignored."""
        if self._sessions.get(session.id) is session:
            self.matcher.put(session)

    def remove(self, session: SessionId) -> None:
        """Remove the session, its subscriptions and its mark of a change. Raises KeyError: it is not in here."""
        del self._sessions[session]
        self._described_bytes -= self._described.pop(session, 0)
        self.matcher.remove(session)
        self.unmark(session)

    def require_room(self, session: Session, more: int, max_bytes: int) -> None:
        """Check that a session's descriptor may grow, and count its size among those of all sessions here.

        A session that came by a handover, or from the disk, counts from its first growth here: what it brings was
        admitted before, and is never refused.

        Args:
            more: bytes that are about to be added to the descriptor.
            max_bytes: the most bytes that the descriptors of all sessions may have together.

        Raises:
            LimitExceeded: the session's descriptor (:meth:`Session.check_room`), or all together, would be too large.
        """
        session.check_room(more)
        total = self._described_bytes + session.described_bytes - self._described.get(session.id, 0)
        if total > max_bytes:
            # It is not added: what is refused again and again must not take the room of other sessions.
            session.return_room(more)
            raise LimitExceeded("the subscriptions and receivers of all sessions take more memory than this proxy has")
        self._described_bytes, self._described[session.id] = total, session.described_bytes

    def serving(self, session: SessionId) -> Session | None:
        """Return the session if it is served here now, under a lease that holds; else None."""
        found = self._sessions.get(session)
        if found is None or found.role is not Role.SERVING or not self._lease.may_serve():
            return None
        return found

    # ------------------------------------------------------------ changes

    @property
    def has_changes(self) -> bool:
        """Whether a session has changed since :meth:`drain_changed`."""
        return bool(self._changed)

    @property
    def changed(self) -> KeysView[SessionId]:
        """The sessions that have changed since :meth:`drain_changed`: a view, in the order of their first change."""
        return self._changed.keys()

    def mark_changed(self, session: SessionId) -> None:
        """Mark a session as changed: the store is to have it with the next flush."""
        self._changed[session] = True

    def mark_extended(self, session: SessionId) -> None:
        """Mark a session that has new entries, and a descriptor that is as the store has it."""
        self._changed.setdefault(session, False)

    def mark_all_changed(self, sessions: Iterable[SessionId]) -> None:
        """Mark all these sessions as changed (:meth:`mark_changed`), whether or not they are in the table."""
        self._changed.update(dict.fromkeys(sessions, True))

    def unmark(self, session: SessionId) -> None:
        """Remove the mark of a session: the store is to have nothing more of it."""
        self._changed.pop(session, None)

    def drain_changed(self) -> dict[SessionId, bool]:
        """Return the sessions that have changed since the last call, and unmark them; in order of their first change.

        Returns:
            Session -> whether more has changed than its entries.
        """
        changed, self._changed = self._changed, {}
        return changed
