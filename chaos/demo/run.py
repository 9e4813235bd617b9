"""The main job: real flights, real processes, roaming travellers, one proxy killed in the middle; then the verdicts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import waypost
from chaos.checker import CheckResult, check
from chaos.cluster import Cluster, ProxyProcess, ProxySpec, died
from chaos.demo.flights import Flight, flights
from chaos.demo.travellers import Traveller, travellers
from waypost.errors import Unreachable
from waypost.identity import Coordinate, NotificationId
from waypost.notification import Notification

PROXIES = [ProxySpec("a1", "A"), ProxySpec("a2", "A"), ProxySpec("b1", "B")]
LINKS = [("A", "B")]
ORIGINS = ("A/0", "B/0")
SITE_OF_AIRPORT = {"JFK": "A", "LGA": "A", "EWR": "B"}
WEEK_SECONDS, YEAR_SECONDS = 40.0, 240.0
"""How long the flights take."""
DOWN_S = 4.0
RESTART_AFTER_S = 15.0
"""A proxy that somebody else ended and nobody started again by then is started again."""
IDLE_S = 90.0
MARKED_S = 15.0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of the demo does.

    Args:
        seed: for all random choices.
        real: on etcd and Kafka; else on the embedded backends.
        whole_year: play all notifications; else a part of them.
        travellers: how many clients roam.
    """

    seed: int = 1
    real: bool = False
    whole_year: bool = False
    travellers: int = 24


@dataclass(slots=True, kw_only=True)
class Progress:
    """The counters of a run while it is under way.

    Args:
        total: flights to be published.
        published: flights acknowledged to their producers.
        delivered: notifications that all travellers have received, repeats included.
        moves: moves of sessions to another proxy.
        online: travellers that are attached.
        note: what the run waits for, for people; "": nothing.
    """

    total: int
    published: int = 0
    delivered: int = 0
    moves: int = 0
    online: int = 0
    note: str = ""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The result of a run on the clients' side.

    Args:
        result: what was lost, repeated, invented or reordered.
        moves_ms: for each move of a session to another proxy, the time until it was served there, in ms.
        absences: how often a traveller went offline.
        repeats_dropped: duplicates that the client libraries dropped.
        seconds: duration of the run.
        is_complete: whether every owed notification had arrived when the run ended.
    """

    result: CheckResult
    moves_ms: list[float]
    absences: int
    repeats_dropped: int
    seconds: float
    is_complete: bool

    @property
    def p50_ms(self) -> float:
        """The median duration of the moves, in ms; 0: there was none."""
        return statistics.median(self.moves_ms) if self.moves_ms else 0.0

    @property
    def p99_ms(self) -> float:
        """The 99th percentile of the moves' durations, in ms, as an estimate: of fewer than 99 moves it may lie above
        the longest one; of a single move its duration; 0: there was none.
        """
        return (
            statistics.quantiles(self.moves_ms, n=100, method="inclusive")[98]
            if len(self.moves_ms) > 1
            else self.p50_ms
        )


class Demo:
    """One run of the demo on a cluster that the caller starts and ends.

    Args:
        plan: the settings of the run.
        root: the folder for the cluster's data and logs.
        progress: called with a line for people when something happens.
        show: called with the counters now and then; it must not block.
    """

    def __init__(
        self, plan: Plan, root: Path, progress: Callable[[str], None], show: Callable[[Progress], None]
    ) -> None:
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._print = progress
        self._show = show
        self.cluster = Cluster(PROXIES, LINKS, root, real=plan.real)
        self._flights = flights(
            whole_year=plan.whole_year, first_day=0 if plan.whole_year else self._rng.randrange(0, 350)
        )
        self._people = travellers(plan.travellers, self._rng)
        self._published: dict[NotificationId, Notification] = {}
        self._progress = Progress(total=len(self._flights))
        self._dropped = 0
        self._expected_down = ""

    @property
    def urls(self) -> list[str]:
        """The addresses of all proxies of the cluster, for clients; empty before the cluster was started."""
        return [proxy.url for proxy in self.cluster.proxies.values()]

    async def run(self) -> Outcome:
        """Run the demo, once, on the cluster, which the caller has started; return what came of it on the clients'
        side.

        Raises:
            WaypostError: a producer or a traveller found no proxy in time, or the killed proxy did not start again.
        """
        began = time.monotonic()
        for proxy in self.cluster.proxies.values():
            self._print(f"proxy {proxy.name} of site {proxy.site}: pid {proxy.process.pid}; by hand: {proxy.line}")
        watchers = [asyncio.create_task(self._tick()), asyncio.create_task(self._guard())]
        try:
            await asyncio.gather(*(self._arrive(person) for person in self._people))
            self._print(f"{len(self._people)} travellers have subscribed; {len(self._flights)} flights begin to fly")
            await self._fly()
            settled = await self._wait_idle()
        finally:
            for watcher in watchers:
                watcher.cancel()
        result = check(
            self._published,
            {person.name: person.subscriptions for person in self._people},
            {person.name: person.got for person in self._people},
        )
        await asyncio.gather(*(self._depart(person) for person in self._people))
        moves = [moves_m for person in self._people for moves_m in person.moves_ms]
        absences = sum(person.absences for person in self._people)
        return Outcome(
            result=result,
            moves_ms=moves,
            absences=absences,
            repeats_dropped=self._dropped,
            seconds=time.monotonic() - began,
            is_complete=settled,
        )

    async def _arrive(self, person: Traveller) -> None:
        await person.appear(self._rng.choice(self.urls), self.urls)
        await person.subscribe_all(ORIGINS)

    async def _depart(self, person: Traveller) -> None:
        if person.session is not None:
            await person.session.wait_attested()
            self._dropped += person.session.duplicates_dropped
            await person.session.close()

    async def _fly(self) -> None:
        """Publish all flights while the travellers roam and one proxy is killed."""
        landed = asyncio.Event()
        pace_s = 1.5
        roaming = [
            asyncio.create_task(
                person.roam(self.urls, random.Random(f"{self._plan.seed}/{person.name}"), landed, pace_s)
            )
            for person in self._people
        ]
        accident = asyncio.create_task(self._accident())
        try:
            await asyncio.gather(*(self._produce(site) for site in sorted({place.site for place in PROXIES})))
            await accident
            landed.set()
            await asyncio.gather(*roaming)
        finally:
            for task in (*roaming, accident):
                task.cancel()

    async def _produce(self, site: str) -> None:
        """Publish the flights of this site's airports, in order, at the site's proxies."""
        flights = [flight for flight in self._flights if SITE_OF_AIRPORT[flight.origin] == site]
        urls = [proxy.url for proxy in self.cluster.of_site(site)]
        async with waypost.produce(f"airports-{site}", proxy=urls, timeout_s=60) as producer:
            began = time.monotonic()
            seconds = YEAR_SECONDS if self._plan.whole_year else WEEK_SECONDS
            for number, flight in enumerate(flights):
                await _until(began + seconds * number / len(flights))
                await self._publish(producer, flight)
            while producer.unacknowledged:
                await asyncio.sleep(0.05)

    async def _publish(self, producer: waypost.Producer, flight: Flight) -> None:
        identity = producer.next_id
        future = await producer.publish_soon(flight.notification)
        self._published[identity] = flight.notification
        future.add_done_callback(self._acknowledged)

    def _acknowledged(self, future: asyncio.Future[Coordinate]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._progress.published += 1

    # ------------------------------------------------------------ the accident

    async def _accident(self) -> None:
        """In the middle, kill one proxy with -9, and start it again a while later."""
        while self._progress.published < 0.4 * self._progress.total:
            await asyncio.sleep(0.05)
        victim = self._rng.choice(list(self.cluster.proxies.values()))
        self._expected_down = victim.name
        self._print(f"kill -9 {victim.process.pid}: proxy {victim.name} is gone")
        victim.kill()
        await asyncio.sleep(DOWN_S)
        await asyncio.to_thread(victim.start)
        self._expected_down = ""
        self._print(f"proxy {victim.name} is back, pid {victim.process.pid}")

    async def _guard(self) -> None:
        """Notice proxies that somebody else ended; start them again if nobody does."""
        missing: dict[str, float] = {}
        while True:
            await asyncio.sleep(0.5)
            for proxy in self.cluster.proxies.values():
                if proxy.name == self._expected_down or proxy.process.running or proxy.listening:
                    missing.pop(proxy.name, None)
                elif proxy.name not in missing:
                    missing[proxy.name] = time.monotonic()
                    self._print(
                        f"proxy {proxy.name} was {died(proxy)}, not by us; start it again with: {proxy.line} "
                        f"(or wait {RESTART_AFTER_S:g} s)"
                    )
                elif time.monotonic() > missing[proxy.name] + RESTART_AFTER_S:
                    await self._revive(proxy)

    async def _revive(self, proxy: ProxyProcess) -> None:
        with contextlib.suppress(Unreachable):
            await asyncio.to_thread(proxy.start)
            self._print(f"proxy {proxy.name} started again, pid {proxy.process.pid}")

    # ------------------------------------------------------------ the end

    async def _wait_idle(self) -> bool:
        """Wait until nothing more comes, then have closing markers written; tell whether all that is owed came."""
        deadline = time.monotonic() + IDLE_S
        owed = check(self._published, {person.name: person.subscriptions for person in self._people}, {}).expected
        while (short := owed - self._delivered()) > 0 and time.monotonic() < deadline:
            self._progress.note = f"{short} still owed"
            await asyncio.sleep(0.2)
        self._progress.note = ""
        for person in self._people:
            if person.session is not None:
                await person.session.wait_attested()
        await asyncio.gather(*(asyncio.to_thread(self._mark, proxy) for proxy in self.cluster.proxies.values()))
        return short <= 0

    def _mark(self, proxy: ProxyProcess) -> None:
        """Have a closing marker written, and wait until everything below it is on record. Also if started by hand."""
        try:
            marker = int(proxy.request("/v1/marker", post=True)["offset"])
            deadline = time.monotonic() + MARKED_S
            while not _is_idle(proxy.request("/v1/status"), marker):
                if time.monotonic() > deadline:
                    raise Unreachable(f"{proxy.name} did not put all on record within {MARKED_S:g} s")
                time.sleep(0.05)
        except Unreachable as error:
            self._print(f"the audit will miss something: {error}")
        if not proxy.process.running and proxy.listening:
            self._print(f"proxy {proxy.name} was started by hand and goes on; end it with Ctrl-C")

    def _delivered(self) -> int:
        return sum(len({delivered.id for delivered in person.got}) for person in self._people)

    async def _tick(self) -> None:
        while True:
            self._progress.delivered = sum(len(person.got) for person in self._people)
            self._progress.moves = sum(len(person.moves_ms) for person in self._people)
            self._progress.online = sum(person.session is not None for person in self._people)
            self._show(self._progress)
            await asyncio.sleep(0.5)


def _is_idle(status: dict[str, Any], marker: int) -> bool:
    return bool(status["position"] > marker and status["unrecorded"] == 0)


async def _until(when: float) -> None:
    wait = when - time.monotonic()
    if wait > 0.002:
        await asyncio.sleep(wait)
