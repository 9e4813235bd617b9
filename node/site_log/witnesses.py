"""Witnesses of our site's log: live proxies of all sites, which are asked how far they have seen it (handover rule 27).

The registry has what the site's proxies have reported lately. A proxy that was stopped for a moment, or cannot reach
the registry, has not reported; a neighbour reports only when a link opens.
"""

from __future__ import annotations

import asyncio

from federation.messages import SeenRequest, SeenResponse
from node.peers.directory import Directory
from node.peers.peers import Peers
from waypost.identity import NOTHING, Origin, ProxyId
from waypost.limits import WITNESS_S

POLL_S = 0.05


class Witnesses:
    """Asks all live proxies but ours.

    Args:
        directory: of the node: who lives.
    """

    def __init__(self, proxy: ProxyId, peers: Peers, directory: Directory) -> None:
        self._proxy = proxy
        self._peers = peers
        self._directory = directory
        self._request = 0
        self._answers: dict[ProxyId, int] = {}

    async def highest(self, origin: Origin) -> int:
        """Return the highest offset of the origin that any other live proxy has seen; NOTHING (-1): none, or none
        answered.

        Waits for the answer of every live proxy, of those that come up meanwhile too, WITNESS_S seconds at most. Make
        one call at a time: the result of a call that overlaps with a later one is that of the later one.

        Args:
            origin: the origin.
        """
        self._request += 1
        self._answers = {}
        asked: set[ProxyId] = set()
        loop = asyncio.get_running_loop()
        ends = loop.time() + WITNESS_S
        while loop.time() < ends:
            living = {row.proxy for row in self._directory.live()} - {self._proxy}
            for peer in sorted(living - asked):
                self._peers.send(peer, SeenRequest(self._request, origin))
            asked |= living
            if living <= self._answers.keys():
                break
            await asyncio.sleep(POLL_S)
        return max(self._answers.values(), default=NOTHING)

    def receive(self, peer: ProxyId, message: SeenResponse) -> None:
        """Note the answer of a peer to the request that :meth:`highest` waits for; an answer to an earlier one is
        dropped.
        """
        if message.request == self._request:
            self._answers[peer] = message.offset
