"""Outboxes in front of real proxies: what is posted while no proxy can be reached is published once one can."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import waypost
import waypost.client.outbox as outboxes
from chaos.cluster import Cluster, ProxySpec
from tests.helpers.polling import until
from waypost.client.outbox import PostRefused
from waypost.client.outbox_file import OutboxFile
from waypost.errors import BadArgument, LimitExceeded, Refused, StoreFailed, Unreachable
from waypost.keys import Keys

TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": "", "lease-ttl-ms": "2000"}
    places = [
        ProxySpec("a1", "A", flags),
        ProxySpec("closed", "C", flags | {"publishers": "olga"}),
    ]
    with Cluster(places, [], tmp_path_factory.mktemp("outbox")) as cluster:
        yield cluster


async def numbers(receiver: waypost.Receiver, count: int) -> list[int]:
    async with asyncio.timeout(TIMEOUT_S):
        return [int(str((await anext(receiver))["n"])) for _ in range(count)]


async def test_posts_wait_on_the_disk_and_are_published_in_order_under_their_first_ids(
    cluster: Cluster, tmp_path: Path
) -> None:
    path, proxy = tmp_path / "box", cluster.proxies["a1"]
    async with waypost.open_outbox(path, "p", proxy="ws://127.0.0.1:9") as outbox:
        await asyncio.gather(*(outbox.post({"n": n}) for n in range(3)))
        assert outbox.waiting == 3
        with pytest.raises(Unreachable, match=r"3 notifications still wait in .*box: .*127\.0\.0\.1:9"):
            await outbox.wait_sent(0.5)
    async with waypost.attach("s", proxy=proxy.url) as receiver:
        await receiver.wait_effective(await receiver.subscribe("require(n)"), ["A/0"])
        async with waypost.open_outbox(path, "p", proxy=proxy.url) as outbox:
            assert await outbox.post({"n": 3}) == 3
            await outbox.wait_sent(TIMEOUT_S)
            assert outbox.waiting == 0
            secret = outbox._file.secret  # type: ignore[union-attr]
        assert await numbers(receiver, 4) == [0, 1, 2, 3]
        # A process that ends before it has noted the answer: the file is as it was before.
        async with waypost.open_outbox(path, "p", proxy=proxy.url) as outbox:
            assert outbox._file is not None and outbox._file.secret == secret
            outbox._file.remove = lambda sequences: None  # type: ignore[method-assign]
            await outbox.post({"n": 4})
            assert await numbers(receiver, 1) == [4]
        async with waypost.open_outbox(path, "p", proxy=proxy.url) as outbox:
            assert outbox.waiting == 1
            await outbox.post({"n": 5}, keys=Keys.producer(b"raw"))
            await outbox.wait_sent(TIMEOUT_S)
        # The fourth one comes twice to the log, and once to the receiver.
        assert await numbers(receiver, 1) == [5]
        assert receiver.duplicates_dropped == 1


async def test_refused_notifications_are_kept_apart_and_the_others_wait_for_nobody(
    cluster: Cluster, tmp_path: Path
) -> None:
    events: list[object] = []
    async with waypost.open_outbox(
        tmp_path / "box", "p", proxy=cluster.proxies["closed"].url, on_event=events.append
    ) as outbox:
        for n in range(2):
            await outbox.post({"n": n})
        await outbox.wait_sent(TIMEOUT_S)
        await until(lambda: sum(isinstance(event, PostRefused) for event in events) == 2, "both are told")
        kept = await outbox.refused()
        assert [(post.sequence, post.code) for post in kept] == [(0, "FORBIDDEN"), (1, "FORBIDDEN")]
        assert waypost.Notification.from_body(kept[0].body)["n"] == 0
        await outbox.forget_refused(*(post.sequence for post in kept))
        assert await outbox.refused() == []


async def test_what_cannot_be_done_is_said(cluster: Cluster, tmp_path: Path) -> None:
    path, url = tmp_path / "box", cluster.proxies["a1"].url
    for options in ({"proxy": 7}, {"max_bytes": 0}, {"token": 7}):
        with pytest.raises(Refused):
            waypost.open_outbox(path, "p", **options)  # type: ignore[arg-type]
    outbox = waypost.open_outbox(path, "p", proxy="ws://127.0.0.1:9", max_bytes=100)
    with pytest.raises(Refused, match="not entered"):
        await outbox.post({"n": 1})
    async with outbox:
        with pytest.raises(BadArgument, match="is open already"):
            async with waypost.open_outbox(path, "p", proxy=url):
                pass
        await outbox.post({"n": 1})
        with pytest.raises(LimitExceeded, match="1 notifications wait"):
            await outbox.post({"n": "x" * 100})
        await outbox.post({"n": 2})
        assert outbox.waiting == 2
    with pytest.raises(Unreachable, match="closed"):
        await outbox.post({"n": 3})


async def test_an_outbox_of_another_federation_is_not_sent_there(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "box"
    async with waypost.open_outbox(path, "p", proxy=cluster.proxies["a1"].url) as outbox:
        await outbox.post({"n": 1})
        await outbox.wait_sent(TIMEOUT_S)
    with Cluster([ProxySpec("z", "Z", {"no-discovery": ""})], [], tmp_path / "other") as other:
        async with waypost.open_outbox(path, "p", proxy=other.proxies["z"].url) as outbox:
            await outbox.post({"n": 2})
            with pytest.raises(Unreachable, match="1 notification still waits"):
                await outbox.wait_sent(1)


async def test_what_hinders_the_sending_is_trouble_and_no_post_fails_by_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host without a name ends a client for good; an outbox waits for the day that it has one."""
    monkeypatch.setattr(outboxes, "RECONNECT_S", 0.2)
    addresses = ["ws://no-such-host.invalid:7301"]
    async with waypost.open_outbox(tmp_path / "box", "p", proxy=addresses) as outbox:
        await outbox.post({"k": 0})
        await until(lambda: "no-such-host" in outbox.trouble, "the producer has failed")
        for n in range(1, 5):
            assert await outbox.post({"k": n}) == n
            await asyncio.sleep(0.3)
        with pytest.raises(Unreachable, match=r"5 notifications still wait .*no-such-host"):
            await outbox.wait_sent(0.1)
    async with (
        waypost.attach("hindered", proxy=cluster.proxies["a1"].url) as receiver,
        waypost.open_outbox(tmp_path / "box", "p", proxy=cluster.proxies["a1"].url) as outbox,
    ):
        await receiver.subscribe("require(k)")
        await outbox.wait_sent(TIMEOUT_S)
        async with asyncio.timeout(TIMEOUT_S):
            assert [(await anext(receiver))["k"] for _ in range(5)] == [*range(5)]


async def test_trouble_of_the_disk_ends_with_it(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, fails = OutboxFile.remove, [StoreFailed("the disk is full")] * 2

    def remove_later(file: OutboxFile, sequences: Sequence[int]) -> None:
        if fails:
            raise fails.pop()
        remove(file, sequences)

    monkeypatch.setattr(OutboxFile, "remove", remove_later)
    monkeypatch.setattr(outboxes, "RETRY_S", 0.3)
    async with waypost.open_outbox(tmp_path / "box", "p", proxy=cluster.proxies["a1"].url) as outbox:
        await outbox.post({"n": 1})
        await until(lambda: "disk is full" in repr(outbox), "the disk is in trouble")
        await outbox.wait_sent(TIMEOUT_S)
        await until(lambda: not outbox.trouble, "the disk is well again")
        assert repr(outbox) == f"<Outbox {str(tmp_path / 'box')!r}: 0 waiting>"


async def test_cancelled_posts_and_a_listener_that_fails_harm_no_other(cluster: Cluster, tmp_path: Path) -> None:
    def fail(event: object) -> None:
        raise RuntimeError(str(event))

    url = cluster.proxies["a1"].url
    async with waypost.open_outbox(tmp_path / "box", "p", proxy=url, on_event=fail) as outbox:
        posts = [asyncio.create_task(outbox.post({"k": n})) for n in range(3_000)]
        await asyncio.sleep(0)
        for task in posts[::2]:
            task.cancel()
        await asyncio.gather(*posts, return_exceptions=True)
        assert sum(not task.cancelled() for task in posts) >= 1_500
        await outbox.wait_sent(TIMEOUT_S)


def test_outbox_works_without_an_event_loop(cluster: Cluster, tmp_path: Path) -> None:
    path, url = tmp_path / "box", cluster.proxies["a1"].url
    with waypost.blocking.open_outbox(path, "p", proxy="ws://127.0.0.1:9") as outbox:
        assert (outbox.post({"m": 1}), outbox.post({"m": 2}), outbox.waiting) == (0, 1, 2)
    with waypost.blocking.attach("blocking", proxy=url) as receiver:
        receiver.subscribe("require(m)")
        with waypost.blocking.open_outbox(path, "p", proxy=url) as outbox:
            outbox.wait_sent(TIMEOUT_S)
            assert (outbox.waiting, outbox.refused()) == (0, [])
        received = [receiver.next(TIMEOUT_S) for _ in range(2)]
        assert [notification and notification["m"] for notification in received] == [1, 2]
    with pytest.raises(Unreachable):
        outbox.post({"m": 3})


async def test_posts_that_are_being_written_when_it_closes_are_answered(tmp_path: Path) -> None:
    for turns in range(20):
        async with waypost.open_outbox(tmp_path / "box", "p", proxy="ws://127.0.0.1:9") as outbox:
            posts = [asyncio.create_task(outbox.post({"n": n})) for n in range(20)]
            for _ in range(turns):
                await asyncio.sleep(0)
        async with asyncio.timeout(TIMEOUT_S):
            answers = await asyncio.gather(*posts, return_exceptions=True)
        assert all(isinstance(answer, int | Unreachable) for answer in answers), answers


async def test_post_that_has_no_room_takes_nothing_from_those_beside_it(tmp_path: Path) -> None:
    async with waypost.open_outbox(tmp_path / "box", "p", proxy="ws://127.0.0.1:9", max_bytes=3_000) as outbox:
        sizes = [10, 10, 4_000, 10, 10]
        answers = await asyncio.gather(*(outbox.post({"n": "x" * size}) for size in sizes), return_exceptions=True)
        assert [type(answer) for answer in answers] == [int, int, LimitExceeded, int, int]
        assert sorted(answer for answer in answers if isinstance(answer, int)) == [0, 1, 2, 3]


async def test_waiting_until_all_is_sent_counts_what_is_being_written(tmp_path: Path) -> None:
    async with waypost.open_outbox(tmp_path / "box", "p", proxy="ws://127.0.0.1:9") as outbox:
        post = asyncio.create_task(outbox.post({"n": 1}))
        for _ in range(3):
            await asyncio.sleep(0)
            with pytest.raises(Unreachable, match="still wait"):
                await outbox.wait_sent(0.05)
        assert await post == 0
