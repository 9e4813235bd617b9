"""The client library's machine: what a client asks of its session, and says on every connection. Pure.

Theory ------ A connection may break at any moment, and a session may be anywhere. So nothing that was asked for is
forgotten before it is answered, and the next connection begins with all of it: `Hello`, the publishes never
acknowledged (waypost/client/publish_buffer.py), `Attach` with the frontier, and, when the session is there, the
subscriptions, changes of keys and access and the deletion that were never answered, and the attestations never
confirmed (waypost/client/delivery_state.py).

An answer that nothing is served at the moment answers nothing: it is asked again at the next attach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec
from msgspec.structs import replace

from waypost.client.credentials import Credentials
from waypost.client.delivery_state import DeliveredItem, DeliveryState, ReceiverState
from waypost.client.events import (
    ClientEvent,
    Outcome,
    PublishFailed,
    Redirected,
    Refusal,
    RequestKind,
    RequestResult,
    Retry,
    SessionReplaced,
)
from waypost.client.publish_buffer import PublishBuffer
from waypost.client.quench import QuenchView
from waypost.errors import (
    Altered,
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
from waypost.limits import RECEIVER_WINDOW, RETRY_ATTACH_MS
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
    Moved,
    Problem,
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
from waypost.queue import Order, Queue
from waypost.reliability import Reliability

OfASession = AboutSubscription | AboutAccess | AboutKeys | AboutDeletion


class ClientMachine:
    """One client.

    Args:
        name: of the client, for people.
        session: to attach to; None for a producer only.
        receiver: which of the session's receivers this is.
        state: the receiver's place so far.
        credential: as whom it attaches, and the password that proves it.
        token: asked at every attach for what proves it in the password's place.
        reliability: of this receiver, and of the session; None: as the level above has it, and as it was.
        queue: how much the session stores at most from now on; None: as it was.
        order: what the application is given first.
    """

    def __init__(
        self,
        name: str,
        session: SessionId | None,
        receiver: str = "main",
        state: ReceiverState | None = None,
        *,
        create: bool = True,
        window: int = RECEIVER_WINDOW,
        session_expiry_s: int | None = None,
        receiver_expiry_s: int | None = None,
        credential: Credential | None = None,
        token: Callable[[], str] = lambda: "",
        reliability: Reliability | None = None,
        session_reliability: Reliability | None = None,
        queue: Queue | None = None,
        order: Order = "any",
    ) -> None:
        self.name = name
        self.session = session
        self.receiver = receiver
        self._delivery_state = DeliveryState(state or ReceiverState(), order)
        self._publish_buffer = PublishBuffer(name)
        self.quench_view = QuenchView()
        self.proxy = ProxyId("")
        self.attached = False
        self.is_left = False
        """The session's owner has our last word."""
        self._create = create
        self._gaps = 0
        """Gaps that we were told of since the last attach."""
        self._resting = False
        """A log did not take what we published: it is sent again after a pause, before anything else is."""
        self._publish_attempts = 0
        self._has_been_in = False
        """We were attached: if there is no such session any more, it was deleted, with all that we had asked of it."""
        self._window = window
        self._session_expiry_s = session_expiry_s
        self.receiver_expiry_s = receiver_expiry_s
        self._reliability = reliability
        self._session_reliability = session_reliability
        self._queue = queue
        self._token = token
        self._credentials = Credentials(credential or Credential())
        self._changing: SetAccess | None = None
        """A change of the access that was not answered yet."""
        self._change_number = 0
        self._keys: SetKeys | None = None
        """A change of the receiver's keys that was not answered yet."""
        self._connected = False
        self._greeted = False
        """The proxy of this connection has let us in."""
        self._out: list[msgspec.Struct] = []
        self._events: list[ClientEvent] = []
        self._pending_requests: dict[SubscriptionId, Subscribe | Unsubscribe] = {}
        self._deleting = False
        self._forgetting = False

    @property
    def state(self) -> ReceiverState:
        """The receiver's place."""
        return self._delivery_state.state

    # ------------------------------------------------------------ outputs

    def take_messages(self) -> list[msgspec.Struct]:
        """Return what is to be sent now, in order."""
        out, self._out = self._out, []
        return out

    def take_events(self) -> list[ClientEvent]:
        """Return the events since the last take."""
        events, self._events = self._events, []
        return events

    # ------------------------------------------------------------ connections

    def connected(self) -> None:
        """A new connection stands: say who we are, and all that was never answered."""
        self._greeted = self._resting = False
        self._out = [Hello(VERSION, self.name, Credential(token=self._token()))]
        self._connected = True
        self._out.extend(self._publish_buffer.in_flight())
        self._out.extend(self.quench_view.reset())
        self.attach()
        self.flush()

    def attach(self) -> None:
        """Ask for the session, on the connection that stands. What the application does not have is delivered again."""
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
                    window=self._window,
                    create=self._create and not self._has_been_in,
                    session_expiry_s=None if self._has_been_in else self._session_expiry_s,
                    credential=replace(self.credential, token=self._token()),
                    receiver_expiry_s=self.receiver_expiry_s,
                    epoch=state.epoch,
                    reliability=self._reliability,
                    # What was set once, somebody may have set otherwise since.
                    session_reliability=None if self._has_been_in else self._session_reliability,
                    queue=None if self._has_been_in else self._queue,
                    order=self._delivery_state.order,
                    selective=state.selective.rows(),
                    attach_seq=state.attach_seq,
                )
            )

    def attach_again(self) -> None:
        """Do what :class:`Retry` asked for, unless we were let in meanwhile."""
        if not self.attached:
            self.attach()

    def disconnected(self) -> None:
        """The connection has ended; requests without an answer are sent again on the next one."""
        self.attached = self._connected = self._greeted = False
        self.quench_view.lost()
        self._out.clear()

    # ------------------------------------------------------------ what a proxy says

    def message(self, message: ProxyMessage) -> None:
        """Take the next message. Raises Altered: nothing of it was taken, and the connection is to be given up."""
        match message:
            case Deliver():
                # An older owner's, or one that is under way no more, means nothing.
                if self.attached and self._delivery_state.deliver(message, self.proxy):
                    self._acknowledge()
            case Acknowledged():
                self._publish_attempts = 0
                self._events.extend(self._publish_buffer.acknowledged(message))
            case Attested():
                self._delivery_state.confirmed(message.number)
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
            case BecameEffective() | SubscriptionChanged():
                self._events.append(message)
            case Gap():
                self._gaps += 1
                self._out.append(Acknowledge(0, gaps=self._gaps))
                self._events.append(message)
            case Welcome():
                self.proxy = message.proxy
                self._greeted = True
                self._events.append(message)
            case Moved():
                self.attached = False
                if message.proxy == self.proxy:
                    # It has come to the proxy that relayed it to us.
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
                self._events.append(Retry(message.reason, message.retry_after_ms))
            case Problem():
                self._problem(message)
            case _:
                assert_never(message)

    def _attached(self, message: Attached) -> None:
        self.attached, self._has_been_in = True, True
        self.state.receiver = (str(self.session), self.receiver)
        # Counted since each attach, also where two that were asked for on one connection are answered.
        self._gaps = 0
        self._credentials.let_in()
        before, now = self.state.epoch, Ownership(message.proxy, message.epoch)
        self._delivery_state.attached(now.epoch, message.proxy, joined=message.joined)
        if self._keys is not None:
            self._out.append(self._keys)
        self._out.extend(self._pending_requests.values())
        if self._changing is not None:
            self._out.append(self._changing)
        if self._deleting:
            self._out.append(Delete())
        if self._forgetting:
            self._out.append(self._farewell())
        self._out.extend(self._delivery_state.attest_again())
        self._events.append(message)
        if before and now.outlives(before):
            self._events.append(SessionReplaced(message.session))

    def _deleted(self, message: Deleted) -> None:
        self.attached = self._has_been_in = False
        # Whoever asks from now on means the next one of that name.
        self.state.epoch = Epoch(0)
        error = SessionDeleted(f"session {message.session}: {message.reason}")
        self._events.extend(Outcome(subscription, error) for subscription in self._pending_requests)
        self._pending_requests.clear()
        if self._changing is not None:
            self._answered(RequestKind.ACCESS, error)
        if self._keys is not None:
            self._answered(RequestKind.KEYS, error)
        asked, self._deleting = self._deleting, False
        self._events.append(message if asked else Refusal(error))

    def forget(self) -> None:
        """Give up this receiver's place, for good."""
        self.flush_acks()
        self._forgetting = True
        if self.attached:
            self._out.append(self._farewell())

    def _farewell(self) -> Detach:
        return self._last_word(forget=True)

    def detach(self) -> Detach:
        """Return our last word. What the application has of a delivery of which it does not have all is said before.

        The owner answers it with Left, and then :attr:`is_left` is set.
        """
        self.is_left = False
        if self.attached:
            self._out.extend(self._delivery_state.attest_now())
        return self._last_word()

    def _last_word(self, *, forget: bool = False) -> Detach:
        return Detach(forget, dict(self.state.frontier), self.state.selective.rows())

    def delete(self) -> None:
        """Have the session deleted, for all its receivers."""
        self._deleting = True
        if self.attached:
            self._out.append(Delete())

    # ------------------------------------------------------------ access

    def set_access(self, grants: dict[str, Granted]) -> None:
        """Have the session's access changed. One change at a time: the next one when this one was answered."""
        self._changing = SetAccess(self._next_number(), grants)
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
        """As whom we attach."""
        return self._credentials.current

    def _attach_with_another(self) -> bool:
        """Our credential is refused. False: so are all that may be right."""
        if not self._credentials.try_another():
            return False
        self.attach()
        return True

    def _answered(self, what: RequestKind, error: WaypostError) -> None:
        """A change or a deletion was refused."""
        if what is RequestKind.ACCESS:
            self._changing = None
        elif what is RequestKind.KEYS:
            self._keys = None
        else:
            self._deleting = False
        self._events.append(RequestResult(what, error))

    def _problem(self, problem: Problem) -> None:
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
            case AboutAccess(number):
                if self._changing is not None and self._changing.number == number:
                    self._answered(RequestKind.ACCESS, error)
            case AboutKeys(number):
                if self._keys is not None and self._keys.number == number:
                    self._answered(RequestKind.KEYS, error)
            case AboutDeletion():
                self._answered(RequestKind.DELETION, error)
            case AboutSession(session) if session == self.session and isinstance(error, NotFound) and self._has_been_in:
                self._deleted(Deleted(SessionId(session), "it was deleted while we were between two proxies"))
            case AboutSession(session) if session == self.session:
                self.attached = False
                if isinstance(error, NotFound):
                    # Whoever asks from now on means the next one of that name.
                    self.state.epoch = Epoch(0)
                if not (isinstance(error, Forbidden) and self._attach_with_another()):
                    self._events.append(Refusal(error))
            case None if not self._greeted:
                self._events.append(Refusal(error))
            case _:
                self._events.append(problem)

    def _not_served(self, error: NotServed) -> None:
        """What was asked of the session is not done at the moment; it is asked for again at the next attach.

        As far as we know we are attached: the proxy may serve on, as if nothing had been, and no word would come.
        """
        if self.attached:
            self.attached = False
            self._events.append(Retry(error.message, RETRY_ATTACH_MS))

    def _subscription_answered(
        self, subscription: SubscriptionId, number: int, error: WaypostError | None = None
    ) -> None:
        """What was asked of the subscription is done, or refused; unless that answers what was asked before it."""
        if self._is_pending(subscription, number):
            del self._pending_requests[subscription]
            self._events.append(Outcome(subscription, error))

    def _is_pending(self, subscription: SubscriptionId, number: int) -> bool:
        asked = self._pending_requests.get(subscription)
        return asked is not None and asked.number == number

    # ------------------------------------------------------------ receiving

    @property
    def waiting(self) -> bool:
        """Tell whether there is something for the application."""
        return self._delivery_state.waiting

    @property
    def duplicates_dropped(self) -> int:
        """So many notifications came again and were dropped."""
        return self._delivery_state.duplicates_dropped

    def next_items(self, max_items: int | None = None, *, manual_ack: bool = False) -> list[DeliveredItem]:
        """Give the application the next notifications, `max_items` at most; with the next call, it has them, or,
        `manual_ack`, when it says so.

        A delivery is acknowledged when the application has all of it.
        """
        if not manual_ack:
            self._acknowledge()
        return self._delivery_state.next_items(max_items)

    def flush_acks(self) -> None:
        """The application has all that it was given."""
        self._acknowledge()
        self._delivery_state.attest()

    def acknowledge(self) -> None:
        """Say now how far the application has come, also in the middle of a delivery."""
        self.flush_acks()
        if self.attached:
            self._out.extend(self._delivery_state.partial_acks())

    def nack(self) -> None:
        """The application does not have what it was given last: it comes again."""
        self._delivery_state.nack()

    def _acknowledge(self) -> None:
        """The application has what it was given. On a later connection its frontier says so."""
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
        """Ask for a subscription; :class:`RequestResult` reports what came of it."""
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
        """Have these keys go with all that this receiver subscribes. One change at a time."""
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
        """Ask for the end of a subscription; :class:`RequestResult` reports what came of it."""
        self._request(Unsubscribe(subscription, self._next_number()))

    def _next_number(self) -> int:
        """Return the number of the next change that is asked for: its answer has it."""
        self._change_number += 1
        return self._change_number

    def _request(self, message: Subscribe | Unsubscribe) -> None:
        """Raises BadMessage: no proxy would take it."""
        check_client_message(message)
        self._pending_requests[SubscriptionId(message.subscription)] = message
        if self.attached:
            self._out.append(message)

    # ------------------------------------------------------------ publishing

    @property
    def publish_room(self) -> int:
        """So many more notifications can be published before some are acknowledged."""
        return self._publish_buffer.room

    @property
    def next_id(self) -> NotificationId:
        """The id of the next notification that is published."""
        return self._publish_buffer.next_id

    def publish(self, body: bytes, keys: list[Key] | None = None, *, insecure: bool = True) -> int:
        """Take one notification to be published; return its sequence. Sent at the next flush.

        Raises:
            BadMessage: the keys are none.
        """
        if keys or insecure is not True:
            check_client_message(
                Publish(producer="producer", secret="secret", first=0, bodies=[b""], keys=keys or [], insecure=insecure)
            )
        return self._publish_buffer.publish(body, keys, insecure=insecure)

    def publish_with(self, keys: list[Key]) -> None:
        """Let these keys go with all that is published from here on."""
        self._publish_buffer.publish_with(keys)

    def quench(self, names: list[str], keys: list[Key], *, insecure: bool) -> None:
        """Ask to be told what anybody wants of what has these attributes."""
        check_client_message(Quench(0, names, keys, insecure))
        asked = self.quench_view.ask(names, keys, insecure=insecure)
        if self._connected:
            self._out.append(asked)

    def flush(self) -> None:
        """Send what was taken since the last flush."""
        if self._connected and not self._resting:
            self._out.extend(self._publish_buffer.flush())

    def _publish_failed(self, first: int) -> None:
        """Nothing may overtake what the log did not take: until it was sent again, nothing else is."""
        if self._publish_buffer.is_oldest(first):
            self._resting = True
            self._publish_attempts += 1
            self._events.append(PublishFailed(self._publish_attempts))

    def publish_again(self) -> None:
        """Send all that has no answer once more; the log may have taken it. To be called after
        :class:`PublishFailed`.
        """
        if self._resting and self._connected:
            self._resting = False
            self._out.extend(self._publish_buffer.in_flight())
            self.flush()
