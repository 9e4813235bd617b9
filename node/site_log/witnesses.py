"""Witnesses of our site's log: live proxies of all sites, which are asked how far they have seen it (handover rule 27).

The registry has what the site's proxies have reported lately. A proxy that was stopped for a moment, or cannot reach
the registry, has not reported; a neighbour reports only when a link opens. Whom a poll waits for stands in
node/machines/witness_poll.py.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from federation.messages import SeenRequest, SeenResponse
from node.machines.log_guard import Witnessed
from node.machines.witness_poll import LOOK_MS, WitnessPoll
from node.peers.directory import Directory
from node.peers.peers import Peers
from waypost.clock import Clock
from waypost.identity import Origin, ProxyId, SiteId


class Witnesses:
    """Asks all live proxies but ours.

    Args:
        site: ours.
        directory: of the node: who lives.
        clock: of the node, by which `peers` notes whom it has not reached.
    """

    def __init__(self, proxy: ProxyId, site: SiteId, peers: Peers, directory: Directory, clock: Clock) -> None:
        self._proxy = proxy
        self._site = site
        self._peers = peers
        self._directory = directory
        self._clock = clock
        # No answer to a question of an earlier process counts.
        self._request = random.getrandbits(40)
        self._polls: dict[int, tuple[WitnessPoll, asyncio.Event]] = {}
        """By the number of the request, those under way, each with what an answer sets."""

    async def ask(self, origin: Origin, before: Origin) -> Witnessed:
        """Return how far the other live proxies have seen the origin, once all that can be reached have answered, after
        WITNESS_S seconds at the latest.

        Args:
            origin: the origin, of this proxy's site.
            before: that of the log epoch before; NO_ORIGIN: it is not asked about.

        Raises:
            RegistryUnavailable: the registry has not said by then who lives.
        """
        self._request += 1
        request = SeenRequest(self._request, origin, before)
        poll, answered = WitnessPoll(self._proxy, self._site, request, self._clock.now_ms()), asyncio.Event()
        self._polls[request.request] = poll, answered
        try:
            while True:
                answered.clear()
                living = self._directory.live() if self._directory.is_watching else None
                failed_ms = {proxy: failed.last_ms for proxy, failed in self._peers.unroutable().items()}
                for peer in poll.look(living, failed_ms, self._clock.now_ms()):
                    self._peers.send(peer, request)
                if poll.is_over:
                    return poll.result()
                with suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_MS / 1000):
                        await answered.wait()
        finally:
            del self._polls[request.request]

    def receive(self, peer: ProxyId, message: SeenResponse) -> None:
        """Note the answer of a peer to a request that :meth:`ask` waits for; one to another request is dropped."""
        if message.request in self._polls:
            poll, answered = self._polls[message.request]
            poll.receive(peer, message)
            answered.set()
