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
    """Return the state with a message on its way; one that is equal to a message already on its way is that one."""
    return state._replace(messages=state.messages | {message})


class Side(NamedTuple):
    """One side of a transfer: under which name a proxy has it, its table, and what its effects do."""

    name: str
    table: Named
    effects: dict[str, Effect]

    def feed(self, setup: Setup, state: State, index: int, given: str, message: Message | None = None) -> State:
        """Return the state after the machine of proxy `index` on this side has taken an input, and its effects were
        performed.

        Unchanged if the proxy has no transfer on this side, or the table does not list the input.

        Args:
            given: the name of the input's kind.
            message: that the input is; None: it is no message.
        """
        proxy = state.proxies[index]
        running: Out | In | None = getattr(proxy, self.name)
        cell = self.table.get((running.state, given)) if running else None
        if running is None or cell is None:
            return state
        effects, after = cell
        turned: dict[str, Any] = {self.name: running._replace(state=after)}
        state = change(state, index, proxy._replace(**turned))
        for effect in effects:
            state = self.effects[effect](setup, state, index, message)
        return state


# ---------------------------------------------------------------- the source


def _out(state: State, index: int) -> Out:
    out = state.proxies[index].out
    assert out is not None
    return out


def _copy(state: State, index: int) -> Copy:
    copy = state.proxies[index].copy
    assert copy is not None
    return copy


def end_out(state: State, index: int) -> State:
    """Return the state after the transfer of which proxy `index` is the source has ended; there must be one.

    The proxy refuses a later Prepare of this transfer. A claim of it is not waited for any more
    (:func:`chaos.model.owners.orphaned`).
    """
    proxy = state.proxies[index]
    over = proxy.over | {_out(state, index).transfer}
    state = change(state, index, proxy._replace(out=None, over=over))
    claim = proxy.claim
    return orphaned(state, index) if claim and claim.kind == "thaw" else state


def _nothing(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return state


def _send_prepared(setup: Setup, state: State, index: int, message: Message | None) -> State:
    out, copy = _out(state, index), _copy(state, index)
    return send(state, Message(1 - index, "Prepared", out.transfer, out.epoch, acked=copy.acked, second=copy.second))


def _freeze(setup: Setup, state: State, index: int, message: Message | None) -> State:
    copy, front = _copy(state, index), frontier(setup, state, index)
    gate = copy.gate or Gate(front, front)
    frozen = become(copy, "FROZEN")._replace(gate=gate)
    return change(state, index, state.proxies[index]._replace(copy=frozen))


def _send_frozen(setup: Setup, state: State, index: int, message: Message | None) -> State:
    out, copy = _out(state, index), state.proxies[index].copy
    if copy is None:
        return state
    cut = seen(copy, frontier(setup, state, index))
    state = send(
        state,
        Message(
            1 - index,
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
        proxy = state.proxies[index]
        state = change(state, index, proxy._replace(copy=None, disk=Disk(proxy.read, None)))
    return state


def _reclaim(setup: Setup, state: State, index: int, message: Message | None) -> State:
    out = _out(state, index)
    if "THAW" in setup.off:
        return serve(setup, end_out(state, index), index, out.epoch)
    return row_read(state, index, Claim(index, out.epoch, index, "thaw", out.transfer))


def _thaw(setup: Setup, state: State, index: int, message: Message | None) -> State:
    epoch = _out(state, index).epoch + 1
    return serve(setup, end_out(state, index), index, epoch)


def _release(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return release(setup, end_out(state, index), index)


def _forget(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return end_out(state, index)


def _read_owner(setup: Setup, state: State, index: int, message: Message | None) -> State:
    proxy = state.proxies[index]
    running = proxy.out or proxy.into
    assert running is not None
    way = "thaw" if proxy.out else "handover"
    return row_read(state, index, Claim(index, running.epoch, index, way, running.transfer, read=True))


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


def _in(state: State, index: int) -> In:
    into = state.proxies[index].into
    assert into is not None
    return into


def end_in(state: State, index: int) -> State:
    """Return the state after the transfer of which proxy `index` is the target has ended; there must be one.

    A claim of this transfer is not waited for any more (:func:`chaos.model.owners.orphaned`).
    """
    proxy = state.proxies[index]
    state = change(state, index, proxy._replace(into=None))
    claim = proxy.claim
    return orphaned(state, index) if claim and claim.kind == "handover" else state


def _send(state: State, index: int, kind: str) -> State:
    into = _in(state, index)
    return send(state, Message(1 - index, kind, into.transfer, into.epoch, into.attach))


def _send_prepare(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return _send(state, index, "Prepare")


def _install(setup: Setup, state: State, index: int, message: Message | None) -> State:
    assert message is not None
    front = frontier(setup, state, index)
    shadow = Copy("SHADOW", message.epoch, Gate(None, front), (), 0, 0, message.second)
    state = change(state, index, state.proxies[index]._replace(copy=shadow))
    return register_interest(setup, state, index, bits(shadow))


def _send_ready(setup: Setup, state: State, index: int, message: Message | None) -> State:
    into, shadow = _in(state, index), _copy(state, index)
    assert shadow.gate is not None
    above = covered_from(setup, state, index, shadow.gate, bits(shadow))
    return send(state, Message(1 - index, "Ready", into.transfer, into.epoch, cut=above))


def _merge(setup: Setup, state: State, index: int, message: Message | None) -> State:
    """Join the shadow with the cut; what interests it now may be more than what it kept matches of (rule 8)."""
    assert message is not None and message.cut is not None
    shadow, front = _copy(state, index), frontier(setup, state, index)
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
    state = change(state, index, state.proxies[index]._replace(copy=staged))
    return open_gate(setup, register_interest(setup, state, index, bits(staged)), index)


def _claim(setup: Setup, state: State, index: int, message: Message | None) -> State:
    into = _in(state, index)
    if "RELEASE" in setup.off:
        state = _send(state, index, "Took")
    return row_read(state, index, Claim(1 - index, into.epoch, index, "handover", into.transfer))


def _adopt(setup: Setup, state: State, index: int, message: Message | None) -> State:
    epoch = _in(state, index).epoch + 1
    return serve(setup, end_in(state, index), index, epoch)


def _discard(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return drop(setup, end_in(state, index), index)


def _send_aborted(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return _send(state, index, "Aborted")


def _fail_over(setup: Setup, state: State, index: int, message: Message | None) -> State:
    return acquire(setup, state, index)


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


def acquire(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index` has begun to acquire the session: from a live owner, or by failover.

    Unchanged if the proxy is not up, has a copy, or acquires the session already.
    """
    proxy = state.proxies[index]
    if proxy.status != "up" or proxy.copy or proxy.into or proxy.claim:
        return state
    if state.row.owner != index and alive(state, 1 - index):
        return begin(setup, state, index, attach=True)
    return rebuild(state, index)


def begin(setup: Setup, state: State, index: int, *, attach: bool) -> State:
    """Return the state after the proxy has begun a transfer to itself, and has sent Prepare to the other proxy.

    The transfer gets an id that no message under way and no running transfer has.

    Args:
        index: index of the target, A or B.
        attach: whether a client's attach triggered it; False: an operator did.
    """
    used = {message.transfer for message in state.messages}
    used |= {running.transfer for proxy in state.proxies for running in (proxy.out, proxy.into) if running}
    transfer = next(each for each in range(1, 100) if each not in used)
    into = In("PREPARING", transfer, state.row.epoch, attach)
    state = change(state, index, state.proxies[index]._replace(into=into))
    return _send_prepare(setup, state, index, None)


# ---------------------------------------------------------------- messages


def take(setup: Setup, state: State, message: Message) -> State:
    """Return the state after a proxy has received a message of a transfer; a process that is down ignores it.

    The caller has removed the message from those under way. One of an unknown transfer is answered where the other side
    waits for an answer: with TransferRefused, or with Aborted for a Frozen (handover rule 5).
    """
    index = message.to
    if state.proxies[index].status in ("down", "dead"):
        return state
    if message.kind == "Prepare":
        return _prepare(setup, state, index, message)
    if message.kind in ("Ready", "Aborted", "Took"):
        return _to_source(setup, state, index, message)
    into = state.proxies[index].into
    if into is not None and into.transfer == message.transfer:
        return feed_target(setup, state, index, message.kind, message)
    if message.kind == "Frozen" and state.row.owner != index:
        # A frozen source must know that nobody will take the session (handover rule 5).
        return send(state, Message(1 - index, "Aborted", message.transfer, message.epoch))
    return state


def _to_source(setup: Setup, state: State, index: int, message: Message) -> State:
    out = state.proxies[index].out
    if out is None or out.transfer != message.transfer:
        if message.kind != "Ready":
            return state
        return send(state, Message(1 - index, "TransferRefused", message.transfer, message.epoch))
    if message.kind == "Took":
        return _release(setup, state, index, message)
    if message.kind == "Ready" and out.state == "COPYING":
        state = change(state, index, state.proxies[index]._replace(out=out._replace(above=message.cut)))
    return feed_source(setup, state, index, message.kind, message)


def _prepare(setup: Setup, state: State, index: int, message: Message) -> State:
    proxy = state.proxies[index]
    out, copy = proxy.out, proxy.copy
    if out is not None and out.transfer == message.transfer:
        return feed_source(setup, state, index, "Prepare", message)
    busy = out is not None and out.state in ("FROZEN", "CONFIRMING", "RECLAIMING")
    served = serves(state, index) and copy is not None and copy.epoch == message.epoch
    if message.transfer in proxy.over or not served or busy:
        return send(state, Message(1 - index, "TransferRefused", message.transfer, message.epoch))
    client = state.client
    if message.attach and client.attached and client.at == index:
        return send(state, Message(1 - index, "TransferDeclined", message.transfer, message.epoch))
    if out is not None:
        proxy = proxy._replace(over=proxy.over | {out.transfer})
    begun = Out("COPYING", message.transfer, message.epoch, message.attach)
    return feed_source(setup, change(state, index, proxy._replace(out=begun)), index, "Prepare", message)


def cancel(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index`, the source, has aborted a transfer that an attach had triggered.

    Call it when the client is back at the source. Unchanged if no transfer runs, an operator triggered it, or it is
    frozen already.
    """
    out = state.proxies[index].out
    if out is None or not out.attach or out.state not in ("COPYING", "WAITING"):
        return state
    state = send(state, Message(1 - index, "TransferRefused", out.transfer, out.epoch))
    return feed_source(setup, state, index, "Aborted")


def passed(setup: Setup, state: State, index: int) -> bool:
    """Tell whether the copy of proxy `index`, the source of a transfer, has seen all that lies below the target's
    coverage.

    True if what the copy has seen (C of its gate, if that is closed, else the proxy's frontier) is at or above the
    offset that the target's Ready said, or Ready said none. The proxy must have a copy.
    """
    copy, out = _copy(state, index), _out(state, index)
    return out.above is None or seen(copy, frontier(setup, state, index)) >= out.above
