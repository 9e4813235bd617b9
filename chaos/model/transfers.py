"""Both sides of a transfer: the tables of `handover/`, and their effects.

After `proxy/ownership/outgoing_transfers.py` and `proxy/ownership/incoming_transfers.py`. What is copied ahead travels
with the cut here: chunks are an arrangement of the same data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from chaos.model.copies import (
    alive,
    become,
    bits,
    covered_from,
    drop,
    frontier,
    lift,
    open_gate,
    register_interest,
    release,
    seen,
    serve,
    serves,
)
from chaos.model.owners import orphaned, rebuild, row_read
from chaos.model.state import Claim, Copy, Disk, Gate, In, Message, Out, Setup, State, change
from chaos.model.tables import SOURCE, TARGET, Named

Effect = Callable[[Setup, State, int, Message | None], State]


def send(state: State, message: Message) -> State:
    """Return the state with one more message on its way."""
    return state._replace(messages=state.messages | {message})


class Side(NamedTuple):
    """One side of a transfer: under which name a proxy has it, its table, and what its effects do."""

    name: str
    table: Named
    effects: dict[str, Effect]

    def feed(self, setup: Setup, state: State, which: int, given: str, message: Message | None = None) -> State:
        """Give the proxy's machine an input; one that its table does not list changes nothing."""
        proxy = state.proxies[which]
        running: Out | In | None = getattr(proxy, self.name)
        cell = self.table.get((running.state, given)) if running else None
        if running is None or cell is None:
            return state
        effects, after = cell
        turned: dict[str, Any] = {self.name: running._replace(state=after)}
        state = change(state, which, proxy._replace(**turned))
        for effect in effects:
            state = self.effects[effect](setup, state, which, message)
        return state


# ---------------------------------------------------------------- the source


def _out(state: State, which: int) -> Out:
    out = state.proxies[which].out
    assert out is not None
    return out


def _copy(state: State, which: int) -> Copy:
    copy = state.proxies[which].copy
    assert copy is not None
    return copy


def end_out(state: State, which: int) -> State:
    """Return the state after the proxy's transfer as a source has ended."""
    proxy = state.proxies[which]
    over = proxy.over | {_out(state, which).transfer}
    state = change(state, which, proxy._replace(out=None, over=over))
    claim = proxy.claim
    return orphaned(state, which) if claim and claim.kind == "thaw" else state


def _nothing(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return state


def _send_prepared(setup: Setup, state: State, which: int, message: Message | None) -> State:
    out, copy = _out(state, which), _copy(state, which)
    return send(state, Message(1 - which, "Prepared", out.transfer, out.epoch, acked=copy.acked, second=copy.second))


def _freeze(setup: Setup, state: State, which: int, message: Message | None) -> State:
    copy, front = _copy(state, which), frontier(setup, state, which)
    gate = copy.gate or Gate(front, front)
    frozen = become(copy, "FROZEN")._replace(gate=gate)
    return change(state, which, state.proxies[which]._replace(copy=frozen))


def _send_frozen(setup: Setup, state: State, which: int, message: Message | None) -> State:
    out, copy = _out(state, which), state.proxies[which].copy
    if copy is None:
        return state
    cut = seen(copy, frontier(setup, state, which))
    state = send(
        state,
        Message(
            1 - which,
            "Frozen",
            out.transfer,
            out.epoch,
            cut=cut,
            stored=copy.stored,
            acked=copy.acked,
            second=copy.second,
        ),
    )
    if "DELETE" in setup.off:
        proxy = state.proxies[which]
        state = change(state, which, proxy._replace(copy=None, disk=Disk(proxy.read, None)))
    return state


def _reclaim(setup: Setup, state: State, which: int, message: Message | None) -> State:
    out = _out(state, which)
    if "THAW" in setup.off:
        return serve(setup, end_out(state, which), which, out.epoch)
    return row_read(state, which, Claim(which, out.epoch, which, "thaw", out.transfer))


def _thaw(setup: Setup, state: State, which: int, message: Message | None) -> State:
    epoch = _out(state, which).epoch + 1
    return serve(setup, end_out(state, which), which, epoch)


def _release(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return release(setup, end_out(state, which), which)


def _forget(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return end_out(state, which)


def _read_owner(setup: Setup, state: State, which: int, message: Message | None) -> State:
    proxy = state.proxies[which]
    running = proxy.out or proxy.into
    assert running is not None
    way = "thaw" if proxy.out else "handover"
    return row_read(state, which, Claim(which, running.epoch, which, way, running.transfer, read=True))


SOURCE_EFFECTS: dict[str, Effect] = {
    "SendPrepared": _send_prepared,
    "CountStored": _nothing,
    "SendChunks": _nothing,
    "Freeze": _freeze,
    "SendFrozen": _send_frozen,
    "FindLaterOwner": _nothing,
    "Claim": _reclaim,
    "ReadOwner": _read_owner,
    "Thaw": _thaw,
    "Release": _release,
    "Forget": _forget,
}
feed_source = Side("out", SOURCE, SOURCE_EFFECTS).feed


# ---------------------------------------------------------------- the target


def _in(state: State, which: int) -> In:
    into = state.proxies[which].into
    assert into is not None
    return into


def end_in(state: State, which: int) -> State:
    """Return the state after the proxy's transfer as a target has ended."""
    proxy = state.proxies[which]
    state = change(state, which, proxy._replace(into=None))
    claim = proxy.claim
    return orphaned(state, which) if claim and claim.kind == "handover" else state


def _send(state: State, which: int, kind: str) -> State:
    into = _in(state, which)
    return send(state, Message(1 - which, kind, into.transfer, into.epoch, into.attach))


def _send_prepare(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return _send(state, which, "Prepare")


def _install(setup: Setup, state: State, which: int, message: Message | None) -> State:
    assert message is not None
    front = frontier(setup, state, which)
    shadow = Copy("SHADOW", message.epoch, Gate(None, front), (), 0, 0, message.second)
    state = change(state, which, state.proxies[which]._replace(copy=shadow))
    return register_interest(setup, state, which, bits(shadow))


def _send_ready(setup: Setup, state: State, which: int, message: Message | None) -> State:
    into, shadow = _in(state, which), _copy(state, which)
    assert shadow.gate is not None
    above = covered_from(setup, state, which, shadow.gate, bits(shadow))
    return send(state, Message(1 - which, "Ready", into.transfer, into.epoch, cut=above))


def _merge(setup: Setup, state: State, which: int, message: Message | None) -> State:
    """Join the shadow with the cut; what interests it now may be more than what it kept matches of (rule 8)."""
    assert message is not None and message.cut is not None
    shadow, front = _copy(state, which), frontier(setup, state, which)
    assert shadow.gate is not None
    gate = shadow.gate._replace(seen=message.cut)
    if (shadow.second is None) != (message.second is None) and "MERGE" not in setup.off:
        gate = gate._replace(above=front, kept=())
    staged = become(shadow, "STAGED")._replace(
        epoch=message.epoch + 1,
        gate=gate,
        stored=message.stored,
        acked=message.acked,
        second=lift(message.second, message.cut),
    )
    state = change(state, which, state.proxies[which]._replace(copy=staged))
    return open_gate(setup, register_interest(setup, state, which, bits(staged)), which)


def _claim(setup: Setup, state: State, which: int, message: Message | None) -> State:
    into = _in(state, which)
    if "RELEASE" in setup.off:
        state = _send(state, which, "Took")
    return row_read(state, which, Claim(1 - which, into.epoch, which, "handover", into.transfer))


def _adopt(setup: Setup, state: State, which: int, message: Message | None) -> State:
    epoch = _in(state, which).epoch + 1
    return serve(setup, end_in(state, which), which, epoch)


def _discard(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return drop(setup, end_in(state, which), which)


def _send_aborted(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return _send(state, which, "Aborted")


def _fail_over(setup: Setup, state: State, which: int, message: Message | None) -> State:
    return acquire(setup, state, which)


TARGET_EFFECTS: dict[str, Effect] = {
    "SendPrepare": _send_prepare,
    "Install": _install,
    "TakeChunk": _nothing,
    "AcknowledgeChunks": _nothing,
    "SendReady": _send_ready,
    "Merge": _merge,
    "Claim": _claim,
    "ReadOwner": _read_owner,
    "Adopt": _adopt,
    "Discard": _discard,
    "Relay": _discard,
    "SendAborted": _send_aborted,
    "FailOver": _fail_over,
}
feed_target = Side("into", TARGET, TARGET_EFFECTS).feed


def acquire(setup: Setup, state: State, which: int) -> State:
    """Come to serve the session, by whatever way the registry leaves."""
    proxy = state.proxies[which]
    if proxy.status != "up" or proxy.copy or proxy.into or proxy.claim:
        return state
    if state.row.owner != which and alive(state, 1 - which):
        return begin(setup, state, which, attach=True)
    return rebuild(state, which)


def begin(setup: Setup, state: State, which: int, *, attach: bool) -> State:
    """Ask the owner for the session. The transfer's id is one of which nobody has heard, or nobody any more."""
    used = {message.transfer for message in state.messages}
    used |= {running.transfer for proxy in state.proxies for running in (proxy.out, proxy.into) if running}
    transfer = next(each for each in range(1, 100) if each not in used)
    into = In("PREPARING", transfer, state.row.epoch, attach)
    state = change(state, which, state.proxies[which]._replace(into=into))
    return _send_prepare(setup, state, which, None)


# ---------------------------------------------------------------- messages


def take(setup: Setup, state: State, message: Message) -> State:
    """Take a message where it is addressed to; a process that is not there takes nothing."""
    which = message.to
    if state.proxies[which].status in ("down", "dead"):
        return state
    if message.kind == "Prepare":
        return _prepare(setup, state, which, message)
    if message.kind in ("Ready", "Aborted", "Took"):
        return _to_source(setup, state, which, message)
    into = state.proxies[which].into
    if into is not None and into.transfer == message.transfer:
        return feed_target(setup, state, which, message.kind, message)
    if message.kind == "Frozen" and state.row.owner != which:
        # A frozen source must know that nobody will take the session (handover rule 5).
        return send(state, Message(1 - which, "Aborted", message.transfer, message.epoch))
    return state


def _to_source(setup: Setup, state: State, which: int, message: Message) -> State:
    out = state.proxies[which].out
    if out is None or out.transfer != message.transfer:
        if message.kind != "Ready":
            return state
        return send(state, Message(1 - which, "Refused", message.transfer, message.epoch))
    if message.kind == "Took":
        return _release(setup, state, which, message)
    if message.kind == "Ready" and out.state == "COPYING":
        state = change(state, which, state.proxies[which]._replace(out=out._replace(above=message.cut)))
    return feed_source(setup, state, which, message.kind, message)


def _prepare(setup: Setup, state: State, which: int, message: Message) -> State:
    proxy = state.proxies[which]
    out, copy = proxy.out, proxy.copy
    if out is not None and out.transfer == message.transfer:
        return feed_source(setup, state, which, "Prepare", message)
    busy = out is not None and out.state in ("FROZEN", "CONFIRMING", "RECLAIMING")
    served = serves(state, which) and copy is not None and copy.epoch == message.epoch
    if message.transfer in proxy.over or not served or busy:
        return send(state, Message(1 - which, "Refused", message.transfer, message.epoch))
    client = state.client
    if message.attach and client.attached and client.at == which:
        return send(state, Message(1 - which, "TransferDeclined", message.transfer, message.epoch))
    if out is not None:
        proxy = proxy._replace(over=proxy.over | {out.transfer})
    begun = Out("COPYING", message.transfer, message.epoch, message.attach)
    return feed_source(setup, change(state, which, proxy._replace(out=begun)), which, "Prepare", message)


def cancel(setup: Setup, state: State, which: int) -> State:
    """The client is back here before the freeze: the session stays, if it was to go for it."""
    out = state.proxies[which].out
    if out is None or not out.attach or out.state not in ("COPYING", "WAITING"):
        return state
    state = send(state, Message(1 - which, "Refused", out.transfer, out.epoch))
    return feed_source(setup, state, which, "Aborted")


def passed(setup: Setup, state: State, which: int) -> bool:
    """Tell whether the source has passed what the target is covered from."""
    copy, out = _copy(state, which), _out(state, which)
    return out.above is None or seen(copy, frontier(setup, state, which)) >= out.above
