"""Every real part is killed, paused, starved and cut under load; deliveries go on within a stated time after that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.servers import parts
from chaos.servers.etcd import EtcdTrio
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.server import Server
from chaos.servers.toxiproxy import ToxiproxyServer
from chaos.workloads.audience import Audience
from node.health.dependency_health import OLD_MS
from tests.helpers.polling import until_seen

LEASE_MS = 3_000
GOES_ON_S = 20
"""Deliveries go on within so long after a part is back; a proxy that stands still is restarted by nobody here."""
FORGOTTEN_S = OLD_MS / 1000 + GOES_ON_S
"""Another site that did not answer, and is not needed any more, is a trouble for OLD_MS."""
NAMES = {"a1": "A", "a2": "A", "b1": "B"}


@dataclass
class Stage:
    """A federation of two sites on Kafka, one broker each, and three members of etcd, with clients at work."""

    kafka: dict[str, KafkaServer]
    etcd: EtcdTrio
    cluster: Cluster
    work: Audience
    toxiproxy: ToxiproxyServer
    fronts: dict[str, list[str]]
    """Names of toxiproxy's fronts, by what stands behind them."""

    async def goes_on(self, what: str) -> None:
        """Assert that every client is given more, and that every proxy is ready, within the stated time."""
        began = time.monotonic()
        async with asyncio.timeout(GOES_ON_S):
            await self.work.wait_delivered()
        for proxy in self.cluster.proxies.values():
            await until_seen(proxy.ready, f"{proxy.name} is ready after {what}", GOES_ON_S)
        print(f"{what}: goes on after {time.monotonic() - began:.1f} s")

    def cut(self, behind: str, *, cut: bool) -> None:
        for name in self.fronts[behind]:
            front = self.toxiproxy.client.get_proxy(name)
            (front.disable if cut else front.enable)()


@pytest.fixture
async def stage(toxiproxy: ToxiproxyServer, tmp_path: Path) -> AsyncIterator[Stage]:
    parts.install(["kafka", "etcd"])
    async with AsyncExitStack() as stack:
        ways = {name: (LOOPBACK, free_port()) for name in NAMES}
        kafka: dict[str, KafkaServer] = {}
        for site in ("A", "B"):
            here = {name: ways[name] for name, at in NAMES.items() if at == site}
            kafka[site] = KafkaServer(tmp_path / f"kafka-{site}", advertise=here)
            await asyncio.to_thread(stack.enter_context, kafka[site])
        etcd = await asyncio.to_thread(stack.enter_context, EtcdTrio(tmp_path / "etcd"))
        fronts: dict[str, list[str]] = {"kafka": [], "etcd": [], "peers": []}
        places = []
        for name, site in NAMES.items():
            port, peers = free_port(), f"{LOOPBACK}:{free_port()}"
            members = [f"{LOOPBACK}:{free_port()}" for _ in etcd.members]
            wanted = [("kafka", kafka[site].upstream(name), kafka[site].advertised(name))]
            wanted += [("peers", f"{LOOPBACK}:{port}", peers)]
            wanted += [("etcd", member.endpoint, listen) for member, listen in zip(etcd.members, members, strict=True)]
            for number, (behind, upstream, listen) in enumerate(wanted):
                front = toxiproxy.front(f"real-{name}-{behind}-{number}", upstream, listen)
                stack.callback(front.destroy)
                fronts[behind].append(front.name)
            flags = {"no-discovery": "", "kafka": kafka[site].advertised(name), "etcd": ",".join(members)}
            flags |= {"lease-ttl-ms": str(LEASE_MS), "port": str(port), "advertise": f"ws://{peers}"}
            places.append(ProxySpec(name, site, flags))
        cluster = await stack.enter_async_context(Cluster(places, [("A", "B")], tmp_path / "proxies"))
        work = Audience(cluster.urls, 91, clients=3, rate=30)
        for guest, proxy in zip(work.clients, cluster.proxies.values(), strict=True):
            await guest.appear(proxy.url, ())
            await guest.subscribe_all(["A/0", "B/0"])
        work.start()
        await work.wait_delivered()
        yield Stage(kafka, etcd, cluster, work, toxiproxy, fronts)


async def killed(servers: Iterable[Server], down_s: float) -> None:
    """kill -9 of these at one time, and a start of them so much later."""
    listed = list(servers)
    await asyncio.gather(*(asyncio.to_thread(server.kill) for server in listed))
    await asyncio.sleep(down_s)
    await asyncio.gather(*(asyncio.to_thread(server.start) for server in listed))


async def paused(servers: Iterable[Server], for_s: float) -> None:
    listed = list(servers)
    for server in listed:
        server.pause()
    await asyncio.sleep(for_s)
    for server in listed:
        server.resume()


async def starved(servers: Iterable[Server], for_s: float) -> None:
    """It has a tenth of the time that it wants."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        await paused(servers, 0.45)
        await asyncio.sleep(0.05)


async def ends_well(stage: Stage) -> None:
    result = await stage.work.check()
    assert result.clean, result.worst
    assert result.expected > 200
    for proxy in stage.cluster.proxies.values():
        try:
            await until_seen(partial(_has_no_troubles, proxy), f"{proxy.name} has no troubles any more", FORGOTTEN_S)
        except AssertionError:
            assert await asyncio.to_thread(_troubles, proxy) == {}
            raise


def _has_no_troubles(proxy: ProxyProcess) -> bool:
    return not _troubles(proxy)


def _troubles(proxy: ProxyProcess) -> dict[str, str]:
    return dict(proxy.request("/v1/status")["troubles"])


async def test_brokers_are_killed_paused_and_starved(stage: Stage) -> None:
    brokers = stage.kafka
    # Longer than any back-off and time-out of the client library: this is where a reader once stopped for ever.
    await killed([brokers["A"]], 45)
    await stage.goes_on("a broker was dead for 45 s")
    for round_ in range(3):
        await killed([brokers["B"]], round_)
        await stage.goes_on(f"a broker was dead for {round_} s")
    await killed(brokers.values(), 8)
    await stage.goes_on("both brokers were dead for 8 s")
    await paused([brokers["A"]], 20)
    await stage.goes_on("a broker was paused for 20 s")
    await starved(brokers.values(), 10)
    await stage.goes_on("both brokers were starved for 10 s")
    await ends_well(stage)


async def test_etcd_is_killed_paused_and_starved_member_by_member_and_whole(stage: Stage) -> None:
    members = stage.etcd.members
    for member in members:
        # One of them is the leader.
        await killed([member], 3)
        await stage.goes_on(f"etcd's member {member.port} was dead for 3 s")
    await killed(members, 15)
    await stage.goes_on("etcd was dead for 15 s")
    await paused(members, 15)
    await stage.goes_on("etcd was paused for 15 s")
    await starved(members, 10)
    await stage.goes_on("etcd was starved for 10 s")
    await ends_well(stage)


async def test_every_way_is_cut_and_everything_fails_at_one_time(stage: Stage) -> None:
    for behind in stage.fronts:
        for for_s in (1, 12):
            await asyncio.to_thread(stage.cut, behind, cut=True)
            await asyncio.sleep(for_s)
            await asyncio.to_thread(stage.cut, behind, cut=False)
            await stage.goes_on(f"{behind} were cut off for {for_s} s")
    await killed([*stage.kafka.values(), *stage.etcd.members], 10)
    await stage.goes_on("Kafka and etcd were dead for 10 s")
    await ends_well(stage)
