"""kill -9 of a proxy, embedded parts: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from chaos.cluster import Cluster, Place
from chaos.faults.kill import Kill
from chaos.workloads.roaming import Roaming
from tests.helpers.waiting import until

SEED = 21
FLAGS = {"no-discovery": ""}
PLACES = [Place("a1", "A", FLAGS), Place("a2", "A", FLAGS), Place("b1", "B", FLAGS)]


async def goes_on(work: Roaming, when: str) -> None:
    """Wait until clients have moved, and have been given what was published meanwhile."""
    moves, given = work.moves + 4, work.given + 100
    await until(lambda: work.moves >= moves and work.given >= given, f"clients move and receive {when}")


async def test_clients_roam_while_proxies_are_killed(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    cluster = Cluster(PLACES, [("A", "B")], tmp_path)
    await asyncio.to_thread(cluster.__enter__)
    try:
        sites = {site: [proxy.url for proxy in cluster.of_site(site)] for site in ("A", "B")}
        work = Roaming(sites, SEED)
        await work.setup()
        work.start()
        for victim in random.Random(SEED).sample(list(cluster.proxies.values()), 2):
            await goes_on(work, f"before {victim.name} is killed")
            kill, life = Kill(victim), victim.process.pid
            await kill.inject()
            await goes_on(work, f"without {victim.name}")
            await kill.heal()
            assert victim.process.pid != life
        await goes_on(work, "when all are back")
        tally = await work.check()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
    assert tally.clean, (tally.lost[:5], tally.duplicated[:5], tally.phantom[:5])
    assert tally.owed > 200
    assert work.moves > 10
