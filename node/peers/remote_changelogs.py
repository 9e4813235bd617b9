"""Changelogs of other sites, for a session whose owner is dead: opened when they are first asked, and each once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from federation.ports import Changelog
from waypost.checkpoint import Checkpoint
from waypost.errors import Unreachable, WaypostError
from waypost.identity import SessionId, SiteId

OPENING_MS = 5_000
"""The least timeout of a changelog's first answer, for which it is opened and read."""


class Found(NamedTuple):
    """The checkpoints of a session in several changelogs, and the error of each changelog that could not be read."""

    checkpoints: list[Checkpoint]
    missing: dict[SiteId, WaypostError]


class RemoteChangelogs:
    """Changelogs of other sites, by locator.

    Args:
        open_: returns the changelog at a locator, not started yet.
    """

    def __init__(self, open_: Callable[[str], Changelog]) -> None:
        self._open = open_
        self._opened: dict[str, asyncio.Task[Changelog]] = {}
        self._asked: set[str] = set()
        """Locators that were asked before."""

    async def at(self, locator: str) -> Changelog:
        """Return the changelog at a locator, started; it is opened once, whoever asks.

        Raises:
            BadConfiguration: there can be none at this locator, or its file is of an earlier build.
            Unreachable: its server does not answer; the next call tries again.
        """
        opened = self._opened.get(locator)
        if opened is None:
            opened = self._opened[locator] = asyncio.create_task(self._start(locator), name=f"changelog {locator}")
            # The caller may have waited for long enough before it fails.
            opened.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(opened)

    async def _start(self, locator: str) -> Changelog:
        changelog: Changelog | None = None
        try:
            changelog = self._open(locator)
            await changelog.start()
        except BaseException:
            del self._opened[locator]
            if changelog is not None:
                # Not every adapter ends what it has begun where its start fails.
                with suppress(Exception):
                    await changelog.close()
            raise
        return changelog

    async def latest(self, session: SessionId, sites: Mapping[SiteId, str], within_ms: int | None = None) -> Found:
        """Return the last checkpoints of a session in each of these changelogs; an error of one is in `missing`.

        Args:
            sites: site -> locator of its changelog.
            within_ms: a changelog that has not answered by then is missing; None: wait for it. The first answer of a
                changelog has OPENING_MS at least.
        """
        answers = await asyncio.gather(*(self._ask(session, locator, within_ms) for locator in sites.values()))
        return Found(
            [checkpoint for answer in answers if not isinstance(answer, WaypostError) for checkpoint in answer],
            {site: answer for site, answer in zip(sites, answers, strict=True) if isinstance(answer, WaypostError)},
        )

    async def _ask(
        self, session: SessionId, locator: str, within_ms: int | None
    ) -> tuple[Checkpoint, ...] | WaypostError:
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
        """Close all changelogs, also those that are being opened."""
        opened = list(self._opened.values())
        for opening in opened:
            opening.cancel()
        for found in await asyncio.gather(*opened, return_exceptions=True):
            if not isinstance(found, BaseException):
                await found.close()
