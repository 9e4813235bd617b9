"""Health of a node's dependencies: an outage is logged once, counted, and retried with back-off.

A dependency that comes and goes - a full disk takes small writes, and a registry on it can be read - is one outage: one
that is missing again within STEADY_MS counts as missing until it has answered for that long.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any

import structlog

from node.health.rate_limited_log import RateLimitedLog
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
    """The dependencies of a node, by name. Another site, and its changelog, have names of their own."""

    ALL = "parts"
    LOG = "log"
    APPENDS = "log appends"
    """A log that is read may take nothing: its disk is full."""
    REGISTRY = "registry"
    CHANGELOG = "changelog"
    JOURNAL = "journal"
    STORE = "store"


SITE = "site "
PROXY = "proxy "
"""With the name of a peer."""
CHANGELOG_OF = "changelog of site "
LINK_FROM = "link from "
"""With the name of a site."""
ENDED_CERTIFICATE = "certificate that has ended"
"""The node's own."""
STALLED = "progress of "
"""With the name of a thing that the watchdog sees standing still."""
OLD_MS = 60_000
STEADY_MS = 10_000
"""A dependency that is missing again sooner after it came back comes and goes; then it has to answer for so long."""
ANSWER_S = 15.0
"""A dependency that has not answered after so long counts as missing."""


class DependencyHealth:
    """The dependencies that are missing, by name.

    Args:
        rng: for the jitter of the back-off.
        log: where the site's log, journal and changelog are, as Kafka at HOST:PORT.
        registry: where the registry is.
    """

    def __init__(self, rng: random.Random, clock: Clock, log: str = "", registry: str = "") -> None:
        self._rng = rng
        self._clock = clock
        kept_in_log = (Dependency.LOG, Dependency.APPENDS, Dependency.CHANGELOG, Dependency.JOURNAL)
        self._places: dict[str, str] = {**dict.fromkeys(kept_in_log, log), Dependency.REGISTRY: registry}
        self._rate_limited = RateLimitedLog(clock)
        self._is_closed = False
        self._came_back_ms: dict[str, int] = {}
        """The time at which a dependency was last logged as there again."""
        self._unsteady: dict[str, bool] = {}
        """Dependencies that come and go -> whether they answered when last asked."""
        self.now: dict[str, str] = {}
        """Dependency that is missing -> its last error, in words."""
        self._noticed_ms: dict[str, int] = {}
        self.outages: Counter[str] = Counter()
        """Dependency -> number of outages."""

    def close(self) -> None:
        """Report nothing more as missing: the backends are about to be closed. Later calls of :meth:`unavailable` are
        ignored.
        """
        self._is_closed = True

    def unavailable(self, dependency: str, error: BaseException) -> None:
        """Note that a dependency did not answer; the first time of an outage, log the error's text and hint.

        Args:
            dependency: its name, by which it is counted: a :class:`Dependency`, or a prefix such as SITE with a name
                behind it.
        """
        if self._is_closed:
            return
        place, now_ms = self._places.get(dependency, ""), self._clock.now_ms()
        text = str(error) or (f"no answer from {place}" if place else "no answer")
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
            write, event = log.warning, "dependency comes and goes; it counts as missing until it stays"
        else:
            self.outages[dependency] += 1
            write, event = log.warning, "dependency is not there; trying again"
        self._rate_limited.write(
            write, event, dependency, dependency=str(dependency), error=text, **({"hint": hint} if hint else {})
        )

    def available(self, dependency: str) -> None:
        """Note that a dependency has answered, and log the end of its outage, if there was one.

        One that comes and goes counts as missing until it has answered for STEADY_MS.

        Args:
            dependency: as of :meth:`unavailable`.
        """
        if dependency in self._unsteady:
            self._unsteady[dependency] = True
            if self._clock.now_ms() < self._noticed_ms[dependency] + STEADY_MS:
                return
            del self._unsteady[dependency]
        if self.now.pop(dependency, None) is not None:
            self._came_back_ms[dependency] = self._clock.now_ms()
            self._rate_limited.write(log.info, "dependency is there again", dependency, dependency=str(dependency))

    def has_failed_within(self, dependency: str, within_ms: int) -> bool:
        """Tell whether a dependency is missing and failed to answer within the last `within_ms` milliseconds.

        For one that is asked only when it is needed: after a longer time it may be there again.
        """
        return dependency in self.now and self._clock.now_ms() < self._noticed_ms[dependency] + within_ms

    def tick(self) -> None:
        """End the outages that are over, and write suppressed log lines; call it about every second. An outage of
        another site or proxy, or of a link, ends without an answer once nobody has reported it for OLD_MS: it is asked
        only when it is needed.
        """
        self._rate_limited.report_suppressed()
        for dependency in [dependency for dependency, is_there in self._unsteady.items() if is_there]:
            self.available(dependency)
        self._forget_old()

    def _forget_old(self) -> None:
        """Drop outages that are older than OLD_MS of what is asked only when it is needed: another site or proxy, or a
        link that another proxy may lead by now.
        """
        for dependency in [name for name in self.now if name.startswith((SITE, PROXY, CHANGELOG_OF, LINK_FROM))]:
            if self._clock.now_ms() >= self._noticed_ms[dependency] + OLD_MS:
                self.drop(dependency, "it was not asked for a while")

    def drop(self, dependency: str, why: str) -> None:
        """End an outage without an answer, and log that; one that is not missing is ignored.

        Args:
            dependency: as of :meth:`unavailable`.
            why: the reason, in words.
        """
        if self.now.pop(dependency, None) is not None:
            self._unsteady.pop(dependency, None)
            log.info("nothing is known of the dependency any more", dependency=dependency, why=why)

    async def retry(
        self, dependency: str, action: Callable[[], Awaitable[Any]], within_s: float | None = ANSWER_S
    ) -> Any:
        """Return the result of an action that needs a dependency; report each failure, and try again with back-off, for
        ever. After a success, those reported by this call are reported as available; one that was reported elsewhere is
        not.

        Args:
            dependency: the name to report, where the error does not name another one by its `field`.
            action: one attempt; called again after each failure: a WaypostError, a TimeoutError, or an ExceptionGroup
                of several dependencies, whatever errors are in that; all others have answered then.
            within_s: an attempt that has not ended by then is cancelled, and has failed; None: wait for it.

        Raises:
            Refused, LogReplaced, StoreDamaged: as `action` raises them, not in an ExceptionGroup; they are not tried
                again.
            Exception: any other than those named above, as `action` raises it.
        """
        attempt = 0
        missing: set[str] = set()
        while True:
            try:
                async with asyncio.timeout(within_s):
                    result = await action()
                for name in missing:
                    self.available(name)
                return result
            except (Refused, LogReplaced, StoreDamaged):
                raise
            except (WaypostError, TimeoutError) as error:
                missing |= self._failed(dependency, [error])
            except ExceptionGroup as group:
                still_missing = self._failed(dependency, group.exceptions)
                for name in missing - still_missing:
                    self.available(name)
                missing = still_missing
            attempt += 1
            await asyncio.sleep(full_jitter_ms(attempt, self._rng) / 1000)

    def _failed(self, dependency: str, errors: Sequence[Exception]) -> set[str]:
        """Report each error; return the names of what is missing."""
        names = {getattr(error, "field", None) or dependency: error for error in errors}
        for name, error in names.items():
            self.unavailable(name, error)
        return set(names)


def dependency_of(error: Unreachable) -> str:
    """Return the name of the dependency that did not answer: by the error's type, or its `field`, or "another site". A
    LogUnavailable of a changelog or a journal counts as the site log's: the caller names those itself.
    """
    match error:
        case RegistryUnavailable():
            return Dependency.REGISTRY
        case LogUnavailable():
            return Dependency.LOG
        case _:
            return error.field or "another site"
