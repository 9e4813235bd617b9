"""Tokens on real proxies: made from what the registry keeps, believed by every proxy, and over when they end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from federation.embedded.registry import EmbeddedRegistry
from proxy.clients.tokens import Named, issue, token_key
from tests.node.test_command_line import run
from waypost.client.events import Retry
from waypost.errors import Forbidden
from waypost.notification import Notification

SESSION = "tokens/shared"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="module")
def cluster(root: Path) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    with Cluster([ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags)], [], root) as cluster:
        yield cluster


def token(root: Path, principal: str, *more: str) -> str:
    done = run("token", principal, "--data", str(root), *more)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


async def short_token(root: Path) -> str:
    """Return one that lasts between one and two seconds: their ends are whole ones."""
    registry = EmbeddedRegistry(root / "registry.db")
    await registry.start()
    secret = await registry.secret()
    await registry.close()
    return issue(token_key(secret), Named("eve", int(time.time() + 2) * 1000))


async def lets_in_by_token(url: str, session: str) -> None:
    """A session that eve may read, if a token names her."""
    async with waypost.attach(session, proxy=url) as owner:
        await owner.wait_effective(await owner.subscribe(f'to == "{session}"'), ["A/0"])
        await owner.set_access(
            {"": waypost.grant("owner", password="secret"), "eve": waypost.grant("admin", by_token=True)}
        )


async def publish(url: str, session: str, *numbers: int) -> None:
    async with waypost.produce("maker", proxy=url) as producer:
        for number in numbers:
            await producer.publish(Notification({"to": session, "number": number}))


async def test_a_token_is_believed_wherever_the_session_goes(cluster: Cluster, root: Path) -> None:
    here, there = cluster.proxies["a1"], cluster.proxies["a2"]
    await lets_in_by_token(here.url, SESSION)
    eves, state = token(root, "eve"), waypost.ReceiverState()
    for number, proxy in enumerate((here, there, here)):
        async with asyncio.timeout(30):
            async with waypost.attach(SESSION, proxy=proxy.url, receiver="eve", state=state, token=eves) as session:
                await publish(proxy.url, SESSION, number)
                assert (await anext(session))["number"] == number
    with pytest.raises(Forbidden):
        async with waypost.attach(SESSION, proxy=there.url, receiver="eve", principal="eve"):
            pass
    with pytest.raises(Forbidden):
        async with waypost.attach(SESSION, proxy=there.url, receiver="bob", token=token(root, "bob")):
            pass


async def test_receiver_whose_token_expires_continues_with_another_token(cluster: Cluster, root: Path) -> None:
    name, url = "tokens/ending", cluster.proxies["a1"].url
    await lets_in_by_token(url, name)
    made: list[str] = [await short_token(root)]
    events: list[object] = []
    presented: list[str] = []

    def latest() -> str:
        presented.append(made[-1])
        return made[-1]

    async with asyncio.timeout(30):
        async with waypost.attach(name, proxy=url, receiver="eve", token=latest, on_event=events.append) as session:
            while len(set(presented)) < 3:
                await asyncio.sleep(0.5)
                made.append(await short_token(root))
            await session.wait_attached()
            await publish(url, name, 7)
            assert (await anext(session))["number"] == 7
    assert any(isinstance(retry, Retry) and "token has ended" in retry.reason for retry in events)


async def test_receiver_without_another_token_is_told_of_the_expiry(cluster: Cluster, root: Path) -> None:
    name, url = "tokens/ended", cluster.proxies["a1"].url
    await lets_in_by_token(url, name)
    eves = await short_token(root)
    with pytest.raises(Forbidden, match="has ended"):
        async with asyncio.timeout(30), waypost.attach(name, proxy=url, receiver="eve", token=eves) as session:
            await anext(session)


def test_the_console_reads_a_token_from_a_file(cluster: Cluster, root: Path, tmp_path: Path) -> None:
    name, url = "tokens/console", cluster.proxies["a1"].url
    asyncio.run(lets_in_by_token(url, name))
    asyncio.run(publish(url, name, 3))
    file = tmp_path / "token"
    file.write_text(token(root, "bob") + "\n")
    sub = ("sub", f'to == "{name}"', "--session", name, "--receiver", "eve", "-C", "1", "-W", "20", "--proxy", url)
    done = run(*sub, "-f", "{number}", "--token-file", str(file))
    assert done.returncode == 4 and done.stderr.startswith("error: FORBIDDEN: credential: ")
    file.write_text(token(root, "eve") + "\n")
    done = run(*sub, "-f", "{number}", "--token-file", str(file))
    assert (done.returncode, done.stdout) == (0, "3\n")


def test_a_token_is_said_with_its_end_and_only_where_a_registry_is(
    cluster: Cluster, root: Path, tmp_path: Path
) -> None:
    presented = json.loads(token(root, "alice", "--hours", "1", "--json"))
    assert presented["principal"] == "alice" and abs(presented["until_ms"] - (time.time() + 3600) * 1000) < 60_000
    done = run("token", "alice", "--data", str(tmp_path))
    assert done.returncode == 5 and "there is no registry" in done.stderr and not list(tmp_path.iterdir())
    done = run("token", "", "--data", str(root))
    assert done.returncode == 2 and done.stderr.startswith("error: REFUSED: principal: ")
