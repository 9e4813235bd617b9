"""The four ports on files that the processes of one machine share: for a site without Kafka and etcd.

SQLite in WAL mode, opened by every process; nobody is the server. What was acknowledged survives `kill -9` of
any process, and with `durable=True` a power cut. Not for network file systems: WAL needs shared memory.
"""

from federation.embedded.changelog import EmbeddedChangelog
from federation.embedded.journal import EmbeddedJournal, read_facts, segment_paths
from federation.embedded.registry import EmbeddedRegistry
from federation.embedded.site_log import EmbeddedSiteLog

__all__ = ["EmbeddedChangelog", "EmbeddedJournal", "EmbeddedRegistry", "EmbeddedSiteLog", "read_facts", "segment_paths"]
