"""The client library's protocol: a client's outstanding requests, and its messages on every connection. Pure.

Theory
------
A connection may break at any moment, and a session may be anywhere. So a request is kept until it is answered, and the
next connection begins with all of them: `Hello`, the publishes never acknowledged (waypost/client/publish_buffer.py),
`Attach` with the frontier, and, once attached, the subscriptions, changes of keys and access and the deletion that were
never answered, and the attestations never confirmed (waypost/client/delivery_state.py).

The answer that a session is not served at the moment is no answer: the request is sent again at the next attach.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

import msgspec
from msgspec.structs import replace

from waypost.client.credentials import Credentials
from waypost.client.delivery_state import DeliveredItem, DeliveryState, ReceiverState
from waypost.client.events import (
    ClientEvent,
    PublishFailed,
    Redirected,
    Refusal,
    RequestKind,
    RequestResult,
    Retry,
    SessionReplaced,
    SubscriptionResult,
    WrongFederation,
)
from waypost.client.options import AttachOptions
from waypost.client.publish_buffer import PublishBuffer
from waypost.client.quench import QuenchView
from waypost.errors import (
    Altered,
    AnotherFederation,
    Forbidden,
    LogUnavailable,
    NotFound,
    NotServed,
    SessionDeleted,
    WaypostError,
    from_wire,
)
from waypost.frames import check_client_message
from waypost.identity import (
    Epoch,
    NotificationId,
    Ownership,
    ProxyId,
    SessionId,
    SubscriptionId,
)
from waypost.keys import Key
from waypost.limits import RETRY_ATTACH_MS
from waypost.messages import (
    VERSION,
    AboutAccess,
    AboutDeletion,
    AboutKeys,
    AboutPublish,
    AboutSession,
    AboutSubscription,
    AccessChanged,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    Attested,
    BecameEffective,
    Credential,
    Delete,
    Deleted,
    Deliver,
    Detach,
    Forgotten,
    Gap,
    Granted,
    Hello,
    Interest,
    KeysChanged,
    Left,
    ListProxies,
    Moved,
    Problem,
    Proxies,
    ProxyMessage,
    Publish,
    Quench,
    SetAccess,
    SetKeys,
    Subscribe,
    Subscribed,
    SubscriptionChanged,
    Unsubscribe,
    Unsubscribed,
    Wait,
    Welcome,
)

OfASession = AboutSubscription | AboutAccess | AboutKeys | AboutDeletion


@dataclass(frozen=True, slots=True)
class ProducerState:
    """What a producer has to know of an earlier process to go on in its place.

    Args:
        secret: of the incarnation; None: it is a new one.
        federation: in which it has published; "": unknown.
    """

    secret: str | None = None
    federation: str = ""


class ClientProtocol:
    """A client's side of the protocol, without I/O and without a clock: calls and messages in, messages and events out.

    It is no :class:`waypost.machine.Machine`: the connector is, and owns it.

    Args:
        name: of the client, for people, and as the producer's name.
        session: to attach to; None for a producer only.
        receiver: the name of the receiver within the session.
        state: the receiver's position so far; None: a new receiver.
        options: with which it attaches; None: the defaults. What concerns the session, only the first attach says.
        credential: principal and password to attach with.
        token: called at every attach, returns the token that proves the principal instead; "": none.
        incarnation: of the producer, from an earlier process; None: a new one.
    """

    def __init__(
        self,
        name: str,
        session: SessionId | None,
        receiver: str = "main",
        state: ReceiverState | None = None,
        *,
        options: AttachOptions | None = None,
        credential: Credential | None = None,
        token: Callable[[], str] = lambda: "",
        incarnation: ProducerState | None = None,
    ) -> None:
        self.name = name
        self.session = session
        self.receiver = receiver
        self.options = options or AttachOptions()
        self._delivery_state = DeliveryState(state or ReceiverState(), self.options.order)
        incarnation = incarnation or ProducerState()
        self._publish_buffer = PublishBuffer(name, incarnation.secret)
        self.quench_view = QuenchView()
        self.proxy = ProxyId("")
        self._owner = ProxyId("")
        """The proxy that serves the session: it delivers, also where the present one relays."""
        self._federation = ""
        """The federation of the proxy of this connection; "": unknown."""
        self._published_in = incarnation.federation
        """The federation in which a producer publishes, by its first proxy; "": unknown, or this is a receiver.

        Where a session is, its owner says; where a notification is published, nobody would notice."""
        self._session_federation = ""
        """The federation in which the session was attached last; "": unknown."""
        self.attached = False
        self.is_left = False
        """Whether the session's owner has confirmed the last Detach."""
        self._gaps = 0
        """Gaps received since the last attach."""
        self._resting = False
        """Whether a log has rejected a publish: it is sent again after a pause, before any later one."""
        self._publish_attempts = 0
        self._rejected: set[int] = set()
        """The first sequence numbers of frames that a log has rejected since they were sent."""
        self._has_been_in = False
        """Whether it was attached: a session that is missing now was deleted, with everything requested of it."""
        self._token = token
        self._credentials = Credentials(credential or Credential())
        self._changing: SetAccess | None = None
        """The change of the access that was not answered yet."""
        self._change_number = 0
        self._keys: SetKeys | None = None
        """The change of the receiver's keys that was not answered yet."""
        self._connected = False
        self._greeted = False
        """Whether the proxy of this connection has let the client in."""
        self._out: list[msgspec.Struct] = []
        self._events: list[ClientEvent] = []
        self._pending_requests: dict[SubscriptionId, Subscribe | Unsubscribe] = {}
        self._deleting = False
        self._forgetting = False

    @property
    def state(self) -> ReceiverState:
        """The receiver's position in its session."""
        return self._delivery_state.state

    @property
    def federation(self) -> str:
        """The identity of the federation that has the session, or in which the producer publishes; "": unknown."""
        return self._session_federation or self._published_in

    # ------------------------------------------------------------ outputs

    def take_messages(self) -> list[msgspec.Struct]:
        """Remove and return the messages to be sent now, in order."""
        messages, self._out = self._out, []
        return messages

    def take_events(self) -> list[ClientEvent]:
        """Remove and return the events since the last call, in order."""
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------ connections

    def connected(self) -> None:
        """Begin a new connection: greet, send every publish without an answer again, ask for interest again, and
        attach.

        The messages are for :meth:`take_messages`. Messages that an earlier connection did not send are dropped. An
        exception of the application's `token` function comes out; then the connection is of no use.
        """
        self._greeted = self._resting = False
        self._rejected.clear()
        self._out = [Hello(VERSION, self.name, Credential(token=self._token()), self._published_in)]
        self._connected = True
        self._out.extend(self._publish_buffer.in_flight())
        self._out.extend(self.quench_view.reset())
        self.attach()
        self.flush()

    def attach(self) -> None:
        """Add an Attach for the present connection to :meth:`take_messages`; `attached` is False until its answer.
        Notifications that the application does not have are delivered again. Without a session, of a producer, nothing
        is added.
        """
        self.attached = False
        if self.session is not None:
            self._delivery_state.reset()
            self._gaps = 0
            state = self.state
            state.attach_seq += 1
            self._out.append(
                Attach(
                    session=self.session,
                    receiver=self.receiver,
                    incarnation=state.incarnation,
                    frontier=dict(state.frontier),
                    window=self.options.window,
                    create=self.options.create and not self._has_been_in,
                    session_expiry_s=None if self._has_been_in else self.options.session_expiry_s,
                    credential=replace(self.credential, token=self._token()),
                    receiver_expiry_s=self.options.receiver_expiry_s,
                    epoch=state.epoch,
                    reliability=self.options.reliability,
                    # Sent once only: another client may have changed it since.
                    session_reliability=None if self._has_been_in else self.options.session_reliability,
                    queue=None if self._has_been_in else self.options.queue,
                    order=self._delivery_state.order,
                    selective=state.selective.rows(),
                    attach_seq=state.attach_seq,
                )
            )

    def list_proxies(self) -> None:
        """Ask the proxy for the others of the federation; a :class:`Proxies` event brings them. Before the proxy of
        this connection has let the client in, nothing is asked.
        """
        if self._greeted:
            self._out.append(ListProxies())

    def attach_again(self) -> None:
        """Attach again (:meth:`attach`), unless attached meanwhile. The caller waits for the pause of a :class:`Retry`
        first.
        """
        if not self.attached:
            self.attach()

    def disconnected(self) -> None:
        """Note that the connection has ended, and drop its unsent messages; requests without an answer are sent again
        on the next one.
        """
        self.attached = self._connected = self._greeted = False
        self.quench_view.lost()
        self._out.clear()

    # ------------------------------------------------------------ messages of a proxy

    def message(self, message: ProxyMessage) -> None:  # noqa: PLR0912 - a dispatch
        """Handle a message of the proxy; it may add messages (:meth:`take_messages`) and events (:meth:`take_events`).

        Raises:
            Altered: a notification is not what was published. Nothing of the message was applied; close the connection.
        """
        match message:
            case Deliver():
                # A delivery of an older owner, or of an attach that is over, means nothing.
                if self.attached and self._delivery_state.deliver(message, self._owner):
                    self._acknowledge()
            case Acknowledged():
                self._publish_attempts = 0
                self._events.extend(self._publish_buffer.acknowledged(message))
                self._rest_if_rejected()
            case Attested():
                self._delivery_state.confirmed(message.number, message.incarnation)
            case Attached():
                self._attached(message)
            case Subscribed() | Unsubscribed():
                self._subscription_answered(message.subscription, message.number)
            case AccessChanged():
                self._access_changed(message.number)
            case KeysChanged():
                self._keys_changed(message.number)
            case Interest():
                if self.quench_view.receive(message):
                    self._events.append(message)
            case BecameEffective() | SubscriptionChanged() | Proxies():
                self._events.append(message)
            case Gap():
                self._gaps += 1
                self._out.append(Acknowledge(0, gaps=self._gaps))
                self._events.append(message)
            case Welcome():
                self.proxy, self._federation = message.proxy, message.federation
                if self.session is None:
                    self._published_in = self._published_in or message.federation
                self._greeted = True
                self._events.append(message)
            case Moved():
                self.attached = False
                if message.proxy == self.proxy:
                    # The session has come to the proxy that relayed it.
                    self.attach()
                else:
                    self._events.append(Redirected(message.proxy, message.url))
            case Deleted():
                self._deleted(message)
            case Left():
                self.attached, self.is_left = False, True
            case Forgotten():
                self.attached = self._forgetting = False
                self._events.append(RequestResult(RequestKind.REGISTRATION, None))
            case Wait():
                self.attached = False
                self._events.append(Retry(message.reason, message.retry_after_ms, message.cause))
            case Problem():
                self._problem(message)
            case _:
                assert_never(message)

    def _attached(self, message: Attached) -> None:
        self.attached, self._has_been_in, self._owner = True, True, message.proxy
        self._session_federation = self._federation
        self.state.receiver = (str(self.session), self.receiver)
        # Gaps are counted from each answer on, also where two attaches of one connection are answered.
        self._gaps = 0
        self._credentials.let_in()
        before, now = self.state.epoch, Ownership(message.proxy, message.epoch)
        self._delivery_state.attached(now.epoch, joined=message.joined)
        if self._keys is not None:
            self._out.append(self._keys)
        self._out.extend(self._pending_requests.values())
        if self._changing is not None:
            self._out.append(self._changing)
        if self._deleting:
            self._out.append(Delete())
        if self._forgetting:
            self._out.append(self._detach_message(forget=True))
        self._out.extend(self._delivery_state.attest_again())
        self._events.append(message)
        if before and now.is_later_generation_than(before):
            self._events.append(SessionReplaced(message.session))

    def _deleted(self, message: Deleted) -> None:
        self.attached = self._has_been_in = False
        # A later request means the next one of that name.
        self.state.epoch = Epoch(0)
        error = SessionDeleted(f"session {message.session}: {message.reason}")
        self._events.extend(SubscriptionResult(subscription, error) for subscription in self._pending_requests)
        self._pending_requests.clear()
        if self._changing is not None:
            self._answered(RequestKind.ACCESS, error)
        if self._keys is not None:
            self._answered(RequestKind.KEYS, error)
        requested, self._deleting = self._deleting, False
        self._events.append(message if requested else Refusal(error))

    def forget(self) -> None:
        """Request the end of this receiver's registration, now or at the next attach; :class:`RequestResult` of
        REGISTRATION reports that the receiver is unregistered. Everything returned so far is acknowledged.
        """
        self.flush_acks()
        self._forgetting = True
        if self.attached:
            self._out.append(self._detach_message(forget=True))

    def detach(self) -> Detach:
        """Return the last message of this attachment, with the receiver's frontier; the caller sends it behind
        :meth:`take_messages`. Call :meth:`flush_acks` first, of a receiver: only then the frontier and the attestations
        have all that was returned.

        While attached, the attestations that were made and not sent are added to :meth:`take_messages`. The owner
        answers with Left, which sets :attr:`is_left`, here set to False.
        """
        self.is_left = False
        if self.attached:
            self._out.extend(self._delivery_state.attest_now())
        return self._detach_message(forget=False)

    def _detach_message(self, *, forget: bool) -> Detach:
        return Detach(forget, dict(self.state.frontier), self.state.selective.rows())

    def delete(self) -> None:
        """Request the deletion of the session, for all its receivers, now or at the next attach; the event Deleted, or
        a :class:`RequestResult` with the error, reports the outcome.
        """
        self._deleting = True
        if self.attached:
            self._out.append(Delete())

    # ------------------------------------------------------------ access

    def set_access(self, grants: dict[str, Granted]) -> None:
        """Request another access of the session, now or at the next attach; :class:`RequestResult` of ACCESS reports
        the outcome.

        A second change before the outcome of the first replaces it; the outcome of the first is then not reported.

        Args:
            grants: by principal; empty: everybody may do everything.

        Raises:
            BadMessage, LimitExceeded: no proxy would accept the request.
        """
        message = SetAccess(self._next_number(), grants)
        check_client_message(message)
        self._changing = message
        self._credentials.access_requested(grants)
        if self.attached:
            self._out.append(self._changing)

    def _access_changed(self, number: int) -> None:
        if self._changing is not None and self._changing.number == number:
            self._credentials.access_accepted(self._changing.grants)
            self._changing = None
            self._events.append(RequestResult(RequestKind.ACCESS, None))

    @property
    def credential(self) -> Credential:
        """The credential to attach with."""
        return self._credentials.current

    def _attach_with_another(self) -> bool:
        """Attach with another credential after the current one was refused. Return False when all were refused."""
        if not self._credentials.try_another():
            return False
        self.attach()
        return True

    def _answered(self, kind: RequestKind, error: WaypostError) -> None:
        """Report that a request about the session was refused."""
        if kind is RequestKind.ACCESS:
            self._changing = None
        elif kind is RequestKind.KEYS:
            self._keys = None
        else:
            self._deleting = False
        self._events.append(RequestResult(kind, error))

    def _problem(self, problem: Problem) -> None:  # noqa: PLR0912 - a dispatch
        error = from_wire(problem.code, problem.message, problem.field)
        if isinstance(error, NotServed) and isinstance(problem.about, OfASession):
            overtaken = isinstance(problem.about, AboutSubscription) and not self._is_pending(
                problem.about.subscription, problem.about.number
            )
            if not overtaken:
                self._not_served(error)
            return
        match problem.about:
            case AboutSubscription(subscription, number):
                self._subscription_answered(subscription, number, error)
            case AboutPublish(first):
                if isinstance(error, LogUnavailable | Altered):
                    self._publish_failed(first)
                else:
                    self._events.extend(self._publish_buffer.refused(first, error))
                    self._rest_if_rejected()
            case AboutAccess(number):
                if self._changing is not None and self._changing.number == number:
                    self._answered(RequestKind.ACCESS, error)
            case AboutKeys(number):
                if self._keys is not None and self._keys.number == number:
                    self._answered(RequestKind.KEYS, error)
            case AboutDeletion():
                self._answered(RequestKind.DELETION, error)
            case AboutSession(session) if session == self.session and isinstance(error, NotFound) and self._has_been_in:
                if self._is_elsewhere():
                    return
                self._deleted(Deleted(SessionId(session), "it was deleted while we were between two proxies"))
            case AboutSession(session) if session == self.session:
                self.attached = False
                if isinstance(error, NotFound):
                    # A later attach means the next session of that name.
                    self.state.epoch = Epoch(0)
                if not (isinstance(error, Forbidden) and self._attach_with_another()):
                    self._events.append(Refusal(error))
            case None if not self._greeted and isinstance(error, AnotherFederation):
                self._events.append(WrongFederation(error.message))
            case None if not self._greeted:
                self._events.append(Refusal(error))
            case _:
                self._events.append(problem)

    def _is_elsewhere(self) -> bool:
        """Tell, and report, whether another federation was asked for the session than the one that had it.

        A federation may get another identity, with a registry that was lost: so it is no error to be let in there.
        """
        here, there = self._federation, self._session_federation
        if not here or not there or here == there:
            return False
        self._events.append(
            WrongFederation(
                f"proxy {self.proxy} is of federation {here}, and session {self.session} is of federation {there}; "
                "does the list of proxies name those of one federation only?"
            )
        )
        return True

    def _not_served(self, error: NotServed) -> None:
        """Attach again: the proxy does not serve the session at the moment, so it has not done what was requested.

        It may be attached as far as this client knows; without an attach no answer would ever come.
        """
        if self.attached:
            self.attached = False
            self._events.append(Retry(error.message, RETRY_ATTACH_MS))

    def _subscription_answered(
        self, subscription: SubscriptionId, number: int, error: WaypostError | None = None
    ) -> None:
        """Report the outcome of the outstanding request; an answer to an older one is ignored."""
        if self._is_pending(subscription, number):
            del self._pending_requests[subscription]
            self._events.append(SubscriptionResult(subscription, error))

    def _is_pending(self, subscription: SubscriptionId, number: int) -> bool:
        request = self._pending_requests.get(subscription)
        return request is not None and request.number == number

    # ------------------------------------------------------------ receiving

    @property
    def waiting(self) -> bool:
        """Whether deliveries wait for the application, or for its acknowledgement."""
        return self._delivery_state.waiting

    @property
    def duplicates_dropped(self) -> int:
        """The number of notifications that came again and were dropped."""
        return self._delivery_state.duplicates_dropped

    def next_items(self, max_items: int | None = None, *, manual_ack: bool = False) -> list[DeliveredItem]:
        """Return the next notifications for the application, empty if none has arrived; acknowledge those returned
        before.

        A delivery is acknowledged to the proxy when the application has all of it.

        Args:
            max_items: the most to return; None: no bound.
            manual_ack: do not acknowledge; that is done by :meth:`acknowledge` or :meth:`flush_acks`.
        """
        if not manual_ack:
            self._acknowledge()
        return self._delivery_state.next_items(max_items)

    def flush_acks(self) -> None:
        """Acknowledge and attest everything returned so far.

        The messages are for :meth:`take_messages`; a delivery of which the application has a part goes with a later
        acknowledgement. While not attached there are none.
        """
        self._acknowledge()
        self._delivery_state.attest()

    def acknowledge(self) -> None:
        """Acknowledge and attest everything returned so far; the messages for :meth:`take_messages` report it also in
        the middle of a delivery. While not attached there are none: the next Attach has the frontier.
        """
        self.flush_acks()
        if self.attached:
            self._out.extend(self._delivery_state.partial_acks())

    def nack(self) -> None:
        """Give back what was returned since the last acknowledgement: the next call of :meth:`next_items` returns it
        again.
        """
        self._delivery_state.nack()

    def _acknowledge(self) -> None:
        """Acknowledge what the application has. While not attached nothing is sent: the next Attach has the
        frontier.
        """
        acknowledgements = self._delivery_state.acknowledge()
        if self.attached:
            self._out.extend(replace(acknowledgement, gaps=self._gaps) for acknowledgement in acknowledgements)

    # ------------------------------------------------------------ subscribing

    def subscribe(
        self,
        subscription: SubscriptionId,
        expression: str,
        ttl_s: int | None = None,
        max_count: int | None = None,
        keys: list[Key] | None = None,
        *,
        insecure: bool = True,
    ) -> None:
        """Request a subscription, or a change of one, now or at the next attach; a :class:`SubscriptionResult` follows.

        A second request for the same subscription replaces the first, whose outcome is then not reported.

        Args:
            subscription: its id.
            expression: in the subscription language; the proxy parses it.
            ttl_s: for how many seconds a matching notification is kept; None: until all receivers have it.
            max_count: how many of the newest are kept; None: all.
            keys: raw for the consumer's side, public for the producer's; None: none.
            insecure: accept notifications whose keys do not meet these, if their producers allow that.

        Raises:
            BadMessage, LimitExceeded: no proxy would accept the request.
        """
        number = self._next_number()
        self._request(
            Subscribe(
                subscription=subscription,
                expression=expression,
                ttl_s=ttl_s,
                max_count=max_count,
                keys=keys or [],
                insecure=insecure,
                number=number,
            )
        )

    def set_keys(self, keys: list[Key]) -> None:
        """Request other keys for all subscriptions of this receiver; :class:`RequestResult` of KEYS reports the
        outcome.

        A second change replaces the first, whose outcome is then not reported. While not attached the request waits for
        the next attach.

        Args:
            keys: raw for the consumer's side, public for the producer's; empty: none.

        Raises:
            BadMessage, LimitExceeded: no proxy would accept these keys.
        """
        set_keys = SetKeys(self._next_number(), keys)
        check_client_message(set_keys)
        self._keys = set_keys
        if self.attached:
            self._out.append(self._keys)

    def _keys_changed(self, number: int) -> None:
        if self._keys is not None and self._keys.number == number:
            self._keys = None
            self._events.append(RequestResult(RequestKind.KEYS, None))

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """Request the end of a subscription, by its id, now or at the next attach; a :class:`SubscriptionResult`
        follows once the end in every origin is known (handover rule 7).

        Raises:
            BadMessage, LimitExceeded: no proxy would accept the id.
        """
        self._request(Unsubscribe(subscription, self._next_number()))

    def _next_number(self) -> int:
        """Return the number of the next request; its answer repeats it."""
        self._change_number += 1
        return self._change_number

    def _request(self, message: Subscribe | Unsubscribe) -> None:
        """Keep and send a request about a subscription. Raises BadMessage: no proxy would accept it."""
        check_client_message(message)
        self._pending_requests[SubscriptionId(message.subscription)] = message
        if self.attached:
            self._out.append(message)

    # ------------------------------------------------------------ publishing

    @property
    def publish_room(self) -> int:
        """The number of notifications that may be published before others are acknowledged; 0 or less: none. The caller
        keeps to it.
        """
        return self._publish_buffer.room

    @property
    def next_id(self) -> NotificationId:
        """The id of the next notification to be published."""
        return self._publish_buffer.next_id

    def publish(
        self, body: bytes, keys: list[Key] | None = None, *, insecure: bool = True, sequence: int | None = None
    ) -> int:
        """Add a notification to the publish buffer; return its sequence number, which :class:`Published` repeats.

        It is sent at the next :meth:`flush`.

        Args:
            body: the encoded notification, which is not checked.
            keys: raw for the producer's side, public for the consumer's; None: none.
            insecure: deliver it also where no keys meet.
            sequence: its number, above all before it; None: the next one.

        Raises:
            BadMessage, LimitExceeded: no proxy would accept the keys.
        """
        if keys or insecure is not True:
            check_client_message(
                Publish(producer="producer", secret="secret", first=0, bodies=[b""], keys=keys or [], insecure=insecure)
            )
        return self._publish_buffer.publish(body, keys, insecure=insecure, sequence=sequence)

    def publish_with(self, keys: list[Key]) -> None:
        """Set the keys that go with every later notification, beside its own; they replace those set before. The change
        is sent at the next :meth:`flush`.

        Args:
            keys: raw for the producer's side, public for the consumer's; empty: none. They are not checked.
        """
        self._publish_buffer.publish_with(keys)

    def quench(self, names: list[str], keys: list[Key], *, insecure: bool) -> None:
        """Ask for the interest in these attributes, now and on every later connection; Interest events report it.

        Args:
            names: of attributes; empty: interest is not asked for any more.
            keys: that will be published with: raw for the producer's side, public for the consumer's.
            insecure: the value that will be published with.

        Raises:
            BadMessage, LimitExceeded: no proxy would accept the request.
        """
        check_client_message(Quench(0, names, keys, insecure))
        message = self.quench_view.ask(names, keys, insecure=insecure)
        if self._connected:
            self._out.append(message)

    def flush(self) -> None:
        """Move the notifications of the publish buffer to the messages to be sent; without a connection, or in the
        pause after a :class:`PublishFailed`, they stay.
        """
        if self._connected and not self._resting:
            self._out.extend(self._publish_buffer.flush())

    def _publish_failed(self, first: int) -> None:
        """Note that the log has rejected a frame, and all later ones. Those before it may be answered yet."""
        self._rejected.add(first)
        self._rest_if_rejected()

    def _rest_if_rejected(self) -> None:
        """Pause publishing once the log has rejected the oldest frame: nothing may overtake it."""
        if not self._resting and self._publish_buffer.oldest in self._rejected:
            self._resting = True
            self._publish_attempts += 1
            self._events.append(PublishFailed(self._publish_attempts))

    def publish_again(self) -> None:
        """Add all publishes without an answer to :meth:`take_messages` again, once the caller has waited for the pause
        of a :class:`PublishFailed`. Without a connection, or with no such pause, nothing is added.

        The log may have some of them already; receivers drop those as duplicates.
        """
        if self._resting and self._connected:
            self._resting = False
            self._rejected.clear()
            self._out.extend(self._publish_buffer.in_flight())
            self.flush()
