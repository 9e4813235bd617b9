"""What one proxy can do next: by itself, with the registry, with its transfers; and what can happen to it."""

from __future__ import annotations

from collections.abc import Iterator

from chaos.model import failures, owners, transfers
from chaos.model.copies import acknowledged, alive, fetch, frontier, read, release, runs, save, serves, write
from chaos.model.state import NAMES, Claim, Row, Setup, State, Step, change

SERVED = ("SERVING", "FROZEN", "DORMANT")
"""Roles of a copy that is or was served: it goes when the row names another."""


def steps(setup: Setup, state: State, index: int) -> Iterator[Step]:
    """Yield the steps that proxy `index`, A or B, can take in a state, and the faults that can happen to it.

    The states after them are not reduced, and faults are not counted: :func:`chaos.model.protocol.steps` does both.
    """
    yield from _itself(setup, state, index)
    if runs(state, index):
        yield from _watching(setup, state, index)
        yield from _sending(setup, state, index)
        yield from _receiving(setup, state, index)
    if state.faults:
        for sort, label, after in (
            ("crash", "crashes", failures.crash(state, index)),
            ("lease", "cannot keep its lease", failures.fence(setup, state, index)),
        ):
            if after is not None:
                yield Step(f"{NAMES[index]}: {label}", after, sort)


def _itself(setup: Setup, state: State, index: int) -> Iterator[Step]:
    proxy, me = state.proxies[index], NAMES[index]
    copy = proxy.copy
    if not runs(state, index):
        after = failures.restart(setup, state, index)
        assert after is not None
        yield Step(f"{me}: starts again", after)
    else:
        after = read(setup, state, index)
        if after is not None:
            yield Step(f"{me}: reads on", after)
        after = fetch(setup, state, index)
        if after is not None:
            yield Step(f"{me}: catches up", after)
        if state.faults:
            yield from _keeping(setup, state, index)
        if proxy.claim is not None:
            yield from _registry(setup, state, index)
    for label, changed in (
        ("its lease ends", failures.expire(state, index)),
        ("has a lease again", failures.grant(setup, state, index)),
        ("what it held ends with its lease", failures.forgotten(setup, state, index)),
    ):
        if changed is not None:
            yield Step(f"{me}: {label}", changed)
    if proxy.status != "up":
        return
    if copy is None:
        if state.row.owner == index and proxy.into is None and proxy.claim is None:
            yield Step(f"{me}: finds that it owns the session", owners.rebuild(state, index))
    elif copy.role == "DORMANT" and proxy.claim is None:
        yield Step(f"{me}: wakes its copy", owners.activate(setup, state, index))
    elif copy.role == "ORPHAN" and proxy.claim is None:
        yield Step(f"{me}: settles its staged copy", owners.reconcile_orphan(setup, state, index))
    if setup.world.far and copy is not None:
        yield Step(f"{me}: says again what it holds", owners.register_interests_again(setup, state, index))


def _keeping(setup: Setup, state: State, index: int) -> Iterator[Step]:
    """What is saved and checkpointed only matters if something will fail."""
    me, copy = NAMES[index], state.proxies[index].copy
    after = save(state, index)
    if after is not None:
        yield Step(f"{me}: saves", after)
    if copy is None or not serves(state, index) or any(checkpoint.epoch == copy.epoch for checkpoint in state.writes):
        return
    kept, known = state.checkpoint, acknowledged(copy, frontier(setup, state, index))
    if (kept.epoch, kept.acknowledged, kept.second) != (copy.epoch, known, copy.second):
        yield Step(f"{me}: sends a checkpoint", write(setup, state, index))


def _registry(setup: Setup, state: State, index: int) -> Iterator[Step]:
    me, claim = NAMES[index], state.proxies[index].claim
    assert claim is not None
    what = "a question" if claim.read else f"the claim ({claim.kind})"
    if claim.answer is None:
        yield Step(f"registry: takes {what} of {me}", owners.answer(setup, state, index))
        if state.faults and not claim.read:
            rest = owners.orphaned(state, index)
            yield Step(f"{me}: {what} has no answer", _unknown(setup, rest, index, claim.kind), "claim")
        return
    rest = change(state, index, state.proxies[index]._replace(claim=None))
    yield Step(f"{me}: has the answer to {what}", _answered(setup, rest, index, claim))


def _unknown(setup: Setup, state: State, index: int, way: str) -> State:
    """Return the state after an unknown outcome: a proxy that wakes or rebuilds tries again later; a transfer asks."""
    if way == "thaw":
        return transfers.feed_source(setup, state, index, "ClaimUnknown")
    return transfers.feed_target(setup, state, index, "ClaimUnknown") if way == "handover" else state


def _answered(setup: Setup, state: State, index: int, claim: Claim) -> State:
    """Take the registry's answer, or what it says of the row."""
    assert claim.answer is not None
    if claim.kind == "restart":
        return owners.activated(setup, state, index, claim)
    if claim.kind == "failover":
        return owners.rebuilt(setup, state, index, claim)
    owner = index if claim.kind == "thaw" else 1 - index
    given = _owner_input(claim.answer, owner, claim.epoch, index)
    feed = transfers.feed_source if claim.kind == "thaw" else transfers.feed_target
    return feed(setup, state, index, given)


def _owner_input(row: Row, owner: int, epoch: int, index: int) -> str:
    """Return what the row means for a transfer from (owner, epoch) to this proxy."""
    if (row.owner, row.epoch) == (index, epoch + 1):
        return "OwnedByUs"
    return "OwnerUnchanged" if (row.owner, row.epoch) == (owner, epoch) else "OwnedByOther"


# ---------------------------------------------------------------- the watch


def _watching(setup: Setup, state: State, index: int) -> Iterator[Step]:
    """The registry's watch tells of the row and of the end of the other's lease."""
    me, proxy, row = NAMES[index], state.proxies[index], state.row
    copy, out, into = proxy.copy, proxy.out, proxy.into
    after = state
    if out is not None:
        given = _owner_input(row, index, out.epoch, index)
        if given == "OwnedByOther" or (given == "OwnedByUs" and out.state == "RECLAIMING"):
            after = transfers.feed_source(setup, after, index, given)
    elif copy is not None and copy.role in SERVED and row.epoch > copy.epoch and row.owner != index:
        after = release(setup, after, index)
    if into is not None:
        given = _owner_input(row, 1 - index, into.epoch, index)
        after = transfers.feed_target(setup, after, index, given)
    if after != state:
        yield Step(f"{me}: learns who owns the session", after)
    if not alive(state, 1 - index) and (out or into):
        after = transfers.feed_source(setup, state, index, "PeerGone")
        after = transfers.feed_target(setup, after, index, "PeerGone")
        yield Step(f"{me}: learns that the other's lease has ended", after)


# ---------------------------------------------------------------- transfers


def _quiet(state: State, transfer: int) -> bool:
    """Tell whether nothing of the transfer is under way: a repeat sooner than that is a message that comes twice."""
    return all(message.transfer != transfer for message in state.messages)


def _sending(setup: Setup, state: State, index: int) -> Iterator[Step]:
    me, proxy = NAMES[index], state.proxies[index]
    out = proxy.out
    if out is None:
        return
    if out.state == "WAITING":
        given = "Passed" if transfers.passed(setup, state, index) else "Deadline"
        yield Step(f"{me}: freezes", transfers.feed_source(setup, state, index, given))
    elif out.state == "CONFIRMING":
        given = "ServedSince" if state.checkpoint.epoch > out.epoch else "NothingLater"
        yield Step(f"{me}: looks in the changelog", transfers.feed_source(setup, state, index, given))
    elif out.state in ("COPYING", "FROZEN") and state.faults:
        yield Step(f"{me}: times out", transfers.feed_source(setup, state, index, "Deadline"), "timeout")
    if proxy.claim is None and _quiet(state, out.transfer):
        yield Step(f"{me}: tries again as the source", transfers.feed_source(setup, state, index, "Retry"))


def _receiving(setup: Setup, state: State, index: int) -> Iterator[Step]:
    me, proxy = NAMES[index], state.proxies[index]
    into = proxy.into
    if into is None:
        return
    if into.state == "SHADOWING":
        yield Step(f"{me}: is ready", transfers.feed_target(setup, state, index, "Complete"))
    if into.state == "STAGING":
        kept = state if "STORE" in setup.off else (save(state, index) or state)
        yield Step(f"{me}: has the merged session stored", transfers.feed_target(setup, kept, index, "Staged"))
    if into.state in ("PREPARING", "SHADOWING", "READY") and state.faults:
        yield Step(f"{me}: times out", transfers.feed_target(setup, state, index, "Deadline"), "timeout")
    if proxy.claim is None and _quiet(state, into.transfer):
        yield Step(f"{me}: tries again as the target", transfers.feed_target(setup, state, index, "Retry"))
