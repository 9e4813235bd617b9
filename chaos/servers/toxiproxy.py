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
        """Return a client of the server's own interface."""
        client = Toxiproxy()
        client.update_api_consumer(LOOPBACK, self.port)
        return client

    def front(self, name: str, upstream: str, listen: str | None = None) -> Any:
        """A proxy called `name` at `listen`, host:port, that forwards to `upstream`, host:port.

        The answer is the library's Proxy: `disable()` cuts, `enable()` heals, `add_toxic`, `destroy()`.
        """
        return self.client.create(upstream, name, listen or f"{LOOPBACK}:{free_port()}")

    def command(self) -> list[str]:
        """Return the command line of the server."""
        return [str(parts.path("toxiproxy")), "-host", LOOPBACK, "-port", str(self.port)]

    def ready(self) -> bool:
        """Tell whether the server can be connected to."""
        return port_open(self.port)
