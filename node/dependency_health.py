"""What of a node's parts is not there at the moment: said once, counted, and waited for with back-off.

A part that comes and goes - a full disk takes what is small, and a registry on it can be read - is one outage: once it
was there and missing again, it counts as missing until nothing has missed it for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import structlog

from node.operator_log import RateLimitedLog
from waypost.clock import Clock, full_jitter_ms
from waypost.errors import (
    LogReplaced,
    LogUnavailable,
    Refused,
    RegistryUnavailable,
    StoreDamaged,
    Unreachable,
    WaypostError,
)

log = structlog.get_logger("waypost")


class Dependency(StrEnum):
    """What a node stands on, by name. Another site, and its changelog, have names of their own."""

    ALL = "parts"
    LOG = "log"
    APPENDS = "log appends"
    """A log that is read may take nothing: its disk is full."""
    REGISTRY = "registry"
    CHANGELOG = "changelog"
    JOURNAL = "journal"
    STORE = "store"


SITE = "site "
CHANGELOG_OF = "changelog of site "
"""With the name of a site."""
STALLED = "progress of "
"""With the name of what the watchdog sees standing still."""
OLD_MS = 60_000
STEADY_MS = 10_000
"""A part that is missing again within so long of coming back comes and goes; so long it must be there to count so."""
ANSWER_S = 15.0
"""So long a part may take for an answer before it counts as missing."""


class DependencyHealth:
    """Which parts are missing, by name."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        self._rng = rng
        self._clock = clock
        self._few = RateLimitedLog(clock)
        self._is_closed = False
        self._came_back_ms: dict[str, int] = {}
        """When a part was said to be there again."""
        self._unsteady: dict[str, bool] = {}
        """Parts that come and go, and whether they were there when last asked."""
        self.now: dict[str, str] = {}
        """What is not there, in words."""
        self._noticed_ms: dict[str, int] = {}
        self.outages: Counter[str] = Counter()
        """How often a part that had been there was not there any more, or not yet."""

    def close(self) -> None:
        """Say nothing more: the parts are about to be closed."""
        self._is_closed = True

    def unavailable(self, dependency: str, error: BaseException) -> None:
        if self._is_closed:
            return
        text, now_ms = str(error) or "no answer", self._clock.now_ms()
        if dependency in self._unsteady:
            self._unsteady[dependency] = False
        elif dependency not in self.now:
            self._begin(dependency, text, getattr(error, "hint", None), now_ms)
        self.now[dependency] = text
        self._noticed_ms[dependency] = now_ms

    def _begin(self, dependency: str, text: str, hint: str | None, now_ms: int) -> None:
        back_ms = self._came_back_ms.pop(dependency, None)
        if back_ms is not None and now_ms < back_ms + STEADY_MS:
            self._unsteady[dependency] = False
            write, event = log.warning, "part comes and goes; it counts as missing until it stays"
        else:
            self.outages[dependency] += 1
            write, event = log.warning, "part is not there; trying again"
        self._few.write(
            write, event, dependency, dependency=str(dependency), error=text, **({"hint": hint} if hint else {})
        )

    def available(self, dependency: str) -> None:
        if dependency in self._unsteady:
            self._unsteady[dependency] = True
            if self._clock.now_ms() < self._noticed_ms[dependency] + STEADY_MS:
                return
            del self._unsteady[dependency]
        if self.now.pop(dependency, None) is not None:
            self._came_back_ms[dependency] = self._clock.now_ms()
            self._few.write(log.info, "part is there again", dependency, dependency=str(dependency))

    def tick(self) -> None:
        """Do what is due; to be called every second or so."""
        self._few.report_suppressed()
        for part in [part for part, is_there in self._unsteady.items() if is_there]:
            self.available(part)
        self._forget_old()

    def _forget_old(self) -> None:
        """Another site is asked only when something is wanted of it: what nobody has noticed for a while is history."""
        for part in [each for each in self.now if each.startswith((SITE, CHANGELOG_OF))]:
            if self._clock.now_ms() >= self._noticed_ms[part] + OLD_MS:
                del self.now[part]
                self._unsteady.pop(part, None)
                log.info("part was not asked for a while", dependency=part)

    async def retry(
        self, dependency: str, action: Callable[[], Awaitable[Any]], within_s: float | None = ANSWER_S
    ) -> Any:
        """Do what needs a part that may not be there yet: say so, and try again with back-off.

        Raises Refused, LogReplaced and StoreDamaged as they come.

        A try that has not ended after `within_s` is broken off, and counts as one that failed.
        """
        attempt = 0
        missing: set[str] = set()
        while True:
            try:
                async with asyncio.timeout(within_s):
                    result = await action()
                for each in missing:
                    self.available(each)
                return result
            except (Refused, LogReplaced, StoreDamaged):
                raise
            except (WaypostError, TimeoutError) as error:
                name = getattr(error, "field", None) or dependency
                missing.add(name)
                self.unavailable(name, error)
            attempt += 1
            await asyncio.sleep(full_jitter_ms(attempt, self._rng) / 1000)


def dependency_of(error: Unreachable) -> str:
    """Return which part did not answer."""
    match error:
        case RegistryUnavailable():
            return Dependency.REGISTRY
        case LogUnavailable():
            return Dependency.LOG
        case _:
            return error.field or "another site"
