"""Roaming: producers at every site, clients that move between proxies, every notification counted.

All subscriptions are effective everywhere before the first publish, so `chaos.checker` can say who is owed what.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import waypost
from chaos.checker import Tally, check
from chaos.demo.travellers import Traveller
from waypost.client.session import Received
from waypost.identity import NotificationId
from waypost.notification import Notification

KINDS = 5
PATIENCE_S = 60
POLL_S = 0.1

Give = Callable[[Sequence[Received]], Sequence[Received]]
"""What stands between library and tally; the tests of the checker swallow and repeat here."""


class Roamer(Traveller):
    """A traveller whose notifications pass through `give`."""

    give: Give = staticmethod(lambda batch: batch)

    def tally(self, received: Sequence[Received]) -> None:
        Traveller.tally(self, self.give(received))


class Roaming:
    """One run.

    Args:
        sites: addresses of the proxies, by site.
        rate: notifications a second at every site.
        pace_s: a client stays about so long at one proxy.
    """

    def __init__(
        self,
        sites: Mapping[str, Sequence[str]],
        seed: int,
        *,
        clients: int = 6,
        rate: float = 60,
        pace_s: float = 0.6,
    ) -> None:
        self._sites = sites
        self._urls = [url for urls in sites.values() for url in urls]
        self._seed, self._rate, self._pace_s = seed, rate, pace_s
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.published: dict[NotificationId, Notification] = {}
        self.clients = [
            Roamer(f"roamer{each}-{seed}", (f"kind == {each % KINDS}", f"number % 7 == {each % 7}"))
            for each in range(clients)
        ]

    async def setup(self) -> None:
        """Attach every client somewhere, with subscriptions that are effective everywhere."""
        chance = random.Random(self._seed)
        origins = [f"{site}/0" for site in self._sites]
        for client in self.clients:
            await client.appear(chance.choice(self._urls), self._urls)
            await client.subscribe_all(origins)

    def start(self) -> None:
        """Begin to publish and to roam."""
        work = [self._produce(site) for site in self._sites] + [self._roam(client) for client in self.clients]
        self._tasks = [asyncio.create_task(each) for each in work]

    async def check(self) -> Tally:
        """Stop publishing, wait until all that is owed has come or patience ends, and judge."""
        self._stop.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        deadline = time.monotonic() + PATIENCE_S / 2
        while (tally := self._judge()).lost and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        await asyncio.gather(*(client.vanish(politely=True) for client in self.clients))
        return tally

    @property
    def moves(self) -> int:
        return sum(len(client.moves_ms) for client in self.clients)

    async def until_moving(self) -> None:
        """Return while a client is on its way to another proxy: its session is being handed over, or about to be.

        Raises what ended a client or a producer; TimeoutError if nobody moves any more.
        """
        async with asyncio.timeout(PATIENCE_S):
            while not any(client.moving for client in self.clients):
                for task in self._tasks:
                    if task.done():
                        task.result()
                await asyncio.sleep(0.001)

    @property
    def given(self) -> int:
        """What all clients were given so far."""
        return sum(client.got.total() for client in self.clients)

    def _judge(self) -> Tally:
        subscriptions = {client.name: client.subscriptions for client in self.clients}
        got: dict[str, Counter[NotificationId]] = {client.name: client.got for client in self.clients}
        return check(self.published, subscriptions, got)

    async def _roam(self, client: Roamer) -> None:
        await client.roam(self._urls, random.Random(f"{self._seed}/{client.name}"), self._stop, self._pace_s)

    async def _produce(self, site: str) -> None:
        chance = random.Random(f"{self._seed}/{site}")
        async with waypost.produce(f"producer-{site}", proxy=self._sites[site], timeout_s=PATIENCE_S) as producer:
            number = 0
            while not self._stop.is_set():
                number += 1
                body = Notification({"kind": chance.randrange(KINDS), "number": number, "site": site})
                identity = producer.next_id
                await producer.publish_soon(body)
                self.published[identity] = body
                await asyncio.sleep(1 / self._rate)
            while producer.unacknowledged:
                await asyncio.sleep(POLL_S)
