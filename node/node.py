"""One running node: it receives, steps the engine, performs what comes out, and sets the timer again. Nothing else.

What is decided, the engine decides; what fails here is told to the engine, or tried again with back-off.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import structlog

from federation.link_ends import LinkEnds
from federation.messages import (
    CatchUp,
    CatchUpFailed,
    CaughtUp,
    LinkAppended,
    LinkOpen,
    LinkRecords,
    LinkWants,
)
from federation.ports import Lease, ProxyRow, RegistryEvent
from handover.messages import Give, Offer, TransferMessage
from node.config import NodeConfig
from node.facts import Facts
from node.hashing import Passwords
from node.history import History, Requests
from node.links import Links
from node.parts import Parts, changelog_locator, open_changelog
from node.peers import Peers
from proxy import effects
from proxy.context import Settings
from proxy.engine import Engine
from proxy.relay import RelayDown, RelayEnd, RelayUp
from proxy.tally import MILLISECONDS, Spread
from waypost.clock import Clock, SystemClock, full_jitter_ms
from waypost.errors import (
    Internal,
    LogUnavailable,
    NameTaken,
    Refused,
    RegistryUnavailable,
    StoreFailed,
    Unreachable,
    WaypostError,
)
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId, new_incarnation
from waypost.limits import APPENDS_UNDER_WAY, FACTS_WAITING
from waypost.messages import ClientMessage

log = structlog.get_logger("waypost")
MARK_S = 10.0
LOOK_S = 2.0


class Connection:
    """A client's connection, as the engine's effects reach it. `send` never waits; `unsent` tells how many bytes do."""

    def __init__(
        self,
        send: Callable[[msgspec.Struct | msgspec.Raw], None],
        hang_up: Callable[[str], None],
        unsent: Callable[[], int],
    ) -> None:
        self.send = send
        self.hang_up = hang_up
        self.unsent = unsent


class Node:
    """A proxy with its parts. `parts`, `history` and `links` are there once it has started.

    Args:
        open_parts: opens what the node stands on; the node closes it.
        life: the name of this process's first life.
        url: gives where clients and peers reach this node, once it listens.
    """

    parts: Parts
    history: History
    links: Links

    def __init__(
        self,
        config: NodeConfig,
        open_parts: Callable[[], Awaitable[Parts]],
        life: Incarnation,
        url: Callable[[], str],
        clock: Clock | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.config = config
        self.proxy = ProxyId(config.name)
        self.site = SiteId(config.site)
        self.engine: Engine | None = None
        self.troubles: dict[str, str] = {}
        """What is not there at the moment, by part, in words."""
        self._open_parts = open_parts
        self.outages: Counter[str] = Counter()
        """How often a part that had been there was not there any more, or not yet."""
        self.log_end = 0
        """Where the site log ended when we looked last."""
        self.store_writes = Spread(MILLISECONDS)
        """How long the store took for what was written together, in milliseconds."""
        self.store_failures = 0
        self._started = False
        self._url = url
        self._life = life
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()
        self._connections: dict[int, Connection] = {}
        self._last_connection = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._arming = False
        self._closing = False
        self._appends = 0
        self._room = asyncio.Event()
        self._foreign_changelogs: dict[str, Any] = {}
        self._facts = Facts()
        self._passwords = Passwords()
        self.lease: Lease | None = None
        self.secret: bytes | None = None
        """What the federation's proxies know and nobody else; None: the registry has not told it yet."""
        self.peers = Peers(
            self.proxy, self._row, lambda: self._engine.context.incarnation, lambda: self.secret, self.refused
        )
        self.requests = Requests(self.peers, self.rows_of)

    @property
    def ready(self) -> bool:
        """Whether sessions can be served here now: a registry that is away for longer than our lease ends that."""
        return not self._closing and self.engine is not None and self.engine.context.may_serve()

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise Internal("the node has not started yet")
        return self.engine

    @property
    def serving_engine(self) -> Engine:
        """The engine. Raises Unreachable: the node has not started yet."""
        if self.engine is None or not self._started:
            raise Unreachable("the proxy is starting")
        return self.engine

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Start, and serve until cancelled."""
        try:
            await self._start()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._tail(), name="tail")
                group.create_task(self._watch(), name="watch")
                group.create_task(self._live(), name="lease")
                group.create_task(self._facts.run(self.parts.journal, self._wrote), name="journal")
                group.create_task(self._look_after_log(), name="log")
        except* WaypostError as errors:
            raise errors.exceptions[0] from None
        finally:
            await self._stop()

    async def _start(self) -> None:
        self.parts = parts = await self._patiently("parts", self._open_parts)
        restored = await self._patiently("store", parts.store.load)
        neighbours = tuple(SiteId(each) for each in self.config.neighbours)
        settings = Settings(self.proxy, self.site, neighbours, expiry_ms=self.config.sweep_s * 1_000)
        self.engine = Engine(settings, self._clock, self._chance, self._life, restored)
        if restored is None:
            self.engine.state.position = await self._patiently("log", parts.log.first)
        self.history = History(self.site, parts.log)
        ends = LinkEnds(self.engine.state, self.rows_of, self._chance)
        self.links = Links(self.proxy, ends, parts.log, parts.registry, self.peers, self._clock)
        self._started = True

    async def _stop(self) -> None:
        """Leave in order: say what is complete, give back the lease, keep what is in memory."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        if self.engine is not None and self._started:
            with contextlib.suppress(WaypostError, TimeoutError):
                async with asyncio.timeout(5):
                    await self._leave(self.engine)
            await self.links.close()
        await self.peers.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._passwords.close()
        for changelog in self._foreign_changelogs.values():
            await changelog.close()
        if self._started:
            await self.parts.close()

    async def _leave(self, engine: Engine) -> None:
        saved: asyncio.Future[WaypostError | None] = asyncio.get_running_loop().create_future()
        engine.leave()
        engine.keeper.saved(saved.set_result)
        self.drain()
        await saved
        while self._facts:
            await self._facts.write(self.parts.journal)
            self.drain()
        if self.lease is not None:
            await self.lease.end()

    async def _patiently(self, part: str, action: Callable[[], Awaitable[Any]]) -> Any:
        """Do what needs a part that may not be there yet: say so, and try again with back-off."""
        attempt = 0
        missing: set[str] = set()
        while True:
            try:
                result = await action()
                for each in missing:
                    self._there(each)
                return result
            except Refused:
                raise
            except WaypostError as error:
                missing.add(error.field or part)
                self._missing(error.field or part, error)
            attempt += 1
            await asyncio.sleep(full_jitter_ms(attempt, self._chance) / 1000)

    def _missing(self, part: str, error: BaseException) -> None:
        text = str(error) or "no answer"
        if part not in self.troubles:
            self.outages[part] += 1
            log.warning("part is not there; trying again", part=part, error=text)
        self.troubles[part] = text

    def _there(self, part: str) -> None:
        if self.troubles.pop(part, None) is not None:
            log.info("part is there again", part=part)

    # ------------------------------------------------------------ the engine's inputs

    async def _tail(self) -> None:
        """Fold the site log for ever."""
        engine = self._engine
        while True:
            try:
                async for batch in self.parts.log.tail(engine.state.position):
                    self._there("log")
                    engine.log_batch(batch)
                    self.links.folded(batch)
                    self.drain()
            except Unreachable as error:
                self._missing("log", error)
            await asyncio.sleep(0.2)

    async def _look_after_log(self) -> None:
        """Notice that the log is away also while nobody wants anything of it: its tail only waits."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self.log_end = await self.parts.log.end()
                self._there("log")
            except Unreachable as error:
                self._missing("log", error)

    async def _watch(self) -> None:
        while True:
            try:
                async for event in self.parts.registry.watch():
                    self._there("registry")
                    self._heard(event)
            except Unreachable as error:
                self._missing("registry", error)
            await asyncio.sleep(0.2)

    def _heard(self, event: RegistryEvent) -> None:
        self._engine.registry_event(event)
        self.links.heard(event)
        self.drain()

    async def _live(self) -> None:
        """Live under leases: announce, renew, and begin another life when a lease has ended."""
        self.log_end = end = await self._patiently("log", self.parts.log.end)
        while self._engine.state.position < end:
            await asyncio.sleep(0.01)
        while True:
            # Anew for every life: a registry that was lost, or whose secret was taken away, has another one.
            self.secret = await self._patiently("registry", self.parts.registry.secret)
            began = self._clock.now_ms()
            self.lease = await self._patiently("registry", partial(self._announce, self._life))
            ttl = self.config.lease_ttl_ms
            self._engine.lease_granted(self._life, began + ttl)
            self.links.lease_begun(self.lease)
            self.drain()
            await self._renew(self.lease)
            self.links.lease_ended()
            self._engine.lease_lost()
            self.drain()
            self._yield_to_a_later_life()
            self._life = new_incarnation()

    def _yield_to_a_later_life(self) -> None:
        """Raises NameTaken: another process runs under our name, and came after us."""
        row = self._row(self.proxy)
        if row is not None and row.incarnation != self._life:
            raise NameTaken(
                f"another process runs as proxy {self.proxy}, at {row.url}, and came after this one, which ends",
                field="name",
                hint="give every proxy a name of its own",
            )

    async def _announce(self, life: Incarnation) -> Lease:
        row = ProxyRow(
            proxy=self.proxy,
            incarnation=life,
            site=self.site,
            url=self._url(),
            changelog=changelog_locator(self.config),
        )
        return await self.parts.registry.announce(row, self.config.lease_ttl_ms)

    async def _renew(self, lease: Lease) -> None:
        """Return when the lease has ended."""
        pause = lease.ttl_ms / 3000
        while True:
            await asyncio.sleep(pause)
            began = self._clock.now_ms()
            try:
                async with asyncio.timeout(lease.ttl_ms / 1000):
                    if not await lease.renew():
                        return
                self._there("registry")
                self._engine.lease_renewed(began + lease.ttl_ms)
            except (WaypostError, TimeoutError) as error:
                self._missing("registry", error)

    def connect(self, connection: Connection) -> int:
        self._last_connection += 1
        self._connections[self._last_connection] = connection
        self._engine.client_connected(self._last_connection)
        return self._last_connection

    def disconnect(self, number: int) -> None:
        self._connections.pop(number, None)
        if self.engine is not None:
            self.engine.client_disconnected(number)
            self.drain()

    def client_message(self, number: int, message: ClientMessage) -> None:
        self._engine.client_message(number, message)
        self.drain()

    def _wrote(self, error: Unreachable | None) -> None:
        """The journal took facts, or did not."""
        if error is not None:
            self._missing("journal", error)
            return
        self._there("journal")
        self._room.set()
        self.drain()

    async def room(self) -> None:
        """Wait while too much is on its way to log or journal: back-pressure on whoever sends."""
        while self._appends >= APPENDS_UNDER_WAY or len(self._facts) >= FACTS_WAITING:
            self._room.clear()
            await self._room.wait()

    async def peer_message(self, peer: ProxyId, message: object) -> None:
        """Take a message of a proxy whose identity was proven."""
        match message:
            case TransferMessage() | Offer() | Give() | RelayUp() | RelayDown() | RelayEnd():
                self._engine.peer_message(peer, message)  # type: ignore[arg-type]
                self.drain()
            case LinkOpen() | LinkWants() | LinkRecords() | LinkAppended():
                self.links.peer_message(peer, message)
            case CatchUp():
                self._spawn(self._serve_history(peer, message))
            case CaughtUp() | CatchUpFailed():
                self.requests.answer(message)

    async def _serve_history(self, peer: ProxyId, wanted: CatchUp) -> None:
        try:
            self.peers.send(peer, await self.history.answer(wanted))
        except WaypostError as error:
            self.peers.send(peer, CatchUpFailed(wanted.request, wanted.origin, str(error)))

    async def mark(self) -> int:
        """Append a closing marker; return its offset once log and journal have it. Raises WaypostError."""
        marked: asyncio.Future[int | WaypostError] = asyncio.get_running_loop().create_future()
        self._engine.close_log(lambda answer: None if marked.done() else marked.set_result(answer))
        self.drain()
        async with asyncio.timeout(MARK_S):
            answer = await marked
        if isinstance(answer, WaypostError):
            raise answer
        return answer

    @property
    def unsettled(self) -> int:
        """How much is not on record yet: sessions that do not have all below the last marker, facts to be written."""
        return (self.engine.undrained if self.engine else 0) + len(self._facts)

    # ------------------------------------------------------------ who is there

    def _row(self, proxy: ProxyId) -> ProxyRow | None:
        return self._engine.context.proxies.get(proxy)

    def rows_of(self, site: SiteId) -> list[ProxyRow]:
        """Return the live proxies of a site, in a fixed order."""
        rows = self._engine.context.proxies.values()
        return sorted((row for row in rows if row.site == site), key=lambda row: row.proxy)

    @property
    def on_the_way(self) -> tuple[int, int]:
        """How many appends are on their way to the log, and how many lots of facts to the journal."""
        return self._appends, len(self._facts)

    @property
    def unsent_bytes(self) -> int:
        """How much waits for the client for whom the most does."""
        return max((each.unsent() for each in self._connections.values()), default=0)

    @property
    def leading(self) -> list[SiteId]:
        """The neighbours whose links to us this node leads."""
        return self.links.leading if self._started else []

    def knows(self, proxy: ProxyId, life: Incarnation) -> bool:
        row = self._row(proxy) if self.engine is not None else None
        return row is not None and row.incarnation == life

    def refused(self, name: str, peer: ProxyId, detail: str) -> None:
        """Count what somebody said who is, or says to be, another proxy; log the first of each name and peer."""
        self._engine.context.refused.note(name, peer, detail)
        self._tell_refused()

    def _tell_refused(self) -> None:
        for each in self._engine.context.refused.take_news():
            log.warning("refused", what=each.name, peer=each.peer or "not proven", detail=each.detail)

    # ------------------------------------------------------------ the engine's effects

    def drain(self) -> None:
        """Perform what the engine wants done, and set the timer again."""
        while self.engine is not None and (wanted := self.engine.take_effects()):
            for effect in wanted:
                self._perform(effect)
        if self.engine is not None:
            self._tell_refused()
        if not self._arming:
            # Once for all that this turn of the loop brings: the deadline is asked of every running transfer.
            self._arming = True
            asyncio.get_running_loop().call_soon(self._arm)

    def _arm(self) -> None:
        self._arming = False
        if self._timer is not None:
            self._timer.cancel()
        if self.engine is None or self._closing:
            return
        wait_ms = max(1, self.engine.next_deadline() - self._clock.now_ms())
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._engine.tick()
        self.drain()

    def _perform(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Send():
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    connection.send(effect.message)
            case effects.SendPeer():
                self.peers.send(effect.proxy, effect.message)
            case effects.Append():
                self._appends += 1
                self._spawn(self._append(effect))
            case effects.Attest():
                self._facts.put(effect)
            case effects.Hangup():
                connection = self._connections.get(effect.connection)
                if connection is not None:
                    connection.hang_up(effect.reason)
            case _:
                self._spawn(self._ask(effect))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task failed", exc_info=task.exception())

    async def _append(self, effect: effects.Append) -> None:
        try:
            answer = await self._or_error(self.parts.log.append(effect.records))
        finally:
            self._appends -= 1
            self._room.set()
        effect.then(answer)
        self.drain()

    async def _ask(self, effect: Any) -> None:
        """Perform an effect that is answered."""
        effect.then(await self._or_error(self._answer(effect)))
        self.drain()

    async def _or_error(self, work: Awaitable[Any]) -> Any:
        """Return what comes of it; every failure is an answer, for somebody waits for one."""
        try:
            return await work
        except Unreachable as error:
            self._missing(_part_of(error), error)
            return error
        except WaypostError as error:
            return error
        except Exception as fault:
            log.exception("a part failed in a way that it must not")
            return Internal(f"{type(fault).__name__}: {fault}")

    async def _answer(self, effect: effects.Effect) -> Any:
        registry = self.parts.registry
        match effect:
            case effects.CreateRow():
                return await registry.create(effect.session, effect.ownership)
            case effects.ClaimRow():
                return await registry.claim(effect.session, effect.expected, effect.new)
            case effects.ReadRow():
                return await registry.owner(effect.session)
            case effects.Save():
                return await self._store(effect)
            case effects.LoadEntries():
                return await self.parts.store.entries(effect.session, effect.after, effect.limit)
            case effects.FindOutdated():
                return await self.parts.store.outdated(effect.session, effect.windows, effect.limit)
            case effects.PutCheckpoint():
                return await self.parts.changelog.put([effect.checkpoint])
            case effects.FindCheckpoint():
                return await self._find_checkpoint(effect.session)
            case effects.FetchHistory():
                return await self._fetch_history(effect)
            case effects.Verify():
                return await self._passwords.verify(effect.password, effect.hash)
            case effects.Hash():
                return await self._passwords.hash(effect.passwords)
        raise Internal(f"no way to perform {type(effect).__name__}")

    async def _store(self, effect: effects.Save) -> None:
        began = self._clock.now_ms()
        try:
            await self.parts.store.apply(effect.batch)
        except StoreFailed:
            self.store_failures += 1
            raise
        self.store_writes.note(self._clock.now_ms() - began)

    async def _fetch_history(self, effect: effects.FetchHistory) -> effects.History:
        if effect.site == self.site:
            answer = await self.history.answer(effect.wanted)
        else:
            answer = await self.requests.ask(effect.site, effect.wanted)
            self._there("another site")
        return effects.History(answer.records, answer.through, answer.first_kept)

    async def _find_checkpoint(self, session: SessionId) -> effects.FoundCheckpoint:
        """Look into the changelogs of all sites that are known; the highest (epoch, serial) is the one."""
        found = [await self.parts.changelog.latest(session)]
        complete = True
        own = changelog_locator(self.config)
        for locator in set(self._engine.context.changelogs.values()) - {own}:
            try:
                changelog = self._foreign_changelogs.get(locator)
                if changelog is None:
                    changelog = open_changelog(locator)
                    await changelog.start()
                    self._foreign_changelogs[locator] = changelog
                found.append(await changelog.latest(session))
            except WaypostError:
                complete = False
        best = max((each for each in found if each), key=lambda each: each.rank, default=None)
        return effects.FoundCheckpoint(best, complete)


def _part_of(error: Unreachable) -> str:
    """Return which part did not answer."""
    match error:
        case RegistryUnavailable():
            return "registry"
        case LogUnavailable():
            return "log"
        case _:
            return error.field or "another site"
