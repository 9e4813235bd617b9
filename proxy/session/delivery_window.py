"""The deliveries that are under way to one receiver since it attached; what is not acknowledged is sent again.

`sent` runs ahead of what the receiver has acknowledged: between them lie the flights, one a delivery, in order, and
what is in them is never more than the client's window. An acknowledgement ends every flight up to the one it names. If
it is lost with its connection, the flights are forgotten, and all above the acknowledged number is sent again; what of
it the client had taken in, it drops.

Not everything goes out. To pass over an entry - the client has it, or nobody holds it any more - is as good as an
acknowledgement of it, as soon as all before it is acknowledged: until then it stands in the last flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from waypost.frontier import join
from waypost.identity import NOTHING, Origin
from waypost.limits import (
    DELIVERY_BATCH,
    DELIVERY_BATCH_BYTES,
    MAX_OUT_OF_ORDER,
    RECEIVER_WINDOW,
    RECEIVER_WINDOW_BYTES,
)


@dataclass(slots=True)
class Flight:
    """A delivery that is under way to a receiver: what its acknowledgement will mean.

    Args:
        coordinates: by origin, the highest offset of its entries.
    """

    through: int
    """The number by which the client acknowledges it."""
    number: int
    """The number up to which the receiver has all entries then."""
    coordinates: dict[Origin, int]
    count: int
    """Notifications in it."""
    size: int
    """Bytes of them."""


@dataclass(slots=True, kw_only=True)
class DeliveryWindow:
    """What is under way to a receiver, within bounds of its client and of ours."""

    size: int = RECEIVER_WINDOW
    """The most notifications without an acknowledgement, by the client."""
    sent: int = 0
    """The number of the entry up to which all was sent, or passed over."""
    flights: list[Flight] = field(default_factory=list)
    under_way: int = 0
    """Notifications that were delivered and are not acknowledged."""
    under_way_bytes: int = 0
    is_waiting: bool = False
    """Whether the store, or the journal, is waited for before it gets more."""
    recorded: frozenset[int] = frozenset()
    """Entries that it is not to have, because nobody holds them any more; the journal says so."""

    def restart(self, acknowledged: int) -> None:
        """Forget all flights, as the receiver attaches or detaches: all entries above `acknowledged` are sent again.
        Recorded removals (:meth:`removals_recorded`) are forgotten too, and store or journal are not waited for any
        more.

        Args:
            acknowledged: the number of the entry up to which the receiver has acknowledged all.
        """
        self.sent, self.is_waiting = acknowledged, False
        self.under_way = self.under_way_bytes = 0
        self.flights.clear()
        self.recorded = frozenset()

    def begin_wait(self) -> None:
        """Note that the store, or the journal, is waited for: nothing is sent before :meth:`end_wait`."""
        self.is_waiting = True

    def end_wait(self) -> None:
        """Note that the store, or the journal, has answered: deliveries may go on."""
        self.is_waiting = False

    def removals_recorded(self, numbers: Iterable[int]) -> None:
        """Let the window pass over these entries from now on: no subscription holds them, and the journal says so.

        Args:
            numbers: of entries of the session.
        """
        self.recorded = self.recorded.union(numbers)

    def room(self, out_of_order: int = 0) -> int:
        """Return how many notifications the next delivery may have; 0: none, until the client acknowledges more.

        A client with MAX_OUT_OF_ORDER notifications out of order is sent one at a time.

        Args:
            out_of_order: the number of notifications that the client has above its frontier.
        """
        if out_of_order >= MAX_OUT_OF_ORDER:
            return 0 if self.flights else 1
        if self.under_way_bytes + DELIVERY_BATCH_BYTES > RECEIVER_WINDOW_BYTES:
            return 0
        return min(DELIVERY_BATCH, self.free)

    @property
    def free(self) -> int:
        """The number of notifications that the client's own bound allows now; :meth:`room` looks at all bounds."""
        return self.size - self.under_way

    def passed(self, sent: int) -> None:
        """Note that all entries up to the number `sent` were sent, or are not to be sent."""
        self.sent = sent
        if self.recorded:
            self.recorded = frozenset(number for number in self.recorded if number > sent)

    def takes_off(self, coordinates: dict[Origin, int], count: int, size: int) -> None:
        """Add the flight of a delivery that ends at :attr:`sent`; call :meth:`passed` first.

        Args:
            coordinates: origin -> the last offset that the delivery reaches.
            count: the number of its notifications.
            size: their bytes.
        """
        self.flights.append(Flight(self.sent, self.sent, coordinates, count, size))
        self.under_way += count
        self.under_way_bytes += size

    def skips(self, coordinates: Mapping[Origin, int]) -> bool:
        """Note that there was nothing to send up to :attr:`sent`; call :meth:`passed` first.

        Args:
            coordinates: origin -> the last offset that was passed over.

        Returns:
            True: the last flight stands for the skipped entries until it is acknowledged. False: there is no
            flight, and the receiver counts as having all entries up to :attr:`sent`.
        """
        if not self.flights:
            return False
        self.flights[-1].number = self.sent
        join(self.flights[-1].coordinates, coordinates)
        return True

    def land(self, through: int) -> Iterator[Flight]:
        """End the flights up to the number `through`, each as it is yielded: consume all that comes.

        Args:
            through: the number that an acknowledgement names (`DeliverEncoded.through`).
        """
        while self.flights and self.flights[0].through <= through:
            flight = self.flights.pop(0)
            self.under_way -= flight.count
            self.under_way_bytes -= flight.size
            yield flight

    def covers(self, acknowledged: Mapping[Origin, int], frontier: Mapping[Origin, int]) -> bool:
        """Tell whether all up to `frontier` was sent since the client attached, or was acknowledged before.

        Args:
            acknowledged: the frontier that the receiver has acknowledged.
            frontier: the frontier that is asked about.
        """
        sent = dict(acknowledged)
        for flight in self.flights:
            join(sent, flight.coordinates)
        return all(offset <= sent.get(origin, NOTHING) for origin, offset in frontier.items())
