"""Readiness: whether new clients are to be sent to a node, and if not, why."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from node.health.dependency_health import ENDED_CERTIFICATE, Dependency


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What readiness depends on, of a node that has started.

    Args:
        name_taken_at: the address of the process that has our name; "": none has it.
        compares_log: it waits for other proxies to say what they have seen of its site's log.
        has_lease: the lease holds now. A registry that is away for longer than that ends it.
        is_watching: all rows of the registry were read once since the start; a watch that breaks later does not change
            that.
        health: the dependencies that are missing, by name.
        appends_fail: the site log counts as missing for appends, and one has failed lately.
        stalled: what has not moved on that must, in words; "": nothing.
        is_drained: an operator has the node emptied.
    """

    name_taken_at: str
    compares_log: bool
    has_lease: bool
    is_watching: bool
    health: Container[str]
    appends_fail: bool
    stalled: str
    is_drained: bool


def why_not_ready(condition: Condition) -> str:
    """Return why no new client is to be sent to the node now; "": nothing speaks against it."""
    if condition.name_taken_at:
        return f"another process has its name, at {condition.name_taken_at}"
    if condition.compares_log:
        return "it waits for other proxies to say what they have seen of its site's log"
    if not condition.has_lease:
        return "it has no lease"
    if not condition.is_watching:
        return "it has not read the registry yet"
    if Dependency.LOG in condition.health:
        return "the log of its site does not answer"
    if condition.appends_fail:
        return "the log of its site takes no appends"
    if Dependency.JOURNAL in condition.health:
        return "its journal takes no facts"
    if ENDED_CERTIFICATE in condition.health:
        return "its certificate has ended"
    if condition.stalled:
        return condition.stalled
    return "it is being drained" if condition.is_drained else ""
