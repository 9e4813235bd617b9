"""Who is who, on Kafka and etcd: producers that begin anew, dead proxies that are announced, another version."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import waypost
from chaos.checker import check
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.faults.kill import Kill
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.workloads.audience import Guest
from discovery.announce import Announcement, announced
from discovery.browse import browse
from tests.helpers.polling import until, until_seen
from waypost.identity import NotificationId, new_incarnation
from waypost.messages import VERSION
from waypost.notification import Notification

LIVES, EACH = 3, 40
OF_ANOTHER_VERSION = f"import waypost.messages as m; m.VERSION = {VERSION + 1}; from node.cli.app import main; main()"


def flags_of(kafka: KafkaServer, etcd: EtcdServer, prefix: str) -> dict[str, str]:
    return {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint, "prefix": prefix}


async def test_restarted_producer_of_the_same_name_is_delivered_from_its_first_notification_on(
    kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    """Each life counts from the beginning, and so does nothing else of its ids."""
    flags = flags_of(kafka, etcd, "lives")
    published: dict[NotificationId, Notification] = {}
    async with Cluster([ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags)], [("A", "B")], tmp_path) as cluster:
        a1, b1 = (cluster.proxies[name] for name in ("a1", "b1"))
        guest = Guest(name="listener", subscriptions=("number >= 0",))
        await guest.appear(a1.url, ())
        await guest.subscribe_all(["A/0", "B/0"])
        for incarnation in range(LIVES):
            producer = waypost.produce("maker", proxy=b1.url)
            await producer.__aenter__()
            for number in range(EACH):
                published[producer.next_id] = body = Notification({"number": incarnation * EACH + number})
                await producer.publish_soon(body)
            # What has no answer yet, its next life does not know of; so wait for it.
            while producer.unacknowledged:
                await asyncio.sleep(0.01)
            await producer.abandon()
            await guest.move((a1, b1)[incarnation % 2].url)
        await until(lambda: len(guest.got) >= len(published), "all lives are heard")
        await guest.vanish(politely=True)
    assert len(published) == LIVES * EACH
    assert sorted(notification_id.sequence for notification_id in published) == sorted([*range(EACH)] * LIVES)
    result = check(published, {guest.name: guest.subscriptions}, {guest.name: guest.got})
    assert result.clean, result.worst


async def test_the_announcement_of_a_dead_proxy_is_a_hint_and_no_more(
    kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that finds proxies by mDNS comes to a live one, and its session with it."""
    site = f"S{new_incarnation()}"
    monkeypatch.setenv("WAYPOST_SITE", site)

    async def ours() -> list[Announcement]:
        """Other federations may announce themselves on this machine."""
        return [announcement for announcement in await browse() if announcement.site == site]

    monkeypatch.setattr("discovery.browse.browse", ours)
    flags = flags_of(kafka, etcd, site)
    async with Cluster(
        [ProxySpec(f"{site}-1", site, flags), ProxySpec(f"{site}-2", site, flags)], [], tmp_path
    ) as cluster:
        dead, live = cluster.proxies.values()
        async with waypost.attach("tests/found", proxy=dead.url) as session:
            await session.wait_effective(await session.subscribe("number >= 0"), [f"{site}/0"])
        async with waypost.produce("maker", proxy=live.url) as producer:
            await producer.publish({"number": 1})
        await Kill(dead).inject()
        # Whom caches still name, with the better place in the order of those that are found.
        announcements = [
            Announcement(dead.name, site, dead.url, load=0),
            Announcement(live.name, site, live.url, load=1),
        ]
        retries: list[object] = []
        async with (
            announced(announcements[0]),
            announced(announcements[1]),
            waypost.attach("tests/found", timeout_s=60, on_event=retries.append) as session,
        ):
            async with asyncio.timeout(60):
                assert (await anext(session))["number"] == 1
            assert (await session.wait_attached()).proxy == live.name
        assert any(dead.url in str(retry) for retry in retries)


async def test_proxies_of_different_versions_refuse_each_other_by_name_and_their_sessions_stay(
    kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = flags_of(kafka, etcd, "versions")
    async with Cluster([ProxySpec("a1", "A", flags)], [], tmp_path) as cluster:
        a1 = cluster.proxies["a1"]
        newer = ProxyProcess(ProxySpec("a2", "A", flags), (), tmp_path)
        newer.process.command = [sys.executable, "-c", OF_ANOTHER_VERSION, *newer.command[1:]]
        await asyncio.to_thread(newer.start)
        try:
            guest = Guest(name="faithful", subscriptions=("number >= 0",))
            await guest.appear(a1.url, ())
            await guest.subscribe_all(["A/0"])
            await asyncio.to_thread(a1.request, "/v1/drains", {"proxy": "a1", "rate": 100})
            await until_seen(lambda: "wrong version" in newer.request("/v1/status")["refused"], "a2 refuses a1")
            async with waypost.produce("maker", proxy=a1.url) as producer:
                await producer.publish({"number": 1})
            await until(lambda: bool(guest.got), "it is served where it was")
            assert a1.owner(guest.session_id) == ("a1", 1)
            assert f"this one speaks {VERSION + 1}" in newer.process.log.read_text()
            await guest.vanish(politely=True)
        finally:
            await asyncio.to_thread(newer.stop)
