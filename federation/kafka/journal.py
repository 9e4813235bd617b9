"""The journal on Kafka."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from federation.credentials import Credentials
from federation.journal_segments import JournalSegments, Rotation
from federation.kafka.handle import Handle
from federation.kafka.replication import Replication
from federation.kafka.topic import AS_RECOMMENDED, KEEP_ALL
from waypost.errors import LogUnavailable
from waypost.facts import Fact, decode_fact, encode_fact
from waypost.limits import LOG_BATCH


class KafkaJournal(Handle):
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
        """Append facts to the topic in this order, behind the fact that begins the next part if one is due; return once
        the facts survive a crash (:meth:`federation.ports.Journal.attest`).

        Raises:
            LogUnavailable: it is not known whether the facts were written; the audit removes a fact that is written
                twice.
        """
        if not facts:
            return
        lines = [encode_fact(fact) for fact in facts]
        size = sum(map(len, lines))
        beginning = self._segments.begin_if_due(size, int(time.time() * 1_000), time.monotonic())
        # Noted before the append is answered: what comes meanwhile may begin the next part.
        self._segments.wrote(facts, size)
        first = [] if beginning is None else [encode_fact(beginning)]
        try:
            await self._appends.append([(None, line) for line in (*first, *lines)])
        except BaseException:
            self._segments.failed(beginning)
            raise

    async def facts(self) -> list[Fact]:
        """Return all facts that the topic holds now, of all writers, in order, those that begin parts included; for
        tests and small runs. A fact that was written twice comes twice.

        The topic has to be whole: behind an offset that cannot be read the call fails.

        Raises:
            LogUnavailable: Kafka does not answer, or an offset cannot be read.
            HistoryTruncated: retention has removed facts during the call.
            BadRecord: a record is no fact.
        """
        position, end = await self._reader.first_offset(), await self._reader.end_offset()
        found: list[Fact] = []
        while position < end:
            messages = await self._reader.read(position, LOG_BATCH)
            if not messages:
                raise LogUnavailable(f"offset {position} of the journal cannot be read")
            found += [decode_fact(message.value) for message in messages]
            position = messages[-1].offset + 1
        return found
