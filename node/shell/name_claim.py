"""The claim of a proxy's name in the registry: each incarnation is announced once, and its lease is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from federation.names import NameInUse
from federation.ports import Lease, ProxyRow
from node.configuration.config import NodeConfig
from node.health.dependency_health import Dependency, DependencyHealth
from node.machines.lease_keeper import NameWait
from node.shell.lease_renewal import Heart, LeaseRenewal, Renewals
from node.startup.backends import Backends, changelog_locator
from node.startup.instance import Instance
from waypost.clock import Clock
from waypost.errors import WaypostError
from waypost.identity import Incarnation, ProxyId, SiteId

log = structlog.get_logger("waypost")

NAME_POLL_S = 0.25


class NameClaim:
    """The claim of this proxy's name, for one incarnation after the other.

    Args:
        config: of the node.
        instance: the identity of this proxy, in its folder.
        backends: the registry among them.
        health: is told whether the registry answers.
        clock: the one by which leases count.
        url: returns the address at which this node is reached.
    """

    def __init__(
        self,
        config: NodeConfig,
        instance: Instance,
        backends: Backends,
        health: DependencyHealth,
        clock: Clock,
        url: Callable[[], str],
    ) -> None:
        self._config = config
        self._instance = instance
        self._backends = backends
        self._health = health
        self._clock = clock
        self._url = url
        self._replaces = config.replace
        self.waits_for = ""
        """The address of the process that has our name, while we wait for its lease to end; "": we do not."""
        self.ended: tuple[Incarnation, ...] = ()
        """Incarnations that had our name before, and have ended."""
        self.lease: Lease | None = None
        """The last one that we had; None: we have had none."""
        self.renewals = 0
        """How often a lease was renewed."""

    async def claim(self, incarnation: Incarnation) -> int:
        """Announce this incarnation under a lease, which :attr:`lease` is then; return when the call of the registry
        began that made it, in ms of the clock: the lease counts from then.

        Waits for the lease of another holder of the name to end, and for the registry to answer.

        Raises:
            NameInUse: the holder has renewed its lease, and keeps the name.
            Refused: as the registry refuses the announcement.
        """
        earlier = self.ended = tuple(self._instance.earlier)
        await asyncio.to_thread(self._instance.record_incarnation, incarnation)
        wait = NameWait(self._config.lease_ttl_ms)
        began = 0

        async def announce() -> Lease:
            nonlocal began
            # Of each try: the registry may be away for long in between.
            began = self._clock.now_ms()
            return await self._announce(incarnation, earlier)

        while True:
            try:
                self.lease = await self._health.retry(Dependency.REGISTRY, announce)
                self.waits_for = ""
                self._replaces = False
                return began
            except NameInUse as error:
                if wait.is_over(began, error.holder.lease_ttl_ms):
                    raise
                if not self.waits_for:
                    self.waits_for = error.holder.url
                    self.ended = (*earlier, error.holder.incarnation)
                    log.warning(
                        "the name is in use; waiting for its lease to end",
                        proxy=self._config.name,
                        url=error.holder.url,
                    )
            await asyncio.sleep(NAME_POLL_S)

    async def _announce(self, incarnation: Incarnation, earlier: tuple[Incarnation, ...]) -> Lease:
        ttl_ms = self._config.lease_ttl_ms
        row = ProxyRow(
            proxy=ProxyId(self._config.name),
            incarnation=incarnation,
            site=SiteId(self._config.site),
            url=self._url(),
            changelog=changelog_locator(self._config),
            instance=self._instance.id,
            lease_ttl_ms=ttl_ms,
        )
        # A row that this call itself had announced, before its answer was lost, is not another process's.
        return await self._backends.registry.announce(
            row, ttl_ms, earlier=(*earlier, incarnation), replace=self._replaces
        )

    async def keep(self, heart: Heart, renewed: Callable[[int], None]) -> None:
        """Renew the lease of the last :meth:`claim`, which comes first, again and again; return when the lease has
        ended for good. A renewal that the registry does not answer is reported to the node's health, and tried again.

        Args:
            heart: of the node's loop; while it does not beat, nothing is renewed by a thread.
            renewed: called after each renewal with the time until which the lease holds, in ms of the clock.

        Raises:
            Exception: as :meth:`node.shell.lease_renewal.LeaseRenewal.keep` raises it, or a renewal failed by a fault
                that no port documents.
        """
        lease = self.lease
        assert lease is not None, "there is a lease to keep"

        def on_renewed(until_ms: int) -> None:
            self._health.available(Dependency.REGISTRY)
            self.renewals += 1
            renewed(until_ms)

        if self._backends.renewing is not None:
            renewal = LeaseRenewal(self._backends.renewing, self._clock, heart, on_renewed, self._not_renewed)
            await renewal.keep(lease)
            return
        renewals = Renewals(lease.renew, lease.ttl_ms, self._clock)
        while True:
            await asyncio.sleep(renewals.pause_s())
            try:
                until_ms = await renewals.renew()
            except (WaypostError, TimeoutError) as error:
                self._not_renewed(error)
            else:
                if until_ms is None:
                    return
                on_renewed(until_ms)

    def _not_renewed(self, error: Exception) -> None:
        self._health.unavailable(Dependency.REGISTRY, error)

    def is_earlier(self, row: ProxyRow) -> bool:
        """Tell whether a row is of an earlier incarnation of this proxy, by its incarnation or its address.

        A registry that was restored from an older copy has such a row again. No other process can be where this one
        listens; if the row is renewed all the same, the next :meth:`claim` says so.
        """
        return row.incarnation in self._instance.earlier or row.url == self._url()
