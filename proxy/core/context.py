"""The parts that the rooms of an engine share. Each piece of state is in one of them, and only that one changes it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.site_state import SiteState
from proxy.core.cluster_view import ClusterView
from proxy.core.counters import Counters
from proxy.core.effects import Effect
from proxy.core.events import Events
from proxy.core.interest import Interest
from proxy.core.journal import Journal
from proxy.core.lease import Lease
from proxy.core.outbox import Outbox
from proxy.core.refusals import Refusals
from proxy.core.session_table import SessionTable
from proxy.core.settings import Settings
from proxy.core.takeover_backoff import TakeoverBackoff
from proxy.core.transfer_table import RunningTransfers
from proxy.session.session import Session
from waypost.clock import Clock
from waypost.frontier import join
from waypost.identity import Incarnation, Origin, ProxyId


@dataclass(slots=True, kw_only=True)
class Context:
    """The parts of an engine. None of them does I/O.

    Args:
        state: the site's state, folded from its log.
        applied_below: the offset in the site log below which the restored sessions have all that they matched.
    """

    settings: Settings
    clock: Clock
    rng: random.Random
    state: SiteState
    applied_below: int
    lease: Lease
    outbox: Outbox
    journal: Journal
    cluster: ClusterView
    sessions: SessionTable
    interest: Interest
    events: Events = field(default_factory=Events)
    transfers: RunningTransfers = field(default_factory=RunningTransfers)
    counters: Counters = field(default_factory=Counters)
    refused: Refusals = field(default_factory=Refusals)
    """Messages of other proxies that were refused."""
    takeover_backoff: TakeoverBackoff = field(default_factory=TakeoverBackoff)

    @classmethod
    def of(
        cls, settings: Settings, clock: Clock, rng: random.Random, state: SiteState, *, applied_below: int = 0
    ) -> Context:
        """Return the parts of a new engine.

        Args:
            applied_below: see :class:`Context`; 0: the store was empty, or was not written from this log.
        """
        lease, outbox = Lease(clock, settings.lease_margin_ms), Outbox()
        return cls(
            settings=settings,
            clock=clock,
            rng=rng,
            state=state,
            applied_below=applied_below,
            lease=lease,
            outbox=outbox,
            journal=Journal(settings.proxy, settings.site, clock),
            cluster=ClusterView(settings.proxy, settings.site),
            sessions=SessionTable(lease),
            interest=Interest(settings.proxy, lease, state, outbox),
        )

    @property
    def proxy(self) -> ProxyId:
        """The name of this proxy."""
        return self.settings.proxy

    @property
    def rereading(self) -> bool:
        """Whether the log is still read again up to `applied_below`: the site's state is older than the sessions."""
        return self.state.position < self.applied_below

    def begin(self, incarnation: Incarnation) -> None:
        """Begin an incarnation, as a new writer of the journal. The present one again changes nothing."""
        if incarnation != self.lease.incarnation:
            self.lease.incarnation = incarnation
            self.journal.begin(incarnation)

    def frontier(self, session: Session) -> dict[Origin, int]:
        """Return the frontier up to which the session has taken what it matched."""
        return session.frontier(self.state.frontier)

    def reached(self, session: Session) -> dict[Origin, int]:
        """Return the frontier above which every notification is new to the session.

        It joins what the site log has brought here, what the session has taken, and what each receiver reported.
        """
        reached = dict(self.state.frontier)
        join(reached, self.frontier(session))
        for receiver in session.receivers.values():
            join(reached, receiver.known)
        return reached

    def known(self, frontier: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the part of a client's frontier that is of origins known here: nothing of others was sent here."""
        return {origin: upto for origin, upto in frontier.items() if origin in self.state.frontier}

    def take_effects(self) -> list[Effect]:
        """Return the effects since the last call, in order; the journal's facts come last."""
        self.journal.flush(self.outbox)
        return self.outbox.drain()
