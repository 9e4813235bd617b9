"""Crashes, leases that end, and what follows from them. A fault costs; coming back is free."""

from __future__ import annotations

from chaos.model.copies import become, detached, drop, is_far
from chaos.model.owners import orphaned, register_interests_again
from chaos.model.site import fold
from chaos.model.state import Gate, Proxy, Setup, State, change

ENDED = {"fenced": "out", "down": "dead"}


def crash(state: State, which: int) -> State | None:
    """The process ends; what it has not saved is lost, what it asked of the registry may still be done."""
    proxy = state.proxies[which]
    if proxy.status in ("down", "dead"):
        return None
    state = orphaned(state, which)
    proxy = state.proxies[which]
    status = "down" if proxy.status in ("up", "fenced") else "dead"
    state = change(state, which, Proxy(status, proxy.incarnation, proxy.disk.read, None, proxy.disk))
    return _cut_off(state, which)


def _cut_off(state: State, which: int) -> State:
    """Who is attached here asks again."""
    client = state.client
    return state._replace(client=detached(client)) if client.at == which else state


def fence(setup: Setup, state: State, which: int) -> State | None:
    """The proxy cannot keep its lease: it stops before the lease can end."""
    proxy = state.proxies[which]
    if proxy.status != "up":
        return None
    if "FENCE" in setup.off:
        return change(state, which, proxy._replace(status="rogue"))
    state = change(state, which, proxy._replace(status="fenced", out=None, into=None))
    claim = proxy.claim
    if claim is not None and (claim.transfer or "LEASE" not in setup.off):
        # What was asked for under one lease is not taken under the next.
        state = orphaned(state, which)
    copy = proxy.copy
    if copy is not None and copy.role == "SHADOW":
        state = drop(setup, state, which)
    elif copy is not None and copy.role in ("SERVING", "FROZEN", "STAGED"):
        copy = become(copy, "ORPHAN" if copy.role == "STAGED" else "DORMANT")
        state = change(state, which, state.proxies[which]._replace(copy=copy))
    return _cut_off(state, which)


def expire(state: State, which: int) -> State | None:
    """The registry ends the lease."""
    after = ENDED.get(state.proxies[which].status)
    return None if after is None else change(state, which, state.proxies[which]._replace(status=after))


def grant(setup: Setup, state: State, which: int) -> State | None:
    """A proxy that runs has a lease again: a new incarnation."""
    proxy = state.proxies[which]
    if proxy.status not in ("fenced", "out", "rogue"):
        return None
    state = change(state, which, proxy._replace(status="up", incarnation=_next_incarnation(setup, which, proxy)))
    return register_interests_again(setup, state, which)


def restart(setup: Setup, state: State, which: int) -> State | None:
    """A new process begins with what the disk has."""
    proxy = state.proxies[which]
    if proxy.status not in ("down", "dead"):
        return None
    copy = proxy.disk.copy
    if copy is not None and copy.role == "SHADOW":
        copy = None
    if copy is not None:
        front = fold(state.far[: proxy.disk.read]).frontier if is_far(setup, which) else proxy.disk.read
        gate = None if copy.gate is None else Gate(copy.gate.seen, front)
        role = "ORPHAN" if copy.role in ("STAGED", "ORPHAN") else "DORMANT"
        copy = copy._replace(role=role, gate=gate, known=0)
    begun = Proxy("up", _next_incarnation(setup, which, proxy), proxy.disk.read, copy, proxy.disk)
    return register_interests_again(setup, change(state, which, begun), which)


def _next_incarnation(setup: Setup, which: int, proxy: Proxy) -> int:
    """Only the far site's log tells incarnations apart."""
    return proxy.incarnation + 1 if is_far(setup, which) else proxy.incarnation


def forgotten(setup: Setup, state: State, which: int) -> State | None:
    """Another proxy of the site says in the log that what this one held ended with its lease."""
    if not is_far(setup, which):
        return None
    proxy, held = state.proxies[which], fold(state.far).interest
    if held is None or (held[0] == proxy.incarnation and proxy.status not in ("out", "dead", "rogue")):
        return None
    return state._replace(far=(*state.far, ("dropped", held[0], 0, 0)))
