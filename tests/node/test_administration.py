"""What operators change of a session, by the command line and HTTP, on real proxies: it is there after a crash and a
move."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.cli.commands import proxy_client
from tests.helpers.polling import until_seen
from waypost.errors import Forbidden, NotFound, NotServed, Refused, Unreachable
from waypost.limits import MAX_BODY_BYTES
from waypost.messages import SubscriptionChanged

WAYPOST = str(Path(sys.executable).with_name("waypost"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "1000"}
    places = [ProxySpec("a1", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("administering")) as cluster:
        yield cluster


def run(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    words = [WAYPOST, "sessions", *arguments, "--proxy", url, "--json"]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


async def ran(url: str, *arguments: str) -> dict[str, Any]:
    """Return the session as the command shows it."""
    done = await asyncio.to_thread(run, url, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown.get("session") if isinstance(shown.get("session"), dict) else shown  # type: ignore[return-value]


async def refused(url: str, *arguments: str) -> dict[str, Any]:
    done = await asyncio.to_thread(run, url, *arguments)
    assert done.returncode in (2, 5), done.stdout + done.stderr
    error: dict[str, Any] = json.loads(done.stdout)["error"]
    return error


async def restarted(cluster: Cluster, proxy: str, session: str) -> None:
    await asyncio.to_thread(cluster.proxies[proxy].kill)
    await asyncio.to_thread(cluster.proxies[proxy].start)
    await until_seen(lambda: cluster.proxies[proxy].owner(session) is not None, f"{session} is served again")


async def moved(cluster: Cluster, session: str, proxy: str, **options: Any) -> None:
    async with waypost.attach(session, proxy=cluster.proxies[proxy].url, **options) as receiver:
        await receiver.wait_attached()

    def arrived() -> bool:
        return (cluster.proxies[proxy].owner(session) or ("",))[0] == proxy

    await until_seen(arrived, f"{session} is at {proxy}")


TERMS = {"queue": {"max_count": 7, "max_bytes": None, "discard": "lifo", "deadlines": True}, "expiry_s": 3600}


async def test_session_policy_survives_a_crash_and_a_move_and_omitted_fields_stay(cluster: Cluster) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["b1"].url
    async with waypost.attach("admin/terms", proxy=here) as session:
        await session.subscribe("n > 0", id="x")
    # Asked of a proxy that does not own it.
    words = ["set", "admin/terms", "--expiry", "3600", "--max-count", "7", "--discard", "lifo", "--deadlines"]
    assert {name: (await ran(there, *words))[name] for name in TERMS} == TERMS
    shown = await ran(here, "set", "admin/terms", "--events", "best-effort")
    assert shown["reliability"] == "best-effort events, persistent connection"
    await restarted(cluster, "a1", "admin/terms")
    assert {name: (await ran(here, "show", "admin/terms"))[name] for name in TERMS} == TERMS
    await moved(cluster, "admin/terms", "b1")
    shown = await ran(here, "set", "admin/terms", "--max-count", "0", "--expiry", "0", "--no-deadlines")
    unbounded = {"max_count": None, "max_bytes": None, "discard": "lifo", "deadlines": False}
    assert (shown["owner"], shown["queue"], shown["expiry_s"]) == ("b1", unbounded, None)
    assert shown["registrations"]["main"]["reliability"] == "best-effort events, persistent connection"


async def test_access_change_survives_a_crash_and_a_move(cluster: Cluster, tmp_path: Path) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["b1"].url
    passwords = tmp_path / "passwords"
    passwords.write_text("alice:open sesame\n")
    async with waypost.attach("admin/access", proxy=here) as anybody:
        await anybody.wait_attached()
        words = ["access", "admin/access", "alice=owner", "bob=user", "--passwords-file", str(passwords)]
        shown = await ran(there, *words)
        assert shown["access"] == {
            "alice": {"rights": ["read", "subscribe", "administer"], "proof": "a password"},
            "bob": {"rights": ["read"], "proof": "a token"},
        }
        with pytest.raises(Forbidden):
            await asyncio.wait_for(anext(anybody), 20)
    # Who is named again without a password keeps the one that it has.
    shown = await ran(here, "access", "admin/access", "alice=owner", "dave=admin", "(none)=user")
    proofs = {principal: grant["proof"] for principal, grant in shown["access"].items()}
    assert proofs == {"alice": "a password", "dave": "a token", "": "its name"}
    await ran(here, *words)
    await restarted(cluster, "a1", "admin/access")
    alice = {"principal": "alice", "password": "open sesame"}
    await moved(cluster, "admin/access", "b1", **alice)
    with pytest.raises(Forbidden):
        async with waypost.attach("admin/access", proxy=here) as nobody:
            await nobody.wait_attached()
    assert (await ran(here, "access", "admin/access", "--open"))["access"] == {}
    async with waypost.attach("admin/access", proxy=there) as anybody:
        await anybody.wait_attached()


async def test_a_subscription_is_kept_otherwise_and_ended_and_its_receivers_are_told(cluster: Cluster) -> None:
    here = cluster.proxies["a1"].url
    events: list[SubscriptionChanged] = []

    def hear(event: object) -> None:
        if isinstance(event, SubscriptionChanged):
            events.append(event)

    async with (
        waypost.produce("p", proxy=here) as producer,
        waypost.attach("admin/subscription", proxy=here, on_event=hear) as session,
    ):
        await session.subscribe("n > 0", id="x")
        await session.wait_effective("x", ["A/0"])
        await ran(here, "retain", "admin/subscription", "x", "--ttl", "60")
        shown = await ran(here, "retain", "admin/subscription", "x", "--max-count", "5")
        kept = shown["subscriptions"]["x"]
        assert (kept["ttl_s"], kept["max_count"]) == (60, 5)
        await producer.publish({"n": 1})
        assert (await ran(here, "unsubscribe", "admin/subscription", "x"))["subscriptions"] == {}
        await producer.publish({"n": 2})
        # What it matched before is still given.
        assert (await asyncio.wait_for(anext(session), 20))["n"] == 1
        await until_seen(lambda: len(events) == 3, "it was told of all")
        assert events[0].settings is not None and events[0].settings.ttl_s == 60
        assert events[2].settings is None


async def test_unregistering_an_absent_receiver_removes_its_backlog(cluster: Cluster) -> None:
    here = cluster.proxies["a1"].url
    async with waypost.produce("p", proxy=here) as producer, waypost.attach("admin/places", proxy=here) as main:
        await main.subscribe("n > 0", id="x")
        await main.wait_effective("x", ["A/0"])
        async with waypost.attach("admin/places", receiver="phone", proxy=here) as phone:
            await phone.wait_attached()
        await producer.publish({"n": 1})
        assert (await asyncio.wait_for(anext(main), 20))["n"] == 1
        main.acknowledge()
        assert await main.wait_attested()
        assert (await refused(here, "forget", "admin/places", "main"))["field"] == "receiver"
        shown = await ran(here, "forget", "admin/places", "phone")
        assert [*shown["registrations"]] == ["main"] and shown["stored"] == 0
        assert (await refused(here, "forget", "admin/places", "phone"))["code"] == "NOT_FOUND"


async def test_refusal_of_a_proxy_without_the_session_names_the_owner(cluster: Cluster) -> None:
    async with waypost.attach("admin/elsewhere", proxy=cluster.proxies["a1"].url) as session:
        await session.wait_attached()
    asked = {"session": "admin/elsewhere", "expiry_s": 60}
    there = cluster.proxies["b1"].url
    await until_seen(lambda: cluster.proxies["b1"].owner("admin/elsewhere") is not None, "b1 knows of it")
    with pytest.raises(NotServed, match=f"proxy a1, at {cluster.proxies['a1'].url}"):
        await asyncio.to_thread(proxy_client.request, there, "/v1/sessions/policy", asked)
    with pytest.raises(NotFound):
        await asyncio.to_thread(proxy_client.request, there, "/v1/sessions/policy", {**asked, "session": "nosuch"})


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"reliability": {"events": "persistent", "connection": "best-effort"}}, "connection"),
        ({"queue": {"discard": "random"}}, "queue.discard"),
        ({"queue": {"max_count": 0}}, "queue.max_count"),
        ({"expiry_s": 0}, "expiry_s"),
        ({"last_s": 1}, "last_s"),
        ({"expiry_s": True}, "expiry_s"),
        ({"expiry_s": "10"}, "expiry_s"),
        ({"queue": {"deadlines": "yes"}}, "queue.deadlines"),
    ],
)
async def test_invalid_session_policy_is_refused_without_any_change(
    cluster: Cluster, asked: dict[str, Any], field: str
) -> None:
    here = cluster.proxies["a1"].url
    async with waypost.attach("admin/wrong", proxy=here) as session:
        await session.wait_attached()
    with pytest.raises(Refused) as caught:
        await asyncio.to_thread(proxy_client.request, here, "/v1/sessions/policy", {"session": "admin/wrong", **asked})
    assert caught.value.field == field
    shown = await ran(here, "show", "admin/wrong")
    assert (shown["queue"], shown["expiry_s"], shown["reliability"]) == (
        None,
        None,
        "persistent events, persistent connection",
    )


@pytest.mark.parametrize(("page", "more"), [("policy", {}), ("retention", {"subscription": "x"})])
async def test_change_that_changes_nothing_is_refused(cluster: Cluster, page: str, more: dict[str, str]) -> None:
    here = cluster.proxies["a1"].url
    async with waypost.attach("admin/nothing", proxy=here) as session:
        await session.subscribe("n > 0", id="x")
    with pytest.raises(Refused) as caught:
        await asyncio.to_thread(
            proxy_client.request, here, f"/v1/sessions/{page}", {"session": "admin/nothing", **more}, post=True
        )
    assert caught.value.field in ("expiry_s", "ttl_s")
    assert "nothing is to be changed" in caught.value.message


async def test_attached_receivers_and_registered_ones_are_counted_apart(cluster: Cluster) -> None:
    proxy, name = cluster.proxies["a1"], "admin/counted"

    def counts() -> tuple[int, int] | None:
        row = proxy.shown(name)
        return (row["attached"], row["registered"]) if row else None

    async with waypost.attach(name, proxy=proxy.url, receiver="away") as away:
        await away.wait_attached()
    async with waypost.attach(name, proxy=proxy.url, receiver="here") as here:
        await here.wait_attached()
        await until_seen(lambda: counts() == (1, 2), "one of two is attached")
        words = [WAYPOST, "sessions", "ls", "--proxy", proxy.url]

        def listed() -> bool:
            done = subprocess.run(words, capture_output=True, text=True, check=True)
            headings, *rows = done.stdout.splitlines()
            assert headings.split()[-2:] == ["attached", "registered"]
            return [row.split()[-2:] for row in rows if name in row] == [["1", "2"]]

        # A connection that breaks on a busy machine is there again a moment later.
        await until_seen(listed, "the command shows one of two")
    await until_seen(lambda: counts() == (0, 2), "nobody is attached")


async def test_request_body_with_a_repeated_field_or_too_many_bytes_is_refused(cluster: Cluster) -> None:
    address = f"http://127.0.0.1:{cluster.proxies['a1'].port}/v1/sessions/delete"
    for body in (b'{"session": "one", "session": "another"}', b" " * (MAX_BODY_BYTES + 1), b"[" * 100_000):
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"}, method="POST")
        with pytest.raises(urllib.error.HTTPError) as caught:
            await asyncio.to_thread(urllib.request.urlopen, request)
        with caught.value as refused_:
            assert refused_.code == 400


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/marker", b'{"x": 1}', "body"),
        ("/v1/sessions?foo=1", None, "foo"),
        ("/v1/sessions?session=a&session=b", None, "session"),
    ],
)
async def test_what_a_page_does_not_ask_for_is_refused(
    cluster: Cluster, path: str, body: bytes | None, field: str
) -> None:
    address = f"http://127.0.0.1:{cluster.proxies['a1'].port}{path}"
    request = urllib.request.Request(address, body, {"Content-Type": "application/json"} if body else {})
    with pytest.raises(urllib.error.HTTPError) as caught:
        await asyncio.to_thread(urllib.request.urlopen, request)
    with caught.value as refused_:
        assert (refused_.code, json.load(refused_)["error"]["field"]) == (400, field)


async def test_what_could_steer_a_terminal_does_not_reach_it_in_a_session_name(cluster: Cluster) -> None:
    here, name = cluster.proxies["a1"].url, "admin/\u202e[red]row"
    async with waypost.attach(name, proxy=here) as session:
        await session.wait_attached()
        words = [WAYPOST, "sessions", "ls", "--proxy", here]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=True)
        (line,) = [line for line in done.stdout.splitlines() if "row" in line]
        assert "\u202e" not in done.stdout and line.strip().startswith("admin/") and "[red]" in line
        await session.delete()


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ([], "grants"),
        (["alice"], "grants"),
        (["alice=king"], "grants"),
        (["=owner"], "grants"),
        (["alice=owner", "--open"], "grants"),
        (["alice=owner", "alice=user"], "grants"),
        (["alice=owner", "--passwords-file", "/nosuch"], "passwords-file"),
    ],
)
async def test_incomplete_or_contradictory_access_grants_are_refused_by_field(
    cluster: Cluster, words: list[str], field: str
) -> None:
    error = await refused(cluster.proxies["a1"].url, "access", "admin/wrong", *words)
    assert error["field"] == field


async def test_drain_that_goes_on_keeps_its_rate_and_one_that_is_changed_in_part_the_rest(cluster: Cluster) -> None:
    a1, here = cluster.proxies["a1"], cluster.proxies["a1"].url

    async def drain(*words: str) -> Any:
        command = [WAYPOST, "drain", "a1", "--proxy", here, "--no-wait", "--json", *words]
        finished = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=60, check=True
        )
        return json.loads(finished.stdout)["draining"]

    try:
        assert await drain("--rate", "0.5") == {"rate": 0.5, "paused": False}
        assert await drain("--pause") == {"rate": 0.5, "paused": True}
        assert await drain() == {"rate": 0.5, "paused": False}
        assert a1.request("/v1/drains", {"proxy": "a1", "paused": True})["draining"] == {"rate": 0.5, "paused": True}
        assert a1.request("/v1/drains", {"proxy": "a1", "rate": 3})["draining"] == {"rate": 3, "paused": True}
        with pytest.raises(Unreachable, match="400"):
            a1.request("/v1/drains", {"proxy": "a1"})
    finally:
        assert await drain("--stop") is None
