"""A line between two sites that is slow, narrow, breaks off and turns bits over, while clients roam across it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from chaos.cluster import Cluster, ProxySpec
from chaos.faults.bad_line import BadLine
from chaos.faults.damage import Damage
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.toxiproxy import ToxiproxyServer
from chaos.workloads.roamers import Roaming

SEED = 81
SITES = {"a1": "A", "b1": "B"}


async def test_clients_roam_across_a_line_that_is_bad_in_every_way(
    kafka: KafkaServer, etcd: EtcdServer, toxiproxy: ToxiproxyServer, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    shared = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": f"bad{SEED}"}
    places, fronts, damages = [], [], {}
    async with AsyncExitStack() as stack:
        for name, site in SITES.items():
            port = free_port()
            front = toxiproxy.front(f"bad-{name}", f"{LOOPBACK}:{port}", f"{LOOPBACK}:{free_port()}")
            stack.callback(front.destroy)
            damages[name] = await stack.enter_async_context(Damage(front.listen, SEED))
            own = {"port": str(port), "advertise": f"ws://{damages[name].address}"}
            places.append(ProxySpec(name, site, shared | own))
            fronts.append(front)
        cluster = await stack.enter_async_context(Cluster(places, [("A", "B")], tmp_path))
        work = Roaming(cluster.urls, SEED, clients=4, rate=40)
        await work.setup()
        work.start()
        await work.goes_on()
        faults: list[BadLine | Damage] = [*(BadLine(front) for front in fronts), *damages.values()]
        for fault in faults:
            await fault.inject()
        for _ in range(3):
            await work.goes_on()
        for fault in faults:
            await fault.heal()
        result = await work.check()
        noticed = {name: cluster.proxies[name].request("/v1/status")["refused"].get("wrong tag", 0) for name in damages}
        assert sum(noticed.values()) > 0
        assert all(noticed[name] <= damage.changed for name, damage in damages.items())
    assert result.clean, result.worst
    assert result.expected > 200
