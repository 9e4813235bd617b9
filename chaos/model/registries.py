"""Two registries with a wide area between them: a session, two proxies on either side, and a cut (ADR 31).

A session's row is in one registry for ever, its own. A proxy holds a lease in each registry, and serves a session only
under the lease of that session's registry. A lease is held; in doubt, once the proxy has stopped to rely on it; or
ended, once the registry has given it up, which is never before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

TWO = "P4 at most one proxy serves"
UNNAMED = "P4 whoever serves is named by the registry at that epoch"
STOPPED = "P6 a cut stops no session whose registry, owner and receiver are on one side"
SERVED = "the session is served where its receiver is"
RECOVERS = "P6 once the cut is mended, the session can be served where its receiver is"
SIDES = (0, 1)
HELD, DOUBT, ENDED = "held", "doubt", "ended"


class Row(NamedTuple):
    """The session's row in one registry.

    Args:
        owner: a side, 0 or 1; -1: there is no row.
        epoch: of the ownership.
    """

    owner: int = -1
    epoch: int = 0


class Proxy(NamedTuple):
    """The proxy of one side. `leases`: by registry. `serves`: the epoch at which it serves the session; 0: it does
    not.
    """

    leases: tuple[str, str] = (HELD, HELD)
    serves: int = 0


class State(NamedTuple):
    """The state of both sides. `is_cut`: neither side reaches the other. `receiver`: the side where it is. `cuts`,
    `moves`: so many come yet.
    """

    rows: tuple[Row, Row]
    proxies: tuple[Proxy, Proxy]
    is_cut: bool
    receiver: int
    cuts: int
    moves: int


@dataclass(frozen=True, slots=True)
class Registries:
    """The model, for :class:`chaos.model.explore.Explorer`.

    Args:
        cuts: how often the wide area is cut.
        moves: how often the receiver goes to the other side.
        without: names of the rules that are switched off.
    """

    cuts: int = 2
    moves: int = 3
    without: frozenset[str] = frozenset()
    lost: str = field(default=SERVED, init=False)
    liveness: str = field(default=RECOVERS, init=False)

    def initial(self) -> State:
        """Return the state in which the session is served on the side of its registry, the first one."""
        return State((Row(0, 1), Row()), (Proxy(serves=1), Proxy()), False, 0, self.cuts, self.moves)

    def broken(self, state: State) -> str:
        """Return the invariant that does not hold in a state; empty: all hold."""
        serving = [side for side in SIDES if state.proxies[side].serves]
        if len(serving) > 1:
            return TWO
        for side in serving:
            epoch = state.proxies[side].serves
            if Row(side, epoch) not in state.rows:
                return UNNAMED
        lease = state.proxies[0].leases[0]
        if lease != HELD and state.is_cut and state.rows[0].owner == 0 == state.receiver:
            return STOPPED
        return ""

    def is_quiescent(self, state: State) -> bool:
        """Tell whether a run may end in a state: there is no cut, and the session is served where its receiver is."""
        return not state.is_cut and bool(state.proxies[state.receiver].serves)

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        """Yield what can happen in a state: a label, the state after it, and "cut" for a fault; "": it is none."""
        if state.cuts and not state.is_cut:
            yield "the wide area is cut", state._replace(is_cut=True, cuts=state.cuts - 1), "cut"
        if state.is_cut:
            yield "the cut is mended", state._replace(is_cut=False), ""
        if state.moves:
            yield (
                "the receiver goes to the other side",
                state._replace(receiver=1 - state.receiver, moves=state.moves - 1),
                "",
            )
        for side in SIDES:
            for label, after in self._of_proxy(state, side):
                yield f"proxy {side}: {label}", after, ""

    def _of_proxy(self, state: State, side: int) -> Iterator[tuple[str, State]]:
        proxy = state.proxies[side]
        for registry in SIDES:
            lease, reaches = proxy.leases[registry], side == registry or not state.is_cut
            if lease == HELD and not reaches:
                doubted = self._with_lease(state, side, registry, DOUBT)
                yield f"relies no more on its lease in {registry}", doubted
            if lease == DOUBT and not reaches:
                yield f"its lease in {registry} ends", self._with_lease(state, side, registry, ENDED)
            if lease != HELD and reaches:
                yield f"has a lease in {registry} again", self._with_lease(state, side, registry, HELD)
        yield from self._of_session(state, side)

    def _with_lease(self, state: State, side: int, registry: int, lease: str) -> State:
        proxy = state.proxies[side]
        leases = (lease, proxy.leases[1]) if registry == 0 else (proxy.leases[0], lease)
        proxy = proxy._replace(leases=leases)
        relied = leases if "ITS" in self.without else leases[self._registry(state) : self._registry(state) + 1]
        if HELD not in relied:
            proxy = proxy._replace(serves=0)
        return _with_proxy(state, side, proxy)

    def _registry(self, state: State) -> int:
        """Return the session's registry: it does not change, but where a row may move with its session."""
        return 0 if state.rows[0].owner >= 0 else 1

    def _of_session(self, state: State, side: int) -> Iterator[tuple[str, State]]:
        proxy, other = state.proxies[side], state.proxies[1 - side]
        registry = self._registry(state)
        row, reaches = state.rows[registry], side == registry or not state.is_cut
        if proxy.serves or not reaches or proxy.leases[registry] != HELD or state.receiver != side:
            return
        if row.owner == side or other.leases[registry] == ENDED:
            claimed = Row(side, row.epoch + 1)
            yield "takes the session's next epoch", self._claimed(state, side, registry, claimed)
        elif not state.is_cut:
            # The source freezes, the target has the session and commits. The two reach each other for that.
            frozen = _with_proxy(state, 1 - side, other._replace(serves=0))
            if "STAYS" in self.without:
                yield "writes the row into its own registry", self._moved(frozen, side)
            yield "commits a handover", self._claimed(frozen, side, registry, Row(side, row.epoch + 1))
        if "STAYS" in self.without and state.rows[1 - registry].owner >= 0 and row.owner != side:
            # The rows of its own registry count for it, whatever the other one has.
            yield "serves by its own registry's row", self._claimed(state, side, side, Row(side, row.epoch + 1))

    def _claimed(self, state: State, side: int, registry: int, row: Row) -> State:
        rows = (row, state.rows[1]) if registry == 0 else (state.rows[0], row)
        proxy = state.proxies[side]._replace(serves=row.epoch)
        return _with_proxy(state._replace(rows=rows), side, proxy)

    def _moved(self, state: State, side: int) -> State:
        """Write the row into the target's registry first; the other one may be seen until it is removed."""
        return self._claimed(state, side, side, Row(side, max(row.epoch for row in state.rows) + 1))


def _with_proxy(state: State, side: int, proxy: Proxy) -> State:
    first, second = state.proxies
    return state._replace(proxies=(proxy, second) if side == 0 else (first, proxy))
