"""The client protocol: what each message of a connection asks for, and when it is answered.

Nothing is acknowledged before it is safe: a publish when the site log has it, a subscription change when it is in the
store and in the changelog, with epoch and lease looked at again after the write (handover rule 6).
"""

from __future__ import annotations

from proxy import attesting
from proxy.access import AccessChanges
from proxy.answering import Answers
from proxy.connection import Connection, problem
from proxy.context import Context
from proxy.coverage import Coverage
from proxy.delivering import Delivering
from proxy.effects import Attest, Hangup, Send
from proxy.guard import Admitted, Guard, Proof
from proxy.keeper import Keeper
from proxy.moving import Moving
from proxy.ownership import Asker, Claims, Wish, taken
from proxy.publishing import Publishing
from proxy.receivers import Receiver
from proxy.relay import Relays
from proxy.session import Role, Session
from proxy.subscribing import Subscriptions
from proxy.subscription import Subscription
from proxy.sweeping import Sweeps
from proxy.transfers import Transfers
from waypost.access import ADMINISTER, READ, SUBSCRIBE, Right
from waypost.clock import NEVER
from waypost.errors import (
    BadMessage,
    Forbidden,
    LogUnavailable,
    NotFound,
    NotServed,
    Refused,
    WaypostError,
    WrongVersion,
)
from waypost.identity import ProxyId, ReceiverId, SessionId, SubscriptionId
from waypost.limits import MAX_SUBSCRIPTIONS_PER_SESSION
from waypost.messages import (
    VERSION,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    Attestation,
    Attested,
    BecameEffective,
    ClientMessage,
    Delete,
    Detach,
    Forgotten,
    Hello,
    Moved,
    Publish,
    SetAccess,
    Subscribe,
    Subscribed,
    SubscriptionChanged,
    Unsubscribe,
    Unsubscribed,
    Wait,
    Welcome,
)
from waypost.records import FactKind
from waypost.subscription import parse

Change = Subscribe | Unsubscribe | Delete | SetAccess | Detach
"""What is asked of a session by a receiver that is attached to it."""
NEEDED: dict[type[Change], Right] = {
    Subscribe: SUBSCRIBE,
    Unsubscribe: SUBSCRIBE,
    Delete: ADMINISTER,
    SetAccess: ADMINISTER,
    Detach: READ,
}
"""The right that it needs."""


class Door:
    """All connections of clients."""

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        coverage: Coverage,
        claims: Claims,
        transfers: Transfers,
        moving: Moving,
        sweeps: Sweeps,
    ) -> None:
        self._context = context
        self._keeper = keeper
        self._coverage = coverage
        self._claims = claims
        self._transfers = transfers
        self._moving = moving
        self._sweeps = sweeps
        self.guard = Guard(context)
        self._subscriptions = Subscriptions(context, coverage, sweeps)
        self.relays = Relays(context, self.connected, self.disconnected, self.message)
        self.delivering = Delivering(context, sweeps, self.relays.far.proxy_of)
        self.publishing = Publishing(context, self._tell, self._tell_failure)
        self.connections: dict[int, Connection] = {}
        self._answers = Answers(context, keeper, self.message)
        self.access = AccessChanges(context, self._answers, self.guard, self.connections, self._session_of, self._leave)
        self._waiting: dict[SessionId, dict[int, Connection]] = {}
        """Who waits for a session, by its number: one that asks again waits once."""
        self._ending: dict[int, Connection] = {}
        """Those that were let in by a token, which comes to an end."""
        self._deferred: dict[SessionId, list[tuple[Connection, Change]]] = {}
        """What was asked of a session while it stood still."""

    def deferred(self) -> list[int]:
        """Return how many changes wait, of each session that stands still."""
        return [len(changes) for changes in self._deferred.values()]

    # ------------------------------------------------------------ connections

    def connected(self, number: int) -> None:
        self.connections[number] = Connection(number)

    def disconnected(self, number: int) -> None:
        connection = self.connections.pop(number, None)
        if connection:
            self._leave(connection)
            self.publishing.disconnected(number)
            self.relays.near.leave(number)

    def _leave(self, connection: Connection) -> None:
        """The connection serves no session any more; the receiver keeps its place."""
        receiver = self._receiver_on(connection)
        if receiver is not None:
            receiver.disconnect()
        if connection.attach is not None:
            self._waiting.get(SessionId(connection.attach.session), {}).pop(connection.number, None)
        connection.session = connection.receiver = connection.attach = None
        self._ending.pop(connection.number, None)

    def _receiver_of(self, connection: Connection) -> Receiver | None:
        if connection.session is None or connection.receiver is None:
            return None
        session = self._context.sessions.get(connection.session)
        return session.receivers.get(connection.receiver) if session else None

    def _receiver_on(self, connection: Connection) -> Receiver | None:
        """Return the receiver that is attached by this connection, and by no other one since."""
        receiver = self._receiver_of(connection)
        return receiver if receiver is not None and receiver.connection == connection.number else None

    def _say(self, connection: Connection, message: object) -> None:
        self._context.emit(Send(connection.number, message))  # type: ignore[arg-type]

    def _tell(self, number: int, message: Acknowledged) -> None:
        self._context.emit(Send(number, message))

    def _tell_failure(self, number: int, message: Publish, error: WaypostError) -> None:
        self._context.emit(Send(number, problem(error, message)))

    # ------------------------------------------------------------ messages

    def message(self, number: int, message: ClientMessage) -> None:
        """Take one message. What is wrong with it is answered; the connection goes on."""
        connection = self.connections.get(number)
        if connection is None:
            return
        try:
            self._take(connection, message)
        except Refused as error:
            self._context.tally.refused[error.kind] += 1
            self._say(connection, problem(error, message))
        except LogUnavailable as error:
            self._say(connection, problem(error, message))

    def _take(self, connection: Connection, message: ClientMessage) -> None:
        if isinstance(message, Hello):
            self._hello(connection, message)
            return
        if not connection.client:
            raise BadMessage("say hello first")
        match message:
            case Attach():
                self._attach(connection, message)
            case Acknowledge() | Detach() | Subscribe() | Unsubscribe() | Delete() | SetAccess() if (
                connection.number in self.relays.near
            ):
                self.relays.near.up(connection.number, message)
            case Subscribe():
                self._subscribe(connection, message)
            case Unsubscribe():
                self._unsubscribe(connection, message)
            case Publish():
                self.publishing.take(connection.number, message)
            case Acknowledge():
                self._acknowledge(connection, message)
            case Detach():
                self._detach(connection, message)
            case Delete():
                self._delete(connection, message)
            case SetAccess():
                self.access.set(connection, message)

    def _hello(self, connection: Connection, message: Hello) -> None:
        if message.version != VERSION:
            raise WrongVersion(f"version {message.version}; this proxy speaks {VERSION}", field="version")
        connection.client = message.client
        self._say(connection, Welcome(VERSION, self._context.proxy, self._context.settings.site))

    # ------------------------------------------------------------ attaching

    def _attach(self, connection: Connection, message: Attach) -> None:
        self._leave(connection)
        self.relays.near.leave(connection.number)
        connection.attach = message
        identity = SessionId(message.session)
        session = self._context.serving(identity)
        if session is not None:
            self._transfers.cancel(identity)
            self._enter(connection, session)
            return
        if self._moving.row is not None and self._send_away(connection, identity):
            return
        self._waiting.setdefault(identity, {})[connection.number] = connection
        self._claims.seek(identity, Wish(Asker(message.receiver, message.incarnation), message.create))

    def _send_away(self, connection: Connection, session: SessionId) -> bool:
        """This proxy is being emptied: tell the client a better one; False: there is none."""
        owner = self._context.owners.get(session)
        row = self._context.proxies.get(owner.proxy) if owner else None
        if row is None or row.proxy == self._context.proxy:
            row = self._moving.target()
        if row is None:
            return False
        connection.attach = None
        self._say(connection, Moved(session, row.proxy, row.url))
        return True

    def relay(self, session: SessionId, home: ProxyId) -> None:
        """The session stays at its home: those who wait for it here are relayed."""
        for connection in self._waiting.pop(session, {}).values():
            attach = connection.attach
            if attach is not None and attach.session == session:
                connection.attach = None
                self.relays.near.begin(connection.number, connection.client, attach, home)

    def _enter(self, connection: Connection, session: Session) -> None:
        """The session is served here: take the receiver in where its frontier says."""
        message = connection.attach
        if message is None or (admitted := self._admit(connection, session, message)) is None:
            return
        if ReceiverId(message.receiver) not in session.receivers:
            self._join(connection, session, message)
            return
        connection.attach = connection.proof = None
        connection.principal, connection.hash = admitted.principal, admitted.grant.hash
        connection.until_ms = admitted.until_ms
        if admitted.until_ms != NEVER:
            self._ending[connection.number] = connection
        receiver = session.receivers[ReceiverId(message.receiver)]
        if receiver.connection is not None and receiver.connection != connection.number:
            if receiver.incarnation != message.incarnation:
                now = self._context.clock.now_ms()
                pause_ms = self._context.quarrels.take_place(session.id, receiver.id, message.incarnation, now)
                if pause_ms:
                    self._say(connection, Wait(f"receiver {receiver.id} is in use in two places", pause_ms))
                    return
                self._context.emit(Send(receiver.connection, taken(session.id, receiver.id)))
            self._context.emit(Hangup(receiver.connection, "the receiver attached again"))
        receiver.connect(connection.number, message.incarnation, message.frontier, message.window)  # type: ignore[arg-type]
        connection.session, connection.receiver = session.id, receiver.id
        connection.incarnation = message.incarnation
        if message.lasts_s is not None:
            session.lasts_s = message.lasts_s
            self._sweeps.watch(session)
        session.idle_ms = 0
        self._context.attest(FactKind.ATTACHED, session, receiver=receiver.id, frontier=dict(message.frontier))
        subscriptions = {sub.id: sub.settings() for sub in session.active()}
        settings = self._context.settings
        self._say(
            connection,
            Attached(session.id, session.epoch, settings.proxy, settings.site, subscriptions, session.stored_count),
        )
        for subscription in session.active():
            if subscription.promised:
                self._tell_effective(connection, subscription)
        self._coverage.tell_gaps(session, receiver)
        self._context.dirty.add(session.id)
        self._coverage.watch(session)
        self._coverage.promise(session)
        self.delivering.to_all(session)
        self._draw(connection, session)

    def _admit(self, connection: Connection, session: Session, message: Attach) -> Admitted | None:
        """Let it in, as what is returned; None: it was told why not, or will be when its password was looked at."""

        def found_out(found: Proof | Wait | Forbidden) -> None:
            if connection.attach is not message or connection.number not in self.connections:
                return
            if not isinstance(found, Proof):
                self._turn_away(connection, message, found)
                return
            connection.proof = found
            self._enter_or_attach(connection, session, message)

        try:
            answer = self.guard.admit(session, message, connection.proof, found_out)
        except Forbidden as error:
            self._turn_away(connection, message, error)
            return None
        if isinstance(answer, Wait):
            self._turn_away(connection, message, answer)
            return None
        return answer

    def _turn_away(self, connection: Connection, message: Attach, why: Wait | Forbidden) -> None:
        connection.attach = connection.proof = None
        self._say(connection, problem(why, message) if isinstance(why, Forbidden) else why)

    def _enter_or_attach(self, connection: Connection, session: Session, message: Attach) -> None:
        """Something was waited for: the session may be somewhere else by now."""
        if self._context.serving(session.id) is session:
            self._enter(connection, session)
        else:
            self._attach(connection, message)

    def _draw(self, connection: Connection, session: Session) -> None:
        """A session that not everybody may have has not gone to who asked for it: it goes to who was let in."""
        at = self.relays.far.proxy_of(connection.number)
        if at is not None and session.access and len(session.receivers.attached()) == 1:
            self._moving.want(session.id, at)

    def _join(self, connection: Connection, session: Session, message: Attach) -> None:
        """Let a new receiver in once store and changelog know of it: a failover must keep for it what others have."""
        session.join(ReceiverId(message.receiver))
        self._context.dirty.add(session.id)

        def then(failure: WaypostError | None) -> None:
            if connection.attach is not message or connection.number not in self.connections:
                return
            if failure is not None:
                connection.attach = None
                self._say(connection, Wait(failure.message, self._context.settings.retry_ms))
            else:
                self._enter_or_attach(connection, session, message)

        self._keeper.written(session, then)

    def _tell_effective(self, connection: Connection, subscription: Subscription) -> None:
        self._say(connection, BecameEffective(subscription.id, dict(subscription.promised)))

    def deliver(self, session: Session) -> None:
        """The session has something new."""
        self.delivering.to_all(session)

    def served(self, session: Session) -> None:
        """The session is served here from now on: let in who waits for it, and call those who were relayed."""
        self.relays.near.come_home(session.id)
        for connection in self._waiting.pop(session.id, {}).values():
            if connection.attach is not None and connection.attach.session == session.id:
                self._enter(connection, session)
        for connection, message in self._deferred.pop(session.id, []):
            if connection.session == session.id:
                self.message(connection.number, message)
        self.delivering.to_all(session)

    def unavailable(self, session: SessionId, reason: str) -> None:
        """The session cannot be had now; an empty reason: there is no such session."""
        self._deferred.pop(session, None)
        for connection in self._waiting.pop(session, {}).values():
            attach = connection.attach
            if attach is None or attach.session != session:
                continue
            connection.attach = None
            if reason or attach.create:
                # Whoever would make it was in line behind somebody who would not.
                self._say(connection, Wait(reason or "there is no such session yet", self._context.settings.retry_ms))
            else:
                missing = NotFound(f"there is no session {session}", field="session")
                self._say(connection, problem(missing, attach))

    def fenced(self) -> None:
        """Nothing is served here until we have a lease again; who was served asks again, here or elsewhere."""
        wait = Wait("this proxy has no lease at the moment", self._context.settings.retry_ms)
        for connection in self.connections.values():
            if connection.session is not None or connection.attach is not None:
                connection.session = connection.receiver = connection.attach = None
                self._say(connection, wait)
        self._waiting.clear()
        self._ending.clear()

    def _detach(self, connection: Connection, message: Detach) -> None:
        if message.forget:
            self._forget(connection, message)
            return
        session = self._context.sessions.get(connection.session) if connection.session else None
        receiver = self._receiver_of(connection)
        self._leave(connection)
        if session is not None and receiver is not None and session.role is Role.SERVING:
            receiver.had(message.frontier)
            self._context.dirty.add(session.id)

    def _forget(self, connection: Connection, message: Detach) -> None:
        """Give up the receiver's place; answered once store and changelog know of it, as all that changes a session."""
        session, receiver = self._session_of(connection, message), self._receiver_of(connection)
        if session is None or receiver is None:
            return
        self._leave(connection)
        session.receivers.pop(receiver.id, None)
        self._context.attest(FactKind.ATTACHED, session, receiver=receiver.id, reason="forgotten")
        session.remove_acknowledged()
        self._context.dirty.add(session.id)
        self._answers.once_kept(connection, session, message, lambda: self._say(connection, Forgotten(receiver.id)))

    def _delete(self, connection: Connection, message: Delete) -> None:
        session = self._session_of(connection, message)
        if session is not None:
            self._claims.delete(session, f"receiver {connection.receiver} asked for it")

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Who was let in by a token that has ended is to come again, with another one."""
        now = self._context.clock.now_ms()
        for connection in [each for each in self._ending.values() if now >= each.until_ms]:
            self._leave(connection)
            self._say(connection, Wait("the token has ended by which this was read", 0))

    def next_deadline(self) -> int:
        return min([each.until_ms for each in self._ending.values()], default=NEVER)

    # ------------------------------------------------------------ subscriptions

    def _session_of(self, connection: Connection, message: Change) -> Session | None:
        """Return the session; None: it stands still, and the message waits until the registry has decided.

        Raises:
            Forbidden: whoever is on this connection does not have the right that it needs.
        """
        held = self._attached_to(connection)
        if held is not None and held.role is Role.FROZEN:
            deferred = self._deferred.setdefault(held.id, [])
            if len(deferred) >= MAX_SUBSCRIPTIONS_PER_SESSION:
                raise NotServed("too much is asked of a session that stands still; ask again")
            deferred.append((connection, message))
            return None
        if held is None or self._context.serving(held.id) is not held:
            raise NotServed("no session is served on this connection at the moment; attach, then ask again")
        self.guard.require(held, connection.principal, NEEDED[type(message)])
        return held

    def _attached_to(self, connection: Connection) -> Session | None:
        """Return the session whose receiver is on this connection; not the next one of its name (handover rule 22)."""
        if connection.session is None or self._receiver_on(connection) is None:
            return None
        return self._context.sessions[connection.session]

    def _subscribe(self, connection: Connection, message: Subscribe) -> None:
        expression = parse(message.expression)
        session = self._session_of(connection, message)
        if session is None:
            return
        self._subscriptions.add(session, message, expression, connection.receiver or "")
        self._settle(connection, session, message)

    def _unsubscribe(self, connection: Connection, message: Unsubscribe) -> None:
        session = self._session_of(connection, message)
        if session is None:
            return
        self._subscriptions.end(session, SubscriptionId(message.subscription))
        self._settle(connection, session, message)

    def _settle(self, connection: Connection, session: Session, message: Subscribe | Unsubscribe) -> None:
        def answer() -> None:
            self._tell_subscription(connection, session, SubscriptionId(message.subscription))
            self._coverage.promise(session)

        self._answers.once_kept(connection, session, message, answer)

    def _tell_subscription(self, connection: Connection, session: Session, identity: SubscriptionId) -> None:
        subscription = session.subscriptions.get(identity)
        self._say(connection, Unsubscribed(identity) if subscription is None else Subscribed(identity))
        if subscription is not None and subscription.promised:
            self._tell_effective(connection, subscription)
        for receiver in session.receivers.values():
            other = self.connections.get(receiver.connection) if receiver.connection is not None else None
            if other is not None and other is not connection:
                settings = None if subscription is None else subscription.settings()
                self._say(other, SubscriptionChanged(identity, settings))

    # ------------------------------------------------------------ acknowledging

    def _acknowledge(self, connection: Connection, message: Acknowledge) -> None:
        if message.attestations:
            self._put_on_record(connection, message.attestations)
        receiver = self._receiver_on(connection)
        if receiver is None or connection.session is None:
            return
        session = self._context.sessions[connection.session]
        if session.role not in (Role.SERVING, Role.FROZEN):
            return
        if message.through > receiver.sent:
            raise BadMessage(f"{message.through} was not delivered yet", field="through")
        self._context.tally.acknowledged += receiver.acknowledge(message.through)
        if session.role is Role.FROZEN:
            # What is handed over must not change any more; it goes when the session thaws.
            return
        session.remove_acknowledged()
        self._context.dirty.add(session.id)
        self.delivering.to(session, receiver)

    def _put_on_record(self, connection: Connection, attestations: list[Attestation]) -> None:
        """Write what the receiver's library attests to the journal, as it is, and say so."""
        receiver = self._receiver_of(connection)
        if receiver is None or connection.session is None:
            return
        now = self._context.clock.unix_ms()
        facts = attesting.received(connection.session, receiver.id, connection.incarnation, attestations, now)
        last = attestations[-1].number

        def then(error: WaypostError | None) -> None:
            if error is None:
                self._say(connection, Attested(last))

        self._context.emit(Attest(facts, then))
