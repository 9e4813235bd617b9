"""What a receiver's application was given, has, and is still to be given. Pure.

Theory
------
Only the library sees everything that its application was given, so only it can drop the last repeats: by epoch (a
delivery of an older owner means nothing after a newer one's), by frontier (at or below it is a repeat), and by id (a
publish that was retried at another origin has two coordinates; handover rules 17 and 18).

There are two frontiers: that of what came since the last attach, by which repeats are dropped, and the state's, which
moves when the application has taken over what it was given. Only the second one outlives the attachment: what lies
above it will be delivered again, though not given again if the application holds it in its hands. A delivery is
acknowledged when the application has all of it; what it has is attested, and attested again at each attach until a
journal has it.

Where priorities or deadlines say what is given first, the application has some of what came later sooner. No frontier
says that; so the coordinates of those are said one by one (`selective`), and are repeats too, until the frontier has
come past them. What is overtaken keeps its place in the window: it is overtaken by no more than the window has room
for, and then there is nothing else to give. The frontier is no lower for that than where all is given as it comes: of
each origin it stands just below the first notification that came and that the application does not have. What lies
below that and did not come is not to be had: policy removed it, and another owner, which has not decided so yet, would
deliver it behind what the application has. Above the frontier the ranks tell: what comes behind something later of the
same origin and the same rank was removed likewise, for else it would have been given first. It is passed over.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec.structs import replace

from waypost.arguments import instance, mapping, text, whole, wrong
from waypost.batches import batches
from waypost.checksum import checksum
from waypost.errors import Altered
from waypost.frontier import RecentIds, Selective, join
from waypost.identity import (
    NOTHING,
    Epoch,
    Incarnation,
    NotificationId,
    Origin,
    ProxyId,
    SubscriptionId,
    new_incarnation,
)
from waypost.limits import ATTESTATIONS, ATTESTATIONS_BYTES, DELIVERY_BATCH, MAX_ID_LENGTH
from waypost.messages import Acknowledge, Attestation, Deliver, Delivery
from waypost.notification import read_body
from waypost.queue import Order, goes_by_attributes, rank


@dataclass(slots=True, kw_only=True)
class ReceiverState:
    """What a receiver's application has by its own word; keep it, and nothing is given twice or passed over."""

    receiver: tuple[str, str] | None = None
    """Which session's, and which of its receivers; None: it has not been let in yet."""
    frontier: dict[Origin, int] = field(default_factory=dict)
    selective: Selective = field(default_factory=Selective)
    """What it has above the frontier."""
    ranks: dict[Origin, dict[int, int]] = field(default_factory=dict)
    """Of that, the highest offset of each rank, where ranks decide what is given first."""
    recent: RecentIds = field(default_factory=RecentIds)
    epoch: Epoch = Epoch(0)
    proxy: ProxyId = ProxyId("")
    """The one that served it at that epoch."""
    incarnation: Incarnation = field(default_factory=new_incarnation)
    attach_seq: int = 0
    """So often it has asked for its session."""
    attested: int = 0
    """The number of the last attestation made."""
    unconfirmed: deque[Attestation] = field(default_factory=deque)

    def check(self) -> None:
        """Raise BadArgument unless this may be what a receiver had: it may have been kept in any way."""
        pair = self.receiver
        if pair is not None and not (
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(each, str) for each in pair)
        ):
            raise wrong(pair, "state.receiver", "a pair of texts, the session and the receiver, or None")
        for origin, offset in mapping(self.frontier, "state.frontier", "a dict of offsets, by origin").items():
            text(origin, "state.frontier", 1, MAX_ID_LENGTH, such_as="origins, each a text such as 'A/0'")
            whole(offset, "state.frontier", NOTHING, MAX_OFFSET)
        for name, kind in STATE_FIELDS.items():
            instance(getattr(self, name), f"state.{name}", kind, "a state as Receiver.state had it")
        for name in ("epoch", "attach_seq", "attested"):
            whole(getattr(self, name), f"state.{name}", 0, MAX_OFFSET)


STATE_FIELDS: dict[str, type] = {
    "selective": Selective,
    "ranks": dict,
    "recent": RecentIds,
    "proxy": str,
    "incarnation": str,
    "unconfirmed": deque,
}
MAX_OFFSET = 2**63 - 1

DeliveredItem = tuple[Delivery, tuple[SubscriptionId, ...], tuple[SubscriptionId, ...]]
"""What the application is given: the notification, the subscriptions that it matched, and those of them whose keys it
met."""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """One delivery in the inbox: which of its entries are no repeats, in the order in which the application is given
    them; how many of those were given, how many it has by its own word, and how many were attested.
    """

    deliver: Deliver
    proxy: ProxyId
    entries: list[int]
    arrived_before: int
    """How many entries came before it."""
    delivered: int = 0
    acknowledged: int = 0
    attested: int = 0
    ranks: dict[int, int] = field(default_factory=dict)
    """By which ranks its entries were given, where they go by them."""


class DeliveryState:
    """One receiver's deliveries.

    Args:
        order: what the application is given first of what is in the inbox.
    """

    def __init__(self, state: ReceiverState, order: Order = "any") -> None:
        self.state = state
        self.order = order
        self._goes_by_attributes = goes_by_attributes(order)
        self._inbox: deque[_Batch] = deque()
        self._arrived = 0
        self._ranked: list[tuple[int, int, _Batch, int]] = []
        """A heap of what is in the inbox and was not given: by rank, then as it came; which entry of which delivery.
        Empty where it is given as it came."""
        self._unacknowledged: list[_Batch] = []
        """Deliveries of which the application was given more than it has by its own word."""
        self._unsent_coordinates: dict[Origin, list[int]] = {}
        """What it has above the frontier, and the proxy was not told of."""
        self._unsent_frontier: dict[Origin, int] = {}
        """How far the frontier has come in the middle of deliveries, where the proxy was not told."""
        self._overtaken: dict[Origin, deque[tuple[int, NotificationId]]] = {}
        """Of each origin what came since the last attach, in order, from the first on that the application does not
        have; where it is given by attributes."""
        self._received_frontier: dict[Origin, int] = {}
        """The frontier of what came since the last attach; the state's is that of what was given."""
        self._inbox_ids: set[NotificationId] = set()
        """Of what is in the inbox."""
        self._unsent_attestations: list[Attestation] = []
        """Attestations that go with the next acknowledgement."""
        self.duplicates_dropped = 0

    def reset(self) -> None:
        """The session is asked for again: what the application does not have will be delivered again.

        What it was given, and has not said to have, stays in its hands, in front of all that comes: there it is a
        repeat, and is acknowledged with the delivery that brings it again.
        """
        self.attest()
        self._unacknowledged = [
            _unacknowledged_part(batch) for batch in self._inbox if batch.acknowledged < batch.delivered
        ]
        self._inbox = deque(self._unacknowledged)
        self._ranked.clear()
        self._unsent_coordinates.clear()
        self._unsent_frontier.clear()
        self._overtaken.clear()
        self._inbox_ids = {_id_of(entry) for held in self._inbox for entry in held.deliver.entries}
        self._received_frontier = dict(self.state.frontier)

    def attached(self, epoch: Epoch, proxy: ProxyId, *, joined: bool = False) -> None:
        """It is served by this proxy; what an owner before it delivered means nothing any more.

        Args:
            joined: the receiver had no place there. At an earlier epoch it is another session of that name then, made
                since the registry lost what it knew: what it delivers is news.
        """
        if joined or epoch >= self.state.epoch:
            self.state.epoch, self.state.proxy = epoch, proxy

    # ------------------------------------------------------------ what comes

    def deliver(self, deliver: Deliver, proxy: ProxyId) -> bool:
        """Take a delivery in; tell whether the application has all of it already, and all before it.

        Raises Altered: one of the notifications is not what was published. None of them is taken.
        """
        state = self.state
        if deliver.epoch < state.epoch:
            return False
        if [checksum(entry.body) for entry in deliver.entries] != [entry.check for entry in deliver.entries]:
            altered = next(entry for entry in deliver.entries if checksum(entry.body) != entry.check)
            raise Altered(f"notification {altered.offset} of {altered.origin} is not what was published")
        state.epoch = deliver.epoch
        seen, fresh, above = self._received_frontier, [], state.selective if state.selective else None
        for index, entry in enumerate(deliver.entries):
            if entry.offset <= seen.get(entry.origin, NOTHING) or (
                above is not None and above.has(entry.origin, entry.offset)
            ):
                self.duplicates_dropped += 1
                continue
            seen[entry.origin] = entry.offset
            identity = _id_of(entry)
            if self._goes_by_attributes:
                self._overtaken.setdefault(entry.origin, deque()).append((entry.offset, identity))
                if entry.origin in state.ranks and self._is_passed(entry):
                    self._have(entry)
                    continue
            if identity in state.recent or identity in self._inbox_ids:
                self.duplicates_dropped += 1
                continue
            self._inbox_ids.add(identity)
            fresh.append(index)
        batch = _Batch(deliver=deliver, proxy=proxy, entries=fresh, arrived_before=self._arrived)
        self._arrived += len(deliver.entries)
        self._inbox.append(batch)
        if self._goes_by_attributes:
            self._line_up(batch, fresh)
        return not fresh and len(self._inbox) == 1

    def _line_up(self, batch: _Batch, entries: list[int]) -> None:
        """These are to be given, by their attributes."""
        for index in entries:
            entry = batch.deliver.entries[index]
            by = rank(self.order, read_body(entry.body), entry.at_ms)
            heappush(self._ranked, (by, batch.arrived_before + index, batch, index))

    def _is_passed(self, entry: Delivery) -> bool:
        """Tell whether the application has something later of the same rank: then policy had removed this before."""
        by = rank(self.order, read_body(entry.body), entry.at_ms)
        return entry.offset < self.state.ranks[entry.origin].get(by, NOTHING)

    def _have(self, entry: Delivery) -> None:
        """The application has this, or is past it, whatever it has of what came before."""
        self.state.selective.add(entry.origin, [entry.offset])
        self._unsent_coordinates.setdefault(entry.origin, []).append(entry.offset)

    # ------------------------------------------------------------ what the application is given, and has

    @property
    def waiting(self) -> bool:
        """Tell whether there is something for the application."""
        return bool(self._inbox)

    def next_items(self, max_items: int | None) -> list[DeliveredItem]:
        """Return what the application is given next, `most` at most: from one delivery, or, where that does not go as
        they came, the first of all.
        """
        if self._goes_by_attributes:
            return self._next_by_rank(max_items)
        batch = next((batch for batch in self._inbox if batch.delivered < len(batch.entries)), None)
        if batch is None:
            return []
        self._unacknowledged.append(batch)
        chosen = batch.entries[batch.delivered :][:max_items]
        batch.delivered += len(chosen)
        return [_item(batch, each) for each in chosen]

    def _next_by_rank(self, max_items: int | None) -> list[DeliveredItem]:
        given: list[DeliveredItem] = []
        while self._ranked and (max_items is None or len(given) < max_items):
            by, _, batch, index = heappop(self._ranked)
            batch.ranks[index] = by
            batch.entries.remove(index)
            batch.entries.insert(batch.delivered, index)
            batch.delivered += 1
            self._unacknowledged.append(batch)
            given.append(_item(batch, index))
        return given

    def nack(self) -> None:
        """The application does not have what it was given since it last said so: it comes again."""
        for batch in self._unacknowledged:
            if self._goes_by_attributes:
                self._line_up(batch, batch.entries[batch.acknowledged : batch.delivered])
            batch.delivered = batch.acknowledged
        self._unacknowledged.clear()

    def acknowledge(self) -> list[Acknowledge]:
        """The application has what it was given; return what acknowledges the deliveries of which it has all, and, now
        and then, what it has of others.
        """
        for batch in self._unacknowledged:
            self._take_over(batch)
        self._unacknowledged.clear()
        state, messages = self.state, []
        while self._inbox and self._inbox[0].acknowledged == len(self._inbox[0].entries):
            batch = self._inbox.popleft()
            self._attest(batch)
            if batch.deliver.through:
                join(state.frontier, {entry.origin: entry.offset for entry in batch.deliver.entries})
                attestations, self._unsent_attestations = self._unsent_attestations, []
                messages.append(Acknowledge(batch.deliver.through, attestations))
        self._advance()
        if state.selective:
            state.selective.reached(state.frontier)
            self._forget_ranks()
        if self._unsent_coordinates and (not self._ranked or self._unsaid_count() >= DELIVERY_BATCH):
            messages += self._coordinate_acks()
        return messages

    def _advance(self) -> None:
        """Let the frontier come up to the first notification of each origin that came and is not had."""
        state = self.state
        for origin, came in self._overtaken.items():
            before = upto = state.frontier.get(origin, NOTHING)
            while came and self._has(origin, *came[0]):
                upto = max(upto, came.popleft()[0])
            if came and state.selective.any_of(origin):
                upto = max(upto, came[0][0] - 1)
            if upto > before:
                state.frontier[origin] = self._unsent_frontier[origin] = upto

    def _forget_ranks(self) -> None:
        """Forget the ranks of what the frontier has come past."""
        for origin, highest in list(self.state.ranks.items()):
            upto = self.state.frontier.get(origin, NOTHING)
            left = {by: offset for by, offset in highest.items() if offset > upto}
            if left:
                self.state.ranks[origin] = left
            else:
                del self.state.ranks[origin]

    def _has(self, origin: Origin, offset: int, identity: NotificationId) -> bool:
        """Tell whether the application has this; of a publish that was retried it has one copy."""
        state = self.state
        if offset <= state.frontier.get(origin, NOTHING) or state.selective.has(origin, offset):
            return True
        return identity in state.recent

    def _unsaid_count(self) -> int:
        return sum(map(len, self._unsent_coordinates.values()))

    def _take_over(self, batch: _Batch) -> None:
        """The application has all of this delivery that it was given."""
        state = self.state
        for index in batch.entries[batch.acknowledged : batch.delivered]:
            entry = batch.deliver.entries[index]
            if self._goes_by_attributes:
                self._have(entry)
                highest = state.ranks.setdefault(entry.origin, {})
                highest[batch.ranks[index]] = max(entry.offset, highest.get(batch.ranks[index], NOTHING))
            else:
                state.frontier[entry.origin] = entry.offset
            identity = _id_of(entry)
            state.recent.add(identity)
            self._inbox_ids.discard(identity)
        batch.acknowledged = batch.delivered

    def _coordinate_acks(self) -> list[Acknowledge]:
        """Return what says which of later deliveries the application has, as far as that was not said."""
        unsaid, self._unsent_coordinates = Selective(self._unsent_coordinates), {}
        frontier, self._unsent_frontier = self._unsent_frontier, {}
        unsaid.reached(self.state.frontier)
        self.attest()
        messages = self.attest_now()
        return (
            [*messages, Acknowledge(0, frontier=frontier, selective=unsaid.rows())] if unsaid or frontier else messages
        )

    # ------------------------------------------------------------ attesting

    def attest(self) -> None:
        """Attest also what the application has of deliveries of which it does not have all."""
        for batch in self._inbox:
            if batch.attested < batch.acknowledged:
                self._attest(batch)

    def _attest(self, batch: _Batch) -> None:
        """Attest what the application has, origin by origin: no order is promised between origins."""
        by_origin: dict[Origin, tuple[list[int], list[int]]] = {}
        for each in batch.entries[batch.attested : batch.acknowledged]:
            entry = batch.deliver.entries[each]
            offsets, digests = by_origin.setdefault(entry.origin, ([], []))
            offsets.append(entry.offset)
            digests.append(zlib.crc32(entry.body))
        batch.attested = batch.acknowledged
        epoch = batch.deliver.epoch
        for origin, (offsets, digests) in by_origin.items():
            self.state.attested += 1
            attestation = Attestation(
                number=self.state.attested,
                epoch=epoch,
                proxy=batch.proxy,
                origin=origin,
                offsets=offsets,
                digests=digests,
                order=self.order,
            )
            self.state.unconfirmed.append(attestation)
            self._unsent_attestations.append(attestation)

    def attest_now(self) -> list[Acknowledge]:
        """Return what says the attestations that were not said yet."""
        unsaid, self._unsent_attestations = self._unsent_attestations, []
        return _saying(unsaid)

    def partial_acks(self) -> list[Acknowledge]:
        """Return what says where we are in a delivery of which the application has a part."""
        if self._goes_by_attributes:
            return self._coordinate_acks()
        if not self._inbox or not self._inbox[0].acknowledged:
            return []
        batch = self._inbox[0]
        if not batch.deliver.through:
            return self.attest_now()
        had = (batch.deliver.entries[each] for each in batch.entries[: batch.acknowledged])
        return [*self.attest_now(), Acknowledge(0, frontier={entry.origin: entry.offset for entry in had})]

    def attest_again(self) -> list[Acknowledge]:
        """Return what says all attestations that no journal has, as far as we know."""
        self._unsent_attestations.clear()
        return _saying(list(self.state.unconfirmed))

    def confirmed(self, number: int) -> None:
        """A journal has the attestations up to this number."""
        unconfirmed = self.state.unconfirmed
        while unconfirmed and unconfirmed[0].number <= number:
            unconfirmed.popleft()


def _unacknowledged_part(batch: _Batch) -> _Batch:
    """Return what of a delivery the application was given and does not have; it is none of this connection."""
    held, deliver = batch.entries[batch.acknowledged : batch.delivered], batch.deliver
    entries, matched = [deliver.entries[each] for each in held], [deliver.matched[each] for each in held]
    kept = replace(deliver, through=0, entries=entries, matched=matched)
    ranks = {index: batch.ranks[each] for index, each in enumerate(held) if each in batch.ranks}
    return _Batch(
        deliver=kept,
        proxy=batch.proxy,
        entries=list(range(len(held))),
        arrived_before=batch.arrived_before,
        delivered=len(held),
        ranks=ranks,
    )


def _item(batch: _Batch, index: int) -> DeliveredItem:
    deliver = batch.deliver
    matched = deliver.matched[index]
    return deliver.entries[index], deliver.matches[matched], deliver.secure.get(matched, ())


def _saying(attestations: list[Attestation]) -> list[Acknowledge]:
    """Say them and nothing else, in frames of bounded size: after a long time without a journal they are many."""
    frames = batches(attestations, _bytes_of, max_items=ATTESTATIONS, max_bytes=ATTESTATIONS_BYTES)
    return [Acknowledge(0, list(frame)) for frame in frames]


def _bytes_of(attestation: Attestation) -> int:
    """Return at most how many bytes it takes in a frame: an offset and a digest, each with its mark."""
    return 200 + 14 * len(attestation.offsets)


def _id_of(entry: Delivery) -> NotificationId:
    return NotificationId(entry.producer, entry.incarnation, entry.sequence)
