"""Proxies with a toxiproxy on their ways: to each from the other proxies, and from each to the registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.cluster import ProxySpec
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.toxiproxy import ToxiproxyServer


@dataclass(frozen=True, slots=True)
class Fronted:
    """A proxy behind two toxiproxy listeners. A fault is a toxic of one of them. Clients that know the proxy's own port
    bypass the listener; those that are told its address by another proxy come through it, as all proxies do.

    Args:
        spec: of the proxy.
        peers: toxiproxy's listener between it and other proxies.
        registry: toxiproxy's listener between it and etcd.
    """

    spec: ProxySpec
    peers: Any
    registry: Any

    def remove(self) -> None:
        """Remove both toxiproxy listeners of the proxy."""
        self.peers.destroy()
        self.registry.destroy()


def fronted(
    toxiproxy: ToxiproxyServer, sites: Mapping[str, Iterable[str]], etcd: str, flags: Mapping[str, str]
) -> dict[str, Fronted]:
    """Make two toxiproxy listeners for each proxy of a federation; return the proxies by name, none of them started.

    One listener is between a proxy and the other proxies, one between the proxy and etcd. The caller starts each proxy
    from its `spec`, and removes the listeners by :meth:`Fronted.remove`. After an error, listeners that were made stay.

    Args:
        toxiproxy: a server that runs.
        sites: site -> the names of its proxies.
        etcd: host:port of the registry, for all proxies.
        flags: of `waypost serve`, for all proxies; the value of `prefix` is also the beginning of the listeners' names,
            which have to be new at `toxiproxy`.

    Raises:
        KeyError: `flags` has no `prefix`.
        ProxyExists: of the client library; a listener's name is not new.
    """
    return {name: _front(toxiproxy, name, site, etcd, flags) for site, names in sites.items() for name in names}


def _front(toxiproxy: ToxiproxyServer, name: str, site: str, etcd: str, flags: Mapping[str, str]) -> Fronted:
    port, prefix = free_port(), flags["prefix"]
    peers = toxiproxy.front(f"{prefix}-{name}-peers", f"{LOOPBACK}:{port}", f"{LOOPBACK}:{free_port()}")
    registry = toxiproxy.front(f"{prefix}-{name}-registry", etcd, f"{LOOPBACK}:{free_port()}")
    own = {"port": str(port), "advertise": f"ws://{peers.listen}", "etcd": registry.listen}
    return Fronted(ProxySpec(name, site, {**flags, **own}), peers, registry)
