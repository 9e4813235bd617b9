"""Rendezvous on real proxies: who owns a resource and who asks for it are away, move, and their proxies die."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until_seen
from waypost.client import rendezvous
from waypost.client.rendezvous import Offering, RendezvousConsumer
from waypost.errors import LimitExceeded, Refused
from waypost.keys import public_key
from waypost.limits import MAX_RESOURCE_BYTES, RESOURCE_CHUNK_BYTES
from waypost.rendezvous import Request, Resource, answers_to, session_of_owner

TIMEOUT_S = 60.0
DATA = random.Random(5).randbytes(20 * RESOURCE_CHUNK_BYTES + 7)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "2000"}
    places = [
        ProxySpec("a1", "A", flags),
        ProxySpec("a2", "A", flags),
        ProxySpec("b1", "B", flags),
        ProxySpec("b2", "B", flags),
    ]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("rendezvous")) as cluster:
        yield cluster


def urls(cluster: Cluster, *names: str) -> list[str]:
    return [cluster.proxies[name].url for name in names]


def provide(request: Request) -> bytes:
    if request.path != "there":
        raise Refused(f"{request.path} is not there")
    return DATA


async def once_offered(name: str, url: str) -> None:
    """Let an owner offer once, so that requests wait for it from then on, and go."""
    async with waypost.offer(name, provide, proxy=url):
        pass


async def until_answered(offering: Offering, count: int) -> None:
    serving = asyncio.ensure_future(offering.serve())
    async with asyncio.timeout(TIMEOUT_S):
        while offering.answered < count:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.02)
    serving.cancel()


async def resource_of(meeting: RendezvousConsumer, identity: str) -> Resource:
    async with asyncio.timeout(TIMEOUT_S):
        async for resource in meeting:
            if resource.id == identity:
                return resource
    raise AssertionError("nothing came")


async def test_requester_that_left_does_not_delay_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "WANTED_S", TIMEOUT_S)
    a1, b1 = urls(cluster, "a1", "b1")
    await once_offered("hilda", b1)
    for number in range(4):
        async with waypost.connect_rendezvous(f"gone/{number}", proxy=a1) as meeting:
            await meeting.arrange("hilda", "there")
            await meeting.session.delete()
    async with waypost.connect_rendezvous("ivo", proxy=a1) as meeting:
        identity = await meeting.arrange("hilda", "there")
        await until_seen(lambda: cluster.proxies["b1"].stored(session_of_owner("hilda")) == 5, "all wait for her")
        async with waypost.offer("hilda", provide, proxy=b1) as offering:
            serving = asyncio.ensure_future(offering.serve())
            assert (await resource_of(meeting, identity)).data == DATA
            assert offering.answered == 0, "nobody is known to wait for the others"
            serving.cancel()


async def test_rendezvous_completes_though_owner_and_requester_are_never_attached_at_once(cluster: Cluster) -> None:
    a1, b1 = urls(cluster, "a1", "b1")
    await once_offered("bob", b1)
    async with waypost.connect_rendezvous("alice", proxy=a1) as meeting:
        identity = await meeting.arrange("bob", "there")
        assert meeting.known
        refused = await meeting.arrange("bob", "elsewhere")
    async with waypost.offer("bob", provide, proxy=b1) as offering:
        await until_answered(offering, 2)
    async with waypost.connect_rendezvous("alice", proxy=a1) as meeting:
        came = await resource_of(meeting, identity)
        assert (came.owner, came.path, came.data, came.error) == ("bob", "there", DATA, "")
        came = await resource_of(meeting, refused)
        assert (came.data, came.error) == (b"", "REFUSED: elsewhere is not there")


async def test_both_move_to_the_other_site_in_the_middle(cluster: Cluster) -> None:
    a1, a2, b1, b2 = urls(cluster, "a1", "a2", "b1", "b2")
    await once_offered("carol", b1)
    async with AsyncExitStack() as both:
        meeting = await both.enter_async_context(waypost.connect_rendezvous("dave", proxy=a1))
        offering = await both.enter_async_context(waypost.offer("carol", provide, proxy=b1))
        serving = asyncio.ensure_future(offering.serve())
        asked = [await meeting.arrange("carol", "there") for _ in range(4)]
        came: list[Resource] = []
        async with asyncio.timeout(TIMEOUT_S):
            async for resource in meeting:
                came.append(resource)
                if len(came) == 1:
                    await asyncio.gather(meeting.session.move(b2), offering.session.move(a2))
                if len(came) == len(asked):
                    break
        # Answers were published at two sites, and there is no order between their origins (P3).
        assert sorted(resource.id for resource in came) == sorted(asked)
        assert {resource.data for resource in came} == {DATA}
        serving.cancel()


async def test_the_proxies_of_both_die_while_one_waits_for_the_other(cluster: Cluster) -> None:
    a1, a2, b1, b2 = urls(cluster, "a1", "a2", "b1", "b2")
    await once_offered("erin", b1)
    async with waypost.connect_rendezvous("frank", proxy=[a1]) as meeting:
        identity = await meeting.arrange("erin", "there")
    for name in ("a1", "b1"):
        cluster.proxies[name].kill()
    async with waypost.offer("erin", provide, proxy=[b2], timeout_s=TIMEOUT_S) as offering:
        await until_answered(offering, 1)
    async with waypost.connect_rendezvous("frank", proxy=[a2], timeout_s=TIMEOUT_S) as meeting:
        assert (await resource_of(meeting, identity)).data == DATA
    for name in ("a1", "b1"):
        cluster.proxies[name].start()
        await asyncio.to_thread(cluster.proxies[name].ready)


async def test_requester_that_leaves_in_the_middle_of_a_resource_gets_all_of_it_again(cluster: Cluster) -> None:
    a2, b2 = urls(cluster, "a2", "b2")
    await once_offered("grace", b2)
    async with waypost.connect_rendezvous("heidi", proxy=a2) as meeting:
        identity = await meeting.arrange("grace", "there")
        async with waypost.offer("grace", provide, proxy=b2) as offering:
            serving = asyncio.ensure_future(offering.serve())
            parts = 0
            async with asyncio.timeout(TIMEOUT_S):
                while not parts:
                    parts += len(await meeting.session.next_batch(3, manual_ack=True))
            await meeting.session.abandon()
            await asyncio.sleep(1)
            serving.cancel()
    async with waypost.connect_rendezvous("heidi", proxy=a2) as meeting:
        assert (await resource_of(meeting, identity)).data == DATA


async def test_eavesdropper_gets_no_rendezvous_message_that_keys_protect(cluster: Cluster) -> None:
    a2, b2 = urls(cluster, "a2", "b2")
    async with (
        waypost.attach("eavesdropper", proxy=a2) as eavesdropper,
        waypost.offer("ivan", provide, key=b"ivan's", proxy=b2) as offering,
        waypost.connect_rendezvous("judy", key=b"judy's", proxy=a2) as meeting,
    ):
        await eavesdropper.subscribe("require(Rendezvous)", id="all")
        await eavesdropper.subscribe(answers_to("judy"), id="judy's")
        await eavesdropper.wait_effective("all", ["A/0", "B/0"])
        serving = asyncio.ensure_future(offering.serve())
        in_the_clear = await meeting.arrange("nobody", "in the clear")
        identity = await meeting.arrange("ivan", "there", key=public_key(b"ivan's"))
        assert (await resource_of(meeting, identity)).data == DATA
        await eavesdropper.publish({"Rendezvous": "end"})
        received_ids = []
        async with asyncio.timeout(TIMEOUT_S):
            async for received in eavesdropper:
                received_ids.append(received.get("Rendezvous-Id"))
                if received["Rendezvous"] == "end":
                    break
        assert received_ids == [in_the_clear, None]
        serving.cancel()
        await eavesdropper.delete()


def run(*arguments: str, url: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("waypost")), "rendezvous", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"WAYPOST_PROXY": url}, check=False
    )


def test_files_are_asked_for_and_come_by_hand(cluster: Cluster, tmp_path: Path) -> None:
    (url,) = urls(cluster, "a2")
    files, into = tmp_path / "files", tmp_path / "into"
    files.mkdir()
    into.mkdir()
    (files / "1.bin").write_bytes(DATA)
    (tmp_path / "secret").write_text("not below the folder")
    command = [str(Path(sys.executable).with_name("waypost")), "rendezvous", "offer", "kim", str(files)]
    with subprocess.Popen(
        command, env=os.environ | {"WAYPOST_PROXY": url}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as offering:
        assert offering.stderr is not None
        assert offering.stderr.readline() == f"offering {files} as kim\n"
        asked = [run("request", "kim", path, "--as", "leo", url=url) for path in ("1.bin", "../secret")]
        assert [process.returncode for process in asked] == [0, 0]
        assert [process.stderr for process in asked] == ["", ""]
        took = run("receive", str(into), "--as", "leo", "-C", "2", "--json", url=url)
        offering.kill()
    results = [json.loads(line) for line in took.stdout.splitlines()]
    assert [each["id"] for each in results] == [process.stdout.strip() for process in asked]
    assert results[1]["error"] == "NOT_FOUND: ../secret is not there"
    assert [path.name for path in into.iterdir()] == ["1.bin"]
    assert (into / "1.bin").read_bytes() == DATA
    acquire_failed = run("receive", str(into), "--as", "leo", "-W", "2", url=url)
    assert (acquire_failed.returncode, acquire_failed.stderr) == (
        27,
        "error: WAITED_IN_VAIN: nothing more came within 2 s\n",
    )
    unknown = run("request", "kit", "x", "--as", "leo", url=url)
    assert (unknown.returncode, unknown.stderr) == (
        5,
        "error: NOT_FOUND: owner: nobody is known to offer as kit: if kit has never offered, this request is lost\n",
    )
    assert unknown.stdout.strip()


async def test_a_resource_of_the_largest_size_comes(cluster: Cluster) -> None:
    a2, b2 = urls(cluster, "a2", "b2")
    largest = random.Random(1).randbytes(MAX_RESOURCE_BYTES)
    async with (
        waypost.offer("max", lambda request: largest, proxy=b2) as offering,
        waypost.connect_rendezvous("min", proxy=a2) as meeting,
    ):
        serving = asyncio.ensure_future(offering.serve())
        identity = await meeting.arrange("max", "largest")
        assert (await resource_of(meeting, identity)).data == largest
        serving.cancel()


async def test_requester_can_send_a_request_while_its_session_is_in_use(cluster: Cluster) -> None:
    (url,) = urls(cluster, "a2")
    await once_offered("nina", url)
    first, _ = await rendezvous.request("omar", "nina", "there", proxy=url)
    async with waypost.connect_rendezvous("omar", proxy=url) as meeting:
        second, known = await rendezvous.request("omar", "nina", "there", proxy=url)
        assert known
        async with waypost.offer("nina", provide, proxy=url) as offering:
            serving = asyncio.ensure_future(offering.serve())
            for identity in (first, second):
                assert (await resource_of(meeting, identity)).data == DATA
            serving.cancel()
        shown = cluster.proxies["a2"].shown("rendezvous/requester/omar")
        assert shown is not None and {*shown["registrations"]} == {"main"}


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_invalid_rendezvous_name_is_refused_at_once(name: str) -> None:
    for make in (lambda: waypost.connect_rendezvous(name), lambda: waypost.offer(name, provide)):
        with pytest.raises(LimitExceeded, match="a name has 1 to"):
            make()
    for request in (
        Request(id=name, owner="o", requester="a", path="p"),
        Request(id="i", owner=name, requester="a", path="p"),
        Request(id="i", owner="o", requester=name, path="p"),
    ):
        with pytest.raises(LimitExceeded, match="a name has 1 to"):
            request.notification()


async def test_a_request_that_was_being_answered_when_its_owner_left_comes_again(cluster: Cluster) -> None:
    (url,) = urls(cluster, "a2")
    begun = asyncio.Event()

    async def never(request: Request) -> bytes:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    await once_offered("paul", url)
    async with waypost.connect_rendezvous("quinn", proxy=url) as meeting:
        identity = await meeting.arrange("paul", "there")
        async with waypost.offer("paul", never, proxy=url) as offering:
            serving = asyncio.ensure_future(offering.serve())
            async with asyncio.timeout(TIMEOUT_S):
                await begun.wait()
            serving.cancel()
        async with waypost.offer("paul", provide, proxy=url) as offering:
            await until_answered(offering, 1)
        assert (await resource_of(meeting, identity)).data == DATA
