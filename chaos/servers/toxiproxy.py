"""Shopify's toxiproxy: proxies for TCP that can be cut, slowed and healed."""

from __future__ import annotations

from typing import Any

from toxiproxy import Toxiproxy

from chaos.servers import parts
from chaos.servers.process import LOOPBACK, free_port, port_open
from chaos.servers.server import Server


class ToxiproxyServer(Server):
    """The server, and a client for it.

    The client library keeps the server's address in a class: one process talks to one toxiproxy at a time,
    the one whose `client` or `front` was asked for last.
    """

    name = "toxiproxy"
    start_timeout_s = 30

    def __init__(self, *, port: int | None = None) -> None:
        super().__init__()
        self.port = port or free_port()

    @property
    def client(self) -> Toxiproxy:
        """A client of the server's own interface; the library's other clients in this process turn to this server from
        now on.
        """
        client = Toxiproxy()
        client.update_api_consumer(LOOPBACK, self.port)
        return client

    def front(self, name: str, upstream: str, listen: str | None = None) -> Any:
        """Make a TCP proxy at the running server; return the client library's Proxy.

        Its `disable()` cuts all connections, `enable()` heals, `add_toxic` slows or breaks them, `destroy()` removes
        it. From now on all Proxies of this process talk to this server.

        Args:
            name: unique at this server.
            upstream: host:port to forward to.
            listen: host:port to listen at; None: a free port of the loopback. The Proxy has it as `listen`.

        Raises:
            ProxyExists: of the client library; the server has a proxy of this name.
            requests.ConnectionError: the server does not run.
        """
        return self.client.create(upstream, name, listen or f"{LOOPBACK}:{free_port()}")

    def command(self) -> list[str]:
        """Return the command line of the server. Raises Unreachable: the part toxiproxy is not on this machine."""
        return [str(parts.path("toxiproxy")), "-host", LOOPBACK, "-port", str(self.port)]

    def ready(self) -> bool:
        """Tell whether the server accepts connections at its port now."""
        return port_open(self.port)
