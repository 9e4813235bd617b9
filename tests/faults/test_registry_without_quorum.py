"""Two of three etcd members are gone: sessions are served while leases certainly hold, then kept, and go on after."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.faults.pause import Pause
from chaos.servers import parts
from chaos.servers.etcd import EtcdTrio
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Audience
from tests.helpers.polling import until_seen, until_still

SEED = 71
LEASE_MS = 4_000
HUNG_S = 20
"""Several times as long as a lease lasts by default."""


def unready(proxy: ProxyProcess) -> bool:
    return not proxy.ready()


async def test_sessions_are_kept_while_the_registry_has_no_quorum(kafka: KafkaServer, tmp_path: Path) -> None:
    parts.install(["etcd"])
    with EtcdTrio(tmp_path / "etcd") as trio:
        flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": trio.endpoints, "prefix": f"quorum{SEED}"}
        flags["lease-ttl-ms"] = str(LEASE_MS)
        places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
        async with Cluster(places, [("A", "B")], tmp_path / "proxies") as cluster:
            proxies = list(cluster.proxies.values())
            work = Audience(cluster.urls, SEED, clients=3)
            for guest, proxy in zip(work.clients, proxies, strict=True):
                await guest.appear(proxy.url, ())
                await guest.subscribe_all(["A/0", "B/0"])
            work.start()
            await work.wait_delivered()
            owners = {guest.session_id: proxies[0].owner(guest.session_id) for guest in work.clients}

            # One of three may go, and nobody notices for long.
            faults = [Pause(member) for member in trio.members]
            await faults[0].inject()
            await work.wait_delivered()
            await faults[1].inject()
            await work.wait_delivered(5)
            moving = asyncio.create_task(work.clients[0].move(proxies[1].url))
            for proxy in proxies:
                await until_seen(partial(unready, proxy), f"{proxy.name} is not ready any more")
                assert "registry" in proxy.request("/v1/status")["troubles"]
            # What they had sent by then may still be on its way.
            given, published = await until_still(lambda: work.delivered_count), len(work.published)
            while len(work.published) < published + 200:
                work.fail()
                await asyncio.sleep(0.05)
            assert work.delivered_count == given
            assert not moving.done()
            assert {session: proxies[0].owner(session) for session in owners} == owners

            for fault in faults:
                await fault.heal()
            await moving
            await work.wait_delivered()
            result = await work.check()
    assert result.clean, result.worst
    assert result.expected > 200


async def test_a_member_that_hangs_costs_no_lease_though_it_is_named_first(tmp_path: Path) -> None:
    """Its connections stay open, and nothing answers on them; two others are a quorum all the time."""
    parts.install(["etcd"])
    with EtcdTrio(tmp_path / "etcd") as trio:
        hung = trio.followers[0]
        others = [member for member in trio.members if member is not hung]
        flags = {"no-discovery": "", "etcd": ",".join(member.endpoint for member in [hung, *others])}
        flags |= {"mixed-backends": "", "prefix": f"hung{SEED}"}
        async with Cluster([ProxySpec("a1", "A", flags)], [], tmp_path / "proxies") as cluster:
            proxy, fault = cluster.proxies["a1"], Pause(hung)
            await fault.inject()
            loop = asyncio.get_running_loop()
            until_s = loop.time() + HUNG_S
            while loop.time() < until_s:
                assert await asyncio.to_thread(proxy.ready), proxy.request("/readyz")
                await asyncio.sleep(0.2)
            assert "lease lost" not in proxy.process.log.read_text()
            # Nor does it need the hung member to begin.
            await asyncio.to_thread(proxy.kill)
            await asyncio.to_thread(proxy.start)
            await fault.heal()
