"""etcd: a server that is a cluster of one, and a cluster of three."""

from __future__ import annotations

import json
import ssl
import urllib.request
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos.servers import parts
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.server import Server, ServerTls


class EtcdServer(Server):
    """One etcd member, by default the only one.

    Args:
        binary: another than the best one present (see `parts.etcd`).
        member: its name; `peers` has the port of each member, by name.
        tls: how it speaks to clients; else in the clear.
    """

    name = "etcd"
    start_timeout_s = 30

    def __init__(
        self,
        data: Path | None = None,
        *,
        port: int | None = None,
        binary: Path | None = None,
        member: str = "one",
        peers: Mapping[str, int] | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__(data)
        self.host = LOOPBACK
        self.port = port or free_port()
        self._member = member
        self._peers = dict(peers or {member: free_port()})
        self._binary = binary
        self._tls = tls

    @property
    def endpoint(self) -> str:
        """The address for clients, as host:port."""
        return f"{self.host}:{self.port}"

    def command(self) -> list[str]:
        """Return the command line of the member. Raises Unreachable: there is no etcd binary."""
        clients = self._url
        members = {name: f"http://{LOOPBACK}:{port}" for name, port in self._peers.items()}
        peers = members[self._member]
        return [
            str(self._binary or parts.etcd()),
            *("--name", self._member, "--data-dir", str(self.data / "store"), "--log-level", "warn"),
            *("--listen-client-urls", clients, "--advertise-client-urls", clients),
            *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
            *("--initial-cluster", ",".join(f"{name}={url}" for name, url in members.items())),
            *self._tls_flags(),
        ]

    def ready(self) -> bool:
        """Tell whether the member answers within a second, and its cluster has a leader. Blocks until then."""
        try:
            with urllib.request.urlopen(f"{self._url}/health", timeout=1, context=self._context()) as answer:
                return bool(json.load(answer)["health"] == "true")
        except OSError:
            return False

    def is_leader(self) -> bool:
        """Tell whether the member leads its cluster, by its own answer.

        Raises:
            OSError: the member does not answer within a second.
            KeyError: the member knows of no leader at present.
        """
        request = urllib.request.Request(f"{self._url}/v3/maintenance/status", b"{}")
        with urllib.request.urlopen(request, timeout=1, context=self._context()) as answer:
            status = json.load(answer)
        return bool(status.get("leader") == status["header"]["member_id"])

    @property
    def _url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.endpoint}"

    def _tls_flags(self) -> list[str]:
        if self._tls is None:
            return []
        authority, certificate, key = map(str, self._tls)
        return ["--cert-file", certificate, "--key-file", key, "--trusted-ca-file", authority, "--client-cert-auth"]

    def _context(self) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        context = ssl.create_default_context(cafile=self._tls.authority)
        context.load_cert_chain(self._tls.certificate, self._tls.key)
        return context


class EtcdTrio:
    """Three members: any two of them are a quorum. `members` can be killed, paused and started one by one. As a context
    manager it starts and ends all; entering raises Unreachable, as :meth:`Server.start` does, and leaves none running
    then.

    Args:
        data: the folder of their data.
    """

    def __init__(self, data: Path) -> None:
        peers = {name: free_port() for name in ("one", "two", "three")}
        self.members = [EtcdServer(data / name, member=name, peers=peers) for name in peers]

    @property
    def endpoints(self) -> str:
        """The addresses of all three members for clients, as host:port with commas between."""
        return ",".join(member.endpoint for member in self.members)

    @property
    def followers(self) -> list[EtcdServer]:
        """The members that do not lead the cluster; each is asked now.

        Raises:
            OSError: a member does not answer within a second.
            KeyError: a member knows of no leader at present.
        """
        return [member for member in self.members if not member.is_leader()]

    def __enter__(self) -> Self:
        try:
            # Together: none of them is well before two are.
            with ThreadPoolExecutor(len(self.members)) as pool:
                list(pool.map(EtcdServer.start, self.members))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Kill all members; their data stays."""
        for member in self.members:
            # Without a quorum a member does not end by itself in good time.
            member.kill()
