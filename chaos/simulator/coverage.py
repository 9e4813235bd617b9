"""What a run brought about: a simulator that never comes to a failover proves nothing of one."""

from __future__ import annotations

from collections import Counter

from chaos.simulator.world import World

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
_BY_REASON = {"handover": "handovers", "thaw": "thaws", "failover": "failovers", "restart": "restarts"}


def coverage(world: World) -> Counter[str]:
    """Count, for one run, what :data:`KINDS` names."""
    counts: Counter[str] = Counter()
    for fact in world.facts:
        if fact.kind == "owned" and fact.reason in _BY_REASON:
            counts[_BY_REASON[fact.reason]] += 1
        elif fact.kind == "removed":
            counts["removals"] += len(fact.offsets)
        elif fact.kind == "deleted":
            counts["deletions"] += 1
        elif fact.kind == "handover" and fact.reason.startswith("target aborted"):
            counts["aborts"] += 1
    counts["retries by both sides"] += len(world.retried_by_source & world.retried_by_target)
    counts["catch-ups"] += world.catch_ups
    counts["relays"] += world.relays
    counts["offers"] += world.offers
    return counts
