"""Where ports meet adapters: the backends of a node, opened by its configuration."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import structlog

from federation.credentials import Credentials
from federation.endpoints import Endpoints
from federation.journal_segments import Rotation
from federation.ports import Changelog, Journal, LeaseRenewer, Registry, SiteLog
from node.configuration.config import NodeConfig
from node.health.dependency_health import Dependency
from node.security.tls import credentials_of
from node.session_store.sqlite import SqliteSessionStore
from proxy.core.store_port import SessionStore
from waypost.errors import BadConfiguration, Unreachable
from waypost.identity import Incarnation

if TYPE_CHECKING:
    from federation.embedded.registry import EmbeddedRegistry
    from federation.etcd import EtcdRegistry
    from federation.kafka.replication import Replication

log = structlog.get_logger("waypost")
START_S = 4.0
"""Time for a backend to start before it counts as unreachable, in seconds."""
RENEWAL_ATTEMPTS = 6
"""A renewal asks so many members of etcd, one after the other, within the time to live of the lease."""


class _KafkaSettings(TypedDict):
    replication: Replication
    credentials: Credentials | None
    warn: Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """The backends of one node, which are started.

    Args:
        log: the site log.
        registry: the registry of the federation.
        changelog: where checkpoints of this site's sessions are.
        journal: where this proxy's facts are.
        store: this proxy's own sessions and entries.
    """

    log: SiteLog
    registry: Registry
    changelog: Changelog
    journal: Journal
    store: SessionStore
    renewing: Callable[[], LeaseRenewer] | None = None
    """Opens another connection to the registry, to renew a lease from a thread; None: there can be none."""

    async def close(self) -> None:
        """Close all backends at the same time, so that those that do not answer cost one timeout together."""
        parts = (self.journal, self.changelog, self.log, self.registry, self.store)
        await asyncio.gather(*(part.close() for part in parts))


def site_folder(config: NodeConfig) -> Path:
    """Return the folder of the embedded backends that the proxies of the site share."""
    return config.data / "sites" / config.site


def own_folder(config: NodeConfig) -> Path:
    """Return the folder of this proxy alone: its store, its lock and its identity."""
    return config.data / "proxies" / config.name


def topic(config: NodeConfig, kind: str) -> str:
    """Return the name of a Kafka topic of the site; `kind` is "log", "changelog" or "journal"."""
    return f"{config.prefix}.{config.site}.{kind}"


def changelog_locator(config: NodeConfig) -> str:
    """Return the locator by which proxies of other sites open this site's changelog (:func:`open_changelog`)."""
    if config.kafka:
        return f"kafka:{config.kafka}/{topic(config, 'changelog')}"
    return f"file:{(site_folder(config) / 'changelog.db').resolve()}"


def open_changelog(locator: str, credentials: Credentials | None) -> Changelog:
    """Return a reader of another site's changelog; not started yet.

    Args:
        locator: as :func:`changelog_locator` gives it: file:PATH or kafka:BOOTSTRAP/TOPIC.
        credentials: for Kafka over TLS; None: in the clear.

    Raises:
        BadConfiguration: the locator is neither.
    """
    kind, _, address = locator.partition(":")
    if kind == "file":
        from federation.embedded.changelog import EmbeddedChangelog

        return EmbeddedChangelog(Path(address), make=False)
    if kind == "kafka":
        from federation.kafka import KafkaChangelog

        bootstrap, _, name = address.partition("/")
        return KafkaChangelog(bootstrap, name, credentials=credentials, make=False)
    raise BadConfiguration(f"{locator!r} is no address of a changelog", field="changelog")


async def open_backends(config: NodeConfig, incarnation: Incarnation) -> Backends:
    """Return the backends, started; the store is open, and not loaded.

    Args:
        incarnation: of this proxy; it names the writer's part of the journal.

    Raises:
        ExceptionGroup: of Unreachable, one for each server that does not answer within START_S seconds; `field` names a
            backend there. The others are closed again.
        BadConfiguration: a file that :func:`node.security.tls.credentials_of` reads cannot be used.
        WaypostError: any other error with which a backend refuses to start; all are closed again.
    """
    site_log, changelog, journal = (_kafka if config.kafka else _embedded)(config, incarnation)
    endpoints = _etcd_endpoints(config) if config.etcd else None
    store = SqliteSessionStore(own_folder(config) / "store.db")
    backends = Backends(
        log=site_log,
        registry=open_registry(config, endpoints),
        changelog=changelog,
        journal=journal,
        store=store,
        renewing=partial(_open_renewer, config, endpoints),
    )
    try:
        answers = await asyncio.gather(
            _start(Dependency.REGISTRY, backends.registry, config.etcd),
            _start(Dependency.LOG, site_log, config.kafka),
            _start(Dependency.CHANGELOG, changelog, config.kafka),
            _start(Dependency.JOURNAL, journal, config.kafka),
            return_exceptions=True,
        )
        _check_started(answers[:1], answers[1:])
    except BaseException:
        await backends.close()
        raise
    return backends


def _check_started(*servers: Sequence[BaseException | None]) -> None:
    """Raise what is missing, once for each server."""
    for error in chain(*servers):
        if error is not None and not isinstance(error, Unreachable):
            raise error
    missing = [[error for error in answers if isinstance(error, Unreachable)][:1] for answers in servers]
    if errors := [*chain(*missing)]:
        raise ExceptionGroup("servers do not answer", errors)


async def _start(name: Dependency, backend: SiteLog | Changelog | Journal | Registry, address: str) -> None:
    """Start a backend. `address`: of its server; "": it is embedded."""
    try:
        async with asyncio.timeout(START_S):
            await backend.start()
    except Unreachable as error:
        error.field = name
        raise
    except TimeoutError:
        where = f" from {address}" if address else ""
        hint = (
            f"is the right server at {address}, and does it speak TLS or not, as this proxy does?" if address else None
        )
        raise Unreachable(f"no answer within {START_S:g} s{where}", field=name, hint=hint) from None


def registry_file(config: NodeConfig) -> Path:
    """Return the file of the embedded registry."""
    return config.data / "registry.db"


def _etcd_endpoints(config: NodeConfig) -> Endpoints:
    # gRPC writes to stderr on its own, and looks at this when it is imported: what is wrong we say ourselves.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from federation.etcd import endpoints_of

    return endpoints_of(config.etcd)


def open_registry(config: NodeConfig, endpoints: Endpoints | None = None) -> EmbeddedRegistry | EtcdRegistry:
    """Return the federation's registry, etcd if the configuration names it, else the embedded one; not started yet.

    Args:
        endpoints: of etcd, shared with other handles; None: this handle has its own.

    Raises:
        BadConfiguration: a file that :func:`node.security.tls.credentials_of` reads cannot be used.
    """
    if config.etcd:
        endpoints = endpoints or _etcd_endpoints(config)
        from federation.etcd import EtcdRegistry

        return EtcdRegistry(
            endpoints, f"/{config.prefix}/", compact_s=config.etcd_compact_s, credentials=credentials_of(config)
        )
    return _embedded_registry(config)


def _embedded_registry(config: NodeConfig) -> EmbeddedRegistry:
    from federation.embedded.registry import EmbeddedRegistry

    return EmbeddedRegistry(registry_file(config), durable=config.durable)


def _open_renewer(config: NodeConfig, endpoints: Endpoints | None) -> LeaseRenewer:
    """Return another connection to the registry, for a thread that renews leases."""
    if endpoints is None:
        return _embedded_registry(config)
    from federation.etcd import DEADLINE_S, EtcdLeaseRenewer

    # Where there are other members, they have to be asked before the lease ends.
    deadline_s = config.lease_ttl_ms / 1_000 / RENEWAL_ATTEMPTS if len(endpoints.addresses) > 1 else DEADLINE_S
    return EtcdLeaseRenewer(
        endpoints,
        f"/{config.prefix}/",
        deadline_s=min(deadline_s, DEADLINE_S),
        credentials=credentials_of(config),
    )


def _embedded(config: NodeConfig, incarnation: Incarnation) -> tuple[SiteLog, Changelog, Journal]:
    from federation.embedded.changelog import EmbeddedChangelog
    from federation.embedded.journal import EmbeddedJournal
    from federation.embedded.site_log import EmbeddedSiteLog

    folder = site_folder(config)
    return (
        EmbeddedSiteLog(folder / "log.db", durable=config.durable),
        EmbeddedChangelog(folder / "changelog.db", durable=config.durable),
        EmbeddedJournal(
            folder / "journal", f"{config.name}-{incarnation}", rotation=Rotation.parse(config.journal_rotate)
        ),
    )


def _kafka(config: NodeConfig, incarnation: Incarnation) -> tuple[SiteLog, Changelog, Journal]:
    from federation.kafka import KafkaChangelog, KafkaJournal, KafkaSiteLog
    from federation.kafka.replication import Replication

    common = _KafkaSettings(
        replication=Replication(config.replication or None, config.min_insync or None),
        credentials=credentials_of(config),
        warn=log.warning,
    )
    writer, rotation = f"{config.name}-{incarnation}", Rotation.parse(config.journal_rotate)
    return (
        KafkaSiteLog(config.kafka, topic(config, "log"), **common),
        KafkaChangelog(config.kafka, topic(config, "changelog"), **common),
        KafkaJournal(config.kafka, topic(config, "journal"), **common, writer=writer, rotation=rotation),
    )
