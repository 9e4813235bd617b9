"""Catch-up: parts of an origin's own log, served to proxies that have to fetch them, and requested of other sites."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import msgspec

from federation.messages import CatchUp, CatchUpFailed, CaughtUp
from federation.ports import SiteLog
from federation.site.history import HistoryAnswer
from federation.site.state import SiteState
from node.peers.directory import Directory
from node.peers.peers import Peers
from node.resources.loop_turns import in_turns
from waypost.errors import HistoryTruncated, Unreachable
from waypost.identity import Origin, ProxyId, SiteId
from waypost.limits import HISTORIES_AT_ONCE, LOG_BATCH

ANSWER_S = 5.0


class History:
    """Serves catch-up from our own site log."""

    def __init__(self, state: SiteState, log: SiteLog) -> None:
        self._state = state
        self._log = log
        self._turns = asyncio.Semaphore(HISTORIES_AT_ONCE)

    async def serve(self, wanted: CatchUp) -> CaughtUp | None:
        """Return what :meth:`answer` returns, to a proxy of another site, in its turn: of such requests
        HISTORIES_AT_ONCE are answered at a time. None: its turn came after ANSWER_S seconds, when nobody waits for it
        any more, and a proxy that still wants it has asked again.

        Raises:
            Unreachable: as :meth:`answer`.
        """
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._turns:
            return await self.answer(wanted) if loop.time() < asked_at + ANSWER_S else None

    async def answer(self, wanted: CatchUp) -> CaughtUp:
        """Return the next notifications of this site's log that match a request, as many as an answer may hold.

        Raises:
            Unreachable: the origin is none of this site, or the log does not answer.
        """
        answering = HistoryAnswer(self._state, wanted)
        while (offset := answering.wanted_from) is not None:
            try:
                batch = await self._log.read(offset, LOG_BATCH)
            except HistoryTruncated as error:
                answering.truncated(error.first)
            else:
                # One at a time: the expressions may take long, and others have their turn in between.
                await in_turns(map(answering.add, [[record] for record in batch] or [[]]))
        if answering.mark is not None:
            try:
                answering.compare(await self._log.read(answering.mark, 1))
            except HistoryTruncated as error:
                answering.removed(error.first)
        return answering.answer()


class Requests:
    """Asks proxies of other sites, a different one each time, and waits for their answers.

    Args:
        directory: of the node: who lives where.
    """

    def __init__(self, peers: Peers, directory: Directory) -> None:
        self._peers = peers
        self._directory = directory
        self._waiting: dict[int, _Question] = {}
        # No answer to a question of an earlier process counts, which had the name of this one.
        self._number = random.getrandbits(40)
        self._turn = 0

    async def ask(self, site: SiteId, wanted: CatchUp) -> CaughtUp:
        """Send a request to a live proxy of the site, a different one each time; return the answer.

        Args:
            site: another site than this one.
            wanted: it is sent with another number than its own.

        Raises:
            Unreachable: the site has no live proxy, it did not answer within ANSWER_S seconds, it failed, or its answer
                has records of another origin.
        """
        rows = [row for row in self._directory.live() if row.site == site]
        if not rows:
            raise Unreachable(f"no proxy of site {site} is known")
        self._turn += 1
        self._number = number = self._number + 1
        peer = rows[self._turn % len(rows)].proxy
        answer: asyncio.Future[CaughtUp] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Question(peer, wanted.origin, answer)
        self._peers.send(peer, msgspec.structs.replace(wanted, request=number))
        try:
            async with asyncio.timeout(ANSWER_S):
                return await answer
        except TimeoutError:
            raise Unreachable(f"site {site} did not answer within {ANSWER_S:g} s") from None
        finally:
            del self._waiting[number]

    def answer(self, peer: ProxyId, message: CaughtUp | CatchUpFailed) -> None:
        """Give a message of a peer to the call of :meth:`ask` that waits for it; drop it where none waits any more, or
        it is not what that one asked this peer for.
        """
        question = self._waiting.get(message.request)
        if question is None or question.answer.done() or (peer, message.origin) != (question.peer, question.origin):
            return
        if isinstance(message, CatchUpFailed):
            question.answer.set_exception(Unreachable(message.reason))
        elif any(record.origin != question.origin for record in message.records):
            question.answer.set_exception(Unreachable(f"{peer} answered with records of another origin"))
        else:
            question.answer.set_result(message)


class _Question(NamedTuple):
    """What is asked of a peer: the history of an origin."""

    peer: ProxyId
    origin: Origin
    answer: asyncio.Future[CaughtUp]
