"""Gates: how a session joins an origin's live stream without a loss or a repeat.

There is one recovery primitive, catch-up, and this is it. The session has seen an origin up to C (`seen`). The live
stream at this proxy covers it from above X on. While the gate is closed, live matches of that origin wait; other
origins flow on. Where X lies above C, (C, X] is fetched from the origin's own log; then the gate opens, and what
waits above X follows.

A planned handover, a thaw, a crash failover, a broken installation and a late site are the same gate with another C:

====================  ================================  ===============================
                      C                                 X
====================  ================================  ===============================
shadow of a target    not known until the merge         where its installation starts
merge                 the source's cut                  the same, for the final descriptor
freeze, then thaw     the cut                           the cut: nothing is missing
failover, restart     the checkpoint's frontier         where the installation starts
broken installation   the frontier at the break         where the new one starts
====================  ================================  ===============================
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from waypost.identity import NOTHING
from waypost.limits import GATE_BUFFER, GATE_BYTES

Item = TypeVar("Item")


class Gate(Generic[Item]):
    """The gate of one origin of one session.

    Args:
        seen: C, the offset up to which the session has all of the origin; None as long as it is not known.
        from_above: the origin's frontier here when this gate began to keep live matches.
        limit: the number of matches that it keeps at most; see :meth:`keep`.
    """

    __slots__ = ("_buffer", "_bytes", "_limit", "fetching", "from_above", "seen")

    def __init__(self, seen: int | None, from_above: int, limit: int = GATE_BUFFER) -> None:
        self.seen = seen
        self.from_above = from_above
        self.fetching = False
        self._buffer: list[tuple[int, Item]] = []
        self._bytes = 0
        self._limit = limit

    def keep(self, offset: int, item: Item, size: int = 0) -> None:
        """Keep a live match while the gate is closed. Past a bound, in matches or bytes, all kept ones and this one are
        dropped, and the catch-up reaches up to this offset instead.

        Args:
            offset: of the match; higher than those before it.
            item: the match, which :meth:`open` hands back.
            size: the bytes that the match takes; GATE_BYTES is the bound of all together.
        """
        self._bytes += size
        if len(self._buffer) >= self._limit or self._bytes > GATE_BYTES:
            self.restart(offset)
        else:
            self._buffer.append((offset, item))

    def restart(self, from_above: int) -> None:
        """Drop the kept matches; matches are complete here above the offset `from_above` only, and the catch-up brings
        the others.
        """
        self._buffer.clear()
        self._bytes = 0
        self.from_above = from_above

    def covered_from(self, installed_above: int | None) -> int | None:
        """Return X, the offset above which live matches are complete; None: not known yet.

        Args:
            installed_above: the offset above which the site's installation covers the origin; None: not known yet.
        """
        return None if installed_above is None else max(self.from_above, installed_above)

    def missing(self, covered_from: int | None) -> tuple[int, int] | None:
        """Return what has to be fetched from the origin's log, as the offsets (C, X): those above C, up to and
        including X. None: nothing is missing, or C or X is not known.

        Args:
            covered_from: X, as :meth:`covered_from` returns it.
        """
        if covered_from is None or self.seen is None or self.seen >= covered_from:
            return None
        return (self.seen, covered_from)

    def may_open(self, covered_from: int | None) -> bool:
        """Tell whether the session has seen the origin up to X, so that :meth:`open` loses nothing. False also while C
        is not known.

        Args:
            covered_from: X, as :meth:`covered_from` returns it; None: not known yet, and the gate may not open.
        """
        return covered_from is not None and self.seen is not None and self.seen >= covered_from

    def fetched(self, through: int) -> None:
        """Note that the session has everything of the origin up to the offset `through`, inclusive. C never falls."""
        if self.seen is None or through > self.seen:
            self.seen = through

    def open(self, apply: Callable[[int, Item], None]) -> None:
        """Call `apply` with offset and item of each kept match above C, in ascending order, and drop all kept ones.
        Whether the gate may open, :meth:`may_open` tells; removing it is up to the caller.
        """
        above = NOTHING if self.seen is None else self.seen
        for offset, item in self._buffer:
            if offset > above:
                apply(offset, item)
        self._buffer.clear()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._buffer)
