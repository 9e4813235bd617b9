"""Performs the engine's effects that are answered: each is one call of a backend, and nothing else."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, assert_never

import structlog

from node.configuration.config import NodeConfig
from node.health.dependency_health import CHANGELOG_OF, SITE, Dependency, DependencyHealth, dependency_of
from node.health.rate_limited_log import RateLimitedLog
from node.peers.history_requests import History, Requests
from node.peers.remote_changelogs import RemoteChangelogs
from node.security.password_hasher import Passwords
from node.security.tls import credentials_of
from node.startup.backends import Backends, changelog_locator, open_changelog
from proxy.core import effects
from proxy.core.counters import MILLISECONDS, Histogram
from proxy.core.environment import Environment
from waypost import cancellation
from waypost.checkpoint import Checkpoint
from waypost.clock import Clock
from waypost.errors import (
    BadRecord,
    CheckpointOutdated,
    Internal,
    LogUnavailable,
    RegistryUnavailable,
    StoreDamaged,
    StoreFailed,
    Unreachable,
    WaypostError,
)
from waypost.identity import SiteId

log = structlog.get_logger("waypost")


SILENT_MS = 5_000
"""Pause before a changelog of the site that did not answer in time is asked again, in ms."""


class EffectRunner:
    """Calls backends for the engine.

    Args:
        requests: asks other sites for parts of their logs.
        health: where a backend that does not answer is reported.

    Attributes:
        history: serves parts of this site's own log; set by :meth:`begin`.
    """

    history: History
    _backends: Backends
    _env: Environment

    def __init__(self, config: NodeConfig, requests: Requests, health: DependencyHealth, clock: Clock) -> None:
        self._site = SiteId(config.site)
        self._own_changelog = changelog_locator(config)
        self.requests = requests
        self._health = health
        self._clock = clock
        self._rate_limited = RateLimitedLog(clock)
        self._passwords = Passwords()
        self._foreign_changelogs = RemoteChangelogs(partial(open_changelog, credentials=credentials_of(config)))
        self.store_writes = Histogram(MILLISECONDS)
        """How long the store took for each batch, in milliseconds."""
        self.store_failures = 0
        self._silent_until_ms = 0
        self._under_way = 0
        self._waiting: dict[int, str] = {}
        """The effects under way, by number, oldest first."""

    def begin(self, backends: Backends, env: Environment) -> None:
        """Set the backends to call, once they are open. Call it on the event loop before :meth:`answer` and
        `until_damaged`.
        """
        self._damaged: asyncio.Future[StoreDamaged] = asyncio.get_running_loop().create_future()
        self._backends, self._env = backends, env
        self.history = History(env.state, backends.log)

    async def until_damaged(self) -> None:
        """Wait until an effect finds the store damaged, then raise that StoreDamaged. Call :meth:`begin` first."""
        raise await self._damaged

    async def close(self) -> None:
        """Close the password hasher's threads, and the changelogs of other sites; not the backends of :meth:`begin`."""
        self._passwords.close()
        await self._foreign_changelogs.close()

    @property
    def oldest(self) -> tuple[int, str] | None:
        """The number and the kind of the effect that has waited longest for its answer; None: nothing is under way."""
        return next(iter(self._waiting.items()), None)

    async def answer(self, effect: effects.PortCall) -> Any:
        """Perform an effect by one call of a backend; return what its `on_done` is to be called with, without calling
        that. Call :meth:`begin` first.

        Every failure is returned, as a WaypostError, and none is raised. A backend that does not answer is reported to
        the node's health.
        """
        dependency = self._request(effect)
        self._under_way += 1
        number = self._under_way
        self._waiting[number] = type(effect).__name__
        try:
            with cancellation.translated(lambda _: self._failed(effect, "the call was cancelled by a library")):
                answer = await self._call(effect)
        except CheckpointOutdated as error:
            self._health.available(dependency)
            return error
        except Unreachable as error:
            self._health.unavailable(dependency or dependency_of(error), error)
            return error
        except StoreFailed as error:
            if dependency:
                self._health.unavailable(dependency, error)
            if isinstance(error, StoreDamaged) and not self._damaged.done():
                self._damaged.set_result(error)
            return error
        except WaypostError as error:
            return error
        except Exception as fault:
            self._rate_limited.write(
                log.error,
                "a part failed in a way that it must not",
                type(fault),
                effect=type(effect).__name__,
                exc_info=fault,
            )
            return self._failed(effect, f"{type(fault).__name__}: {fault}")
        finally:
            del self._waiting[number]
        if dependency:
            self._health.available(dependency)
        return answer

    def _failed(self, effect: effects.PortCall, why: str) -> WaypostError:
        """Return the error of the effect's port for a failure that the port does not know: as if it did not answer."""
        match effect:
            case (
                effects.Append()
                | effects.FindLogEnd()
                | effects.PutCheckpoint()
                | effects.PutSite()
                | effects.FindCheckpoint()
                | effects.ForgetCheckpoints()
            ):
                return LogUnavailable(why)
            case (
                effects.CreateRow()
                | effects.ClaimRow()
                | effects.ReadRow()
                | effects.ForgetRows()
                | effects.NoteCheckpoints()
            ):
                return RegistryUnavailable(why)
            case effects.Save() | effects.LoadEntries() | effects.FindOutdated():
                return StoreFailed(why)
            case effects.FetchHistory() | effects.Verify() | effects.Hash():
                return Internal(why)
            case _:
                assert_never(effect)

    def _request(self, effect: effects.PortCall) -> str:
        """Return the dependency that an effect needs, where an error does not name it; else ""."""
        match effect:
            case effects.Append():
                return Dependency.APPENDS
            case effects.FetchHistory() if effect.site != self._site:
                return SITE + effect.site
            case effects.PutCheckpoint() | effects.PutSite() | effects.FindCheckpoint() | effects.ForgetCheckpoints():
                return Dependency.CHANGELOG
            case effects.Save():
                return Dependency.STORE
            case _:
                return ""

    async def _call(self, effect: effects.PortCall) -> Any:  # noqa: PLR0912 - a dispatch
        parts = self._backends
        match effect:
            case effects.Append():
                return await parts.log.append(effect.records)
            case effects.CreateRow():
                return await parts.registry.create(effect.session, effect.ownership)
            case effects.ClaimRow():
                return await parts.registry.claim(effect.session, effect.expected, effect.new)
            case effects.ReadRow():
                return await parts.registry.owner(effect.session)
            case effects.ForgetRows():
                return await parts.registry.forget(effect.rows)
            case effects.ForgetCheckpoints():
                return await parts.changelog.forget(effect.deleted)
            case effects.Save():
                return await self._store(effect)
            case effects.LoadEntries():
                return await parts.store.entries(effect.session, effect.after, effect.limit, effect.passing)
            case effects.FindOutdated():
                return await parts.store.outdated(effect.session, effect.windows, effect.limit)
            case effects.NoteCheckpoints():
                return await parts.registry.note_checkpoints(effect.ranks)
            case effects.PutCheckpoint():
                return await parts.changelog.put(effect.checkpoint)
            case effects.PutSite():
                return await parts.changelog.put_site(effect.snapshot)
            case effects.FindCheckpoint():
                return await self._find_checkpoint(effect)
            case effects.FetchHistory():
                return await self._fetch_history(effect)
            case effects.FindLogEnd():
                return await parts.log.end_offset()
            case effects.Verify():
                return await self._passwords.verify(effect.password, effect.hash)
            case effects.Hash():
                return await self._passwords.hash(effect.passwords)
            case _:
                assert_never(effect)

    async def _store(self, effect: effects.Save) -> None:
        began = self._clock.now_ms()
        try:
            await self._backends.store.apply(effect.batch)
        except StoreFailed:
            self.store_failures += 1
            raise
        self.store_writes.note(self._clock.now_ms() - began)

    async def _fetch_history(self, effect: effects.FetchHistory) -> effects.History:
        if effect.site == self._site:
            answer = await self.history.answer(effect.wanted)
        else:
            answer = await self.requests.ask(effect.site, effect.wanted)
        return effects.History(answer.records, answer.through, answer.first_kept, answer.lost_above, answer.damaged)

    async def _find_checkpoint(self, effect: effects.FindCheckpoint) -> effects.FoundCheckpoint:
        """Return the last checkpoints that the changelog of this site has, or those of all known sites.

        The registry's note is read first: a checkpoint that it names was durable before.

        Raises:
            LogUnavailable: the changelog of this site does not answer.
        """
        noted = None if effect.own_site else await self._backends.registry.noted_checkpoint(effect.session)
        damaged, own = "", tuple[Checkpoint, ...]()
        try:
            own = await self._own_checkpoints(effect)
        except BadRecord as error:
            damaged = error.message
        if effect.own_site:
            return effects.FoundCheckpoint(own, complete=True, damaged=damaged)
        others = {
            site: locator for site, locator in self._env.cluster.changelogs.items() if locator != self._own_changelog
        }
        found = await self._foreign_changelogs.latest(effect.session, others, effect.within_ms)
        for site in others:
            if isinstance(missing := found.missing.get(site), BadRecord):
                damaged = missing.message
            elif missing is not None:
                self._health.unavailable(CHANGELOG_OF + site, missing)
            else:
                self._health.available(CHANGELOG_OF + site)
        checkpoints = (*own, *found.checkpoints)
        complete = all(isinstance(error, BadRecord) for error in found.missing.values())
        return effects.FoundCheckpoint(checkpoints, complete, damaged, noted)

    async def _own_checkpoints(self, effect: effects.FindCheckpoint) -> tuple[Checkpoint, ...]:
        """Ask the changelog of this site. Where it was silent a moment ago, who has no time to wait does not.

        Raises:
            LogUnavailable, BadRecord: it has not answered in time, or what it has cannot be read.
        """
        if effect.within_ms is None:
            return await self._backends.changelog.latest(effect.session)
        silent = LogUnavailable("the changelog of this site does not answer")
        if self._clock.now_ms() < self._silent_until_ms:
            raise silent
        try:
            async with asyncio.timeout(effect.within_ms / 1_000):
                return await self._backends.changelog.latest(effect.session)
        except TimeoutError:
            self._silent_until_ms = self._clock.now_ms() + SILENT_MS
            raise silent from None
