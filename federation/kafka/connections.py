"""The connections of aiokafka, as OrderedAppends and LogReader use them: one that sends, one that reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import CloseReason
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
)

from federation.kafka.log_reader import Consumer, Corrupt, Message
from federation.kafka.ordered_appends import Entry, Sender
from federation.kafka.topic import REQUEST_TIMEOUT_MS, Topic
from waypost.errors import LogUnavailable
from waypost.limits import LOG_BATCH_BYTES, LOG_REQUEST_BYTES


class KafkaSender:
    """A Sender. Fills its batches itself: an append then costs one future and not one for each record."""

    def __init__(self, topic: Topic, lost: Callable[[], None], connecting: Mapping[str, Any]) -> None:
        self._topic = topic
        self._lost = lost
        self._broken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done: a connection ended without being told to, or a broker does not know the topic any more; the reason."""
        self._producer = AIOKafkaProducer(
            acks="all",
            enable_idempotence=True,
            linger_ms=0,
            max_batch_size=LOG_BATCH_BYTES,
            max_request_size=LOG_REQUEST_BYTES,
            **connecting,
        )
        # aiokafka would connect again and send, without a word to anybody.
        self._producer.client._on_connection_closed = self._ended
        # And it sends, as soon as there is one, to a topic that was made in place of one that was deleted.
        self._was_found = False
        self._producer.client.cluster.add_listener(self._looked_up)

    def _ended(self, connection: object, reason: CloseReason | None) -> None:
        if reason != CloseReason.SHUTDOWN:
            self._break_off("the connection broke off")

    def _looked_up(self, cluster: ClusterMetadata) -> None:
        if self._topic.name in cluster.topics():
            self._was_found = True
        elif self._was_found:
            self._break_off("a broker that was asked does not know the topic: it was deleted, or is new to that broker")

    def _break_off(self, why: str) -> None:
        if not self._producer._closed and not self._broken.done():
            self._broken.set_result(why)
            self._stop_sending()
            self._lost()

    @classmethod
    async def connect(cls, topic: Topic, lost: Callable[[], None]) -> Sender:
        """Return a connected sender of the topic. Raises LogUnavailable.

        When its connection breaks off, or a broker does not know the topic any more, the sender sends nothing more.

        Args:
            topic: to append to.
            lost: called once, in this event loop, when the sender breaks off so.
        """
        producer = cls(topic, lost, await topic.connection_arguments())
        try:
            with topic.translated():
                await producer._producer.start()
        except BaseException:
            await producer.abandon()
            raise
        return producer

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended, or a broker does not know the topic any more: it sends nothing more."""
        return self._broken.done()

    async def send(self, entries: Iterable[Entry]) -> range:
        """Append as many of `entries`, (key, value) each, as fit into one batch; return their offsets, those of the
        first entries (:meth:`federation.kafka.ordered_appends.Sender.send`).

        Raises:
            LogUnavailable: it is not known whether they were appended.
        """
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
                raise KafkaError(self._broken.result())
            first = sent.result().offset
            if first < 0:
                raise KafkaError("the broker did not say at which offsets")
        return range(first, first + batch.record_count())

    async def abandon(self) -> None:
        """Close the connection, without sending what was not sent yet, within some seconds; errors of the connection
        are ignored (:meth:`federation.kafka.ordered_appends.Sender.abandon`).
        """
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


class KafkaConsumer:
    """A Consumer of the only partition, without a group: the broker stores no position."""

    def __init__(self, topic: Topic, connecting: Mapping[str, Any], *, checked: bool = True) -> None:
        self._topic = topic
        self._consumer = AIOKafkaConsumer(
            check_crcs=checked,
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            fetch_min_bytes=1,
            fetch_max_wait_ms=50,
            max_partition_fetch_bytes=4 * LOG_REQUEST_BYTES,
            **connecting,
        )

    @classmethod
    async def connect(cls, topic: Topic, offset: int | None, *, checked: bool = True) -> Consumer:
        """Return a connected consumer of the topic. Raises LogUnavailable.

        Args:
            topic: to read.
            offset: of the first message to be fetched; None: `seek` says it later.
            checked: compare checksums; False: corrupt messages are returned too, as well as they can be read.
        """
        consumer = cls(topic, await topic.connection_arguments(), checked=checked)
        try:
            with topic.translated():
                consumer._consumer.assign([topic.partition])
                await consumer._consumer.start()
                if offset is not None:
                    consumer.seek(offset)
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    async def fetch(self, limit: int, wait_s: float) -> Sequence[Message]:
        """Return the next messages, `limit` at most, and advance behind them; empty: none came within `wait_s` seconds
        (:meth:`federation.kafka.log_reader.Consumer.fetch`).

        Raises:
            LogUnavailable: Kafka does not answer.
            OutOfRange: the topic has no message at the position: it is removed already, or not there yet.
            Corrupt: the checksum of the next message is wrong, or the message cannot be decoded.
        """
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
        """Return the offset of the next message to be fetched (:meth:`federation.kafka.log_reader.Consumer.position`).
        Raises LogUnavailable.
        """
        with self._topic.translated():
            return int(await self._consumer.position(self._topic.partition))

    def seek(self, offset: int) -> None:
        """Set the offset of the next message to be fetched; nothing is sent to Kafka before that
        (:meth:`federation.kafka.log_reader.Consumer.seek`).
        """
        self._consumer.seek(self._topic.partition, offset)

    async def first_offset(self) -> int:
        """Return the offset of the first message kept (:meth:`federation.kafka.log_reader.Consumer.first_offset`).
        Raises LogUnavailable.
        """
        with self._topic.translated():
            found = await self._consumer.beginning_offsets([self._topic.partition])
        return int(found[self._topic.partition])

    async def end_offset(self) -> int:
        """Return the offset that the next message will have (:meth:`federation.kafka.log_reader.Consumer.end_offset`).
        Raises LogUnavailable.
        """
        with self._topic.translated():
            found = await self._consumer.end_offsets([self._topic.partition])
        return int(found[self._topic.partition])

    async def stop(self) -> None:
        """Close the connection for good, within some seconds; errors of it are ignored
        (:meth:`federation.kafka.log_reader.Consumer.stop`).
        """
        # A consumer whose fetcher is in back-off lets the cancellation of its own task out.
        with suppress(LogUnavailable), self._topic.translated():
            await asyncio.wait_for(self._consumer.stop(), REQUEST_TIMEOUT_MS / 1000)
