"""Access on real proxies: who is let in, after a restart and a move too, and what guessing costs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from node.security.password_hasher import Passwords
from tests.node.test_command_line import run
from waypost.client.events import Retry
from waypost.errors import BadRecord, Forbidden, Refused
from waypost.identity import new_incarnation
from waypost.notification import Notification

SECRET, OTHER = "correct horse", "battery staple"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    root = tmp_path_factory.mktemp("access")
    with Cluster([ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags)], [], root) as cluster:
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> ProxyProcess:
    return cluster.proxies["a1"]


@pytest.fixture
def name() -> str:
    return f"access/{new_incarnation()}"


async def _lock(name: str, url: str) -> None:
    """A session with a password, and a subscription."""
    async with waypost.attach(name, proxy=url) as session:
        await session.wait_effective(await session.subscribe(f'to == "{name}"'), ["A/0"])
        await session.set_access(
            {"": waypost.grant("owner", password=SECRET), "guest": waypost.grant("user", password="")}
        )


async def _publish(name: str, url: str, *numbers: int) -> None:
    async with waypost.produce("maker", proxy=url) as producer:
        for number in numbers:
            await producer.publish(Notification({"to": name, "number": number}))


async def _refused(name: str, url: str, password: str = "", principal: str = "") -> Forbidden:
    with pytest.raises(Forbidden) as refused:
        async with waypost.attach(name, proxy=url, receiver="eve", password=password, principal=principal):
            pass
    return refused.value


def _forbidden(proxy: ProxyProcess, why: str) -> float:
    """Return how often the proxy counted that."""
    with urlopen(proxy.url.replace("ws://", "http://") + "/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counted = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return float(counted[f'waypost_forbidden_total{{why="{why}"}}'])


async def test_session_with_a_password_accepts_clients_with_the_password(proxy: ProxyProcess, name: str) -> None:
    await _lock(name, proxy.url)
    refused = await _refused(name, proxy.url)
    assert (refused.code, refused.field, refused.exit_status) == ("FORBIDDEN", "credential", 4)
    await _refused(name, proxy.url, OTHER)
    await _publish(name, proxy.url, 1)
    async with asyncio.timeout(20), waypost.attach(name, proxy=proxy.url, password=SECRET) as session:
        assert (await anext(session))["number"] == 1


async def test_rights_are_refused_by_name_and_the_session_goes_on(proxy: ProxyProcess, name: str) -> None:
    await _lock(name, proxy.url)
    async with waypost.attach(name, proxy=proxy.url, receiver="guest", principal="guest") as session:
        with pytest.raises(Forbidden, match="no right to subscribe"):
            await session.subscribe("number > 0")
        with pytest.raises(Forbidden, match="no right to administer"):
            await session.set_access()
        with pytest.raises(Forbidden, match="no right to administer"):
            await session.delete()
        await _publish(name, proxy.url, 1)
        async with asyncio.timeout(20):
            assert (await anext(session))["number"] == 1


async def test_receiver_that_loses_its_right_gets_forbidden_at_once(proxy: ProxyProcess, name: str) -> None:
    await _lock(name, proxy.url)
    async with (
        waypost.attach(name, proxy=proxy.url, password=SECRET) as owner,
        waypost.attach(name, proxy=proxy.url, receiver="guest", principal="guest") as guest,
    ):
        await guest.wait_attached()
        await owner.set_access(password=SECRET)
        with pytest.raises(Forbidden, match="was taken away"):
            async with asyncio.timeout(20):
                await anext(guest)
        await owner.subscribe("number > 0")


async def test_a_new_password_holds_after_the_owner_of_the_session_was_killed(cluster: Cluster, name: str) -> None:
    home, there = cluster.proxies["a1"], cluster.proxies["a2"]
    await _lock(name, home.url)
    async with waypost.attach(name, proxy=home.url, password=SECRET) as session:
        await session.set_access(password=OTHER)
        await _publish(name, home.url, 1)
        await session.abandon()
    home.kill()
    try:
        await _refused(name, there.url, SECRET)
        async with asyncio.timeout(20), waypost.attach(name, proxy=there.url, password=OTHER) as session:
            assert (await anext(session))["number"] == 1
    finally:
        home.start()
    await _refused(name, home.url, SECRET)


async def test_session_moves_to_the_proxy_of_an_accepted_client_only(cluster: Cluster, name: str) -> None:
    home, there = cluster.proxies["a1"], cluster.proxies["a2"]
    await _lock(name, home.url)

    await _refused(name, there.url, OTHER)
    assert (there.owner(name) or ("",))[0] == "a1"
    async with waypost.attach(name, proxy=there.url, password=SECRET) as session:
        async with asyncio.timeout(20):
            while (there.owner(name) or ("",))[0] != "a2":
                await asyncio.sleep(0.05)
        await session.subscribe("number > 0")


async def test_guessing_is_slowed_down_and_others_attach_meanwhile(proxy: ProxyProcess, name: str) -> None:
    await _lock(name, proxy.url)
    # After three each next one waits, twice as long each time: so long that there is no doubt.
    for _ in range(5):
        await _refused(name, proxy.url, OTHER)
    is_refused = asyncio.Event()

    def hear(event: object) -> None:
        if isinstance(event, Retry) and "too many passwords" in event.reason:
            is_refused.set()

    eve = waypost.attach(name, proxy=proxy.url, receiver="eve", password=OTHER, on_event=hear)
    entering = asyncio.create_task(eve.__aenter__())
    async with asyncio.timeout(20):
        await is_refused.wait()
    async with waypost.attach(name, proxy=proxy.url, receiver="guest", principal="guest"):
        pass
    with pytest.raises(Forbidden):
        await entering
    assert await asyncio.to_thread(_forbidden, proxy, "unproven") >= 3


async def test_a_change_that_locks_its_owner_out_is_refused(proxy: ProxyProcess, name: str) -> None:
    async with waypost.attach(name, proxy=proxy.url) as session:
        with pytest.raises(Refused, match="could never change it again"):
            await session.set_access({"alice": waypost.grant("owner", password=SECRET)})
    with pytest.raises(Refused, match="is no right"):
        waypost.grant("reader")


async def test_password_is_on_disk_as_a_salted_hash_only(cluster: Cluster, name: str) -> None:
    home = cluster.proxies["a1"]
    await _lock(name, home.url)
    written = b"".join(path.read_bytes() for path in cluster.root.rglob("*") if path.is_file())
    assert SECRET.encode() not in written
    assert b"$argon2id$" in written


def test_sub_takes_the_password_from_a_file_or_the_environment(
    proxy: ProxyProcess, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(_lock(name, proxy.url))
    asyncio.run(_publish(name, proxy.url, 1))
    file = tmp_path / "password"
    file.write_text(f"{OTHER}\n")
    sub = ("sub", f'to == "{name}"', "--session", name, "--proxy", proxy.url, "-C", "1", "-f", "{number}", "-W", "10")
    done = run(*sub, "--password-file", str(file))
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.startswith("error: FORBIDDEN: credential: session ")
    file.write_text(f"{SECRET}\n")
    done = run(*sub, "--password-file", str(file))
    assert (done.returncode, done.stdout) == (0, "1\n")
    asyncio.run(_publish(name, proxy.url, 2))
    monkeypatch.setenv("WAYPOST_PASSWORD", SECRET)
    done = run(*sub)
    assert (done.returncode, done.stdout) == (0, "2\n")


def test_a_password_file_that_has_none_is_refused(tmp_path: Path) -> None:
    done = run("sub", "n > 0", "--password-file", str(tmp_path / "none"))
    assert done.stderr.startswith("error: REFUSED: password-file: ")
    (tmp_path / "empty").write_text("\n")
    done = run("sub", "n > 0", "--password-file", str(tmp_path / "empty"))
    assert "nothing in its first line" in done.stderr


async def test_of_two_equal_passwords_the_hashes_differ_and_both_are_verified() -> None:
    passwords = Passwords()
    first, second = await passwords.hash([SECRET, SECRET])
    assert first != second
    assert await passwords.verify(SECRET, first)
    assert await passwords.verify(SECRET, second)
    assert not await passwords.verify(OTHER, first)
    assert not await passwords.verify(SECRET, "")
    with pytest.raises(BadRecord):
        await passwords.verify(SECRET, "no hash")
    passwords.close()
