"""The directory of a node: what it knows of the federation's proxies, for those that speak with them.

The registry's watch says who lives; the engine keeps it. Refused messages of proxies are counted here too.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

import structlog

from federation.ports import ProxyRow
from node.peers.routes import Routes
from proxy.engine import Engine
from waypost.errors import Internal
from waypost.identity import Incarnation, ProxyId, SiteId

log = structlog.get_logger("waypost")


class Directory(Protocol):
    """Where the other proxies are, and the secret by which they prove who they are: what connections to proxies need to
    know.
    """

    secret: bytes | None
    """What the federation's proxies know and nobody else; None: the registry has not told it yet."""

    @property
    def incarnation(self) -> Incarnation:
        """The present incarnation of this proxy."""
        ...

    @property
    def is_watching(self) -> bool:
        """Whether the registry's watch has reported who lives, once at least since the start."""
        ...

    def live(self) -> list[ProxyRow]:
        """Return the rows of the live proxies, this one among them, in order of name."""
        ...

    def row(self, proxy: ProxyId) -> ProxyRow | None:
        """Return the row of a live proxy; None: the registry has none."""
        ...

    def next_proxy(self, target: ProxyRow, unreached: Container[ProxyId], passed: int) -> ProxyRow | None:
        """Return the proxy to which a message goes that cannot be sent to its target directly; None: there is no way.

        Args:
            target: the proxy that the message is for.
            unreached: proxies to which no connection could be made lately.
            passed: how many proxies the message has left so far.
        """
        ...

    def refused(self, name: str, peer: ProxyId, detail: str) -> None:
        """Count a refused message or introduction of another proxy; log the first one of each name and peer.

        Args:
            name: what is wrong, in one of a few fixed words (:func:`node.peers.peers.name_of`).
            peer: the sender; NOBODY_PROVEN: it did not prove who it is.
            detail: for people.
        """
        ...


class NodeDirectory:
    """The directory of a node, from its engine. Until that is there, no proxy is known.

    Args:
        site: of the node.

    Attributes:
        incarnation: of this proxy, as the registry has it; empty: it has never had one.
    """

    def __init__(self, site: SiteId) -> None:
        self._routes = Routes(site)
        self._started: Engine | None = None
        self.secret: bytes | None = None
        self.incarnation = Incarnation("")

    def begin(self, engine: Engine) -> None:
        """Take the engine, once the node has it."""
        self._started = engine

    @property
    def _engine(self) -> Engine:
        if self._started is None:
            raise Internal("the node has not started yet")
        return self._started

    @property
    def is_watching(self) -> bool:
        """Whether the registry's watch has reported who lives, once at least since the start."""
        return self._started is not None and self._started.env.cluster.is_watching

    def live(self) -> list[ProxyRow]:
        """Return the rows of the live proxies, this one among them, in order of name."""
        if self._started is None:
            return []
        return sorted(self._started.env.cluster.proxies.values(), key=lambda row: row.proxy)

    def row(self, proxy: ProxyId) -> ProxyRow | None:
        """Return the row of a live proxy; None: the registry has none."""
        return None if self._started is None else self._started.env.cluster.proxies.get(proxy)

    def next_proxy(self, target: ProxyRow, unreached: Container[ProxyId], passed: int) -> ProxyRow | None:
        """Return the proxy to which a message goes that cannot be sent to its target directly
        (:meth:`Directory.next_proxy`); None: there is no way.
        """
        if self._started is None:
            return None
        live = self._started.env.cluster.proxies.values()
        return self._routes.next_proxy(target, live, unreached, self._started.state.tree, passed)

    def refused(self, name: str, peer: ProxyId, detail: str) -> None:
        """Count a refused message or introduction of another proxy; log the first one of each name and peer
        (:meth:`Directory.refused`). Raises Internal: the node has not started yet.
        """
        self._engine.output.refused.note(name, peer, detail)
        self.log_refusals()

    def log_refusals(self) -> None:
        """Log the refusals that were not logged yet, those that the engine has counted among them. Raises Internal: the
        node has not started yet.
        """
        for refusal in self._engine.output.refused.take_new():
            log.warning("refused", what=refusal.name, peer=refusal.peer or "not proven", detail=refusal.detail)
