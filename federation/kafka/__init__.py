"""Site log, changelog and journal on Apache Kafka: the only room that knows aiokafka.

Every topic has one partition, and is kept without limit. One that is missing is made with the replicas that
replication.py says; one that exists is compared with them. OrderedAppends and LogReader queue, wait and retry;
connections.py has the connections that they use.

What happens when the broker is away: starting says so within 5 s. Afterwards tails wait and go on where they
were; an append waits up to its deadline and then fails with LogUnavailable, together with all that queue
behind it, so that nothing overtakes what failed. aiokafka's idempotent producer would try its batch for ever,
and land it at a time when nobody expects it; so a producer that has failed is abandoned, and another is made.
A site log that has none is out of reach: it may lose its end without anybody here noticing. Only a request that is
already with the broker may still be applied then.
"""

from federation.kafka.changelog import KafkaChangelog
from federation.kafka.client_patches import patch_client
from federation.kafka.journal import KafkaJournal
from federation.kafka.site_log import KafkaSiteLog

__all__ = ["KafkaChangelog", "KafkaJournal", "KafkaSiteLog"]

patch_client()
