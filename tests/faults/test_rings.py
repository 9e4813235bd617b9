"""A ring of sites: the neighbour in use dies for good, a link is removed and added, and nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from tests.helpers.polling import until, until_seen
from tests.node.test_command_line import run

LEASE_MS = 3_000
SITES = ("A", "B", "C", "D")
RING = [("A", "B"), ("B", "C"), ("C", "D"), ("D", "A")]
MANY = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": str(LEASE_MS)}
    with Cluster([ProxySpec(f"{site.lower()}1", site, flags) for site in SITES], RING, tmp_path) as cluster:
        yield cluster


def tree_of(proxy: ProxyProcess) -> tuple[int, list[list[str]]]:
    tree = proxy.request("/v1/status")["tree"]
    return tree["epoch"], tree["links"]


def has_tree(cluster: Cluster, proxies: list[str], size: int) -> bool:
    trees = [tree_of(cluster.proxies[name]) for name in proxies]
    return len(trees[0][1]) == size and all(tree == trees[0] for tree in trees)


async def read(url: str, got: list[int], effective: asyncio.Event) -> None:
    async with waypost.attach("ring", proxy=url, timeout_s=60) as session:
        await session.wait_effective(await session.subscribe("n > 0"), [f"{site}/0" for site in SITES])
        effective.set()
        async for notification in session:
            got.append(int(str(notification["n"])))


async def publish(url: str, sent: list[int]) -> None:
    async with waypost.produce("ring", proxy=url, timeout_s=60) as producer:
        for number in range(1, MANY + 1):
            await producer.publish({"n": number})
            sent.append(number)
            await asyncio.sleep(0.03)


async def test_traffic_goes_around_a_neighbour_that_dies_and_around_a_link_that_is_removed(cluster: Cluster) -> None:
    names = [f"{site.lower()}1" for site in SITES]
    await until_seen(partial(has_tree, cluster, names, 3), "all sites are in one tree")
    proxies = cluster.proxies
    _, edges = tree_of(proxies["a1"])
    between = "b1" if ["B", "C"] in edges and ["A", "B"] in edges else "d1"
    got: list[int] = []
    sent: list[int] = []
    effective = asyncio.Event()
    reading = asyncio.create_task(read(proxies["a1"].url, got, effective))
    async with asyncio.timeout(60):
        await effective.wait()
    publishing = asyncio.create_task(publish(proxies["c1"].url, sent))
    await until(lambda: len(got) >= 20, "some have come")
    await asyncio.to_thread(proxies[between].kill)
    left = [name for name in names if name != between]
    began = time.monotonic()
    await until_seen(partial(has_tree, cluster, left, 2), "the tree leads around it")
    count = len(got)
    await until(lambda: len(got) > count, "others come")
    print(f"re-routed after {time.monotonic() - began:.1f} s; lease {LEASE_MS / 1_000:g} s + 2 s is the bar")
    await asyncio.wait_for(publishing, 60)
    await until(lambda: len(got) >= MANY, "all have come", 30)
    assert got == sent == list(range(1, MANY + 1))
    # An operator removes a link of the tree while the dead neighbour is away: then nothing leads to C any more.
    where = ("--data", str(cluster.root))
    _, edges = tree_of(proxies["a1"])
    one, other = next(edge for edge in edges if "C" in edge)
    removed = await asyncio.to_thread(run, "links", "rm", one, other, *where)
    assert removed.returncode == 0, removed.stderr
    await until_seen(lambda: [one, other] not in tree_of(proxies["a1"])[1], "the link is in no tree")
    await asyncio.to_thread(run, "links", "add", one, other, *where)
    await until_seen(lambda: [one, other] in tree_of(proxies["a1"])[1], "the link is in the tree again")
    again: list[int] = []
    await publish(proxies["c1"].url, again)
    await until(lambda: len(got) >= 2 * MANY, "all have come once more", 30)
    assert got == [*range(1, MANY + 1), *range(1, MANY + 1)]
    listed = await asyncio.to_thread(run, "links", "ls", *where, "--json")
    links = {tuple(row["sites"]): row for row in json.loads(listed.stdout)["links"]}
    dead = between[0].upper()
    assert len(links) == 4 and all(not row["in_tree"] for sites, row in links.items() if dead in sites)
    # A link that stands by is in no trouble: by now it is so for longer than one in the tree may stand still.
    for name in left:
        troubles = proxies[name].request("/v1/status")["troubles"]
        assert not [trouble for trouble in troubles if trouble.startswith("progress of")], troubles
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
