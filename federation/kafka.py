"""Site log, changelog and journal on Apache Kafka: the only module that knows aiokafka.

Every topic has one partition, and is kept without limit. One that is missing is made with the replicas that
federation/replication.py says; one that exists is compared with them. OrderedAppends and LogReader queue, wait and
retry; this module has the connections that they use.

What happens when the broker is away: starting says so within 5 s. Afterwards tails wait and go on where they
were; an append waits up to its deadline and then fails with LogUnavailable, together with all that queue
behind it, so that nothing overtakes what failed. aiokafka's idempotent producer would try its batch for ever,
and land it at a time when nobody expects it; so a producer that has failed is abandoned, and another is made.
A site log that has none is out of reach: it may lose its end without anybody here noticing. Only a request that is
already with the broker may still be applied then.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import CloseReason, collect_hosts
from aiokafka.errors import (
    ConsumerStoppedError,
    CorruptRecordException,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaConnectionError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from federation.checkpoint_table import CheckpointTable, checkpoint_key
from federation.credentials import Credentials
from federation.interruption import Interruption
from federation.journal_segments import JournalSegments, Rotation
from federation.log_reader import Consumer, Corrupt, LogReader, Message, OutOfRange
from federation.ordered_appends import Entry, OrderedAppends, Sender
from federation.ports import Batch, SiteSnapshot
from federation.replication import (
    BY_BROKER,
    CLEANUP,
    COMPACT,
    MAX_MESSAGE,
    MAX_MESSAGE_BYTES,
    MIN_INSYNC,
    TIMESTAMPS,
    Replicas,
    Replication,
    check,
    check_form,
    too_large,
    wrong_time,
)
from federation.snapshot_chunks import SnapshotChunks
from federation.versioned_condition import VersionedCondition
from waypost import cancellation
from waypost.checkpoint import Checkpoint, encode_checkpoint
from waypost.errors import BadConfiguration, BadRecord, HistoryTruncated, Internal, LogReplaced, LogUnavailable
from waypost.facts import Fact, decode_fact, encode_fact
from waypost.identity import SessionId
from waypost.limits import LOG_BATCH, LOG_BATCH_BYTES, LOG_END_SURE_S, LOG_REQUEST_BYTES, RETRY_PAUSES_S
from waypost.records import MISSING, Record, decode_record, encode_record

START_S = 4.0
APPEND_DEADLINE_S = 15.0
QUESTION_DEADLINE_S = 5.0
REQUEST_TIMEOUT_MS = 5_000
GRACE_S = 1.0
KEEP_ALL = {CLEANUP: "delete", "retention.ms": "-1", "retention.bytes": "-1"}
KEEP_LAST_OF_KEY = {CLEANUP: COMPACT}
POLL_S = 0.5
CREATED_S = 2.0
"""So long after it was created a topic may be unknown to some brokers."""
CREATED_POLL_S = 0.1
AS_RECOMMENDED = Replication()
PART_ROOM = 1024
"""Bytes of a record beside the part of a site's state that it carries."""


FAILURES = (KafkaError, ConsumerStoppedError, OSError, TimeoutError)
# A broker that comes back is found again in tenths of a second, not after five minutes.
PROMPT = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "retry_backoff_ms": 50, "metadata_max_age_ms": 5_000}


@dataclass(frozen=True, slots=True)
class _Topic:
    bootstrap: str
    name: str
    replication: Replication
    settings: Mapping[str, str]
    credentials: Credentials | None

    @property
    def connecting(self) -> Mapping[str, Any]:
        """How each of aiokafka's clients connects."""
        plain = {"bootstrap_servers": self.bootstrap, **PROMPT}
        if self.credentials is None:
            return plain
        return plain | {"security_protocol": "SSL", "ssl_context": self.credentials.context}

    @property
    def partition(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    def unavailable(self, error: BaseException) -> LogUnavailable:
        why = str(error) or type(error).__name__
        return LogUnavailable(
            f"{self.place} does not answer: {why}",
            hint=f"is a broker running at {self.bootstrap}, advertised where it can be reached, and has it the topic?",
        )

    @property
    def place(self) -> str:
        """The topic and the address, for error messages."""
        return f"topic {self.name} of Kafka at {self.bootstrap}"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise aiokafka's errors as ours, its own cancellations among them."""
        try:
            with cancellation.translated(self.unavailable):
                yield
        except OffsetOutOfRangeError as error:
            raise OutOfRange from error
        except MessageSizeTooLargeError as error:
            raise too_large(self.name) from error
        except InvalidTimestampError as error:
            raise wrong_time(self.name) from error
        except FAILURES as error:
            raise self.unavailable(error) from error

    async def make(self) -> str:
        """Create the topic unless it is there; compare one that is. Return a warning; "": there is none.

        Raises:
            BadConfiguration: it has another form, or fewer replicas than were asked for.
            KafkaError: it was created, and cannot be compared, because no broker that answers knows it yet.
        """
        async with self._admin() as admin:
            brokers = len((await admin.describe_cluster())["brokers"])
            found = await self._find(admin)
            if found is None:
                await self._create(admin, self.replication.of(brokers), brokers)
                # By somebody else, perhaps, and not as we would have made it.
                found = await self._find_created(admin)
        return check(self.name, self.replication, found, brokers)

    async def _find_created(self, admin: AIOKafkaAdminClient) -> Replicas:
        """Each question may go to another broker, and the last ones learn of a topic a moment later."""
        try:
            async with asyncio.timeout(CREATED_S):
                while (found := await self._find(admin)) is None:
                    await asyncio.sleep(CREATED_POLL_S)
                return found
        except TimeoutError:
            raise KafkaError("it was created, and not all brokers know it yet") from None

    async def _create(self, admin: AIOKafkaAdminClient, replicas: Replicas, brokers: int) -> None:
        if replicas.count > brokers:
            # They may be about to start.
            raise KafkaError(f"it is to have {replicas.count} replicas, and the cluster has {brokers} brokers now")
        settings = {
            **self.settings,
            MIN_INSYNC: str(replicas.min_insync),
            MAX_MESSAGE: str(MAX_MESSAGE_BYTES),
            TIMESTAMPS: BY_BROKER,
        }
        topic = NewTopic(self.name, 1, replicas.count, topic_configs=settings)
        answer = await admin.create_topics([topic], timeout_ms=REQUEST_TIMEOUT_MS)
        for name, code, *rest in answer.topic_errors:
            if code == InvalidTopicError.errno:
                raise BadConfiguration(
                    f"Kafka refuses topic {name}: {rest[0] if rest else 'its name'}",
                    field="site",
                    hint="of two names that differ in . and _ alone it takes one: call the site otherwise",
                )
            if code not in (0, TopicAlreadyExistsError.errno):
                raise for_code(code)(f"cannot create topic {name}: {rest}")

    async def _find(self, admin: AIOKafkaAdminClient) -> Replicas | None:
        """Return the replicas of the topic; None: there is no such topic, or not everywhere yet."""
        # Of all topics: to ask for one by name may make it, with the broker's own settings.
        found = next((topic for topic in await admin.describe_topics() if topic["topic"] == self.name), None)
        if found is None or not found["partitions"]:
            return None
        wanted = ConfigResource(
            ConfigResourceType.TOPIC, self.name, {MIN_INSYNC: None, CLEANUP: None, MAX_MESSAGE: None}
        )
        (answer,) = await admin.describe_configs([wanted])
        for code, why, _, _, settings in answer.resources:
            if code == UnknownTopicOrPartitionError.errno:
                return None
            if code:
                raise for_code(code)(f"the settings of topic {self.name} cannot be read: {why}")
            values = {name: value for name, value, *_ in settings}
            wanted_cleanup, partitions = self.settings[CLEANUP], len(found["partitions"])
            check_form(self.name, partitions, values[CLEANUP], wanted_cleanup, int(values[MAX_MESSAGE]))
            replicas = min(len(partition["replicas"]) for partition in found["partitions"])
            return Replicas(replicas, int(values[MIN_INSYNC]))
        return None

    async def check(self) -> None:
        """Raises KafkaError: there is no such topic."""
        async with self._admin() as admin:
            if self.name not in await admin.list_topics():
                raise UnknownTopicOrPartitionError(f"there is no topic {self.name}")

    async def delete_below(self, offset: int) -> None:
        async with self._admin() as admin:
            await admin.delete_records({self.partition: RecordsToDelete(before_offset=offset)})

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**self.connecting)
        try:
            await self._begin(admin)
            yield admin
        finally:
            await admin.close()

    async def _begin(self, admin: AIOKafkaAdminClient) -> None:
        """Start it. Raises KafkaError, or OSError: TLS is why it cannot connect."""
        try:
            await _whole(admin.start())
        except KafkaConnectionError:
            if self.credentials is not None:
                host, port, _ = collect_hosts(self.bootstrap)[0]
                await self.credentials.try_by_hand(host, port)
            raise


async def _whole(start: Coroutine[Any, Any, None]) -> None:
    """Await a start of aiokafka's. One that is cut short leaks its connection, so a cancellation waits."""
    task = asyncio.create_task(start)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,), timeout=GRACE_S)
        if not task.cancel() and not task.cancelled():
            task.exception()  # seen; nobody is left whom it concerns
        raise


# ---------------------------------------------------------------- writing


class _Producer:
    """A Sender. Fills its batches itself: an append then costs one future and not one for each record."""

    def __init__(self, topic: _Topic, lost: Callable[[], None]) -> None:
        self._topic = topic
        self._lost = lost
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done: a connection ended without being told to."""
        self._producer = AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=LOG_BATCH_BYTES,
            max_request_size=LOG_REQUEST_BYTES,
            **topic.connecting,
        )
        # aiokafka would connect again and send, without a word to anybody.
        self._producer.client._on_connection_closed = self._ended

    def _ended(self, connection: object, reason: CloseReason | None) -> None:
        if reason != CloseReason.SHUTDOWN and not self._producer._closed and not self._broken.done():
            self._broken.set_result(None)
            self._stop_sending()
            self._lost()

    @classmethod
    async def connect(cls, topic: _Topic, lost: Callable[[], None]) -> Sender:
        """Connect; `lost` is told when the connection ends without being told to, and this one sends nothing then."""
        producer = cls(topic, lost)
        try:
            with topic.translated():
                await _whole(producer._producer.start())
        except BaseException:
            await producer.abandon()
            raise
        return producer

    @property
    def is_broken(self) -> bool:
        return self._broken.done()

    async def send(self, entries: Iterable[Entry]) -> range:
        batch = self._producer.create_batch()
        for key, value in entries:
            if batch.append(key=key, value=value, timestamp=None) is None:
                break
        batch.close()
        with self._topic.translated():
            sent = await self._producer.send_batch(batch, self._topic.name, partition=0)
            # Not cancelled by our deadline: aiokafka stumbles over a batch whose future was.
            await asyncio.wait((sent, self._broken), return_when=asyncio.FIRST_COMPLETED)
            if not sent.done():
                raise KafkaError("the connection broke off")
            first = sent.result().offset
            if first < 0:
                raise KafkaError("the broker did not say at which offsets")
        return range(first, first + batch.record_count())

    async def abandon(self) -> None:
        # aiokafka's stop() would first wait until everything is sent, which may be never.
        self._producer._closed = True
        if (sending := self._stop_sending()) is not None:
            await asyncio.wait((sending,), timeout=REQUEST_TIMEOUT_MS / 1000)
            sending.cancel()
        with suppress(LogUnavailable), self._topic.translated():
            await asyncio.wait_for(self._producer.client.close(), REQUEST_TIMEOUT_MS / 1000)

    def _stop_sending(self) -> asyncio.Task[None] | None:
        sending: asyncio.Task[None] | None = self._producer._sender.sender_task
        if sending is not None:
            sending.cancel()
        return sending


# ---------------------------------------------------------------- reading


class _Consumer:
    """A Consumer of the only partition, without a group: the broker stores no position."""

    def __init__(self, topic: _Topic, *, checked: bool = True) -> None:
        self._topic = topic
        self._consumer = AIOKafkaConsumer(
            check_crcs=checked,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_min_bytes=1,
            fetch_max_wait_ms=50,
            max_partition_fetch_bytes=4 * LOG_REQUEST_BYTES,
            **topic.connecting,
        )

    @classmethod
    async def connect(cls, topic: _Topic, offset: int | None, *, checked: bool = True) -> Consumer:
        consumer = cls(topic, checked=checked)
        try:
            with topic.translated():
                consumer._consumer.assign([topic.partition])
                await _whole(consumer._consumer.start())
                if offset is not None:
                    consumer.seek(offset)
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    async def fetch(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Implement :meth:`federation.log_reader.Consumer.fetch`."""
        partition = self._topic.partition
        try:
            with self._topic.translated():
                found = await self._consumer.getmany(partition, timeout_ms=int(wait_s * 1000), max_records=limit)
        except (LogUnavailable, ValueError, MemoryError) as error:
            if isinstance(error, LogUnavailable) and not isinstance(error.__cause__, CorruptRecordException):
                raise
            raise Corrupt from error
        messages: Sequence[Message] = found.get(partition, ())
        return messages

    async def position(self) -> int:
        """Implement :meth:`federation.log_reader.Consumer.position`."""
        with self._topic.translated():
            return int(await self._consumer.position(self._topic.partition))

    def seek(self, offset: int) -> None:
        """Implement :meth:`federation.log_reader.Consumer.seek`."""
        self._consumer.seek(self._topic.partition, offset)

    async def first_offset(self) -> int:
        """Implement :meth:`federation.log_reader.Consumer.first_offset`."""
        with self._topic.translated():
            found = await self._consumer.beginning_offsets([self._topic.partition])
        return int(found[self._topic.partition])

    async def end_offset(self) -> int:
        """Implement :meth:`federation.log_reader.Consumer.end_offset`."""
        with self._topic.translated():
            found = await self._consumer.end_offsets([self._topic.partition])
        return int(found[self._topic.partition])

    async def stop(self) -> None:
        # A consumer whose fetcher is in back-off lets the cancellation of its own task out.
        """Implement :meth:`federation.log_reader.Consumer.stop`."""
        with suppress(LogUnavailable), self._topic.translated():
            await asyncio.wait_for(self._consumer.stop(), REQUEST_TIMEOUT_MS / 1000)


# ---------------------------------------------------------------- the ports


class _Handle:
    """The common part of the three ports: a topic, its writer and its reader.

    Args:
        bootstrap: addresses of brokers, host:port, with commas between.
        topic: its name.
        settings: of a topic that it makes.
        replication: of a topic that it makes; an existing one is compared with it.
        credentials: for TLS; None: without TLS.
        warn: called with a warning about a topic that has fewer replicas than is recommended.
        make: make the topic if it is missing.
        dense: as of LogReader.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        settings: Mapping[str, str],
        replication: Replication,
        credentials: Credentials | None,
        warn: Callable[[str], None],
        *,
        make: bool = True,
        dense: bool = False,
    ) -> None:
        self._make = make
        self._warn = warn
        self._topic = _Topic(bootstrap, topic, replication, settings, credentials)
        self._appends = OrderedAppends(
            self._connect,
            deadline_s=APPEND_DEADLINE_S,
            backoff_s=RETRY_PAUSES_S,
            abandoned=self._out_of_reach,
            may_send=self._may_send,
            name=self._topic.place,
        )
        self._reader = LogReader(
            lambda offset, checked: _Consumer.connect(self._topic, offset, checked=checked),
            deadline_s=QUESTION_DEADLINE_S,
            backoff_s=RETRY_PAUSES_S,
            dense=dense,
            name=self._topic.place,
        )

    async def _connect(self) -> Sender:
        return await _Producer.connect(self._topic, self._out_of_reach)

    def _out_of_reach(self) -> None:
        """The connection ended without being told to, or was given up: another one is made."""

    async def _may_send(self) -> None:
        """Wait until what is connected may send."""

    async def start(self) -> None:
        """Connect. After a failure this handle is closed."""
        try:
            with self._topic.translated():
                async with asyncio.timeout(START_S):
                    if not self._make:
                        await self._topic.check()
                    elif warning := await self._topic.make():
                        self._warn(warning)
                    await self._appends.start()
                    await self._reader.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._appends.close()
        await self._reader.close()


class KafkaSiteLog(_Handle):
    """The site log in `topic`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        replication: Replication = AS_RECOMMENDED,
        credentials: Credentials | None = None,
        warn: Callable[[str], None] = lambda warning: None,
    ) -> None:
        super().__init__(bootstrap, topic, KEEP_ALL, replication, credentials, warn, dense=True)
        self._interruption = Interruption()
        self._reader.interruption = self._interruption

    def _out_of_reach(self) -> None:
        self._interruption.interrupt()

    async def _may_send(self) -> None:
        await self._interruption.wait_resumed()

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Implement :meth:`federation.ports.SiteLog.append`."""
        taken_below = self._interruption.applied_below
        offsets = await self._appends.append([(None, encode_record(record)) for record in records])
        if offsets and offsets[0] < taken_below:
            raise LogReplaced(f"the log appends at {offsets[0]}, and was read up to {taken_below}", end=offsets[0])
        self._interruption.saw(offsets[-1] + 1 if offsets else 0)
        return offsets

    async def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Implement :meth:`federation.ports.SiteLog.tail`."""
        self._interruption.saw(offset)
        async with aclosing(self._reader.follow(offset)) as following:
            async for messages, place in following:
                if place > offset:
                    for batch in _batches(messages, offset, place):
                        yield batch
                    offset = place
                    # Not before: an append that is under way may be answered after its record was read.
                    self._interruption.saw(place)

    async def read(self, offset: int, limit: int) -> Batch:
        """Implement :meth:`federation.ports.SiteLog.read`."""
        messages, place = await self._reader.read_to(offset, limit)
        return next(iter(_batches(messages, offset, place)), [])

    async def first_offset(self) -> int:
        """Implement :meth:`federation.ports.SiteLog.first_offset`."""
        return await self._reader.first_offset()

    async def end_offset(self) -> int:
        """Implement :meth:`federation.ports.SiteLog.end_offset`."""
        return await self._reader.end_offset()

    @property
    def seen_below(self) -> int:
        """Implement :meth:`federation.ports.SiteLog.seen_below`."""
        return self._interruption.seen_below

    async def interrupted(self) -> None:
        """Implement :meth:`federation.ports.SiteLog.interrupted`."""
        await self._interruption.wait_interrupted()
        # What is looked at without a connection may be lost before there is one, and nobody would notice.
        await self._appends.connected()

    def resume(self) -> None:
        """Implement :meth:`federation.ports.SiteLog.resume`."""
        self._interruption.resume()

    async def close(self) -> None:
        """Implement :meth:`federation.ports.SiteLog.close`."""
        self._interruption.close()
        await super().close()

    async def truncate(self, before: int) -> None:
        """Forget the records below offset `before`."""
        with self._topic.translated():
            async with asyncio.timeout(QUESTION_DEADLINE_S):
                await self._topic.delete_below(before)


class KafkaChangelog(_Handle):
    """Checkpoints in the compacted `topic`, and a table of them in memory that follows it.

    Compaction keeps the last record of a key, and a late write of an old owner must not be the one that is
    kept (handover rule 19). So the key is session|epoch; an owner who wrote a higher epoch deletes the lower ones.
    A key without an epoch is that of a part of the site's state.

    Args:
        make: make the topic if it is missing. Another site's must be there: an empty one in its place would say that
            no session was ever kept there (P5).
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        replication: Replication = AS_RECOMMENDED,
        credentials: Credentials | None = None,
        warn: Callable[[str], None] = lambda warning: None,
        make: bool = True,
    ) -> None:
        super().__init__(bootstrap, topic, KEEP_LAST_OF_KEY, replication, credentials, warn, make=make)
        self._table = CheckpointTable()
        self._site = SnapshotChunks(LOG_BATCH_BYTES - PART_ROOM)
        self._position = 0
        self._seen_below = 0
        """Below this offset everything was read, or its append was answered."""
        self._is_read = False
        """All was read that there was when it began."""
        self._lost = asyncio.Event()
        self._changed = VersionedCondition()
        self._following: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Implement :meth:`federation.ports.Changelog.start`."""
        await super().start()
        self._following = asyncio.create_task(self._follow())

    async def put(self, checkpoint: Checkpoint) -> None:
        """Implement :meth:`federation.ports.Changelog.put`."""
        if checkpoint.is_first or not self._is_read:
            await self._read_up()
            self._is_read = True
        if self._table.is_news(checkpoint):
            await self._append([(checkpoint_key(checkpoint), encode_checkpoint(checkpoint))])
            await self._append([(key, None) for key in self._table.outdated_by(checkpoint)])

    async def _append(self, entries: Sequence[Entry]) -> None:
        # As of now: what is appended may be read before it is answered.
        seen_below = self._seen_below
        offsets = await self._appends.append(entries)
        if offsets and offsets[0] < seen_below:
            self._has_lost()
        self._seen_below = max(self._seen_below, offsets[-1] + 1 if offsets else 0)

    def _out_of_reach(self) -> None:
        """It may have lost its end."""
        self._reader.recheck()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._check_lost())

    async def _check_lost(self) -> None:
        short = 0
        while short < 2:
            try:
                short = short + 1 if await self._reader.end_offset() < self._seen_below else 0
                if not short:
                    return
            except LogUnavailable:
                pass
            # A broker that has just begun may not know its own end yet.
            await asyncio.sleep(LOG_END_SURE_S)
        self._has_lost()

    def _has_lost(self) -> None:
        self._seen_below = 0
        self._is_read = False
        self._lost.set()

    async def lost(self) -> None:
        """Implement :meth:`federation.ports.Changelog.lost`."""
        await self._lost.wait()
        self._lost.clear()

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """As in the port; sees all that was acknowledged before the call, or raises LogUnavailable."""
        await self._read_up()
        return self._table.latest(session)

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Implement :meth:`federation.ports.Changelog.forget`."""
        await self._read_up()
        keys = [key for session, epoch in deleted.items() for key in self._table.keys_of(session, epoch)]
        await self._append([(key, None) for key in keys])

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Implement :meth:`federation.ports.Changelog.put_site`."""
        await self._read_up()
        for part in self._site.cut(snapshot):
            await self._append([part])

    async def latest_site(self) -> SiteSnapshot | None:
        """As :meth:`latest`."""
        await self._read_up()
        return self._site.latest

    async def _read_up(self) -> None:
        end = await self._reader.end_offset()
        with self._topic.translated():
            async with asyncio.timeout(QUESTION_DEADLINE_S):
                while self._position < end:
                    self._check_following()
                    await self._changed.wait(self._changed.version, POLL_S)

    def _check_following(self) -> None:
        """Raises LogUnavailable: the table was not kept any more. It is from now on, for the next one who asks."""
        following = self._following
        if following is None:
            raise Internal("the changelog has not been started")
        if not following.done():
            return
        self._following = asyncio.create_task(self._follow())
        why = "it was cancelled" if following.cancelled() else repr(following.exception())
        raise LogUnavailable(f"topic {self._topic.name}: what reads the changelog has ended: {why}")

    async def close(self) -> None:
        """Implement :meth:`federation.ports.Changelog.close`."""
        for task in (self._following, self._looking):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))
        await super().close()

    async def _follow(self) -> None:
        while True:
            try:
                async with aclosing(self._reader.follow(self._position)) as following:
                    async for messages, self._position in following:
                        for message in messages:
                            self._take(message)
                        self._seen_below = max(self._seen_below, self._position)
                        self._changed.notify()
            except HistoryTruncated:
                pass
            except LogReplaced:
                # What is remembered of it hides what it lacks.
                self._table, self._site = CheckpointTable(), SnapshotChunks(LOG_BATCH_BYTES - PART_ROOM)
                self._has_lost()
            with suppress(LogUnavailable):
                self._position = await self._reader.first_offset()

    def _take(self, message: Message) -> None:
        if b"|" in message.key:
            self._table.apply(message.key, message.value)
            return
        with suppress(BadRecord):
            # Of what cannot be read there is an older one, or nothing: the log alone, as before the first snapshot.
            self._site.add(message.key, message.value)


class KafkaJournal(_Handle):
    """Appends to `topic`, which all proxies of a site share.

    Args:
        writer: what this process's part of the topic is called.
        rotation: when it says that another part begins; what the topic keeps is the topic's own setting.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        replication: Replication = AS_RECOMMENDED,
        credentials: Credentials | None = None,
        warn: Callable[[str], None] = lambda warning: None,
        writer: str = "",
        rotation: Rotation | None = None,
    ) -> None:
        super().__init__(bootstrap, topic, KEEP_ALL, replication, credentials, warn)
        self._segments = JournalSegments(writer, rotation or Rotation())

    async def attest(self, facts: Sequence[Fact]) -> None:
        """Implement :meth:`federation.ports.Journal.attest`."""
        if not facts:
            return
        lines = [encode_fact(fact) for fact in facts]
        size = sum(map(len, lines))
        beginning = self._segments.beginning(size, int(time.time() * 1_000), time.monotonic())
        # Noted before the append is answered: what comes meanwhile may begin the next part.
        self._segments.wrote(facts, size)
        first = [] if beginning is None else [encode_fact(beginning)]
        try:
            await self._appends.append([(None, line) for line in (*first, *lines)])
        except BaseException:
            self._segments.failed(beginning)
            raise

    async def facts(self) -> list[Fact]:
        """Return all that the topic holds now, of all writers; for tests and small runs."""
        place, end = await self._reader.first_offset(), await self._reader.end_offset()
        found: list[Fact] = []
        while place < end:
            messages = await self._reader.read(place, LOG_BATCH)
            found += [decode_fact(message.value) for message in messages]
            place = messages[-1].offset + 1
        return found


def _batches(messages: Sequence[Message], offset: int, position: int) -> Iterator[Batch]:
    """Yield records from `offset` up to `place`, with those missing: nothing of ours leaves holes in a topic."""
    batch: Batch = []
    for message in messages:
        for missing in range(offset, message.offset):
            batch.append((missing, MISSING))
            if len(batch) >= LOG_BATCH:
                yield batch
                batch = []
        batch.append((message.offset, decode_record(message.value)))
        offset = message.offset + 1
    batch += [(missing, MISSING) for missing in range(offset, position)]
    if batch:
        yield batch
