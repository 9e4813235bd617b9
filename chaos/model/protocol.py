"""The protocol as a relation: from a state, every step that something in it can take next."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.model import clients, owners, proxies, transfers
from chaos.model.site import fold
from chaos.model.state import (
    NAMES,
    A,
    B,
    Checkpoint,
    Client,
    Copy,
    Disk,
    Proxy,
    Row,
    Setup,
    State,
    Step,
    change,
    violated,
)

FORGOTTEN = "a failover never begins before a place that a newer owner had left"
NO_CHECKPOINT = Checkpoint(0, 0, 0, 0, None)
STAGED = Copy("STAGED", 0, None, (), 0)


def initial(setup: Setup) -> State:
    """Return the state in which every run begins: the session is served by its initial owner, saved and checkpointed,
    its client is attached there, and nothing was published yet.
    """
    world = setup.world
    copy = Copy("SERVING", 1, None, (), 0)
    far = (("held", 1, 1, 0), ("effective", 0, 1, 0)) if world.far and world.initial_owner else ()
    position = len(far)
    owner = Proxy("up", 1, position, copy, Disk(position, copy))
    other = Proxy("up", 1, 0, None, Disk(0, None))
    return State(
        published=0,
        far=far,
        filter=fold(far).wants,
        row=Row(world.initial_owner, 1),
        proxies=(other, owner) if world.initial_owner else (owner, other),
        client=Client(world.initial_owner, attached=True),
        messages=frozenset(),
        late=frozenset(),
        writes=frozenset(),
        checkpoint=Checkpoint(1, 0, 0, 0, None),
        faults=world.faults,
        moves=world.moves,
    )


def steps(setup: Setup, state: State) -> Iterator[Step]:
    """Yield every step that can be taken in a state; several may lead to the same state.

    A step that is a fault costs one of `state.faults`.
    """
    sorts = setup.world.sorts
    for step in _all(setup, state):
        if step.fault and step.fault not in sorts:
            continue
        after = step.state
        if step.fault:
            after = after._replace(faults=after.faults - 1)
        after = _tidy(setup, after)
        if after != state:
            yield Step(step.label, after, step.fault)


def _tidy(setup: Setup, state: State) -> State:
    """Forget what can make no difference any more, so that states that differ in nothing else are one."""
    if state.messages:
        state = _without_stale(state)
    if state.late:
        # A claim from an epoch that is past is never applied.
        late = frozenset(claim for claim in state.late if claim.epoch >= state.row.epoch or "COMMIT" in setup.off)
        state = state._replace(late=late)
    for index, proxy in enumerate(state.proxies):
        tidied = _tidy_proxy(state, index, proxy)
        if tidied is not proxy:
            state = change(state, index, tidied)
    if state.faults or not _nobody_rebuilds(setup, state):
        return state
    return state._replace(writes=frozenset(), checkpoint=NO_CHECKPOINT)


def _without_stale(state: State) -> State:
    """Messages of a transfer that runs nowhere and that no Prepare can begin again come to nothing."""
    alive = {message.transfer for message in state.messages if message.kind == "Prepare"}
    alive |= {running.transfer for proxy in state.proxies for running in (proxy.out, proxy.into) if running}
    messages = frozenset(message for message in state.messages if message.transfer in alive)
    return state if len(messages) == len(state.messages) else state._replace(messages=messages)


def _tidy_proxy(state: State, index: int, proxy: Proxy) -> Proxy:
    copy, client = proxy.copy, state.client
    if proxy.over:
        over = proxy.over & {message.transfer for message in state.messages}
        if over != proxy.over:
            proxy = proxy._replace(over=over)
    if copy is not None and copy.known and not (client.attached and client.at == index):
        proxy = proxy._replace(copy=copy._replace(known=0))
    if not state.faults and proxy.status not in ("down", "dead") and proxy.disk.copy is not None:
        proxy = proxy._replace(disk=_still_read(proxy))
    return proxy


def _still_read(proxy: Proxy) -> Disk:
    """No crash will follow: the disk only matters to who asks whether something staged was stored."""
    copy, kept = proxy.copy, proxy.disk.copy
    if copy is None or kept is None or copy.role not in ("STAGED", "ORPHAN") or kept.epoch != copy.epoch:
        return Disk(0, None)
    return Disk(0, STAGED._replace(epoch=kept.epoch))


def _nobody_rebuilds(setup: Setup, state: State) -> bool:
    """No failover will follow: the owner has the session, and both proxies keep their leases."""
    owner = state.proxies[state.row.owner].copy
    return (
        not setup.world.subscribes
        and not state.late
        and owner is not None
        and owner.role != "SHADOW"
        and all(
            proxy.status == "up" and (proxy.claim is None or proxy.claim.kind != "failover") for proxy in state.proxies
        )
    )


def _all(setup: Setup, state: State) -> Iterator[Step]:
    yield from _world(setup, state)
    yield from _client(setup, state)
    yield from _messages(setup, state)
    for index in (A, B):
        yield from proxies.steps(setup, state, index)


# ---------------------------------------------------------------- log, link, changelog, late claims


def _world(setup: Setup, state: State) -> Iterator[Step]:
    if state.published < len(setup.world.kinds):
        yield Step(f"notification {state.published + 1} is published", state._replace(published=state.published + 1))
    if setup.world.far:
        yield from _link(setup, state)
    for epoch in {checkpoint.epoch for checkpoint in state.writes}:
        first = min(checkpoint for checkpoint in state.writes if checkpoint.epoch == epoch)
        kept = max(state.checkpoint, first, key=lambda each: (each.epoch, each.serial))
        after = state._replace(writes=state.writes - {first}, checkpoint=kept)
        if "RANK" in setup.off and kept != first:
            after = violated(after._replace(checkpoint=first), FORGOTTEN)
        yield Step(f"the changelog has checkpoint {first.epoch}.{first.serial}", after)
    for claim in state.late:
        rest = state._replace(late=state.late - {claim})
        yield Step(f"a late claim ({claim.kind}) of {NAMES[claim.by]} is lost", rest)
        after, won = owners.apply(setup, rest, claim)
        if won:
            yield Step(f"a late claim ({claim.kind}) of {NAMES[claim.by]} is applied", after)


def _link(setup: Setup, state: State) -> Iterator[Step]:
    end = fold(state.far)
    if end.frontier < state.published:
        number = end.frontier + 1
        through = setup.world.kinds[number - 1] in dict(state.filter)
        record = ("forwarded" if through else "progress", number, 0, 0)
        yield Step(f"the link brings {record[0]} {number}", state._replace(far=(*state.far, record)))
    if end.wants != state.filter:
        announced = [
            ("effective", kind, installation, end.frontier)
            for kind, installation in end.wants
            if (kind, installation) not in state.filter
        ]
        yield Step(
            "the link is told what the far site wants",
            state._replace(filter=end.wants, far=(*state.far, *announced)),
        )


# ---------------------------------------------------------------- the client


def _client(setup: Setup, state: State) -> Iterator[Step]:
    at = NAMES[state.client.at]
    for label, after in (
        ("client: goes to the other proxy", clients.move(state)),
        ("client: turns to the other proxy", clients.turn(state)),
        ("client: is given what came", clients.hand_to_application(setup, state)),
        ("client: acknowledges", clients.acknowledge(state)),
        ("client: wants the second kind", clients.want(setup, state)),
        (f"{at}: takes the client in, or seeks the session", clients.attach(setup, state)),
        (f"{at}: delivers", clients.deliver(setup, state)),
        (f"{at}: takes up the subscription", clients.subscribe(setup, state)),
        (f"{at}: confirms the subscription", clients.confirm(setup, state)),
        (f"{at}: settles a promise", clients.promise(setup, state)),
        (f"{at}: tells the promise", clients.announce_promise(setup, state)),
        ("operator: offers the session to the other proxy", clients.offer(setup, state)),
    ):
        if after is not None:
            yield Step(label, after)


# ---------------------------------------------------------------- messages


def _messages(setup: Setup, state: State) -> Iterator[Step]:
    for message in state.messages:
        rest = state._replace(messages=state.messages - {message})
        label = f"{NAMES[message.to]}: takes {message.kind} {message.transfer}"
        yield Step(label, transfers.take(setup, rest, message))
        if state.faults:
            yield Step(f"{message.kind} {message.transfer} is lost", rest, "message")
            twice = transfers.take(setup, rest, message)
            yield Step(f"{label}, which will come again", transfers.send(twice, message), "message")
