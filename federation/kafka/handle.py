"""What the three ports on Kafka have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from federation.credentials import Credentials
from federation.kafka.connections import KafkaConsumer, KafkaSender
from federation.kafka.log_reader import Consumer, LogReader
from federation.kafka.ordered_appends import OrderedAppends, Sender
from federation.kafka.replication import Replication
from federation.kafka.topic import Topic
from waypost.limits import RETRY_PAUSES_S

START_S = 4.0
APPEND_DEADLINE_S = 15.0
QUESTION_DEADLINE_S = 5.0


class Handle:
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
        self._was_just_made = False
        """Whether the topic was made, or found in its form, a moment ago; not all brokers may know it yet."""
        self._warn = warn
        self._topic = Topic(bootstrap, topic, replication, settings, credentials)
        self._appends = OrderedAppends(
            self._connect,
            deadline_s=APPEND_DEADLINE_S,
            backoff_s=RETRY_PAUSES_S,
            abandoned=self._out_of_reach,
            may_send=self._may_send,
            name=self._topic.description,
        )
        self._reader = LogReader(
            self._connect_consumer,
            deadline_s=QUESTION_DEADLINE_S,
            backoff_s=RETRY_PAUSES_S,
            dense=dense,
            name=self._topic.description,
        )

    async def _connect(self) -> Sender:
        await self._check()
        return await KafkaSender.connect(self._topic, self._out_of_reach)

    async def _connect_consumer(self, offset: int | None, checked: bool) -> Consumer:
        await self._check()
        return await KafkaConsumer.connect(self._topic, offset, checked=checked)

    async def _check(self) -> None:
        """Check that the topic is there: aiokafka waits for one that is missing as long as for a broker that is away,
        and says neither.
        """
        if not self._was_just_made:
            with self._topic.translated():
                await self._topic.check()

    def _out_of_reach(self) -> None:
        """The connection ended without being told to, or was given up: another one is made."""

    async def _may_send(self) -> None:
        """Wait until what is connected may send."""

    async def start(self) -> None:
        """Make the topic if it is missing and to be made, and connect; after a failure this handle is closed. A topic
        with fewer replicas than is recommended causes a warning.

        Raises:
            LogUnavailable: no broker has answered within 5 s, the cluster has too few brokers, or a topic that is not
                to be made is missing or has another form than it must have.
            BadConfiguration: a topic that may be made has another form, or fewer replicas, than it must have; or Kafka
                refuses its name.
        """
        try:
            with self._topic.translated():
                async with asyncio.timeout(START_S):
                    if self._make and (warning := await self._topic.make()):
                        self._warn(warning)
                    self._was_just_made = self._make
                    await self._appends.start()
                    await self._reader.start()
                    self._was_just_made = False
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish the appends under way, within FINISH_S seconds, and close the connections. Calls under way may fail
        with LogUnavailable, and later ones do. The topic stays.
        """
        await self._appends.close()
        await self._reader.close()
