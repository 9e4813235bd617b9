"""Travellers: clients that subscribe, go offline, come back elsewhere, and count what they get."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import waypost
from chaos.checker import Delivered
from waypost.client.events import Redirected
from waypost.client.received_notification import Received
from waypost.errors import WaypostError

EXPRESSIONS = (
    'origin == "JFK" && dep_delay > 30',
    'begins-with(tailnum, "N1")',
    'dest == "LAX" || dest == "SFO"',
    'carrier == "UA" && distance > 1000',
    "dep_delay > 60",
    'origin == "LGA" && dep_delay < 0',
    '! (origin == "EWR") && hour >= 18',
    'wildcard(tailnum, "N*AA")',
    'equals(carrier, "B6", "DL") && arr_delay > 15',
    "require(air_time) && air_time < 60",
    'regex(dest, "^[A-C]") && dep_delay >= 10',
    "distance / 2 > 1000 ^^ dep_delay > 120",
    'fold-case(dest) == "bos"',
    "! require(dep_delay) || dep_delay > 180",
)
NAMES = [
    "alice",
    "bruno",
    "chidi",
    "dalia",
    "emre",
    "farah",
    "goran",
    "hana",
    "ines",
    "jonas",
    "kaito",
    "leila",
    "marta",
    "nadia",
    "omar",
    "petra",
    "quinn",
    "rosa",
    "sven",
    "tara",
    "umar",
    "vera",
    "wanda",
    "ximena",
    "yusuf",
    "zoe",
]


@dataclass(slots=True, kw_only=True)
class Traveller:
    """One roaming client, its subscriptions, and what it was given."""

    name: str
    subscriptions: tuple[str, ...]
    group: str = ""
    """Names the session where several share one; each of them is a receiver of its own."""
    got: list[Delivered] = field(default_factory=list)
    moves_ms: list[float] = field(default_factory=list)
    """For each attach at another proxy, the time until the session was served there, in ms."""
    absences: int = 0
    receiver_state: waypost.ReceiverState = field(default_factory=waypost.ReceiverState)
    session: waypost.Receiver | None = None
    proxy: str = ""
    moving: bool = False
    """On its way to a proxy at which it was not before."""
    _url: str = ""
    _reader: asyncio.Task[None] | None = None

    @property
    def session_id(self) -> str:
        """The name of the traveller's session, which all travellers of its group share."""
        return f"travellers/{self.group or self.name}"

    def check(self, received: Sequence[Received]) -> None:
        """Note received notifications in `got`, for the comparison at the end."""
        self.got += [Delivered(received.id, received.coordinate.origin) for received in received]

    async def appear(self, url: str, others: Sequence[str]) -> None:
        """Attach at a proxy, and begin to read, in a task; return when the session is served. Call this while offline.

        Args:
            url: of the proxy.
            others: proxies to try where that one does not answer; `url` may be among them.

        Raises:
            WaypostError: no proxy let the traveller in within 60 s. Its session may go on trying, with nobody that
                reads: call :meth:`vanish` before another attempt.
        """
        began = time.monotonic()
        before = self.proxy
        session = waypost.attach(
            self.session_id,
            proxy=[url, *(other for other in others if other != url)],
            receiver=self.name if self.group else "main",
            state=self.receiver_state,
            name=self.session_id,
            timeout_s=60,
            on_event=self._on_event,
        )
        self.moving = url != self._url
        await session.__aenter__()
        self.session = session
        attached = await session.wait_attached()
        self._url, self.moving = url, False
        if before and attached.proxy != before:
            self.moves_ms.append((time.monotonic() - began) * 1000)
        self.proxy = attached.proxy
        self._reader = asyncio.create_task(self.read(session), name=f"reader {self.name}")

    def _on_event(self, event: object) -> None:
        if isinstance(event, Redirected):
            self.proxy = event.proxy

    async def read(self, session: waypost.Receiver) -> None:
        """Note all notifications of an attached session, until the session ends; to be run as a task."""
        async for batch in session.batches():
            self.check(batch)

    async def subscribe_all(self, origins: Sequence[str]) -> None:
        """Make all subscriptions of the traveller, and wait until they are effective for the origins.

        Args:
            origins: such as "A/0".

        Raises:
            AssertionError: the traveller is not attached.
            WaypostError: a subscription was not accepted, or was not effective within 60 s.
        """
        assert self.session is not None
        for expression in self.subscriptions:
            identity = await self.session.subscribe(expression)
            await self.session.wait_effective(identity, origins)

    async def vanish(self, *, politely: bool) -> None:
        """Go offline, if the traveller is attached; its session stays.

        Args:
            politely: whether to detach; False: the connection just breaks.
        """
        session, self.session = self.session, None
        if session is None:
            return
        self.absences += 1
        if politely:
            await session.close()
        else:
            await session.abandon()
        if self._reader is not None:
            self._reader.cancel()
            with contextlib.suppress(asyncio.CancelledError, WaypostError):
                await self._reader

    async def roam(self, urls: Sequence[str], rng: random.Random, stop: asyncio.Event, pace_s: float) -> None:
        """Go offline and attach at drawn proxies, again and again, until `stop` is set; be attached at the end.

        Args:
            urls: of all proxies.
            rng: draws the proxies and the times.
            stop: ends the roaming.
            pace_s: the time at one proxy, about, in seconds.

        Raises:
            WaypostError: no proxy let the traveller in within 60 s.
        """
        while not stop.is_set():
            await _pause(stop, rng.uniform(0.3, 1.7) * pace_s)
            if stop.is_set():
                break
            await self.vanish(politely=rng.random() < 0.5)
            if rng.random() < 0.4:
                await _pause(stop, rng.uniform(0.5, 3) * pace_s)
            await self.appear(rng.choice(list(urls)), urls)
        if self.session is None:
            await self.appear(rng.choice(list(urls)), urls)


async def _pause(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()


def travellers(count: int, rng: random.Random) -> list[Traveller]:
    """Return `count` travellers, none of them attached; `rng` draws one to three subscriptions for each."""
    return [
        Traveller(
            name=NAMES[each] if each < len(NAMES) else f"{NAMES[each % len(NAMES)]}{each // len(NAMES)}",
            subscriptions=tuple(rng.sample(EXPRESSIONS, rng.randint(1, 3))),
        )
        for each in range(count)
    ]
