"""A third site is away for longer than its lease, and owes much: it blocks nobody, and what it owes comes once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import waypost
from chaos.cluster import Cluster
from chaos.faults.cut import Cut
from chaos.faults.kill import Kill
from chaos.fronted import fronted
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.toxiproxy import ToxiproxyServer
from chaos.workloads.audience import KINDS, Audience
from tests.helpers.polling import until_seen
from waypost.limits import LINK_WINDOW
from waypost.notification import Notification

SEED = 91
DEBTS = LINK_WINDOW + 2_000
"""More than a link carries ahead of acknowledgements: the rest is owed."""


async def test_backlog_of_an_absent_site_arrives_once_after_its_return_and_blocks_no_move(
    kafka: KafkaServer, etcd: EtcdServer, toxiproxy: ToxiproxyServer, tmp_path: Path
) -> None:
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "prefix": f"away{SEED}"}
    ways = fronted(toxiproxy, {"A": ("a1",), "B": ("b1",), "C": ("c1",)}, etcd.endpoint, flags)
    try:
        places = [way.spec for way in ways.values()]
        async with Cluster(places, [("A", "B"), ("A", "C")], tmp_path) as cluster:
            here, there, away = (cluster.proxies[name] for name in ("a1", "b1", "c1"))
            work = Audience({"A": [here.url], "B": [there.url]}, SEED, clients=3)
            for guest in work.clients:
                await guest.appear(here.url, ())
                await guest.subscribe_all(["A/0", "B/0", "C/0"])
            work.start()
            await work.wait_delivered()

            cut, kill = Cut(ways["c1"].peers), Kill(away)
            await cut.inject()
            last = await owe(work, away.url)
            await kill.inject()
            await until_seen(lambda: "c1" not in here.request("/v1/status")["proxies"], "the lease of c1 ends")
            assert here.request("/v1/status")["frontier"].get("C/0", -1) < last
            for target in (there, here, there, here):
                await asyncio.gather(*(guest.move(target.url) for guest in work.clients))
                await work.wait_delivered()
            assert here.request("/v1/status")["frontier"].get("C/0", -1) < last

            await cut.heal()
            await kill.heal()
            await until_seen(lambda: there.request("/v1/status")["frontier"].get("C/0", -1) >= last, "C has paid")
            result = await work.check()
    finally:
        for way in ways.values():
            way.remove()
    assert result.clean, result.worst
    assert result.expected > DEBTS / KINDS


async def owe(work: Audience, url: str) -> int:
    """Publish at the third site what everybody wants; return the offset of the last."""
    async with waypost.produce("debtor", proxy=url) as producer:
        for number in range(DEBTS):
            body = Notification({"kind": number % KINDS, "number": number, "site": "C"})
            work.published[producer.next_id] = body
            coordinate = await producer.publish_soon(body)
        return (await coordinate).offset
