"""Catch-up: parts of an origin's own log, served to whoever must fetch them, and asked of other sites."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from federation.messages import CatchUp, CatchUpFailed, CaughtUp
from federation.ports import ProxyRow, SiteLog
from federation.site_state import SiteState
from node.peers import Peers
from waypost.errors import HistoryTruncated, Unreachable
from waypost.identity import SiteId
from waypost.limits import CATCH_UP_BATCH, CATCH_UP_BYTES, LOG_BATCH
from waypost.notification import read_body
from waypost.records import Forwarded, Published
from waypost.subscription import parse

ANSWER_S = 5.0


class History:
    """Serves catch-up from our own site log, whose offsets are the coordinates of its notifications."""

    def __init__(self, state: SiteState, log: SiteLog) -> None:
        self._state = state
        self._log = log

    async def answer(self, wanted: CatchUp) -> CaughtUp:
        """Return the next matches in (after, upto], in order, as many as an answer may hold.

        Raises:
            Unreachable: that origin is not ours, or the log does not answer.
        """
        if wanted.origin != self._state.origin:
            raise Unreachable(f"the origin of this site is {self._state.origin}, not {wanted.origin}")
        expressions = [parse(each) for each in wanted.expressions]
        found: list[Forwarded] = []
        through, size, first_kept = wanted.after, 0, 0
        while through < wanted.upto and len(found) < CATCH_UP_BATCH and size < CATCH_UP_BYTES:
            try:
                batch = await self._log.read(through + 1, LOG_BATCH)
            except HistoryTruncated as error:
                first_kept = error.first
                through = min(error.first - 1, wanted.upto)
                continue
            if not batch:
                break
            for offset, record in batch:
                if offset > wanted.upto or len(found) >= CATCH_UP_BATCH or size >= CATCH_UP_BYTES:
                    break
                through = offset
                if isinstance(record, Published):
                    attributes = read_body(record.body)
                    if any(expression.matches(attributes) for expression in expressions):
                        found.append(self._as_forwarded(offset, record))
                        size += len(record.body)
            else:
                continue
            if offset > wanted.upto:
                through = wanted.upto
        return CaughtUp(wanted.request, wanted.origin, found, through, first_kept)

    def _as_forwarded(self, offset: int, record: Published) -> Forwarded:
        return Forwarded(
            link=self._state.site,
            link_epoch=0,
            origin=self._state.origin,
            offset=offset,
            path=(self._state.site,),
            producer=record.producer,
            incarnation=record.incarnation,
            sequence=record.sequence,
            at_ms=record.at_ms,
            body=record.body,
        )


class Requests:
    """Asks proxies of other sites, a different one each time, and waits for their answers."""

    def __init__(self, peers: Peers, rows: Callable[[SiteId], list[ProxyRow]]) -> None:
        self._peers = peers
        self._rows = rows
        self._waiting: dict[int, asyncio.Future[CaughtUp]] = {}
        self._turn = 0

    async def ask(self, site: SiteId, wanted: CatchUp) -> CaughtUp:
        """Return the answer. Raises Unreachable: nobody there, no answer, or a refusal."""
        rows = self._rows(site)
        if not rows:
            raise Unreachable(f"no proxy of site {site} is known")
        self._turn += 1
        answer: asyncio.Future[CaughtUp] = asyncio.get_running_loop().create_future()
        self._waiting[wanted.request] = answer
        self._peers.send(rows[self._turn % len(rows)].proxy, wanted)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise Unreachable(f"site {site} did not answer within {ANSWER_S:g} s") from None
        finally:
            del self._waiting[wanted.request]

    def answer(self, message: CaughtUp | CatchUpFailed) -> None:
        waiting = self._waiting.get(message.request)
        if waiting is None or waiting.done():
            return
        if isinstance(message, CaughtUp):
            waiting.set_result(message)
        else:
            waiting.set_exception(Unreachable(message.reason))
