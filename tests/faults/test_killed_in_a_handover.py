"""Deaths and lost answers at chosen moments of a handover, on Kafka and etcd: nothing lost, repeated or reordered.

A moment is made to last by a silence: what the source says does not reach the target, or a proxy hears nothing of etcd.
Which moment it is, a proxy says at its own port; what the registry says, one that hears everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.cluster import Cluster, ProxyProcess
from chaos.faults.kill import Kill
from chaos.faults.silence import ANSWERS, QUESTIONS, Silence
from chaos.fronted import Fronted
from chaos.workloads.audience import Audience, Guest
from tests.helpers.polling import until_seen

BACK = "a receiver came back to the source"
LEASE_MS = 6_000
"""Longer than any silence here, so that nobody is taken for dead who is not."""
pytestmark = pytest.mark.usefixtures("healed")


class Scenario:
    """A session at a1, epoch 1, whose client then goes to a2, while producers publish at both sites."""

    def __init__(self, cluster: Cluster, proxies: dict[str, Fronted], work: Audience) -> None:
        self.source, self.target, self.witness = (cluster.proxies[name] for name in ("a1", "a2", "b1"))
        self.ways = proxies
        self.work = work
        self.guest: Guest = work.clients[0]

    async def move(self) -> asyncio.Task[None]:
        """Begin to move; return when the target has asked the source, and does not hear what it answers."""
        self.unheard = Silence(self.ways[self.target.name].peers, QUESTIONS)
        await self.unheard.inject()
        moving = asyncio.create_task(self.guest.move(self.target.url))
        await self.in_phase(self.source, "source copying")
        return moving

    async def silence(self, proxy: ProxyProcess, what: str) -> Silence:
        """Begin a silence between the proxy and etcd, and let the move go on."""
        silence = Silence(self.ways[proxy.name].registry, what)
        await silence.inject()
        await self.unheard.heal()
        return silence

    async def in_phase(self, proxy: ProxyProcess, phase: str) -> None:
        await until_seen(lambda: phase in proxy.phases(self.guest.session_id), f"{proxy.name} is {phase}")

    async def owned_by(self, owner: str, epoch: int) -> None:
        session = self.guest.session_id
        await until_seen(lambda: self.witness.owner(session) == (owner, epoch), f"{owner} owns it at {epoch}")


@asynccontextmanager
async def scenario(cluster: Cluster, proxies: dict[str, Fronted], seed: int) -> AsyncIterator[Scenario]:
    """Run the scenario up to the move, and judge what came of it."""
    work = Audience(cluster.urls, seed, clients=2)
    scenario = Scenario(cluster, proxies, work)
    for guest in work.clients:
        await guest.appear(scenario.source.url, ())
        await guest.subscribe_all(["A/0", "B/0"])
    work.start()
    await work.wait_delivered()
    yield scenario
    await work.wait_delivered()
    result = await work.check()
    assert result.clean, result.worst
    assert result.expected > 100


async def test_a_client_that_comes_back_before_the_freeze_finds_its_session_where_it_was(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    async with scenario(cluster, proxies, 40) as run:
        moving = await run.move()
        moving.cancel()
        await run.guest.vanish(politely=False)
        await run.guest.appear(run.source.url, ())
        await run.in_phase(run.source, "source ended")
        await run.unheard.heal()
        await run.work.wait_delivered()
        assert run.witness.owner(run.guest.session_id) == ("a1", 1)
        shown = run.source.request("/v1/handovers")["handovers"]
        assert BACK in [row["why"] for row in shown if row["session"] == run.guest.session_id]


async def test_the_target_is_killed_after_prepare(cluster: Cluster, proxies: dict[str, Fronted]) -> None:
    async with scenario(cluster, proxies, 41) as run:
        moving = await run.move()
        kill = Kill(run.target)
        await kill.inject()
        assert "source copying" in run.source.phases(run.guest.session_id)
        await run.unheard.heal()
        await kill.heal()
        await moving
        await run.owned_by("a2", 2)


async def test_the_source_is_killed_after_its_cut_has_left(cluster: Cluster, proxies: dict[str, Fronted]) -> None:
    async with scenario(cluster, proxies, 42) as run:
        moving = await run.move()
        silence = await run.silence(run.target, QUESTIONS)
        await run.in_phase(run.target, "target committing")
        kill = Kill(run.source)
        await kill.inject()
        assert run.witness.owner(run.guest.session_id) == ("a1", 1)
        await silence.heal()
        await moving
        await run.owned_by("a2", 2)
        await kill.heal()


async def test_the_source_is_killed_after_the_commit_and_before_it_lets_go(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    async with scenario(cluster, proxies, 43) as run:
        moving = await run.move()
        silence = await run.silence(run.source, ANSWERS)
        await run.owned_by("a2", 2)
        assert "source frozen" in run.source.phases(run.guest.session_id)
        kill = Kill(run.source)
        await kill.inject()
        await silence.heal()
        await moving
        await kill.heal()


@pytest.mark.parametrize("dies", [True, False], ids=["and it dies", "and it lives"])
async def test_the_target_does_not_hear_that_its_commit_was_applied(
    dies: bool, cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    async with scenario(cluster, proxies, 44 + dies) as run:
        moving = await run.move()
        silence = await run.silence(run.target, ANSWERS)
        await run.owned_by("a2", 2)
        assert "target committing" in run.target.phases(run.guest.session_id)
        kill = Kill(run.target)
        if dies:
            await kill.inject()
        await silence.heal()
        if dies:
            await kill.heal()
        await moving
        await run.owned_by("a2", 3 if dies else 2)
