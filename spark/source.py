"""The source of an audit: a run's folder, or the topics of each site's Kafka.

Both are checked before Spark starts, so that a wrong path does not cost ten seconds.
"""

from __future__ import annotations

import os
import re
import socket
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from waypost.errors import BadConfiguration, LogUnavailable, Refused

SCHEME = "kafka://"
_KAFKA = re.compile(r"kafka://(?P<servers>[^/]+)/(?P<prefix>[\w.-]+)")
_SERVER = re.compile(r"(?P<site>[\w.-]+)=(?P<host>[^:,=]+):(?P<port>\d{1,5})")
_CONNECT_TIMEOUT_S = 3.0


class BadInput(Refused):
    """The input of an audit has no run that could be audited."""

    code = "BAD_INPUT"


@dataclass(frozen=True, slots=True)
class Folder:
    """A run with embedded backends: sites/SITE/log.db and sites/SITE/journal/*.jsonl below one folder.

    Args:
        logs: by site, its log.
        journals: by site, the journals of its proxies.
    """

    logs: dict[str, Path]
    journals: dict[str, list[Path]]

    size_bytes: int
    """The size of all files together."""

    dense = True
    """Offsets of an embedded log have no gap, so a gap is a loss."""


@dataclass(frozen=True, slots=True)
class Topics:
    """A run over Kafka: the topics PREFIX.SITE.log and PREFIX.SITE.journal.

    Args:
        servers: by site, the brokers that have its topics, as ``host:port,...``.
        prefix: of the topics' names.
    """

    servers: dict[str, str]
    prefix: str
    tls: dict[str, str] = field(default_factory=dict, repr=False)
    """Settings of Kafka's clients for TLS; empty: in the clear."""

    dense = False
    """Kafka's own control records take offsets too, so a gap between two records proves nothing."""

    def log_topic(self, site: str) -> str:
        """Return the name of the topic of a site's log."""
        return f"{self.prefix}.{site}.log"

    def journal_topic(self, site: str) -> str:
        """Return the name of the topic of a site's journal."""
        return f"{self.prefix}.{site}.journal"


Source = Folder | Topics


def locate(text: str) -> Source:
    """Return the run that `text` names: a folder, or kafka://SITE=HOST:PORT,.../PREFIX.

    Raises:
        BadInput: the folder has no site log or no journal, or the text has neither form.
        LogUnavailable: a Kafka that it names does not answer.
        BadConfiguration: a file of WAYPOST_BACKEND_CA, _CERT or _KEY cannot be read.
    """
    return _topics(text) if text.startswith(SCHEME) else _folder(Path(text))


def _folder(root: Path) -> Folder:
    if not root.is_dir():
        raise BadInput(f"{root} is no folder; name a run's folder or {SCHEME}SITE=HOST:PORT,.../PREFIX")
    sites = sorted(path for path in (root / "sites").glob("*") if path.is_dir())
    logs = {site.name: site / "log.db" for site in sites if (site / "log.db").is_file()}
    if not logs:
        hint = f"is {root / 'run'} meant?" if (root / "run" / "sites").is_dir() else None
        raise BadInput(f"{root} holds no site log: there is no {root / 'sites'}/SITE/log.db", hint=hint)
    journals = {site.name: sorted((site / "journal").glob("*.jsonl")) for site in sites}
    if not any(journals.values()):
        raise BadInput(f"{root} holds no journal: there is no {root / 'sites'}/SITE/journal/*.jsonl")
    files = [*logs.values(), *(path for paths in journals.values() for path in paths)]
    size_bytes = sum(path.stat().st_size for path in files)
    return Folder(logs, {site: paths for site, paths in journals.items() if paths}, size_bytes)


def opened(path: Path) -> sqlite3.Connection:
    """Return a connection to an embedded site log, which can only read, and which the caller closes. Whether the file
    is a site log shows when it is read.

    Args:
        path: of the file.

    Raises:
        sqlite3.OperationalError: there is no such file, or it cannot be opened.
    """
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _topics(text: str) -> Topics:
    address = _KAFKA.fullmatch(text)
    found = [_SERVER.fullmatch(part) for part in address["servers"].split(",")] if address else [None]
    servers = {match["site"]: f"{match['host']}:{match['port']}" for match in found if match}
    if address is None or len(servers) != len(found):
        raise BadInput(f"{text} is not of the form {SCHEME}SITE=HOST:PORT,SITE=HOST:PORT/PREFIX")
    for server in set(servers.values()):
        _knock(server)
    return Topics(servers, address["prefix"], _tls())


def _tls() -> dict[str, str]:
    """Return the settings of Kafka's clients, from the files of WAYPOST_BACKEND_CA, WAYPOST_BACKEND_CERT and
    WAYPOST_BACKEND_KEY; empty: in the clear.
    """
    authorities, certificate, key = (_pem(f"WAYPOST_BACKEND_{name}") for name in ("CA", "CERT", "KEY"))
    if not authorities:
        return {}
    believed = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    shown = {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": certificate, "ssl.keystore.key": key}
    return {"security.protocol": "SSL", **believed, **(shown if certificate else {})}


def _pem(variable: str) -> str:
    file = os.environ.get(variable)
    try:
        return Path(file).read_text() if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfiguration(f"{file} cannot be read: {error}", field=variable) from None


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except (OSError, OverflowError) as error:
        raise LogUnavailable(f"no Kafka answers at {address}: {error}") from None
