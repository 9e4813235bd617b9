"""The registry's row, and how a proxy comes to own the session without a transfer.

After `handover/acquisition.py`.
"""

from __future__ import annotations

from chaos.model.copies import become, drop, lift, open_gate, register_interest, release, save, serve
from chaos.model.copies import bits as bits_of
from chaos.model.copies import frontier as frontier_of
from chaos.model.state import Checkpoint, Claim, Copy, Gate, Row, Setup, State, change, violated

STORED = "a commit implies that the target has it stored"
ASCENDS = "the epoch only ascends"


def row_read(state: State, which: int, claim: Claim) -> State:
    """Send the registry a question, unless one is under way."""
    proxy = state.proxies[which]
    return state if proxy.claim is not None else change(state, which, proxy._replace(claim=claim))


def apply(setup: Setup, state: State, claim: Claim) -> tuple[State, bool]:
    """Compare and set; return whether it was done."""
    row = state.row
    blind = claim.kind == "handover" and "COMMIT" in setup.off
    if (row.owner, row.epoch) != (claim.owner, claim.epoch) and not blind:
        return state, False
    new = Row(claim.by, claim.epoch + 1, claim.kind == "failover")
    if new.epoch <= row.epoch:
        state = violated(state, ASCENDS)
    if claim.kind == "handover":
        kept = state.proxies[claim.by].disk.copy
        if kept is None or kept.epoch != new.epoch:
            state = violated(state, STORED)
    return state._replace(row=new), True


def answer(setup: Setup, state: State, which: int) -> State:
    """The registry takes the question of this proxy; the answer is under way."""
    claim = state.proxies[which].claim
    assert claim is not None
    won = False
    if not claim.read:
        state, won = apply(setup, state, claim)
    taken = claim._replace(answer=state.row, won=won)
    return change(state, which, state.proxies[which]._replace(claim=taken))


def orphaned(state: State, which: int) -> State:
    """Nobody waits for the answer any more; what was asked may still be done."""
    proxy = state.proxies[which]
    claim = proxy.claim
    state = change(state, which, proxy._replace(claim=None))
    if claim is None or claim.answer is not None or claim.read:
        return state
    return state._replace(late=state.late | {claim})


# ---------------------------------------------------------------- waking


def activate(setup: Setup, state: State, which: int) -> State:
    """Take the next epoch for a copy that sleeps (handover rule 1), or give up what is another's."""
    copy, row = state.proxies[which].copy, state.row
    assert copy is not None
    if row.owner != which:
        return release(setup, state, which) if row.epoch > copy.epoch else state
    if "RESTART" in setup.off:
        return serve(setup, state, which, copy.epoch)
    epoch = max(copy.epoch, row.epoch)
    state = change(state, which, state.proxies[which]._replace(copy=copy._replace(epoch=epoch)))
    return row_read(state, which, Claim(which, epoch, which, "restart"))


def activated(setup: Setup, state: State, which: int, claim: Claim) -> State:
    """Take the answer of the registry to :func:`activate`."""
    copy = state.proxies[which].copy
    if copy is None or copy.role != "DORMANT" or claim.answer is None:
        return state
    if claim.won:
        return serve(setup, state, which, claim.epoch + 1)
    return activate(setup, state, which)


def reconcile_orphan(setup: Setup, state: State, which: int) -> State:
    """A staged copy without its transfer: ours if the row has its very epoch.

    As long as the row has the epoch before, the source has not served since the cut, and an earlier claim of ours may
    still be applied: the copy commits after all.
    """
    proxy, row = state.proxies[which], state.row
    copy = proxy.copy
    assert copy is not None
    if (row.owner, row.epoch) == (which, copy.epoch):
        return change(state, which, proxy._replace(copy=become(copy, "DORMANT")))
    if row.epoch + 1 == copy.epoch and "ORPHAN" not in setup.off:
        return row_read(save(state, which) or state, which, Claim(row.owner, row.epoch, which, "handover"))
    return drop(setup, state, which)


# ---------------------------------------------------------------- failing over


def rebuild(state: State, which: int) -> State:
    """Read the checkpoint and take the next epoch; the row names a dead owner, or us without data."""
    row = state.row
    claim = Claim(row.owner, row.epoch, which, "failover", checkpoint=state.checkpoint)
    return row_read(state, which, claim)


def rebuilt(setup: Setup, state: State, which: int, claim: Claim) -> State:
    """Take the answer: every origin gated at what was acknowledged."""
    found = claim.checkpoint
    if not claim.won or found is None or state.proxies[which].copy is not None:
        return state
    state = change(
        state, which, state.proxies[which]._replace(copy=_raised(setup, state, which, claim.epoch + 1, found))
    )
    return serve(setup, state, which, claim.epoch + 1)


def _raised(setup: Setup, state: State, which: int, epoch: int, found: Checkpoint) -> Copy:
    gate = Gate(found.acknowledged, frontier_of(setup, state, which))
    second = lift(found.second, found.acknowledged)
    return Copy("DORMANT", epoch, gate, (), found.cursor, found.cursor, second)


def register_interests_again(setup: Setup, state: State, which: int) -> State:
    """Say again what the log does not have."""
    copy = state.proxies[which].copy
    return state if copy is None else open_gate(setup, register_interest(setup, state, which, bits_of(copy)), which)
