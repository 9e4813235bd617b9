"""Links between proxies, and between a proxy and its Kafka, cut in the middle of handovers: nothing lost or doubled."""

from __future__ import annotations

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

from chaos.checker import CheckResult
from chaos.cluster import Cluster, ProxySpec
from chaos.faults.cut import Cut
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.toxiproxy import ToxiproxyServer
from chaos.workloads.roamers import Roaming

SEED = 31
ROUNDS = 4
HANDOVER_S = 0.05
"""About as long as a handover takes here: the cut falls somewhere inside."""
NAMES = {"a1": "A", "a2": "A", "b1": "B"}


def _fronted(toxiproxy: ToxiproxyServer, shared: dict[str, str]) -> tuple[list[ProxySpec], dict[str, Cut]]:
    """Return places that everybody reaches through a front, and the cuts of the fronts."""
    places, cuts = [], {}
    for name, site in NAMES.items():
        port, front = free_port(), free_port()
        cuts[name] = Cut(toxiproxy.front(name, f"{LOOPBACK}:{port}", f"{LOOPBACK}:{front}"))
        advertise = f"ws://{LOOPBACK}:{front}"
        flags = {"no-discovery": "", "port": str(port), "advertise": advertise, "prefix": f"cut{SEED}", **shared}
        places.append(ProxySpec(name, site, flags))
    return places, cuts


async def _roam_through(cluster: Cluster, cuts: list[Cut], *, cut_s: float) -> CheckResult:
    """Roam while one cut after the other is injected and healed."""
    rng = random.Random(SEED)
    sites = {site: [proxy.url for proxy in cluster.of_site(site)] for site in ("A", "B")}
    work = Roaming(sites, SEED)
    await work.setup()
    work.start()
    for _ in range(ROUNDS):
        await asyncio.sleep(rng.uniform(0.5, 1.5))
        cut = rng.choice(cuts)
        await work.until_moving()
        await asyncio.sleep(rng.uniform(0, HANDOVER_S))
        await cut.inject()
        await asyncio.sleep(rng.uniform(0.3, 1) * cut_s)
        await cut.heal()
    result = await work.check()
    assert work.moves > 5
    assert result.expected > 100
    return result


async def test_proxies_are_cut_off_from_each_other(
    kafka: KafkaServer, etcd: EtcdServer, toxiproxy: ToxiproxyServer, tmp_path: Path
) -> None:
    print(f"seed {SEED}")
    places, cuts = _fronted(toxiproxy, {"kafka": kafka.bootstrap, "etcd": etcd.endpoint})
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(places, [("A", "B")], tmp_path))
        result = await _roam_through(cluster, list(cuts.values()), cut_s=1.5)
    assert result.clean, result.worst


async def test_a_proxy_is_cut_off_from_its_kafka(etcd: EtcdServer, toxiproxy: ToxiproxyServer, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaServer(tmp_path / "kafka", advertise={"CUT": (LOOPBACK, free_port())}))
        front = toxiproxy.front("kafka-of-a1", broker.upstream("CUT"), broker.advertised("CUT"))
        places = []
        for name, site in NAMES.items():
            kafka = broker.advertised("CUT") if name == "a1" else broker.bootstrap
            flags = {"no-discovery": "", "kafka": kafka, "etcd": etcd.endpoint, "prefix": f"kafka{SEED}"}
            places.append(ProxySpec(name, site, flags))
        cluster = stack.enter_context(Cluster(places, [("A", "B")], tmp_path / "proxies"))
        result = await _roam_through(cluster, [Cut(front)], cut_s=4)
    assert result.clean, result.worst
