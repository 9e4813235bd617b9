"""A proxy's copy of the session: its role, its gate, what is stored, what it holds at its site, its checkpoints.

After `proxy/session/session.py`, `proxy/stream/coverage.py` and `proxy/stream/persister.py`.
"""

from __future__ import annotations

from chaos.model.site import Site, covered_above, fold
from chaos.model.state import B, Checkpoint, Client, Copy, Disk, Gate, Interest, Setup, State, change
from chaos.model.tables import ROLES
from handover.gate import Gate as RealGate


def become(copy: Copy, role: str) -> Copy:
    """Return the copy with another role.

    Args:
        role: the name of a `proxy.session.session.Role`; the change has to be one that `ROLES` lists.
    """
    assert (copy.role, role) in ROLES, f"{copy.role} never becomes {role}"
    return copy._replace(role=role)


def may_serve(state: State, index: int) -> bool:
    """Tell whether proxy `index` may serve as far as it knows; a rogue one believes so although its lease has ended."""
    return state.proxies[index].status in ("up", "rogue")


def runs(state: State, index: int) -> bool:
    """Tell whether proxy `index` has a process that runs."""
    return state.proxies[index].status not in ("down", "dead")


def alive(state: State, index: int) -> bool:
    """Tell whether the registry still counts the lease of proxy `index`, so that nobody may take its sessions."""
    return state.proxies[index].status in ("up", "fenced", "down")


def serves(state: State, index: int) -> bool:
    """Tell whether proxy `index` has a copy of the session and serves it."""
    copy = state.proxies[index].copy
    return copy is not None and copy.role == "SERVING" and may_serve(state, index)


def is_far(setup: Setup, index: int) -> bool:
    """Tell whether proxy `index` is at another site than the origin, and so reads the log of that site."""
    return setup.world.far and index == B


def site(state: State, index: int) -> Site:
    """Return the far site's state at the position up to which proxy `index` has read that site's log."""
    return fold(state.far[: state.proxies[index].read])


def frontier(setup: Setup, state: State, index: int) -> int:
    """Return the number of the last notification up to where proxy `index` has read its site's log; 0: none."""
    return site(state, index).frontier if is_far(setup, index) else state.proxies[index].read


def seen(copy: Copy, front: int) -> int:
    """Return the offset up to which the session has seen the origin: that of its closed gate (C of handover/gate.py),
    else `front`; 0: nothing.

    Args:
        front: the frontier of the log as read by the proxy (:func:`frontier`).
    """
    return front if copy.gate is None else copy.gate.seen or 0


def matches(setup: Setup, copy: Copy, number: int) -> bool:
    """Tell whether a notification, by its number from 1, is one for the copy's subscriptions."""
    if setup.world.kinds[number - 1] == 0:
        return True
    return copy.second is not None and number > copy.second.start


def bits(copy: Copy) -> int:
    """Return the kinds of notification that the site must register for the copy, as a bit mask: bit k for kind k."""
    return 1 if copy.second is None else 3


def is_registered(site: Site, copy: Copy) -> bool:
    """Tell whether the site's log has an interest that covers the copy's subscriptions."""
    return site.interest is not None and not bits(copy) & ~site.interest[1]


# ---------------------------------------------------------------- gates


def covered_from(setup: Setup, state: State, index: int, gate: Gate, wanted: int) -> int | None:
    """Return X of a gate of proxy `index`: the offset above which live matches are complete.

    `handover.gate.Gate` computes it.

    Args:
        wanted: the kinds that must be covered, as a bit mask.

    Returns:
        None: not known yet, or the site has no interest in all of these kinds.
    """
    above = covered_above(site(state, index), wanted) if is_far(setup, index) else 0
    return RealGate[int](gate.seen, gate.above).covered_from(above)


def open_gate(setup: Setup, state: State, index: int) -> State:
    """Return the state after the gate of proxy `index` has opened, with what waited behind the gate stored.

    The state is returned as it is if there is no gate, the copy is a shadow or frozen, or something is missing still.
    """
    proxy = state.proxies[index]
    copy = proxy.copy
    if copy is None or copy.gate is None or copy.role in ("SHADOW", "FROZEN"):
        return state
    gate = copy.gate
    if not RealGate[int](gate.seen, gate.above).may_open(covered_from(setup, state, index, gate, bits(copy))):
        return state
    kept = tuple(each for each in gate.kept if each > (gate.seen or 0))
    if "REPLAY" in setup.off:
        kept = ()
    return change(state, index, proxy._replace(copy=copy._replace(gate=None, stored=copy.stored + kept)))


def fetch(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after a catch-up of proxy `index`: its copy has all matches in (C, X] of the origin's log, where
    C is the offset that its gate has seen and X the one above which live matches are complete (handover/gate.py).

    The gate opens if it may. None: there is no gate, the copy is a shadow or frozen, nothing is missing, or X is not
    known.
    """
    proxy = state.proxies[index]
    copy = proxy.copy
    if copy is None or copy.gate is None or copy.role in ("SHADOW", "FROZEN"):
        return None
    gate = copy.gate
    missing = RealGate[int](gate.seen, gate.above).missing(covered_from(setup, state, index, gate, bits(copy)))
    if missing is None:
        return None
    after, upto = missing
    found = tuple(each for each in range(after + 1, upto + 1) if matches(setup, copy, each))
    copy = copy._replace(gate=gate._replace(seen=upto), stored=copy.stored + found)
    return open_gate(setup, change(state, index, proxy._replace(copy=copy)), index)


def broken(copy: Copy, front: int) -> Copy:
    """Return the copy with its gate closed at the frontier: the site's log may have a hole there (handover rule 9).

    A gate that is closed already begins again there; a shadow or frozen copy without one stays as it is.

    Args:
        front: the frontier of the log as read by the proxy.
    """
    if copy.gate is not None:
        return copy._replace(gate=copy.gate._replace(above=front, kept=()))
    return copy if copy.role in ("SHADOW", "FROZEN") else copy._replace(gate=Gate(front, front))


# ---------------------------------------------------------------- the log


def read(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after proxy `index` has read and matched the next record of its log; None if there is none.

    The copy's gate opens if it may. At the far site, the end of the interest of an incarnation closes the gate at the
    frontier, if the copy's subscriptions are not covered after that (:func:`broken`).
    """
    proxy = state.proxies[index]
    position = proxy.read
    if not is_far(setup, index):
        if position >= state.published:
            return None
        copy = arrive(setup, proxy.copy, position + 1)
        return open_gate(setup, change(state, index, proxy._replace(read=position + 1, copy=copy)), index)
    if position >= len(state.far):
        return None
    kind, first, _, _ = state.far[position]
    before, after = fold(state.far[:position]), fold(state.far[: position + 1])
    copy = proxy.copy
    if kind == "forwarded" and after.frontier > before.frontier:
        copy = arrive(setup, copy, first)
    elif kind == "dropped" and copy is not None and not is_registered(after, copy) and "BROKEN" not in setup.off:
        copy = broken(copy, after.frontier)
    return open_gate(setup, change(state, index, proxy._replace(read=position + 1, copy=copy)), index)


def arrive(setup: Setup, copy: Copy | None, number: int) -> Copy | None:
    """Return the copy after a notification of the live stream: a match is stored, or waits behind the gate.

    Args:
        copy: None: there is none, and None is returned.
        number: of the notification, from 1.
    """
    if copy is None or not matches(setup, copy, number):
        return copy
    if copy.gate is None:
        return copy._replace(stored=(*copy.stored, number))
    if "GATE" in setup.off and copy.role == "SHADOW":
        return copy
    return copy._replace(gate=copy.gate._replace(kept=(*copy.gate.kept, number)))


def register_interest(setup: Setup, state: State, index: int, wanted: int) -> State:
    """Return the state after proxy `index` has appended its interest to the far site's log, if the log lacks it.

    Nothing is done for a proxy at the origin's own site.

    Args:
        wanted: the kinds, as a bit mask; 0: withdraw the interest.
    """
    if not is_far(setup, index):
        return state
    registered = (state.proxies[index].incarnation, wanted) if wanted else None
    if fold(state.far).interest == registered:
        return state
    return state._replace(far=(*state.far, ("held", state.proxies[index].incarnation, wanted, 0)))


# ---------------------------------------------------------------- serving, keeping, dropping


def serve(setup: Setup, state: State, index: int, epoch: int) -> State:
    """Return the state after proxy `index` has begun to serve its copy, at an epoch at which the registry names it.

    The proxy must have a copy, whose role may become SERVING. The interest is registered, a checkpoint is on its way to
    the changelog, and the gate opens if it may.
    """
    proxy = state.proxies[index]
    assert proxy.copy is not None
    copy = become(proxy.copy, "SERVING")._replace(epoch=epoch, serial=0)
    state = register_interest(setup, change(state, index, proxy._replace(copy=copy)), index, bits(copy))
    return open_gate(setup, write(setup, state, index), index)


def drop(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index` has deleted its copy, and withdrawn the copy's interest at its site.

    The disk follows with the next :func:`save`.
    """
    return register_interest(setup, change(state, index, state.proxies[index]._replace(copy=None)), index, 0)


def release(setup: Setup, state: State, index: int) -> State:
    """Return the state after the proxy has deleted its copy because the registry names another owner.

    Its client, if attached here, goes to that owner; the interest registered at the site is withdrawn.

    Args:
        setup: the explored federation.
        state: in which the row names the new owner.
        index: the proxy's place in `state.proxies`.
    """
    client = state.client
    if client.at == index and client.attached:
        state = state._replace(client=detached(client)._replace(at=state.row.owner))
    return drop(setup, state, index)


def detached(client: Client) -> Client:
    """Return the client without a connection: what was sent to it and not given to the application is gone."""
    return client._replace(attached=False, inbox=0, owes=False)


def save(state: State, index: int) -> State | None:
    """Return the state after proxy `index` has saved its copy and log position to disk; None: the disk has them."""
    proxy = state.proxies[index]
    disk = Disk(proxy.read, proxy.copy)
    return None if disk == proxy.disk else change(state, index, proxy._replace(disk=disk))


def acknowledged(copy: Copy, front: int) -> int:
    """Return where a failover would resume: the receiver's cursor, or the session's frontier if nothing is stored.

    Args:
        front: the frontier of the log as read by the proxy.
    """
    return copy.acked if copy.stored else max(copy.acked, seen(copy, front))


def write(setup: Setup, state: State, index: int) -> State:
    """Return the state with a checkpoint of the copy of proxy `index` on its way to the changelog, of the next serial.

    The proxy must have a copy.
    """
    proxy = state.proxies[index]
    copy = proxy.copy
    assert copy is not None
    copy = copy._replace(serial=copy.serial + 1)
    made = Checkpoint(
        copy.epoch, copy.serial, acknowledged(copy, frontier(setup, state, index)), copy.acked, copy.second
    )
    return change(state, index, proxy._replace(copy=copy))._replace(writes=state.writes | {made})


def lift(second: Interest | None, cut: int) -> Interest | None:
    """Return the subscription with its promise floor raised to the cut, if nothing was promised yet (rule 7, L_FIXED).

    Args:
        second: None: there is none, and None is returned.
        cut: below it nothing may be promised here.
    """
    if second is None or second.promised is not None:
        return second
    return second._replace(promise_floor=max(second.promise_floor, cut))
