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
from waypost.errors import WaypostError
from waypost.frontier import RecentIds
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
from waypost.limits import MAX_PUBLISH_BATCH, PUBLISH_BYTES, PUBLISH_WINDOW, RECEIVER_WINDOW
from waypost.messages import (
    VERSION,
    Acknowledge,
    Acknowledged,
    Attach,
    Attached,
    Attestation,
    Attested,
    BecameEffective,
    Deliver,
    Delivery,
    Gap,
    Hello,
    Moved,
    Problem,
    ProxyMessage,
    Publish,
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
    """A receiver's place, as it outlives connections; keep it, and nothing is given twice."""

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
    | Published
    | Redirected
    | Retry
    | Refusal
    | Attached
    | BecameEffective
    | SubscriptionChanged
    | Gap
    | Welcome
)


class Refused(WaypostError):
    """A refusal that came over the wire, with its own code."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message, field=problem.field)
        self.code = problem.code
        self.exit_status = 5 if problem.code == "NOT_FOUND" else 2


@dataclass(slots=True)
class _Batch:
    """One delivery in the inbox: its entries, how far they were taken, and what to acknowledge then."""

    connection: int
    deliver: Deliver
    fresh: list[int]
    taken: int = 0


class ClientMachine:
    """One client.

    Args:
        name: of the client, for people.
        session: to attach to; None for a producer only.
        receiver: which of the session's receivers this is.
        state: the receiver's place so far.
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
    ) -> None:
        self.name = name
        self.session = session
        self.receiver = receiver
        self.state = state or ReceiverState()
        self.proxy = ProxyId("")
        self.attached = False
        self._create = create
        self._window = window
        self._connection = 0
        self._proxy_of_epoch: dict[int, ProxyId] = {}
        self._out: list[msgspec.Struct] = []
        self._told: list[Told] = []
        self._inbox: deque[_Batch] = deque()
        self._asked: dict[SubscriptionId, Subscribe | Unsubscribe] = {}
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
        self._connection += 1
        self.attached = False
        self._out = [Hello(VERSION, self.name)]
        for first, bodies in self._in_flight:
            self._out.append(Publish(self._producer, self._producer_life, first, bodies))
        self.attach()
        self.flush()

    def attach(self) -> None:
        """Ask for the session, on the connection that stands."""
        if self.session is not None:
            state = self.state
            self._out.append(
                Attach(
                    self.session,
                    self.receiver,
                    state.incarnation,
                    dict(state.frontier),
                    self._window,
                    self._create,
                )
            )

    def disconnected(self) -> None:
        self.attached = False
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
            case BecameEffective() | SubscriptionChanged() | Gap():
                self._told.append(message)
            case Welcome():
                self.proxy = message.proxy
                self._told.append(message)
            case Moved():
                self.attached = False
                self._told.append(Redirected(message.proxy, message.url))
            case Wait():
                self.attached = False
                self._told.append(Retry(message.reason, message.retry_after_ms))
            case Problem():
                self._problem(message)

    def _attached(self, message: Attached) -> None:
        self.attached = True
        self._out.extend(self._asked.values())
        self._fresh_attestations.clear()
        if self.state.unconfirmed:
            self._out.append(Acknowledge(0, list(self.state.unconfirmed)))
        self._told.append(message)

    def _problem(self, problem: Problem) -> None:
        error = Refused(problem)
        about = problem.about
        if about is not None and SubscriptionId(about) in self._asked:
            if problem.code == "NOT_SERVED":
                return
            del self._asked[SubscriptionId(about)]
            self._told.append(Outcome(SubscriptionId(about), error))
        elif about is not None and about.isdigit():
            self._publish_problem(int(about), problem, error)
        else:
            self._told.append(Refusal(error))

    def _publish_problem(self, first: int, problem: Problem, error: Refused) -> None:
        """A log that did not answer may have appended: send again. Anything else is final."""
        for index, (sequence, bodies) in enumerate(self._in_flight):
            if sequence != first:
                continue
            if problem.code == "LOG_UNAVAILABLE":
                self._out.append(Publish(self._producer, self._producer_life, first, bodies))
                return
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
        self._proxy_of_epoch[deliver.epoch] = self.proxy
        frontier, fresh = state.frontier, []
        for index, entry in enumerate(deliver.entries):
            if entry.offset <= frontier.get(entry.origin, NOTHING):
                self.duplicates_dropped += 1
                continue
            frontier[entry.origin] = entry.offset
            identity = NotificationId(entry.producer, entry.incarnation, entry.sequence)
            if identity in state.recent:
                self.duplicates_dropped += 1
                continue
            state.recent.add(identity)
            fresh.append(index)
        self._inbox.append(_Batch(self._connection, deliver, fresh))
        if not fresh and len(self._inbox) == 1:
            self._finish(self._inbox.popleft())

    @property
    def waiting(self) -> bool:
        """Tell whether there is something for the application."""
        return bool(self._inbox)

    def take(self) -> list[tuple[Delivery, tuple[SubscriptionId, ...]]]:
        """Give the application the next notifications; with the next call, it has them: they are acknowledged."""
        self.settle()
        while self._inbox:
            batch = self._inbox[0]
            batch.taken = len(batch.fresh)
            if not batch.fresh:
                self._finish(self._inbox.popleft())
                continue
            self._attest(batch)
            entries, deliver = batch.deliver.entries, batch.deliver
            return [(entries[each], deliver.matches[deliver.matched[each]]) for each in batch.fresh]
        return []

    def settle(self) -> None:
        """The application has what it was given."""
        if self._inbox and self._inbox[0].taken:
            self._finish(self._inbox.popleft())

    def _finish(self, batch: _Batch) -> None:
        if batch.connection != self._connection or not self.attached:
            return
        self._out.append(Acknowledge(batch.deliver.through, self._unsent_attestations()))

    def _unsent_attestations(self) -> list[Attestation]:
        fresh, self._fresh_attestations = self._fresh_attestations, []
        return fresh

    def _attest(self, batch: _Batch) -> None:
        """Attest what the application is given, origin by origin: no order is promised between origins."""
        by_origin: dict[Origin, tuple[list[int], list[int]]] = {}
        for each in batch.fresh:
            entry = batch.deliver.entries[each]
            offsets, digests = by_origin.setdefault(entry.origin, ([], []))
            offsets.append(entry.offset)
            digests.append(zlib.crc32(entry.body))
        epoch = batch.deliver.epoch
        for origin, (offsets, digests) in by_origin.items():
            self.state.attested += 1
            attestation = Attestation(self.state.attested, epoch, self._proxy_of_epoch[epoch], origin, offsets, digests)
            self.state.unconfirmed.append(attestation)
            self._fresh_attestations.append(attestation)

    def _confirmed(self, number: int) -> None:
        unconfirmed = self.state.unconfirmed
        while unconfirmed and unconfirmed[0].number <= number:
            unconfirmed.popleft()

    # ------------------------------------------------------------ subscribing

    def subscribe(self, subscription: SubscriptionId, expression: str) -> None:
        self._ask(Subscribe(subscription, expression))

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
        if not self._connection:
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
