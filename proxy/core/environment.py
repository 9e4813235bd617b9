"""What the parts of an engine see of the world around them. They read it, and the engine changes it.

Two parts of it are told more than the world says. The view of the registry (`cluster`) is told what this proxy has
claimed or read there, and by `SessionMoves` which proxies are drained; `registry_memory`, what is found out about rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from federation.site.state import SiteState
from proxy.core.cluster_view import ClusterView
from proxy.core.lease import Lease
from proxy.core.registry_memory import RegistryMemory
from proxy.core.settings import Settings
from proxy.core.step_time import StepTime
from proxy.session.session import Session
from waypost.frontier import join
from waypost.identity import NOTHING, Origin, ProxyId


@dataclass(slots=True, kw_only=True)
class Environment:
    """Settings, time, lease, registry and site, as this proxy knows them now. The engine changes it, and the parts read
    it, but for what the module says.

    Args:
        settings: those of the proxy's configuration.
        time: of the present step.
        rng: the only source of chance.
        lease: the proxy's own.
        cluster: what the registry's watch has reported.
        registry_memory: what was found out about rows that the registry has lost.
        state: the site's state, folded from its log.
        applied_below: the offset in the site log below which the restored sessions have all that they matched; 0:
            nothing was restored.
    """

    settings: Settings
    time: StepTime
    rng: random.Random
    lease: Lease
    cluster: ClusterView
    registry_memory: RegistryMemory
    state: SiteState
    applied_below: int = 0

    @property
    def proxy(self) -> ProxyId:
        """The name of this proxy."""
        return self.settings.proxy

    @property
    def rereading(self) -> bool:
        """Whether the site log is still read again up to :attr:`applied_below` after a start: the site's state is older
        than the restored sessions.
        """
        return self.state.position < self.applied_below

    def frontier(self, session: Session) -> dict[Origin, int]:
        """Return the frontier up to which the session has taken all notifications that it matched."""
        return session.frontier(self.state.frontier)

    def reached(self, session: Session) -> dict[Origin, int]:
        """Return the frontier above which every notification is new to the session.

        It joins what the site log has brought here, and what the session has taken. What a receiver reports beyond that
        is its own affair (handover rule 30).
        """
        return join(dict(self.state.frontier), self.frontier(session))

    def confirmed(self, session: Session, frontier: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the part of a client's frontier that this proxy knows to exist: what it has read of the site log, and
        what the session has taken, here or at an earlier owner (handover rule 30).
        """
        reached = self.reached(session)
        return {origin: min(upto, reached[origin]) for origin, upto in frontier.items() if origin in reached}

    def confirmed_coordinates(
        self, session: Session, coordinates: Mapping[Origin, Iterable[int]]
    ) -> dict[Origin, list[int]]:
        """Return those of a client's coordinates (origin -> offsets) that this proxy knows to exist, as
        :meth:`confirmed`.
        """
        if not coordinates:
            # As with nearly every acknowledgement.
            return {}
        reached = self.reached(session)
        return {
            origin: [offset for offset in offsets if offset <= reached.get(origin, NOTHING)]
            for origin, offsets in coordinates.items()
        }
