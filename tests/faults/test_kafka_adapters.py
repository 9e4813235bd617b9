"""What happens to the Kafka adapters when the broker or the way to it goes, and comes back."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, nullcontext, suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient

from chaos.faults.lost_end import LostEnd
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import free_port
from federation.kafka import KafkaChangelog, KafkaJournal, KafkaSiteLog
from federation.kafka import handle as adapter
from tests.helpers.polling import assert_waiting, until
from tests.servers import FaultyPath
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.errors import LogUnavailable
from waypost.facts import Fact, FactKind
from waypost.identity import Epoch, Incarnation, SessionId
from waypost.records import Published

TIMEOUT_S = 60


def record(number: int) -> Published:
    return Published(producer="p", incarnation=Incarnation(""), sequence=number, at_ms=0, body=b"")


async def collect(log: KafkaSiteLog, numbers: list[int], wanted: int) -> None:
    tail: Any = log.tail(0)
    async with asyncio.timeout(TIMEOUT_S), aclosing(tail):
        async for batch in tail:
            numbers += [found.sequence for _, found in batch]
            if len(numbers) >= wanted:
                return


@asynccontextmanager
async def looked_after(log: KafkaSiteLog) -> AsyncIterator[None]:
    """Go on after each interruption, as a proxy that finds all that was read."""

    async def look() -> None:
        while True:
            await log.interrupted()
            log.resume()

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()


async def append_again(log: KafkaSiteLog, *wanted: Published) -> list[int]:
    """Append until the way to the broker is there again: one that meets a connection just cut fails with it."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            with suppress(LogUnavailable):
                return await log.append(wanted)


@pytest.mark.parametrize("kind", [KafkaSiteLog, KafkaChangelog, KafkaJournal])
async def test_an_absent_broker_is_named_within_5_s(kind: type[KafkaSiteLog]) -> None:
    address = f"127.0.0.1:{free_port()}"
    started = time.monotonic()
    log = kind(address, "site")
    with pytest.raises(LogUnavailable, match=address) as error:
        await log.start()
    assert time.monotonic() - started < 6
    assert error.value.hint is not None


async def test_a_log_goes_on_by_itself_after_the_broker_was_killed(tmp_path: Path) -> None:
    # A broker of its own: one that has the topics of all tests takes long to look through them after a kill.
    with KafkaServer(tmp_path) as kafka:
        log = KafkaSiteLog(kafka.bootstrap, "site")
        await log.start()
        seen: list[int] = []
        tail = asyncio.create_task(collect(log, seen, 20))
        try:
            await log.append([record(number) for number in range(10)])
            await asyncio.to_thread(kafka.kill)
            waiting = asyncio.create_task(append_again(log, *map(record, range(10, 20))))
            await assert_waiting(waiting, for_s=1)
            await asyncio.to_thread(kafka.start)
            async with looked_after(log):
                assert len(await waiting) == 10
                await tail
            assert seen == list(range(20))
            assert len(await log.read(0, 100)) == 20
        finally:
            tail.cancel()
            await asyncio.gather(tail, return_exceptions=True)
            await log.close()


async def test_after_an_interruption_nothing_is_appended_or_read_until_it_was_looked_at(tmp_path: Path) -> None:
    """The broker is back before anybody can have missed it, and aiokafka alone would go on without a word."""
    with KafkaServer(tmp_path) as kafka:
        log, other = (KafkaSiteLog(kafka.bootstrap, "site") for _ in range(2))
        await log.start()
        seen: list[int] = []
        tail = asyncio.create_task(collect(log, seen, 7))
        try:
            await log.append([record(number) for number in range(5)])
            await until(lambda: len(seen) == 5, "it has read what it appended")
            await asyncio.to_thread(kafka.kill)
            await asyncio.to_thread(kafka.start)
            await other.start()
            await append_again(other, record(5))
            waiting = asyncio.create_task(append_again(log, record(6)))
            await assert_waiting(waiting, for_s=2)
            assert (seen, await log.end_offset()) == ([*range(5)], 6)
            await log.interrupted()
            assert log.seen_below == 5
            log.resume()
            assert await waiting == [6]
            await tail
            assert seen == [*range(7)]
        finally:
            tail.cancel()
            await asyncio.gather(tail, return_exceptions=True)
            await log.close()
            await other.close()


async def break_off(path: FaultyPath) -> None:
    """End all connections; from now on there is a way again."""
    await asyncio.to_thread(path.proxy.disable)
    await asyncio.to_thread(path.proxy.enable)


async def test_a_handle_that_has_appended_nothing_since_one_interruption_notices_the_next(
    faulty_kafka: FaultyPath, topic_prefix: str
) -> None:
    """Without a connection nobody notices that the broker goes: so there is one before it is looked."""
    log = KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site")
    await log.start()
    try:
        await log.append([record(number) for number in range(5)])
        for _ in range(2):
            await break_off(faulty_kafka)
            async with asyncio.timeout(TIMEOUT_S):
                await log.interrupted()
            log.resume()
        await break_off(faulty_kafka)
        waiting = asyncio.create_task(append_again(log, record(5)))
        await assert_waiting(waiting, for_s=1)
        async with asyncio.timeout(TIMEOUT_S):
            await log.interrupted()
        log.resume()
        assert await waiting == [5]
    finally:
        await log.close()


async def test_append_that_waits_for_a_check_of_the_log_fails_when_the_handle_is_closed(
    faulty_kafka: FaultyPath, topic_prefix: str
) -> None:
    log, other = (KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site") for _ in range(2))
    await log.start()
    await log.append([record(0)])
    await break_off(faulty_kafka)
    async with asyncio.timeout(TIMEOUT_S):
        await log.interrupted()
    waiting = asyncio.create_task(log.append([record(1)]))
    await assert_waiting(waiting, for_s=1)
    await log.close()
    with pytest.raises(LogUnavailable):
        await waiting
    await other.start()
    try:
        assert await other.end_offset() == 1
    finally:
        await other.close()


@asynccontextmanager
async def late_answers(path: FaultyPath, milliseconds: int) -> AsyncIterator[None]:
    """The connection stands, and the broker's answers come late."""
    toxic = {"type": "latency", "name": "late", "stream": "downstream", "attributes": {"latency": milliseconds}}
    await asyncio.to_thread(partial(path.proxy.add_toxic, **toxic))
    try:
        yield
    finally:
        await asyncio.to_thread(path.proxy.destroy_toxic, "late")


async def test_a_start_that_is_cut_short_leaves_no_connection_behind(
    faulty_kafka: FaultyPath, topic_prefix: str
) -> None:
    """aiokafka forgets the connection by which it learns of the brokers, open; Python warns when it is collected."""
    # What tests before this one left is not its own.
    with warnings.catch_warnings(action="ignore"):
        gc.collect()
    async with late_answers(faulty_kafka, 400):
        for tenths in range(2, 20, 2):
            log = KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(tenths / 10):
                    await log.start()
            await log.close()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_a_failed_append_is_an_interruption(
    faulty_kafka: FaultyPath, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is given up, and what happens until there is another one nobody here would notice."""
    monkeypatch.setattr(adapter, "APPEND_DEADLINE_S", 1.0)
    log = KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site")
    await log.start()
    try:
        await log.append([record(0)])
        async with late_answers(faulty_kafka, 3_000):
            with pytest.raises(LogUnavailable):
                await log.append([record(1)])
        async with asyncio.timeout(TIMEOUT_S):
            await log.interrupted()
        waiting = asyncio.create_task(log.append([record(2)]))
        await assert_waiting(waiting, for_s=0.5)
        log.resume()
        await waiting
    finally:
        await log.close()


async def test_a_cut_heals_promptly(faulty_kafka: FaultyPath, topic_prefix: str) -> None:
    log = KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site")
    await log.start()
    seen: list[int] = []
    tail = asyncio.create_task(collect(log, seen, 30))
    await log.append([record(number) for number in range(10)])
    async with looked_after(log):
        for start in (10, 20):
            await asyncio.to_thread(faulty_kafka.proxy.disable)
            waiting = asyncio.create_task(append_again(log, *map(record, range(start, start + 10))))
            await assert_waiting(waiting, for_s=2)
            await asyncio.to_thread(faulty_kafka.proxy.enable)
            healed = time.monotonic()
            await waiting
            assert time.monotonic() - healed < 3
        await tail
    assert time.monotonic() - healed < 5
    assert seen == list(range(30))
    await log.close()


async def test_an_append_past_its_deadline_says_that_it_is_not_known_and_the_next_one_succeeds(
    faulty_kafka: FaultyPath, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter, "APPEND_DEADLINE_S", 1.0)
    log = KafkaSiteLog(faulty_kafka.bootstrap, f"{topic_prefix}site")
    await log.start()
    await log.append([record(0)])
    await asyncio.to_thread(faulty_kafka.proxy.disable)
    started = time.monotonic()
    answers = await asyncio.gather(*(log.append([record(n)]) for n in (1, 2, 3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [LogUnavailable] * 3
    # Those that queued behind the failed one failed with it.
    assert time.monotonic() - started < 2.5
    with pytest.raises(LogUnavailable):
        await log.end_offset()
    await asyncio.to_thread(faulty_kafka.proxy.enable)
    async with looked_after(log):
        await append_again(log, record(4))
    found = [record.sequence for _, record in await log.read(0, 100) if isinstance(record, Published)]
    # What is not known may be there or not, but nothing has overtaken anything.
    assert {0, 4} <= set(found) <= {0, 1, 2, 3, 4}
    assert found == sorted(found)
    await log.close()


async def test_a_changelog_keeps_a_record_for_each_session_and_epoch_and_deletes_the_outdated(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    changelog = KafkaChangelog(kafka.bootstrap, f"{topic_prefix}changelog")
    await changelog.start()
    session = SessionId("s|1")
    for epoch in (1, 2, 3):
        await changelog.put(Checkpoint(session, Epoch(epoch), 1, Descriptor(), {}))
        await changelog.latest(session)
    messages = await changelog._reader.read(0, 100)
    written = [(message.key, message.value is not None) for message in messages]
    assert written == [
        (b"s|1|1", True),
        (b"s|1|2", True),
        (b"s|1|1", False),
        (b"s|1|3", True),
        (b"s|1|2", False),
    ]
    await changelog.close()


async def test_changelog_that_lost_its_end_reports_the_loss_and_forgets_the_lost_checkpoints(tmp_path: Path) -> None:
    with KafkaServer(tmp_path) as kafka:
        changelog = KafkaChangelog(kafka.bootstrap, "changelog")
        await changelog.start()
        session = SessionId("s")
        # What is appended is read before it is answered, or after: that is no loss either.
        await asyncio.gather(
            *(changelog.put(Checkpoint(SessionId(f"s{n}"), Epoch(1), 1, Descriptor(), {})) for n in range(200))
        )
        for serial in range(1, 41):
            await changelog.put(Checkpoint(session, Epoch(1), serial, Descriptor(), {}))
        assert [found.serial for found in await changelog.latest(session)] == [40]
        lost = asyncio.create_task(changelog.lost())
        # A blip of the broker alone is no loss.
        await asyncio.to_thread(kafka.kill)
        await asyncio.to_thread(kafka.start)
        await assert_waiting(lost, for_s=3)
        fault = LostEnd(kafka, "changelog", 1_000)
        await fault.inject()
        await fault.heal()
        async with asyncio.timeout(TIMEOUT_S):
            await lost
            while [found.serial for found in await changelog.latest(session)] in ([], [40]):
                await asyncio.sleep(0.1)
            # What is written again counts, also where it is lower than what was known.
            await changelog.put(Checkpoint(session, Epoch(1), 39, Descriptor(), {}))
            assert [found.serial for found in await changelog.latest(session)] == [39]
        await changelog.close()


async def test_question_to_a_changelog_that_is_closed_meanwhile_fails_as_an_error_of_the_port(
    kafka: KafkaServer, topic_prefix: str
) -> None:
    """Not as a cancellation, which whoever runs the question would take for its own end."""
    changelog = KafkaChangelog(kafka.bootstrap, f"{topic_prefix}changelog")
    await changelog.start()
    asked = [asyncio.create_task(changelog.latest(SessionId("s"))) for _ in range(3)]
    await asyncio.sleep(0)
    await changelog.close()
    for outcome in await asyncio.gather(*asked, return_exceptions=True):
        assert outcome == () or isinstance(outcome, LogUnavailable)


async def test_a_connection_that_a_client_was_opening_when_it_was_closed_is_closed_too(kafka: KafkaServer) -> None:
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap)
    await client.bootstrap()
    (broker,) = client.cluster.brokers()
    opening = asyncio.create_task(client.ready(broker.nodeId))
    await asyncio.sleep(0)
    assert not client._conns
    await client.close()
    assert not await opening
    assert not [connection for connection in client._conns.values() if connection.connected()]


async def put(handle: KafkaSiteLog | KafkaChangelog | KafkaJournal, number: int) -> None:
    """Append whatever the topic is for."""
    match handle:
        case KafkaSiteLog():
            await handle.append([record(number)])
        case KafkaChangelog():
            await handle.put(Checkpoint(SessionId("s"), Epoch(1), number, Descriptor(), {}))
        case KafkaJournal():
            await handle.attest([Fact(writer="proxy", number=number, at_ms=0, kind=FactKind.RECEIVED)])


async def put_until_refused(handle: KafkaSiteLog | KafkaChangelog | KafkaJournal, words: str) -> None:
    """Append until the error says these words."""
    async with asyncio.timeout(TIMEOUT_S):
        for number in count(2):
            try:
                await put(handle, number)
            except LogUnavailable as error:
                if words in error.message:
                    return
            await asyncio.sleep(0.2)


async def topics(admin: AIOKafkaAdminClient) -> list[str]:
    return [name for name in await admin.list_topics() if not name.startswith("_")]


@asynccontextmanager
async def broker_that_makes_topics(folder: Path) -> AsyncIterator[tuple[KafkaServer, AIOKafkaAdminClient]]:
    """A broker that makes a topic for whoever asks for it by name, as brokers do by default."""
    with KafkaServer(folder, settings={"auto.create.topics.enable": "true"}) as kafka:
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
        await admin.start()
        try:
            yield kafka, admin
        finally:
            await admin.close()


@pytest.mark.parametrize("kind", [KafkaSiteLog, KafkaChangelog, KafkaJournal])
async def test_a_topic_that_was_deleted_is_named_and_not_made_again_by_asking_for_it(
    tmp_path: Path, kind: type[KafkaSiteLog] | type[KafkaChangelog] | type[KafkaJournal]
) -> None:
    async with broker_that_makes_topics(tmp_path) as (kafka, admin):
        handle = kind(kafka.bootstrap, "site")
        await handle.start()
        try:
            async with looked_after(handle) if isinstance(handle, KafkaSiteLog) else nullcontext():
                await put(handle, 1)
                (name,) = await topics(admin)
                await admin.delete_topics([name])
                await put_until_refused(handle, f"topic {name} of Kafka at {kafka.bootstrap} is missing")
                assert await topics(admin) == []
        finally:
            await handle.close()


async def test_a_changelog_that_somebody_made_anew_without_its_settings_takes_nothing(tmp_path: Path) -> None:
    """It would not keep the last checkpoint of each session."""
    async with broker_that_makes_topics(tmp_path) as (kafka, admin):
        changelog = KafkaChangelog(kafka.bootstrap, "site")
        await changelog.start()
        try:
            await put(changelog, 1)
            (name,) = await topics(admin)
            await admin.delete_topics([name])
            await put_until_refused(changelog, "is missing")
            await admin.create_topics([NewTopic(name, 1, 1)])
            await put_until_refused(changelog, "is not the one that was in use: topic site has cleanup.policy=delete")
        finally:
            await changelog.close()
