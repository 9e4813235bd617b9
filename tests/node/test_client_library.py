"""The client library against a real proxy: what an application that ends half-way has, and what comes again."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import waypost
import waypost.blocking
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from waypost.client.events import Retry, WrongFederation
from waypost.errors import BadConfiguration, NoAnswer, ReceiverTaken, Refused, Unreachable, WaypostError
from waypost.notification import Notification

NUMBERS = list(range(1, 101))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    flags = {"no-discovery": ""}
    root = tmp_path_factory.mktemp("library")
    with Cluster([ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags)], [], root) as cluster:
        yield cluster


@pytest.fixture
def proxy(cluster: Cluster) -> ProxyProcess:
    return cluster.proxies["a1"]


async def _prepare(name: str, url: str) -> None:
    """A session with all the numbers stored."""
    async with waypost.attach(name, proxy=url) as session:
        await session.wait_effective(await session.subscribe(f'to == "{name}"'), ["A/0"])
    async with waypost.produce("maker", proxy=url) as producer:
        for number in NUMBERS:
            await producer.publish_soon(Notification({"to": name, "number": number}))
        while producer.unacknowledged:
            await asyncio.sleep(0.01)


async def _take(session: waypost.Receiver, number: int) -> list[int]:
    return [int((await anext(session))["number"]) for _ in range(number)]


async def _rest(name: str, url: str, number: int, state: waypost.ReceiverState | None = None) -> list[int]:
    async with asyncio.timeout(20), waypost.attach(name, proxy=url, state=state) as session:
        return await _take(session, number)


async def test_a_client_shows_its_name_and_how_it_is(proxy: ProxyProcess) -> None:
    receiver = waypost.attach("team/shown", proxy=proxy.url)
    assert repr(receiver) == "<Receiver 'team/shown/main': not entered>"
    async with receiver:
        assert repr(receiver) == "<Receiver 'team/shown/main': connected>"
    assert repr(receiver) == "<Receiver 'team/shown/main': closed>"
    lost = waypost.produce("nobody", proxy="ws://127.0.0.1:9")
    lost.begin()
    await asyncio.sleep(0.2)
    assert repr(lost).startswith("<Producer 'nobody': connecting: ")
    await lost.close()


async def test_client_that_names_no_proxy_goes_to_that_of_the_environment(
    proxy: ProxyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYPOST_PROXY", proxy.url)
    async with waypost.attach("team/environment") as receiver:
        assert receiver.attached is not None and receiver.attached.proxy == "a1"


async def test_wrong_expression_is_refused_with_its_place(proxy: ProxyProcess) -> None:
    async with waypost.attach("team/wrong", proxy=proxy.url) as receiver:
        with pytest.raises(waypost.SubscriptionError) as caught:
            await receiver.subscribe("x >")
        assert (caught.value.code, caught.value.offset) == ("PARSE_ERROR", 3)


async def test_expression_of_several_lines_is_the_id_of_its_subscription(proxy: ProxyProcess) -> None:
    expression = 'to == "lines" &&\n\tnumber > 0'
    async with waypost.attach("team/lines", proxy=proxy.url) as receiver:
        assert await receiver.subscribe(expression) == expression
        await receiver.unsubscribe(expression)


async def test_older_state_after_an_orderly_end_repeats_no_number_of_the_journal(
    cluster: Cluster, proxy: ProxyProcess
) -> None:
    name = "team/older"
    await _prepare(name, proxy.url)
    async with waypost.attach(name, proxy=proxy.url) as session:
        first = await _take(session, 3)
        session.acknowledge()
        kept = pickle.dumps(session.state)
        first += await _take(session, 3)
    # What was handled since is acknowledged by the orderly end.
    rest = await _rest(name, proxy.url, len(NUMBERS) - 6, pickle.loads(kept))
    assert first + rest == NUMBERS
    attested: dict[tuple[str, int], set[str]] = {}
    async with asyncio.timeout(20):
        while sum(fact.count('"received"') for facts in attested.values() for fact in facts) < 3:
            await asyncio.sleep(0.1)
            attested = {}
            for file in (cluster.root / "sites" / "A" / "journal").rglob("*"):
                for line in file.read_text().splitlines() if file.is_file() else []:
                    fact = json.loads(line)
                    if fact.get("session") == name and fact["kind"] == "received":
                        fact.pop("at_ms")
                        attested.setdefault((fact["writer"], fact["number"]), set()).add(json.dumps(fact))
    # One that was not confirmed is said again as it was, and a number never names another one.
    assert all(len(facts) == 1 for facts in attested.values())
    assert len({writer for writer, _ in attested}) == 2


async def test_notifications_that_were_not_taken_come_at_the_next_attach(proxy: ProxyProcess) -> None:
    await _prepare("team/stops", proxy.url)
    async with waypost.attach("team/stops", proxy=proxy.url) as session:
        taken = await _take(session, 10)
    assert taken + await _rest("team/stops", proxy.url, 90) == NUMBERS


async def test_notification_in_hand_when_the_application_failed_comes_again(proxy: ProxyProcess) -> None:
    await _prepare("team/fails", proxy.url)
    with pytest.raises(ZeroDivisionError):
        async with waypost.attach("team/fails", proxy=proxy.url) as session:
            await _take(session, 10)
            raise ZeroDivisionError
    assert await _rest("team/fails", proxy.url, 91) == NUMBERS[9:]


async def test_acknowledged_notification_does_not_come_again_after_the_application_failed(proxy: ProxyProcess) -> None:
    await _prepare("team/says", proxy.url)
    with pytest.raises(ZeroDivisionError):
        async with waypost.attach("team/says", proxy=proxy.url) as session:
            await _take(session, 10)
            session.acknowledge()
            raise ZeroDivisionError
    assert await _rest("team/says", proxy.url, 90) == NUMBERS[10:]


async def test_acknowledgement_in_the_middle_of_a_delivery_survives_the_end_of_the_process(
    proxy: ProxyProcess,
) -> None:
    name = "team/dies"
    await _prepare(name, proxy.url)
    async with asyncio.timeout(30):
        session = waypost.attach(name, proxy=proxy.url)
        await session.__aenter__()
        taken = await _take(session, 30)
        session.acknowledge()
        assert await session.wait_attested(10)
        # What follows is what kill -9 does: nothing more is said.
        await session.abandon()
    assert proxy.stored(name) == 70
    assert taken + await _rest(name, proxy.url, 70) == NUMBERS


async def test_a_promise_is_that_of_the_subscription_and_not_of_the_one_before_it_of_the_name(
    proxy: ProxyProcess,
) -> None:
    async with asyncio.timeout(30), waypost.attach("team/again", proxy=proxy.url) as session:
        for number in range(3):
            await session.subscribe(f"number > {number}", id="x")
            await session.wait_effective("x", ["A/0"])
            assert set(session.effective("x")) == {"A/0"}
            await session.unsubscribe("x")
            assert session.effective("x") == {}


async def test_promise_ends_with_its_subscription_whichever_receiver_ends_it(proxy: ProxyProcess) -> None:
    async with (
        asyncio.timeout(30),
        waypost.attach("team/both", proxy=proxy.url, receiver="one") as one,
        waypost.attach("team/both", proxy=proxy.url, receiver="other") as other,
    ):
        await one.subscribe("number > 0", id="x")
        await one.wait_effective("x", ["A/0"])
        await other.wait_effective("x", ["A/0"])
        await other.unsubscribe("x")
        while one.effective("x"):
            await asyncio.sleep(0.01)


async def test_unread_notifications_survive_a_move_and_a_lost_connection(cluster: Cluster) -> None:
    here, there = cluster.proxies["a1"].url, cluster.proxies["a2"].url
    await _prepare("team/moves", here)
    state = waypost.ReceiverState()
    async with waypost.attach("team/moves", proxy=here, state=state) as session:
        taken = await _take(session, 10)
        await session.move(there)
        await session.wait_attached()
        taken += await _take(session, 10)
        await session.abandon()
    assert taken + await _rest("team/moves", there, 80, state) == NUMBERS


async def test_of_two_that_attach_under_one_name_the_later_one_stays(proxy: ProxyProcess) -> None:
    await _prepare("team/one", proxy.url)
    async with waypost.attach("team/one", proxy=proxy.url) as first:
        await first.wait_attached()
        async with waypost.attach("team/one", proxy=proxy.url) as second:
            assert await _take(second, 100) == NUMBERS
            with pytest.raises(ReceiverTaken):
                # What it was sent before that, it may still be given.
                async for _ in first:
                    pass
            await asyncio.sleep(0.5)
            assert second.attached is not None and (await second.wait_attached()) is second.attached


async def test_receiver_that_detaches_without_a_proxy_logs_a_warning_and_only_then(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path) as cluster:
        home = cluster.proxies["a1"]
        await _prepare("team/leaves", home.url)
        async with waypost.attach("team/leaves", proxy=home.url) as session:
            await _take(session, 10)
        assert not caplog.records
        async with waypost.attach("team/leaves", proxy=home.url) as session:
            await _take(session, 10)
            home.kill()
    (attested,) = [record.getMessage() for record in caplog.records]
    assert attested.startswith("no proxy has heard that session team/leaves was left") and "`state`" in attested


async def test_a_receiver_whose_proxy_died_is_not_attached_until_it_is_back(tmp_path: Path) -> None:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path) as cluster:
        home = cluster.proxies["a1"]
        lost = asyncio.Event()
        async with (
            asyncio.timeout(60),
            waypost.attach(
                "team/back",
                proxy=home.url,
                timeout_s=30,
                on_event=lambda event: lost.set() if isinstance(event, Retry) else None,
            ) as session,
        ):
            before = await session.wait_attached()
            home.kill()
            await lost.wait()
            again = asyncio.create_task(session.wait_attached())
            await asyncio.sleep(0)
            assert not again.done()
            await asyncio.to_thread(home.start)
            assert (await again).epoch > before.epoch


# ---------------------------------------------------------------- mistakes


async def test_the_state_of_another_receiver_is_refused(proxy: ProxyProcess) -> None:
    """What that one had would count as had: it would be lost, in silence."""
    await _prepare("team/mine", proxy.url)
    async with waypost.attach("team/mine", proxy=proxy.url) as session:
        await _take(session, 10)
    for name, receiver in (("team/other", "main"), ("team/mine", "second")):
        with pytest.raises(Refused, match="receiver main of session team/mine"):
            waypost.attach(name, receiver=receiver, proxy=proxy.url, state=session.state)
    with pytest.raises(Refused, match="ReceiverState"):
        waypost.attach("team/mine", proxy=proxy.url, state={"a": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "proxy",
    ["127.0.0.1:7401", "http://h:1", "ws://", "ws://h:1?x=1", "ws://h:1#f", "", [], [7401], 7401, b"ws://h:1"],
)
async def test_malformed_proxy_address_is_refused_at_once(proxy: Any) -> None:
    with pytest.raises(Refused, match="ws://host:7301"):
        waypost.produce("p", proxy=proxy)
    with pytest.raises(Refused, match="ws://host:7301"):
        waypost.attach("s", proxy=proxy)


@pytest.mark.parametrize(
    ("host", "path", "words"),
    [
        ("nosuch.invalid", "", "no host of that name has an address"),
        ("proxy.example", "", "the Host header names no host of this proxy"),
        ("127.0.0.1", "/elsewhere", "there is no proxy at this path"),
    ],
)
async def test_address_that_is_of_no_use_is_refused_at_once(
    host: str, path: str, words: str, proxy: ProxyProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def resolved(name: Any, *arguments: Any, **more: Any) -> Any:
        return resolve(proxy_host if name in (b"proxy.example", "proxy.example") else name, *arguments, **more)

    proxy_host, port = urlsplit(proxy.url).hostname, urlsplit(proxy.url).port
    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    with pytest.raises(BadConfiguration, match=words):
        async with waypost.attach("team/lost", proxy=f"ws://{host}:{port}{path}"):
            pass


async def test_move_to_a_malformed_address_is_refused(proxy: ProxyProcess) -> None:
    async with waypost.attach("team/stays", proxy=proxy.url) as session:
        with pytest.raises(Refused, match="ws://host:7301"):
            await session.move("nonsense")
        assert (await session.wait_attached()).proxy == "a1"


async def test_call_on_a_client_that_was_not_entered_is_refused_at_once(proxy: ProxyProcess) -> None:
    receiver, producer = waypost.attach("team/outside", proxy=proxy.url), waypost.produce("p", proxy=proxy.url)
    asked: list[Callable[[], Awaitable[object]]] = [
        lambda: producer.publish({"n": 1}),
        lambda: producer.quench("n"),
        lambda: receiver.subscribe("n > 0"),
        lambda: receiver.next_batch(),
        lambda: anext(receiver),
        receiver.wait_attached,
    ]
    for ask in asked:
        with pytest.raises(Refused, match="was not entered"):
            await asyncio.wait_for(ask(), 1)


def test_call_on_a_blocking_client_that_was_not_entered_is_refused_at_once(proxy: ProxyProcess) -> None:
    producer = waypost.blocking.produce("p", proxy=proxy.url)
    try:
        with pytest.raises(Refused, match="was not entered"):
            producer.publish({"n": 1})
    finally:
        producer.close()


CALLS: list[Callable[[waypost.Receiver], Awaitable[object]]] = [
    lambda receiver: receiver.publish({"k": 1}),
    lambda receiver: receiver.publish_soon({"k": 1}),
    lambda receiver: receiver.subscribe("k == 1"),
    lambda receiver: receiver.unsubscribe("k == 1"),
    lambda receiver: receiver.set_access(),
    lambda receiver: receiver.delete(),
    lambda receiver: receiver.quench("k"),
    lambda receiver: receiver.wait_attached(),
    lambda receiver: receiver.wait_effective("k == 1", ["A/0"]),
]


async def test_call_on_a_closed_client_fails_at_once(proxy: ProxyProcess) -> None:
    async with waypost.produce("closed", proxy=proxy.url) as producer:
        await producer.publish({"k": 1})
    async with waypost.attach("team/closed", proxy=proxy.url) as receiver:
        await receiver.subscribe("k == 1")
    async with asyncio.timeout(5):
        with pytest.raises(Unreachable, match="was closed"):
            await producer.publish({"k": 2})
        for call in CALLS:
            with pytest.raises(Unreachable, match="was closed"):
                await call(receiver)
        with pytest.raises(StopAsyncIteration):
            await anext(receiver)
        with pytest.raises(Refused, match="was entered before"):
            await receiver.__aenter__()
        await receiver.close()


async def test_calls_under_way_end_with_their_client(proxy: ProxyProcess) -> None:
    receiver = waypost.attach("team/ends", proxy=proxy.url, timeout_s=30)
    async with receiver:
        await receiver.subscribe("k == 1", id="x")
        waiting = [
            asyncio.create_task(receiver.wait_effective("x", ["nowhere/0"])),
            asyncio.create_task(receiver.wait_wanted({"k": 1}, 30)),
        ]
        await asyncio.sleep(0.1)
    async with asyncio.timeout(2):
        effective, wanted = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(effective, Unreachable) and wanted is True


async def test_two_calls_about_one_subscription_each_have_an_answer(proxy: ProxyProcess) -> None:
    async with waypost.attach("team/two", proxy=proxy.url, timeout_s=5) as receiver:
        first = asyncio.create_task(receiver.subscribe("k == 1", id="x"))
        second = asyncio.create_task(receiver.subscribe("k == 1", id="x"))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == "x"
        await receiver.delete()


async def test_call_on_a_client_whose_session_was_deleted_says_so_at_once(proxy: ProxyProcess) -> None:
    async with (
        waypost.attach("team/ended", proxy=proxy.url) as receiver,
        waypost.attach("team/ended", proxy=proxy.url, receiver="other") as other,
    ):
        await other.delete()
        async with asyncio.timeout(5):
            with pytest.raises(WaypostError, match=r"(?i)deleted"):
                await anext(receiver)
            for call in CALLS:
                with pytest.raises(WaypostError, match=r"(?i)deleted"):
                    await call(receiver)


def test_open_blocking_client_goes_on_when_it_is_entered_again(proxy: ProxyProcess) -> None:
    with waypost.blocking.attach("team/twice", proxy=proxy.url) as session:
        with pytest.raises(Refused, match="was entered before"), session:
            pass
        session.subscribe("n > 0")
    with pytest.raises(Refused, match="was entered before"), session:
        pass


async def test_blocking_client_works_where_an_event_loop_runs(proxy: ProxyProcess) -> None:
    """As in a notebook: its calls block that loop, and nothing else."""
    with waypost.blocking.attach("notebook", proxy=proxy.url) as receiver:
        receiver.wait_effective(receiver.subscribe("notebook == 1"), ["A/0"])
        receiver.publish({"notebook": 1})
        assert receiver.next(timeout_s=20) is not None


async def test_site_in_the_place_of_an_origin_is_refused_at_once(proxy: ProxyProcess) -> None:
    async with waypost.attach("team/origins", proxy=proxy.url, timeout_s=1) as session:
        await session.subscribe("n > 0", id="x")
        with pytest.raises(Refused, match="that of site A is 'A/0'"):
            await session.wait_effective("x", ["A"])
        with pytest.raises(NoAnswer, match=r"subscription x .* did not become effective for Z/0 within"):
            await session.wait_effective("x", ["A/0", "Z/0"])


async def test_producer_publishes_in_one_federation_only(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path) as other:
        here, foreign = cluster.proxies["a1"].url, other.proxies["a1"].url
        events: list[object] = []
        async with waypost.attach("team/loyal", proxy=here) as session:
            await session.wait_effective(await session.subscribe("loyal > 0"), ["A/0"])
            async with waypost.produce("loyal", proxy=[here, foreign], on_event=events.append) as producer:
                await producer.publish({"loyal": 1})
                await producer.move(foreign)
                await producer.publish({"loyal": 2})
            assert [(await anext(session))["loyal"] for _ in range(2)] == [1, 2]
        assert any(isinstance(event, WrongFederation) for event in events)
