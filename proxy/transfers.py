"""Handovers as this proxy takes part in them, in both roles."""

from __future__ import annotations

from collections.abc import Callable

from handover.messages import Aborted, ChunkStored, Offer, Prepare, Ready, ToSource, ToTarget
from proxy.context import Context
from proxy.course import Shown
from proxy.coverage import Coverage
from proxy.incoming import Targets
from proxy.keeper import Keeper
from proxy.outgoing import Sources
from proxy.ownership import Claims, Wish
from proxy.session import Session
from waypost.clock import NEVER
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL


class Transfers:
    """All running transfers of this proxy.

    Args:
        kept: called when a transfer from here came to nothing and the session is served on.
        follow: called when a session is to be moved to a proxy while it is served here.
        unavailable: called when a session cannot be had now.
        relay: called when a session stays at its home, and who waits for it here is to be relayed.
    """

    def __init__(
        self,
        context: Context,
        keeper: Keeper,
        coverage: Coverage,
        claims: Callable[[], Claims],
        *,
        kept: Callable[[Session], None],
        follow: Callable[[SessionId, ProxyId], None],
        unavailable: Callable[[SessionId, str], None],
        relay: Callable[[SessionId, ProxyId], None],
    ) -> None:
        self._context = context
        self.sources = Sources(context, claims, kept, follow)
        self.targets = Targets(context, keeper, coverage, claims, unavailable, relay)

    def peer_message(self, sender: ProxyId, message: ToSource | ToTarget) -> None:
        if isinstance(message, Prepare | ChunkStored | Ready | Aborted):
            self.sources.message(sender, message)
        else:
            self.targets.message(sender, message)
        self.moved()

    def fetch(self, session: SessionId, owner: Ownership, wish: Wish) -> None:
        """Begin to take a session from its live owner, because it is wanted here."""
        self.targets.fetch(session, owner, wish)

    def offered(self, sender: ProxyId, offer: Offer) -> None:
        """A proxy that is to give a session away offers it to us. The watch may be behind what it says, never ahead."""
        known = self._context.owners.get(offer.session)
        if known is not None and (known.epoch, known.proxy) != (offer.epoch, sender) and known.epoch >= offer.epoch:
            detail = f"Offer of session {offer.session}, epoch {offer.epoch}"
            self._context.refused.note("wrong epoch", sender, detail[:REFUSAL_DETAIL])
            return
        self.targets.fetch(offer.session, Ownership(sender, offer.epoch), Wish(certain=True), offer.reason)

    def shown(self) -> list[Shown]:
        """Return the transfers that run and those that ended lately."""
        return sorted([*self.sources.shown(), *self.targets.shown()], key=lambda each: -each.began_at_ms)

    def moves(self, session: SessionId) -> bool:
        """Tell whether a transfer of the session runs here."""
        return session in self.sources.running or session in self.targets.running

    def cancel(self, session: SessionId) -> None:
        """A receiver is back here: the session stays, if it is not frozen yet."""
        self.sources.cancel(session)

    def moved(self) -> None:
        """The log moved, or time went on."""
        self.sources.moved()
        self.targets.moved()

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        self.sources.owner_changed(session, current)
        self.targets.owner_changed(session, current)

    def proxy_down(self, proxy: ProxyId) -> None:
        self.sources.proxy_down(proxy)
        self.targets.proxy_down(proxy)

    def fence(self) -> None:
        """Our lease may have ended."""
        self.sources.fence()
        self.targets.fence()

    def tick(self) -> None:
        self.sources.tick()
        self.targets.tick()
        self.moved()

    def next_deadline(self) -> int:
        if not self.sources.running and self.targets.idle:
            return NEVER
        return min(self.sources.next_deadline(), self.targets.next_deadline())
