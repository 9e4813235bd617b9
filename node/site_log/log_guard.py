"""Reports to the registry how far the site log was read, and notices when the log has lost any of that.

Then the node begins anew: what it knows of the log may not be true of what the log is now (handover rule 27). The next
log epoch is decided in federation/log_epochs.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog

from federation.log_epochs import (
    as_lost,
    log_confirms,
    lost_above,
    raised,
    record_of,
    row_as_read,
    went_back,
    with_seen,
)
from federation.ports import Registry, SiteLog, SiteLogRow
from federation.site_state import SiteState
from node.site_log.witnesses import Witnesses
from waypost.errors import LogReplaced, LogUnavailable, Unreachable, WaypostError
from waypost.identity import NOTHING, Origin, log_epoch_of, origin_of
from waypost.limits import LOG_END_SURE_S

AGAIN_S = 0.2
"""After so long a request that failed is made again."""
BEGIN_S = 15.0
"""So long an append waits until the proxy has begun."""
READ_S = 0.01
"""The interval at which an append checks whether the log was read."""
log = structlog.get_logger("waypost")


class LogGuard:
    """One proxy's guard of the identity and the end of its site's log (handover rule 27).

    Args:
        state: the state of the site, folded from the log.
        federation: the identity of the federation.
        row: the identity of the log, as the registry had it when the proxy began.
        witnesses: the other proxies that may have seen something of the log.
    """

    def __init__(
        self,
        state: SiteState,
        site_log: SiteLog,
        registry: Registry,
        federation: str,
        row: SiteLogRow,
        witnesses: Witnesses,
    ) -> None:
        self._state = state
        self._log = site_log
        self._registry = registry
        self._federation = federation
        self._row = row
        self._witnesses = witnesses
        self._begun_in = row.log_epoch
        self._has_begun = False
        """The log says of itself what the registry says."""
        self._replaced: asyncio.Future[LogReplaced] = asyncio.get_running_loop().create_future()
        self._beyond: dict[Origin, int] = {}
        """What neighbours have seen further than we have, and that was not looked into yet."""

    # ------------------------------------------------------------ noticing

    @asynccontextmanager
    async def appending(self) -> AsyncIterator[None]:
        """Append once the log was read up to where it says of itself what the registry says.

        What stands before that is of an origin that may have ended.

        Raises:
            LogUnavailable: the log was not read so far within BEGIN_S seconds.
            LogReplaced: as :meth:`noticing`.
        """
        if not self._is_read():
            await self._until_read()
        with self.noticing():
            yield

    def _is_read(self) -> bool:
        return self._has_begun and log_epoch_of(self._state.origin) >= self._begun_in

    async def _until_read(self) -> None:
        try:
            async with asyncio.timeout(BEGIN_S):
                while not self._is_read():
                    await asyncio.sleep(READ_S)
        except TimeoutError:
            raise LogUnavailable(f"the proxy has not read its site's log to the end within {BEGIN_S:g} s") from None

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Notice a LogReplaced that the block raises. Nothing is appended from then on.

        Raises LogReplaced at once where that was noticed before.
        """
        if self._replaced.done():
            raise self._replaced.result()
        try:
            yield
        except LogReplaced as error:
            if not self._replaced.done():
                self._replaced.set_result(error)
            raise

    async def until_replaced(self) -> None:
        """Wait until :meth:`noticing` has seen that the log is another one than was read; then raise LogReplaced."""
        raise await asyncio.shield(self._replaced)

    def seen_beyond(self, origin: Origin, offset: int) -> None:
        """Note that a neighbour, whose proxies are proven, has seen an origin of this site up to `offset`."""
        self._beyond[origin] = max(offset, self._beyond.get(origin, offset))

    async def raise_epoch(self) -> None:
        """Have the registry enter the next log epoch, and say how far the lost one was read.

        To be called when the log is not what was read of it, while this proxy still knows how much that was. It goes on
        until the row says so, whoever wrote it.

        Raises:
            WaypostError: the log or the registry does not answer.
        """
        end, highest, log_epoch = (
            await self._log.end_offset(),
            self._state.position - 1,
            log_epoch_of(self._state.origin),
        )
        if self._replaced.done() and (known := self._replaced.result().end) is not None:
            # It may have grown again since.
            end = min(end, known)
        # The row may be another one than we know: others report how far they have read, and may have noticed too.
        while (new := as_lost(self._state.site, self._row, log_epoch, highest, end)) != self._row:
            if await self._claim(new):
                return

    async def after_interruptions(self) -> None:
        """Check after each interruption of the log that it still has all that was seen of it; for ever.

        All proxies of the site tell the registry what they have seen. Until that was compared nothing is appended: a
        proxy that has seen less than others would append at offsets that these take for repeats.

        Raises:
            LogReplaced: the log has lost its end.
        """
        while True:
            await self._log.interrupted()
            await self._retry(self._report_and_check)
            self._log.resume()

    def seen(self, origin: Origin) -> int:
        """Return the highest offset of an origin that this proxy has seen; -1: none."""
        known = self._state.frontier.get(origin, NOTHING)
        is_ours = origin == origin_of(self._state.site, log_epoch=self._log_epoch)
        return max(known, self._log.seen_below - 1, self._state.position - 1) if is_ours else known

    async def _report_and_check(self) -> None:
        """Raises LogReplaced: the log ends before what was seen of it."""
        origin = origin_of(self._state.site, log_epoch=self._log_epoch)
        await self._report(self.seen(origin))
        # The others may notice a little later, and the server is to be there again.
        await self._log.end_offset()
        await asyncio.sleep(LOG_END_SURE_S)
        highest = await self._witnesses.highest(origin)
        while True:
            await self._refresh()
            self._check_epoch()
            highest = max(highest, self._row.seen)
            if highest < (end := await self._log.end_offset()):
                return
            if await self._claim(raised(self._state.site, self._row, highest, end)):
                raise LogReplaced(f"the log ends at {end}, and was read up to {highest + 1}")

    async def _retry(self, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await ask()
                return
            except LogReplaced:
                raise
            except Unreachable as error:
                log.debug("the site log cannot be looked after now", error=str(error))
            await asyncio.sleep(AGAIN_S)

    async def check_end(self, end: int) -> None:
        """Check that the log still goes as far as it was read.

        Args:
            end: the offset behind its last record, as just read.

        Raises:
            LogReplaced: it ends before that, also after LOG_END_SURE_S seconds.
            WaypostError: the log does not answer.
        """
        if end < self._state.position:
            await asyncio.sleep(LOG_END_SURE_S)
            if (again := await self._log.end_offset()) < self._state.position:
                raise LogReplaced(f"the log ends at {again}, and was read up to {self._state.position}", end=again)

    # ------------------------------------------------------------ the registry's row

    @property
    def _log_epoch(self) -> int:
        """The log epoch of everything that this proxy appends, also before it has read of it."""
        return max(self._begun_in, log_epoch_of(self._state.origin))

    async def begin(self) -> None:
        """Append the identity of the log, as the registry has it, if the log does not say that of itself already.

        To be called once, when the log was read to its end; appends wait for it (:meth:`appending`).

        Raises:
            WaypostError: the log or the registry does not answer.
        """
        known = row_as_read(self._state.site, self._state.acceptance.mark, self._state.ended)
        while went_back(self._row, known) and not await self._claim(known):
            pass
        again = log_confirms(self._state, self._federation, self._row)
        if not again or await self._log.first_offset() > 0:
            await self._log.append([record_of(self._federation, self._row, again=again)])
        self._has_begun = True

    async def report(self) -> None:
        """Tell the registry how far the log was read. One proxy of a site does it. Raises WaypostError: no answer."""
        await self._report(self._state.position - 1)

    async def _report(self, seen: int) -> None:
        while self._has_begun and self._log_epoch == self._row.log_epoch and seen > self._row.seen:
            if await self._claim(self._row.model_copy(update={"seen": seen})):
                return

    async def check_remote_ends(self) -> None:
        """Check what :meth:`seen_beyond` has noted.

        Raises:
            LogReplaced: the log has lost what a neighbour has seen; the registry has the next log epoch then.
            WaypostError: the log or the registry does not answer.
        """
        while self._beyond:
            origin, offset = next(iter(self._beyond.items()))
            if origin == self._state.origin:
                is_done = await self._check_present(offset)
            else:
                is_done = await self._check_ended(origin, offset)
            if is_done and self._beyond.get(origin) == offset:
                del self._beyond[origin]

    async def _check_ended(self, origin: Origin, offset: int) -> bool:
        """Tell whether the registry has it now; False: somebody changed the row meanwhile."""
        new = with_seen(self._row, origin, offset)
        if new == self._row:
            return True
        if not await self._claim(new):
            return False
        await self._log.append([record_of(self._federation, new)])
        return True

    async def _check_present(self, offset: int) -> bool:
        """Return True: the log has it; False: somebody changed the row meanwhile. Raises LogReplaced: it is lost."""
        while (
            lost_above(self._state, offset, await self._log.end_offset()) is not None or self._state.position <= offset
        ):
            # Sure is what is so twice, and after all of it was read.
            await asyncio.sleep(LOG_END_SURE_S)
            end = lost_above(self._state, offset, await self._log.end_offset())
            if end is not None:
                break
        else:
            return True
        if not await self._claim(raised(self._state.site, self._row, offset, end)):
            self._check_epoch()
            return False
        log.warning(
            "a neighbour has seen more of the site log than it has; another log epoch begins",
            seen=offset,
            log_ends_at=end,
        )
        raise LogReplaced(f"the log ends at {end}, and a neighbour has seen it up to {offset}")

    async def _claim(self, new: SiteLogRow) -> bool:
        """Tell whether the row is `new` now; else read it again."""
        if await self._registry.claim_site_log(self._state.site, self._row, new):
            self._row = new
            return True
        await self._refresh()
        return False

    async def _refresh(self) -> None:
        row = await self._registry.site_log(self._state.site)
        if row is None or went_back(row, self._row):
            # The registry has lost it, or was restored from an older copy; nobody knows better than we do.
            await self._registry.claim_site_log(self._state.site, row, self._row)
            row = await self._registry.site_log(self._state.site)
        self._row = row or self._row

    def _check_epoch(self) -> None:
        """Raises LogReplaced: others know of a later log epoch than we have read of, or begun in."""
        if self._row.log_epoch > self._log_epoch:
            raise LogReplaced(f"the log has entered log epoch {self._row.log_epoch} meanwhile")

    async def watch(self, end: int, *, reports: bool) -> None:
        """Do all that is due now. A log or a registry that does not answer waits for the next call.

        Args:
            end: the offset behind the log's last record, as just read.
            reports: whether this proxy is the one of its site that reports to the registry.

        Raises:
            LogReplaced: the log has lost something that was seen, or entered another log epoch.
        """
        try:
            await self.check_end(end)
            await self._refresh()
            self._check_epoch()
            await self.check_remote_ends()
            if reports:
                await self.report()
        except LogReplaced:
            raise
        except WaypostError as error:
            log.debug("the site log cannot be looked after now", error=str(error))
