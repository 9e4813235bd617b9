"""What of a node's parts is not there at the moment: said once, counted, and waited for with back-off."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Any

import structlog

from waypost.clock import full_jitter_ms
from waypost.errors import LogReplaced, LogUnavailable, Refused, RegistryUnavailable, Unreachable, WaypostError

log = structlog.get_logger("waypost")


class Part(StrEnum):
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
OLD_S = 60.0
ANSWER_S = 15.0
"""So long a part may take for an answer before it counts as missing."""


class Troubles:
    """Which parts are missing, by name."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.now: dict[str, str] = {}
        """What is not there, in words."""
        self._noticed_s: dict[str, float] = {}
        self.outages: Counter[str] = Counter()
        """How often a part that had been there was not there any more, or not yet."""

    def missing(self, part: str, error: BaseException) -> None:
        text = str(error) or "no answer"
        if part not in self.now:
            self.outages[part] += 1
            log.warning("part is not there; trying again", part=part, error=text)
        self.now[part] = text
        self._noticed_s[part] = time.monotonic()

    def there(self, part: str) -> None:
        if self.now.pop(part, None) is not None:
            log.info("part is there again", part=part)

    def forget_old(self) -> None:
        """Another site is asked only when something is wanted of it: what nobody has noticed for a while is history."""
        for part in [each for each in self.now if each.startswith((SITE, CHANGELOG_OF))]:
            if time.monotonic() >= self._noticed_s[part] + OLD_S:
                del self.now[part]
                log.info("part was not asked for a while", part=part)

    async def patiently(
        self, part: str, action: Callable[[], Awaitable[Any]], within_s: float | None = ANSWER_S
    ) -> Any:
        """Do what needs a part that may not be there yet: say so, and try again with back-off. Raises Refused.

        A try that has not ended after `within_s` is broken off, and counts as one that failed.
        """
        attempt = 0
        missing: set[str] = set()
        while True:
            try:
                async with asyncio.timeout(within_s):
                    result = await action()
                for each in missing:
                    self.there(each)
                return result
            except (Refused, LogReplaced):
                raise
            except (WaypostError, TimeoutError) as error:
                name = getattr(error, "field", None) or part
                missing.add(name)
                self.missing(name, error)
            attempt += 1
            await asyncio.sleep(full_jitter_ms(attempt, self._chance) / 1000)


def part_of(error: Unreachable) -> str:
    """Return which part did not answer."""
    match error:
        case RegistryUnavailable():
            return Part.REGISTRY
        case LogUnavailable():
            return Part.LOG
        case _:
            return error.field or "another site"
