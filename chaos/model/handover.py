"""The model of the handover: what must hold in every state of it."""

from __future__ import annotations

from collections.abc import Iterable

from chaos.model.clients import LOSS, owed
from chaos.model.copies import serves
from chaos.model.protocol import initial, steps
from chaos.model.state import A, B, Setup, State, Step

OWNER = "P4 whoever serves is named by the registry, at that epoch"
KEPT = "P1 a promise outlives the proxy that made it"
PROPERTY_WHOLE = "P5 the session is whole somewhere"
RECOVERS = "P5 the session comes to rest again"


class Handover:
    """The model of one session's handovers between two proxies, for :class:`chaos.model.explore.Explorer`.

    Args:
        setup: the size of the world, and the rules that are switched off in it.
    """

    lost = LOSS
    liveness = RECOVERS

    def __init__(self, setup: Setup) -> None:
        self._setup = setup

    def initial(self) -> State:
        """Return the state in which every run begins (:func:`chaos.model.protocol.initial`)."""
        return initial(self._setup)

    def steps(self, state: State) -> Iterable[Step]:
        """Yield what can happen in a state: a label, the state after it, and the sort of fault that it is; "": none."""
        return steps(self._setup, state)

    def broken(self, state: State) -> str:
        """Return the invariant that does not hold in a state, in words; "": all hold."""
        return _broken(state)

    def is_quiescent(self, state: State) -> bool:
        """Tell whether a run may end in a state: all was published, what is owed was given, the owner serves the
        client, and in a world with a second kind of notification the promise was announced.
        """
        return _quiescent(self._setup, state)


def _broken(state: State) -> str:
    """Return which invariant does not hold here; empty: all do."""
    if state.violation:
        return state.violation
    for index in (A, B):
        copy = state.proxies[index].copy
        if copy is None or not serves(state, index):
            continue
        if (state.row.owner, state.row.epoch) != (index, copy.epoch):
            return OWNER
        if state.promised is not None and (copy.second is None or copy.second.start > state.promised):
            return KEPT
    if not state.row.rebuilt and not any(_whole(state, index) for index in (A, B)):
        return PROPERTY_WHOLE
    return ""


def _whole(state: State, index: int) -> bool:
    """Tell whether this proxy has the session, in memory or on its disk."""
    proxy = state.proxies[index]
    return any(copy is not None and copy.role != "SHADOW" for copy in (proxy.copy, proxy.disk.copy))


def _quiescent(setup: Setup, state: State) -> bool:
    """Tell whether all was published and all that is owed was given, by an owner that serves on."""
    client = state.client
    if state.published < len(setup.world.kinds) or owed(setup, state) - state.delivered:
        return False
    if setup.world.subscribes and state.promised is None:
        return False
    return client.attached and serves(state, client.at)
