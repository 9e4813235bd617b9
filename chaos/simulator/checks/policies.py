"""Checks of removals by policy: nothing too early, and nothing that no policy covers."""

from __future__ import annotations

from chaos.simulator.environment.environment import Environment
from waypost.facts import Fact, FactKind, RemovalPolicy
from waypost.identity import NOTHING, Coordinate, Origin
from waypost.notification import Notification
from waypost.records import Published
from waypost.subscription import parse


def removed(world: Environment, fact: Fact) -> list[str]:
    """Return the violations of a removal by policy, judged at the moment in which its fact is made; empty: it is right.

    Args:
        fact: of kind REMOVED.
    """
    return [
        violation
        for offset in fact.offsets
        for violation in _violations(world, fact, Coordinate(Origin(fact.origin), offset))
    ]


def _violations(world: Environment, fact: Fact, coordinate: Coordinate) -> list[str]:
    record = world.published.get(coordinate)
    if record is None:
        return [f"REMOVED {fact.session} {coordinate}, and it was never published"]
    queue = world.queues.get(fact.session)
    if fact.policies == [RemovalPolicy.MAX_QUEUE] and queue is not None and queue.max_count is not None:
        most = _most_held(world, fact.session)
        is_full = most > queue.max_count
        return [] if is_full else [f"REMOVED {fact.session} {coordinate}, and its queue has {most} at most"]
    policies = [policy for _, policy in world.policies.get(fact.session, []) if matches(policy.expression, record)]
    if not policies:
        return [f"REMOVED {fact.session} {coordinate}, and nobody had asked for it"]
    # Across a restart ages are kept by the clock that people read: a step forward makes all that is stored older.
    age = world.clock.now_ms() - world.published_at[coordinate] + world.stepped_ms
    if fact.policies == [RemovalPolicy.TIME_TO_LIVE] and not any(
        policy.ttl_s and age >= policy.ttl_s * 1_000 for policy in policies
    ):
        return [f"REMOVED {fact.session} {coordinate} after {age} ms, too early"]
    if fact.policies == [RemovalPolicy.MAX_COUNT] and not any(
        policy.max_count and _number(world, policy.expression) > policy.max_count for policy in policies
    ):
        return [f"REMOVED {fact.session} {coordinate}, and there are not so many"]
    return []


def excused(world: Environment, session: str) -> set[Coordinate]:
    """Return the notifications that policy removed from a session, by the journal, or that its deletion removed.

    A removal whose fact was never written to the journal excuses nothing (P1).
    """
    removals = {
        Coordinate(Origin(fact.origin), offset)
        for fact in world.journal
        if fact.kind == FactKind.REMOVED and fact.session == session
        for offset in fact.offsets
    }
    upto = world.deletions.get(session, {})
    return removals | {at for at in world.published_at if at.offset <= upto.get(at.origin, NOTHING)}


def _most_held(world: Environment, session: str) -> int:
    """Return how many notifications all subscriptions that the session ever had can hold at most, together.

    A maximum count bounds what a subscription holds until its end; what it matched is owed from then on.
    """
    ended = {name.partition("'")[0] for name in world.ended.get(session, ())}
    held = 0
    for name, policy in world.policies.get(session, []):
        number = _number(world, policy.expression)
        held += number if policy.max_count is None or name in ended else min(number, policy.max_count)
    return held


def matches(expression: str, record: Published) -> bool:
    """Tell whether an expression matches a published notification."""
    return bool(parse(expression).matches(Notification.from_body(record.body)))


def _number(world: Environment, expression: str) -> int:
    return sum(matches(expression, world.published[at]) for at in world.published_at)
