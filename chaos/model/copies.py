"""A proxy's copy of the session: its role, its gate, what is stored, what it holds at its site, its checkpoints.

After `proxy/session/session.py`, `proxy/stream/coverage.py` and `proxy/stream/persister.py`.
"""

from __future__ import annotations

from chaos.model.site import Site, covered_above, fold
from chaos.model.state import B, Checkpoint, Client, Copy, Disk, Gate, Interest, Setup, State, change
from chaos.model.tables import ROLES
from handover.gate import Gate as RealGate


def become(copy: Copy, role: str) -> Copy:
    """Change the role, as the code's own table allows."""
    assert (copy.role, role) in ROLES, f"{copy.role} never becomes {role}"
    return copy._replace(role=role)


def may_serve(state: State, which: int) -> bool:
    """Tell whether the proxy may serve, as far as it knows."""
    return state.proxies[which].status in ("up", "rogue")


def runs(state: State, which: int) -> bool:
    """Tell whether the proxy's process runs."""
    return state.proxies[which].status not in ("down", "dead")


def alive(state: State, which: int) -> bool:
    """Tell whether its lease counts, for all others."""
    return state.proxies[which].status in ("up", "fenced", "down")


def serves(state: State, which: int) -> bool:
    """Tell whether the proxy serves its copy."""
    copy = state.proxies[which].copy
    return copy is not None and copy.role == "SERVING" and may_serve(state, which)


def is_far(setup: Setup, which: int) -> bool:
    """Tell whether the proxy is of another site than what is published."""
    return setup.world.far and which == B


def site(state: State, which: int) -> Site:
    """Return what the far site's log means, as far as it was read."""
    return fold(state.far[: state.proxies[which].read])


def frontier(setup: Setup, state: State, which: int) -> int:
    """Return how far the origin has come, in the log as read here."""
    return site(state, which).frontier if is_far(setup, which) else state.proxies[which].read


def seen(copy: Copy, front: int) -> int:
    """Return what the session has seen."""
    return front if copy.gate is None else copy.gate.seen or 0


def matches(setup: Setup, copy: Copy, number: int) -> bool:
    """Tell whether a notification, by its number from 1, is one for the copy's subscriptions."""
    if setup.world.kinds[number - 1] == 0:
        return True
    return copy.second is not None and number > copy.second.start


def bits(copy: Copy) -> int:
    """Return the kinds that the site must hold for it."""
    return 1 if copy.second is None else 3


def is_registered(site: Site, copy: Copy) -> bool:
    """Tell whether the site's log has an interest that covers the copy's subscriptions."""
    return site.interest is not None and not bits(copy) & ~site.interest[1]


# ---------------------------------------------------------------- gates


def covered_from(setup: Setup, state: State, which: int, gate: Gate, wanted: int) -> int | None:
    """Return above what the gate is covered, as the real gate says; None: it is not known."""
    above = covered_above(site(state, which), wanted) if is_far(setup, which) else 0
    return RealGate[int](gate.seen, gate.above).covered_from(above)


def open_gate(setup: Setup, state: State, which: int) -> State:
    """Open the gate, if nothing is missing any more."""
    proxy = state.proxies[which]
    copy = proxy.copy
    if copy is None or copy.gate is None or copy.role in ("SHADOW", "FROZEN"):
        return state
    gate = copy.gate
    if not RealGate[int](gate.seen, gate.above).may_open(covered_from(setup, state, which, gate, bits(copy))):
        return state
    kept = tuple(each for each in gate.kept if each > (gate.seen or 0))
    if "REPLAY" in setup.off:
        kept = ()
    return change(state, which, proxy._replace(copy=copy._replace(gate=None, stored=copy.stored + kept)))


def fetch(setup: Setup, state: State, which: int) -> State | None:
    """Take (C, X] from the origin's own log; None: nothing is missing, or X is not known."""
    proxy = state.proxies[which]
    copy = proxy.copy
    if copy is None or copy.gate is None or copy.role in ("SHADOW", "FROZEN"):
        return None
    gate = copy.gate
    missing = RealGate[int](gate.seen, gate.above).missing(covered_from(setup, state, which, gate, bits(copy)))
    if missing is None:
        return None
    after, upto = missing
    found = tuple(each for each in range(after + 1, upto + 1) if matches(setup, copy, each))
    copy = copy._replace(gate=gate._replace(seen=upto), stored=copy.stored + found)
    return open_gate(setup, change(state, which, proxy._replace(copy=copy)), which)


def broken(copy: Copy, front: int) -> Copy:
    """The site dropped what it held for this copy: the log may have a hole from here on (handover rule 9)."""
    if copy.gate is not None:
        return copy._replace(gate=copy.gate._replace(above=front, kept=()))
    return copy if copy.role in ("SHADOW", "FROZEN") else copy._replace(gate=Gate(front, front))


# ---------------------------------------------------------------- the log


def read(setup: Setup, state: State, which: int) -> State | None:
    """Read the next record of the own site's log; None: there is none."""
    proxy = state.proxies[which]
    position = proxy.read
    if not is_far(setup, which):
        if position >= state.published:
            return None
        copy = arrive(setup, proxy.copy, position + 1)
        return open_gate(setup, change(state, which, proxy._replace(read=position + 1, copy=copy)), which)
    if position >= len(state.far):
        return None
    kind, first, _, _ = state.far[position]
    before, after = fold(state.far[:position]), fold(state.far[: position + 1])
    copy = proxy.copy
    if kind == "forwarded" and after.frontier > before.frontier:
        copy = arrive(setup, copy, first)
    elif kind == "dropped" and copy is not None and not is_registered(after, copy) and "BROKEN" not in setup.off:
        copy = broken(copy, after.frontier)
    return open_gate(setup, change(state, which, proxy._replace(read=position + 1, copy=copy)), which)


def arrive(setup: Setup, copy: Copy | None, number: int) -> Copy | None:
    """Take a notification of the live stream, or keep it behind the gate."""
    if copy is None or not matches(setup, copy, number):
        return copy
    if copy.gate is None:
        return copy._replace(stored=(*copy.stored, number))
    if "GATE" in setup.off and copy.role == "SHADOW":
        return copy
    return copy._replace(gate=copy.gate._replace(kept=(*copy.gate.kept, number)))


def register_interest(setup: Setup, state: State, which: int, wanted: int) -> State:
    """Tell the site what this proxy needs, if the log does not say so already."""
    if not is_far(setup, which):
        return state
    registered = (state.proxies[which].incarnation, wanted) if wanted else None
    if fold(state.far).interest == registered:
        return state
    return state._replace(far=(*state.far, ("held", state.proxies[which].incarnation, wanted, 0)))


# ---------------------------------------------------------------- serving, keeping, dropping


def serve(setup: Setup, state: State, which: int, epoch: int) -> State:
    """Serve from now on; the registry named us at this epoch."""
    proxy = state.proxies[which]
    assert proxy.copy is not None
    copy = become(proxy.copy, "SERVING")._replace(epoch=epoch, serial=0)
    state = register_interest(setup, change(state, which, proxy._replace(copy=copy)), which, bits(copy))
    return open_gate(setup, write(setup, state, which), which)


def drop(setup: Setup, state: State, which: int) -> State:
    """Delete this copy, with what it holds at the site; the disk follows with the next save."""
    return register_interest(setup, change(state, which, state.proxies[which]._replace(copy=None)), which, 0)


def release(setup: Setup, state: State, which: int) -> State:
    """The registry names another owner: send the client there, and delete the copy."""
    client = state.client
    if client.at == which and client.attached:
        state = state._replace(client=detached(client)._replace(at=state.row.owner))
    return drop(setup, state, which)


def detached(client: Client) -> Client:
    """Return the client without a connection."""
    return client._replace(attached=False, inbox=0, owes=False)


def save(state: State, which: int) -> State | None:
    """Write to the disk all that changed; None: nothing did."""
    proxy = state.proxies[which]
    disk = Disk(proxy.read, proxy.copy)
    return None if disk == proxy.disk else change(state, which, proxy._replace(disk=disk))


def acknowledged(copy: Copy, front: int) -> int:
    """Return where a failover would begin."""
    return copy.acked if copy.stored else max(copy.acked, seen(copy, front))


def write(setup: Setup, state: State, which: int) -> State:
    """Send a checkpoint to the changelog."""
    proxy = state.proxies[which]
    copy = proxy.copy
    assert copy is not None
    copy = copy._replace(serial=copy.serial + 1)
    made = Checkpoint(
        copy.epoch, copy.serial, acknowledged(copy, frontier(setup, state, which)), copy.acked, copy.second
    )
    return change(state, which, proxy._replace(copy=copy))._replace(writes=state.writes | {made})


def lift(second: Interest | None, cut: int) -> Interest | None:
    """What lies at or below the cut is not ours to promise any more; the start stays (rule 7, L_FIXED)."""
    if second is None or second.promised is not None:
        return second
    return second._replace(promise_floor=max(second.promise_floor, cut))
