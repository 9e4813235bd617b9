"""Handovers as this proxy takes part in them, in both roles."""

from __future__ import annotations

from handover.messages import Aborted, ChunkStored, HandoverOffer, Prepare, Ready, ToSource, ToTarget
from proxy.core.context import Context
from proxy.core.events import AcquireRequest
from proxy.core.transfer_record import TransferView
from proxy.ownership.incoming_transfers import IncomingTransfers
from proxy.ownership.outgoing_transfers import OutgoingTransfers
from proxy.ownership.registry_memory import RegistryMemory
from proxy.ownership.served_sessions import ServedSessions
from proxy.stream.coverage import Coverage
from proxy.stream.persister import Persister
from waypost.clock import NEVER
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL


class Transfers:
    """All running transfers of this proxy."""

    def __init__(
        self,
        context: Context,
        persister: Persister,
        coverage: Coverage,
        served: ServedSessions,
        memory: RegistryMemory,
    ) -> None:
        self._context = context
        self.sources = OutgoingTransfers(context, served, memory)
        self.targets = IncomingTransfers(context, persister, coverage, served)

    def peer_message(self, sender: ProxyId, message: ToSource | ToTarget) -> None:
        """Take a message of a handover from another proxy."""
        if isinstance(message, Prepare | ChunkStored | Ready | Aborted):
            self.sources.message(sender, message)
        else:
            self.targets.message(sender, message)
        self.moved()

    def fetch(self, session: SessionId, owner: Ownership, request: AcquireRequest) -> None:
        """Begin to take a session from its live owner, because it is wanted here."""
        self.targets.fetch(session, owner, request)

    def offered(self, sender: ProxyId, offer: HandoverOffer) -> None:
        """A proxy that is to give a session away offers it to us. The watch may be behind what it says, never ahead."""
        known = self._context.cluster.owners.get(offer.session)
        if known is not None and (known.epoch, known.proxy) != (offer.epoch, sender) and known.epoch >= offer.epoch:
            detail = f"Offer of session {offer.session}, epoch {offer.epoch}"
            self._context.refused.note("wrong epoch", sender, detail[:REFUSAL_DETAIL])
            return
        self.targets.fetch(offer.session, Ownership(sender, offer.epoch), AcquireRequest(), offer.reason)

    def shown(self) -> list[TransferView]:
        """Return the transfers that run and those that ended lately."""
        return sorted([*self.sources.shown(), *self.targets.shown()], key=lambda view: -view.began_at_ms)

    def cancel(self, session: SessionId) -> None:
        """A receiver is back here: the session stays, if it is not frozen yet."""
        self.sources.cancel(session)

    def moved(self) -> None:
        """The log moved, or time went on."""
        self.sources.moved()
        self.targets.moved()

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """The registry reports the owner of a session."""
        self.sources.owner_changed(session, current)
        self.targets.owner_changed(session, current)

    def proxy_down(self, proxy: ProxyId) -> None:
        """The lease of a proxy has ended."""
        self.sources.proxy_down(proxy)
        self.targets.proxy_down(proxy)

    def fence(self) -> None:
        """Our lease may have ended."""
        self.sources.fence()
        self.targets.fence()

    def tick(self) -> None:
        """Do what is due in both roles."""
        self.sources.tick()
        self.targets.tick()
        self.moved()

    def next_deadline(self) -> int:
        """When :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        if not self.sources.running and self.targets.idle:
            return NEVER
        return min(self.sources.next_deadline(), self.targets.next_deadline())
