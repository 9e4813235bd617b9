"""Links as a node runs them: leading the ones that come in, serving the ones that go out.

A link is pulled. At the site where records arrive one proxy leads, elected in the registry; it opens the link at any
proxy of the neighbour with its site's frontier, appends what comes to its own site log under its leader's epoch, and
acknowledges what it appended. If it dies, the next leader opens again from the frontier; what comes twice is passed
over by the fold.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from itertools import islice
from time import monotonic

import structlog

from federation.bell import Bell
from federation.link import LinkSender, Position, PositionIndex
from federation.messages import LinkAppended, LinkOpen, LinkRecord, LinkRecords, LinkWants
from federation.ports import Batch, Lease, ProxyRow, Registry, SiteLog
from federation.site_state import Acceptance, SiteState
from node.peers import Peers
from waypost.batches import batches
from waypost.errors import WaypostError
from waypost.identity import ProxyId, SiteId
from waypost.limits import LINK_BATCH, LINK_BYTES, LINK_WINDOW, LOG_BATCH
from waypost.records import Asked, Forwarded, Record
from waypost.subscription import parse

log = structlog.get_logger("waypost")
QUIET_S = 0.02
"""So long nothing came: time for progress markers."""
BUSY_S = 0.1
"""How often progress markers are sent while there is always something to read."""
HEARTBEAT_S = 1.0
"""How often the sender says that it lives when it has nothing to say."""
SILENCE_S = 3.0
"""So long nothing was heard: the link is opened again."""
ELECT_S = 0.5
REOPEN_S = 0.05


class LinkIn:
    """The direction from `neighbour` to us, led by this proxy whenever it is elected.

    Args:
        state: gives our site's state as folded so far.
        rows: gives the live proxies of a site.
        moved: rings when the log was folded further.
    """

    def __init__(
        self,
        neighbour: SiteId,
        proxy: ProxyId,
        state: Callable[[], SiteState],
        rows: Callable[[SiteId], list[ProxyRow]],
        log: SiteLog,
        registry: Registry,
        peers: Peers,
        moved: Bell,
    ) -> None:
        self._neighbour = neighbour
        self._proxy = proxy
        self._state = state
        self._rows = rows
        self._log = log
        self._registry = registry
        self._peers = peers
        self._moved = moved
        self._records: asyncio.Queue[LinkRecords] = asyncio.Queue()
        self._turn = 0
        self._serial = 0
        self._said_at = 0.0
        self._opening = 0
        self.epoch = 0
        """Of the opening in force; 0: not leading."""

    def heard(self, message: LinkRecords) -> None:
        if (message.epoch, message.opening) == (self.epoch, self._opening):
            self._records.put_nowait(message)

    async def run(self, lease: Lease) -> None:
        """Lead whenever elected, for as long as the lease lasts."""
        link = f"{self._neighbour}->{self._state().site}"
        while True:
            try:
                epoch = await self._registry.elect(link, self._proxy, lease)
                if epoch is not None:
                    await self._lead(epoch)
            except WaypostError:
                pass
            finally:
                self.epoch = 0
            await asyncio.sleep(ELECT_S)

    async def _lead(self, epoch: int) -> None:
        """Open the link, again and again, until something goes wrong with the log or the registry."""
        while True:
            rows = self._rows(self._neighbour)
            if not rows:
                await asyncio.sleep(ELECT_S)
                continue
            peer = rows[self._turn % len(rows)]
            self._turn += 1
            await self._level()
            self.epoch = epoch
            await self._pull(peer, epoch)
            await asyncio.sleep(REOPEN_S)

    async def _level(self) -> None:
        """Wait until all that the log has is folded: our frontier is then all that we have."""
        end = await self._log.end()
        while self._state().position < end:
            await self._moved.wait(self._moved.rung, 0.05)

    async def _pull(self, peer: ProxyRow, epoch: int) -> None:
        """Append what comes, until the peer goes or falls silent, or a message is missing."""
        state = self._state()
        wants = dict(state.wants[self._neighbour])
        self._serial += 1
        self._opening, self._records = self._serial, asyncio.Queue()
        opening = LinkOpen(state.site, epoch, dict(state.frontier), self._serial, wants)
        self._peers.send(peer.proxy, opening)
        expected, heard_at = 1, monotonic()
        while peer in self._rows(self._neighbour) and monotonic() - heard_at < SILENCE_S:
            wants = self._say_wants(peer, epoch, wants)
            message = await self._next(self._moved.rung)
            if message is None:
                continue
            messages = [message, *self._queued()]
            if [each.number for each in messages] != list(range(expected, expected + len(messages))):
                return
            expected, heard_at = expected + len(messages), monotonic()
            await self._append(peer, epoch, messages)

    def _say_wants(self, peer: ProxyRow, epoch: int, said: dict[str, int]) -> dict[str, int]:
        """Say what is wanted when that changed, and again while something wanted has had no answer."""
        state = self._state()
        now = state.wants[self._neighbour]
        if now != said:
            self._serial += 1
        elif all(expression in state.effective for expression in now) or self._said_at + HEARTBEAT_S > monotonic():
            return said
        self._said_at = monotonic()
        self._peers.send(peer.proxy, LinkWants(state.site, epoch, self._serial, dict(now)))
        return dict(now)

    async def _next(self, seen: int) -> LinkRecords | None:
        """Return the next records; None when the log moved meanwhile, or nothing came for a while."""
        if not self._records.empty():
            return self._records.get_nowait()
        get = asyncio.ensure_future(self._records.get())
        bell = asyncio.ensure_future(self._moved.wait(seen, HEARTBEAT_S))
        await asyncio.wait({get, bell}, return_when=asyncio.FIRST_COMPLETED)
        bell.cancel()
        if get.done():
            return get.result()
        get.cancel()
        return None

    def _queued(self) -> list[LinkRecords]:
        """Return what came meanwhile: one append for all of it, or the link is as slow as the log's round trip."""
        return [self._records.get_nowait() for _ in range(self._records.qsize())]

    async def _append(self, peer: ProxyRow, epoch: int, messages: list[LinkRecords]) -> None:
        came = [record for message in messages for record in message.records]
        if not came:
            return
        await self._log.append([record for record in came if record.link == self._neighbour])
        appended = LinkAppended(self._state().site, epoch, messages[0].opening, len(came))
        self._peers.send(peer.proxy, appended)


class LinkOut:
    """The direction from us to a neighbour, as opened by its leader."""

    def __init__(
        self,
        peer: ProxyId,
        opening: LinkOpen,
        state: SiteState,
        start: Position,
        position: Callable[[], int],
        log: SiteLog,
        peers: Peers,
        moved: Bell,
    ) -> None:
        self.peer = peer
        self.site = opening.site
        self.epoch = opening.epoch
        self.opening = opening.serial
        self._number = 0
        self._spoke_at = 0.0
        self._sender = LinkSender(state, opening.site, opening.epoch, opening.frontier, opening.installations, start)
        self._position = position
        self._live: deque[tuple[int, Record]] = deque()
        self._log = log
        self._peers = peers
        self._moved = moved
        self._under_way = 0
        self._room = Bell()

    def appended(self, count: int) -> None:
        self._under_way -= count
        self._room.ring()

    def feed(self, batch: Batch) -> None:
        """Take what the node has just folded. Past the bound it goes, and is read from the log again."""
        self._live.extend(batch)
        if len(self._live) > LINK_WINDOW:
            self._live.clear()

    async def _next(self, offset: int) -> Batch:
        """Return the next records from `offset` on: as they are folded, or from the log where we are behind."""
        while self._live and self._live[0][0] < offset:
            self._live.popleft()
        if self._live and self._live[0][0] == offset:
            batch = list(islice(self._live, LOG_BATCH))
            for _ in batch:
                self._live.popleft()
            return batch
        if not self._live and offset >= self._position():
            return []
        return await self._log.read(offset, LOG_BATCH)

    async def run(self) -> None:
        """Send until cancelled."""
        self._send(self._sender.hello())
        offset = self._sender.start
        while True:
            seen = self._moved.rung
            batch = await self._next(offset)
            if batch:
                offset = batch[-1][0] + 1
                await self._send_batch(batch)
                self._speak_silence(every_s=BUSY_S)
            else:
                await self._wait(seen)

    async def _send_batch(self, batch: Batch) -> None:
        out: list[LinkRecord] = []
        for offset, record in batch:
            out += self._sender.step(offset, record)
        for records in batches(out, _size, most=LINK_BATCH, most_bytes=LINK_BYTES):
            self._send(list(records))
            while self._under_way >= LINK_WINDOW:
                await self._room.wait(self._room.rung, HEARTBEAT_S)

    async def _wait(self, seen: int) -> None:
        """Nothing to read: after a quiet moment say how far each origin is complete; then wait for more."""
        await self._moved.wait(seen, QUIET_S)
        if self._moved.rung != seen:
            return
        self._speak_silence(every_s=0)
        await self._moved.wait(seen, HEARTBEAT_S)
        if self._moved.rung == seen:
            self._send([])

    def _speak_silence(self, *, every_s: float) -> None:
        if monotonic() < self._spoke_at + every_s:
            return
        self._spoke_at = monotonic()
        said = self._sender.pause()
        if said:
            self._send(said)

    def _send(self, records: list[LinkRecord]) -> None:
        self._under_way += len(records)
        self._number += 1
        message = LinkRecords(self._sender.site, self.epoch, self.opening, self._number, records)
        self._peers.send(self.peer, message)


def _size(record: LinkRecord) -> int:
    return len(record.body) if isinstance(record, Forwarded) else 0


class Links:
    """All links of a node, both ways."""

    def __init__(
        self,
        proxy: ProxyId,
        neighbours: tuple[SiteId, ...],
        state: Callable[[], SiteState],
        rows: Callable[[SiteId], list[ProxyRow]],
        log: SiteLog,
        registry: Registry,
        peers: Peers,
    ) -> None:
        self._state = state
        self._log = log
        self._peers = peers
        self.moved = Bell()
        self.index = PositionIndex()
        self._in = {
            neighbour: LinkIn(neighbour, proxy, state, rows, log, registry, peers, self.moved)
            for neighbour in neighbours
        }
        self._out: dict[SiteId, tuple[LinkOut, asyncio.Task[None]]] = {}
        self._leading: list[asyncio.Task[None]] = []

    @property
    def leading(self) -> list[SiteId]:
        return [neighbour for neighbour, link in self._in.items() if link.epoch]

    # ------------------------------------------------------------ life

    def lease_begun(self, lease: Lease) -> None:
        """Take part in elections under this lease."""
        self.lease_ended()
        self._leading = [
            asyncio.create_task(link.run(lease), name=f"link {neighbour}") for neighbour, link in self._in.items()
        ]

    def lease_ended(self) -> None:
        for task in self._leading:
            task.cancel()
        self._leading = []

    async def close(self) -> None:
        tasks = [*self._leading, *(task for _, task in self._out.values())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def folded(self, batch: Batch) -> None:
        """The log was folded further, by these records."""
        for link, _ in self._out.values():
            link.feed(batch)
        state = self._state()
        self.index.note(state.position, state.acceptance)
        self.moved.ring()

    # ------------------------------------------------------------ messages

    def records(self, message: LinkRecords) -> None:
        link = self._in.get(message.site)
        if link is not None:
            link.heard(message)

    def appended(self, peer: ProxyId, message: LinkAppended) -> None:
        running = self._out.get(message.site)
        if running and running[0].peer == peer and running[0].opening == message.opening:
            running[0].appended(message.count)

    async def wants(self, message: LinkWants | LinkOpen) -> None:
        """Install what a neighbour wants from now on, by writing it to the log. Raises Refused: no expression."""
        asks = self._state().asks.get(message.site)
        if asks and {name: each.installation for name, each in asks.filters.items()} == message.installations:
            return
        for expression in message.installations:
            parse(expression)
        asked = Asked(message.site, message.epoch, message.serial, message.installations)
        with contextlib.suppress(WaypostError):
            await self._log.append([asked])

    async def open(self, peer: ProxyId, message: LinkOpen) -> None:
        """Serve an opening; an earlier one of that neighbour ends, unless its leader is a newer one."""
        running = self._out.get(message.site)
        if message.site not in self._in or (running and running[0].epoch > message.epoch):
            return
        if running:
            running[1].cancel()
        await self.wants(message)
        start = self.index.position_for(message.frontier) or await self._beginning()
        link = LinkOut(
            peer, message, self._state(), start, lambda: self._state().position, self._log, self._peers, self.moved
        )
        task = asyncio.create_task(self._run(link), name=f"link to {message.site}")
        self._out[message.site] = (link, task)

    async def _run(self, link: LinkOut) -> None:
        try:
            await link.run()
        except WaypostError as error:
            log.warning("a link ended; its far side will open it again", site=link.site, error=str(error))
        except Exception:
            log.exception("a link failed; its far side will open it again", site=link.site)
        running = self._out.get(link.site)
        if running and running[0] is link:
            del self._out[link.site]

    async def _beginning(self) -> Position:
        return Position(await self._log.first(), Acceptance(self._state().origin))
