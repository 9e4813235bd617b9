"""The connection manager of a client: one connection at a time, to the proxy that serves it. Pure: no I/O, no clock.

A connection that ends is followed by another one: at the address of a redirect or move, or else at the one where the
client was let in last, or else at the next known one, after a pause with full jitter. The connector also follows the
protocol's events: a redirect, the time to attach again, the time to publish again. A roaming client (roaming.py)
measures round trips before it connects, and again while it is connected.

The asyncio shell (waypost/client/transport.py) and the simulator perform the effects; neither decides anything.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from waypost.client.address import may_follow
from waypost.client.events import ClientEvent, NearerProxy, PublishFailed, Redirected, Refusal, Retry, WrongFederation
from waypost.client.protocol import ClientProtocol
from waypost.client.roaming import UNANSWERED_MS, ProxyChooser, Roaming, of_one_federation
from waypost.clock import NEVER, full_jitter_ms
from waypost.errors import Altered, BadConfiguration
from waypost.messages import Attached, Deliver, Proxies, ProxyAddress, ProxyMessage, WaitCause, Welcome

LONGEST_WAIT_MS = 2_000
"""The longest pause between two attaches to a session that is not served at the moment."""
FIRST_MEASURE_MS = 1_000
"""Time from when a roaming client is let in to its first measurement, in ms; it knows the other proxies by then."""
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
    MEASURING = auto()
    OPENING = auto()
    CONNECTED = auto()
    CLOSING = auto()
    PAUSING = auto()


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Start:
    """Input: connect, and stay connected."""


@dataclass(frozen=True, slots=True)
class Found:
    """Input, an answer to Find: proxies were found.

    Args:
        proxies: at least one; the best is the first.
        search: the number of the :class:`Find` that this answers; None: the last one.
    """

    proxies: Sequence[ProxyAddress]
    search: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """Input, the answer to Measure.

    Args:
        number: of the :class:`Measure` that this answers.
        round_trips: by address, in milliseconds; those are missing that have not answered.
    """

    number: int
    round_trips: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Opened:
    """Input, an answer to Open: the connection is open."""


@dataclass(frozen=True, slots=True)
class Received:
    """Input: the proxy has sent a message.

    Args:
        message: the decoded message.
    """

    message: ProxyMessage


@dataclass(frozen=True, slots=True)
class Lost:
    """Input, an answer to Find, Open and Close: the connection has ended or could not be opened, or no proxy was found.

    Args:
        reason: for people.
        misconfigured: the configuration that has to change before this address can be of use; None: none has, as far as
            is known.
        search: the number of the :class:`Find` that this answers; None: it answers none, or the last one.
    """

    reason: str
    misconfigured: BadConfiguration | None = None
    search: int | None = None


@dataclass(frozen=True, slots=True)
class MoveTo:
    """Input: the application, or a redirect, names another proxy; connect to it from now on.

    Args:
        url: its address, ``ws://host:port`` or ``wss://host:port``.
    """

    url: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Input: disconnect, and do not connect any more."""


Input = Start | Found | Measured | Opened | Received | Lost | MoveTo | Stop

# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class Find:
    """Effect: find proxies; answered with Found or Lost.

    Args:
        search: the number of this question; the answer has it too.
    """

    search: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Measure:
    """Effect: measure the round trips to proxies; answered with Measured.

    Args:
        number: of this question; the answer has it too.
        addresses: of the proxies.
    """

    number: int
    addresses: Sequence[str]


@dataclass(frozen=True, slots=True)
class Open:
    """Effect: open a connection; answered with Opened, and Lost when it has ended, or with Lost alone.

    Args:
        url: the proxy's address.
    """

    url: str


@dataclass(frozen=True, slots=True)
class Close:
    """Effect: end the connection; answered with Lost.

    Args:
        altered: in words, how a received notification differs from the published one; "": nothing is wrong.
    """

    altered: str = ""


@dataclass(frozen=True, slots=True)
class SendPending:
    """Effect, without an answer: send the messages that the client's protocol has ready."""


@dataclass(frozen=True, slots=True)
class Report:
    """Effect, without an answer: report an event to the application.

    Args:
        event: the event.
    """

    event: ClientEvent


Effect = Find | Measure | Open | Close | SendPending | Report


class Connector:
    """Keeps a client connected until it is stopped.

    Args:
        protocol: the client's; only the connector may pass connections and messages to it.
        addresses: of proxies; empty: they are found.
        rng: for the jitter of pauses.
        roaming: the policy of a client that chooses the nearest proxy; None: it uses its addresses in their order.
    """

    def __init__(
        self, protocol: ClientProtocol, addresses: Sequence[str], rng: random.Random, roaming: Roaming | None = None
    ) -> None:
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
        self._alterations = 0
        """Altered notifications received, since one was not."""
        self._waits = 0
        """Retries that proxies asked for since the client was attached last."""
        self._in_vain_since_ms: int | None = None
        """The time at which the present proxy asked for the first of them; None: it has not."""
        self._unusable: dict[str, int] = {}
        """Addresses at which the client's configuration is wrong, as long as none was of use -> since when."""
        self._was_opened = False
        self._left_because = ""
        """The reason why the client leaves the present connection; "": it does not."""
        self._is_greeted = self._is_let_in = False
        """Whether a proxy has answered the hello of the present connection; and whether the client was let in there."""
        self._search = 0
        """The number of the last Find: an answer to an earlier one comes too late."""
        self._measure_number = 0
        """The number of the last Measure: an answer to an earlier one comes too late."""
        self.roaming = roaming
        self.chooser = ProxyChooser(roaming, addresses) if roaming is not None else None
        self._open_at = self._attach_at = self._publish_at = self._measure_at = NEVER

    def step(self, input: Input, now_ms: int) -> list[Effect]:
        """Handle one input; return the effects, to be performed in order. An input that does not fit the present state
        has no effect, with two exceptions. A Lost ends what the connector has, so it must be that of the present
        connection; one of an earlier search has no effect. And an Opened after the connector has begun to close, or was
        stopped, is answered by Close.

        Args:
            input: what happened.
            now_ms: of the caller's clock, the same as for :meth:`tick`.
        """
        state = self.state
        match input:
            case Start() if state is ConnectorState.STOPPED:
                return self._open_next(now_ms)
            case Found(proxies=proxies, search=search) if state is ConnectorState.FINDING:
                return self._found(proxies, now_ms) if search in (None, self._search) else []
            case Measured(number=number, round_trips=round_trips) if number == self._measure_number:
                if state is ConnectorState.MEASURING:
                    return self._open_best(round_trips, now_ms)
                if state is ConnectorState.CONNECTED:
                    return self._move_nearer(round_trips, now_ms)
            case Opened() if state is ConnectorState.OPENING:
                self.state, self.trouble, self._was_opened = ConnectorState.CONNECTED, "", True
                self._protocol.connected()
                return [SendPending()]
            case Opened() if state in (ConnectorState.CLOSING, ConnectorState.STOPPED):
                return [Close()]
            case Received(message=message) if state is ConnectorState.CONNECTED:
                return self._received(message, now_ms)
            case Lost(search=int() as search) if (state, search) != (ConnectorState.FINDING, self._search):
                # The client has gone somewhere without what that search would have found.
                return []
            case Lost():
                return self._lost(input, now_ms)
            case MoveTo(url=url):
                return self._move(url, now_ms)
            case Stop():
                self.state = ConnectorState.STOPPED
                self._open_at = self._attach_at = self._publish_at = self._measure_at = NEVER
                return [Close()] if state in (ConnectorState.OPENING, ConnectorState.CONNECTED) else []
            case _:
                pass
        return []

    def tick(self, now_ms: int) -> list[Effect]:
        """Do what is due at `now_ms`, and return the effects. Call it at :meth:`next_deadline`."""
        if now_ms >= self._open_at:
            self._open_at = NEVER
            return self._open_next(now_ms)
        if now_ms < self.next_deadline():
            return []
        effects: list[Effect] = []
        if now_ms >= self._measure_at and self.chooser is not None:
            # The next time is set by the answer: one measurement is under way at a time.
            self._measure_at = NEVER
            if self.state is ConnectorState.CONNECTED:
                self._protocol.list_proxies()
                effects.append(self._measure(self._url))
        if now_ms >= self._publish_at:
            self._publish_at = NEVER
            self._protocol.publish_again()
        if now_ms >= self._attach_at:
            self._attach_at = NEVER
            self._protocol.attach_again()
        return [*effects, SendPending()]

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the caller's clock; NEVER: nothing."""
        return min(self._open_at, self._attach_at, self._publish_at, self._measure_at)

    # ------------------------------------------------------------ the next address

    def _move(self, url: str, now_ms: int) -> list[Effect]:
        self._next_url, self._entered_url = url, None
        match self.state:
            case ConnectorState.OPENING | ConnectorState.CONNECTED:
                self.state = ConnectorState.CLOSING
                return [Close()]
            case ConnectorState.PAUSING | ConnectorState.FINDING | ConnectorState.MEASURING:
                return self._open_next(now_ms)
            case _:
                pass
        return []

    def _open_next(self, now_ms: int) -> list[Effect]:
        if self._next_url is not None:
            url, self._next_url = self._next_url, None
        elif self._entered_url is not None:
            url, self._entered_url = self._entered_url, None
        elif self.chooser is not None and not self.addresses and self.chooser.avoids_all(now_ms):
            return self._find()
        elif self.chooser is not None and self.chooser.knows_several:
            self.state = ConnectorState.MEASURING
            return [self._measure()]
        elif self.addresses:
            url = self.addresses[self._next_index % len(self.addresses)]
        else:
            return self._find()
        return self._open(url)

    def _find(self) -> list[Effect]:
        self.state = ConnectorState.FINDING
        self._search += 1
        return [Find(self._search)]

    def _measure(self, here: str = "") -> Measure:
        assert self.chooser is not None
        self._measure_number += 1
        return Measure(self._measure_number, self.chooser.to_measure(here))

    def _found(self, proxies: Sequence[ProxyAddress], now_ms: int) -> list[Effect]:
        try:
            proxies = of_one_federation(proxies, self._protocol.federation)
        except BadConfiguration as error:
            return [Report(Refusal(error))]
        if not proxies:
            return self._lost(Lost("no proxy of this federation is known"), now_ms)
        if self.chooser is not None:
            self.chooser.replace_found(proxies)
            self.state = ConnectorState.MEASURING
            return [self._measure()]
        return self._open(proxies[self._next_index % len(proxies)].url)

    def _open_best(self, round_trips: Mapping[str, float], now_ms: int) -> list[Effect]:
        """Open a connection to the best proxy, also where none has answered: the attempt tells why."""
        assert self.chooser is not None
        order = self.chooser.order(round_trips, now_ms)
        return self._open(order[0]) if order else self._find()

    def _move_nearer(self, round_trips: Mapping[str, float], now_ms: int) -> list[Effect]:
        """Move if a nearer proxy is there; not while the client waits to be let in where it is."""
        assert self.chooser is not None and self.roaming is not None
        # Clients that came together do not measure together.
        self._measure_at = now_ms + int(self.roaming.every_s * self._rng.uniform(500, 1_500))
        url = self.chooser.nearer(self._url, round_trips, now_ms) if self._is_let_in else None
        if url is None:
            return []
        near_ms, present_ms = round_trips[url], round_trips.get(self._url, UNANSWERED_MS)
        return [Report(NearerProxy(url, near_ms, present_ms)), *self._move(url, now_ms)]

    def _open(self, url: str) -> list[Effect]:
        if url != self._url:
            self._in_vain_since_ms = None
        self.state, self._url, self._left_because = ConnectorState.OPENING, url, ""
        self._is_let_in = self._is_greeted = False
        self._measure_number += 1
        self._open_at = NEVER
        return [Open(url)]

    def _lost(self, lost: Lost, now_ms: int) -> list[Effect]:
        self._attach_at = self._publish_at = self._measure_at = NEVER
        self._protocol.disconnected()
        if self.state is ConnectorState.STOPPED:
            return []
        if self._next_url is not None:
            return self._open_next(now_ms)
        if not self._is_let_in and not self._left_because and self.state is not ConnectorState.FINDING:
            self._avoid_here(now_ms)
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
        return self._pause(self._left_because or lost.reason, now_ms)

    def _pause(self, reason: str, now_ms: int) -> list[Effect]:
        self._attempts += 1
        self.state, self.trouble = ConnectorState.PAUSING, f": {reason}"
        # A notification that is damaged in the store comes altered each time: the pause grows all the same.
        wait_ms = full_jitter_ms(max(self._attempts, self._alterations), self._rng)
        self._open_at = now_ms + wait_ms
        return [Report(Retry(reason, wait_ms))]

    # ------------------------------------------------------------ messages

    def _received(self, message: ProxyMessage, now_ms: int) -> list[Effect]:
        try:
            self._protocol.message(message)
        except Altered as error:
            self.state = ConnectorState.CLOSING
            self._alterations += 1
            return [Close(error.message)]
        if isinstance(message, Deliver):
            self._alterations = 0
        effects: list[Effect] = []
        for event in self._protocol.take_events():
            effects += self._follow(event, now_ms)
            effects.append(Report(event))
        return [*effects, SendPending()]

    def _follow(self, event: ClientEvent, now_ms: int) -> list[Effect]:
        """React to an event: reconnect to where the session is, or set the time of the next attempt."""
        match event:
            case Redirected():
                if not may_follow(event.url, self._url):
                    return self._leave(f"{self._url} sends us to {event.url}, where we may not go from there", now_ms)
                if not self._is_let_in:
                    self._avoid_here(now_ms)
                return self._move(event.url, now_ms)
            case Retry():
                # The proxy names the least wait; the backoff spares it thousands of attaches if it takes longer.
                longer_ms = full_jitter_ms(self._waits, self._rng, cap_ms=LONGEST_WAIT_MS)
                self._waits += 1
                if self._in_vain_since_ms is None:
                    self._in_vain_since_ms = now_ms
                is_long = now_ms - self._in_vain_since_ms >= WAIT_HERE_MS
                if is_long and event.cause in ELSEWHERE and self._has_others:
                    # The proxy may be cut off from what it needs, and another one not.
                    return self._leave(event.reason, now_ms)
                self._attach_at = now_ms + max(event.after_ms, longer_ms)
            case WrongFederation():
                return self._leave(event.reason, now_ms)
            case PublishFailed():
                self._publish_at = now_ms + full_jitter_ms(event.attempts, self._rng)
            case Attached():
                self._waits, self._in_vain_since_ms = 0, None
                self._enter(now_ms)
            case Welcome(proxy=proxy, site=site):
                # A later one is that of the session's owner, to which this proxy relays the client.
                is_first, self._is_greeted = not self._is_greeted, True
                if self.chooser is not None and is_first:
                    self.chooser.recognise(self._url, proxy, site)
                    self._protocol.list_proxies()
                if self._protocol.session is None:
                    self._enter(now_ms)
            case Proxies(proxies=proxies) if self.chooser is not None:
                self.chooser.replace_named(proxies, self._url)
        return []

    def _enter(self, now_ms: int) -> None:
        """Note that the client is let in where it is."""
        if self.chooser is not None:
            self.chooser.on_entered(self._url, now_ms)
            if not self._is_let_in:
                self._measure_at = now_ms + FIRST_MEASURE_MS
        self._attempts, self._entered_url, self._is_let_in = 0, self._url, True

    @property
    def _has_others(self) -> bool:
        """Whether the client may be let in elsewhere."""
        return len(self.addresses) != 1 or (self.chooser is not None and self.chooser.knows_several)

    def _avoid_here(self, now_ms: int) -> None:
        if self.chooser is not None:
            self.chooser.on_refused(self._url, now_ms)

    def _leave(self, reason: str, now_ms: int) -> list[Effect]:
        """Go to the next address, because this one is of no use to the client."""
        self._avoid_here(now_ms)
        self._waits, self._in_vain_since_ms, self._entered_url = 0, None, None
        self.state = ConnectorState.CLOSING
        self._left_because = reason
        return [Close()]
