"""The sending end of a link: one opening by the neighbour's leader, served until it is replaced or given up. Pure.

It reads our site log in order, from the end of the far frontier: records as they are folded, or from the log where it
is behind. What the filter (federation/links/forwarding_filter.py) forwards is sent in numbered messages, as far ahead
of the acknowledgements as the window allows; markers are queued with the records that they are about. When there is
nothing to read it sends progress markers, and heartbeats.

When a message is lost
----------------------
A message            the far side misses its number, and opens again
An acknowledgement   the window shrinks by it. A shut window is silent, so that the far side opens again
The far leader       nothing is acknowledged any more: the opening is given up
Our log              the opening ends; the far side receives nothing, and opens again
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from federation.links.bounds import LinkBounds
from federation.links.effects import ReadLog, SendNeighbour
from federation.links.forwarding_filter import ForwardingFilter, Position
from federation.links.output import LinkOutput, SendingEnded
from federation.messages import LinkOpen, LinkRecord, LinkRecords
from federation.ports import Batch
from federation.site.acceptance import LogMark
from federation.site.state import SiteState
from waypost.batches import sized_batches
from waypost.clock import NEVER
from waypost.errors import HistoryTruncated, LogDamaged, LogUnavailable, WaypostError
from waypost.identity import Origin, ProxyId, SiteId
from waypost.keys import bytes_of
from waypost.limits import LINK_LIVE_BYTES, LINK_SLICE_NS, MAX_NOTIFICATION_BYTES
from waypost.records import Effective, Forwarded, Record, body_size

QUIET_MS = 20
"""The silence after which progress markers are sent."""
BUSY_MS = 100
"""The interval of progress markers while there is always something to read."""
HEARTBEAT_MS = 1_000
"""The interval of heartbeats while there is nothing to send."""
UNACKNOWLEDGED_TIMEOUT_MS = 30_000
"""Without an acknowledgement for so long, the far leader is gone, or has opened elsewhere."""


class SenderView(NamedTuple):
    """The state of a sending end, for operators.

    Args:
        neighbour: the site that pulls.
        peer: its proxy that does.
        behind: records of our log that were not read for it yet.
        under_way: records sent and not acknowledged.
        lags: by origin, the offsets that the neighbour was not told of.
    """

    neighbour: SiteId
    peer: ProxyId
    behind: int
    under_way: int
    lags: dict[Origin, int]


class LinkSender:
    """The direction from this site to a neighbour, as opened by `peer`, its leader.

    Args:
        peer: the proxy that opened it.
        opening: its message.
        state: our site's state, as this proxy folds it.
        output: takes the effects, and SendingEnded when our log fails or the far side is given up.
        bounds: of the queues and batches.
    """

    def __init__(
        self,
        peer: ProxyId,
        opening: LinkOpen,
        state: SiteState,
        output: LinkOutput,
        bounds: LinkBounds,
    ) -> None:
        self.peer = peer
        self.opening = opening
        self._applied_serial = self._refused_serial = 0
        """The serials of the peer's last requests of filters that are in force, and that are not."""
        self._state = state
        self._output = output
        self._bounds = bounds
        self._sender: ForwardingFilter | None = None
        self.is_closed = False
        self._offset = 0
        self._live: deque[tuple[int, Record]] = deque()
        self._live_bytes = 0
        self._reading = False
        self._rest: deque[tuple[int, Record]] = deque()
        """Records that were read, and not processed yet."""
        self._pausing = False
        """Whether the neighbour's filters took long: others have their turn before the next tick, which is due at
        once.
        """
        self._ready: deque[tuple[Sequence[LinkRecord], int]] = deque()
        """Records that wait for room in the window, with their bytes: of one batch of the log, and markers."""
        self._number = 0
        self._sent: deque[tuple[int, int]] = deque()
        """Records and bytes of each message that is not acknowledged."""
        self._under_way = 0
        self._under_way_bytes = 0
        self._acknowledged_at = 0
        self._sent_at = 0
        self._spoke_at = 0
        self._quiet_at: int | None = None

    def shown(self) -> SenderView:
        """Return the state of this end, for operators."""
        behind = max(0, self._state.position - self._offset) if self._sender else 0
        lags = self._sender.lags() if self._sender else {}
        return SenderView(self.opening.site, self.peer, behind, self._under_way, lags)

    def queues(self) -> list[tuple[str, int, int]]:
        """Return the queues of this end: name, the number of records in it, and the bound of that number."""
        bounds = self._bounds
        return [
            # There is room before each message: the last one may reach past the window.
            ("link out", self._under_way, bounds.window + bounds.batch - 1),
            # Just folded, and kept for a sender that waits.
            ("link live", len(self._live), bounds.live),
        ]

    # ------------------------------------------------------------ life cycle

    def begin(self, start: Position, now_ms: int) -> None:
        """Send the announcements in force again (handover rule 12), and then the records from `start` on; call it once.

        It has no effect on an end that is closed.

        Args:
            start: a position of the log below which the far site has all.
            now_ms: of the caller's clock.
        """
        if self.is_closed:
            return
        opening = self.opening
        self._sender = ForwardingFilter(self._state, opening.site, opening.epoch, opening.frontier, start)
        self._offset = self._sender.start
        self._queue(self._sender.hello())
        if not self._ready:
            self._send([], 0, now_ms)
        self._quiet_at = now_ms + QUIET_MS
        self._pump(now_ms)

    def answer(self, serial: int, now_ms: int, *, is_applied: bool) -> None:
        """Tell the peer at once what became of its request of filters.

        Args:
            serial: of the request.
            now_ms: of the caller's clock.
            is_applied: whether the request is in force; False: it does not fit the filters in force here, and the peer
                states all of its filters again.
        """
        if is_applied:
            self._applied_serial = max(self._applied_serial, serial)
        else:
            self._refused_serial = max(self._refused_serial, serial)
        self._send([], 0, now_ms)

    def close(self) -> None:
        """End the sending: this end emits nothing on records and acknowledgements any more, and reports no
        :class:`SendingEnded` for them. The caller removes it, because another opening has replaced it, or its tree is
        over, and calls neither :meth:`tick` nor :meth:`answer` again, which would still send.
        """
        self.is_closed = True

    def _end(self, error: WaypostError | None) -> None:
        self.is_closed = True
        self._output.report(SendingEnded(self.opening.site, error))

    # ------------------------------------------------------------ reading

    def feed(self, batch: Batch, now_ms: int) -> None:
        """Take the records that were just folded, and send what is wanted of them.

        Records past the bound of the queue are dropped, and read from the log later.

        Args:
            batch: records with their offsets, behind those of the last call.
            now_ms: of the caller's clock.
        """
        self._live.extend(batch)
        self._live_bytes += sum(body_size(record) for _, record in batch)
        if len(self._live) > self._bounds.live or self._live_bytes > LINK_LIVE_BYTES:
            self._live.clear()
            self._live_bytes = 0
        self._pump(now_ms)

    def _read(self, answer: Batch | WaypostError, now_ms: int) -> None:
        self._reading = False
        if self.is_closed:
            return
        if isinstance(answer, WaypostError):
            self._end(answer)
        elif answer:
            self._compare(answer, now_ms)

    def _compare(self, batch: Batch, now_ms: int) -> None:
        """Send what was read only if the log has the record that was folded last, read after the others.

        Else it is another log, of another origin, and this process has not noticed yet (handover rule 27).
        """
        mark = self._state.acceptance.mark
        known = next((each for each in batch if each[0] == mark.offset), None)
        if not mark.is_comparable or (known is not None and mark.is_confirmed_by(*known)):
            self._take_read(batch, now_ms)
        else:
            self._reading = True
            self._output.emit(ReadLog(mark.offset, 1, partial(self._compared, batch, mark)))

    def _compared(self, batch: Batch, mark: LogMark, answer: Batch | WaypostError, now_ms: int) -> None:
        self._reading = False
        if self.is_closed:
            return
        if isinstance(answer, WaypostError) and not isinstance(answer, HistoryTruncated):
            self._end(answer)
        elif isinstance(answer, WaypostError) or (answer and mark.is_confirmed_by(*answer[0])):
            self._take_read(batch, now_ms)
        else:
            self._end(LogUnavailable(f"the log has another record at {mark.offset} than was read there, or none"))

    def _take_read(self, batch: Batch, now_ms: int) -> None:
        """Send records that were read, and what follows; those that this process has not folded yet are read again
        later. A record among them may end this sending end, such as one that enters another dispatching tree: nothing
        behind it goes over the link as it is now.
        """
        self._rest.extend((offset, record) for offset, record in batch if offset < self._state.position)
        self._pump(now_ms)

    def _pump(self, now_ms: int) -> None:
        """Send while there are records and room for them, and the time slice is not used up."""
        work_ns = 0
        while self._sender is not None and not self.is_closed:
            while self._ready and self._has_room():
                self._send(*self._ready.popleft(), now_ms)
            if self._ready or self._reading or self._pausing:
                return
            if not self._sender.follow(self._bounds.request_filters):
                self._pausing = True
                return
            batch = self._next()
            if not batch:
                return
            self._take(batch, now_ms)
            work_ns += self._work_ns(batch)
            self._pausing = work_ns > LINK_SLICE_NS

    def _next(self) -> Batch:
        """Return the next records as they were folded; none: they were requested from the log."""
        live, offset = self._live, self._offset
        while live and live[0][0] < offset:
            self._live_bytes -= body_size(live.popleft()[1])
        if self._rest:
            return [self._rest.popleft() for _ in range(self._fitting(self._rest))]
        if live and live[0][0] == offset:
            batch = [live.popleft() for _ in range(self._fitting(live))]
            self._live_bytes -= sum(body_size(record) for _, record in batch)
            return batch
        if live or offset < self._state.position:
            self._reading = True
            self._output.emit(ReadLog(offset, self._bounds.read, self._read))
        return []

    def _fitting(self, records: deque[tuple[int, Record]]) -> int:
        """Return how many of these records fit in one time slice: one at least."""
        most, work_ns = min(len(records), self._bounds.read), 0
        if self._sender is None or self._sender.work_ns * most <= LINK_SLICE_NS:
            return most
        for count, record in enumerate(islice(records, most)):
            work_ns += self._work_ns([record])
            if work_ns > LINK_SLICE_NS:
                return max(1, count)
        return most

    def _work_ns(self, batch: Batch) -> int:
        """Return the time of the neighbour's filters for these records, by estimate, in nanoseconds."""
        work_ns = self._sender.work_ns if self._sender else 0
        return work_ns * sum(body_size(record) for _, record in batch) // MAX_NOTIFICATION_BYTES

    def _take(self, batch: Batch, now_ms: int) -> None:
        assert self._sender is not None
        self._offset = batch[-1][0] + 1
        outgoing: list[LinkRecord] = []
        for offset, record in batch:
            if not self._sender.goes_on_behind(offset, record):
                self._end(LogDamaged(f"the record at {offset} cannot be read", offset=offset))
                return
            outgoing += self._sender.step(offset, record)
        self._queue(outgoing)
        self._quiet_at = now_ms + QUIET_MS
        if now_ms >= self._spoke_at + BUSY_MS:
            self._send_progress(now_ms)

    # ------------------------------------------------------------ sending

    def _queue(self, records: Sequence[LinkRecord]) -> None:
        bounds = self._bounds
        self._ready.extend(sized_batches(records, _size, max_items=bounds.batch, most_bytes=bounds.batch_bytes))

    def _send_progress(self, now_ms: int) -> None:
        """Queue progress markers, behind the records that wait, without which they would not be true."""
        assert self._sender is not None
        self._spoke_at = now_ms
        self._queue(self._sender.progress_markers())

    def _has_room(self) -> bool:
        return self._under_way < self._bounds.window and self._under_way_bytes < self._bounds.window_bytes

    def _send(self, records: Sequence[LinkRecord], size: int, now_ms: int) -> None:
        if records:
            if not self._sent:
                self._acknowledged_at = now_ms
            self._sent.append((len(records), size))
            self._under_way += len(records)
            self._under_way_bytes += size
        self._number += 1
        self._sent_at = now_ms
        opening = self.opening
        message = LinkRecords(
            site=self._state.site,
            epoch=opening.epoch,
            opening=opening.serial,
            number=self._number,
            records=list(records),
            applied_serial=self._applied_serial,
            refused_serial=self._refused_serial,
        )
        self._output.emit(SendNeighbour(self.peer, message))

    def appended(self, count: int, now_ms: int) -> None:
        """Record that the far log has `count` more records of those sent, and send on.

        Bytes of the window are released with the last record of their message.
        """
        self._acknowledged_at = now_ms
        while count > 0 and self._sent:
            records, size = self._sent[0]
            landed = min(count, records)
            count -= landed
            self._under_way -= landed
            if landed == records:
                self._sent.popleft()
                self._under_way_bytes -= size
            else:
                self._sent[0] = (records - landed, size)
        self._pump(now_ms)

    # ------------------------------------------------------------ time

    def tick(self, now_ms: int) -> None:
        """Do what is due at `now_ms`: send records, markers or heartbeats, or end what is not acknowledged any more."""
        if self._sender is None:
            return
        self._pausing = False
        if self._sent and now_ms >= self._acknowledged_at + UNACKNOWLEDGED_TIMEOUT_MS:
            self._end(None)
            return
        if self._quiet_at is not None and now_ms >= self._quiet_at:
            self._quiet_at = None
            self._send_progress(now_ms)
        self._pump(now_ms)
        if self._has_room() and now_ms >= self._sent_at + HEARTBEAT_MS:
            self._send([], 0, now_ms)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the caller's clock; 0: at once; NEVER: :meth:`begin` was not
        called.
        """
        if self._sender is None:
            return NEVER
        if self._pausing:
            return 0
        due = NEVER if self._quiet_at is None else self._quiet_at
        if self._has_room():
            due = min(due, self._sent_at + HEARTBEAT_MS)
        if self._sent:
            due = min(due, self._acknowledged_at + UNACKNOWLEDGED_TIMEOUT_MS)
        return due


def _size(record: LinkRecord) -> int:
    if isinstance(record, Forwarded):
        return len(record.body) + bytes_of(record.protection.keys)
    return len(record.expression) if isinstance(record, Effective) else 0
