"""What a run brought about: a simulator that never comes to a failover proves nothing of one."""

from __future__ import annotations

from collections import Counter

from chaos.simulator.world import World
from waypost.facts import FactKind, OwnedCause

KINDS = (
    "handovers",
    "aborts",
    "retries by both sides",
    "thaws",
    "failovers",
    "restarts",
    "catch-ups",
    "relays",
    "offers",
    "removals",
    "deletions",
)
_BY_CAUSE: dict[str, str] = {
    OwnedCause.HANDOVER: "handovers",
    OwnedCause.THAW: "thaws",
    OwnedCause.FAILOVER: "failovers",
    OwnedCause.RESTART: "restarts",
}


def coverage(world: World) -> Counter[str]:
    """Return how often each of :data:`KINDS` came about in one run; what did not may be missing."""
    counts: Counter[str] = Counter()
    for fact in world.facts:
        if fact.kind == FactKind.OWNED and fact.cause in _BY_CAUSE:
            counts[_BY_CAUSE[fact.cause]] += 1
        elif fact.kind == FactKind.REMOVED:
            counts["removals"] += len(fact.offsets)
        elif fact.kind == FactKind.DELETED:
            counts["deletions"] += 1
        elif fact.kind == FactKind.HANDOVER and (fact.role, fact.phase) == ("target", "aborted"):
            counts["aborts"] += 1
    counts["retries by both sides"] += len(world.retried_by_source & world.retried_by_target)
    counts["catch-ups"] += world.catch_ups
    counts["relays"] += world.relays
    counts["offers"] += world.offers
    return counts
