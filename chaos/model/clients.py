"""The client: where it is, what it was given, what it is owed.

After `waypost/client/protocol.py` and `proxy/clients/dispatcher.py`.
"""

from __future__ import annotations

from chaos.model.copies import bits as bits_of
from chaos.model.copies import detached, is_far, open_gate, register_interest, save, serves, site, write
from chaos.model.copies import frontier as frontier_of
from chaos.model.copies import seen as seen_by
from chaos.model.site import covered_above
from chaos.model.state import Interest, Setup, State, change, violated
from chaos.model.transfers import acquire, begin, cancel

LOSS = "P1 no loss"
REPEAT = "P2 no repeat"
ORDER = "P3 order"


def owed(setup: Setup, state: State) -> frozenset[int]:
    """Return the numbers of the published notifications that the client is owed.

    Of the second kind those are the ones above the promise; before one was made, none.
    """
    above = state.promised
    return frozenset(
        number
        for number in range(1, state.published + 1)
        if setup.world.kinds[number - 1] == 0 or (above is not None and number > above)
    )


def _passed_over(setup: Setup, state: State) -> bool:
    """Tell whether the client's frontier lies above something owed that it was not given."""
    return any(each <= state.client.frontier for each in owed(setup, state) - state.delivered)


# ---------------------------------------------------------------- going and coming


def move(state: State) -> State | None:
    """Return the state after the client has disconnected and chosen the other proxy; None: no moves are left."""
    if not state.moves:
        return None
    client = detached(state.client)._replace(at=1 - state.client.at)
    return state._replace(client=client, moves=state.moves - 1)


def offer(setup: Setup, state: State) -> State | None:
    """Return the state after the owner was told, as by an operator, to offer the session to the other proxy; that uses
    up a move.

    The client stays connected where it is; the transfer does not count as triggered by an attach. None: no moves are
    left, the owner does not serve, or the other proxy is not up, or has a copy, a transfer or a running acquisition of
    the session.
    """
    owner = state.row.owner
    other = state.proxies[1 - owner]
    if not state.moves or other.status != "up" or other.copy or other.into or other.claim or not serves(state, owner):
        return None
    return begin(setup, state._replace(moves=state.moves - 1), 1 - owner, attach=False)


def turn(state: State) -> State | None:
    """Return the state after a detached client has chosen the other proxy, because only that one is up.

    None: its own is up, or neither is. It costs no move.
    """
    client = state.client
    if client.attached or state.proxies[client.at].status == "up" or state.proxies[1 - client.at].status != "up":
        return None
    return state._replace(client=client._replace(at=1 - client.at))


def attach(setup: Setup, state: State) -> State | None:
    """Return the state after the client has attached, or after its proxy has begun to acquire the session.

    A transfer away from this proxy that an attach had triggered is aborted, unless it is frozen already. Where the
    proxy does not serve and can begin no acquisition (:func:`chaos.model.transfers.acquire`), the state is returned as
    it is. None is returned if the client is attached already, or its proxy is not up.
    """
    client = state.client
    proxy = state.proxies[client.at]
    if client.attached or proxy.status != "up":
        return None
    if not serves(state, client.at):
        return acquire(setup, state, client.at)
    state = cancel(setup, state, client.at)
    proxy = state.proxies[client.at]
    assert proxy.copy is not None
    copy = proxy.copy._replace(known=max(client.frontier, proxy.copy.acked))
    state = change(state, client.at, proxy._replace(copy=copy))
    return state._replace(client=client._replace(attached=True))


# ---------------------------------------------------------------- receiving


def deliver(setup: Setup, state: State) -> State | None:
    """Return the state after the next stored entry was sent to the client's inbox.

    An entry at or below what the client reported is dropped here; one at or below its frontier is dropped by the
    client, which acknowledges it. None: no client is attached to a serving proxy, nothing is stored, or an earlier
    entry is not acknowledged.
    """
    client = state.client
    if not client.attached or client.inbox or client.owes or not serves(state, client.at):
        return None
    proxy = state.proxies[client.at]
    copy = proxy.copy
    if copy is None or not copy.stored:
        return None
    number = copy.stored[0]
    if number <= copy.known:
        return change(state, client.at, proxy._replace(copy=copy._replace(stored=copy.stored[1:])))
    if number <= client.frontier and "DROP" not in setup.off:
        return state._replace(client=client._replace(owes=True))
    if "GIVEN" in setup.off:
        client = client._replace(frontier=max(number, client.frontier))
    return state._replace(client=client._replace(inbox=number))


def hand_to_application(setup: Setup, state: State) -> State | None:
    """Return the state after the application took the notification in the inbox; None: the inbox is empty.

    A violation of P1, P2 or P3 is noted in the state.
    """
    client = state.client
    number = client.inbox
    if not number:
        return None
    if number in state.delivered:
        state = violated(state, REPEAT)
    elif any(each > number for each in state.delivered):
        state = violated(state, ORDER)
    client = client._replace(inbox=0, owes=True, frontier=max(number, client.frontier))
    state = state._replace(client=client, delivered=state.delivered | {number})
    return violated(state, LOSS) if _passed_over(setup, state) else state


def acknowledge(state: State) -> State | None:
    """Return the state after the client's acknowledgement of the first stored entry; None: it owes none, or nobody
    takes it.
    """
    client = state.client
    if not client.attached or not client.owes:
        return None
    proxy = state.proxies[client.at]
    copy = proxy.copy
    if copy is None or copy.role not in ("SERVING", "FROZEN") or not copy.stored:
        return None
    copy = copy._replace(acked=max(copy.acked, copy.stored[0]), stored=copy.stored[1:])
    return change(state, client.at, proxy._replace(copy=copy))._replace(client=client._replace(owes=False))


# ---------------------------------------------------------------- the second kind


def want(setup: Setup, state: State) -> State | None:
    """Return the state after the application has asked for the second kind; None: it did, or the world has none."""
    if not setup.world.subscribes or state.client.second:
        return None
    return state._replace(client=state.client._replace(second=1))


def subscribe(setup: Setup, state: State) -> State | None:
    """Return the state after the owner has added the subscription to the second kind, registered the interest at its
    site, and begun to write a checkpoint of it. The copy's gate opens if it may.

    It starts above what the log, the session and the receiver have seen. None: no client is attached to a serving
    proxy, the application has not asked for the kind or was answered, or the copy has the subscription already.
    """
    client = state.client
    if not client.attached or client.second != 1 or not serves(state, client.at):
        return None
    proxy = state.proxies[client.at]
    copy = proxy.copy
    if copy is None or copy.second is not None:
        return None
    front = frontier_of(setup, state, client.at)
    start = max(front, seen_by(copy, front), copy.known)
    copy = copy._replace(second=Interest(start, start))
    state = register_interest(setup, change(state, client.at, proxy._replace(copy=copy)), client.at, bits_of(copy))
    return open_gate(setup, write(setup, state, client.at), client.at)


def confirm(setup: Setup, state: State) -> State | None:
    """Return the state after the owner has confirmed the subscription, which store and changelog have by then (rule 6);
    or, where the changelog has no checkpoint of this epoch with it, after the owner has begun to write one: a later
    call confirms.

    None: no client is attached to a serving proxy, nothing is to be confirmed, or that checkpoint is still being
    written.
    """
    client = state.client
    if not client.attached or client.second != 1 or not serves(state, client.at):
        return None
    copy = state.proxies[client.at].copy
    if copy is None or copy.second is None:
        return None
    if "ANSWER" not in setup.off:
        if state.checkpoint.epoch != copy.epoch or state.checkpoint.second is None:
            # Asked again of another owner, which writes again before it answers.
            return None if _writing(state, copy.epoch) else write(setup, state, client.at)
        state = save(state, client.at) or state
    return state._replace(client=client._replace(second=2))


def _writing(state: State, epoch: int) -> bool:
    return any(checkpoint.epoch == epoch and checkpoint.second is not None for checkpoint in state.writes)


def promise(setup: Setup, state: State) -> State | None:
    """Return the state after the serving proxy has promised all notifications of the second kind above an offset, in a
    checkpoint that is being written.

    None: no client is attached to a serving proxy, the copy has no subscription to that kind, the promise was made
    before, or the offset above which the kind is effective is not known.
    """
    client = state.client
    if not client.attached or not serves(state, client.at):
        return None
    proxy = state.proxies[client.at]
    copy = proxy.copy
    if copy is None or copy.second is None or copy.second.promised is not None:
        return None
    above = covered_above(site(state, client.at), 2) if is_far(setup, client.at) else 0
    if above is None or (copy.gate is not None and copy.gate.seen is None):
        return None
    start = max(above, copy.second.promise_floor, copy.known)
    copy = copy._replace(second=copy.second._replace(promised=start))
    return write(setup, change(state, client.at, proxy._replace(copy=copy)), client.at)


def announce_promise(setup: Setup, state: State) -> State | None:
    """Return the state after the client was told the promise, which changelog and disk have by then: the copy is saved
    to disk for it.

    None is returned if no client is attached to a serving proxy, nothing is promised, a promise at or below it was
    announced before, or the changelog has no promise. A violation of P1 is noted in the state.
    """
    client = state.client
    if not client.attached or not serves(state, client.at):
        return None
    copy = state.proxies[client.at].copy
    if copy is None or copy.second is None or copy.second.promised is None:
        return None
    promised = copy.second.promised
    if state.promised is not None and state.promised <= promised:
        return None
    known = state.checkpoint.second
    if known is None or known.promised is None:
        return None
    if "PROMISE" not in setup.off:
        state = save(state, client.at) or state
    state = state._replace(promised=promised)
    return violated(state, LOSS) if _passed_over(setup, state) else state
