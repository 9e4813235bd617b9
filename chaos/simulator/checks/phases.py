"""In which phases a world is: what a fault can meet. And which features, faults and phases met in runs.

What was drawn proves little: a fault that falls into no handover tests none. So with every step of a script it is noted
which phases it met, together with each feature of its schedule; a table of these triples tells what never met.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

from chaos.simulator.environment.environment import Environment
from handover.source import SourceState
from handover.target import TargetState

CATCHING_UP, REBUILDING, WITHOUT_LEASE, NO_PHASE = "catching up", "rebuilding", "without a lease", "none"
PHASES = (
    *(f"source {state.name.lower()}" for state in SourceState if state is not SourceState.ENDED),
    *(f"target {state.name.lower()}" for state in TargetState if state is not TargetState.ENDED),
    CATCHING_UP,
    REBUILDING,
    WITHOUT_LEASE,
)
Met = tuple[str, str, str]
"""Feature, action, phase."""


def phases(world: Environment) -> set[str]:
    """Return those of :data:`PHASES` in which any proxy is now; empty: none."""
    found: set[str] = set()
    for node in world.nodes.values():
        engine = node.engine
        if engine is None:
            continue
        for side in (engine.transfers.sources, engine.transfers.targets):
            found.update(f"{side.role} {one.machine.state.name.lower()}" for one in side.running.values())
        for session in engine.sessions.values():
            if session.gates:
                found.add(CATCHING_UP)
            if session.rebuilding:
                found.add(REBUILDING)
        if not engine.env.lease.may_serve():
            found.add(WITHOUT_LEASE)
    return found


def meetings(world: Environment, features: frozenset[str], action: str) -> list[Met]:
    """Return what an action meets now: a triple (feature, action, phase) of each feature with each phase of the world.

    Where no proxy is in a phase, "none" takes its place. Nothing is counted by this call.

    Args:
        world: its phases are those of :func:`phases`.
        features: of the schedule; empty: the triples have "plain" in their place.
        action: its name.
    """
    return list(product(features or {"plain"}, [action], phases(world) or {NO_PHASE}))


def never(met: Counter[Met], features: tuple[str, ...], actions: tuple[str, ...]) -> list[Met]:
    """Return all triples (feature, action, phase) that `met` does not count, for all of :data:`PHASES`.

    Args:
        met: how often each triple met.
        features: the features to combine; "plain" is added.
        actions: the actions to combine.
    """
    return [each for each in product((*features, "plain"), actions, PHASES) if not met[each]]
