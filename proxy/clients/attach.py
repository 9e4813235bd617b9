"""Attaching receivers: they wait for a session, are admitted, relayed or sent to another proxy, and detach."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from handover.acquisition_inputs import NoSuchSession, Reason, RetryLater
from proxy.clients.authorization import Admitted, Authorizer, Proof
from proxy.clients.connection import Connection, problem
from proxy.core.effects import Hangup, Send
from proxy.core.environment import Environment
from proxy.core.events import (
    AcquireRequest,
    DeliveryDue,
    MoveRequested,
    NearRelayEndRequested,
    NearRelayRequested,
    ReceiverReturned,
    Requester,
    RequestWithdrawn,
    SessionRequested,
)
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.ownership.served_sessions import taken
from proxy.session.receivers import Receiver, check_frontier, check_overtaking
from proxy.session.session import Session
from proxy.session.session_policy import SessionPolicy, policy_of
from proxy.session.subscription import Subscription
from proxy.stream.stream import Stream
from waypost.access import ADMINISTER
from waypost.clock import NEVER
from waypost.errors import Forbidden, LimitExceeded, NotFound, Refused, SessionLost, WaypostError
from waypost.facts import FactKind
from waypost.frontier import Selective
from waypost.identity import NO_PROXY, Ownership, ProxyId, ReceiverId, SessionId
from waypost.limits import BEST_EFFORT_EXPIRY_S, MAX_RECEIVERS_PER_SESSION
from waypost.messages import Attach, Attached, BecameEffective, Moved, Problem, Wait, WaitCause
from waypost.reliability import Reliability, check_level

NOT_MOVED_MS = 5_000
"""For so long at least a session is asked for here before its client is sent to the owner."""


class AttachHandler:
    """Attaches receivers to sessions, and detaches them."""

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        stream: Stream,
        authorizer: Authorizer,
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._persister = stream.persister
        self._coverage = stream.coverage
        self._promises = stream.promises
        self._expiry = stream.expiry
        self._authorizer = authorizer
        self._waiting: dict[SessionId, dict[int, Connection]] = {}
        """Session -> number -> connection that waits for it; one that asks again waits once."""
        self._ending: dict[int, Connection] = {}
        """Connections that were admitted by a token, which comes to an end."""

    def _send(self, connection: Connection, message: object) -> None:
        self._output.emit(Send(connection.number, message))  # type: ignore[arg-type]

    def leave(self, connection: Connection) -> None:
        """Detach the connection from its session, or from the one that it waits for. The receiver stays registered; the
        client is told nothing. Nothing happens if it is neither attached nor waits. A relay of the connection goes on.

        If no other connection waits for that session, RequestWithdrawn is reported.
        """
        receiver = self.receiver_on(connection)
        if receiver is not None:
            receiver.disconnect()
        if connection.attach is not None:
            self._wait_no_more(connection, SessionId(connection.attach.session))
        connection.detached()
        self._ending.pop(connection.number, None)

    def _wait_no_more(self, connection: Connection, session: SessionId) -> None:
        waiting = self._waiting.get(session)
        if waiting is not None and waiting.pop(connection.number, None) is not None and not waiting:
            del self._waiting[session]
            self._output.report(RequestWithdrawn(session))

    def receiver_of(self, connection: Connection) -> Receiver | None:
        """Return the receiver as which the connection was admitted; None: it is not attached, or its session has gone.

        The receiver may be attached on a later connection by now (:meth:`receiver_on`).
        """
        if connection.session is None or connection.receiver is None:
            return None
        session = self._sessions.get(connection.session)
        return session.receivers.get(connection.receiver) if session else None

    def receiver_on(self, connection: Connection) -> Receiver | None:
        """Return the receiver that is attached on the connection; None: none is, or a later connection has it."""
        receiver = self.receiver_of(connection)
        return receiver if receiver is not None and receiver.connection == connection.number else None

    def attach(self, connection: Connection, message: Attach) -> None:
        """Attach a receiver to a session: here, by a relay, or once the session is served here.

        The connection is detached from its session and from its relay first. The client is answered with Attached,
        Moved, Wait or Problem, now or later; or its connection is closed, where the receiver has unregistered itself
        since it sent this.
        """
        self.leave(connection)
        self._output.report(NearRelayEndRequested(connection.number))
        connection.attach_requested(message, self._env.time.now_ms)
        identity = SessionId(message.session)
        session = self._sessions.serving(identity)
        if session is not None:
            self._output.report(ReceiverReturned(identity))
            self._enter(connection, session)
            return
        if self._env.proxy in self._env.cluster.drains and self._send_away(connection, identity):
            return
        self._waiting.setdefault(identity, {})[connection.number] = connection
        requester = Requester(message.receiver, message.incarnation)
        self._output.report(SessionRequested(identity, AcquireRequest(requester, message.create)))

    def _send_away(self, connection: Connection, session: SessionId) -> bool:
        """This proxy is being emptied: tell the client a better one; False: there is none."""
        owner = self._env.cluster.owners.get(session)
        row = self._env.cluster.proxies.get(owner.proxy) if owner else None
        if row is None or row.proxy == self._env.proxy:
            row = self._env.cluster.target()
        if row is None:
            return False
        connection.attach_answered()
        self._send(connection, Moved(session, row.proxy, row.url))
        return True

    def _send_to_owner(self, connection: Connection, session: SessionId) -> bool:
        """The session does not come here, nor do its answers, and its owner lives: tell the client who that is.

        The two proxies may not reach each other. But an owner that is dead counts as alive until its lease has ended,
        and then the session comes here; nobody is sent to it before.

        Returns:
            False: it is too early, or nobody else has the session.
        """
        owner = self._env.cluster.owners.get(session)
        row = self._env.cluster.proxies.get(owner.proxy) if owner is not None else None
        if (
            row is None
            or row.proxy == self._env.proxy
            or connection.relayed_by is not None
            or connection.attaches is None
        ):
            return False
        if self._env.time.now_ms - connection.attaches.since_ms <= max(row.lease_ttl_ms, NOT_MOVED_MS):
            return False
        connection.sent_away()
        self._send(connection, Moved(session, row.proxy, row.url))
        return True

    def relay(self, session: SessionId, owner: ProxyId, departures: int) -> None:
        """Relay the connections that wait for the session to its owner, where it stays.

        A client that has waited for longer than the lease of the owner's proxy, and NOT_MOVED_MS at least, is told to
        attach at the owner itself (Moved), unless its connection is relayed to this proxy.

        Args:
            departures: as the owner has named it (:class:`handover.messages.TransferDeclined`).
        """
        for connection in self._waiting.pop(session, {}).values():
            attach = connection.attach
            if attach is not None and attach.session == session:
                if self._send_to_owner(connection, session):
                    continue
                connection.attach_answered()
                self._output.report(NearRelayRequested(connection.number, attach, owner, departures))

    def _enter(self, connection: Connection, session: Session) -> None:
        """The session is served here: take the receiver in where its frontier says."""
        message = connection.attach
        if message is None or (admitted := self._admit(connection, session, message)) is None:
            return
        if session.former_receivers.has_left_since(
            ReceiverId(message.receiver), message.incarnation, message.attach_seq, connection.departures
        ):
            connection.attach_answered()
            self._output.emit(Hangup(connection.number, "the receiver has left for good since"))
            return
        if _is_of_earlier_generation(session, message):
            # It may be long on its way, from a receiver that has left that one for good: it is not registered in this.
            text = f"the session {session.id} that it was in was deleted; this one was made since"
            self._reject(connection, message, NotFound(text, field="session"))
            return
        try:
            reliability = self._choose_reliability(session, admitted.principal, message)
        except Refused as error:
            self._reject(connection, message, error)
            return
        receiver = session.receivers.get(ReceiverId(message.receiver))
        if receiver is None:
            self._join(connection, session, message, reliability)
            return
        if receiver.is_best_effort and reliability.events == "persistent":
            receiver.become_persistent(reliability)
        if not receiver.is_durable:
            # Perhaps another connection waits for that too, or the disk did not take it.
            self._once_written(connection, session, receiver, message)
            return
        connection.attach_answered()
        if self._take_registration(connection, session, receiver, message):
            self._bind(connection, session, receiver, message, admitted, reliability)
            self._send_attached(connection, session, receiver, message)

    def _take_registration(self, connection: Connection, session: Session, receiver: Receiver, message: Attach) -> bool:
        """Disconnect the receiver of this name on another connection; False: it stays, and this one has to wait."""
        if receiver.connection is None or receiver.connection == connection.number:
            return True
        if receiver.incarnation != message.incarnation:
            now = self._env.time.now_ms
            pause_ms = self._sessions.takeover_backoff.try_takeover(session.id, receiver.id, message.incarnation, now)
            if pause_ms:
                self._send(
                    connection,
                    Wait(WaitCause.RECEIVER_IN_USE, f"receiver {receiver.id} is in use in two places", pause_ms),
                )
                return False
            self._output.emit(Send(receiver.connection, taken(session.id, receiver.id)))
        self._output.emit(Hangup(receiver.connection, "the receiver attached again"))
        return True

    def _bind(
        self,
        connection: Connection,
        session: Session,
        receiver: Receiver,
        message: Attach,
        admitted: Admitted,
        reliability: Reliability,
    ) -> None:
        """The receiver is on this connection from now on, and the session as it wants it."""
        connection.attached_to(session.id, message, admitted)
        if admitted.until_ms != NEVER:
            self._ending[connection.number] = connection
        confirmed = self._env.confirmed(session, message.frontier)
        coordinates = self._env.confirmed_coordinates(session, message.selective)
        receiver.connect(connection.number, message, confirmed, coordinates)
        # Its state need not be sent again: another receiver of its name may come without a state of its own.
        session.raise_frontier(receiver, confirmed)
        receiver.configure(reliability, _receiver_expiry_s(reliability, message.receiver_expiry_s))
        self._expiry.apply_policy(session, _wanted(session, message))
        session.idle_time.reset()

    def _send_attached(self, connection: Connection, session: Session, receiver: Receiver, message: Attach) -> None:
        """Tell it of the session, and give it what there is for it."""
        is_new = receiver.take_new()
        frontier = dict(message.frontier)
        self._output.journal.attest(
            FactKind.ATTACHED, session, receiver=receiver.id, frontier=frontier, best_effort=receiver.is_best_effort
        )
        subscriptions = {sub.id: sub.settings() for sub in session.subscriptions.active()}
        site, stored = self._env.settings.site, session.entries.count
        attached = Attached(
            session=session.id,
            epoch=session.epoch,
            proxy=self._env.proxy,
            site=site,
            subscriptions=subscriptions,
            stored=stored,
            joined=is_new,
        )
        self._send(connection, attached)
        self.tell_promises(connection, session, session.subscriptions.active())
        session.gaps.passed(receiver, frontier)
        if session.gaps.concern(receiver):
            self._send_gaps_first(session, receiver)
        self._sessions.mark_changed(session.id)
        self._coverage.watch(session)
        self._promises.promise(session)
        self._output.report(DeliveryDue(session))
        self._move_toward_receiver(connection, session)

    def _admit(self, connection: Connection, session: Session, message: Attach) -> Admitted | None:
        """Let it in, as what is returned; None: it was told why not, or will be when its password was looked at."""

        def found_out(found: Proof | Wait | Forbidden) -> None:
            if connection.attach is not message or connection.is_closed:
                return
            if not isinstance(found, Proof):
                self._reject(connection, message, found)
                return
            connection.proved(found)
            self._enter_or_attach(connection, session, message)

        try:
            answer = self._authorizer.admit(session, message, connection.proof, found_out)
        except Forbidden as error:
            self._reject(connection, message, error)
            return None
        if isinstance(answer, Wait):
            self._reject(connection, message, answer)
            return None
        return answer

    def _choose_reliability(self, session: Session, principal: str, message: Attach) -> Reliability:
        """Return what reliability the receiver is to have.

        Raises:
            Refused: one is higher than the level above it allows, or it may not change the session's ways, or it says
                to have more out of order than can be.
        """
        receiver = session.receivers.get(ReceiverId(message.receiver))
        check_overtaking(receiver.selective if receiver else Selective(), message.selective)
        check_frontier(receiver.frontier if receiver else {}, message.frontier)
        if receiver is None:
            if len(session.receivers) >= MAX_RECEIVERS_PER_SESSION:
                most = f"the session has {MAX_RECEIVERS_PER_SESSION} receivers, and may have no more"
                raise LimitExceeded(most, field="receiver")
            if session.subscriptions.ended:
                session.forget_ended(self._env.state.frontier)
            more = len(msgspec.json.encode((message.frontier, message.selective)))
            self._sessions.require_room(session, more, self._env.settings.described_bytes)
        if _wanted(session, message) != policy_of(session):
            self._authorizer.require(session, principal, ADMINISTER)
        above = self._env.settings.reliability
        if message.session_reliability is not None:
            check_level(message.session_reliability, above, "session_reliability")
        above = above.below(message.session_reliability or session.reliability)
        if message.reliability is not None:
            check_level(message.reliability, above, "reliability")
        return above.below(message.reliability or above)

    def _reject(self, connection: Connection, message: Attach, why: Wait | Refused) -> None:
        connection.attach_answered()
        self._send(connection, problem(why, message) if isinstance(why, Refused) else why)

    def _enter_or_attach(self, connection: Connection, session: Session, message: Attach) -> None:
        """Something was waited for: the session may be somewhere else by now."""
        if self._sessions.serving(session.id) is session:
            self._enter(connection, session)
        else:
            self.attach(connection, message)

    def _move_toward_receiver(self, connection: Connection, session: Session) -> None:
        """A session that not everybody may have has not gone to who asked for it: it goes to who was let in.

        Not where it has just come: its other receivers are on their way here, and would draw it back.
        """
        at = connection.relayed_by
        if at is None or not session.access or len(session.receivers.attached()) > 1:
            return
        rested_ms = self._env.time.now_ms - session.served_since_ms
        if len(session.receivers) == 1 or rested_ms >= self._env.settings.dwell_ms:
            self._output.report(MoveRequested(session.id, at))

    def _join(self, connection: Connection, session: Session, message: Attach, reliability: Reliability) -> None:
        """Let a new receiver in once store and changelog know of it: a failover must keep for it what others have."""
        owed_above = session.acknowledged_frontier(self._env.state.frontier)
        joined = session.join(ReceiverId(message.receiver), owed_above)
        joined.configure(reliability, _receiver_expiry_s(reliability, message.receiver_expiry_s))
        self._output.journal.attest(
            FactKind.REGISTERED,
            session,
            receiver=joined.id,
            frontier=dict(joined.frontier),
            best_effort=joined.is_best_effort,
        )
        self._expiry.watch(session)
        # The promises to it must be on record no later than its registration.
        self._output.journal.once_attested(lambda: self._once_written(connection, session, joined, message))

    def _once_written(self, connection: Connection, session: Session, receiver: Receiver, message: Attach) -> None:
        """Let the receiver in when store and changelog have its registration as it is now."""
        if self._sessions.serving(session.id) is not session:
            # Something was waited for, and the session may be somewhere else by now.
            if connection.attach is message and not connection.is_closed:
                self.attach(connection, message)
            return

        def on_done(failure: WaypostError | None) -> None:
            receiver.written(is_durable=failure is None)
            if connection.attach is not message or connection.is_closed:
                return
            if failure is not None:
                connection.attach_answered()
                self._send(connection, Wait(WaitCause.UNAVAILABLE, failure.message, self._env.settings.retry_ms))
            else:
                self._enter_or_attach(connection, session, message)

        self._sessions.mark_changed(session.id)
        self._persister.write(session, on_done)

    def _send_gaps_first(self, session: Session, receiver: Receiver) -> None:
        """Tell it of its gaps when they are on record; until then it gets nothing that comes behind (handover rule 21).

        Else its own frontier would pass a gap that it was not told of, and say at the next attach that it has all that.
        """
        receiver.window.begin_wait()
        connection = receiver.connection

        def tell() -> None:
            if receiver.connection == connection and self._sessions.get(session.id) is session:
                receiver.window.end_wait()
                self._coverage.announce_gaps(session, receiver)
                self._output.report(DeliveryDue(session))

        self._output.journal.once_attested(tell)

    def tell_promises(self, connection: Connection, session: Session, subscriptions: Iterable[Subscription]) -> None:
        """Tell the client the durable promises of these subscriptions, once the journal has all facts so far; nothing
        of those that have ended by then, or if the client has attached anew.

        An owner before may not have told the client. Promises that are not durable yet are told to all receivers later.
        """
        attached = connection.attached
        promises = [(subscription, kept) for subscription in subscriptions if (kept := subscription.durable_promises)]

        def tell() -> None:
            if connection.attached != attached or self._sessions.get(session.id) is not session:
                return
            for subscription, kept in promises:
                if session.subscriptions.goes_on(subscription):
                    self._send(connection, BecameEffective(subscription.id, kept))

        if promises:
            self._output.journal.once_attested(tell)

    def served(self, session: Session) -> None:
        """Attach the connections that wait for the session: it is served here from now on."""
        for connection in self._waiting.pop(session.id, {}).values():
            if connection.attach is not None and connection.attach.session == session.id:
                self._enter(connection, session)

    def unavailable(self, session: SessionId, reason: Reason) -> None:
        """Answer the connections that wait for a session that cannot be served here.

        A client that has waited for long enough is sent to the live owner after RetryLater, as by :meth:`relay`.

        Args:
            reason: after RetryLater the client tries again; after NoSuchSession only one that would create it does;
                SessionLost is final.
        """
        for connection in self._waiting.pop(session, {}).values():
            attach = connection.attach
            if attach is None or attach.session != session:
                continue
            if isinstance(reason, RetryLater) and self._send_to_owner(connection, session):
                continue
            connection.attach_answered()
            self._send(connection, self._answer_of(reason, attach))

    def _answer_of(self, reason: Reason, attach: Attach) -> Wait | Problem:
        retry_ms = self._env.settings.retry_ms
        match reason:
            case RetryLater(why):
                return Wait(WaitCause.UNAVAILABLE, why, retry_ms)
            case NoSuchSession() if attach.create:
                # It was in line behind somebody who would not make the session.
                return Wait(WaitCause.NO_SESSION, "there is no such session yet", retry_ms)
            case NoSuchSession():
                return problem(NotFound(f"there is no session {attach.session}", field="session"), attach)
            case SessionLost():
                return problem(reason, attach)

    def fence(self, connections: Iterable[Connection]) -> None:
        """Detach all connections that are attached here or wait for it, and tell their clients to attach again: the
        lease has ended. Clients that are relayed from here to another proxy are told by :meth:`NearRelays.fence`.

        The receivers are detached by :meth:`ServedSessions.fence`.

        Args:
            connections: all connections of this proxy, relayed ones too.
        """
        wait = Wait(WaitCause.NO_LEASE, "this proxy has no lease at the moment", self._env.settings.retry_ms)
        for connection in connections:
            if connection.session is not None or connection.attach is not None:
                connection.detached()
                self._send(connection, wait)
        self._waiting.clear()
        self._ending.clear()

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Detach receivers whose token has ended; they attach again with another one."""
        now = self._env.time.now_ms
        for connection in [connection for connection in self._ending.values() if now >= connection.until_ms]:
            self.leave(connection)
            self._send(connection, Wait(WaitCause.TOKEN_ENDED, "the token has ended by which this was read", 0))

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return min([connection.until_ms for connection in self._ending.values()], default=NEVER)


def _wanted(session: Session, message: Attach) -> SessionPolicy:
    """Return the policy of the session as whoever attaches wants it; what is not said, stays as it was."""
    policy = policy_of(session)
    return SessionPolicy(
        policy.expiry_s if message.session_expiry_s is None else message.session_expiry_s,
        policy.reliability if message.session_reliability is None else message.session_reliability,
        policy.queue if message.queue is None else message.queue,
    )


def _is_of_earlier_generation(session: Session, message: Attach) -> bool:
    """Tell whether it means a session that was deleted before this one of the same name was made (handover rule 22)."""
    return (
        message.epoch > 0
        and not message.create
        and Ownership(NO_PROXY, session.epoch).is_later_generation_than(message.epoch)
    )


def _receiver_expiry_s(reliability: Reliability, asked_s: int | None) -> int | None:
    """Return for how many seconds a registration outlives the receiver's connection."""
    if reliability.connection == "persistent":
        return asked_s
    return min(asked_s or BEST_EFFORT_EXPIRY_S, BEST_EFFORT_EXPIRY_S)
