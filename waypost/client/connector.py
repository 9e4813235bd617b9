"""The connection manager of a client: one connection at a time, to the proxy that serves it. Pure: no I/O, no clock.

A connection that ends is followed by another one: at the address of a redirect or move, or else at the one where the
client was let in last, or else at the next known one, after a pause with full jitter. The connector also follows the
protocol's events: a redirect, the time to attach again, the time to publish again.

The asyncio shell (waypost/client/transport.py) and the simulator perform the effects; neither decides anything.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from waypost.client.events import ClientEvent, PublishFailed, Redirected, Refusal, Retry, WrongFederation
from waypost.client.protocol import ClientProtocol
from waypost.clock import NEVER, full_jitter_ms
from waypost.errors import Altered, BadConfiguration
from waypost.messages import Attached, ProxyMessage, WaitCause, Welcome

LONGEST_WAIT_MS = 2_000
"""The longest pause between two attaches to a session that is not served at the moment."""
WAIT_HERE_MS = 10_000
"""Time from the first attach in vain, in ms, before the client tries another proxy: longer than an etcd is without a
leader, which no proxy is spared. A count of attaches would not do: a silent registry makes each take seconds."""
PASSING_MS = 2_000
"""Time for which an address has to be of no use before the client ends, in ms: a gateway that starts answers so."""
ELSEWHERE = (WaitCause.UNAVAILABLE, WaitCause.NO_LEASE, WaitCause.OWNER_SILENT)
"""The causes for which another proxy may serve the session although this one does not."""


class ConnectorState(Enum):
    """The states of a connector, named by what it does or waits for."""

    STOPPED = auto()
    FINDING = auto()
    OPENING = auto()
    CONNECTED = auto()
    CLOSING = auto()
    PAUSING = auto()


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Start:
    """Connect, and stay connected."""


@dataclass(frozen=True, slots=True)
class Found:
    """Addresses of proxies, best first."""

    addresses: Sequence[str]


@dataclass(frozen=True, slots=True)
class Opened:
    """The connection is open."""


@dataclass(frozen=True, slots=True)
class Received:
    """The proxy has sent a message."""

    message: ProxyMessage


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection has ended or could not be opened, or no proxy was found.

    Args:
        reason: for people.
        misconfigured: the configuration that has to change before this address can be of use; None: none has, as far
            as is known.
    """

    reason: str
    misconfigured: BadConfiguration | None = None


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Connect to this address from now on."""

    url: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Disconnect, and do not connect any more."""


Input = Start | Found | Opened | Received | Lost | MoveTo | Stop

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Find:
    """Find proxies; answered with Found or Lost."""


@dataclass(frozen=True, slots=True)
class Open:
    """Open a connection; answered with Opened, and Lost when it has ended, or with Lost alone."""

    url: str


@dataclass(frozen=True, slots=True)
class Close:
    """End the connection; answered with Lost.

    Args:
        altered: in words, how a received notification differs from the published one; "": nothing is wrong.
    """

    altered: str = ""


@dataclass(frozen=True, slots=True)
class SendPending:
    """Send the messages of the client's protocol."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report an event to the application."""

    event: ClientEvent


Effect = Find | Open | Close | SendPending | Report


class Connector:
    """Keeps a client connected until it is stopped.

    Args:
        protocol: the client's; only the connector may pass connections and messages to it.
        addresses: of proxies; empty: they are found.
        rng: for the jitter of pauses.
    """

    def __init__(self, protocol: ClientProtocol, addresses: Sequence[str], rng: random.Random) -> None:
        self.addresses = list(addresses)
        self.state = ConnectorState.STOPPED
        self.trouble = ""
        """The reason why there is no connection, as a suffix of an error message (": ..."); "": there is one."""
        self._protocol = protocol
        self._rng = rng
        self._url = ""
        """The address of the present connection."""
        self._next_url: str | None = None
        """The address to connect to next, before all others."""
        self._entered_url: str | None = None
        """The address where the client was let in last; None: a connection was tried there since."""
        self._next_index = 0
        self._attempts = 0
        """Connections since the client was let in."""
        self._waits = 0
        """Retries that proxies asked for since the client was attached last."""
        self._in_vain_since_ms: int | None = None
        """When the present proxy asked for the first of them; None: it has not."""
        self._unusable: dict[str, int] = {}
        """Addresses at which the client's configuration is wrong, as long as none was of use -> since when."""
        self._was_opened = False
        self._left_because = ""
        """The reason why the client leaves the present connection; "": it does not."""
        self._open_at = self._attach_at = self._publish_at = NEVER

    def step(self, input: Input, now_ms: int) -> list[Effect]:
        """Handle one input; return the effects, to be performed in order. An input that comes too late has no effect.

        Args:
            input: what happened.
            now_ms: of the caller's clock, the same as for :meth:`tick`.
        """
        state = self.state
        match input:
            case Start() if state is ConnectorState.STOPPED:
                return self._open_next()
            case Found(addresses=addresses) if state is ConnectorState.FINDING:
                return self._open(addresses[self._next_index % len(addresses)])
            case Opened() if state is ConnectorState.OPENING:
                self.state, self.trouble, self._was_opened = ConnectorState.CONNECTED, "", True
                self._protocol.connected()
                return [SendPending()]
            case Opened() if state in (ConnectorState.CLOSING, ConnectorState.STOPPED):
                return [Close()]
            case Received(message=message) if state is ConnectorState.CONNECTED:
                return self._received(message, now_ms)
            case Lost():
                return self._lost(input, now_ms)
            case MoveTo(url=url):
                return self._move(url)
            case Stop():
                self.state = ConnectorState.STOPPED
                self._open_at = self._attach_at = self._publish_at = NEVER
                return [Close()] if state in (ConnectorState.OPENING, ConnectorState.CONNECTED) else []
            case _:
                pass
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due at `now_ms`, and return the effects. Call it at :meth:`next_deadline`."""
        if now_ms >= self._open_at:
            self._open_at = NEVER
            return self._open_next()
        if now_ms < min(self._attach_at, self._publish_at):
            return []
        if now_ms >= self._publish_at:
            self._publish_at = NEVER
            self._protocol.publish_again()
        if now_ms >= self._attach_at:
            self._attach_at = NEVER
            self._protocol.attach_again()
        return [SendPending()]

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return min(self._open_at, self._attach_at, self._publish_at)

    # ------------------------------------------------------------ the next address

    def _move(self, url: str) -> list[Effect]:
        self._next_url, self._entered_url = url, None
        match self.state:
            case ConnectorState.OPENING | ConnectorState.CONNECTED:
                self.state = ConnectorState.CLOSING
                return [Close()]
            case ConnectorState.PAUSING:
                return self._open_next()
            case _:
                pass
        return []

    def _open_next(self) -> list[Effect]:
        if self._next_url is not None:
            url, self._next_url = self._next_url, None
        elif self._entered_url is not None:
            url, self._entered_url = self._entered_url, None
        elif self.addresses:
            url = self.addresses[self._next_index % len(self.addresses)]
        else:
            self.state = ConnectorState.FINDING
            return [Find()]
        return self._open(url)

    def _open(self, url: str) -> list[Effect]:
        if url != self._url:
            self._in_vain_since_ms = None
        self.state, self._url, self._left_because = ConnectorState.OPENING, url, ""
        self._open_at = NEVER
        return [Open(url)]

    def _lost(self, lost: Lost, now_ms: int) -> list[Effect]:
        self._attach_at = self._publish_at = NEVER
        self._protocol.disconnected()
        if self.state is ConnectorState.STOPPED:
            return []
        if self._next_url is not None:
            return self._open_next()
        if lost.misconfigured is None:
            self._unusable.pop(self._url, None)
        elif not self._was_opened:
            self._unusable.setdefault(self._url, now_ms)
            since_ms = [self._unusable.get(url, now_ms) for url in self.addresses]
            if since_ms and now_ms >= max(since_ms) + PASSING_MS:
                # Nothing that the client waits for would change that: it is not a gateway that is just starting.
                return [Report(Refusal(lost.misconfigured))]
        if self._entered_url is None:
            self._next_index += 1
        self._attempts += 1
        reason = self._left_because or lost.reason
        self.state, self.trouble = ConnectorState.PAUSING, f": {reason}"
        wait_ms = full_jitter_ms(self._attempts, self._rng)
        self._open_at = now_ms + wait_ms
        return [Report(Retry(reason, wait_ms))]

    # ------------------------------------------------------------ messages

    def _received(self, message: ProxyMessage, now_ms: int) -> list[Effect]:
        try:
            self._protocol.message(message)
        except Altered as error:
            self.state = ConnectorState.CLOSING
            return [Close(error.message)]
        effects: list[Effect] = []
        for event in self._protocol.take_events():
            effects += self._follow(event, now_ms)
            effects.append(Report(event))
        return [*effects, SendPending()]

    def _follow(self, event: ClientEvent, now_ms: int) -> list[Effect]:
        """React to an event: reconnect to where the session is, or set the time of the next attempt."""
        match event:
            case Redirected():
                return self._move(event.url)
            case Retry():
                # The proxy names the least wait; the backoff spares it thousands of attaches if it takes longer.
                longer_ms = full_jitter_ms(self._waits, self._rng, cap_ms=LONGEST_WAIT_MS)
                self._waits += 1
                if self._in_vain_since_ms is None:
                    self._in_vain_since_ms = now_ms
                is_long = now_ms - self._in_vain_since_ms >= WAIT_HERE_MS
                if is_long and event.cause in ELSEWHERE and len(self.addresses) != 1:
                    # The proxy may be cut off from what it needs, and another one not.
                    return self._leave(event.reason)
                self._attach_at = now_ms + max(event.after_ms, longer_ms)
            case WrongFederation():
                return self._leave(event.reason)
            case PublishFailed():
                self._publish_at = now_ms + full_jitter_ms(event.attempts, self._rng)
            case Attached():
                self._attempts = self._waits = 0
                self._in_vain_since_ms = None
                self._entered_url = self._url
            case Welcome() if self._protocol.session is None:
                self._attempts = 0
                self._entered_url = self._url
        return []

    def _leave(self, reason: str) -> list[Effect]:
        """Go to the next address, because this one is of no use to the client."""
        self._waits, self._in_vain_since_ms, self._entered_url = 0, None, None
        self.state = ConnectorState.CLOSING
        self._left_because = reason
        return [Close()]
