"""The site log behind its guard: appends wait until it was read, and what the guard asks is performed.

What is compared, and in which order, stands in node/machines/log_guard.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, assert_never

from federation.messages import SeenRequest, SeenResponse
from federation.ports import Registry, SiteLog
from node.machines.log_guard import (
    AppendRecord,
    AskWitnesses,
    ClaimLogRow,
    FindEnd,
    FindFirst,
    FindSeen,
    LogGuard,
    Procedure,
    Question,
    ReadLogRow,
    ReadRecords,
    Wait,
)
from node.machines.procedure import resume
from node.site_log.witnesses import Witnesses
from waypost.errors import LogReplaced, LogUnavailable, WaypostError
from waypost.identity import Origin

BEGIN_S = 15.0
"""Time that an append waits until the proxy has started, in seconds."""
READ_S = 0.01
"""The interval at which is checked whether the log was read."""


class GuardedLog:
    """One proxy's site log, as its guard lets it be used (handover rule 27).

    Args:
        guard: decides; it is used by this log alone.
        witnesses: the other proxies that may have seen something of the log.
    """

    def __init__(self, guard: LogGuard, site_log: SiteLog, registry: Registry, witnesses: Witnesses) -> None:
        self._guard = guard
        self._log = site_log
        self._registry = registry
        self._witnesses = witnesses
        self._replaced: asyncio.Future[LogReplaced] = asyncio.get_running_loop().create_future()
        self._replaced_in: int | None = None
        """The log epoch in which the log was found to be another one."""

    # ------------------------------------------------------------ appends

    @asynccontextmanager
    async def guard_append(self) -> AsyncIterator[None]:
        """Return a context in which one append to the log is made: it is entered once that may be
        (:attr:`LogGuard.may_append`).

        Raises:
            LogUnavailable: it may not be within BEGIN_S seconds.
            LogReplaced: the log is another one than was read, as this append has found or an earlier one; nothing is
                appended from then on.
        """
        if not self._guard.may_append:
            await self._until_it_may_append()
        with self.remember_replacement():
            yield

    async def _until_it_may_append(self) -> None:
        try:
            async with asyncio.timeout(BEGIN_S):
                while not (self._guard.may_append or self._replaced.done()):
                    await asyncio.sleep(READ_S)
        except TimeoutError:
            lacking = "compared its site's log with other proxies" if self._guard.is_read else "read its site's log"
            raise LogUnavailable(f"the proxy has not {lacking} within {BEGIN_S:g} s") from None

    @contextmanager
    def remember_replacement(self) -> Iterator[None]:
        """Return a context that remembers a LogReplaced which its block raises: nothing is appended from then on.

        Raises:
            LogReplaced: as the block raises it; at once where one was remembered before.
        """
        if self._replaced.done():
            raise self._replaced.result()
        try:
            yield
        except LogReplaced as error:
            if not self._replaced.done():
                self._replaced_in = self._guard.log_epoch
                self._replaced.set_result(error)
            raise

    async def until_replaced(self) -> None:
        """Wait until a LogReplaced was raised in one of the two contexts above, then raise that error."""
        raise await asyncio.shield(self._replaced)

    # ------------------------------------------------------------ what is known of it

    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """Note that a neighbour has seen an origin of this site up to `offset`, inclusive; the next :meth:`check`
        compares.
        """
        self._guard.seen_beyond(origin, offset)

    def answer(self, request: SeenRequest) -> SeenResponse | None:
        """Return what this proxy has seen of the origin that another one asks for; None: it does not know yet
        (:meth:`LogGuard.answer`).
        """
        return self._guard.answer(request, self._log.seen_below)

    def prepare_to_read(self) -> None:
        """Forget earlier comparisons. To be called before the end is asked for that :meth:`until_read` takes."""
        self._guard.prepare_to_read()

    async def until_read(self, end: int) -> None:
        """Wait until the log was read up to the offset `end`, or up to a lower end that a comparison found since."""
        while not self._guard.has_read(end):
            await asyncio.sleep(READ_S)

    # ------------------------------------------------------------ procedures

    async def identify(self) -> None:
        """Append the log's identity, as the registry has it, unless the log states that already
        (:meth:`LogGuard.identify`).

        To be run once, when the log was read up to where it ended.

        Raises:
            LogReplaced: the log has lost its end since it was read.
            WaypostError: the log or the registry does not answer; it may be run again.
        """
        await self._run_guarded(self._guard.identify())

    async def confirm(self) -> None:
        """Compare the log, once, with what the other proxies have seen of it (:meth:`LogGuard.confirm`).

        To be run when this process is announced, before it serves anything.

        Raises:
            LogReplaced: the log has lost its end, or has entered another log epoch.
            WaypostError: log or registry fail in another way than that they do not answer (Unreachable).
        """
        await self._run_guarded(self._guard.confirm())

    async def check(self, end: int, *, read_below: int, reports: bool) -> None:
        """Check that the log and its row in the registry are those that were read (:meth:`LogGuard.check`).

        Args:
            end: the offset behind the log's last record, as just looked up.
            read_below: the position up to which this process had read the log before that.
            reports: whether this proxy is the one of its site that reports to the registry how far the log was read.

        Raises:
            LogReplaced: the log has lost something that was seen, or has entered another log epoch.
            WaypostError: the log or the registry does not answer.
        """
        await self._run_guarded(self._guard.check(end, read_below=read_below, reports=reports))

    async def enter_next_epoch(self) -> None:
        """Have the registry enter the next log epoch, after LogReplaced (:meth:`LogGuard.enter_next_epoch`).

        Raises:
            WaypostError: the log or the registry does not answer.
        """
        end = self._replaced.result().end if self._replaced.done() else None
        await self._run(self._guard.enter_next_epoch(end, self._replaced_in))

    async def after_interruptions(self) -> None:
        """After each interruption, compare the log with what all proxies have seen (:meth:`LogGuard.compare`), then use
        it again.

        Runs for ever, as a task of its own.

        Raises:
            LogReplaced: the log has lost its end, or has entered another log epoch.
            WaypostError: log or registry fail in another way than that they do not answer (Unreachable).
        """
        while True:
            await self._log.interrupted()
            await self._run_guarded(self._guard.compare())
            self._log.resume()

    async def _run_guarded(self, procedure: Procedure) -> None:
        """Run a procedure that looks at the log; where it finds another one, :meth:`enter_next_epoch` knows from
        where on, also when the log has grown again by then.
        """
        with self.remember_replacement():
            await self._run(procedure)

    async def _run(self, procedure: Procedure) -> None:
        answer: Any = None
        while True:
            try:
                question = resume(procedure, answer)
            except StopIteration:
                return
            try:
                answer = await self._answer(question)
            except WaypostError as error:
                answer = error

    async def _answer(self, question: Question) -> Any:
        """Raises WaypostError."""
        match question:
            case FindFirst():
                return await self._log.first_offset()
            case FindEnd():
                return await self._log.end_offset()
            case ReadRecords(offset=offset, limit=limit):
                return await self._log.read(offset, limit)
            case FindSeen():
                return self._log.seen_below
            case AppendRecord(record=record):
                return await self._log.append([record])
            case ReadLogRow():
                return await self._registry.site_log(self._guard.site)
            case ClaimLogRow(expected=expected, new=new):
                return await self._registry.claim_site_log(self._guard.site, expected, new)
            case AskWitnesses(origin=origin, before=before):
                return await self._witnesses.ask(origin, before)
            case Wait(for_ms=for_ms):
                return await asyncio.sleep(for_ms / 1000)
            case _:
                assert_never(question)
