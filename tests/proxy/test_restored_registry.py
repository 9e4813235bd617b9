"""A registry that was restored from an older copy, as a proxy sees it that knows better, or does not (F70)."""

from __future__ import annotations

import pytest

from federation.ports import Claimed, ProxyRow, Reloaded
from proxy.core import effects
from proxy.ownership.registry_memory import SWEEPS_A_ROUND
from proxy.session.session import Role
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from tests.proxy.test_ownership import disk, role
from waypost.errors import StoreFailed
from waypost.identity import GENERATION, NO_PROXY, Epoch, Ownership, ProxyId, SessionId
from waypost.messages import Wait

YOU = ProxyId("you")
LEASE_MS = 3_000


def loses(harness: EngineHarness, before: Ownership, after: Ownership | None) -> None:
    """The watch tells of a row, and then that the registry has this one in its place."""
    harness.reload({SESSION: before}, before.proxy)
    harness.reload({SESSION: after} if after else {}, before.proxy)


def nobody_corrects(harness: EngineHarness, answer: Ownership | None) -> None:
    """Half a minute goes by, and the registry says the same whenever it is asked."""
    for _ in range(SWEEPS_A_ROUND + 3):
        harness.pass_time(harness.engine.context.settings.sweep_ms)
        harness.complete_all(effects.ReadRow, answer)


def claims(harness: EngineHarness) -> list[object]:
    return [each for each in harness.pending if isinstance(each, effects.ClaimRow | effects.CreateRow)]


def test_a_copy_is_not_woken_by_an_earlier_row_than_one_that_the_watch_has_told_of() -> None:
    harness = EngineHarness(disk(Role.SERVING, 4), watch=False, lease=False)
    harness.engine.memory.row_lost(SESSION, owner("you", 6))
    harness.reload({SESSION: owner("me", 4)}, "you")
    harness.lease()
    assert role(harness) is Role.DORMANT and not claims(harness)
    nobody_corrects(harness, owner("me", 4))
    claim = harness.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner("me", 4), owner("me", 7))


def test_a_staged_copy_does_not_commit_where_its_source_has_served_on_by_a_row_that_is_lost() -> None:
    harness = EngineHarness(disk(Role.STAGED, 4, source="they"), watch=False, lease=False)
    loses(harness, owner("they", 4), owner("they", 3))
    harness.lease()
    harness.complete_writes()
    assert role(harness) is None and not claims(harness)


def test_a_session_that_is_made_in_the_place_of_a_lost_one_is_of_a_later_generation() -> None:
    """Who was in that one is told so: its epochs would begin anew, and what is on disks would be taken for the same."""
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    assert Wait in [type(each) for each in harness.received()] and not claims(harness)
    harness.pass_time(harness.engine.context.settings.rows_back_ms)
    harness.attach()
    harness.complete_all(effects.ReadRow, None)
    assert harness.next(effects.CreateRow).ownership == owner("me", GENERATION + 1)


def test_a_lost_row_that_is_there_again_is_lost_no_more() -> None:
    harness = EngineHarness()
    loses(harness, owner("you", 3), None)
    memory = harness.engine.memory
    assert memory.lost_row(SESSION) == owner("you", 3)
    harness.reload({SESSION: owner("you", 3)}, "you")
    memory.prune()
    assert memory.lost_row(SESSION) is None


def test_a_proxy_whose_lease_the_registry_has_forgotten_may_act_as_long_as_that_lasts() -> None:
    harness = EngineHarness()
    you = row("you").model_copy(update={"lease_ttl_ms": LEASE_MS})
    tell(harness, {SESSION: owner("you", 3)}, you)
    tell(harness, {SESSION: owner("you", 3)})
    harness.attach()
    harness.complete_all(effects.ReadRow, owner("you", 3))
    assert not [each for each in harness.pending if isinstance(each, effects.FindCheckpoint)]
    assert Wait in [type(each) for each in harness.received()]
    harness.pass_time(LEASE_MS)
    harness.attach()
    harness.complete_all(effects.ReadRow, owner("you", 3))
    harness.next(effects.FindCheckpoint)


def tell(harness: EngineHarness, owners: dict[SessionId, Ownership], *others: ProxyRow) -> None:
    proxies = {each.proxy: each for each in (row("me"), *others)}
    harness.engine.registry_event(Reloaded(owners, proxies, {}, {each.site: "" for each in proxies.values()}))
    harness.run_effects()


def test_a_row_that_was_claimed_and_of_which_the_watch_never_told_is_read() -> None:
    """The claim may have been done in a registry that was put back since."""
    harness = EngineHarness()
    harness.serve()
    harness.pass_time(harness.engine.context.settings.sweep_ms)
    harness.complete(effects.ReadRow, None)
    assert harness.next(effects.CreateRow).ownership == owner("me", 1)
    harness.reload({SESSION: owner("me", 1)})
    harness.pass_time(harness.engine.context.settings.sweep_ms)
    assert not [each for each in harness.pending if isinstance(each, effects.ReadRow)]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_session_is_claimed_only_once_an_earlier_copy_of_it_has_left_the_disk(is_full: bool) -> None:
    """Else a restart finds the copy, and its own name in the row: it would take the copy for the latest one."""
    harness = EngineHarness(disk(Role.SERVING, 4))
    harness.complete(effects.ClaimRow, Claimed(False, Ownership(NO_PROXY, Epoch(GENERATION))))
    assert role(harness) is None
    harness.reload({})
    harness.attach()
    harness.complete_all(effects.ReadRow, Ownership(NO_PROXY, Epoch(GENERATION)))
    assert not claims(harness)
    if is_full:
        harness.complete_all(effects.Save, StoreFailed("no space left"))
        harness.complete_all(effects.Save, StoreFailed("no space left"))
        (told,) = [each for each in harness.received() if isinstance(each, Wait)]
        assert "no space left" in told.reason and not claims(harness)
        harness.attach()
        harness.complete_all(effects.ReadRow, Ownership(NO_PROXY, Epoch(GENERATION)))
    harness.complete_writes()
    assert harness.next(effects.ClaimRow).new == owner("me", GENERATION + 1)
