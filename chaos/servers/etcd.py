"""An etcd server, a cluster of one."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

from chaos.servers import parts
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.server import Server


class EtcdServer(Server):
    """One etcd member. `binary` chooses another than the best one present (see `parts.etcd`)."""

    name = "etcd"
    start_timeout_s = 30

    def __init__(self, data: Path | None = None, *, port: int | None = None, binary: Path | None = None) -> None:
        super().__init__(data)
        self.host = LOOPBACK
        self.port = port or free_port()
        self._peer_port = free_port()
        self._binary = binary

    @property
    def endpoint(self) -> str:
        """host:port for clients."""
        return f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        clients = f"http://{self.endpoint}"
        peers = f"http://{LOOPBACK}:{self._peer_port}"
        return [
            str(self._binary or parts.etcd()),
            *("--name", "one", "--data-dir", str(self.data / "store"), "--log-level", "warn"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", f"one={peers}"),
        ]

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.endpoint}/health", timeout=1) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False
