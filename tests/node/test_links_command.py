"""`waypost links`: what operators see and change of the links between sites, and how mistakes are answered."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from tests.helpers.polling import until_seen
from tests.node.test_command_line import run


def links(root: Path) -> dict[tuple[str, ...], dict[str, object]]:
    rows = json.loads(run("links", "ls", "--data", str(root), "--json").stdout)["links"]
    return {tuple(row["sites"]): row for row in rows}


async def test_links_are_seeded_by_the_configuration_and_changed_while_proxies_run(tmp_path: Path) -> None:
    flags = {"no-discovery": ""}
    where = ("--data", str(tmp_path))
    with Cluster([ProxySpec("a", "A", flags), ProxySpec("b", "B", flags)], [("A", "B")], tmp_path) as cluster:
        proxies = cluster.proxies
        await until_seen(lambda: links(tmp_path)["A", "B"]["in_tree"] is True, "the link is in the tree")
        assert links(tmp_path)["A", "B"]["up"] == ["A->B", "B->A"]
        assert run("links", "ls", *where).stdout == "A - B  in the tree; up: A->B, B->A\n"
        assert run("links", "rm", "B", "A", *where).stdout == "the link between B and A is removed\n"
        await until_seen(lambda: proxies["a"].request("/v1/status")["tree"]["links"] == [], "it is in no tree")
        again = run("links", "rm", "A", "B", *where)
        assert (again.returncode, again.stderr.splitlines()[0]) == (
            5,
            "error: NOT_FOUND: site: there is no link between A and B; there are none",
        )
        # The configuration of a proxy that starts does not bring it back.
        proxies["a"].kill()
        proxies["a"].start()
        assert links(tmp_path) == {}
        assert run("links", "add", "A", "B", *where).returncode == 0
        await until_seen(
            lambda: all(proxy.request("/v1/status")["tree"]["links"] == [["A", "B"]] for proxy in proxies.values()),
            "it is in the tree again",
        )


@pytest.mark.parametrize("name", ["", "a b", "x/y", "a,b"])
def test_link_of_a_site_that_can_have_no_such_name_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "waypost").mkdir()
    finished = run("links", "add", name, "B", "--data", str(tmp_path))
    assert (finished.returncode, finished.stderr.split(": ")[1:3]) == (2, ["BAD_ARGUMENT", "site"])


async def test_both_ends_of_a_link_are_shown(tmp_path: Path) -> None:
    flags = {"no-discovery": ""}
    with Cluster([ProxySpec("a", "A", flags), ProxySpec("b", "B", flags)], [("A", "B")], tmp_path) as cluster:
        a, b = cluster.proxies["a"], cluster.proxies["b"]
        async with waypost.attach("shown", proxy=a.url) as session:
            await session.wait_effective(await session.subscribe("n > 0"), ["B/0"])
            await until_seen(lambda: ends(a)["from"]["answered"] is True, "the filter is in force")
            near, far = ends(a), ends(b)
            assert (near["neighbour"], near["in_tree"], far["neighbour"]) == ("B", True, "A")
            assert (near["from"]["leads"], near["from"]["phase"], near["from"]["peer"]) == (True, "pulling", "b")
            assert (near["from"]["leader"], near["puller"], far["puller"]) == ("a", "b", "a")
            assert (near["from"]["filters"], far["from"]["filters"]) == (1, 0)
            assert list(near["from"]["origins"]) == ["B/0"]
            assert (far["to"]["peer"], far["to"]["filters"], far["to"]["behind"]) == ("a", 1, 0)
            await session.wait_effective(await session.subscribe("n > 5"), ["B/0"])
            assert (ends(a)["from"]["filters"], ends(a)["from"]["covered"], ends(b)["to"]["filters"]) == (1, 1, 1)
            assert 'waypost_link_filters{neighbour="B",which="covered"} 1.0' in metrics(a)


def metrics(proxy: ProxyProcess) -> str:
    with urllib.request.urlopen(proxy.url.replace("ws://", "http://") + "/metrics") as answer:
        return str(answer.read().decode())


def ends(proxy: ProxyProcess) -> Any:
    (link,) = proxy.request("/v1/links")["links"]
    return link


@pytest.mark.parametrize(
    ("words", "status", "error"),
    [
        (("add", "A", "A"), 2, "error: BAD_ARGUMENT: site: a link has two ends, and A is one site"),
        (("rm", "A", "B"), 5, "error: NOT_FOUND: site: there is no link between A and B; there are none"),
    ],
)
def test_wrong_link_is_refused_in_one_line(words: tuple[str, ...], status: int, error: str, tmp_path: Path) -> None:
    with Cluster([ProxySpec("a", "A", {"no-discovery": ""})], [], tmp_path):
        done = run("links", *words, "--data", str(tmp_path))
    assert (done.returncode, done.stderr.splitlines()[0]) == (status, error)


def test_folder_without_a_registry_is_refused(tmp_path: Path) -> None:
    done = run("links", "ls", "--data", str(tmp_path))
    assert done.returncode != 0 and "there is no registry" in done.stderr
