"""A site log that lost its end, or is another one: nothing that is acknowledged afterwards is lost.

What was lost is told to everybody who does not have it.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.faults.lost_end import LostEnd
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import free_port
from tests.helpers.polling import until, until_seen
from tests.node.test_command_line import run
from waypost.identity import Coordinate, new_incarnation
from waypost.messages import Gap

TIMEOUT_S, AUDIT_S = 40.0, 240.0
AFTER_METADATA_S = 7.0
"""By then every client of a broker has asked for its topics again, in seconds."""
MAKES_TOPICS = {"auto.create.topics.enable": "true"}
FLAGS = {"no-discovery": "", "lease-ttl-ms": "3000"}


@dataclass
class Reader:
    """A receiver that notes what it was given and what it was told to be lost."""

    name: str
    state: waypost.ReceiverState = field(default_factory=waypost.ReceiverState)
    numbers: list[int] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    task: asyncio.Task[None] | None = None
    session: waypost.Receiver | None = None

    def hear(self, event: object) -> None:
        if isinstance(event, Gap):
            self.gaps.append(event)

    async def prepare(self, url: str) -> None:
        async with waypost.attach(self.name, proxy=url, state=self.state, timeout_s=TIMEOUT_S) as session:
            await session.wait_effective(await session.subscribe("n > 0"), ["A/0"])

    def start(self, url: str) -> None:
        self.task = asyncio.create_task(self._read(url))

    async def _read(self, url: str) -> None:
        async with waypost.attach(
            self.name, proxy=url, state=self.state, on_event=self.hear, timeout_s=TIMEOUT_S
        ) as session:
            self.session = session
            async for notification in session:
                self.numbers.append(int(str(notification["n"])))

    async def attested(self) -> None:
        """Wait until a journal has what this reader has."""
        assert self.session is not None
        await self.session.wait_attested()

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)
            self.task = None

    def is_in_gap(self, at: Coordinate) -> bool:
        return any(gap.origin == at.origin and gap.first <= at.offset <= gap.last for gap in self.gaps)


async def publish(url: str, numbers: range) -> dict[int, Coordinate]:
    """Publish these numbers; return where each was acknowledged to be."""
    found = {}
    async with waypost.produce("maker", proxy=url, timeout_s=TIMEOUT_S) as producer:
        for number in numbers:
            found[number] = await producer.publish({"n": number, "padding": "x" * 40})
    return found


def accounts(reader: Reader, safe: dict[int, Coordinate]) -> list[str]:
    """Return what is wrong: acknowledged, and neither given nor told to be lost; given twice."""
    missing = [(n, at) for n, at in safe.items() if n not in reader.numbers and not reader.is_in_gap(at)]
    twice = {n for n in reader.numbers if reader.numbers.count(n) > 1}
    return [f"{reader.name} lost {n} at {at}" for n, at in missing] + [f"{reader.name} got {n} twice" for n in twice]


@pytest.fixture
async def cluster(etcd: EtcdServer, tmp_path: Path) -> AsyncIterator[tuple[Cluster, dict[str, KafkaServer]]]:
    async with AsyncExitStack() as stack:
        brokers = {site: KafkaServer(tmp_path / f"kafka-{site}") for site in ("A", "B")}
        for broker in brokers.values():
            await asyncio.to_thread(stack.enter_context, broker)
        shared = {**FLAGS, "etcd": etcd.endpoint, "prefix": f"epochs-{new_incarnation()}"}
        places = [
            ProxySpec(name, site, {**shared, "kafka": brokers[site].bootstrap})
            for name, site in (("a1", "A"), ("a2", "A"), ("b1", "B"))
        ]
        yield await stack.enter_async_context(Cluster(places, [("A", "B")], tmp_path / "proxies")), brokers


async def test_a_log_that_lost_its_end_begins_another_epoch(
    cluster: tuple[Cluster, dict[str, KafkaServer]],
) -> None:
    proxies, brokers = cluster[0].proxies, cluster[1]
    level = [Reader("level-a"), Reader("level-b")]
    away = [Reader("away-a"), Reader("away-b")]
    for reader in (level[0], away[0]):
        await reader.prepare(proxies["a1"].url)
    for reader in (level[1], away[1]):
        await reader.prepare(proxies["b1"].url)
    level[0].start(proxies["a1"].url)
    level[1].start(proxies["b1"].url)
    prefix = cluster[0]._specs[0].flags["prefix"]
    safe = await publish(proxies["a1"].url, range(1, 201))
    await until(lambda: len(level[0].numbers) == len(level[1].numbers) == 200, "everything has arrived")
    # What lies at the end is not read by b1 any more: its sessions are owed what nobody has.
    await asyncio.to_thread(proxies["b1"].kill)
    safe |= await publish(proxies["a1"].url, range(201, 231))
    await until(lambda: len(level[0].numbers) == 230, "everything has arrived at a1")

    fault = LostEnd(brokers["A"], f"{prefix}.A.log", 6_000)
    await fault.inject()
    await fault.heal()
    safe |= await publish(proxies["a2"].url, range(231, 331))
    await asyncio.to_thread(proxies["b1"].start)
    safe |= await publish(proxies["a1"].url, range(331, 361))
    for reader, name in zip(away, ("a2", "b1"), strict=True):
        reader.start(proxies[name].url)
    readers = [*level, *away]
    try:
        await until(lambda: all(360 in reader.numbers for reader in readers), "the last one has come", TIMEOUT_S)
        await until(
            lambda: not any(accounts(reader, safe) for reader in readers), "everything is given, or told to be lost", 10
        )
        for each in readers:
            await each.attested()
        await close(list(proxies.values()))
    finally:
        wrong = [line for reader in readers for line in accounts(reader, safe)[:3]]
        for each in readers:
            await each.stop()
        assert wrong == []
    # It was no small loss, and it was told only to who did not have it.
    assert not level[0].gaps
    assert level[1].gaps and away[1].gaps
    assert all(at.origin == "A/0.2" for n, at in safe.items() if n > 331)
    for proxy in proxies.values():
        await until_seen(proxy.ready, f"{proxy.name} is ready")
        assert proxy.request("/v1/status")["troubles"] == {}
    cluster[0].stop_proxies()
    sites = ",".join(f"{site}={broker.bootstrap}" for site, broker in brokers.items())
    audited = await asyncio.to_thread(partial(run, "audit", f"kafka://{sites}/{prefix}", "--json", timeout_s=AUDIT_S))
    check_audit(json.loads(audited.stdout), lost=[at for n, at in safe.items() if n > 200 and at.origin == "A/0"])


async def test_power_cut_of_a_site_loses_nothing_in_silence_that_only_another_site_has_seen(
    cluster: tuple[Cluster, dict[str, KafkaServer]], tmp_path: Path
) -> None:
    """All proxies of A die together with their broker, and their disks are lost. So nobody at A knows the end of the
    log that b1 has seen, nor does the registry, if that was seen since the last report.
    """
    proxies, brokers = cluster[0].proxies, cluster[1]
    away, level = Reader("away"), Reader("level")
    await away.prepare(proxies["a1"].url)
    await level.prepare(proxies["b1"].url)
    level.start(proxies["b1"].url)
    prefix = cluster[0]._specs[0].flags["prefix"]
    safe = await publish(proxies["a1"].url, range(1, 201))
    await until(lambda: len(level.numbers) == 200, "everything has arrived")
    safe |= await publish(proxies["a1"].url, range(201, 261))
    await until(lambda: len(level.numbers) == 260, "the last ones have arrived")
    at_a = [proxies["a1"], proxies["a2"]]
    await asyncio.gather(*(asyncio.to_thread(proxy.kill) for proxy in at_a))
    fault = LostEnd(brokers["A"], f"{prefix}.A.log", 3_000)
    await fault.inject()
    for proxy in at_a:
        shutil.rmtree(tmp_path / "proxies" / "proxies" / proxy.name)
    await fault.heal()
    await asyncio.gather(*(asyncio.to_thread(proxy.start) for proxy in at_a))
    safe |= await publish(proxies["a2"].url, range(261, 361))
    away.start(proxies["a1"].url)
    readers = [level, away]
    try:
        await until(
            lambda: not any(accounts(reader, safe) for reader in readers),
            "everything is given, or told to be lost",
            TIMEOUT_S,
        )
    finally:
        wrong = [line for reader in readers for line in accounts(reader, safe)[:3]]
        for each in readers:
            await each.stop()
        assert wrong == []
    assert away.gaps and not level.gaps
    assert all(at.origin == "A/0.2" for n, at in safe.items() if n > 260)


async def close(proxies: list[ProxyProcess]) -> None:
    """Have closing markers written, and wait until all below them is on record."""
    markers = {
        proxy_process.name: int(proxy_process.request("/v1/marker", post=True)["offset"]) for proxy_process in proxies
    }

    def settled(proxy: ProxyProcess) -> bool:
        status = proxy.request("/v1/status")
        return bool(status["position"] > markers[proxy.name] and status["unrecorded"] == 0)

    for proxy_process in proxies:
        await until_seen(partial(settled, proxy_process), f"{proxy_process.name} has all on record")


def check_audit(report: dict[str, Any], lost: list[Coordinate]) -> None:
    """What was lost was told, which is a gap; nothing else is wrong, also not with what no log knows any more."""
    codes = {row["code"]: row["count"] for row in report["classes"]}
    assert report["verdict"] == "violated" and report["totals"]["lost"] == 0, codes
    assert codes.keys() >= {"G1", "G2"} and codes["G2"] == 1, codes
    assert codes.keys() <= {"G1", "G2", "A5", "L3", "D4"}, [
        finding for finding in report["findings"] if finding["code"] not in "G1 G2 A5 L3 D4"
    ]
    # What no log knows any more is what the log lost, and b1 had not read.
    doubtful = {
        (finding["origin"], finding["offset"]) for finding in report["findings"] if finding["code"] in ("A5", "L3")
    }
    assert doubtful <= set(lost), sorted(doubtful - set(lost))[:5]


async def test_an_empty_log_in_the_place_of_one_that_was_read_is_refused(tmp_path: Path, etcd: EtcdServer) -> None:
    flags = {**FLAGS, "etcd": etcd.endpoint, "prefix": f"empty-{new_incarnation()}"}
    with KafkaServer(tmp_path / "kafka") as kafka:
        proxy = ProxyProcess(ProxySpec("a", "A", {**flags, "kafka": kafka.bootstrap}), (), tmp_path / "a")
        await asyncio.to_thread(proxy.start)
        await publish(proxy.url, range(1, 20))
        await asyncio.sleep(3)
        proxy.stop()
    shutil.rmtree(tmp_path / "a" / "proxies")
    with KafkaServer(tmp_path / "another") as kafka:
        proxy = ProxyProcess(ProxySpec("a", "A", {**flags, "kafka": kafka.bootstrap}), (), tmp_path / "a")
        try:
            proxy.process.start()
            await asyncio.to_thread(
                partial(
                    proxy.process.wait_until, lambda: proxy.process.has_logged("error: "), timeout_s=20, what="refused"
                )
            )
            text = proxy.process.log.read_text()
            assert "the log of site A is another one than was read: it is empty" in text
            assert "waypost sites begin-log A" in text
            # An operator says that it is meant: then what is published arrives.
            done = await asyncio.to_thread(
                run, "sites", "begin-log", "A", "--etcd", flags["etcd"], "--prefix", flags["prefix"]
            )
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
            await asyncio.to_thread(proxy.start)
            reader = Reader("anew")
            async with waypost.attach("anew", proxy=proxy.url, timeout_s=TIMEOUT_S) as session:
                await session.wait_effective(await session.subscribe("n > 0"), ["A/0.2"])
            reader.start(proxy.url)
            safe = await publish(proxy.url, range(100, 110))
            await until(lambda: 109 in reader.numbers, "the last one has come", TIMEOUT_S)
            assert accounts(reader, safe) == []
            assert proxy.request("/v1/status")["log_epoch"] == 2
            await reader.stop()
        finally:
            proxy.stop()


async def test_proxies_name_a_log_that_is_missing_and_go_on_when_it_is_back(tmp_path: Path, etcd: EtcdServer) -> None:
    """A broker that is started with an empty folder answers, and does not have what was read. It would make any topic
    that is asked for by name, and nobody does.
    """
    flags = {**FLAGS, "etcd": etcd.endpoint, "prefix": f"missing-{new_incarnation()}"}
    port = free_port()
    kept = KafkaServer(tmp_path / "kafka", port=port)
    flags["kafka"] = kept.bootstrap
    log_topic = f"topic {flags['prefix']}.A.log of Kafka at {kept.bootstrap} is missing"
    names = ("a1", "a2")
    reader = Reader("reader")
    try:
        await asyncio.to_thread(kept.start)
        with Cluster([ProxySpec(name, "A", flags) for name in names], [], tmp_path / "proxies") as cluster:
            first, second = (cluster.proxies[name] for name in names)
            await reader.prepare(first.url)
            reader.start(second.url)
            safe = await publish(first.url, range(1, 20))
            await until(lambda: 19 in reader.numbers, "the first ones have come")
            await asyncio.to_thread(kept.kill)
            with KafkaServer(tmp_path / "empty", port=port, settings=MAKES_TOPICS):
                waiting = asyncio.create_task(publish(first.url, range(20, 22)))
                for proxy in (first, second):
                    await until_seen(partial(names_trouble, proxy, log_topic), f"{proxy.name} says what is missing")
                    assert not proxy.ready()
                await asyncio.sleep(AFTER_METADATA_S)
                assert all(names_trouble(proxy, log_topic) for proxy in (first, second))
            await asyncio.to_thread(kept.start)
            for proxy in (first, second):
                await until_seen(proxy.ready, f"{proxy.name} is ready again", TIMEOUT_S)
            safe |= await waiting
            safe |= await publish(second.url, range(22, 40))
            await until(lambda: 39 in reader.numbers, "the last one has come", TIMEOUT_S)
            assert accounts(reader, safe) == [] and not reader.gaps
            assert all(proxy.request("/v1/status")["log_epoch"] == 1 for proxy in (first, second))
            # Who starts there makes the topic anew, and is refused; so are the others, and no log epoch begins.
            await asyncio.to_thread(kept.kill)
            await asyncio.to_thread(first.kill)
            with KafkaServer(tmp_path / "another", port=port, settings=MAKES_TOPICS):
                await asyncio.to_thread(first.process.start)
                for proxy in (first, second):
                    await until_seen(
                        partial(proxy.process.has_logged, "waypost sites begin-log A"), f"{proxy.name} is refused", 60
                    )
    finally:
        await reader.stop()
        kept.stop()


def names_trouble(proxy: ProxyProcess, words: str) -> bool:
    """Tell whether the proxy names this as what is wrong with its log."""
    return words in proxy.request("/v1/status")["troubles"].get("log", "")
