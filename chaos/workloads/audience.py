"""An audience: producers at every site, clients that stay where the test puts them, every notification counted.

All subscriptions are effective everywhere before the first publish, so `chaos.checker` knows what each is owed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence

import waypost
from chaos.checker import CheckResult, check
from chaos.demo.travellers import Traveller
from waypost.client.received_notification import Received
from waypost.identity import NotificationId
from waypost.notification import Notification

KINDS = 5
TIMEOUT_S = 60
POLL_S = 0.1

BatchFilter = Callable[[Sequence[Received]], Sequence[Received]]
"""A filter between the client library and the count; tests of the checker drop and repeat notifications by it."""


class Guest(Traveller):
    """A traveller that gets its notifications through a filter of the test's, which may leave some out or repeat them.

    Args:
        filter_batch: called with each batch of deliveries; returns the batch that the traveller counts as got.
    """

    filter_batch: BatchFilter = staticmethod(lambda batch: batch)

    def check(self, received: Sequence[Received]) -> None:
        """Note in `got`, for the comparison at the end, what `filter_batch` leaves of a batch of notifications."""
        Traveller.check(self, self.filter_batch(received))

    async def move(self, url: str) -> None:
        """Drop the connection without a detach, and attach at another proxy; return when the session is served there.

        Args:
            url: the address of the proxy.

        Raises:
            WaypostError: the proxy did not let the client in within 60 s.
        """
        await self.vanish(politely=False)
        await self.appear(url, ())


class Audience:
    """One run.

    Args:
        sites: site -> the addresses of its proxies.
        seed: of the producers and of where clients attach.
        clients: their number.
        rate: notifications a second at every site.
    """

    def __init__(self, sites: Mapping[str, Sequence[str]], seed: int, *, clients: int = 6, rate: float = 60) -> None:
        self._sites = sites
        self._urls = [url for urls in sites.values() for url in urls]
        self._seed, self._rate = seed, rate
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.published: dict[NotificationId, Notification] = {}
        self.clients = [
            Guest(name=f"guest{index}-{seed}", subscriptions=(f"kind == {index % KINDS}", f"number % 7 == {index % 7}"))
            for index in range(clients)
        ]

    async def setup(self) -> None:
        """Attach every client at a drawn proxy, and make its subscriptions; return when all are effective at every
        site.

        To be called once, before :meth:`start`.

        Raises:
            WaypostError: no proxy let a client in within 60 s, or a subscription was not accepted, or was not effective
                within 60 s. Clients that were let in stay attached.
        """
        rng = random.Random(self._seed)
        origins = [f"{site}/0" for site in self._sites]
        for client in self.clients:
            await client.appear(rng.choice(self._urls), self._urls)
            await client.subscribe_all(origins)

    def start(self) -> None:
        """Begin to publish at every site, in tasks that :meth:`check` ends; call :meth:`setup` before."""
        for site in self._sites:
            self.go(self._produce(site))

    def go(self, work: Coroutine[None, None, None]) -> None:
        """Run `work` as a task of this run.

        :meth:`check` awaits it, and raises its failure; so `work` has to end soon after :meth:`check` was called.
        """
        self._tasks.append(asyncio.create_task(work))

    async def check(self) -> CheckResult:
        """Stop publishing, wait until no client lacks anything, detach all clients, and return what was found.

        What is still missing after TIMEOUT_S / 2 seconds counts as lost. To be called once, after :meth:`start`.

        Raises:
            Exception: the failure of a producer or another task; the clients stay attached, and other tasks may run on.
            TimeoutError: a task has not ended within TIMEOUT_S seconds; the clients stay attached.
        """
        self._stop.set()
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*self._tasks)
        deadline = time.monotonic() + TIMEOUT_S / 2
        while (result := self._judge()).lost and time.monotonic() < deadline:
            await asyncio.sleep(POLL_S)
        await asyncio.gather(*(client.vanish(politely=True) for client in self.clients))
        return result

    async def wait_delivered(self, more: int = 30) -> None:
        """Wait until every client has had `more` more deliveries than when this was called.

        Raises:
            Exception: the failure of a producer or another task (:meth:`fail`).
            TimeoutError: it took longer than TIMEOUT_S seconds.
        """
        before = [len(client.got) for client in self.clients]
        async with asyncio.timeout(TIMEOUT_S):
            while any(len(client.got) < had + more for client, had in zip(self.clients, before, strict=True)):
                self.fail()
                await asyncio.sleep(POLL_S)

    def fail(self) -> None:
        """Raise the failure of a producer or another task of this run, if one has failed; else do nothing."""
        for task in self._tasks:
            if task.done():
                task.result()

    @property
    def delivered_count(self) -> int:
        """The number of deliveries to all clients so far, repeats included."""
        return sum(len(client.got) for client in self.clients)

    def _judge(self) -> CheckResult:
        subscriptions = {client.name: client.subscriptions for client in self.clients}
        return check(self.published, subscriptions, {client.name: client.got for client in self.clients})

    async def _produce(self, site: str) -> None:
        rng = random.Random(f"{self._seed}/{site}")
        async with waypost.produce(f"producer-{site}", proxy=self._sites[site], timeout_s=TIMEOUT_S) as producer:
            number = 0
            while not self._stop.is_set():
                number += 1
                body = Notification({"kind": rng.randrange(KINDS), "number": number, "site": site})
                identity = producer.next_id
                await producer.publish_soon(body)
                self.published[identity] = body
                await asyncio.sleep(1 / self._rate)
            while producer.unacknowledged:
                await asyncio.sleep(POLL_S)
