"""Keys on real proxies of two sites: only who has them gets what goes with them, wherever the session is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.cli.commands.receive import EXIT_IN_VAIN
from tests.node.test_command_line import run
from waypost.errors import Refused
from waypost.keys import Keys, public_key

SESSION, SECRET = "keys/desk", b"known to the weather office"
ORIGINS = ["A/0", "B/0"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    places = [ProxySpec("a1", "A", flags | {"neighbours": "B"}), ProxySpec("b1", "B", flags | {"neighbours": "A"})]
    with Cluster(places, [], root) as cluster:
        yield cluster


async def test_keys_go_with_the_session_to_another_site(cluster: Cluster) -> None:
    here, there = (cluster.proxies[name].url for name in ("a1", "b1"))
    office = Keys.producer(SECRET)
    async with (
        asyncio.timeout(60),
        waypost.attach(SESSION, proxy=here) as desk,
        waypost.produce("office", proxy=here) as honest,
        waypost.produce("somebody", proxy=there) as other,
    ):
        await desk.set_keys(subscribing=Keys.producer(public_key(SECRET)))
        reports = await desk.subscribe("require(report)", insecure=False)
        anything = await desk.subscribe("require(report) || require(news)", id="anything")
        for each in (reports, anything):
            await desk.wait_effective(each, ORIGINS)
        await honest.publish_with(office)
        await honest.publish({"report": 1}, insecure=False)
        await other.publish({"report": 2})
        await other.publish({"news": 3})
        found = [await anext(desk) for _ in range(3)]
        secure = {next(iter(received.values())): set(received.secure) for received in found}
        assert secure == {1: {reports, anything}, 2: set(), 3: set()}
        assert all(reports not in received.subscriptions for received in found if not received.secure)
        await desk.move(there)
        await desk.wait_attached()
        await honest.publish({"report": 4}, insecure=False)
        moved = await anext(desk)
        assert (moved["report"], set(moved.secure)) == (4, {reports, anything})
        # From here on the office is somebody else's.
        await desk.set_keys(subscribing=Keys.producer(public_key(b"another")))
        await honest.publish({"report": 5}, insecure=False)
        await other.publish({"report": 6}, keys=Keys.producer(b"another"), insecure=False)
        assert (await anext(desk))["report"] == 6
        await desk.move(here)
        await desk.wait_attached()
        await honest.publish({"report": 7}, insecure=False)
        await other.publish({"report": 8}, keys=Keys.producer(b"another"), insecure=False)
        assert (await anext(desk))["report"] == 8


async def test_public_key_alone_does_not_let_a_client_publish(cluster: Cluster) -> None:
    proxy = cluster.proxies["a1"].url
    async with asyncio.timeout(30), waypost.attach("keys/one", proxy=proxy) as one:
        wanted = await one.subscribe("require(order)", keys=Keys.producer(public_key(SECRET)), insecure=False)
        await one.wait_effective(wanted, ["A/0"])
        await one.publish({"order": 1}, keys=Keys.producer(public_key(SECRET)))
        await one.publish({"order": 2}, keys=Keys.producer(SECRET))
        assert (await anext(one))["order"] == 2
        with pytest.raises(Refused):
            await one.publish({"order": 3}, keys=Keys.producer(*(b"%d" % number for number in range(100))))


def test_the_commands_take_keys_from_files(cluster: Cluster, root: Path) -> None:
    raw, public, to = root / "office.key", root / "office.pub", ("--proxy", cluster.proxies["a1"].url)
    raw.write_text(run("key", "new").stdout)
    public.write_text(run("key", "public", str(raw)).stdout)
    assert raw.read_text() != public.read_text()
    assert public.read_text().split()[:3] == ["sha256-producer", "producer", "public"]
    wanted = ("sub", "require(x)", "--session", "keys/cli", "--keys-file", str(public), "--secure", *to)
    assert run(*wanted, "-W", "1").returncode == EXIT_IN_VAIN
    for keys in ((), ("--keys-file", str(raw))):
        assert run("pub", "x=1", *keys, *to).returncode == 0
    taken = run(*wanted, "-W", "2", "--json").stdout.splitlines()
    assert [json.loads(line)["secure"] for line in taken if '"notification"' in line] == [["require(x)"]]


def test_a_file_of_keys_that_is_wrong_is_refused_by_its_line(cluster: Cluster, root: Path) -> None:
    wrong = root / "wrong.key"
    wrong.write_text("sha256-producer producer raw 00\nsha256-producer consumer raw 00\n")
    done = run("pub", "x=1", "--keys-file", str(wrong), "--proxy", cluster.proxies["a1"].url)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        f"error: REFUSED: keys-file: {wrong}, line 2: scheme sha256-producer has no keys of the consumer"
    ]


def test_a_raw_key_is_not_taken_for_a_public_one_nor_the_other_way_round(cluster: Cluster, root: Path) -> None:
    raw, public, to = root / "mine.key", root / "mine.pub", ("--proxy", cluster.proxies["a1"].url)
    raw.write_text(run("key", "new").stdout)
    public.write_text(run("key", "public", str(raw)).stdout)
    for words in (("sub", "a == 1", "--keys-file", str(raw)), ("pub", "a=1", "--keys-file", str(public))):
        refused = run(*words, *to)
        assert refused.returncode == 2 and "the producer's key is to be" in refused.stderr
    assert run("key", "public", str(public)).returncode == 2


def test_the_audit_of_all_that_is_in_order(cluster: Cluster, root: Path) -> None:
    for proxy in cluster.proxies.values():
        proxy.stop()
    audited = run("audit", str(root), timeout_s=180)
    assert audited.returncode == 0, audited.stdout + audited.stderr
