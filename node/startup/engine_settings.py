"""The settings of an engine, as the configuration and the memory of a node mean them."""

from __future__ import annotations

from node.configuration.config import NodeConfig
from proxy.core.settings import Settings
from waypost.identity import ProxyId, SiteId
from waypost.limits import (
    CREATIONS_PER_S,
    DESCRIBED_IN_MEMORY,
    QUEUED_SHARE,
    SESSION_BYTES,
    SESSIONS_SHARE,
    SUBSCRIPTION_BYTES,
    SUBSCRIPTIONS_SHARE,
)
from waypost.queue import Queue
from waypost.reliability import reliability_of


def engine_settings(config: NodeConfig) -> Settings:
    """Return the engine's settings; bounds of what is kept in memory follow from the setting `memory`."""
    return Settings(
        proxy=ProxyId(config.name),
        site=SiteId(config.site),
        entry_sweep_ms=config.sweep_s * 1_000,
        max_sessions=min(config.max_sessions, config.memory // SESSIONS_SHARE // SESSION_BYTES),
        creations_per_s=CREATIONS_PER_S,
        match_ms=config.match_ms,
        described_bytes=config.memory // SESSIONS_SHARE // DESCRIBED_IN_MEMORY,
        queued_bytes=config.memory // QUEUED_SHARE,
        max_subscriptions=config.memory // SUBSCRIPTIONS_SHARE // SUBSCRIPTION_BYTES,
        publishers=frozenset(config.publishers),
        queue=Queue(config.max_stored or None, config.max_stored_bytes or None),
        reliability=reliability_of(config.events, config.connection),
    )
