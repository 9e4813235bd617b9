"""Changelogs of other sites, for a session whose owner is dead: opened when they are first asked, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from federation.ports import Changelog
from waypost.checkpoint import Checkpoint
from waypost.errors import Unreachable, WaypostError
from waypost.identity import SessionId, SiteId

OPENING_MS = 5_000
"""So long the first answer of a changelog is waited for at least: it is opened and read for that."""


class Found(NamedTuple):
    """What changelogs have of a session, and which of them could not be read."""

    checkpoints: list[Checkpoint]
    missing: dict[SiteId, WaypostError]


class RemoteChangelogs:
    """Open changelogs, by where they are.

    Args:
        open_: makes one, which is not started yet.
    """

    def __init__(self, open_: Callable[[str], Changelog]) -> None:
        self._open = open_
        self._opened: dict[str, asyncio.Task[Changelog]] = {}
        self._asked: set[str] = set()
        """Where somebody has asked before."""

    async def at(self, locator: str) -> Changelog:
        """Return the one that is there, started; whoever asks meanwhile waits for the same. Raises Unreachable."""
        opened = self._opened.get(locator)
        if opened is None:
            opened = self._opened[locator] = asyncio.create_task(self._start(locator), name=f"changelog {locator}")
        return await asyncio.shield(opened)

    async def _start(self, locator: str) -> Changelog:
        try:
            changelog = self._open(locator)
            await changelog.start()
        except BaseException:
            del self._opened[locator]
            raise
        return changelog

    async def latest(self, session: SessionId, sites: Mapping[SiteId, str], within_ms: int | None = None) -> Found:
        """Look for the last checkpoint of the session in the changelogs of these sites, by where they are.

        Args:
            within_ms: a changelog that has not answered by then counts as away; None: wait.
        """
        answers = await asyncio.gather(*(self._ask(session, locator, within_ms) for locator in sites.values()))
        return Found(
            [answer for answer in answers if isinstance(answer, Checkpoint)],
            {site: answer for site, answer in zip(sites, answers, strict=True) if isinstance(answer, WaypostError)},
        )

    async def _ask(self, session: SessionId, locator: str, within_ms: int | None) -> Checkpoint | WaypostError | None:
        try:
            if within_ms is not None and locator not in self._asked:
                within_ms = max(within_ms, OPENING_MS)
            self._asked.add(locator)
            async with asyncio.timeout(None if within_ms is None else within_ms / 1000):
                return await (await self.at(locator)).latest(session)
        except WaypostError as error:
            return error
        except TimeoutError:
            return Unreachable(f"the changelog at {locator} has not answered for {within_ms} ms")

    async def close(self) -> None:
        opened = list(self._opened.values())
        for each in opened:
            each.cancel()
        for found in await asyncio.gather(*opened, return_exceptions=True):
            if not isinstance(found, BaseException):
                await found.close()
