"""Who may publish at a proxy, and use its pages for operators: by tokens, where the proxy names them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from federation.embedded.registry import EmbeddedRegistry
from node.cli.commands.proxy_client import request
from proxy.clients.tokens import Named, issue, token_key
from tests.node.test_command_line import run
from waypost.errors import Forbidden

ALLOWED = {"no-discovery": "", "publishers": "office,desk", "operators": "olga"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("who")


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[Cluster]:
    with Cluster([ProxySpec("a1", "A", ALLOWED), ProxySpec("b1", "B", ALLOWED)], [("A", "B")], root) as cluster:
        yield cluster


def token(root: Path, principal: str) -> str:
    return run("token", principal, "--data", str(root)).stdout.strip()


async def secret_of(root: Path) -> bytes:
    registry = EmbeddedRegistry(root / "registry.db")
    await registry.start()
    secret = await registry.secret()
    await registry.close()
    return secret


async def test_only_named_principals_may_publish_wherever_their_session_is(cluster: Cluster, root: Path) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["b1"].url
    async with asyncio.timeout(60), waypost.attach("who/desk", proxy=here, token=token(root, "desk")) as desk:
        await desk.wait_effective(await desk.subscribe("require(report)"), ["A/0", "B/0"])
        for proxy in (there, here):
            await desk.move(proxy)
            await desk.wait_attached()
            await desk.publish({"report": 1})
            assert (await anext(desk))["report"] == 1
            for others in ("", token(root, "eve")):
                async with waypost.produce("other", proxy=proxy, token=others) as other:
                    with pytest.raises(Forbidden, match="may not publish here"):
                        await other.publish({"report": 2})
        async with waypost.produce("office", proxy=there, token=token(root, "office")) as office:
            await office.publish({"report": 3})
        assert (await anext(desk))["report"] == 3
        await desk.delete()


async def test_made_up_token_is_refused_at_the_hello(cluster: Cluster) -> None:
    with pytest.raises(Forbidden, match="no token of this federation"):
        async with waypost.produce("other", proxy=cluster.proxies["a1"].url, token="made up"):
            pass


async def test_a_producer_whose_token_ends_goes_on_with_the_next_one(cluster: Cluster, root: Path) -> None:
    key, issued = token_key(await secret_of(root)), []

    def short() -> str:
        issued.append(issue(key, Named("office", (int(time.time()) + 2) * 1000)))
        return issued[-1]

    async with (
        asyncio.timeout(60),
        waypost.attach("who/long", proxy=cluster.proxies["a1"].url) as reader,
        waypost.produce("office", proxy=cluster.proxies["a1"].url, token=short) as office,
    ):
        await reader.wait_effective(await reader.subscribe("require(long)"), ["A/0"])
        for number in range(8):
            await office.publish({"long": number})
            assert (await anext(reader))["long"] == number
            await asyncio.sleep(0.5)
        assert len(issued) > 1
        await reader.delete()


def test_the_pages_for_operators_ask_for_a_token(cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = cluster.proxies["a1"].url
    monkeypatch.delenv("WAYPOST_TOKEN", raising=False)
    for path in ("/v1/status", "/v1/sessions", "/v1/drains", "/metrics"):
        with pytest.raises(Forbidden, match="say who you are"):
            request(url, path)
    with pytest.raises(Forbidden):
        request(url, "/v1/marker", post=True)
    assert request(url, "/readyz")["ready"] and request(url, "/livez")
    monkeypatch.setenv("WAYPOST_TOKEN", token(root, "office"))
    with pytest.raises(Forbidden, match="no operator"):
        request(url, "/v1/status")
    monkeypatch.setenv("WAYPOST_TOKEN", token(root, "olga"))
    assert request(url, "/v1/status")["proxy"] == "a1"


def test_the_commands_say_the_token_of_the_environment(
    cluster: Cluster, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to: Callable[..., list[str]] = lambda *words: [*words, "--proxy", cluster.proxies["a1"].url]  # noqa: E731
    monkeypatch.delenv("WAYPOST_TOKEN", raising=False)
    for words in (to("pub", "x=1"), to("sessions", "ls")):
        refused = run(*words)
        assert refused.returncode != 0 and "FORBIDDEN" in refused.stderr
    monkeypatch.setenv("WAYPOST_TOKEN", token(root, "olga"))
    assert run(*to("sessions", "ls")).returncode == 0
    file = root / "office.token"
    file.write_text(token(root, "office"))
    assert run(*to("pub", "x=1", "--token-file", str(file))).returncode == 0
