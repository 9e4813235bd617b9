"""`waypost sites`: which sites there are, and one that does not come back is forgotten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import waypost
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until_seen
from tests.node.test_command_line import run


def sites(root: Path) -> dict[str, dict[str, Any]]:
    rows = json.loads(run("sites", "ls", "--data", str(root), "--json").stdout)["sites"]
    return {row["site"]: row for row in rows}


async def test_a_site_that_does_not_come_back_is_forgotten(tmp_path: Path) -> None:
    flags, where = {"no-discovery": ""}, ("--data", str(tmp_path))
    specs = [ProxySpec("a", "A", flags), ProxySpec("b", "B", flags)]
    with Cluster(specs, [("A", "B")], tmp_path) as cluster:
        a, b = cluster.proxies["a"], cluster.proxies["b"]
        async with waypost.attach("left", proxy=b.url) as session:
            await session.subscribe("n > 0")
        assert {site: (row["proxies"], row["links"]) for site, row in sites(tmp_path).items()} == {
            "A": (["a"], ["B"]),
            "B": (["b"], ["A"]),
        }
        finished = run("sites", "forget", "B", *where)
        assert (finished.returncode, "proxies of site B run: b" in finished.stderr) == (5, True), finished.stderr
        assert run("sites", "forget", "", *where).returncode == 2
        assert run("sites", "forget", "X", *where).stderr.startswith("error: NOT_FOUND: site: the registry knows of no")
        b.kill()
        await until_seen(lambda: sites(tmp_path)["B"]["proxies"] == [], "the lease of b has ended")
        finished = run("sites", "forget", "B", *where)
        assert (finished.returncode, "1 sessions" in finished.stderr, "--anyway" in finished.stderr) == (2, True, True)
        async with waypost.attach("left", proxy=a.url):
            pass
        finished = run("sites", "forget", "B", *where)
        assert (finished.returncode, finished.stdout) == (
            0,
            "site B is forgotten; links removed: A - B. If it comes back: waypost links add\n",
        )
        assert list(sites(tmp_path)) == ["A"]
        await until_seen(lambda: a.request("/v1/links")["links"] == [], "the link is gone")
        assert run("sites", "ls", *where).stdout.startswith("A  proxies: a; links to: none; checkpoints: ")
