"""The replication of a site's topics on Kafka: replicas, and how many of them must have a record before it counts as
appended. Pure: the settings of a new topic, and the check of an existing one.

Nothing changes an existing topic: if an operator asked for more than it has, it is refused. Where nothing was asked
for, a new topic gets the recommendation, and an existing one with less causes a warning.
"""

from __future__ import annotations

from dataclasses import dataclass

from waypost.errors import BadConfiguration, LogUnavailable
from waypost.limits import LOG_REQUEST_BYTES

RECOMMENDED_REPLICAS = 3
MIN_INSYNC = "min.insync.replicas"
CLEANUP = "cleanup.policy"
COMPACT = "compact"
MAX_MESSAGE = "max.message.bytes"
TIMESTAMPS = "message.timestamp.type"
BY_BROKER = "LogAppendTime"
"""The broker's clock says when a record came, and so when retention removes it. By the writer's clock a broker refuses
the records of a proxy whose clock is an hour ahead.
"""
MAX_MESSAGE_BYTES = LOG_REQUEST_BYTES + 1024
"""The `max.message.bytes` of a topic: a record comes in a batch that is a little larger."""
HOW_TO_RAISE = "raise it with kafka-reassign-partitions or kafka-configs, or ask for less"


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of a topic, and how many of them must be in sync for an append.

    Args:
        count: the replication factor.
        min_insync: min.insync.replicas.
    """

    count: int
    min_insync: int


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication that an operator asked for; None: as recommended for the cluster.

    Args:
        replicas: recommended are as many as the cluster has brokers, at most 3.
        min_insync: recommended is one less than the replicas, at least 1.
    """

    replicas: int | None = None
    min_insync: int | None = None

    def of(self, brokers: int) -> Replicas:
        """Return the replicas of a new topic on a cluster of `brokers` brokers: as asked for, else as recommended."""
        count = self.replicas or max(1, min(RECOMMENDED_REPLICAS, brokers))
        return Replicas(count, self.min_insync or max(1, count - 1))


def check(topic: str, wanted: Replication, found: Replicas, brokers: int) -> str:
    """Compare the replicas of an existing topic with what was asked for; return a warning for the operator; "": there
    is none.

    Args:
        topic: its name, for messages.
        wanted: what the operator asked for.
        found: what the topic has.
        brokers: the number of brokers of the cluster.

    Raises:
        BadConfiguration: the topic has less than was asked for, or more in-sync replicas are demanded than it has, so
            that it accepts no record.
    """
    if wanted.replicas is not None and found.count < wanted.replicas:
        raise BadConfiguration(
            f"topic {topic} has {_replicas(found.count)}, and {wanted.replicas} were asked for",
            field="replication",
            hint=HOW_TO_RAISE,
        )
    if wanted.min_insync is not None and found.min_insync < wanted.min_insync:
        raise BadConfiguration(
            f"topic {topic} has {MIN_INSYNC}={found.min_insync}, and {wanted.min_insync} was asked for",
            field="min_insync",
            hint=HOW_TO_RAISE,
        )
    if found.min_insync > found.count:
        raise BadConfiguration(
            f"topic {topic} has {_replicas(found.count)} and {MIN_INSYNC}={found.min_insync}: it takes no record",
            field="min_insync",
        )
    if brokers < 2:
        return ""
    recommended = wanted.of(brokers)
    if wanted.replicas is None and found.count < recommended.count:
        return f"topic {topic} has {_replicas(found.count)}; {recommended.count} are recommended on {brokers} brokers"
    insync = max(1, found.count - 1)
    if wanted.min_insync is None and found.min_insync < insync:
        return f"topic {topic} has {MIN_INSYNC}={found.min_insync}; {insync} is recommended for {found.count} replicas"
    return ""


def check_form(topic: str, partitions: int, cleanup: str, wanted: str, max_message_bytes: int) -> None:
    """Check the settings of an existing topic that only one made by hand has wrong, and that no other error would show.

    Args:
        topic: its name, for messages.
        partitions: how many it has.
        cleanup: its cleanup.policy.
        wanted: the cleanup.policy that it must have: a changelog keeps the last checkpoints, a log or journal
            everything within its retention.
        max_message_bytes: its max.message.bytes.

    Raises:
        BadConfiguration: its records would be removed, or have no order; or it does not take the largest of them.
    """
    if partitions != 1:
        raise BadConfiguration(
            f"topic {topic} has {partitions} partitions: what stands in several has no order",
            field="kafka",
            hint="make it anew with one, or let the proxy make it",
        )
    if cleanup != wanted:
        raise BadConfiguration(
            f"topic {topic} has {CLEANUP}={cleanup}, and must have {wanted}: records would vanish that are needed",
            field="kafka",
            hint=_hint(topic, CLEANUP, wanted),
        )
    if max_message_bytes < LOG_REQUEST_BYTES:
        raise BadConfiguration(
            f"topic {topic} has {MAX_MESSAGE}={max_message_bytes}, and must have {LOG_REQUEST_BYTES}: it would refuse "
            "the largest records",
            field="kafka",
            hint=_hint(topic, MAX_MESSAGE, MAX_MESSAGE_BYTES),
        )


def too_large(topic: str) -> LogUnavailable:
    """Return the error of an append that the broker refuses for its size, with a hint for the operator.

    Args:
        topic: its name.
    """
    return LogUnavailable(
        f"topic {topic} does not take a record: it is larger than the topic's {MAX_MESSAGE}",
        hint=_hint(topic, MAX_MESSAGE, MAX_MESSAGE_BYTES),
    )


def wrong_time(topic: str) -> LogUnavailable:
    """Return the error of an append that the broker refuses for the time of the writer's clock, with a hint for the
    operator.

    Args:
        topic: its name.
    """
    return LogUnavailable(
        f"topic {topic} does not take a record: the clock of this machine is too far from the broker's",
        hint=f"set the clock; or let the broker's count: {_hint(topic, TIMESTAMPS, BY_BROKER)}",
    )


def _hint(topic: str, setting: str, value: object) -> str:
    return f"kafka-configs --alter --entity-type topics --entity-name {topic} --add-config {setting}={value}"


def _replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"
