"""A topic: how it is made, compared and reached, and what aiokafka's errors mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.conn import collect_hosts
from aiokafka.errors import (
    ConsumerStoppedError,
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

from federation.credentials import Credentials
from federation.kafka.brokers import find_answering_broker
from federation.kafka.log_reader import OutOfRange
from federation.kafka.replication import (
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
from waypost import cancellation
from waypost.errors import BadConfiguration, LogUnavailable

REQUEST_TIMEOUT_MS = 5_000
KEEP_ALL = {CLEANUP: "delete", "retention.ms": "-1", "retention.bytes": "-1"}
KEEP_LAST_OF_KEY = {CLEANUP: COMPACT}
CREATED_S = 2.0
"""Time after its creation for which a topic may be unknown to some brokers, in seconds."""
CREATED_POLL_S = 0.1
AS_RECOMMENDED = Replication()


FAILURES = (KafkaError, ConsumerStoppedError, OSError, TimeoutError)
# A broker that comes back is found again in tenths of a second, not after five minutes.
PROMPT = {"request_timeout_ms": REQUEST_TIMEOUT_MS, "retry_backoff_ms": 50, "metadata_max_age_ms": 5_000}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of one partition.

    Args:
        bootstrap: addresses of brokers, host:port, with commas between.
        name: its name.
        replication: how many replicas it is made with.
        settings: it is made with.
        credentials: for TLS; None: without TLS.
    """

    bootstrap: str
    name: str
    replication: Replication
    settings: Mapping[str, str]
    credentials: Credentials | None

    async def connection_arguments(self) -> Mapping[str, Any]:
        """Ask the brokers which of them answers, and return the keyword arguments with which each of aiokafka's clients
        connects to it now. It raises nothing if none answers.
        """
        context = None if self.credentials is None else self.credentials.context
        plain = {"bootstrap_servers": await find_answering_broker(self.bootstrap, context), **PROMPT}
        return plain if context is None else plain | {"security_protocol": "SSL", "ssl_context": context}

    @property
    def partition(self) -> TopicPartition:
        """The topic's only partition, as aiokafka names it."""
        return TopicPartition(self.name, 0)

    def unavailable(self, error: BaseException) -> LogUnavailable:
        """Return the LogUnavailable that says that the topic does not answer, for the reason of `error`."""
        why = str(error) or type(error).__name__
        tls = "without TLS, for there is no --backend-ca" if self.credentials is None else "with TLS, by --backend-ca"
        return LogUnavailable(
            f"{self.description} does not answer: {why}",
            hint=f"is a broker running at {self.bootstrap}, advertised where it can be reached, with this topic? "
            f"It is spoken to {tls}",
        )

    @property
    def description(self) -> str:
        """The topic and the address, for error messages."""
        return f"topic {self.name} of Kafka at {self.bootstrap}"

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Raise aiokafka's errors in the block as errors of Waypost, its own cancellations among them.

        Raises:
            LogUnavailable: the topic does not answer, is missing, or does not take a record.
            OutOfRange: the log does not have the offset.
        """
        try:
            with cancellation.translated(self.unavailable):
                yield
        except OffsetOutOfRangeError as error:
            raise OutOfRange from error
        except MessageSizeTooLargeError as error:
            raise too_large(self.name) from error
        except InvalidTimestampError as error:
            raise wrong_time(self.name) from error
        except UnknownTopicOrPartitionError as error:
            raise LogUnavailable(
                f"{self.description} is missing: a broker answers, and has no such topic",
                hint="does the broker run with its own folder, and is it the right one? If the topic is lost for good, "
                "start the proxies of its site again: each says what to do",
            ) from error
        except FAILURES as error:
            raise self.unavailable(error) from error

    async def make(self) -> str:
        """Create the topic unless it exists; compare it with what is asked for. Return a warning; "": there is none.

        Errors of aiokafka and of the network are raised as they are: see :meth:`translated`.

        Raises:
            BadConfiguration: it has another form, or fewer replicas than were asked for; or Kafka refuses its name.
            KafkaError: no broker answers, or the cluster has too few brokers now.
            LogUnavailable: the topic was created, and cannot be compared, because no broker that answers knows it yet.
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
            raise LogUnavailable(
                f"{self.description} was created just now, and not all brokers know it yet",
                hint="nothing is to be done: this is tried again",
            ) from None

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
        """Check that the topic is there, and in its form, before a connection uses it.

        Errors of aiokafka and of the network are raised as they are: see :meth:`translated`.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            LogUnavailable: there is one, and a proxy would not use it: somebody has made it anew.
        """
        async with self._admin() as admin:
            try:
                found = await self._find(admin)
            except BadConfiguration as error:
                raise LogUnavailable(
                    f"{self.description} is not the one that was in use: {error.message}",
                    hint=f"is the broker the right one? If it is: {error.hint}",
                ) from error
        if found is None:
            raise UnknownTopicOrPartitionError(f"there is no topic {self.name}")

    async def delete_below(self, offset: int) -> None:
        """Delete the records below `offset` for good.

        Errors of aiokafka and of the network are raised as they are: see :meth:`translated`.
        """
        async with self._admin() as admin:
            await admin.delete_records({self.partition: RecordsToDelete(before_offset=offset)})

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(**await self.connection_arguments())
        try:
            await self._begin(admin)
            yield admin
        finally:
            await admin.close()

    async def _begin(self, admin: AIOKafkaAdminClient) -> None:
        """Start it. Raises KafkaError, or OSError: TLS or an unknown host is why it cannot connect."""
        try:
            await admin.start()
        except KafkaConnectionError:
            host, port, _ = collect_hosts(self.bootstrap)[0]
            # A host that takes no connection, and does not refuse one, tells nothing: other brokers may be there.
            with suppress(TimeoutError):
                async with asyncio.timeout(REQUEST_TIMEOUT_MS / 1000):
                    if self.credentials is not None:
                        await self.credentials.try_by_hand(host, port)
                    await _resolve(host, port)
            raise


async def _resolve(host: str, port: int) -> None:
    """Raises OSError: no host of this name is known."""
    try:
        await asyncio.get_running_loop().getaddrinfo(host, port)
    except OSError as error:
        raise OSError(f"the host {host} has no address") from error
