"""Between sites that do not reach each other, a session and what it missed go over the site that both reach."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from chaos.servers.namespaces import Host, Lan, can_make_hosts
from chaos.servers.process import Process
from federation.ports import ProxyRow
from federation.site.dispatching_tree import Tree
from node.peers.routes import Routes
from tests.helpers.polling import until_seen
from waypost.identity import Incarnation, ProxyId, SiteId, edge

WAYPOST = str(Path(sys.executable).with_name("waypost"))
READ = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"
SESSION = "travellers/alice"
NOTHING_CAME = 27


# ---------------------------------------------------------------- the choice


def row(proxy: str, site: str) -> ProxyRow:
    return ProxyRow(proxy=ProxyId(proxy), incarnation=Incarnation(f"{proxy}#1"), site=SiteId(site), url=f"ws://{proxy}")


A1, B1, B2, C1, D1 = ROWS = [row("a1", "A"), row("b1", "B"), row("b2", "B"), row("c1", "C"), row("d1", "D")]
LINE = Tree(1, tuple(edge(SiteId(one), SiteId(other)) for one, other in ("AB", "BC", "CD")))


@pytest.mark.parametrize(
    ("target", "unreached", "tree", "passed", "way"),
    [
        pytest.param(D1, {"d1"}, LINE, 0, B1, id="the first proxy of the next site"),
        pytest.param(D1, {"d1", "b1"}, LINE, 0, B2, id="one that is not reached either is left out"),
        pytest.param(D1, {"d1", "b1", "b2"}, LINE, 0, None, id="none of the next site is reached"),
        pytest.param(B1, {"b1"}, LINE, 0, B2, id="another proxy of the same site"),
        pytest.param(D1, {"d1"}, Tree(2, LINE.edges[:2]), 0, None, id="the tree does not lead there"),
        pytest.param(D1, {"d1"}, LINE, 5, None, id="it has gone in a circle"),
        pytest.param(A1, {"a1"}, LINE, 0, None, id="a proxy of our own site is reached directly or not at all"),
    ],
)
def test_message_goes_to_the_next_site_on_the_way(
    target: ProxyRow, unreached: set[ProxyId], tree: Tree, passed: int, way: ProxyRow | None
) -> None:
    assert Routes(SiteId("A")).next_proxy(target, ROWS, unreached, tree, passed) == way


# ---------------------------------------------------------------- three hosts


class Federation:
    """Sites A and E reach only G between them; each is a host with a proxy, and they share the registry's file."""

    def __init__(self, lan: Lan, root: Path, stack: ExitStack) -> None:
        self.lan, self._root = lan, root
        self.edge, self.gateway, self.far = lan.hosts
        lan.part(self.edge, self.far)
        self.proxies = {
            name: stack.enter_context(self._serving(host, name, neighbours))
            for host, name, neighbours in (
                (self.gateway, "g", ("A", "E")),
                (self.edge, "a", ("G",)),
                (self.far, "e", ("G",)),
            )
        }

    def _serving(self, host: Host, name: str, neighbours: tuple[str, ...]) -> Process:
        words = [WAYPOST, "serve", f"--name={name}", f"--site={name.upper()}", "--insecure", f"--data={self._root}"]
        words += [f"--host={host.ipv4}", "--port=7301", "--no-discovery", f"--neighbours={','.join(neighbours)}"]
        return Process(name, host.command(*words), log=self._root / f"{name}.log")

    def run(self, host: Host, *words: str) -> subprocess.CompletedProcess[str]:
        command = host.command(WAYPOST, *words, "--proxy", f"ws://{host.ipv4}:7301")
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=90)

    def read(self, host: Host, path: str) -> str:
        command = host.command(sys.executable, "-c", READ, f"http://{host.ipv4}:7301{path}")
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout

    def tree(self, host: Host) -> list[list[str]]:
        tree = self.status(host)["tree"]
        return [] if tree is None else list(tree["links"])

    def status(self, host: Host) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read(host, "/v1/status"))
        return answer

    def routed(self, host: Host) -> int:
        lines = self.read(host, "/metrics").splitlines()
        return sum(
            int(float(line.split()[-1])) for line in lines if line.startswith("waypost_peer_messages_routed_total")
        )


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    with Lan(3) as lan, ExitStack() as stack:
        federation = Federation(lan, tmp_path, stack)
        for process in federation.proxies.values():
            process.wait_until(lambda process=process: process.has_logged("ready"), timeout_s=60)  # type: ignore[misc]
        yield federation


@pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root")
async def test_session_moves_between_sites_that_do_not_reach_each_other(federation: Federation) -> None:
    hosts = federation.lan.hosts
    await until_seen(lambda: all(len(federation.tree(host)) == 2 for host in hosts), "the tree is complete")
    sub = ("sub", "require(n)", "--session", SESSION, "-f", "{n}")
    begun = federation.run(federation.edge, *sub, "-W", "3")
    assert begun.returncode == NOTHING_CAME, begun.stderr
    for host, number in ((federation.edge, 1), (federation.far, 2), (federation.gateway, 3)):
        assert federation.run(host, "pub", f"n={number}").returncode == 0
    taken = federation.run(federation.far, *sub, "-W", "60", "-C", "3")
    assert (taken.returncode, sorted(taken.stdout.split())) == (0, ["1", "2", "3"]), taken.stderr
    assert federation.run(federation.edge, "pub", "n=4").returncode == 0
    assert federation.run(federation.far, *sub, "-W", "60", "-C", "1").stdout.split() == ["4"]
    shown = json.loads(federation.run(federation.gateway, "sessions", "ls", "--json").stdout)["sessions"]
    assert [(one["session"], one["owner"]) for one in shown] == [(SESSION, "e")]
    assert all(federation.routed(host) > 0 for host in hosts)
    assert not [trouble for host in hosts for trouble in federation.status(host)["troubles"] if "proxy" in trouble]
    federation.lan.join(federation.edge, federation.far)

    def go_straight() -> bool:
        before = federation.routed(federation.gateway)
        for host in (federation.edge, federation.far):
            assert federation.run(host, *sub, "-W", "2").returncode == NOTHING_CAME
        return federation.routed(federation.gateway) == before

    await until_seen(go_straight, "nothing goes round any more")
