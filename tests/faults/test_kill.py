"""kill -9 of a proxy, embedded parts: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from chaos.cluster import Cluster, ProxySpec
from chaos.faults.kill import Kill
from chaos.workloads.roamers import Roaming

SEED = 21
FLAGS = {"no-discovery": ""}
PROXIES = [ProxySpec("a1", "A", FLAGS), ProxySpec("a2", "A", FLAGS), ProxySpec("b1", "B", FLAGS)]


async def test_clients_roam_while_proxies_are_killed(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    cluster = Cluster(PROXIES, [("A", "B")], tmp_path)
    await asyncio.to_thread(cluster.__enter__)
    try:
        sites = {site: [proxy.url for proxy in cluster.of_site(site)] for site in ("A", "B")}
        work = Roaming(sites, SEED)
        await work.setup()
        work.start()
        for victim in random.Random(SEED).sample(list(cluster.proxies.values()), 2):
            await work.goes_on()
            kill, incarnation = Kill(victim), victim.process.pid
            await kill.inject()
            await work.goes_on()
            await kill.heal()
            assert victim.process.pid != incarnation
        await work.goes_on()
        result = await work.check()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
    assert result.clean, result.worst
    assert result.expected > 200
    assert work.moves > 10
