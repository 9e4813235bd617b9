"""How a proxy is set up: what does not change as long as it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover.machine import Timing
from waypost.identity import ProxyId, SiteId
from waypost.limits import (
    ACTIVATIONS_AT_ONCE,
    CHUNK_ENTRIES,
    CHUNK_WINDOW,
    COPY_AT_ATTACH,
    COPY_UNSAVED,
    FORGET_AFTER_MS,
    MATCH_MS_PROXY,
    MEMORY_BYTES,
    QUEUE_IN_MEMORY,
    QUEUED_SHARE,
    SITE_STATE_MS_PER_INTEREST,
    SUBSCRIPTION_BYTES,
    SUBSCRIPTIONS_SHARE,
    SWEEP_BATCH,
)
from waypost.queue import UNBOUNDED, Queue
from waypost.reliability import PERSISTENT, Reliability


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineBounds:
    """Bounds that come to bear only on large sessions, so that a simulator can have small ones: waypost/limits.py."""

    queue_in_memory: int = QUEUE_IN_MEMORY
    chunk_entries: int = CHUNK_ENTRIES
    chunk_window: int = CHUNK_WINDOW
    copy_at_attach: int = COPY_AT_ATTACH
    copy_unsaved: int = COPY_UNSAVED
    sweep_batch: int = SWEEP_BATCH
    activations_at_once: int = ACTIVATIONS_AT_ONCE
    site_state_ms_per_interest: int = SITE_STATE_MS_PER_INTEREST


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one engine. Times in milliseconds."""

    proxy: ProxyId
    site: SiteId
    neighbours: tuple[SiteId, ...] = ()
    timing: Timing = field(default_factory=Timing)
    lease_margin_ms: int = 500
    """Time before the lease can end at which the proxy fences itself."""
    flush_ms: int = 200
    checkpoint_ms: int = 1_000
    snapshot_ms: int = 60_000
    """Interval of snapshots of the site's state in the changelog. A site log must keep its records for longer."""
    row_sweep_ms: int = 2_000
    """Interval of comparisons of sessions with the registry's rows."""
    row_repair_ms: int = 5_000
    """Time for owners to write their rows again after the registry has lost some, in ms."""
    entry_sweep_ms: int = 60_000
    """Interval of searches for entries that are past their time to live."""
    forget_ms: int = FORGET_AFTER_MS
    """Time for which the row of a deleted session stays in the registry."""
    retry_ms: int = 250
    repair_ms: int = 2_000
    """Interval at which a proxy reports a record that it could not read, until the log has the report."""
    dwell_ms: int = 30_000
    """Shortest stay of a session at its owner before it follows its busiest receiver."""
    bounds: EngineBounds = field(default_factory=EngineBounds)
    match_ms: int = MATCH_MS_PROXY
    """How long the largest notification may take, by estimate, to be held against all expressions that this proxy has
    before it takes no other one of a client; 0: no bound."""
    queued_bytes: int = MEMORY_BYTES // QUEUED_SHARE
    """Bytes of stored notifications that all sessions together keep in memory."""
    max_subscriptions: int = MEMORY_BYTES // SUBSCRIPTIONS_SHARE // SUBSCRIPTION_BYTES
    """Active subscriptions that this proxy has before it takes no other one of a client."""
    described_bytes: int = 1 << 60
    """The most bytes of the descriptors of all sessions, of those that have grown here."""
    max_sessions: int = 1 << 60
    """Sessions that this proxy may own before it makes no other one."""
    creations_per_s: int = 0
    """Sessions that this proxy makes in a second; 0: no bound."""
    queue: Queue = UNBOUNDED
    """How much each session here stores at most, whatever it says itself."""
    reliability: Reliability = PERSISTENT
    """What sessions and receivers here may not exceed."""
    publishers: frozenset[str] = frozenset()
    """Principals that may publish; none: everybody may."""
