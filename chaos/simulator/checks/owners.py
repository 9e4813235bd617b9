"""What journals attest of owners, by the audit's rules (spark/owners.py), in plain Python: two witnesses.

It is milder where a run ends in the middle: a transfer counts as stalled only if its process closed its journal, and a
process that did not may have delivered at an epoch of which nothing is on record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import pairwise

from waypost.facts import TRANSFER_ENDS, Fact, FactKind, OwnedCause
from waypost.identity import GENERATION, NOTHING

CONTINUING = (OwnedCause.HANDOVER, OwnedCause.THAW)
"""Causes of `owned` after which the owner begins where the owner before had come to; a store may be behind."""


def check_owners(journal: Iterable[Fact]) -> list[str]:
    """Check that receivers were given notifications by their session's owner alone, and by none beyond its cut, that no
    epoch has two owners, and that each transfer of a process that ended in order has ended.

    Args:
        journal: the facts that are on record, those of one writer in their order.

    Returns:
        A violation of the kind OWNER for each fact that contradicts that.
    """
    facts = list(journal)
    owners: dict[tuple[str, int], set[str]] = defaultdict(set)
    writers: dict[tuple[str, int], set[str]] = defaultdict(set)
    steps: dict[tuple[str, int, str], list[Fact]] = defaultdict(list)
    transfers: dict[tuple[str, str, str], Fact] = {}
    for fact in facts:
        if fact.kind == FactKind.OWNED:
            owners[fact.session, fact.epoch].add(fact.proxy)
            writers[fact.session, fact.epoch].add(fact.writer)
        if fact.kind in (FactKind.OWNED, FactKind.RELEASED):
            steps[fact.session, fact.epoch, fact.proxy].append(fact)
        if fact.kind == FactKind.HANDOVER:
            transfers[fact.transfer, fact.role, fact.writer] = fact
    closed = {fact.writer for fact in facts if fact.kind == FactKind.CLOSED}
    unclosed = {fact.proxy for fact in facts if fact.kind == FactKind.OPENED and fact.writer not in closed}
    violations = [f"OWNER {', '.join(sorted(both))} own {of}" for of, both in writers.items() if len(both) > 1]
    violations += [
        f"OWNER {fact.writer} began {fact.phase} of a transfer as {fact.role}, and closed its journal"
        for fact in transfers.values()
        if fact.phase not in TRANSFER_ENDS and fact.writer in closed
    ]
    taken_over = _taken_over(facts)
    for fact in facts:
        if fact.kind != FactKind.RECEIVED:
            continue
        known = owners.get((fact.session, fact.epoch), set())
        if fact.proxy not in known and (known or fact.proxy not in unclosed):
            violations.append(
                f"OWNER {fact.proxy} delivered {fact.session} at {fact.epoch}, of which owners are {known}"
            )
        cuts = (_cut(steps[fact.session, fact.epoch, fact.proxy]), taken_over.get((fact.session, fact.epoch)))
        violations += [
            f"OWNER {fact.proxy} delivered {max(fact.offsets)} of {fact.origin}, beyond its cut {cut}"
            for cut in cuts
            if cut is not None and fact.offsets and max(fact.offsets) > cut.get(fact.origin, NOTHING)
        ]
    return violations


def _cut(steps: list[Fact]) -> Mapping[str, int] | None:
    """Return the cut at which an incarnation that served a session has released it; None: none holds."""
    if len({fact.writer for fact in steps}) != 1:
        return None
    is_served = any(fact.kind == FactKind.OWNED for fact in steps)
    return steps[-1].frontier if is_served and steps[-1].kind == FactKind.RELEASED else None


def _taken_over(facts: Iterable[Fact]) -> dict[tuple[str, int], Mapping[str, int]]:
    """Return session and epoch -> where the owner of the next epoch of the same generation began, if at a cut.

    A later owner tells nothing of an epoch: between them is one of which nothing is on record.
    """
    owned: dict[tuple[str, int], Fact] = {}
    for fact in facts:
        if fact.kind == FactKind.OWNED:
            owned.setdefault((fact.session, fact.epoch), fact)
    return {
        before: owned[after].frontier
        for before, after in pairwise(sorted(owned))
        if before[0] == after[0]
        and after[1] == before[1] + 1
        and before[1] // GENERATION == after[1] // GENERATION
        and owned[after].cause in CONTINUING
        and owned[after].frontier
    }
