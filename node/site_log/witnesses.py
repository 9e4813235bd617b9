"""Witnesses of our site's log: live proxies of all sites, which are asked how far they have seen it (handover rule 27).

The registry has what the site's proxies have reported lately. A proxy that was stopped for a moment, or cannot reach
the registry, has not reported; a neighbour reports only when a link opens.
"""

from __future__ import annotations

import asyncio
import random

from federation.messages import SeenRequest, SeenResponse
from federation.ports import ProxyRow
from node.machines.log_guard import Witnessed
from node.peers.directory import Directory
from node.peers.peers import Peers
from waypost.clock import Clock
from waypost.errors import RegistryUnavailable
from waypost.identity import NOTHING, Origin, ProxyId, SiteId
from waypost.limits import WITNESS_S

POLL_S = 0.05


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
        self._answers: dict[int, dict[ProxyId, SeenResponse]] = {}
        """By question, while it is under way, the answers."""

    async def ask(self, origin: Origin) -> Witnessed:
        """Return how far the other live proxies have seen the origin.

        Waits until it is known who lives, and for the answer of every live proxy that can be reached, of those that
        come up meanwhile too, WITNESS_S seconds at most. One that begins another incarnation is asked again.

        Args:
            origin: the origin, of this proxy's site.

        Raises:
            RegistryUnavailable: the registry has not said by then who lives.
        """
        self._request = request = self._request + 1
        answered = self._answers[request] = {}
        asked: dict[ProxyId, ProxyRow] = {}
        began_ms = self._clock.now_ms()
        try:
            while self._clock.now_ms() < began_ms + 1000 * WITNESS_S:
                if self._directory.is_watching:
                    living = {row.proxy: row for row in self._directory.live() if row.proxy != self._proxy}
                    for peer in sorted(proxy for proxy, row in living.items() if asked.get(proxy) != row):
                        answered.pop(peer, None)
                        self._peers.send(peer, SeenRequest(request, origin))
                    asked |= living
                    if living.keys() <= answered.keys() | self._unreached_since(began_ms):
                        break
                await asyncio.sleep(POLL_S)
        finally:
            del self._answers[request]
        if not self._directory.is_watching:
            raise RegistryUnavailable("the registry has not said yet which proxies live")
        is_here = {proxy: row.site == self._site for proxy, row in asked.items()}
        answers = [(is_here.get(proxy, False), answer) for proxy, answer in answered.items()]
        return Witnessed(
            here=max((answer.offset for here, answer in answers if here), default=NOTHING),
            elsewhere=max((answer.offset for here, answer in answers if not here), default=NOTHING),
            is_confirmed=any(answer.is_confirmed for here, answer in answers if here),
        )

    def _unreached_since(self, began_ms: int) -> set[ProxyId]:
        """The peers to which the question was lost: there was no way to them. No answer of theirs can come."""
        return {proxy for proxy, failed in self._peers.unroutable().items() if failed.last_ms >= began_ms}

    def receive(self, peer: ProxyId, message: SeenResponse) -> None:
        """Note the answer of a peer to a request that :meth:`ask` waits for; one to another request is dropped."""
        if message.request in self._answers:
            self._answers[message.request][peer] = message
