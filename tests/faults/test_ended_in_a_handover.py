"""A proxy is asked to end while a handover from it hangs: what receivers had acknowledged is not given again."""

from __future__ import annotations

import asyncio

import pytest

import waypost
from chaos.cluster import Cluster
from chaos.faults.silence import QUESTIONS, Silence
from chaos.fronted import Fronted
from tests.helpers.polling import until_seen

LEASE_MS = 6_000
"""Longer than the silence here on most machines: nobody is taken for dead who is not."""
COUNT, HAD = 60, 40
pytestmark = pytest.mark.usefixtures("healed")


async def take(receiver: waypost.Receiver, count: int) -> list[int]:
    async with asyncio.timeout(60):
        return [int(str((await anext(receiver))["n"])) for _ in range(count)]


async def publish(url: str, *numbers: int) -> None:
    async with waypost.produce("p", proxy=url) as producer:
        for number in numbers:
            await producer.publish({"n": number})


async def test_acknowledgements_of_a_frozen_session_outlive_its_proxy(
    cluster: Cluster, proxies: dict[str, Fronted]
) -> None:
    """The target has staged its copy, and cannot reach the registry: it would commit what stood at the cut."""
    here, there = cluster.proxies["a1"], cluster.proxies["a2"]
    name, frozen = "ended", "source frozen"
    receiver = waypost.attach(name, proxy=here.url, window=COUNT)
    async with receiver:
        await receiver.wait_effective(await receiver.subscribe("n > 0"), ["A/0"])
        await publish(here.url, *range(1, COUNT + 1))
        came = await take(receiver, 1)
        silence = Silence(proxies[there.name].registry, QUESTIONS)
        await silence.inject()
        here.request("/v1/drains", {"proxy": here.name, "rate": 1000})
        await until_seen(lambda: frozen in here.phases(name), "the session is frozen")
        came += await take(receiver, HAD - 1)
        assert await receiver.wait_attested()
        assert frozen in here.phases(name)
        await asyncio.gather(asyncio.to_thread(here.stop), receiver.abandon())
    await silence.heal()
    # On a slow machine the target was without a lease meanwhile, and begins again: it says 503 until then.
    go_on = {"proxy": here.name, "rate": None}
    await until_seen(lambda: bool(there.request("/v1/drains", go_on)), "the drain is taken back")
    async with waypost.attach(name, proxy=there.url, timeout_s=60) as again:
        came += await take(again, COUNT - HAD)
    assert came == list(range(1, COUNT + 1))
