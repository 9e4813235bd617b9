"""A receiver may attach at any proxy; where its session stays, because others are attached at its owner, it is relayed.

The near proxy passes what the client says of its session to the owner, and what the owner answers to the client. Both
ways messages are numbered from 1. What comes out of order waits a moment; what does not come at all, or a silence, ends
the relay, and the client attaches again: nothing is lost by it, because the receiver's cursor is the owner's.

What another proxy says wrong is refused by name and counted; what is late, of a relay that has ended, is not wrong.
"""

from __future__ import annotations

from itertools import chain
from typing import assert_never

from handover.messages import RelayDown, RelayEnd, RelayMessage, RelayUp
from proxy.clients.relay_channel import EndedRelays
from proxy.clients.relay_far import FarRelays
from proxy.clients.relay_near import NearRelays
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.identity import Incarnation, ProxyId


class Relays:
    """Both ends of all relays of this proxy: `near`, of clients here, and `far`, of sessions here."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        ended = EndedRelays(self._output.refused)
        self.near = NearRelays(env, output, ended)
        self.far = FarRelays(env, output, ended)

    def early(self) -> list[int]:
        """Return the number of messages that wait for a missing one, for each relay."""
        return [len(channel.early) for channel in chain(self.near.channels(), self.far.channels())]

    def peer_message(self, sender: ProxyId, message: RelayMessage) -> None:
        """Take a message of a relay from another proxy; a wrong one is refused, and counted but for one of a relay that
        has ended lately.
        """
        match message:
            case RelayUp():
                self.far.up(sender, message)
            case RelayDown():
                self.near.down(sender, message)
            case RelayEnd(by_owner=True):
                self.near.close(sender, message)
            case RelayEnd():
                self.far.close(sender, message)
            case _:
                assert_never(message)

    def proxy_gone(self, proxy: ProxyId, incarnation: Incarnation) -> None:
        """End the relays to a proxy whose lease has ended, and those from the incarnation of it that held the lease."""
        self.near.owner_gone(proxy)
        self.far.incarnation_ended(proxy, incarnation)

    def fence(self) -> None:
        """End all relays at both ends, and tell clients here to attach again: our lease may have ended."""
        self.near.fence()
        self.far.fence()

    def tick(self) -> None:
        """End relays of clients here whose owner is silent for too long; send signs of life for sessions here."""
        now = self._env.time.now_ms
        self.near.tick(now)
        self.far.tick(now)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return min(self.near.next_deadline(), self.far.next_deadline())
