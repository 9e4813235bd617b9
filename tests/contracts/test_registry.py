"""What every registry promises."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from federation.names import NameInUse
from federation.ports import (
    SECRET_BYTES,
    Claimed,
    DrainChanged,
    DrainRow,
    LeaderChanged,
    LinkChanged,
    LinkRow,
    OwnerChanged,
    ProxyDown,
    ProxyRow,
    ProxyUp,
    Registry,
    RegistryEvent,
    Reloaded,
    SiteForgotten,
    SiteLogRow,
    TreeChosen,
    TreeRow,
)
from tests.contracts.benches import Registries
from tests.helpers.watch import changes
from waypost.errors import RegistryUnavailable
from waypost.identity import Epoch, Incarnation, Origin, Ownership, ProxyId, SessionId, SiteId

TIMEOUT_S = 20
SESSION = SessionId("team/ünï|1")
P1, P2 = ProxyId("p/1"), ProxyId("p2")
NORTH = SiteId("north")
LONG_MS = 30_000


def owned(proxy: str, epoch: int) -> Ownership:
    return Ownership(ProxyId(proxy), Epoch(epoch))


def row(proxy: ProxyId = P1, incarnation: str = "a" * 16) -> ProxyRow:
    url = f"ws://127.0.0.1:1/{incarnation}"
    return ProxyRow(proxy=proxy, incarnation=Incarnation(incarnation), site=NORTH, url=url, changelog="file:north")


@dataclass
class Observer:
    """Follows a watch as a proxy does."""

    events: list[RegistryEvent] = field(default_factory=list)
    owners: dict[SessionId, Ownership] = field(default_factory=dict)
    proxies: dict[ProxyId, ProxyRow] = field(default_factory=dict)
    leaders: dict[str, tuple[ProxyId, int]] = field(default_factory=dict)

    def see(self, event: RegistryEvent) -> None:
        self.events.append(event)
        match event:
            case Reloaded(owners, proxies, leaders):
                self.owners, self.proxies, self.leaders = dict(owners), dict(proxies), dict(leaders)
            case OwnerChanged(session, Ownership() as ownership):
                self.owners[session] = ownership
            case ProxyUp(up):
                self.proxies[up.proxy] = up
            case ProxyDown(proxy, incarnation) if (
                proxy in self.proxies and self.proxies[proxy].incarnation == incarnation
            ):
                del self.proxies[proxy]
            case LeaderChanged(link, None, _):
                self.leaders.pop(link, None)
            case LeaderChanged(link, str() as proxy, epoch):
                self.leaders[link] = (proxy, epoch)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not true():
                await asyncio.sleep(0.005)

    async def until_seen(self, event: RegistryEvent) -> None:
        await self.until(lambda: event in self.events)


@asynccontextmanager
async def watching(registry: Registry) -> AsyncIterator[Observer]:
    observer = Observer()

    async def follow() -> None:
        async for event in changes(registry):
            observer.see(event)

    task = asyncio.create_task(follow())
    try:
        await observer.until(lambda: bool(observer.events))
        yield observer
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


# ---------------------------------------------------------------- owners


async def test_a_session_without_a_row_has_no_owner(registries: Registries) -> None:
    assert await (await registries.open()).owner(SESSION) is None


async def test_create_wins_once_and_returns_the_owner_to_the_loser(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    won = await handle.create(SESSION, owned("p1", 1))
    assert (won.won, won.current) == (True, owned("p1", 1))
    lost = await other_handle.create(SESSION, owned("p2", 1))
    assert (lost.won, lost.current) == (False, owned("p1", 1))
    assert await other_handle.owner(SESSION) == owned("p1", 1)


async def test_twenty_creators_have_one_winner(registries: Registries) -> None:
    handles = [await registries.open() for _ in range(4)]
    answers = await asyncio.gather(*(handles[n % 4].create(SESSION, owned(f"p{n}", 1)) for n in range(20)))
    winner = await handles[0].owner(SESSION)
    assert [answer.won for answer in answers].count(True) == 1
    assert {answer.current for answer in answers} == {winner}


async def test_twenty_claimants_have_one_winner_in_each_of_ten_rounds(registries: Registries) -> None:
    handles = [await registries.open() for _ in range(4)]
    current = owned("p0", 1)
    await handles[0].create(SESSION, current)
    for _ in range(10):
        answers = await asyncio.gather(
            *(handles[n % 4].claim(SESSION, current, current.next(ProxyId(f"p{n}"))) for n in range(20))
        )
        winners = [n for n, answer in enumerate(answers) if answer.won]
        assert len(winners) == 1
        expected, current = current, current.next(ProxyId(f"p{winners[0]}"))
        assert {answer.current for answer in answers} == {current}
        stale = await handles[0].claim(SESSION, expected, expected.next(ProxyId("late")))
        assert (stale.won, stale.current) == (False, current)
    assert await handles[3].owner(SESSION) == current


async def test_a_claim_on_a_session_without_a_row_loses(registries: Registries) -> None:
    registry = await registries.open()
    answer = await registry.claim(SESSION, owned("p1", 1), owned("p2", 2))
    assert (answer.won, answer.current) == (False, None)
    assert await registry.owner(SESSION) is None


async def test_a_claim_must_name_the_proxy_too_and_not_only_the_epoch(registries: Registries) -> None:
    registry = await registries.open()
    await registry.create(SESSION, owned("p1", 4))
    answer = await registry.claim(SESSION, owned("p9", 4), owned("p2", 5))
    assert (answer.won, answer.current) == (False, owned("p1", 4))


async def test_rows_survive_reopening(registries: Registries) -> None:
    registry = await registries.open()
    await registry.create(SESSION, owned("p1", 1))
    await registry.claim(SESSION, owned("p1", 1), owned("p2", 2))
    await registry.close()
    assert await (await registries.open()).owner(SESSION) == owned("p2", 2)


async def test_claim_with_a_lost_answer_is_decided_by_a_read(registries: Registries) -> None:
    requester, other_handle = await registries.open(), await registries.open()
    await requester.create(SESSION, owned("p1", 1))
    claim = asyncio.create_task(requester.claim(SESSION, owned("p1", 1), owned("p2", 2)))
    await asyncio.sleep(0.001)
    claim.cancel()
    with suppress(asyncio.CancelledError):
        await claim
    # The other side decides it for good; then both read the same.
    answer = await other_handle.claim(SESSION, owned("p1", 1), owned("p1", 2))
    assert answer.current in (owned("p2", 2), owned("p1", 2))
    assert answer.won == (answer.current == owned("p1", 2))
    assert await requester.owner(SESSION) == answer.current == await other_handle.owner(SESSION)


async def test_the_highest_checkpoint_that_was_noted_stays_until_the_row_is_forgotten(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    without = SessionId("never made")
    first = owned("p1", 1)
    await handle.create(SESSION, first)
    async with watching(other_handle) as observer:
        assert await handle.noted_checkpoint(SESSION) is None
        await handle.note_checkpoints({SESSION: (1, 9), without: (1, 1)})
        await asyncio.gather(
            *(registry.note_checkpoints({SESSION: (1, n)}) for n in range(8, 13) for registry in (handle, other_handle))
        )
        assert await other_handle.noted_checkpoint(SESSION) == (1, 12)
        await other_handle.note_checkpoints({SESSION: (2, 1)})
        await handle.note_checkpoints({SESSION: (1, 99)})
        assert await handle.noted_checkpoint(SESSION) == (2, 1)
        assert await handle.noted_checkpoint(without) is None
        assert (await handle.claim(SESSION, first, first.gone())).won
        await handle.forget({SESSION: first.gone()})
        await observer.until_seen(OwnerChanged(SESSION, None))
        assert await handle.noted_checkpoint(SESSION) is None
        assert set(observer.owners) <= {SESSION}


async def test_a_closed_handle_says_so(registries: Registries) -> None:
    registry = await registries.open()
    await registry.close()
    with pytest.raises(RegistryUnavailable):
        await registry.owner(SESSION)


async def test_forgotten_session_counts_as_deleted_and_its_epochs_continue(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    first, never = owned("p1", 1), SessionId("never used")
    await handle.create(SESSION, first)
    gone = first.gone()
    async with watching(other_handle) as observer:
        assert (await handle.claim(SESSION, first, gone)).won
        await handle.forget({SESSION: gone})
        await observer.until_seen(OwnerChanged(SESSION, None))
    async with watching(other_handle) as observer:
        assert SESSION not in observer.owners
    for session in (SESSION, never):
        assert await other_handle.owner(session) == gone
        lost = await other_handle.create(session, owned("p2", 1))
        assert (lost.won, lost.current) == (False, gone)
        assert not (await other_handle.claim(session, first, owned("p2", 2))).won
        again = gone.next(P2)
        assert await other_handle.claim(session, gone, again) == Claimed(True, again)
        assert await handle.owner(session) == again


async def test_forget_removes_only_unchanged_rows_and_never_lowers_the_epoch_floor(registries: Registries) -> None:
    registry = await registries.open()
    living, made_again = SessionId("living"), SessionId("made again")
    await registry.create(living, owned("p1", 3))
    await registry.create(made_again, owned("p1", 1))
    gone = owned("p1", 1).gone()
    await registry.claim(made_again, owned("p1", 1), gone)
    await registry.claim(made_again, gone, gone.next(P1))
    await registry.forget({living: owned("p1", 3), made_again: gone})
    assert await registry.owner(living) == owned("p1", 3)
    assert await registry.owner(made_again) == gone.next(P1)
    twice = gone.gone()
    await registry.forget({SessionId("another"): twice})
    await registry.forget({SessionId("another"): gone})
    await registry.forget({})
    assert await registry.owner(SessionId("another")) == twice


# ---------------------------------------------------------------- proxies and their leases


async def test_a_proxy_is_known_as_long_as_its_lease_is_renewed(registries: Registries) -> None:
    holder, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        lease = await holder.announce(row(), registries.ttl_ms)
        assert lease.ttl_ms == registries.ttl_ms
        await observer.until_seen(ProxyUp(row()))
        until = time.monotonic() + 2.5 * registries.ttl_ms / 1000
        while time.monotonic() < until:
            assert await lease.renew()
            await asyncio.sleep(registries.ttl_ms / 5000)
        assert observer.proxies == {P1: row()}
        await observer.until_seen(ProxyDown(P1, row().incarnation))
        assert observer.proxies == {}


async def test_a_lease_that_has_ended_is_never_renewed_again(registries: Registries) -> None:
    holder, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        lease = await holder.announce(row(), registries.ttl_ms)
        await observer.until_seen(ProxyDown(P1, row().incarnation))
        assert not await lease.renew()
        assert not await lease.renew()


async def test_the_end_comes_no_sooner_than_the_holder_expects(registries: Registries) -> None:
    """The holder counts its time from before the renewal; others hear of the end only after that."""
    holder, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        lease = await holder.announce(row(), registries.ttl_ms)
        for _ in range(3):
            await asyncio.sleep(registries.ttl_ms / 2000)
            renewed = time.monotonic()
            assert await lease.renew()
        await observer.until_seen(ProxyDown(P1, row().incarnation))
        assert time.monotonic() >= renewed + registries.ttl_ms / 1000


async def test_a_lease_can_be_ended_at_once(registries: Registries) -> None:
    holder, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        lease = await holder.announce(row(), LONG_MS)
        await observer.until_seen(ProxyUp(row()))
        await lease.revoke()
        await observer.until_seen(ProxyDown(P1, row().incarnation))
        assert not await lease.renew()
        await lease.revoke()


async def test_a_restarted_proxy_takes_the_place_of_its_earlier_life(registries: Registries) -> None:
    old, new = row(incarnation="a" * 16), row(incarnation="b" * 16)
    handle, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        old_lease = await handle.announce(old, registries.ttl_ms)
        new_lease = await handle.announce(new, LONG_MS)
        await observer.until_seen(ProxyUp(new))
        assert not await old_lease.renew()
        await observer.until_seen(ProxyDown(P1, old.incarnation))
        assert observer.proxies == {P1: new}
        assert await new_lease.renew()
        async with watching(await registries.open()) as late:
            assert late.proxies == {P1: new}


async def test_of_two_lives_in_the_registry_the_later_one_is_loaded(registries: Registries) -> None:
    registry = await registries.open()
    # Their names sort the other way round.
    await registry.announce(row(incarnation="f" * 16), LONG_MS)
    await registry.announce(row(incarnation="0" * 16), LONG_MS)
    async with watching(registry) as observer:
        assert observer.proxies == {P1: row(incarnation="0" * 16)}


# ---------------------------------------------------------------- names


def instance(number: int, incarnation: str) -> ProxyRow:
    return row(incarnation=incarnation * 16).model_copy(update={"instance": f"instance {number}"})


async def test_while_a_lease_lasts_another_instance_does_not_get_the_name(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease = await handle.announce(instance(1, "a"), LONG_MS, earlier=())
    with pytest.raises(NameInUse) as refusal:
        await other_handle.announce(instance(2, "b"), LONG_MS, earlier=())
    assert refusal.value.holder == instance(1, "a")
    assert await lease.renew()
    await lease.revoke()
    assert await (await other_handle.announce(instance(2, "b"), LONG_MS, earlier=())).renew()


async def test_another_instance_gets_the_name_once_the_lease_has_run_out(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease = await handle.announce(instance(1, "a"), registries.ttl_ms, earlier=())
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(NameInUse):
                taken = await other_handle.announce(instance(2, "b"), LONG_MS, earlier=())
                break
            await asyncio.sleep(registries.ttl_ms / 5000)
    assert not await lease.renew()
    assert await taken.renew()


async def test_an_instance_takes_its_name_back_at_once_from_an_incarnation_that_has_ended(
    registries: Registries,
) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    before = await handle.announce(instance(1, "a"), LONG_MS, earlier=())
    after = await other_handle.announce(instance(1, "b"), LONG_MS, earlier=[Incarnation("a" * 16)])
    assert not await before.renew()
    assert await after.renew()


async def test_of_two_live_copies_of_an_instance_the_second_does_not_get_the_name(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease = await handle.announce(instance(1, "a"), LONG_MS, earlier=())
    with pytest.raises(NameInUse):
        await other_handle.announce(instance(1, "b"), LONG_MS, earlier=())
    with pytest.raises(NameInUse):
        await other_handle.announce(instance(1, "b"), LONG_MS, earlier=[Incarnation("c" * 16)])
    assert await lease.renew()


async def test_replacing_instance_gets_the_name_from_its_holder_at_once(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease = await handle.announce(instance(1, "a"), LONG_MS, earlier=())
    taken = await other_handle.announce(instance(2, "b"), LONG_MS, earlier=(), replace=True)
    assert not await lease.renew()
    assert await taken.renew()
    with pytest.raises(NameInUse):
        await handle.announce(instance(1, "c"), LONG_MS, earlier=[Incarnation("a" * 16)])


async def test_replaced_incarnation_does_not_come_back_when_its_successor_ends(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease = await handle.announce(instance(1, "a"), LONG_MS, earlier=())
    taken = await other_handle.announce(instance(1, "b"), LONG_MS, earlier=[Incarnation("a" * 16)])
    await taken.revoke()
    assert not await lease.renew()
    assert await (await other_handle.announce(instance(2, "c"), LONG_MS, earlier=())).renew()


async def test_of_twenty_instances_that_want_a_name_at_once_one_gets_it(registries: Registries) -> None:
    handles = [await registries.open() for _ in range(4)]
    rows = [row(incarnation=f"{n:016}").model_copy(update={"instance": str(n)}) for n in range(20)]
    answers = await asyncio.gather(
        *(handles[n % 4].announce(wanted, LONG_MS, earlier=()) for n, wanted in enumerate(rows)),
        return_exceptions=True,
    )
    won = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(won) == 1 and await won[0].renew()
    assert all(isinstance(answer, NameInUse) for answer in answers if isinstance(answer, BaseException))


# ---------------------------------------------------------------- leaders


async def test_a_link_has_one_leader_at_a_time(registries: Registries) -> None:
    handle, other_handle = await registries.open(), await registries.open()
    lease1, lease2 = await handle.announce(row(P1), LONG_MS), await other_handle.announce(row(P2), LONG_MS)
    epoch = await handle.elect("north->south", P1, lease1)
    assert epoch is not None
    assert await other_handle.elect("north->south", P2, lease2) is None
    assert await other_handle.elect("north->east", P2, lease2) is not None
    # Asking again, as after a lost answer, it leads still.
    assert await handle.elect("north->south", P1, lease1) is not None


async def test_twenty_candidates_have_one_winner(registries: Registries) -> None:
    registry = await registries.open()
    leases = [await registry.announce(row(ProxyId(f"p{n}")), LONG_MS) for n in range(20)]
    epochs = await asyncio.gather(*(registry.elect("link", ProxyId(f"p{n}"), lease) for n, lease in enumerate(leases)))
    assert len([epoch for epoch in epochs if epoch is not None]) == 1


async def test_epochs_of_a_link_ascend_across_lease_ends_and_reopening(registries: Registries) -> None:
    seen: list[int] = []
    for incarnation in range(5):
        registry = await registries.open()
        lease = await registry.announce(row(incarnation=f"{incarnation:016}"), LONG_MS)
        epoch = await registry.elect("link", P1, lease)
        assert epoch is not None
        seen.append(epoch)
        await lease.revoke()
        await registry.close()
    assert seen == sorted(set(seen))


async def test_a_leader_that_is_elected_again_begins_a_later_term(complete_registries: Registries) -> None:
    """What it appended in the term before, and never had an answer to, must not count behind what it says in this."""
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    async with watching(other_handle) as observer:
        lease1 = await handle.announce(row(P1), LONG_MS)
        lease2 = await other_handle.announce(row(P2), LONG_MS)
        first, second = [await handle.elect("link", P1, lease1) for _ in range(2)]
        assert first is not None and second is not None and second > first
        assert await other_handle.elect("link", P2, lease2) is None
        await observer.until_seen(LeaderChanged("link", P1, second))
        assert observer.leaders == {"link": (P1, second)}


async def test_a_leader_leads_no_longer_than_its_lease(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    async with watching(other_handle) as observer:
        lease1 = await handle.announce(row(P1), complete_registries.ttl_ms)
        lease2 = await other_handle.announce(row(P2), LONG_MS)
        epoch = await handle.elect("link", P1, lease1)
        assert epoch is not None
        await observer.until_seen(LeaderChanged("link", P1, epoch))
        await observer.until_seen(LeaderChanged("link", None, epoch))
        assert await handle.elect("link", P1, lease1) is None
        successor = await other_handle.elect("link", P2, lease2)
        assert successor is not None and successor > epoch
        await observer.until_seen(LeaderChanged("link", P2, successor))
        assert observer.leaders == {"link": (P2, successor)}


async def test_leader_that_resigns_leads_no_more_and_its_lease_goes_on(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    async with watching(other_handle) as observer:
        lease1, lease2 = await handle.announce(row(P1), LONG_MS), await other_handle.announce(row(P2), LONG_MS)
        epoch = await handle.elect("link", P1, lease1)
        assert epoch is not None
        await other_handle.resign("link", lease2)
        assert await other_handle.elect("link", P2, lease2) is None
        await handle.resign("link", lease1)
        await observer.until_seen(LeaderChanged("link", None, epoch))
        assert await lease1.renew()
        successor = await other_handle.elect("link", P2, lease2)
        assert successor is not None and successor > epoch
        # Nothing is left of the first leader: the second one leads on.
        await handle.resign("link", lease1)
        await observer.until_seen(LeaderChanged("link", P2, successor))
        assert await handle.elect("link", P1, lease1) is None


# ---------------------------------------------------------------- links and the tree

AB, AC = (SiteId("A"), SiteId("B")), (SiteId("A"), SiteId("C"))


async def test_link_is_reported_to_present_and_later_watches(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    there, removed = LinkRow(sites=AB), LinkRow(sites=AB, removed=True)
    with_leaf = LinkRow(sites=AB, leaves=AB[1:])
    async with watching(other_handle) as observer:
        await handle.set_link(there, seed=True)
        await observer.until_seen(LinkChanged(there))
        await handle.set_link(with_leaf, seed=False)
        await observer.until_seen(LinkChanged(with_leaf))
        await other_handle.set_link(removed, seed=False)
        await observer.until_seen(LinkChanged(removed))
        # A configuration does not bring back what an operator has removed.
        await handle.set_link(there, seed=True)
        await handle.set_link(LinkRow(sites=AC), seed=True)
        await observer.until_seen(LinkChanged(LinkRow(sites=AC)))
        async with watching(await complete_registries.open()) as late:
            (reloaded,) = late.events
            assert isinstance(reloaded, Reloaded)
            assert reloaded.links == {AB: removed, AC: LinkRow(sites=AC)}


async def test_tree_is_claimed_once_and_reported_to_present_and_later_watches(
    complete_registries: Registries,
) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    first, second = TreeRow(epoch=1, links=(AB,)), TreeRow(epoch=2, links=(AB, AC))
    async with watching(other_handle) as observer:
        assert await handle.claim_tree(TreeRow(), first)
        assert not await other_handle.claim_tree(TreeRow(), second)
        await observer.until_seen(TreeChosen(first))
        assert await other_handle.claim_tree(first, second)
        assert not await handle.claim_tree(first, TreeRow(epoch=2))
        await observer.until_seen(TreeChosen(second))
        async with watching(await complete_registries.open()) as late:
            (reloaded,) = late.events
            assert isinstance(reloaded, Reloaded) and reloaded.tree == second


async def test_a_site_that_is_forgotten_has_no_changelog_until_it_has_a_proxy_again(
    complete_registries: Registries,
) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    site = row().site
    lease = await handle.announce(row(), 60_000)
    assert not await other_handle.forget_site(site)
    await lease.revoke()
    async with watching(other_handle) as observer:
        assert await handle.forget_site(site)
        await observer.until_seen(SiteForgotten(site))
        assert await handle.forget_site(site)
        async with watching(await complete_registries.open()) as late:
            (reloaded,) = late.events
            assert isinstance(reloaded, Reloaded) and site not in reloaded.changelogs
        await handle.announce(row(incarnation="b" * 16), 60_000)
        assert not await other_handle.forget_site(site)
        async with watching(await complete_registries.open()) as later:
            (reloaded,) = later.events
            assert isinstance(reloaded, Reloaded) and reloaded.changelogs == {site: row().changelog}


async def test_of_twenty_trees_that_are_claimed_at_once_one_wins(registries: Registries) -> None:
    handles = [await registries.open() for _ in range(4)]
    trees = [TreeRow(epoch=1, links=((SiteId("A"), SiteId(f"B{n}")),)) for n in range(20)]
    won = await asyncio.gather(*(handles[n % 4].claim_tree(TreeRow(), tree) for n, tree in enumerate(trees)))
    assert won.count(True) == 1


# ---------------------------------------------------------------- drains


async def test_drain_of_a_proxy_is_reported_to_present_and_later_watches(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    async with watching(other_handle) as observer:
        await handle.drain(P1, DrainRow(rate=5))
        await handle.drain(P1, DrainRow(rate=5, paused=True))
        await observer.until_seen(DrainChanged(P1, DrainRow(rate=5, paused=True)))
        async with watching(await complete_registries.open()) as late:
            assert late.events == [Reloaded({}, {}, {}, {}, {P1: DrainRow(rate=5, paused=True)})]
        await other_handle.drain(P1, None)
        await observer.until_seen(DrainChanged(P1, None))


# ---------------------------------------------------------------- the secret


async def test_every_handle_reads_the_same_secret(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    secret = await handle.secret()
    assert len(secret) == SECRET_BYTES
    assert await other_handle.secret() == secret == await handle.secret()


async def test_concurrent_requests_create_one_secret(complete_registries: Registries) -> None:
    handles = [await complete_registries.open() for _ in range(4)]
    secrets = await asyncio.gather(*(handles[n % 4].secret() for n in range(20)))
    assert len(set(secrets)) == 1


async def test_a_registry_that_has_none_takes_the_secret_that_is_known(complete_registries: Registries) -> None:
    handle, other_handle = await complete_registries.open(), await complete_registries.open()
    known = bytes(range(SECRET_BYTES))
    assert await handle.secret(known) == known
    assert await other_handle.secret() == await other_handle.secret(known[::-1]) == known


async def test_the_secret_survives_reopening(complete_registries: Registries) -> None:
    registry = await complete_registries.open()
    secret = await registry.secret()
    await registry.close()
    assert await (await complete_registries.open()).secret() == secret


async def test_no_watch_tells_of_the_secret(complete_registries: Registries) -> None:
    registry = await complete_registries.open()
    async with watching(await complete_registries.open()) as early:
        await registry.secret()
        await registry.create(SESSION, owned("p1", 1))
        await early.until_seen(OwnerChanged(SESSION, owned("p1", 1)))
        assert early.events == [Reloaded({}, {}, {}), OwnerChanged(SESSION, owned("p1", 1))]
    async with watching(await complete_registries.open()) as late:
        assert late.events == [Reloaded({SESSION: owned("p1", 1)}, {}, {})]


# ---------------------------------------------------------------- the watch


async def test_a_watch_begins_with_all_that_is_there(complete_registries: Registries) -> None:
    registry = await complete_registries.open()
    await registry.create(SESSION, owned("p1", 1))
    await registry.create(SessionId("other"), owned("p2", 7))
    lease = await registry.announce(row(), LONG_MS)
    epoch = await registry.elect("link", P1, lease)
    assert epoch is not None
    async with watching(await complete_registries.open()) as observer:
        assert observer.events == [
            Reloaded(
                {SESSION: owned("p1", 1), SessionId("other"): owned("p2", 7)},
                {P1: row()},
                {"link": (P1, epoch)},
                {NORTH: "file:north"},
            )
        ]


async def test_changelog_address_of_a_site_is_known_after_all_its_proxies_are_gone(registries: Registries) -> None:
    registry = await registries.open()
    lease = await registry.announce(row(), LONG_MS)
    await lease.revoke()
    async with watching(await registries.open()) as observer:
        assert observer.events == [Reloaded({}, {}, {}, {NORTH: "file:north"})]


async def test_a_watch_skips_nothing_and_keeps_the_order_under_concurrent_changes(
    registries: Registries,
) -> None:
    writers = [await registries.open() for _ in range(3)]
    sessions = [SessionId(f"s{n}") for n in range(6)]
    async with watching(await registries.open()) as observer, watching(writers[0]) as near:

        async def take_turns(session: SessionId, registry: Registry) -> None:
            await registry.create(session, owned("p", 1))
            for epoch in range(1, 30):
                assert (await registry.claim(session, owned("p", epoch), owned("p", epoch + 1))).won

        await asyncio.gather(*(take_turns(session, writers[n % 3]) for n, session in enumerate(sessions)))
        for watcher in (observer, near):
            await watcher.until(lambda watcher=watcher: watcher.owners == dict.fromkeys(sessions, owned("p", 30)))  # type: ignore[misc]
            for session in sessions:
                assert [
                    event.ownership.epoch
                    for event in watcher.events
                    if isinstance(event, OwnerChanged) and event.session == session and event.ownership
                ] == list(range(1, 31))


async def test_a_change_is_seen_soon(registries: Registries) -> None:
    writer, other_handle = await registries.open(), await registries.open()
    async with watching(other_handle) as observer:
        started = time.monotonic()
        await writer.create(SESSION, owned("p1", 1))
        await observer.until_seen(OwnerChanged(SESSION, owned("p1", 1)))
        # One that is only found by looking again after a while is not seen soon.
        assert time.monotonic() - started < 2


# ---------------------------------------------------------------- site logs


async def test_a_sites_log_is_claimed_by_compare_and_set(registries: Registries) -> None:
    first_handle, other_handle = await registries.open(), await registries.open()
    site = SiteId("A")
    assert await first_handle.site_log(site) is None
    first = SiteLogRow(identity="i")
    answers = await asyncio.gather(
        *(
            handle.claim_site_log(site, None, SiteLogRow(identity=f"i{n}"))
            for n, handle in enumerate([first_handle, other_handle] * 5)
        )
    )
    assert answers.count(True) == 1
    first = await other_handle.site_log(site) or first
    later = SiteLogRow(identity=first.identity, log_epoch=2, ended={Origin("A/0"): (5, 7)})
    assert await first_handle.claim_site_log(site, first, later)
    assert not await other_handle.claim_site_log(site, first, SiteLogRow(identity="stale"))
    assert await other_handle.site_log(site) == later
    assert await first_handle.site_log(SiteId("B")) is None


async def test_a_watch_does_not_tell_of_site_logs(registries: Registries) -> None:
    registry = await registries.open()
    async with watching(registry) as observer:
        assert await registry.claim_site_log(SiteId("A"), None, SiteLogRow(identity="i"))
        await registry.create(SESSION, owned("p1", 1))
        await observer.until(lambda: OwnerChanged(SESSION, owned("p1", 1)) in observer.events)
        assert [type(event) for event in observer.events] == [Reloaded, OwnerChanged]
    async with watching(registry) as again:
        assert isinstance(again.events[0], Reloaded)
