"""A cluster is upgraded, one proxy after the other, under load: nothing is lost, repeated or reordered."""

from __future__ import annotations

from pathlib import Path

from chaos.cluster import Cluster, ProxySpec
from chaos.faults.upgrade import Upgrade
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.roamers import Roaming

SEED = 51


async def test_three_proxies_are_upgraded_one_by_one(kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": f"upgrade{SEED}"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    async with Cluster(places, [("A", "B")], tmp_path) as cluster:
        proxies = list(cluster.proxies.values())
        work = Roaming(cluster.urls, SEED)
        await work.setup()
        work.start()
        for proxy, witness in zip(proxies, proxies[1:] + proxies[:1], strict=True):
            await work.goes_on()
            upgrade, incarnation = Upgrade(proxy, witness), proxy.process.pid
            await upgrade.inject()
            assert proxy.process.exit_status == 0
            await work.goes_on()
            await upgrade.heal()
            assert proxy.process.pid != incarnation
        await work.goes_on()
        result = await work.check()
    assert result.clean, result.worst
    assert result.expected > 200
