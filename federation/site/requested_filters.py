"""What a site needs of a neighbour, and which filters it requests there for it. Pure.

An expression that a requested one covers is not requested itself: whatever matches it comes by the covering one. When
that is needed no more, the covered ones are requested in its place, or other ones cover them. What is covered by what
is a function of the log, like everything of a site's state, so all proxies of a site request the same; and it is in the
snapshot, with the outline of each expression, so none is parsed again after a restart.

The costs of one change are bounded: of an expression longer than :data:`LONGEST` nothing is known, at most
:data:`LOOKED_AT` others are compared in vain with one, and one covers at most :data:`MOST_COVERED`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from matching.covering import CoveringIndex, Outline, covers, outline
from waypost.subscription import SubscriptionError, parse

LONGEST = 256
"""The length of an expression that may cover another one or be covered, in characters: to parse it takes 0.5 ms."""
LOOKED_AT = 32
MOST_COVERED = 1000


class NeededFilter(msgspec.Struct, array_like=True):
    """An expression that is needed of a neighbour: requested there by an installation, or covered by another one.

    Args:
        installation: its number; None: it is not requested.
        cover: the requested expression that covers it; None: it is requested.
        outline: by which others are found that it covers, or that cover it; None: it is too long.
    """

    installation: int | None = None
    cover: str | None = None
    outline: Outline | None = None


@dataclass(slots=True)
class RequestChanges:
    """The effect of a change of what is needed.

    Attributes:
        changed: expressions that are requested now, or no more, or by other keys.
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
        self._index: CoveringIndex | None = None
        """The index of the requested expressions; None: nothing was looked up since the snapshot was read."""
        for expression, row in self.needed.items():
            if row.installation is not None:
                self.installations[expression] = row.installation
            elif row.cover is not None:
                self._covered.setdefault(row.cover, set()).add(expression)

    def carried_by(self, expression: str) -> list[str]:
        """Return the expressions that a requested one is requested for: itself first, then what it covers."""
        return [expression, *sorted(self._covered.get(expression, ()))]

    def carrier_of(self, expression: str) -> str:
        """Return the expression that is requested for this one: the one that covers it, or itself."""
        row = self.needed.get(expression)
        return row.cover if row is not None and row.cover is not None else expression

    def request_again(self, installation: int) -> None:
        """Replace the installations of all requested expressions by this one."""
        for expression in self.installations:
            self.installations[expression] = self.needed[expression].installation = installation

    def change(self, added: Iterable[str], removed: Collection[str], installation: int) -> RequestChanges:
        """Need other expressions.

        Args:
            added: expressions that are not needed yet.
            removed: expressions that are.
            installation: the number of what is requested newly.
        """
        changes = RequestChanges()
        index = self._index = self._indexed() if self._index is None else self._index
        uncovered: set[str] = set()
        for expression in removed:
            uncovered |= self._remove(expression, index, changes)
        for expression in sorted(uncovered.difference(removed).union(added)):
            self._place(expression, installation, index, changes)
        return changes

    def _remove(self, expression: str, index: CoveringIndex, changes: RequestChanges) -> set[str]:
        """Remove an expression; return those that it covered."""
        row = self.needed.pop(expression)
        if row.cover is not None:
            self._uncover(expression, row.cover)
            changes.changed.add(row.cover)
            return set()
        if row.outline is not None:
            index.remove(expression, row.outline)
        del self.installations[expression]
        changes.changed.add(expression)
        return self._covered.pop(expression, set())

    def _uncover(self, expression: str, cover: str) -> None:
        covered = self._covered.get(cover, set())
        covered.discard(expression)
        if not covered:
            self._covered.pop(cover, None)

    def _place(self, expression: str, installation: int, index: CoveringIndex, changes: RequestChanges) -> None:
        """Have an expression covered by a requested one, or request it, and have it cover others."""
        row = self.needed.get(expression) or NeededFilter(outline=_outline_of(expression))
        self.needed[expression] = row
        row.cover = self._cover_of(expression, row.outline, index)
        if row.cover is not None:
            self._covered.setdefault(row.cover, set()).add(expression)
            changes.changed.add(row.cover)
            changes.newly_covered.append(expression)
            return
        self.installations[expression] = row.installation = installation
        changes.changed.add(expression)
        if row.outline is not None:
            for covered in self._covered_by(expression, row.outline, index):
                self._cover(covered, expression, index, changes)
            index.add(expression, row.outline)

    def _cover(self, expression: str, cover: str, index: CoveringIndex, changes: RequestChanges) -> None:
        """Request an expression no more, nor what it covers by it, but by another one that covers it."""
        row = self.needed[expression]
        assert row.outline is not None
        index.remove(expression, row.outline)
        del self.installations[expression]
        changes.changed.add(expression)
        for moved in (expression, *sorted(self._covered.pop(expression, ()))):
            self.needed[moved].installation, self.needed[moved].cover = None, cover
            self._covered.setdefault(cover, set()).add(moved)
            changes.newly_covered.append(moved)

    def _cover_of(self, expression: str, of: Outline | None, index: CoveringIndex) -> str | None:
        if of is None:
            return None
        narrow = parse(expression).tree
        for wide in index.may_cover(of, LOOKED_AT):
            if len(self._covered.get(wide, ())) < MOST_COVERED and covers(parse(wide).tree, narrow):
                return wide
        return None

    def _covered_by(self, expression: str, of: Outline, index: CoveringIndex) -> list[str]:
        wide = parse(expression)
        found: list[str] = []
        room, misses = MOST_COVERED, 0
        for narrow in index.may_be_covered(of, MOST_COVERED):
            known = self.needed[narrow].outline
            if known is None or (known.is_true and not wide.matches(known.sample)):
                continue
            size = 1 + len(self._covered.get(narrow, ()))
            if size <= room and covers(wide.tree, parse(narrow).tree):
                found.append(narrow)
                room -= size
            else:
                misses += 1
            if misses == LOOKED_AT or not room:
                break
        return found

    def _indexed(self) -> CoveringIndex:
        index = CoveringIndex()
        for expression in self.installations:
            known = self.needed[expression].outline
            if known is not None:
                index.add(expression, known)
        return index


def _outline_of(expression: str) -> Outline | None:
    """Return the outline; None: the expression is too long, or one of a later version's language."""
    try:
        return outline(parse(expression)) if len(expression) <= LONGEST else None
    except SubscriptionError:
        return None
