"""The client protocol: what each message of a connection asks for, and when it is answered.

Nothing is acknowledged before it is safe: a publish when the site log has it, a subscription change when it is in the
store and in the changelog, with epoch and lease looked at again after the write (handover rule 6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from handover.acquisition_inputs import Reason
from proxy.clients.access_changes import AccessControl
from proxy.clients.admin import Administration
from proxy.clients.attach import AttachHandler
from proxy.clients.authorization import Authorizer
from proxy.clients.connection import Change, Connection, OfSession, problem
from proxy.clients.delivery import DeliveryHandler
from proxy.clients.durable_reply import DurableReplies, not_served
from proxy.clients.proxy_list import ProxyList
from proxy.clients.publish import PublishHandler
from proxy.clients.quench import QuenchHandler
from proxy.clients.relay import Relays
from proxy.clients.subscribe import Subscriptions
from proxy.core import journal_facts
from proxy.core.effects import Attest, Hangup, Send
from proxy.core.environment import Environment
from proxy.core.events import AccessHashed, DeletionRequested
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.receivers import Receiver, check_overtaking
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.stream.stream import Stream
from waypost.access import ADMINISTER, READ, SUBSCRIBE, Right
from waypost.errors import (
    Altered,
    AnotherFederation,
    BadMessage,
    LogUnavailable,
    NotServed,
    Refused,
    WaypostError,
    WrongVersion,
)
from waypost.facts import FactKind
from waypost.identity import Origin, ProxyId, SessionId, SubscriptionId
from waypost.keys import PRODUCER, primed
from waypost.limits import DEFERRED_CHANGES
from waypost.messages import (
    VERSION,
    Acknowledge,
    Attach,
    Attestation,
    Attested,
    ClientMessage,
    Delete,
    Detach,
    Forgotten,
    Hello,
    KeysChanged,
    Left,
    ListProxies,
    Problem,
    Publish,
    PublishWith,
    Quench,
    SetAccess,
    SetKeys,
    Subscribe,
    Subscribed,
    SubscriptionChanged,
    Unsubscribe,
    Unsubscribed,
    Wait,
    WaitCause,
    Welcome,
)
from waypost.subscription import parse

NEEDED: dict[type[Change], Right] = {
    Subscribe: SUBSCRIBE,
    Unsubscribe: SUBSCRIBE,
    SetKeys: SUBSCRIBE,
    Delete: ADMINISTER,
    SetAccess: ADMINISTER,
    Detach: READ,
}
"""The right that each request needs."""


class ClientDispatcher:
    """All connections of clients."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, stream: Stream) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._promises = stream.promises
        self._expiry = stream.expiry
        self.connections: dict[int, Connection] = {}
        self.authorizer = Authorizer(env, sessions, output)
        self.subscriptions = Subscriptions(env, sessions, output, stream)
        self.relays = Relays(env, output)
        self.delivery = DeliveryHandler(env, sessions, output, stream.expiry, self.connections)
        self.publishing = PublishHandler(env, output)
        self.quenching = QuenchHandler(env, output)
        self.attach_handler = AttachHandler(env, sessions, output, stream, self.authorizer)
        self._durable_replies = DurableReplies(env, sessions, output, stream.persister)
        self.access = AccessControl(env, sessions, output, self._durable_replies, self.authorizer)
        self._proxy_list = ProxyList(env)
        self.administration = Administration(env, sessions, stream, self.access, self.subscriptions)
        self._deferred: dict[SessionId, list[tuple[Connection, Change]]] = {}
        """Requests that came while their session was frozen; they are taken when it is served again."""

    def deferred(self) -> list[int]:
        """Return the number of requests that wait, for each frozen session."""
        return [len(changes) for changes in self._deferred.values()]

    # ------------------------------------------------------------ connections

    def connected(
        self, number: int, address: str = "", relayed_by: ProxyId | None = None, departures: int | None = None
    ) -> None:
        """Begin a connection.

        Args:
            number: of the connection; below 0: the client is connected at another proxy.
            address: of the client; "": not known.
            relayed_by: that other proxy; None: there is none.
            departures: how many receivers had left for good here when the relay was agreed on; None: as many as now.
        """
        began_at = self._sessions.departures if departures is None else departures
        self.connections[number] = Connection(
            number=number, address=address, relayed_by=relayed_by, departures=began_at
        )

    def disconnected(self, number: int) -> None:
        """End a connection: its receiver is detached, its publishes that wait are dropped, its relay ends.

        Nothing is done if there is no connection of that number.
        """
        connection = self.connections.pop(number, None)
        if connection:
            connection.close()
            self.attach_handler.leave(connection)
            self.publishing.disconnected(number)
            self.quenching.leave(number)
            self.relays.near.leave(number)

    def written_bytes(self, number: int) -> int:
        """Return about how many bytes a change of the connection's session writes.

        Returns:
            0: there is no such connection, or its session is not here.
        """
        connection = self.connections.get(number)
        identity = connection and (connection.session or (connection.attach and SessionId(connection.attach.session)))
        session = self._sessions.get(identity) if identity else None
        return session.described_bytes if session is not None else 0

    def _send(self, connection: Connection, message: object) -> None:
        self._output.emit(Send(connection.number, message))  # type: ignore[arg-type]

    def relay(self, number: int, attach: Attach, owner: ProxyId, departures: int) -> None:
        """Relay the client of a connection to the owner of its session; nothing is done if there is no connection of
        that number any more.

        Args:
            number: of the connection.
            attach: the client's attach; the owner answers it.
            departures: as the owner has named it.
        """
        connection = self.connections.get(number)
        if connection is not None:
            self.relays.near.begin(connection, attach, owner, departures)

    def fence(self) -> None:
        """End all relays, detach all connections, and tell their clients to attach again: the lease has ended."""
        self.relays.fence()
        self.attach_handler.fence(self.connections.values())

    # ------------------------------------------------------------ messages

    def message(self, number: int, message: ClientMessage) -> None:
        """Take one message of a client; an invalid one is answered with a Problem, and the connection goes on. Before
        Hello every other message is invalid.

        The connection is closed (Hangup) instead where this proxy has not read the registry's secret yet and Hello
        needs it, and where a publish comes after the end of its token.

        Args:
            number: of the connection; if there is none of that number, the message is dropped.
        """
        connection = self.connections.get(number)
        if connection is None:
            return
        try:
            self._take(connection, message)
        except Refused as error:
            self._output.counters.refused[error.kind] += 1
            self._send(connection, problem(error, message))
        except (LogUnavailable, Altered) as error:
            self._send(connection, problem(error, message))

    def _take(self, connection: Connection, message: ClientMessage) -> None:  # noqa: PLR0912 - a dispatch
        if isinstance(message, Hello):
            self._hello(connection, message)
            return
        if not connection.client:
            raise BadMessage("say hello first")
        if isinstance(message, OfSession) and connection.number in self.relays.near:
            self.relays.near.up(connection.number, message)
            return
        match message:
            case Attach():
                self.attach_handler.attach(connection, message)
            case Subscribe():
                self._subscribe(connection, message)
            case Unsubscribe():
                self._unsubscribe(connection, message)
            case SetKeys():
                self._set_keys(connection, message)
            case Publish():
                self._publish(connection, message)
            case PublishWith():
                connection.keys_changed(primed(PRODUCER, message.keys))
                self.quenching.keys_changed(connection.number, connection.keys)
            case Quench():
                self.quenching.quench(connection.number, message, connection.keys)
            case Acknowledge():
                self._acknowledge(connection, message)
            case Detach():
                self._detach(connection, message)
            case Delete():
                self._delete(connection, message)
            case SetAccess():
                self._set_access(connection, message)
            case ListProxies():
                self._send(connection, self._proxy_list.listed())
            case _:
                assert_never(message)

    def _hello(self, connection: Connection, message: Hello) -> None:
        if message.version != VERSION:
            raise WrongVersion(f"version {message.version}; this proxy speaks {VERSION}", field="version")
        federation = self._env.cluster.federation
        if message.federation and not federation:
            self._output.emit(Hangup(connection.number, "this proxy has not read the registry's secret yet"))
            return
        if message.federation and message.federation != federation:
            raise AnotherFederation(
                f"proxy {self._env.proxy} is of federation {federation}, and this client publishes in federation "
                f"{message.federation}; does the list of proxies name those of one federation only?",
                field="federation",
            )
        has_token = bool(self._env.settings.publishers and message.credential.token)
        if has_token and not self._env.cluster.token_key:
            self._output.emit(Hangup(connection.number, "this proxy cannot look at tokens yet"))
            return
        connection.greeted(message.client, self.authorizer.named(message.credential))
        self._send(connection, Welcome(VERSION, self._env.proxy, self._env.settings.site, federation))

    def _publish(self, connection: Connection, message: Publish) -> None:
        if self.authorizer.let_publish(connection.named):
            self.publishing.publish(connection.number, message, connection.keys)
        else:
            # Deliveries in flight come again on the next connection, which begins with another token.
            self._output.emit(Hangup(connection.number, "the token has ended by which this was published"))

    # ------------------------------------------------------------ sessions

    def deliver(self, session: Session) -> None:
        """Deliver the session's entries to its attached receivers, as far as their windows allow."""
        self.delivery.to_all(session)

    def served(self, session: Session) -> None:
        """Answer the clients of a session that is served here from now on.

        Clients that wait are attached, relayed ones are told to attach again, and requests that came while the session
        was frozen are taken now.
        """
        self.relays.near.end_of_acquired(session.id)
        self.attach_handler.served(session)
        self._durable_replies.served(session)
        for connection, message in self._deferred.pop(session.id, []):
            if connection.session == session.id:
                self.message(connection.number, message)
        self.delivery.to_all(session)

    def unavailable(self, session: SessionId, reason: Reason) -> None:
        """Answer the clients that wait for a session that cannot be served here. Without a copy here, drop the requests
        that came while it was frozen, and the answers that were put off; answers to ended subscriptions are given at
        once.

        Args:
            reason: after RetryLater the client tries again; after NoSuchSession only one that would create it does;
                SessionLost is final.
        """
        if session not in self._sessions:
            # Else it stands still, and those who are attached to it wait for an answer.
            self._deferred.pop(session, None)
            self._durable_replies.session_removed(session)
            self.subscriptions.end_replies.session_removed(session)
        self.attach_handler.unavailable(session, reason)

    def _detach(self, connection: Connection, message: Detach) -> None:
        if message.forget:
            self._forget(connection, message)
            return
        session = self._sessions.get(connection.session) if connection.session else None
        receiver = self.attach_handler.receiver_of(connection)
        if receiver is not None:
            check_overtaking(receiver.selective, message.selective)
        self.attach_handler.leave(connection)
        if session is not None and receiver is not None and session.role is not Role.SERVING:
            # The next owner is to know what it has; a proxy that was fenced, or has released the session, has said so.
            wait = Wait(WaitCause.MOVED, "the session changes hands at this moment", self._env.settings.retry_ms)
            self._send(connection, wait)
            if session.role is Role.FROZEN:
                self._raise_cursors_while_frozen(
                    session,
                    receiver,
                    self._env.confirmed(session, message.frontier),
                    self._env.confirmed_coordinates(session, message.selective),
                )
        elif session is not None and receiver is not None:
            self._send(connection, Left(receiver.id))
            receiver.raise_selectively(self._env.confirmed_coordinates(session, message.selective))
            session.raise_frontier(receiver, self._env.confirmed(session, message.frontier))
            self._sessions.mark_changed(session.id)

    def _raise_cursors_while_frozen(
        self,
        session: Session,
        receiver: Receiver,
        frontier: Mapping[Origin, int],
        selective: Mapping[Origin, list[int]],
    ) -> None:
        """Move the receiver's cursors, and nothing that is handed over: entries go when the session thaws.

        Should this process end before the registry has decided, store and changelog have what the receiver said.
        """
        receiver.raise_selectively(selective)
        receiver.raise_frontier(frontier)
        self._sessions.mark_changed(session.id)

    def _forget(self, connection: Connection, message: Detach) -> None:
        """Unregister the receiver; answered once store and changelog know of it, as all that changes a session."""
        session, receiver = self._session_of(connection, message), self.attach_handler.receiver_of(connection)
        if session is None or receiver is None:
            return
        # As they are now: the client may attach as another receiver before the answer.
        incarnation, attach_seq = connection.incarnation, connection.attach_seq
        self.attach_handler.leave(connection)

        def on_done(is_gone: bool) -> None:
            if is_gone:
                departures = self._sessions.receiver_left()
                session.former_receivers.record_unregistration(receiver.id, incarnation, attach_seq, departures)
                answer = Forgotten(receiver.id)
                self._durable_replies.reply_when_durable(
                    connection, session, message, lambda: self._send(connection, answer)
                )
            else:
                # The client attaches again, and repeats its request.
                self._send(connection, Wait(WaitCause.MOVED, "the session has moved", self._env.settings.retry_ms))

        self._expiry.forget(session, receiver, on_done=on_done)

    def _delete(self, connection: Connection, message: Delete) -> None:
        session = self._session_of(connection, message)
        if session is not None:
            reason = f"receiver {connection.receiver} asked for it"
            self._output.report(DeletionRequested(session, reason))

    # ------------------------------------------------------------ subscriptions

    def _session_of(self, connection: Connection, message: Change) -> Session | None:
        """Return the session; None: it stands still, and the message waits until the registry has decided.

        Raises:
            Forbidden: whoever is on this connection does not have the right that it needs.
        """
        held = self._attached_to(connection)
        if held is not None and held.role is Role.FROZEN:
            deferred = self._deferred.setdefault(held.id, [])
            if len(deferred) >= DEFERRED_CHANGES:
                raise NotServed(f"{DEFERRED_CHANGES} requests wait for this session, which is handed over; ask again")
            deferred.append((connection, message))
            return None
        if held is None or self._sessions.serving(held.id) is not held:
            raise not_served()
        self.authorizer.require(held, connection.principal, NEEDED[type(message)])
        return held

    def _attached_to(self, connection: Connection) -> Session | None:
        """Return the session whose receiver is on this connection; not the next one of its name (handover rule 22)."""
        if connection.session is None or self.attach_handler.receiver_on(connection) is None:
            return None
        return self._sessions[connection.session]

    def _subscribe(self, connection: Connection, message: Subscribe) -> None:
        expression = parse(message.expression)
        session = self._session_of(connection, message)
        if session is None:
            return
        self.subscriptions.add(session, message, expression, connection.receiver or "", connection.payer)
        self._reply_when_durable(connection, session, message)

    def _unsubscribe(self, connection: Connection, message: Unsubscribe) -> None:
        session = self._session_of(connection, message)
        if session is None:
            return
        identity, attached = SubscriptionId(message.subscription), connection.attached
        self.subscriptions.unsubscribe(session, identity)

        def answer() -> None:
            if connection.attached == attached:
                # Else it has attached since, and asked again for what was not answered by then.
                self._reply_when_durable(connection, session, message)

        self.subscriptions.end_replies.reply_when_known(session, identity, connection.number, answer)

    def _set_access(self, connection: Connection, message: SetAccess) -> None:
        session = self._session_of(connection, message)
        if session is not None:
            self.access.set(connection, session, message)

    def access_hashed(self, event: AccessHashed) -> None:
        """Put a requested access in force, now that its passwords are hashed, or tell the client why not.

        Nothing is done if the connection has gone, or has attached anew since: the client asks again. While the session
        is frozen, the request waits, and is hashed anew when the session is served again.
        """
        connection = self.connections.get(event.connection)
        if connection is None or connection.attached != event.attached:
            # It has gone; or it has attached since, and asks again for what was not answered by then.
            return
        if isinstance(event.hashes, WaypostError):
            self._send(connection, problem(event.hashes, event.message))
            return
        try:
            session = self._session_of(connection, event.message)
            if session is None:
                return
            if session is not event.session:
                raise not_served()
            self.access.hashed(connection, session, event.message, event.hashes)
        except Refused as error:
            self._send(connection, problem(error, event.message))

    def access_altered(self, session: Session) -> None:
        """Detach the receivers that the session's access does not admit any more, and tell each why. That a right was
        taken away is attested.
        """
        for receiver in session.receivers.values():
            connection = self.connections.get(receiver.connection) if receiver.connection is not None else None
            why = self.access.why_detached(session, connection) if connection is not None else None
            if connection is not None and why is not None:
                if isinstance(why, Problem):
                    given = self._env.frontier(session)
                    self._output.journal.attest(FactKind.DETACHED, session, receiver=receiver.id, frontier=given)
                self._send(connection, why)
                self.attach_handler.leave(connection)

    def _set_keys(self, connection: Connection, message: SetKeys) -> None:
        session, receiver = self._session_of(connection, message), self.attach_handler.receiver_of(connection)
        if session is None or receiver is None:
            return
        changed = self.subscriptions.set_keys(session, receiver, message.keys)
        self._sessions.mark_changed(session.id)

        def answer() -> None:
            self.subscriptions.kept(session, changed)
            self._send(connection, KeysChanged(message.number))
            for identity in changed:
                self.broadcast_subscription(session, identity, connection)
            self._promises.promise(session)

        self._durable_replies.reply_when_durable(connection, session, message, answer)

    def _reply_when_durable(self, connection: Connection, session: Session, message: Subscribe | Unsubscribe) -> None:
        identity, is_made = SubscriptionId(message.subscription), isinstance(message, Subscribe)

        def answer() -> None:
            self.subscriptions.kept(session, [identity])
            answers = Subscribed if is_made else Unsubscribed
            self._send(connection, answers(identity, message.number))
            subscription = session.subscriptions.get(identity)
            if (subscription is not None) is is_made:
                # Else it has been changed again since, which is not kept yet.
                self._tell_subscription(connection, session, identity, subscription)
            self._promises.promise(session)

        self._durable_replies.reply_when_durable(connection, session, message, answer)

    def _tell_subscription(
        self, connection: Connection, session: Session, identity: SubscriptionId, subscription: Subscription | None
    ) -> None:
        if subscription is not None:
            self.attach_handler.tell_promises(connection, session, [subscription])
        self.broadcast_subscription(session, identity, connection)

    def broadcast_subscription(
        self, session: Session, identity: SubscriptionId, exclude: Connection | None = None
    ) -> None:
        """Tell the attached receivers of a session how a subscription is now, or that it has ended.

        Args:
            exclude: the connection whose receiver is not told; None: all are.
        """
        subscription = session.subscriptions.get(identity)
        for receiver in session.receivers.values():
            attached = self.connections.get(receiver.connection) if receiver.connection is not None else None
            if attached is not None and attached is not exclude:
                settings = None if subscription is None else subscription.settings()
                self._send(attached, SubscriptionChanged(identity, settings))

    # ------------------------------------------------------------ acknowledging

    def _acknowledge(self, connection: Connection, message: Acknowledge) -> None:
        if message.attestations:
            self._put_on_record(connection, message.attestations)
        receiver = self.attach_handler.receiver_on(connection)
        if receiver is None or connection.session is None:
            return
        session = self._sessions[connection.session]
        if session.role not in (Role.SERVING, Role.FROZEN):
            return
        if message.through > receiver.window.sent:
            raise BadMessage(f"{message.through} was not delivered yet", field="through")
        if message.frontier and not receiver.was_sent(message.frontier):
            raise BadMessage("that was not delivered yet", field="frontier")
        if message.gaps > receiver.confirmed_gaps + len(receiver.sent_gaps):
            raise BadMessage(f"{message.gaps} gaps were not sent yet", field="gaps")
        check_overtaking(receiver.selective, message.selective)
        if message.gaps > receiver.confirmed_gaps and session.role is Role.SERVING:
            session.gaps.confirm(receiver, message.gaps)
            self._sessions.mark_changed(session.id)
        self._output.counters.acknowledged += receiver.acknowledge(message.through)
        if session.role is Role.FROZEN:
            coordinates = self._env.confirmed_coordinates(session, message.selective)
            self._raise_cursors_while_frozen(session, receiver, message.frontier, coordinates)
            return
        receiver.raise_selectively(self._env.confirmed_coordinates(session, message.selective))
        session.raise_frontier(receiver, message.frontier)
        self._sessions.mark_changed(session.id)
        self.delivery.to(session, receiver)

    def _put_on_record(self, connection: Connection, attestations: list[Attestation]) -> None:
        """Write what the receiver's library attests to the journal, as it is, and say so."""
        receiver = self.attach_handler.receiver_of(connection)
        if receiver is None or connection.session is None:
            return
        if any(len(attestation.offsets) != len(attestation.digests) for attestation in attestations):
            raise BadMessage("an attestation has a digest for each offset", field="attestations")
        now = self._env.time.unix_ms
        facts = journal_facts.received(connection.session, receiver.id, connection.incarnation, attestations, now)
        last = attestations[-1]

        def on_done(_: None) -> None:
            self._send(connection, Attested(last.number, last.incarnation))

        self._output.emit(Attest(facts, on_done))
