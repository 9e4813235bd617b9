"""The handovers in which this proxy takes part, in both roles."""

from __future__ import annotations

from handover.messages import Aborted, ChunkStored, HandoverOffer, Prepare, Ready, ToSource, ToTarget
from proxy.core.environment import Environment
from proxy.core.events import AcquireRequest, FetchRequested
from proxy.core.output import Output
from proxy.core.refusals import Violation
from proxy.core.session_table import SessionTable
from proxy.core.transfer_record import TransferView
from proxy.ownership.incoming_transfers import IncomingTransfers
from proxy.ownership.outgoing_transfers import OutgoingTransfers
from proxy.ownership.served_sessions import ServedSessions
from proxy.stream.stream import Stream
from waypost.clock import NEVER
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL


class Transfers:
    """All running transfers of this proxy: `sources` from here, `targets` to here."""

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        stream: Stream,
        served: ServedSessions,
    ) -> None:
        self._env = env
        self._output = output
        self.sources = OutgoingTransfers(env, sessions, output, served)
        self.targets = IncomingTransfers(env, sessions, output, stream, served)

    def peer_message(self, sender: ProxyId, message: ToSource | ToTarget) -> None:
        """Take a message of a handover from another proxy. A wrong one is refused, and counted but for one of a
        transfer that has ended lately.

        Args:
            sender: the proxy that sent it, which the caller has verified.
            message: the message.
        """
        if isinstance(message, Prepare | ChunkStored | Ready | Aborted):
            self.sources.message(sender, message)
        else:
            self.targets.message(sender, message)
        self.proceed()

    def fetch(self, wanted: FetchRequested) -> None:
        """Begin to take a session over from its live owner; while a transfer of it to here runs, only set its key.

        The result is reported as the event SessionServed, or with the key of `wanted` as RelayRequested or
        TransferFailed: this at once, where a copy of the session is here or no lease holds. If the owner's lease ends
        before the copy is staged, TransferFailed is reported, and SessionRequested asks for a failover. If our own
        lease ends, nothing is reported.
        """
        self.targets.fetch(wanted.session, wanted.owner, wanted.request, key=wanted.key)

    def offered(self, sender: ProxyId, offer: HandoverOffer) -> None:
        """Begin to fetch a session that its owner offers; an offer known to be outdated is refused and counted.

        The result is reported as the event SessionServed, or without a key as RelayRequested or TransferFailed.
        """
        known = self._env.cluster.owners.get(offer.session)
        if known is not None and (known.epoch, known.proxy) != (offer.epoch, sender) and known.epoch >= offer.epoch:
            detail = f"HandoverOffer of session {offer.session}, epoch {offer.epoch}"
            self._output.refused.note(Violation.WRONG_EPOCH, sender, detail[:REFUSAL_DETAIL])
            return
        self.targets.fetch(offer.session, Ownership(sender, offer.epoch), AcquireRequest(), trigger=offer.trigger)

    def views(self) -> list[TransferView]:
        """Return the transfers that run and those that ended lately, the latest first; for operators."""
        return sorted([*self.sources.views(), *self.targets.views()], key=lambda view: -view.began_at_ms)

    def cancel(self, session: SessionId) -> None:
        """Abort the transfer of a session from here, because the receiver that attached at its target is back here.

        Nothing is done if the session is frozen already, or is not handed over for an attach.
        """
        self.sources.cancel(session)

    def proceed(self) -> None:
        """Go on with transfers for which the site log was read far enough, or that have waited for that as long as
        `Timing` says: frontiers have passed the target's coverage, or copies are complete.
        """
        self.sources.proceed()
        self.targets.proceed()

    def owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Apply a session's row to its transfer, if one runs; None: there is no row."""
        self.sources.owner_changed(session, current)
        self.targets.owner_changed(session, current)

    def proxy_down(self, proxy: ProxyId) -> None:
        """End transfers with a proxy whose lease has ended; staged copies that came from it commit, and frozen sessions
        that were to go there are taken back, for which the registry is asked.
        """
        self.sources.proxy_down(proxy)
        self.targets.proxy_down(proxy)

    def fence(self) -> None:
        """End all transfers: our lease may have ended."""
        self.sources.fence()
        self.targets.fence()

    def tick(self) -> None:
        """Step the transfers of both roles with what is due: retries, timeouts, and copies that have waited long
        enough.
        """
        self.sources.tick()
        self.targets.tick()
        self.proceed()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        if not self.sources.running and self.targets.idle:
            return NEVER
        return min(self.sources.next_deadline(), self.targets.next_deadline())
