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


def row_read(state: State, index: int, claim: Claim) -> State:
    """Return the state with `claim`, a compare-and-set or a read of the row, on its way from proxy `index` to the
    registry.

    Unchanged if another request of the proxy is under way.
    """
    proxy = state.proxies[index]
    return state if proxy.claim is not None else change(state, index, proxy._replace(claim=claim))


def apply(setup: Setup, state: State, claim: Claim) -> tuple[State, bool]:
    """Apply a compare-and-set to the registry's row; a violated invariant is noted in the state. Without the rule
    COMMIT a handover's row is replaced whatever was there.

    Returns:
        The state after that, and whether the row was replaced; if not, the state is unchanged.
    """
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


def answer(setup: Setup, state: State, index: int) -> State:
    """Return the state after the registry has handled the request of proxy `index`: the answer, which is on its way, is
    in the proxy's claim (`answer`, the row, and `won`). A rule that the request breaks is noted in the state.

    Args:
        setup: the configuration.
        state: in which the proxy has a request under way.
        index: of the proxy.
    """
    claim = state.proxies[index].claim
    assert claim is not None
    won = False
    if not claim.read:
        state, won = apply(setup, state, claim)
    taken = claim._replace(answer=state.row, won=won)
    return change(state, index, state.proxies[index]._replace(claim=taken))


def orphaned(state: State, index: int) -> State:
    """Return the state after proxy `index` has stopped waiting for its request to the registry, if there is one.

    A compare-and-set that the registry has not handled yet may still be applied later.
    """
    proxy = state.proxies[index]
    claim = proxy.claim
    state = change(state, index, proxy._replace(claim=None))
    if claim is None or claim.answer is not None or claim.read:
        return state
    return state._replace(late=state.late | {claim})


# ---------------------------------------------------------------- waking


def activate(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index` has acted on its dormant copy by the registry's row (handover rule 1).

    A row that names the proxy: the copy's epoch rises to the row's, and the next epoch is claimed, unless another
    request of the proxy is under way. A later row of another owner: the copy is released. Else nothing is done. The
    proxy must have a copy.
    """
    copy, row = state.proxies[index].copy, state.row
    assert copy is not None
    if row.owner != index:
        return release(setup, state, index) if row.epoch > copy.epoch else state
    if "RESTART" in setup.off:
        return serve(setup, state, index, copy.epoch)
    epoch = max(copy.epoch, row.epoch)
    state = change(state, index, state.proxies[index]._replace(copy=copy._replace(epoch=epoch)))
    return row_read(state, index, Claim(index, epoch, index, "restart"))


def activated(setup: Setup, state: State, index: int, claim: Claim) -> State:
    """Return the state after proxy `index` has the answer to the claim of :func:`activate`.

    If the claim was won, the copy is served; else :func:`activate` tries again. Unchanged if the proxy has no dormant
    copy by now.

    Args:
        claim: with its answer.
    """
    copy = state.proxies[index].copy
    if copy is None or copy.role != "DORMANT" or claim.answer is None:
        return state
    if claim.won:
        return serve(setup, state, index, claim.epoch + 1)
    return activate(setup, state, index)


def reconcile_orphan(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index` has compared its staged copy without a transfer with the registry's row
    (rule 5).

    The row has the copy's epoch and names this proxy: the copy is its own, and becomes dormant. The row has the epoch
    before: the source has not served since the cut; the copy is saved to disk, and its commit is claimed, unless
    another request of the proxy is under way. Any other row: the copy is dropped. The proxy must have such a copy.
    """
    proxy, row = state.proxies[index], state.row
    copy = proxy.copy
    assert copy is not None
    if (row.owner, row.epoch) == (index, copy.epoch):
        return change(state, index, proxy._replace(copy=become(copy, "DORMANT")))
    if row.epoch + 1 == copy.epoch and "ORPHAN" not in setup.off:
        return row_read(save(state, index) or state, index, Claim(row.owner, row.epoch, index, "handover"))
    return drop(setup, state, index)


# ---------------------------------------------------------------- failing over


def rebuild(state: State, index: int) -> State:
    """Return the state after proxy `index` has read the last checkpoint, and claims the next epoch for a failover.

    Call it where the row names an owner whose lease has ended, or this proxy, which has no copy.
    """
    row = state.row
    claim = Claim(row.owner, row.epoch, index, "failover", checkpoint=state.checkpoint)
    return row_read(state, index, claim)


def rebuilt(setup: Setup, state: State, index: int, claim: Claim) -> State:
    """Return the state after proxy `index` has the answer to the claim of :func:`rebuild`: the checkpoint is served.

    The copy is gated at what was acknowledged. Unchanged if the claim was not won, has no checkpoint, or the proxy has
    a copy by now.
    """
    found = claim.checkpoint
    if not claim.won or found is None or state.proxies[index].copy is not None:
        return state
    state = change(
        state, index, state.proxies[index]._replace(copy=_raised(setup, state, index, claim.epoch + 1, found))
    )
    return serve(setup, state, index, claim.epoch + 1)


def _raised(setup: Setup, state: State, index: int, epoch: int, found: Checkpoint) -> Copy:
    gate = Gate(found.acknowledged, frontier_of(setup, state, index))
    second = lift(found.second, found.acknowledged)
    return Copy("DORMANT", epoch, gate, (), found.cursor, found.cursor, second)


def register_interests_again(setup: Setup, state: State, index: int) -> State:
    """Return the state after proxy `index` has registered the interest of its copy, where its site's log lacks it.

    The gate opens if it may. Unchanged if the proxy has no copy.
    """
    copy = state.proxies[index].copy
    return state if copy is None else open_gate(setup, register_interest(setup, state, index, bits_of(copy)), index)
