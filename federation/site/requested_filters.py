"""What a site needs of a neighbour, and which filters it requests there for it. Pure.

An expression that a requested one covers is not requested itself: whatever matches it comes by the covering one. When
that is needed no more, the covered ones are requested in its place, or other ones cover them. What is covered by what
is a function of the log, like everything of a site's state, so all proxies of a site request the same; and it is in the
snapshot, with the outline of each expression, so none is parsed again after a restart.

An expression that is wanted by keys stands apart: it is requested as it is, for a request states the keys.

What covers many others goes on covering them when a wider one covers it: then the end of the wider one costs little.

The work of one change is bounded (:class:`_Budget`), for all of a site's proxies do it, and nobody else's notification
may wait for it. What is not found within the bound is requested itself, which is never wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import msgspec

from matching.covering import CoveringIndex, Outline, covers, covers_by_outline, outline
from waypost.subscription import SubscriptionError, parse

MAX_COMPARED_CHARACTERS = 256
"""The length of an expression that may cover another one or be covered, in characters: to parse it takes 0.5 ms."""
MAX_TREES_IN_VAIN = 8
"""Trees that are compared with one expression, in vain, each way."""
MAX_TREES_COMPARED = 32
"""Trees that are compared in one change: each takes a millisecond at most, with the parsing."""
MAX_OUTLINES_COMPARED = 5_000
"""Outlines that are compared in one change, in all: each takes some microseconds."""
MAX_COVERED = 1_000
"""Expressions that one covers itself: these are placed anew when it ends."""
MAX_CARRIED = 10_000
"""Expressions that come by one request."""
KEEP_COVER_FROM = 8
"""From this number of covered ones on, an expression goes on covering them when a wider one covers it."""
KNOWN_COMPARISONS = 10_000


class NeededFilter(msgspec.Struct, array_like=True):
    """An expression that is needed of a neighbour: requested there by an installation, or covered by another one.

    Args:
        installation: its number; None: it is not requested.
        cover: the expression that covers it, which is requested or covered itself; None: it is requested.
        outline: by which others are found that it covers, or that cover it; None: it stands apart, or is too long.
        is_apart: whether it is wanted by keys.
    """

    installation: int | None = None
    cover: str | None = None
    outline: Outline | None = None
    is_apart: bool = False


@dataclass(slots=True)
class _Budget:
    """The work that is left for one change."""

    comparisons: int = MAX_TREES_COMPARED
    candidates: int = MAX_OUTLINES_COMPARED


@dataclass(slots=True)
class RequestChanges:
    """The effect of a change of what is needed.

    Attributes:
        changed: expressions that are requested now, or no more.
        newly_covered: expressions that another one covers since.
    """

    changed: set[str] = field(default_factory=set)
    newly_covered: list[str] = field(default_factory=list)


class RequestedFilters:
    """The filters that a site requests of one neighbour.

    Args:
        needed: all that it needs from there; empty: nothing yet.
    """

    def __init__(self, needed: dict[str, NeededFilter] | None = None) -> None:
        self.needed: dict[str, NeededFilter] = needed if needed is not None else {}
        self.installations: dict[str, int] = {}
        """The requested expressions, with the numbers of their installations."""
        self._covered: dict[str, set[str]] = {}
        """The expressions that one covers itself."""
        self._carried: dict[str, int] = {}
        """The number of all expressions below one."""
        self._index: CoveringIndex | None = None
        """The index of the requested expressions; None: nothing was looked up since the snapshot was read."""
        for expression, row in self.needed.items():
            if row.installation is not None:
                self.installations[expression] = row.installation
            elif row.cover is not None:
                self._covered.setdefault(row.cover, set()).add(expression)
        for root in self.installations:
            self._count(root)

    def carried_by(self, expression: str) -> list[str]:
        """Return the expressions for whose sake a requested expression is requested: itself first, then all that it
        covers, also indirectly.
        """
        found = [expression]
        for known in found:
            found += sorted(self._covered.get(known, ()))
        return found

    def carrier_of(self, expression: str) -> str:
        """Return the requested expression by which the matches of this one come: one that covers it, or the expression
        itself; itself also if it is not needed of the neighbour.
        """
        while (row := self.needed.get(expression)) is not None and row.cover is not None:
            expression = row.cover
        return expression

    def request_again(self, installation: int) -> None:
        """Give all requested expressions this installation number, so that the neighbour installs them anew."""
        for expression in self.installations:
            self.installations[expression] = self.needed[expression].installation = installation

    def change(self, added: Mapping[str, bool], removed: Collection[str], installation: int) -> RequestChanges:
        """Change what is needed of the neighbour; return what that changes in the requests to it. Nothing is sent here.

        Args:
            added: expressions, with whether they stand apart: neither cover others nor are covered. One that is needed
                already is placed anew, and keeps its installation number if it was requested and is again.
            removed: expressions that are needed, none of them in `added`; with another one part of the
                change is made, and KeyError is raised.
            installation: the number of what is requested newly.
        """
        changes, budget = RequestChanges(), _Budget()
        index = self._index = self._indexed() if self._index is None else self._index
        before = {expression: self.installations.get(expression) for expression in added}
        uncovered: set[str] = set()
        for expression in (*removed, *(expression for expression in added if expression in self.needed)):
            uncovered |= self._remove(expression, index, changes)
        for expression, is_apart in added.items():
            known = None if is_apart else _outline_of(expression)
            self.needed[expression] = NeededFilter(outline=known, is_apart=is_apart)
        for expression in sorted(uncovered.difference(removed).union(added)):
            known_number = before.get(expression)
            self._place(expression, installation if known_number is None else known_number, index, budget, changes)
        return changes

    def _remove(self, expression: str, index: CoveringIndex, changes: RequestChanges) -> set[str]:
        """Remove an expression; return those that it covered and that nothing covers now."""
        row = self.needed.pop(expression)
        below = self._covered.pop(expression, set())
        carried = self._carried.pop(expression, 0)
        if row.cover is None:
            if row.installation is not None:
                if row.outline is not None:
                    index.remove(expression, row.outline)
                del self.installations[expression]
                changes.changed.add(expression)
            return self._uncovered(below)
        self._detach(expression, row.cover, 1 + carried)
        if len(below) + len(self._covered.get(row.cover, ())) > MAX_COVERED:
            return self._uncovered(below)
        # An expression that covers another one covers what that covered.
        for uncovered in sorted(below):
            self._attach(uncovered, row.cover)
        return set()

    def _uncovered(self, expressions: set[str]) -> set[str]:
        for expression in expressions:
            self.needed[expression].cover = None
        return expressions

    def _place(
        self, expression: str, installation: int, index: CoveringIndex, budget: _Budget, changes: RequestChanges
    ) -> None:
        """Have an expression covered by a requested one, or request it, and have it cover others."""
        row = self.needed[expression]
        row.cover = self._cover_of(expression, row.outline, index, budget)
        if row.cover is not None:
            self._attach(expression, row.cover)
            changes.newly_covered += self.carried_by(expression)
            return
        self.installations[expression] = row.installation = installation
        changes.changed.add(expression)
        if row.outline is not None:
            for covered in self._covered_by(expression, row.outline, index, budget):
                self._cover(covered, expression, index, changes)
            index.add(expression, row.outline)

    def _cover(self, expression: str, cover: str, index: CoveringIndex, changes: RequestChanges) -> None:
        """Request an expression no more, but another one that covers it."""
        row = self.needed[expression]
        assert row.outline is not None
        index.remove(expression, row.outline)
        del self.installations[expression]
        row.installation = None
        changes.changed.add(expression)
        changes.newly_covered += self.carried_by(expression)
        moved = [expression]
        if len(below := self._covered.get(expression, ())) < KEEP_COVER_FROM:
            moved += sorted(below)
            self._covered.pop(expression, None)
            self._carried.pop(expression, None)
        for each in moved:
            self._attach(each, cover)

    def _attach(self, expression: str, cover: str) -> None:
        """Have one expression cover another one, with all that is below it."""
        self.needed[expression].cover = cover
        self._covered.setdefault(cover, set()).add(expression)
        self._add_carried(cover, 1 + self._carried.get(expression, 0))

    def _detach(self, expression: str, cover: str, carried: int) -> None:
        covered = self._covered[cover]
        covered.remove(expression)
        if not covered:
            del self._covered[cover]
        self._add_carried(cover, -carried)

    def _add_carried(self, cover: str | None, carried: int) -> None:
        while cover is not None and cover in self.needed:
            self._carried[cover] = self._carried.get(cover, 0) + carried
            if not self._carried[cover]:
                del self._carried[cover]
            cover = self.needed[cover].cover

    def _count(self, root: str) -> None:
        """Count what is below a requested expression."""
        for expression in reversed(self.carried_by(root)):
            if covered := self._covered.get(expression):
                self._carried[expression] = sum(1 + self._carried.get(each, 0) for each in covered)

    def _cover_of(self, expression: str, of: Outline | None, index: CoveringIndex, budget: _Budget) -> str | None:
        if of is None:
            return None
        more = 1 + self._carried.get(expression, 0)
        candidates = [
            wide
            for wide in self._looked_up(index.may_cover(of), budget)
            if len(self._covered.get(wide, ())) < MAX_COVERED and self._carried.get(wide, 0) + more <= MAX_CARRIED
        ]
        answers = {wide: self._covers_by_outline(wide, expression) for wide in candidates}
        sure = next((wide for wide in candidates if answers[wide]), None)
        if sure is not None:
            return sure
        unsure = [wide for wide in candidates if answers[wide] is None][:MAX_TREES_IN_VAIN]
        return next((wide for wide in unsure if _is_proven(wide, expression, budget)), None)

    def _covered_by(self, expression: str, of: Outline, index: CoveringIndex, budget: _Budget) -> list[str]:
        """Return the requested expressions that this one is to cover."""
        found: list[str] = []
        carried, covered = self._carried.get(expression, 0), len(self._covered.get(expression, ()))
        misses = 0
        for narrow in self._looked_up(index.may_be_covered(of), budget):
            answer = self._covers_by_outline(expression, narrow)
            if answer is False or (answer is None and misses == MAX_TREES_IN_VAIN):
                continue
            below = len(self._covered.get(narrow, ()))
            direct, more = 1 + (below if below < KEEP_COVER_FROM else 0), 1 + self._carried.get(narrow, 0)
            if covered + direct > MAX_COVERED or carried + more > MAX_CARRIED:
                continue
            if answer or _is_proven(expression, narrow, budget):
                found.append(narrow)
                carried, covered = carried + more, covered + direct
            else:
                misses += 1
        return found

    def _looked_up(self, found: Iterable[str], budget: _Budget) -> list[str]:
        """Return what a look-up finds, in order; nothing where that is more than may still be looked at."""
        texts = list(islice(found, budget.candidates + 1))
        if len(texts) > budget.candidates:
            return []
        budget.candidates -= len(texts)
        return sorted(set(texts))

    def _covers_by_outline(self, wide: str, narrow: str) -> bool | None:
        outline_of_wide, outline_of_narrow = self.needed[wide].outline, self.needed[narrow].outline
        if outline_of_wide is None or outline_of_narrow is None:
            return False
        known = covers_by_outline(outline_of_wide, outline_of_narrow)
        are_simple = outline_of_wide.is_simple and outline_of_narrow.is_simple
        return known if known is not None or are_simple else False

    def _indexed(self) -> CoveringIndex:
        index = CoveringIndex()
        for expression in self.installations:
            known = self.needed[expression].outline
            if known is not None:
                index.add(expression, known)
        return index


def _is_proven(wide: str, narrow: str, budget: _Budget) -> bool:
    """Tell whether the trees show that one covers the other; not, if too many were compared in this change."""
    if not budget.comparisons:
        return False
    budget.comparisons -= 1
    return _compared(wide, narrow)


@lru_cache(maxsize=KNOWN_COMPARISONS)
def _compared(wide: str, narrow: str) -> bool:
    return covers(parse(wide).tree, parse(narrow).tree)


def _outline_of(expression: str) -> Outline | None:
    """Return the outline; None: the expression is too long, or one of a later version's language."""
    try:
        return outline(parse(expression)) if len(expression) <= MAX_COMPARED_CHARACTERS else None
    except SubscriptionError:
        return None
