"""The receivers of one session: how far each has come, and what is on its way to it.

Theory
------
A receiver's cursor is kept twice. By number: it has every entry of the session up to `acknowledged`; that decides how
long an entry is stored. By frontier: what that number means in coordinates; that is what holds where the numbers of
this copy mean nothing, in a checkpoint and in a session that was rebuilt from one. Both only ever move forward, and
both travel with the session; all the rest belongs to one attachment, and begins anew with the next.

While a client is attached, `window` has what is under way to it (proxy/session/delivery_window.py). What lies at or
below `known`, the frontier that the client reported, it has, and what is `selective` it has above that, because its
library gives by priority or deadline; what no subscription holds any more (proxy/session/retention.py) it is not to
have, and gets past it only when the journal has that on record (handover rule 21).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from proxy.session.delivery_window import DeliveryWindow
from proxy.session.idle_time import IdleTime
from proxy.session.retention import Retention
from proxy.session.stored_notification import Entry
from proxy.session.subscription import Matched
from waypost.checkpoint import GapRow, ReceiverRow
from waypost.errors import LimitExceeded
from waypost.frontier import Selective, join
from waypost.identity import NOTHING, Epoch, Incarnation, Origin, ReceiverId
from waypost.keys import Key
from waypost.limits import (
    DELIVERY_BATCH_BYTES,
    KNOWN_KEPT,
    MAX_ORIGINS,
    MAX_ORIGINS_BYTES,
    MAX_OUT_OF_ORDER,
)
from waypost.messages import Attach, DeliverEncoded
from waypost.queue import Order, goes_by_attributes
from waypost.reliability import PERSISTENT, Reliability


@dataclass(slots=True, kw_only=True)
class Receiver:
    """A registration of a client at the session: attached, or kept while the client is away."""

    id: ReceiverId
    acknowledged: int
    """The number of the entry up to which it has acknowledged all."""
    frontier: dict[Origin, int] = field(default_factory=dict)
    """What it acknowledged."""
    known: dict[Origin, int] = field(default_factory=dict)
    """The frontier that it reported: nothing at or below it is sent."""
    selective: Selective = field(default_factory=Selective)
    """What it has above its frontier: nothing of that is sent either."""
    order: Order = "any"
    """In which its library gives what it is sent."""
    connection: int | None = None
    incarnation: Incarnation = Incarnation("")
    window: DeliveryWindow = field(default_factory=DeliveryWindow)
    """The deliveries that are under way to it."""
    sent_gaps: list[GapRow] = field(default_factory=list)
    """Gaps that it was told of since it attached, in order, and that it did not say yet to have heard of."""
    confirmed_gaps: int = 0
    """The number of gaps that it has confirmed."""
    keys: tuple[Key, ...] = ()
    """Those that go with every subscription that it makes; they stay with its registration."""
    idle_time: IdleTime = field(default_factory=IdleTime)
    """The time for which it was not attached; its registration may end by it."""
    is_new: bool = False
    """Whether it was registered and has not been told so yet."""
    reliability: Reliability = PERSISTENT
    """What was in force when it attached last."""
    reported: Selective = field(default_factory=Selective)
    """The selective coordinates that its client has reported at the last attach, known to exist or not."""
    is_durable: bool = True
    """Store and changelog have its registration as it is: until then it is not let in (durability_law.py)."""

    # ------------------------------------------------------------ attachments

    def connect(
        self,
        connection: int,
        message: Attach,
        confirmed: Mapping[Origin, int],
        coordinates: Mapping[Origin, list[int]],
    ) -> None:
        """Attach the client on this connection, with frontier and settings of its message; its window is empty, and its
        idle time 0.

        What the message reports and this proxy knows to exist is kept: the coordinates above the frontier always, the
        frontier itself only if the library gives by attributes; then it counts as acknowledged. The numbers of entries
        do not follow (:meth:`Session.raise_frontier`). Keys and reliability stay as they are.

        Args:
            confirmed: the part of the message's frontier that this proxy knows to exist.
            coordinates: those of the message's selective coordinates that it knows to exist.
        """
        self.connection = connection
        self.incarnation = Incarnation(message.incarnation)
        self.known = join(dict(message.frontier), self.frontier)
        self.raise_selectively(coordinates)
        self.reported = Selective(message.selective)
        self.order = message.order
        if goes_by_attributes(self.order):
            # As its selective coordinates, which it says no more where the frontier has come past them.
            self.raise_frontier(confirmed)
        self.window.size = min(message.window, MAX_OUT_OF_ORDER) if goes_by_attributes(self.order) else message.window
        self.idle_time.reset()
        self._reset()

    def reported_beyond(self, reached: Mapping[Origin, int]) -> set[Origin]:
        """Return the origins of which the receiver has reported more than is known to exist.

        Args:
            reached: the frontier up to which the proxy has read the site log, or the session has taken.
        """
        return {origin for origin, upto in self.known.items() if upto > reached.get(origin, NOTHING)}

    def disconnect(self) -> None:
        """Detach the client: deliveries without an acknowledgement are sent again at its next attach.

        A reported frontier of more than KNOWN_KEPT origins is replaced by the acknowledged one: the client reports it
        again.
        """
        self.connection = None
        if len(self.known) > KNOWN_KEPT:
            self.known = dict(self.frontier)
        self._reset()

    def _reset(self) -> None:
        self.window.restart(self.acknowledged)
        self.sent_gaps.clear()
        self.confirmed_gaps = 0

    def configure(self, reliability: Reliability, expiry_s: int | None) -> None:
        """Set the receiver's reliability, and its expiry in seconds (None: never), in force from this attach on."""
        self.reliability, self.idle_time.expiry_s = reliability, expiry_s

    def become_persistent(self, reliability: Reliability) -> None:
        """Set a reliability of persistent events; the registration is not durable until :meth:`written` says so."""
        self.reliability, self.is_durable = reliability, False

    def written(self, *, is_durable: bool) -> None:
        """Note whether store and changelog have the receiver's registration; what is durable once stays so."""
        self.is_durable |= is_durable

    def take_new(self) -> bool:
        """Return whether the receiver's client was not told yet of its registration; the next call returns False."""
        is_new, self.is_new = self.is_new, False
        return is_new

    def set_keys(self, keys: tuple[Key, ...]) -> None:
        """Set the keys that go with every subscription that the receiver makes from now on; present ones stay as they
        are.
        """
        self.keys = keys

    # ------------------------------------------------------------ what goes out

    def room(self) -> int:
        """Return how many notifications the receiver's next delivery may have; 0: none now."""
        return self.window.room(len(self.selective) if self.selective else 0)

    def unrecorded(self, entries: Sequence[Entry], retention: Retention) -> list[Entry]:
        """Return those of these entries that no subscription holds any more, and that the receiver must not pass yet.

        It may pass them once the journal has their removal on record (handover rule 21). Left out are entries that its
        window knows to be recorded, and those that its client has.

        Args:
            entries: in order of number.
            retention: of the session.
        """
        if not entries or entries[0][0] >= retention.highest:
            return []
        recorded = self.window.recorded
        return [
            (number, stored, matched)
            for number, stored, matched in entries
            if number not in recorded
            and stored.offset > self.known.get(stored.origin, NOTHING)
            and not self.selective.has(stored.origin, stored.offset)
            and not self.reported.has(stored.origin, stored.offset)
            and not retention.retained_for(number, matched)
        ]

    def next_delivery(
        self, epoch: Epoch, entries: Sequence[Entry], retention: Retention, upto: int = 0
    ) -> DeliverEncoded | None:
        """Return the next delivery, and note it as a flight. Give it no more entries than :meth:`room` allows, and none
        that :meth:`unrecorded` returns.

        Args:
            epoch: the session's.
            entries: those behind the last one sent, in order; as many are taken as fit into DELIVERY_BATCH_BYTES, and
                one at least.
            retention: of the session.
            upto: there are no other entries up to this number.

        Returns:
            None: the receiver is to have none of the entries, and its window has passed them. If nothing is under way,
                its acknowledged number and its frontier have passed them too.
        """
        raws: list[msgspec.Raw] = []
        matched_kinds: list[int] = []
        size, sent, known, retained_for = 0, self.window.sent, self.known, retention.retained_for
        coordinates: dict[Origin, int] = {}
        kinds: dict[Matched | tuple[Matched, Matched], int] = {}
        matches: list[Matched] = []
        met: dict[int, Matched] = {}
        above = [selective for selective in (self.selective, self.reported) if selective]
        for number, stored, matched in entries:
            if stored.offset > known.get(stored.origin, NOTHING):
                has = above and any(selective.has(stored.origin, stored.offset) for selective in above)
                holding = () if has else retained_for(number, matched)
                if holding:
                    if raws and size + stored.size > DELIVERY_BATCH_BYTES:
                        break
                    size += stored.size
                    raws.append(stored.raw)
                    secure = stored.keys and retention.secure(holding, stored.origin, stored.offset, stored.keys)
                    kind = kinds.setdefault((holding, secure) if secure else holding, len(matches))
                    if kind == len(matches):
                        matches.append(holding)
                        size += sum(map(len, holding))
                        if secure:
                            met[kind] = secure
                    matched_kinds.append(kind)
                coordinates[stored.origin] = stored.offset
            sent = number
        else:
            sent = max(sent, upto)
        self.window.passed(sent)
        if not raws:
            if not self.window.skips(coordinates):
                # It has reported all up to there, or nobody holds it: that is as good as an acknowledgement.
                self.acknowledged = sent
                self.raise_frontier(coordinates)
            return None
        self.window.takes_off(coordinates, len(raws), size)
        return DeliverEncoded(
            epoch=epoch, through=sent, matches=matches, matched=matched_kinds, entries=raws, secure=met
        )

    # ------------------------------------------------------------ what it has

    def raise_frontier(self, frontier: Mapping[Origin, int]) -> None:
        """Raise the receiver's frontier, of each origin where the given one is higher: nothing at or below it is owed
        to the receiver any more.

        The numbers of entries do not follow; :meth:`Session.raise_frontier` moves both.
        """
        join(self.frontier, frontier)
        if self.selective:
            self.selective.reached(self.frontier)

    def raise_selectively(self, rows: Mapping[Origin, list[int]]) -> None:
        """Add coordinates above the receiver's frontier that its application was given: origin -> offsets."""
        for origin, offsets in rows.items():
            self.selective.add(origin, offsets)
        self.selective.reached(self.frontier)

    def was_sent(self, frontier: Mapping[Origin, int]) -> bool:
        """Tell whether all up to a frontier was sent to the receiver since it attached, or was acknowledged before.
        False where the frontier lies above the last entry that was sent, even if nothing lies between.
        """
        return self.window.covers(self.frontier, frontier)

    def set_acknowledged(self, number: int) -> None:
        """Set the number of the entry up to which the receiver has acknowledged all; the window passes it. It may lie
        amid a delivery under way. The frontier does not follow.

        Args:
            number: of an entry, no lower than :attr:`acknowledged`.
        """
        self.acknowledged = number
        self.window.passed(max(self.window.sent, number))

    def acknowledge(self, through: int) -> int:
        """End the flights up to the number `through`, raise acknowledged number and frontier, and return the flights'
        count of notifications. :meth:`Session.remove_acknowledged` drops the entries.

        Args:
            through: the number that the client acknowledges (`DeliverEncoded.through`).
        """
        count = 0
        for flight in self.window.land(through):
            self.acknowledged = max(self.acknowledged, flight.number)
            self.raise_frontier(flight.coordinates)
            count += flight.count
        return count

    def pass_over(self, lowest: int, gone: Iterable[tuple[int, Origin, int]]) -> None:
        """Move the receiver past the entries below `lowest`, which no subscription holds; an attached receiver stays.

        Args:
            lowest: the lowest number that is still held.
            gone: (number, origin, offset) of removed entries, in order; the frontier follows those below `lowest`.
        """
        if self.connection is not None or self.acknowledged >= lowest - 1:
            return
        for number, origin, offset in gone:
            if self.acknowledged < number < lowest:
                self.raise_frontier({origin: offset})
        self.acknowledged = self.window.sent = lowest - 1

    def renumber(self) -> None:
        """Reset the receiver's numbers to 0 in a rebuilt session; only entries above its frontier are sent to it."""
        self.acknowledged = self.window.sent = 0
        self.known = dict(self.frontier)

    @property
    def is_best_effort(self) -> bool:
        """Whether the receiver's events are best effort: entries that wait for it are lost with their process."""
        return self.reliability.events != "persistent"

    def expire_unpersisted(
        self, upto: Mapping[Origin, int], start: Mapping[Origin, int]
    ) -> dict[Origin, tuple[int, int]]:
        """Move the receiver's frontier past a backlog that was lost with its process.

        If its connection is best effort too, its registration counts as idle for its whole expiry.

        Args:
            upto: the frontier above which the session goes on.
            start: origin -> the offset above which the receiver was first promised anything.

        Returns:
            Origin -> (first, last) offset of the gap: notifications that the receiver may not have had.
        """
        above = {origin: self.frontier.get(origin, start.get(origin, offset)) for origin, offset in upto.items()}
        gaps = {origin: (above[origin] + 1, offset) for origin, offset in upto.items() if above[origin] < offset}
        self.raise_frontier(upto)
        if self.reliability.connection != "persistent":
            self.idle_time.expire()
        return gaps

    # ------------------------------------------------------------ what travels

    def row(self) -> ReceiverRow:
        """Return the row that store and changelog keep of the receiver; a copy."""
        return ReceiverRow(
            acknowledged=self.acknowledged,
            frontier=dict(self.frontier),
            keys=self.keys,
            expiry_s=self.idle_time.expiry_s,
            idle_ms=self.idle_time.ms,
            is_new=self.is_new,
            reliability=self.reliability,
            order=self.order,
            selective=self.selective.rows(),
        )

    @classmethod
    def of(cls, identity: ReceiverId, row: ReceiverRow) -> Receiver:
        """Return the receiver of a row of store or changelog; no client is attached."""
        made = cls(
            id=identity,
            acknowledged=row.acknowledged,
            frontier=dict(row.frontier),
            window=DeliveryWindow(sent=row.acknowledged),
            keys=row.keys,
        )
        made.idle_time.expiry_s, made.idle_time.ms, made.is_new = row.expiry_s, row.idle_ms, row.is_new
        made.reliability, made.order = row.reliability, row.order
        made.selective = Selective(row.selective)
        return made


def check_frontier(known: Mapping[Origin, int], reported: Mapping[Origin, int]) -> None:
    """Check the size of a frontier that a client reports, together with what is known of it.

    Args:
        known: the receiver's frontier here; empty for a new receiver.
        reported: the client's.

    Raises:
        LimitExceeded: they have more than MAX_ORIGINS origins, or names of more than MAX_ORIGINS_BYTES.
    """
    origins = known.keys() | reported.keys()
    size = sum(len(origin.encode()) for origin in origins)
    if len(origins) > MAX_ORIGINS or size > MAX_ORIGINS_BYTES:
        raise LimitExceeded(
            f"{len(origins)} origins, with names of {size} bytes; {MAX_ORIGINS}, and {MAX_ORIGINS_BYTES}, are the most",
            field="frontier",
        )


def check_overtaking(known: Selective, reported: Mapping[Origin, list[int]]) -> None:
    """Check the number of coordinates above its frontier that a client reports, together with those known already.

    Args:
        known: the receiver's coordinates here; empty for a new receiver.
        reported: origin -> offsets.

    Raises:
        LimitExceeded: there are more than 3 * MAX_OUT_OF_ORDER: no client has so many out of order.
    """
    if (count := sum(map(len, reported.values()))) > 6 * MAX_OUT_OF_ORDER:
        # Not worth a look at which of them are known.
        raise LimitExceeded(
            f"{count} notifications out of order; the most is {3 * MAX_OUT_OF_ORDER}", field="selective"
        )
    fresh = sum(not known.has(origin, offset) for origin, offsets in reported.items() for offset in offsets)
    count, most = len(known) + fresh, 3 * MAX_OUT_OF_ORDER
    if count > most:
        raise LimitExceeded(f"{count} notifications out of order; the most is {most}", field="selective")


class Receivers(dict[ReceiverId, Receiver]):
    """All receivers of a session, by id."""

    def attached(self) -> set[ReceiverId]:
        """Return the ids of the receivers that are attached now."""
        return {receiver.id for receiver in self.values() if receiver.connection is not None}

    def have(self) -> int | None:
        """Return the number up to which every receiver has all entries; None: there are no receivers."""
        return min((receiver.acknowledged for receiver in self.values()), default=None)

    def have_frontier(
        self, seen: Mapping[Origin, int], last: int, start: Mapping[Origin, int], *, all_of_them: bool = False
    ) -> dict[Origin, int]:
        """Return the frontier up to which every receiver has all.

        Args:
            seen: the session's frontier: a receiver that has the entry numbered `last` has all up to it.
            last: the number of the session's newest entry.
            start: origin -> the offset above which notifications were first promised: a receiver without that origin in
                its frontier has all up to it.
            all_of_them: also receivers of best-effort events count, which are left out else. `seen` is returned if none
                count.
        """
        cursors = [
            join(dict(receiver.frontier), seen) if receiver.acknowledged >= last else receiver.frontier
            for receiver in self.values()
            if all_of_them or not receiver.is_best_effort
        ]
        if not cursors:
            return dict(seen)
        everywhere = set.intersection(*({*cursor, *start} for cursor in cursors))
        return {
            origin: min(cursor.get(origin, start.get(origin, NOTHING)) for cursor in cursors) for origin in everywhere
        }
