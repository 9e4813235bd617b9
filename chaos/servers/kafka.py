"""A Kafka broker, KRaft with broker and controller in one process; others may join it as brokers alone."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from chaos.servers import parts
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.server import Server, ServerTls
from waypost.errors import Unreachable

MAIN = "MAIN"
CONTROLLER = "CONTROLLER"
FORMAT_TIMEOUT_S = 60

# One broker, so every factor is one. A topic that nobody made is an error here, as it should be anywhere.
SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": MAIN,
    "controller.listener.names": CONTROLLER,
    "auto.create.topics.enable": "false",
    "default.replication.factor": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "log.retention.ms": "-1",
    "log.retention.bytes": "-1",
    "group.initial.rebalance.delay.ms": "0",
    # After kill -9 the controller refuses the broker until its former session has run out; 9 s by default.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    # By default a quarter of our small heap.
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}


class KafkaServer(Server):
    """One broker with a listener, and with one more for each name in `advertise`.

    A named listener tells its clients that the broker lives at the given host and port. With a proxy there
    whose upstream is `upstream(name)`, everything that these clients say goes through the proxy.
    With `tls` clients speak TLS to all of them, else in the clear.
    With `joins` it is one more broker of that one's cluster, by the number `node`.
    """

    name = "kafka"

    def __init__(
        self,
        data: Path | None = None,
        *,
        port: int | None = None,
        advertise: Mapping[str, tuple[str, int]] | None = None,
        heap_mb: int = 512,
        settings: Mapping[str, str] | None = None,
        tls: ServerTls | None = None,
        joins: KafkaServer | None = None,
        node: int = 1,
    ) -> None:
        super().__init__(data)
        self._joins = joins
        self._node = node
        self._cluster: str = joins._cluster if joins is not None else _cluster_id()
        self._advertise = dict(advertise or {})
        self._ports = {MAIN: port or free_port(), CONTROLLER: free_port()}
        self._ports |= {name: free_port() for name in self._advertise}
        self._heap_mb = heap_mb
        self._settings = dict(settings or {})
        self._tls = tls

    @property
    def bootstrap(self) -> str:
        """The address, as host:port, of the listener that every broker has, for clients without a proxy in between."""
        return self.upstream(MAIN)

    def upstream(self, name: str) -> str:
        """Return host:port where the broker really listens for a listener: what a proxy in front of it forwards to.

        Args:
            name: a key of the constructor's argument `advertise`, or MAIN or CONTROLLER.

        Raises:
            KeyError: the broker has no such listener.
        """
        return f"{LOOPBACK}:{self._ports[name]}"

    def advertised(self, name: str) -> str:
        """Return host:port where clients are told to find a listener: the bootstrap address of these clients.

        Args:
            name: a key of the constructor's argument `advertise`.

        Raises:
            KeyError: it is no such key.
        """
        host, port = self._advertise[name]
        return f"{host}:{port}"

    def prepare(self) -> None:
        """Write the broker's configuration, and format its folder if it is new; :meth:`start` calls this.

        The folder `data` has to exist. A store whose format was cut short is removed, and formatted anew.

        Raises:
            Unreachable: the folder could not be formatted; or Java or the part Kafka is not on this machine.
            subprocess.TimeoutExpired: the format took longer than FORMAT_TIMEOUT_S seconds.
            OSError: a file of TLS cannot be read, or the folder cannot be written.
        """
        if self._tls is not None:
            self._keystore.write_text(self._tls.key.read_text() + self._tls.certificate.read_text())
        self._config.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        if not (self._store / "meta.properties").exists():
            self._format()

    def command(self) -> list[str]:
        """Return the command line of the broker. Raises Unreachable: Java or the part Kafka is not on this machine."""
        heap = f"-Xmx{self._heap_mb}m"
        return [*_java(heap, "-XX:+UseSerialGC", "-Dlog4j2.level=INFO"), "kafka.Kafka", str(self._config)]

    def ready(self) -> bool:
        """Tell whether the broker runs, and has logged since its last start that it has started."""
        # Its ports open before the controller lets it lead partitions; this line comes after both.
        process = self.process
        return process is not None and process.running and process.has_logged("Kafka Server started")

    @property
    def _config(self) -> Path:
        return self.data / "server.properties"

    @property
    def _keystore(self) -> Path:
        return self.data / "keystore.pem"

    @property
    def _store(self) -> Path:
        return self.data / "store"

    def _properties(self) -> dict[str, str]:
        listeners = {name: self.upstream(name) for name in self._ports}
        advertised = {MAIN: self.bootstrap} | {name: self.advertised(name) for name in self._advertise}
        security = dict.fromkeys(listeners, "SSL" if self._tls else "PLAINTEXT") | {CONTROLLER: "PLAINTEXT"}
        return {
            **SETTINGS,
            "listeners": _join(listeners, "://"),
            "advertised.listeners": _join(advertised, "://"),
            "listener.security.protocol.map": _join(security, ":"),
            # Voters by configuration, not in the store: so a store can be opened again with other ports.
            "controller.quorum.voters": f"1@{(self._joins or self).upstream(CONTROLLER)}",
            "log.dirs": str(self._store),
            **self._tls_properties(),
            **self._joining_properties(),
            **self._settings,
        }

    def _joining_properties(self) -> dict[str, str]:
        if self._joins is None:
            return {}
        listeners = {name: self.upstream(name) for name in self._ports if name != CONTROLLER}
        return {"process.roles": "broker", "node.id": str(self._node), "listeners": _join(listeners, "://")}

    def _tls_properties(self) -> dict[str, str]:
        if self._tls is None:
            return {}
        return {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._tls.authority),
        }

    def _format(self) -> None:
        # A format that was cut short leaves a store without its last file; begin anew.
        shutil.rmtree(self._store, ignore_errors=True)
        command = [
            *_java("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
            # In one word: an id may begin with "-", and would be taken for an option.
            *("kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster}", "-c", str(self._config)),
        ]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=FORMAT_TIMEOUT_S)
        if done.returncode != 0:
            raise Unreachable("kafka's store could not be formatted", hint=(done.stdout + done.stderr)[-2000:])


def _cluster_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _java(*options: str) -> list[str]:
    return [parts.tool("java"), *options, "-cp", f"{parts.path('kafka')}/*"]


def _join(pairs: Mapping[str, str], between: str) -> str:
    return ",".join(f"{key}{between}{value}" for key, value in pairs.items())
