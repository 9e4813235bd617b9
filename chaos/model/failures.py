"""Crashes, leases that end, and what follows from them. A fault costs; coming back is free."""

from __future__ import annotations

from chaos.model.copies import become, detached, drop, is_far
from chaos.model.owners import orphaned, register_interests_again
from chaos.model.site import fold
from chaos.model.state import Gate, Proxy, Setup, State, change

ENDED = {"fenced": "out", "down": "dead"}


def crash(state: State, index: int) -> State | None:
    """Return the state after the process of proxy `index` has crashed: memory is lost, the disk stays, and the
    connection of a client there ends.

    A request to the registry that was not handled may still be applied. A lease that has ended stays so; one that
    counts ends later (:func:`expire`). None is returned if no process runs.
    """
    proxy = state.proxies[index]
    if proxy.status in ("down", "dead"):
        return None
    state = orphaned(state, index)
    proxy = state.proxies[index]
    status = "down" if proxy.status in ("up", "fenced") else "dead"
    state = change(state, index, Proxy(status, proxy.incarnation, proxy.disk.read, None, proxy.disk))
    return _cut_off(state, index)


def _cut_off(state: State, index: int) -> State:
    """Return the state after this proxy was cut off: receivers that are attached here ask again."""
    client = state.client
    return state._replace(client=detached(client)) if client.at == index else state


def fence(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after proxy `index` has stopped serving, before its lease can end. None is returned if the proxy
    is not up.

    Served and frozen copies become dormant, a staged one an orphan; a shadow is dropped, transfers and the client's
    connection end. The answer to a request that is under way at the registry is not waited for any more; a
    compare-and-set may still be applied later. Without the rule FENCE the proxy only becomes rogue, and serves on.
    """
    proxy = state.proxies[index]
    if proxy.status != "up":
        return None
    if "FENCE" in setup.off:
        return change(state, index, proxy._replace(status="rogue"))
    state = change(state, index, proxy._replace(status="fenced", out=None, into=None))
    claim = proxy.claim
    if claim is not None and (claim.transfer or "LEASE" not in setup.off):
        # An answer to a question under one lease is not taken under the next.
        state = orphaned(state, index)
    copy = proxy.copy
    if copy is not None and copy.role == "SHADOW":
        state = drop(setup, state, index)
    elif copy is not None and copy.role in ("SERVING", "FROZEN", "STAGED"):
        copy = become(copy, "ORPHAN" if copy.role == "STAGED" else "DORMANT")
        state = change(state, index, state.proxies[index]._replace(copy=copy))
    return _cut_off(state, index)


def expire(state: State, index: int) -> State | None:
    """Return the state after the lease of proxy `index`, which is fenced or down, has ended; None: it is neither."""
    after = ENDED.get(state.proxies[index].status)
    return None if after is None else change(state, index, state.proxies[index]._replace(status=after))


def grant(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after proxy `index`, which is fenced, out or rogue, is up with a lease; a proxy at the far site
    is a new incarnation then.

    The interest of its copy is registered again. None is returned if the proxy is up already, or has no process.
    """
    proxy = state.proxies[index]
    if proxy.status not in ("fenced", "out", "rogue"):
        return None
    state = change(state, index, proxy._replace(status="up", incarnation=_next_incarnation(setup, index, proxy)))
    return register_interests_again(setup, state, index)


def restart(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after a process of proxy `index` has started with what the disk has, under a new lease; None: a
    process runs.

    A shadow on the disk is discarded; a staged copy becomes an orphan, an orphan stays one, and any other copy is
    dormant. Its gate, if it has one, keeps back what the log brings from here on; the interests are registered again.

    Args:
        setup: the configuration.
        state: before the start.
        index: of the proxy.
    """
    proxy = state.proxies[index]
    if proxy.status not in ("down", "dead"):
        return None
    copy = proxy.disk.copy
    if copy is not None and copy.role == "SHADOW":
        copy = None
    if copy is not None:
        front = fold(state.far[: proxy.disk.read]).frontier if is_far(setup, index) else proxy.disk.read
        gate = None if copy.gate is None else Gate(copy.gate.seen, front)
        role = "ORPHAN" if copy.role in ("STAGED", "ORPHAN") else "DORMANT"
        copy = copy._replace(role=role, gate=gate, known=0)
    begun = Proxy("up", _next_incarnation(setup, index, proxy), proxy.disk.read, copy, proxy.disk)
    return register_interests_again(setup, change(state, index, begun), index)


def _next_incarnation(setup: Setup, index: int, proxy: Proxy) -> int:
    """Only the far site's log tells incarnations apart."""
    return proxy.incarnation + 1 if is_far(setup, index) else proxy.incarnation


def forgotten(setup: Setup, state: State, index: int) -> State | None:
    """Return the state after the far site's log has the record that the interest of an ended incarnation has expired.

    None: proxy `index` is at the origin's site, no interest is registered, or its incarnation still has a lease.
    """
    if not is_far(setup, index):
        return None
    proxy, held = state.proxies[index], fold(state.far).interest
    if held is None or (held[0] == proxy.incarnation and proxy.status not in ("out", "dead", "rogue")):
        return None
    return state._replace(far=(*state.far, ("dropped", held[0], 0, 0)))
