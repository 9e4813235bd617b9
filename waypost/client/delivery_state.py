"""A receiver's deliveries: those that arrived, were returned to the application, and were acknowledged by it. Pure.

Theory
------
Only the library sees every notification that was returned to its application, so only it can drop the last duplicates:
by epoch (a delivery of an older owner is ignored after a newer one's), by frontier (a coordinate at or below it is a
duplicate), and by id (a publish that was retried at another origin has two coordinates; handover rules 17 and 18).

There are two frontiers: that of what arrived since the last attach, by which duplicates are dropped, and the state's,
which advances when the application acknowledges. Only the second one outlives the attachment: notifications above it
are delivered again, but not returned again if the application was given them before and has not acknowledged them. A
delivery is acknowledged to the proxy when the application has acknowledged all of it; what it has is attested, and
attested again at each attach until a journal has the attestation.

If notifications are ordered by priority or deadline, the application may have later ones before earlier ones. A
frontier cannot express that; so their coordinates are acknowledged one by one (`selective`), and are duplicates, too,
until the frontier has passed them. A notification that is overtaken keeps its slot in the window: it is overtaken by no
more than fit in the window, and then it is next. The frontier is no lower than with another order: of each origin it is
just below the first notification that arrived and that the application does not have. An earlier one that did not
arrive never will: policy removed it, and another owner, which has not decided so yet, would deliver it after what the
application has. Above the frontier the ranks decide: a notification that arrives after a later one of the same origin
and the same rank was removed likewise, for else it would have been delivered first. It is passed over.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush

from msgspec.structs import replace

from waypost.arguments import instance, mapping, text, whole, wrong_type
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
    """A receiver's position: the notifications that its application has acknowledged, in all its attachments.

    An application that keeps it for the next attach gets no notification twice, and misses none.
    """

    receiver: tuple[str, str] | None = None
    """The session and the name of the receiver in it; None: it has not been attached yet."""
    frontier: dict[Origin, int] = field(default_factory=dict)
    selective: Selective = field(default_factory=Selective)
    """Acknowledged coordinates above the frontier."""
    ranks: dict[Origin, dict[int, int]] = field(default_factory=dict)
    """The highest of those offsets, by origin and rank, where notifications are ordered by rank."""
    recent: RecentIds = field(default_factory=RecentIds)
    epoch: Epoch = Epoch(0)
    incarnation: Incarnation = field(default_factory=new_incarnation)
    attach_seq: int = 0
    """The number of attaches sent, by which the newest is recognised."""
    attested: int = 0
    """The number of the last attestation made."""
    unconfirmed: deque[Attestation] = field(default_factory=deque)

    def begin_incarnation(self) -> None:
        """Begin another incarnation of the receiver at this position, unless it was never attached.

        The position may be older than what its last incarnation came to, so the numbers of that one are not used again:
        not for attestations, nor for attaches.
        """
        if not self.attach_seq:
            return
        before = self.incarnation
        self.unconfirmed = deque(
            attestation if attestation.incarnation else replace(attestation, incarnation=before)
            for attestation in self.unconfirmed
        )
        self.incarnation, self.attach_seq, self.attested = new_incarnation(), 0, 0

    def check(self) -> None:
        """Raise BadArgument unless every field is of its type and in its range: an application may have stored it in
        any way.
        """
        pair = self.receiver
        if pair is not None and not (
            isinstance(pair, tuple) and len(pair) == 2 and all(isinstance(name, str) for name in pair)
        ):
            raise wrong_type(pair, "state.receiver", "a pair of texts, the session and the receiver, or None")
        for origin, offset in mapping(self.frontier, "state.frontier", "a dict of offsets, by origin").items():
            text(origin, "state.frontier", 1, MAX_ID_LENGTH, such_as="origins, each a text such as 'A/0'")
            whole(offset, "state.frontier", NOTHING, MAX_OFFSET)
        for name, kind in STATE_FIELDS.items():
            instance(getattr(self, name), f"state.{name}", kind, "a state as Receiver.state had it")
        for attestation in self.unconfirmed:
            instance(attestation, "state.unconfirmed", Attestation, "attestations as Receiver.state had them")
        for name in ("epoch", "attach_seq", "attested"):
            whole(getattr(self, name), f"state.{name}", 0, MAX_OFFSET)


STATE_FIELDS: dict[str, type] = {
    "selective": Selective,
    "ranks": dict,
    "recent": RecentIds,
    "incarnation": str,
    "unconfirmed": deque,
}
MAX_OFFSET = 2**63 - 1

DeliveredItem = tuple[Delivery, tuple[SubscriptionId, ...], tuple[SubscriptionId, ...]]
"""An item for the application: the notification, the subscriptions that it matched, and those of them whose keys it
met.
"""


@dataclass(slots=True, kw_only=True)
class _Batch:
    """One delivery in the inbox. `entries` are the indices of those that are no duplicates, in the order in which they
    are returned.

    `delivered`, `acknowledged` and `attested` count how many of them were returned, acknowledged and attested.
    """

    deliver: Deliver
    proxy: ProxyId
    entries: list[int]
    arrived_before: int
    """The number of notifications that arrived before this delivery."""
    delivered: int = 0
    acknowledged: int = 0
    attested: int = 0
    ranks: dict[int, int] = field(default_factory=dict)
    """The rank of each entry that was returned by rank, by its index."""


class DeliveryState:
    """One receiver's deliveries.

    Args:
        state: the receiver's position; it is advanced in place.
        order: which notification of the inbox is returned first.
    """

    def __init__(self, state: ReceiverState, order: Order = "any") -> None:
        self.state = state
        self.order = order
        self._goes_by_attributes = goes_by_attributes(order)
        self._inbox: deque[_Batch] = deque()
        self._arrived = 0
        self._ranked: list[tuple[int, int, _Batch, int]] = []
        """A heap of the entries that were not returned: rank, number of arrival, delivery, index. Empty where
        notifications are returned as they arrived.
        """
        self._unacknowledged: list[_Batch] = []
        """Deliveries of which more was returned than acknowledged."""
        self._unsent_coordinates: dict[Origin, list[int]] = {}
        """Acknowledged coordinates above the frontier that were not sent to the proxy yet."""
        self._unsent_frontier: dict[Origin, int] = {}
        """The frontier where it advanced in the middle of deliveries, and was not sent to the proxy yet."""
        self._overtaken: dict[Origin, deque[tuple[int, NotificationId]]] = {}
        """By origin, the notifications that arrived since the last attach, in order, from the first one on that the
        application does not have; used where they are ordered by attributes.
        """
        self._received_frontier: dict[Origin, int] = {}
        """The frontier of what arrived since the last attach."""
        self._inbox_ids: set[NotificationId] = set()
        """The ids of the notifications in the inbox."""
        self._unsent_attestations: list[Attestation] = []
        """Attestations that go with the next acknowledgement."""
        self.duplicates_dropped = 0

    def reset(self) -> None:
        """Prepare for a new attach, before it is sent: notifications that the application does not have are delivered
        again.

        Those that were returned and not acknowledged stay in front of the inbox: their second copy is a duplicate, and
        they are acknowledged with the delivery that brings it. Everything acknowledged is attested (:meth:`attest`).
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
        self._inbox_ids = {_id_of(entry) for batch in self._inbox for entry in batch.deliver.entries}
        self._received_frontier = dict(self.state.frontier)

    def attached(self, epoch: Epoch, *, joined: bool = False) -> None:
        """Record the owner that serves the session; deliveries of earlier owners are ignored from now on.

        Args:
            epoch: of the owner. One that is earlier than the state's is ignored, unless `joined`.
            joined: the receiver was not registered there. An earlier epoch is accepted then: it is another session of
                that name, created since the registry lost the row of the first.
        """
        if joined or epoch >= self.state.epoch:
            self.state.epoch = epoch

    # ------------------------------------------------------------ arriving deliveries

    def deliver(self, deliver: Deliver, proxy: ProxyId) -> bool:
        """Add a delivery to the inbox, without its duplicates. A delivery of an earlier owner than that of the state is
        ignored; that of a later one makes its epoch the state's.

        Args:
            deliver: the message.
            proxy: the owner of the session, which sent it.

        Returns:
            Whether nothing new is in it and no delivery waits before it: then :meth:`acknowledge` can acknowledge it at
            once.

        Raises:
            Altered: a notification is not what was published. None of the delivery is accepted.
        """
        state = self.state
        if deliver.epoch < state.epoch:
            return False
        if [checksum(entry.body) for entry in deliver.entries] != [entry.check for entry in deliver.entries]:
            altered = next(entry for entry in deliver.entries if checksum(entry.body) != entry.check)
            raise Altered(f"notification {altered.offset} of {altered.origin} is not what was published")
        state.epoch = deliver.epoch
        seen, new, above = self._received_frontier, [], state.selective if state.selective else None
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
            new.append(index)
        batch = _Batch(deliver=deliver, proxy=proxy, entries=new, arrived_before=self._arrived)
        self._arrived += len(deliver.entries)
        self._inbox.append(batch)
        if self._goes_by_attributes:
            self._line_up(batch, new)
        return not new and len(self._inbox) == 1

    def _line_up(self, batch: _Batch, entries: list[int]) -> None:
        """Add these entries to the heap, by their rank."""
        for index in entries:
            entry = batch.deliver.entries[index]
            by = rank(self.order, read_body(entry.body), entry.at_ms)
            heappush(self._ranked, (by, batch.arrived_before + index, batch, index))

    def _is_passed(self, entry: Delivery) -> bool:
        """Tell whether the application has a later notification of the same rank: then policy had removed this one."""
        by = rank(self.order, read_body(entry.body), entry.at_ms)
        return entry.offset < self.state.ranks[entry.origin].get(by, NOTHING)

    def _have(self, entry: Delivery) -> None:
        """Record that the application has this notification, or has passed it, whatever it has of earlier ones."""
        self.state.selective.add(entry.origin, [entry.offset])
        self._unsent_coordinates.setdefault(entry.origin, []).append(entry.offset)

    # ------------------------------------------------------------ returning and acknowledging

    @property
    def waiting(self) -> bool:
        """Whether deliveries wait for the application, or for its acknowledgement."""
        return bool(self._inbox)

    def next_items(self, max_items: int | None) -> list[DeliveredItem]:
        """Return the next items for the application; empty: none waits. They count as acknowledged only by
        :meth:`acknowledge`.

        They are in the order in which they came, or in the order by attributes that the receiver asked for.

        Args:
            max_items: the most to return; None: no bound.
        """
        if self._goes_by_attributes:
            return self._next_by_rank(max_items)
        items: list[DeliveredItem] = []
        for batch in self._inbox:
            room = None if max_items is None else max_items - len(items)
            if room == 0:
                break
            chosen = batch.entries[batch.delivered :][:room]
            if chosen:
                self._unacknowledged.append(batch)
                batch.delivered += len(chosen)
                items += (_item(batch, index) for index in chosen)
        return items

    def _next_by_rank(self, max_items: int | None) -> list[DeliveredItem]:
        items: list[DeliveredItem] = []
        while self._ranked and (max_items is None or len(items) < max_items):
            by, _, batch, index = heappop(self._ranked)
            batch.ranks[index] = by
            batch.entries.remove(index)
            batch.entries.insert(batch.delivered, index)
            batch.delivered += 1
            self._unacknowledged.append(batch)
            items.append(_item(batch, index))
        return items

    def nack(self) -> None:
        """Put the items back that were returned since the last acknowledgement: they are returned again."""
        for batch in self._unacknowledged:
            if self._goes_by_attributes:
                self._line_up(batch, batch.entries[batch.acknowledged : batch.delivered])
            batch.delivered = batch.acknowledged
        self._unacknowledged.clear()

    def acknowledge(self) -> list[Acknowledge]:
        """Record that the application has every item returned so far; return the messages about them, to be sent to the
        proxy.

        The messages acknowledge the deliveries of which the application has all. Where notifications are ordered by
        attributes, they now and then also have the coordinates that it has of other deliveries.
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
        """Advance the frontier of each origin to just below the first notification that arrived and is not
        acknowledged.
        """
        state = self.state
        for origin, arrived in self._overtaken.items():
            before = upto = state.frontier.get(origin, NOTHING)
            while arrived and self._has(origin, *arrived[0]):
                upto = max(upto, arrived.popleft()[0])
            if arrived and state.selective.any_of(origin):
                upto = max(upto, arrived[0][0] - 1)
            if upto > before:
                state.frontier[origin] = self._unsent_frontier[origin] = upto

    def _forget_ranks(self) -> None:
        """Forget the ranks of coordinates that the frontier has passed."""
        for origin, highest in list(self.state.ranks.items()):
            upto = self.state.frontier.get(origin, NOTHING)
            left = {by: offset for by, offset in highest.items() if offset > upto}
            if left:
                self.state.ranks[origin] = left
            else:
                del self.state.ranks[origin]

    def _has(self, origin: Origin, offset: int, identity: NotificationId) -> bool:
        """Tell whether the application has this notification, or another copy of a publish that was retried."""
        state = self.state
        if offset <= state.frontier.get(origin, NOTHING) or state.selective.has(origin, offset):
            return True
        return identity in state.recent

    def _unsaid_count(self) -> int:
        return sum(map(len, self._unsent_coordinates.values()))

    def _take_over(self, batch: _Batch) -> None:
        """Record that the application has every entry of this delivery that was returned."""
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
        """Return messages with the coordinates, the frontier and the attestations that were not sent yet."""
        coordinates, self._unsent_coordinates = Selective(self._unsent_coordinates), {}
        frontier, self._unsent_frontier = self._unsent_frontier, {}
        coordinates.reached(self.state.frontier)
        self.attest()
        messages = self.attest_now()
        return (
            [*messages, Acknowledge(0, frontier=frontier, selective=coordinates.rows())]
            if coordinates or frontier
            else messages
        )

    # ------------------------------------------------------------ attesting

    def attest(self) -> None:
        """Make attestations of everything acknowledged, also in deliveries of which the application has a part. They go
        with the next message of :meth:`acknowledge` or :meth:`attest_now`.
        """
        for batch in self._inbox:
            if batch.attested < batch.acknowledged:
                self._attest(batch)

    def _attest(self, batch: _Batch) -> None:
        """Attest the acknowledged entries, by origin: there is no order between origins."""
        by_origin: dict[Origin, tuple[list[int], list[int]]] = {}
        for index in batch.entries[batch.attested : batch.acknowledged]:
            entry = batch.deliver.entries[index]
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
        """Return messages with the attestations that were not sent yet, and nothing else; they count as sent. Empty:
        there are none.
        """
        attestations, self._unsent_attestations = self._unsent_attestations, []
        return _saying(attestations)

    def partial_acks(self) -> list[Acknowledge]:
        """Return messages with what the application has above all deliveries that it has as a whole: the frontier in
        the middle of a delivery, or coordinates; with them go the attestations that were not sent yet.

        Call it after :meth:`acknowledge` and :meth:`attest`; what is returned counts as sent. Empty: the application
        has no part of the first delivery that waits, and all attestations are sent.
        """
        if self._goes_by_attributes:
            return self._coordinate_acks()
        if not self._inbox or not self._inbox[0].acknowledged:
            return self.attest_now()
        batch = self._inbox[0]
        if not batch.deliver.through:
            return self.attest_now()
        acknowledged = (batch.deliver.entries[index] for index in batch.entries[: batch.acknowledged])
        return [*self.attest_now(), Acknowledge(0, frontier={entry.origin: entry.offset for entry in acknowledged})]

    def attest_again(self) -> list[Acknowledge]:
        """Return messages with all attestations that no journal is known to have, for a new attachment; they count as
        sent. Empty: there are none.
        """
        self._unsent_attestations.clear()
        return _saying(list(self.state.unconfirmed))

    def confirmed(self, number: int, incarnation: Incarnation) -> None:
        """Forget the attestations up to the one of this number and incarnation, inclusive: a journal has them. Nothing
        happens if it was forgotten before.
        """
        unconfirmed = self.state.unconfirmed
        if any((known.number, known.incarnation) == (number, incarnation) for known in unconfirmed):
            while (known := unconfirmed.popleft()).number != number or known.incarnation != incarnation:
                pass


def _unacknowledged_part(batch: _Batch) -> _Batch:
    """Return a batch of the entries that were returned and not acknowledged; it belongs to no connection (`through`
    is 0).
    """
    held, deliver = batch.entries[batch.acknowledged : batch.delivered], batch.deliver
    entries, matched = [deliver.entries[index] for index in held], [deliver.matched[index] for index in held]
    kept = replace(deliver, through=0, entries=entries, matched=matched)
    ranks = {position: batch.ranks[index] for position, index in enumerate(held) if index in batch.ranks}
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
    """Return messages with these attestations and nothing else, in frames of bounded size: after an outage they are
    many.
    """
    frames = batches(attestations, _bytes_of, max_items=ATTESTATIONS, max_bytes=ATTESTATIONS_BYTES)
    return [Acknowledge(0, list(frame)) for frame in frames]


def _bytes_of(attestation: Attestation) -> int:
    """Return an upper bound of its bytes in a frame: each offset and each digest has a mark of its type."""
    return 200 + 14 * len(attestation.offsets)


def _id_of(entry: Delivery) -> NotificationId:
    return NotificationId(entry.producer, entry.incarnation, entry.sequence)
