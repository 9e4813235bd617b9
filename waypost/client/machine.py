"""The client library's machine: what a receiver and a producer must remember, and say. Pure.

Theory
------
*Receiving.* Only the library sees everything that its application was given, so only it can drop the last repeats: by
epoch (a delivery of an older owner means nothing after a newer one's), by frontier (at or below it is a repeat), and
by id (a publish that was retried at another origin has two coordinates; handover rules 17 and 18). The frontier moves
when the library takes a notification in; the acknowledgement goes out when the application has taken it over; what
was given to the application is attested, and attested again until a journal has it.

*Producing.* Notifications are numbered within this life of the producer. Everything not acknowledged is sent again, in
order, on every new connection, wherever that is.

If a connection breaks, nothing here is lost: the next one begins with `Hello`, `Attach` with the frontier, the
subscriptions that were never confirmed, the publishes never acknowledged, and the attestations never confirmed.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field

import msgspec

from waypost.batches import batches
from waypost.errors import Forbidden, LogUnavailable, NotServed, SessionDeleted, WaypostError, from_wire
from waypost.frontier import RecentIds, join
from waypost.identity import (
    NOTHING,
    Coordinate,
    Epoch,
    Incarnation,
    NotificationId,
    Origin,
    ProxyId,
    SessionId,
    SubscriptionId,
    new_incarnation,
)
from waypost.limits import MAX_PUBLISH_BATCH, PASSWORDS_TRIED, PUBLISH_BYTES, PUBLISH_WINDOW, RECEIVER_WINDOW
from waypost.messages import (
    VERSION,
    AboutAccess,
    AboutDeletion,
    AboutPublish,
    AboutSession,
    AboutSubscription,
    AccessChanged,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    Attestation,
    Attested,
    BecameEffective,
    Credential,
    Delete,
    Deleted,
    Deliver,
    Delivery,
    Detach,
    Forgotten,
    Gap,
    Granted,
    Hello,
    Moved,
    Problem,
    ProxyMessage,
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


@dataclass(slots=True)
class ReceiverState:
    """What a receiver's application has by its own word; keep it, and nothing is given twice or passed over."""

    frontier: dict[Origin, int] = field(default_factory=dict)
    recent: RecentIds = field(default_factory=RecentIds)
    epoch: Epoch = Epoch(0)
    incarnation: Incarnation = field(default_factory=new_incarnation)
    attested: int = 0
    """The number of the last attestation made."""
    unconfirmed: deque[Attestation] = field(default_factory=deque)


# ---------------------------------------------------------------- what the shell is told


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer to a subscribe or unsubscribe; `error` None: done."""

    subscription: SubscriptionId
    error: WaypostError | None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer to a change of the access, or to a deletion that was refused; `error` None: done."""

    what: str
    error: WaypostError | None


ACCESS, DELETION, PLACE = "access", "deletion", "place"


@dataclass(frozen=True, slots=True)
class Published:
    """An answer to the publish of `sequence`."""

    sequence: int
    coordinate: Coordinate | None
    error: WaypostError | None


@dataclass(frozen=True, slots=True)
class Redirected:
    """The session is served at `url` now."""

    proxy: ProxyId
    url: str


@dataclass(frozen=True, slots=True)
class Retry:
    """Attach again after so long."""

    reason: str
    after_ms: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """The session cannot be had at all."""

    error: WaypostError


Told = (
    Outcome
    | Answered
    | Published
    | Redirected
    | Retry
    | Refusal
    | Attached
    | BecameEffective
    | SubscriptionChanged
    | Deleted
    | Gap
    | Problem
    | Welcome
)


@dataclass(slots=True)
class _Batch:
    """One delivery in the inbox: which of its entries are no repeats; how many of those were given to the application,
    how many it has by its own word, and how many were attested."""

    deliver: Deliver
    proxy: ProxyId
    fresh: list[int]
    given: int = 0
    had: int = 0
    attested: int = 0


class ClientMachine:
    """One client.

    Args:
        name: of the client, for people.
        session: to attach to; None for a producer only.
        receiver: which of the session's receivers this is.
        state: the receiver's place so far.
        credential: as whom it attaches, and the password that proves it.
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
        lasts_s: int | None = None,
        credential: Credential | None = None,
    ) -> None:
        self.name = name
        self.session = session
        self.receiver = receiver
        self.state = state or ReceiverState()
        self.proxy = ProxyId("")
        self.attached = False
        self._create = create
        self._window = window
        self._lasts_s = lasts_s
        self._credentials = [credential or Credential()]
        """The one with which we attach; then those that may be right in its place, because a change of ours may be in
        force of which we do not know."""
        self._wrong = 0
        """So many of them were wrong since the last attach that succeeded."""
        self._changing: SetAccess | None = None
        """A change of the access that was not answered yet."""
        self._change_number = 0
        self._connected = False
        self._greeted = False
        """The proxy of this connection has let us in."""
        self._out: list[msgspec.Struct] = []
        self._told: list[Told] = []
        self._inbox: deque[_Batch] = deque()
        self._taken_in: dict[Origin, int] = {}
        """The frontier of what came since the last attach; the state's is that of what was given."""
        self._ids_in: set[NotificationId] = set()
        """Of what is in the inbox."""
        self._asked: dict[SubscriptionId, Subscribe | Unsubscribe] = {}
        self._deleting = False
        self._forgetting = False
        self._producer = name
        self._producer_life = new_incarnation()
        self._next_sequence = 0
        self._unsent: list[bytes] = []
        self._in_flight: deque[tuple[int, list[bytes]]] = deque()
        self._outstanding = 0
        self._fresh_attestations: list[Attestation] = []
        self.duplicates_dropped = 0

    # ------------------------------------------------------------ outputs

    def take_messages(self) -> list[msgspec.Struct]:
        """Return what is to be sent now, in order."""
        out, self._out = self._out, []
        return out

    def take_told(self) -> list[Told]:
        told, self._told = self._told, []
        return told

    # ------------------------------------------------------------ connections

    def connected(self) -> None:
        """A new connection stands: say who we are, and all that was never answered."""
        self._greeted = False
        self._out = [Hello(VERSION, self.name)]
        self._connected = True
        self._send_in_flight()
        self.attach()
        self.flush()

    def _send_in_flight(self) -> None:
        for first, bodies in self._in_flight:
            self._out.append(Publish(self._producer, self._producer_life, first, bodies))

    def attach(self) -> None:
        """Ask for the session, on the connection that stands. What was not given yet will be delivered again."""
        self.attached = False
        if self.session is not None:
            self.settle()
            self._inbox.clear()
            self._ids_in.clear()
            state = self.state
            self._taken_in = dict(state.frontier)
            self._out.append(
                Attach(
                    self.session,
                    self.receiver,
                    state.incarnation,
                    dict(state.frontier),
                    self._window,
                    self._create,
                    self._lasts_s,
                    self.credential,
                )
            )

    def disconnected(self) -> None:
        self.attached = self._connected = self._greeted = False
        self._out.clear()

    # ------------------------------------------------------------ what a proxy says

    def message(self, message: ProxyMessage) -> None:
        match message:
            case Deliver():
                self._deliver(message)
            case Acknowledged():
                self._acknowledged(message)
            case Attested():
                self._confirmed(message.number)
            case Attached():
                self._attached(message)
            case Subscribed() | Unsubscribed():
                self._asked.pop(message.subscription, None)
                self._told.append(Outcome(message.subscription, None))
            case AccessChanged():
                self._access_changed(message.number)
            case BecameEffective() | SubscriptionChanged() | Gap():
                self._told.append(message)
            case Welcome():
                self.proxy = message.proxy
                self._greeted = True
                self._told.append(message)
            case Moved():
                self.attached = False
                self._told.append(Redirected(message.proxy, message.url))
            case Deleted():
                self._deleted(message)
            case Forgotten():
                self.attached = self._forgetting = False
                self._told.append(Answered(PLACE, None))
            case Wait():
                self.attached = False
                self._told.append(Retry(message.reason, message.retry_after_ms))
            case Problem():
                self._problem(message)

    def _attached(self, message: Attached) -> None:
        self.attached, self._wrong = True, 0
        self._out.extend(self._asked.values())
        if self._changing is not None:
            self._out.append(self._changing)
        if self._deleting:
            self._out.append(Delete())
        if self._forgetting:
            self._out.append(self._farewell())
        self._fresh_attestations.clear()
        if self.state.unconfirmed:
            self._out.append(Acknowledge(0, list(self.state.unconfirmed)))
        self._told.append(message)

    def _deleted(self, message: Deleted) -> None:
        self.attached = False
        error = SessionDeleted(f"session {message.session}: {message.reason}")
        self._told.extend(Outcome(subscription, error) for subscription in self._asked)
        self._asked.clear()
        if self._changing is not None:
            self._answered(ACCESS, error)
        asked, self._deleting = self._deleting, False
        self._told.append(message if asked else Refusal(error))

    def forget(self) -> None:
        """Give up this receiver's place, for good."""
        self.settle()
        self._forgetting = True
        if self.attached:
            self._out.append(self._farewell())

    def _farewell(self) -> Detach:
        return Detach(forget=True, frontier=dict(self.state.frontier))

    def delete(self) -> None:
        """Have the session deleted, for all its receivers."""
        self._deleting = True
        if self.attached:
            self._out.append(Delete())

    # ------------------------------------------------------------ access

    def set_access(self, grants: dict[str, Granted]) -> None:
        """Have the session's access changed. One change at a time: the next one when this one was answered."""
        self._change_number += 1
        self._changing = SetAccess(self._change_number, grants)
        following = self._credential_of(self._changing)
        if following not in self._credentials:
            self._credentials[1:] = [following, *self._credentials[1:]][: PASSWORDS_TRIED - 1]
        if self.attached:
            self._out.append(self._changing)

    def _access_changed(self, number: int) -> None:
        if self._changing is not None and self._changing.number == number:
            self._credentials = [self._credential_of(self._changing)]
            self._changing = None
            self._told.append(Answered(ACCESS, None))

    @property
    def credential(self) -> Credential:
        """As whom we attach."""
        return self._credentials[0]

    def _credential_of(self, change: SetAccess) -> Credential:
        """Return what is right for us once that is in force."""
        mine = change.grants.get(self.credential.principal)
        if mine is None or mine.password is None:
            return self.credential
        return Credential(self.credential.principal, mine.password)

    def _attach_with_another(self) -> bool:
        """Our password is refused: try those that we set and that may be in force. False: all are wrong."""
        self._wrong += 1
        self._credentials.append(self._credentials.pop(0))
        if self._wrong >= len(self._credentials):
            self._wrong = 0
            return False
        self.attach()
        return True

    def _answered(self, what: str, error: WaypostError) -> None:
        """A change or a deletion was refused; where nothing is served now, it is asked for again at the next attach."""
        if isinstance(error, NotServed):
            return
        if what == ACCESS:
            self._changing = None
        else:
            self._deleting = False
        self._told.append(Answered(what, error))

    def _problem(self, problem: Problem) -> None:
        error = from_wire(problem.code, problem.message, problem.field)
        match problem.about:
            case AboutSubscription(subscription):
                self._subscription_problem(subscription, error)
            case AboutPublish(first):
                self._publish_problem(first, error)
            case AboutAccess(number):
                if self._changing is not None and self._changing.number == number:
                    self._answered(ACCESS, error)
            case AboutDeletion():
                self._answered(DELETION, error)
            case AboutSession(session) if session == self.session:
                self.attached = False
                if not (isinstance(error, Forbidden) and self._attach_with_another()):
                    self._told.append(Refusal(error))
            case None if not self._greeted:
                self._told.append(Refusal(error))
            case _:
                self._told.append(problem)

    def _subscription_problem(self, subscription: SubscriptionId, error: WaypostError) -> None:
        if subscription not in self._asked or isinstance(error, NotServed):
            return
        del self._asked[subscription]
        self._told.append(Outcome(subscription, error))

    def _publish_problem(self, first: int, error: WaypostError) -> None:
        """A log that did not answer may have appended. All that is in flight is sent again, in order, when the oldest
        of it failed: with it failed what followed, and nothing may overtake it. Another error is final."""
        if isinstance(error, LogUnavailable):
            if self._in_flight and self._in_flight[0][0] == first:
                self._send_in_flight()
            return
        for index, (sequence, bodies) in enumerate(self._in_flight):
            if sequence == first:
                del self._in_flight[index]
                self._outstanding -= len(bodies)
                self._told.extend(Published(first + each, None, error) for each in range(len(bodies)))
                return

    # ------------------------------------------------------------ receiving

    def _deliver(self, deliver: Deliver) -> None:
        state = self.state
        if deliver.epoch < state.epoch or not self.attached:
            return
        state.epoch = deliver.epoch
        seen, fresh = self._taken_in, []
        for index, entry in enumerate(deliver.entries):
            if entry.offset <= seen.get(entry.origin, NOTHING):
                self.duplicates_dropped += 1
                continue
            seen[entry.origin] = entry.offset
            identity = _id_of(entry)
            if identity in state.recent or identity in self._ids_in:
                self.duplicates_dropped += 1
                continue
            self._ids_in.add(identity)
            fresh.append(index)
        self._inbox.append(_Batch(deliver, self.proxy, fresh))
        if not fresh and len(self._inbox) == 1:
            self._finish_had()

    @property
    def waiting(self) -> bool:
        """Tell whether there is something for the application."""
        return bool(self._inbox)

    def take(self, most: int | None = None) -> list[tuple[Delivery, tuple[SubscriptionId, ...]]]:
        """Give the application the next notifications, `most` at most; with the next call, it has them.

        A delivery is acknowledged when the application has all of it.
        """
        self._finish_had()
        if not self._inbox:
            return []
        batch = self._inbox[0]
        deliver = batch.deliver
        chosen = batch.fresh[batch.given :][:most]
        batch.given += len(chosen)
        return [(deliver.entries[each], deliver.matches[deliver.matched[each]]) for each in chosen]

    def settle(self) -> None:
        """The application has all that it was given."""
        self._finish_had()
        if self._inbox:
            self._attest(self._inbox[0])

    def give_back(self) -> None:
        """The application does not have what it was given last: it comes again."""
        if self._inbox:
            self._inbox[0].given = self._inbox[0].had

    def _finish_had(self) -> None:
        """The application has what it was given; acknowledge the deliveries of which it has all."""
        state = self.state
        while self._inbox:
            batch = self._inbox[0]
            for index in batch.fresh[batch.had : batch.given]:
                entry = batch.deliver.entries[index]
                identity = _id_of(entry)
                state.frontier[entry.origin] = entry.offset
                state.recent.add(identity)
                self._ids_in.discard(identity)
            batch.had = batch.given
            if batch.had < len(batch.fresh):
                return
            self._inbox.popleft()
            self._attest(batch)
            join(state.frontier, {entry.origin: entry.offset for entry in batch.deliver.entries})
            if self.attached:
                self._out.append(Acknowledge(batch.deliver.through, self._unsent_attestations()))

    def _unsent_attestations(self) -> list[Attestation]:
        fresh, self._fresh_attestations = self._fresh_attestations, []
        return fresh

    def _attest(self, batch: _Batch) -> None:
        """Attest what the application has, origin by origin: no order is promised between origins."""
        by_origin: dict[Origin, tuple[list[int], list[int]]] = {}
        for each in batch.fresh[batch.attested : batch.had]:
            entry = batch.deliver.entries[each]
            offsets, digests = by_origin.setdefault(entry.origin, ([], []))
            offsets.append(entry.offset)
            digests.append(zlib.crc32(entry.body))
        batch.attested = batch.had
        epoch = batch.deliver.epoch
        for origin, (offsets, digests) in by_origin.items():
            self.state.attested += 1
            attestation = Attestation(self.state.attested, epoch, batch.proxy, origin, offsets, digests)
            self.state.unconfirmed.append(attestation)
            self._fresh_attestations.append(attestation)

    def _confirmed(self, number: int) -> None:
        unconfirmed = self.state.unconfirmed
        while unconfirmed and unconfirmed[0].number <= number:
            unconfirmed.popleft()

    # ------------------------------------------------------------ subscribing

    def subscribe(
        self, subscription: SubscriptionId, expression: str, ttl_s: int | None = None, max_count: int | None = None
    ) -> None:
        self._ask(Subscribe(subscription, expression, ttl_s, max_count))

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        self._ask(Unsubscribe(subscription))

    def _ask(self, message: Subscribe | Unsubscribe) -> None:
        self._asked[SubscriptionId(message.subscription)] = message
        if self.attached:
            self._out.append(message)

    # ------------------------------------------------------------ publishing

    @property
    def publish_room(self) -> int:
        return PUBLISH_WINDOW - self._outstanding

    @property
    def next_id(self) -> NotificationId:
        return NotificationId(self._producer, self._producer_life, self._next_sequence)

    def publish(self, body: bytes) -> int:
        """Take one notification to be published; return its sequence. Sent at the next flush."""
        sequence = self._next_sequence
        self._next_sequence += 1
        self._outstanding += 1
        self._unsent.append(body)
        return sequence

    def flush(self) -> None:
        """Send what was taken since the last flush, in frames of bounded size."""
        if not self._connected:
            return
        first = self._next_sequence - len(self._unsent)
        for batch in batches(self._unsent, len, most=MAX_PUBLISH_BATCH, most_bytes=PUBLISH_BYTES):
            bodies = list(batch)
            self._in_flight.append((first, bodies))
            self._out.append(Publish(self._producer, self._producer_life, first, bodies))
            first += len(bodies)
        self._unsent = []

    def _acknowledged(self, message: Acknowledged) -> None:
        for index, (first, bodies) in enumerate(self._in_flight):
            if first == message.first:
                del self._in_flight[index]
                self._outstanding -= len(bodies)
                break
        else:
            return
        self._told.extend(
            Published(message.first + each, Coordinate(message.origin, offset), None)
            for each, offset in enumerate(message.offsets)
        )


def _id_of(entry: Delivery) -> NotificationId:
    return NotificationId(entry.producer, entry.incarnation, entry.sequence)
