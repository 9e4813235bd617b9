"""The effects of links as a node performs them, and answers them.

What is decided, federation/links/endpoints.py decides; node/machines/runtime.py steps it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, assert_never

import structlog

from federation.links import effects
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import LinkEffectCompleted
from federation.links.link_receiver import ReceiverView
from federation.links.link_sender import SenderView
from federation.messages import LinkRecord
from federation.ports import Lease, Registry, SiteLog
from node.health.dependency_health import LINK_FROM, DependencyHealth
from node.health.rate_limited_log import RateLimitedLog
from node.peers.peers import Peers
from node.shell.tasks import Tasks
from node.site_log.guarded_log import GuardedLog
from proxy.queue_lengths import Waiting
from waypost import cancellation
from waypost.clock import Clock
from waypost.errors import Internal, LogUnavailable, WaypostError
from waypost.identity import ProxyId, SiteId
from waypost.records import LinkLed, Record

log = structlog.get_logger("waypost")


class Links:
    """All links of a node, both ways. Nothing here waits but tasks of its own.

    Args:
        step: takes the answer of an effect as the next input.
    """

    def __init__(
        self,
        proxy: ProxyId,
        endpoints: LinkEndpoints,
        *,
        log: SiteLog,
        registry: Registry,
        peers: Peers,
        clock: Clock,
        guarded_log: GuardedLog,
        health: DependencyHealth,
        step: Callable[[LinkEffectCompleted], None],
    ) -> None:
        self._step = step
        self._guarded_log = guarded_log
        self._health = health
        self._proxy = proxy
        self._endpoints = endpoints
        self._log = log
        self._registry = registry
        self._peers = peers
        self._clock = clock
        self._rate_limited = RateLimitedLog(clock)
        self.lease: Lease | None = None
        """Under which this proxy takes part in elections."""
        self._tasks = Tasks(self._rate_limited)
        self._closed = False

    @property
    def leading(self) -> list[SiteId]:
        """The neighbours whose link to this site this proxy leads."""
        return self._endpoints.leading

    @property
    def neighbours(self) -> list[SiteId]:
        """The sites that this one has links with, in the tree or standing by."""
        return self._endpoints.neighbours

    def shown(self) -> tuple[list[ReceiverView], list[SenderView]]:
        """Return the state of all ends as they are now, for operators: those that receive, those that send."""
        return self._endpoints.shown(self._clock.now_ms())

    def queues(self) -> Iterable[Waiting]:
        """Return the queues of all ends, each as (name, length, bound), in records."""
        return self._endpoints.queues()

    async def close(self) -> None:
        """Stop: cancel calls that are under way, and perform no effect any more."""
        self._closed = True
        await self._tasks.cancel()

    # ------------------------------------------------------------ effects

    def perform(self, effect: effects.LinkEffect) -> None:
        """Begin one effect of the links' machine; nothing after :meth:`close`. Its answer is an input later."""
        if self._closed:
            return
        match effect:
            case effects.SendNeighbour():
                self._peers.send(effect.proxy, effect.message)
            case effects.AppendRecords():
                self._spawn(partial(self._append, effect.records), effect.on_done)
            case effects.ReadLog():
                self._spawn(partial(self._log.read, effect.offset, effect.limit), effect.on_done)
            case effects.FindFirst():
                self._spawn(self._log.first_offset, effect.on_done)
            case effects.FindEnd():
                self._spawn(self._log.end_offset, effect.on_done)
            case effects.Elect():
                self._spawn(partial(self._elect, effect.link, self.lease), effect.on_done)
            case effects.Resign():
                self._spawn(partial(self._resign, effect.link, self.lease), effect.on_done)
            case effects.ClaimTree():
                self._spawn(partial(self._registry.claim_tree, effect.expected, effect.new), effect.on_done)
            case effects.RestoreLink():
                self._spawn(partial(self._registry.set_link, effect.row, seed=True), effect.on_done)
            case effects.SeenBeyond():
                self._guarded_log.seen_beyond(effect.origin, effect.offset)
            case effects.Ended():
                self._rate_limited.write(
                    log.warning,
                    "a link ended; its far side will open it again",
                    effect.site,
                    site=effect.site,
                    reason=effect.reason,
                )
            case effects.EnteredTree(epoch, links):
                tree = ", ".join(" - ".join(sites) for sites in links) or "none: no other site is reached"
                self._rate_limited.write(
                    log.info, "the site forwards over another tree of links", "tree", epoch=epoch, tree=tree
                )
            case _:
                assert_never(effect)

    async def _append(self, records: Sequence[Record]) -> list[int]:
        """Append what a link has brought, or says of itself; where the log does not take it, the link is in trouble."""
        neighbours = {record.link for record in records if isinstance(record, LinkRecord | LinkLed)}
        try:
            async with self._guarded_log.guard_append():
                offsets = await self._log.append(records)
        except LogUnavailable as error:
            for neighbour in neighbours:
                self._health.unavailable(LINK_FROM + neighbour, error)
            raise
        # That a leader has named its term does not say yet that anything goes through.
        for neighbour in {record.link for record in records if isinstance(record, LinkRecord)}:
            self._health.available(LINK_FROM + neighbour)
        return offsets

    async def _elect(self, link: str, lease: Lease | None) -> int | None:
        return None if lease is None else await self._registry.elect(link, self._proxy, lease)

    async def _resign(self, link: str, lease: Lease | None) -> None:
        if lease is not None:
            await self._registry.resign(link, lease)

    def _spawn(self, action: Callable[[], Awaitable[Any]], on_done: Callable[[Any, int], None]) -> None:
        self._tasks.spawn(self._answer(action, on_done))

    async def _answer(self, action: Callable[[], Awaitable[Any]], on_done: Callable[[Any, int], None]) -> None:
        """Every failure is an answer: what waits for one must not wait for ever."""
        try:
            with cancellation.translated(lambda _: Internal("the call was cancelled by a library")):
                answer = await action()
        except Internal as error:
            self._rate_limited.write(log.error, "a link's action failed", exc_info=error)
            answer = error
        except WaypostError as error:
            answer = error
        except Exception as error:
            self._rate_limited.write(log.error, "a link's action failed", exc_info=error)
            answer = Internal(str(error))
        self._step(LinkEffectCompleted(on_done, answer))
