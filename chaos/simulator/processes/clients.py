"""A client in the world: the real protocol, one wire at a time, and a will to be attached somewhere."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import assert_never

import msgspec

from chaos.simulator.environment.environment import Environment, Policy, Process, proxy_at, url_of
from chaos.simulator.environment.rights import Grants
from chaos.simulator.environment.secrets import OPEN, Secrets
from chaos.simulator.environment.subscription_names import PublishedBefore
from proxy.core.inputs import ClientConnected, ClientDisconnected, ClientSent
from waypost.checkpoint import Checkpoint, Rank
from waypost.client.connector import (
    Close,
    Connector,
    Effect,
    Find,
    Found,
    Input,
    Lost,
    Measure,
    Measured,
    MoveTo,
    Open,
    Opened,
    Received,
    Report,
    SendPending,
    Start,
    Stop,
)
from waypost.client.delivery_state import ReceiverState
from waypost.client.events import (
    ClientEvent,
    Redirected,
    Refusal,
    RequestKind,
    RequestResult,
    Retry,
    SubscriptionResult,
)
from waypost.client.options import AttachOptions
from waypost.client.protocol import ClientProtocol
from waypost.client.publish_buffer import Published
from waypost.clock import NEVER
from waypost.errors import Forbidden, ReceiverTaken, Refused, SessionDeleted, WrongVersion
from waypost.frames import decode_client_message, decode_proxy_message, encode_message
from waypost.frontier import Selective, join
from waypost.identity import (
    GENERATION,
    NOTHING,
    Coordinate,
    Incarnation,
    NotificationId,
    Origin,
    ReceiverId,
    SessionId,
    SubscriptionId,
    origin_of,
)
from waypost.messages import (
    VERSION,
    Attached,
    BecameEffective,
    ClientMessage,
    Credential,
    Deleted,
    DeliverEncoded,
    Gap,
    Hello,
    ProxyAddress,
    WaitCause,
)
from waypost.notification import Notification, read_body
from waypost.queue import PRIORITY, goes_by_attributes

PRIORITIES = 3
"""A notification's priority is what its number leaves over when it is divided by this."""
BEYOND_LOGS = 1_000_000
"""An offset that no log of a schedule comes to."""
HONEST = ("STORE_FAILED", "LOG_UNAVAILABLE")
"""A write that failed may be told as it is: the client knows that it may try again."""
STORED_MS = range(250, 4_000, 250)
"""Times after the loss of a delivery state at which the session's checkpoints are looked at, in ms."""
LISTS = ("all", "one", "none")
"""The proxies that a client of a schedule is given: all; where it is told to be; none, and it finds them."""
POLL_MS, LONG_POLL_MS = 4, 200
"""Time for one notification, in ms, of a client that takes one at a time; and where it is to be overtaken by what comes
meanwhile."""


def _named(message: msgspec.Struct | msgspec.Raw) -> str:
    """Return the name of a message, also of one that is encoded ahead."""
    return "Deliver" if isinstance(message, DeliverEncoded) else type(message).__name__


@dataclass(slots=True, kw_only=True)
class Run:
    """One run of a client's program, from its start to the loss of its delivery state.

    Args:
        first: the index of the first notification that it was given, in :attr:`Client.delivered`.
        epoch: of the session as the run before ended.
        before: the rank of the session's last checkpoint then.
        frontier: up to which the receiver had acknowledged all then, which the owner had heard, and knew to exist.
        selective: the coordinates above that frontier which it had acknowledged.
        is_let_in: whether a proxy has let the run in.
        is_stored: whether the owner's last checkpoint had this already, or the owner wrote another one before the run
            was let in. No proxy may give again then what the receiver had acknowledged.
        deleted_at: the index of the first notification that it was given after its session was deleted, with all that
            was known of its receivers; None: the session was not deleted.
    """

    first: int = 0
    epoch: int = 0
    before: Rank = (0, 0)
    frontier: dict[Origin, int] = field(default_factory=dict)
    selective: Selective = field(default_factory=Selective)
    is_let_in: bool = False
    is_stored: bool = False
    deleted_at: int | None = None

    def must_not_have(self, index: int, at: Coordinate) -> bool:
        """Tell whether the service knew, before this run, that the receiver had the notification at a coordinate, and
        must not give it again.

        Args:
            index: of what it is given, in :attr:`Client.delivered`.
            at: the coordinate.
        """
        if not self.is_stored or (self.deleted_at is not None and index >= self.deleted_at):
            return False
        return at.offset <= self.frontier.get(at.origin, NOTHING) or self.selective.has(*at)


class Wire:
    """One connection of a client: in order both ways, gone at once when an end goes."""

    def __init__(self, world: Environment, number: int, client: Client, node: Process) -> None:
        self.world = world
        self.number = number
        self.client = client
        self.node = node
        self.open = True
        self.under_way = 0
        """The number of messages that are on their way to the proxy."""
        self._due = {"up": 0, "down": 0}

    def to_client(self, message: msgspec.Struct | msgspec.Raw) -> None:
        """Carry a message of the proxy to the client, behind all earlier ones; lost if the connection ends before."""
        data = encode_message(message)
        self._carry("down", _named(message), lambda: self.client.receive(self, data))

    def to_proxy(self, message: msgspec.Struct) -> None:
        """Carry a message of the client to the proxy, behind all earlier ones; lost if the connection ends before."""
        if isinstance(message, Hello):
            message = Hello(self.client.version, message.client)
        sent = decode_client_message(encode_message(message))
        self.under_way += 1
        self._carry("up", _named(sent), lambda: self._arrive(sent))

    def _arrive(self, message: ClientMessage) -> None:
        self.under_way -= 1
        self.node.step(ClientSent(self.number, message))

    def _carry(self, direction: str, kind: str, arrive: Callable[[], None]) -> None:
        now = self.world.clock.now_ms()
        self._due[direction] = max(self._due[direction], now + self.world.delay())
        client, proxy = self.client.name, self.node.proxy
        sender, to = (client, proxy) if direction == "up" else (proxy, client)
        self.world.carries(sender, to, kind, self._due[direction] - now)
        self.world.later(self._due[direction] - now, lambda: arrive() if self.open else None)

    def close(self) -> None:
        """End the connection at both ends now; what is on its way is lost."""
        lost, self.open = self.open, False
        self._deliver_to_proxy()
        if lost:
            self.client.cut_off(self)

    def tear(self, after_ms: int) -> None:
        """Lose the connection and all messages on it; the client learns of that now, the proxy in `after_ms` ms."""
        self.open = False
        self.world.later(after_ms, self._deliver_to_proxy)
        self.client.cut_off(self)

    def hang_up(self) -> None:
        """End the connection at the proxy now, and at the client behind all messages that are on their way there."""
        self._deliver_to_proxy()
        self._carry("down", "hangs up", self.close)

    def _deliver_to_proxy(self) -> None:
        if self.node.wires.pop(self.number, None) is not None:
            self.node.step(ClientDisconnected(self.number))


class Client:
    """A receiver of a session, or with no session a producer. It follows its session by itself."""

    def __init__(
        self,
        world: Environment,
        name: str,
        session: str | None,
        options: AttachOptions,
        credential: Credential | None = None,
        *,
        receiver: str = "",
        version: int = VERSION,
        poll_interval_ms: int = 0,
        ahead: bool = False,
    ) -> None:
        self.world = world
        self.name = name
        self.session = SessionId(session) if session else None
        self.identity = (session or name, receiver or name)
        """Session and receiver: another client may be another incarnation of it."""
        self.version = version
        self.is_ahead = ahead
        """Whether its state is beyond the ends of all logs, so that nothing is owed to it."""
        self.attached_ms = 0
        """The time at which a proxy let it in last."""
        self.proxy = ""
        self.away = False
        """Whether the client does not want to be connected."""
        self.paused = False
        """Whether the client is connected and reads nothing."""
        self.poll_interval_ms = poll_interval_ms
        """Time for each notification, in ms, after which the client acknowledges it; 0: it takes all that there is."""
        self.runs = [Run()]
        """The runs of its program: another one begins when its delivery state is lost."""
        frontier = dict.fromkeys(map(origin_of, world.logs), BEYOND_LOGS) if ahead else {}
        self.protocol = self._new_protocol(options, credential, frontier)
        self._rng = random.Random(f"connector {world.seed}/{name}")
        self._list = "all" if world.seed is None else self._rng.choice(LISTS)
        self.connector = self._new_connector()
        self._tick_at = NEVER
        self.by_priority = goes_by_attributes(options.order)
        is_held = options.reliability is None or options.reliability.connection == "persistent"
        self.may_expire = options.receiver_expiry_s is not None or not is_held
        if session and options.queue is not None:
            world.queues[session] = options.queue
        self._pausing = False
        self.wire: Wire | None = None
        self.delivered: list[tuple[NotificationId, Coordinate, int]] = []
        self.safe: dict[Coordinate, int] = {}
        """What was acknowledged to this producer: coordinate -> the notification's number."""
        self.numbers: dict[int, int] = {}
        self.requests = world.asked.setdefault(session or name, {})
        """Subscription -> expression, of all that were ever asked for in this session."""
        self.policies: dict[str, Policy] = {}
        self.ended = world.ended.setdefault(session or name, set())
        self.joined: dict[Origin, int] | None = None
        """Where the logs ended when it was first let in: a receiver is owed nothing of what was before."""
        self.open: set[str] = set()
        """Subscriptions whose change has not been answered."""
        self.reused_names: set[str] = set()
        """Those of them whose name was used before."""
        self.promised: dict[str, dict[Origin, int]] = {}
        self.gaps: set[tuple[str, int, int]] = set()
        """Gaps of which the client was told: origin, first and last offset."""
        self.problems: list[str] = []
        self.refused = False
        """Whether the client was refused or disconnected, for it has no right to the session."""
        self.stopped = False
        """Its library has ended: it speaks another version, or another incarnation of its receiver has its place."""
        self.forgotten = False
        """Whether the client leaves for good: nothing is owed to it."""
        self.gone = False
        """Whether the client has left for good and no proxy knows it."""
        self.changing: Grants | None = None
        """The grants that it has asked for and was not answered about."""
        self.wanted: Grants | None = None
        """The settings that the client asked for last."""
        self.unaware = False
        """Its session was deleted, and it has not heard of that."""

    def _new_protocol(
        self, options: AttachOptions, credential: Credential | None, frontier: dict[Origin, int]
    ) -> ClientProtocol:
        return ClientProtocol(
            self.name,
            self.session,
            self.identity[1],
            state=ReceiverState(incarnation=Incarnation(f"{self.name}#{len(self.runs)}"), frontier=frontier),
            options=options,
            credential=credential,
        )

    def _new_connector(self) -> Connector:
        addresses = list(map(url_of, self.world.nodes)) if self._list == "all" else []
        return Connector(self.protocol, addresses, self._rng, self.world.roaming if self.session else None)

    @property
    def credential(self) -> Credential:
        """The credential to attach with."""
        return self.protocol.credential

    # ------------------------------------------------------------ where it is

    def go(self, name: str) -> None:
        """Connect to the proxy of this name, in place of any present connection, and stay connected.

        A client that has left for good stays away. If the proxy does not run, the client tries others.

        Raises:
            KeyError: the world has no such proxy.
        """
        if self.gone:
            return
        # One that has left may not have heard yet that its connection has ended.
        is_there = not self.away and self.wire is not None and self.wire.node.proxy == name
        self.proxy, self.away, self.stopped = name, False, False
        if self._list == "one":
            self.connector.addresses = [url_of(name)]
        if is_there:
            return
        self._step(MoveTo(url_of(name)))
        self._step(Start())

    def leave_for_good(self) -> None:
        """Ask for the receiver to be unregistered, and disconnect once that is answered; further calls do nothing."""
        if not self.forgotten:
            self._trace("leaves for good")
            self.forgotten = True
            self.protocol.forget()
            self._speak()

    def leave(self) -> None:
        """Disconnect, and stay away until :meth:`go`."""
        self.away = True
        self._step(Stop())

    def lose_state(self) -> None:
        """End the program of the client with all that it knew, its delivery state too, and begin another run of it.

        The new run stays away until :meth:`go`, and then subscribes as the earlier one did. Nothing happens to a client
        that leaves or has left for good, whose library has stopped, that waits for the answer to a request, or that has
        not been told that its session was deleted.
        """
        if self.open or self.changing is not None or self.unaware or self.forgotten or self.stopped:
            return
        self._trace("loses its state")
        before = self.protocol
        self.runs.append(self._next_run())
        self.leave()
        self.protocol = self._new_protocol(before.options, before.credential, {})
        self.connector = self._new_connector()
        for name in sorted(self.policies.keys() - self.ended):
            self._subscribe(name)
        for wait_ms in STORED_MS:
            self.world.later(wait_ms, partial(self._look_for_checkpoint, self.runs[-1]))

    def _next_run(self) -> Run:
        """Return a run that begins now, with what the owner of the session must know of the receiver."""
        run, wire = Run(first=len(self.delivered)), self.wire
        engine = wire and wire.node.engine
        session = engine and self.session and engine.sessions.serving(self.session)
        if wire and engine and session and not wire.under_way and self.protocol.attached:
            state, site = self.protocol.state, engine.state.frontier
            # An origin that the owner cannot know counts until the next attach alone (handover rule 30).
            known = join(dict(site), session.frontier(site))
            run.epoch, run.before = session.epoch, self._last_rank()
            run.frontier = {origin: min(upto, known.get(origin, NOTHING)) for origin, upto in state.frontier.items()}
            for origin, offsets in state.selective.rows().items():
                run.selective.add(origin, [offset for offset in offsets if offset <= known.get(origin, NOTHING)])
            run.is_stored = self._is_in_checkpoint(run)
        return run

    def _is_in_checkpoint(self, run: Run) -> bool:
        """Tell whether the owner's last checkpoint has already what the receiver had acknowledged."""
        last = self._last_checkpoint()
        row = last and last.epoch == run.epoch and last.descriptor.receivers.get(ReceiverId(self.identity[1]))
        if not row:
            return False
        has = Selective(row.selective)
        return all(row.frontier.get(origin, NOTHING) >= upto for origin, upto in run.frontier.items()) and all(
            row.frontier.get(origin, NOTHING) >= offset or has.has(origin, offset)
            for origin, offsets in run.selective.rows().items()
            for offset in offsets
        )

    def _last_checkpoint(self) -> Checkpoint | None:
        logs = self.world.changelogs.values()
        found = (checkpoint for log in logs for checkpoint in log.latest(self.session or SessionId("")))
        return max(found, key=lambda checkpoint: checkpoint.rank, default=None)

    def _last_rank(self) -> Rank:
        last = self._last_checkpoint()
        return (0, 0) if last is None else last.rank

    def _look_for_checkpoint(self, run: Run) -> None:
        """Note whether the owner has written a checkpoint since this run began, unless the run was let in."""
        if not run.is_let_in:
            last = self._last_rank()
            run.is_stored = run.is_stored or (last[0] == run.epoch and last > run.before)

    def cut_off(self, wire: Wire) -> None:
        """Note that a connection has broken; if it is the present one, connect anew, unless the client is away."""
        if self.wire is wire:
            self.wire = None
            self._step(Lost("the connection broke"))

    def _step(self, input: Input) -> None:
        self._perform(self.connector.step(input, self.world.clock.now_ms()))

    def _tick(self) -> None:
        if self.connector.next_deadline() <= self.world.clock.now_ms():
            self._perform(self.connector.tick(self.world.clock.now_ms()))

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(url=url):
                    self._open(proxy_at(url))
                case Close():
                    if self.wire is not None:
                        self.wire.close()
                case SendPending():
                    self._speak()
                case Report(event=event):
                    self._react(event)
                case Find():
                    self.world.later(self.world.delay(), self._find)
                case Measure():
                    self.world.later(self.world.delay(), partial(self._measure, effect))
                case _:
                    assert_never(effect)
        now, due = self.world.clock.now_ms(), self.connector.next_deadline()
        if due != NEVER and due != self._tick_at:
            self._tick_at = due
            self.world.later(max(0, due - now), self._tick)

    def _open(self, name: str) -> None:
        self.proxy, self.wire = name, self._connect(name)
        self._step(Opened() if self.wire is not None else Lost("nobody is there"))

    def _find(self) -> None:
        found = [ProxyAddress(url=url_of(node.proxy), proxy=node.proxy) for node in self.world.live_nodes()]
        self._step(Found(found) if found else Lost("no proxy was found"))

    def _measure(self, effect: Measure) -> None:
        live = {url: proxy_at(url) for url in effect.addresses if self.world.nodes[proxy_at(url)].engine is not None}
        found = {url: self.world.round_trip_ms(self.name, proxy) for url, proxy in live.items()}
        self._step(Measured(effect.number, found))

    def _connect(self, name: str) -> Wire | None:
        """Return a connection to the proxy of that name; None: it does not run."""
        node = self.world.nodes[name]
        if node.engine is None:
            return None
        wire = Wire(self.world, self.world.next_connection(), self, node)
        node.wires[wire.number] = wire
        node.step(ClientConnected(wire.number))
        return wire

    def _trace(self, what: str) -> None:
        """Say what this client does, in the trace and in the scenario."""
        self.world.note(f"{self.name} {what}", narrate=True, by=self.name)

    def _speak(self) -> None:
        for message in self.protocol.take_messages():
            if self.wire is not None:
                self.wire.to_proxy(message)

    # ------------------------------------------------------------ what it hears

    def receive(self, wire: Wire, data: bytes) -> None:
        """Take an encoded message of the proxy, and react to it; notifications are read a moment later (:meth:`take`).

        Args:
            wire: the connection that brought the message.
            data: the message.
        """
        message = decode_proxy_message(data)
        self.world.note(f"{self.name} hears {type(message).__name__}")
        self._step(Received(message))
        if self.protocol.waiting and not self._pausing:
            self.world.later(self.world.delay(), self.take)

    def _react(self, event: ClientEvent) -> None:  # noqa: PLR0912 - a dispatch
        match event:
            case Attached():
                self.refused = False
                self._look_for_checkpoint(self.runs[-1])
                self.runs[-1].is_let_in = True
                self.attached_ms = self.world.clock.time_ms
                self.unaware = self.unaware and self._is_of_the_past(event)
                if event.joined and self.joined is not None and self.may_expire:
                    self._trace("has lost its place, and has another")
                    self.joined = self.world.lengths()
                if self.joined is None and not self._is_of_the_past(event):
                    earlier = [
                        client.joined for client in self.world.clients.values() if client.identity == self.identity
                    ]
                    here = self.world.lengths()
                    self.joined = next(filter(None, earlier), here)
            case Retry():
                is_contested = event.cause is WaitCause.RECEIVER_IN_USE
                self.world.note(
                    f"{self.name} has to wait {event.after_ms} ms: {event.reason}", narrate=is_contested, by=self.name
                )
            case Redirected():
                self.proxy = proxy_at(event.url)
            case Published():
                if event.coordinate is not None:
                    self.safe[event.coordinate] = self.numbers[event.sequence]
            case BecameEffective() if event.subscription in self.reused_names:
                # Said of the one before it, which whoever raised the session may not know to have ended.
                pass
            case BecameEffective():
                for origin, above in event.above.items():
                    promised = self.promised.setdefault(event.subscription, {})
                    promised[origin] = min(above, promised.get(origin, above))
            case Gap():
                gap = f"gap {[event.first, event.last]} of {event.origin}"
                self._trace(f"is told of a {gap}")
                self.gaps.add((event.origin, event.first, event.last))
            case SubscriptionResult() if event.error is not None and event.error.code in HONEST:
                self._ask_again(event.subscription)
            case SubscriptionResult(error=SessionDeleted()):
                self.open.discard(event.subscription)
                self.ended.add(event.subscription)
            case SubscriptionResult():
                self.open.discard(event.subscription)
                self.reused_names.discard(event.subscription)
                if event.subscription not in self.ended:
                    # Else it is told that it ended, and by which keys it went until then was not answered.
                    lengths = self.world.lengths()
                    self.world.secrets[self.identity[0], event.subscription].applied(lengths)
                if event.error is not None:
                    self.problems.append(str(event.error))
            case Deleted() | Refusal(error=SessionDeleted()):
                if self.session not in self.world.deletions and not self.world.registry.restored:
                    self.world.violations.append(
                        f"DELETED {self.name} is told so, and nobody has deleted {self.session}"
                    )
                # Its later requests went with it, whatever the answer was.
                self.unaware = False
                self.ended.update(self.policies)
                self.open.difference_update(self.policies)
                self.promised.clear()
                self.world.later(self.world.delay(100), partial(self._attach, self.wire))
            case RequestResult(kind=RequestKind.REGISTRATION):
                self.gone = True
                self.leave()
            case RequestResult(kind=RequestKind.ACCESS):
                self._access_answered(event)
            case Refusal(error=Forbidden()):
                self._trace("is refused")
                self.refused = True
                self.leave()
            case Refusal(error=WrongVersion() | ReceiverTaken()):
                self._trace(f"stops: {event.error}")
                self.stopped = True
                self.leave()
            case Refusal() if self.stopped:
                pass
            case Refusal():
                self.problems.append(str(event.error))
            case _:
                pass

    def _is_of_the_past(self, event: Attached) -> bool:
        """Tell whether the session that it was let into has been deleted since."""
        row = self.world.registry.owner(event.session)
        return row is None or event.epoch // GENERATION < row.epoch // GENERATION

    def _attach(self, wire: Wire | None) -> None:
        if wire is not None and self.wire is wire:
            self.protocol.attach_again()
            self._speak()

    def take(self) -> None:
        """Read the notifications that wait, add them to :attr:`delivered`, and acknowledge them, unless :attr:`paused`.

        With a poll interval one is read and acknowledged, and the next one after that time.
        """
        self._pausing = False
        if self.paused:
            return
        while taken := self.protocol.next_items(1 if self.poll_interval_ms else None):
            for entry, *_ in taken:
                identity = NotificationId(entry.producer, entry.incarnation, entry.sequence)
                number = read_body(entry.body)["n"]
                assert isinstance(number, int)
                self.delivered.append((identity, Coordinate(entry.origin, entry.offset), number))
                self._trace(f"is given {number}")
            if self.poll_interval_ms:
                # In the middle of a delivery, as a rule; whatever comes next may come before the rest is taken.
                self.protocol.acknowledge()
                self._pausing = True
                self.world.later(self.poll_interval_ms, self.take)
                break
        self._speak()

    # ------------------------------------------------------------ what it wants

    def subscribe(
        self,
        subscription: str,
        expression: str,
        ttl_s: int | None = None,
        max_count: int | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        """Ask for a subscription, or for a change of the one of this name, and note what is owed by it.

        The answer takes the name from :attr:`open`; a write that failed is asked for again. The name must not be one
        that has ended, which would still count as ended: :meth:`subscribe_again` takes that.

        Args:
            subscription: its name in the session.
            expression: what it matches.
            ttl_s: how long matching notifications are stored; None: no bound.
            max_count: how many of them are stored at most; None: no bound.
            secrets: by which notifications are let through; None: those that the subscription has, or none.
        """
        policy = self.policies[subscription] = Policy(expression, ttl_s, max_count)
        self.world.policies.setdefault(self.session or self.name, []).append((subscription, policy))
        self.requests[subscription] = expression
        self.open.add(subscription)
        history = self.world.secrets[self.identity[0], subscription]
        # A proxy that raised the session after a crash may not know what another receiver has.
        had = frozenset(coordinate for _, coordinate, _ in self.delivered)
        history.requested(history.last if secrets is None else secrets, had)
        keys, insecure = history.last.subscribed().listed(), history.last.insecure
        self.protocol.subscribe(SubscriptionId(subscription), *policy, keys, insecure=insecure)
        self._speak()

    def subscribe_again(self, subscription: str, expression: str) -> None:
        """Ask for another subscription under the name of one that has ended, of which what was owed is still owed.

        Raises:
            KeyError: there was no subscription of this name.
        """
        first = f"{subscription}'{len(self.requests)}"
        session = self.session or self.name
        self.requests[first] = self.requests[subscription]
        self.ended.add(first)
        self.ended.discard(subscription)
        if subscription in self.promised:
            self.promised[first] = self.promised.pop(subscription)
        self.world.secrets[session, first] = self.world.secrets.pop((session, subscription))
        if (session, subscription) in self.world.published_before:
            self.world.published_before[session, first] = self.world.published_before.pop((session, subscription))
        self.world.reused_names.reuse(session, subscription, first, self.world.facts)
        self.reused_names.add(subscription)
        self.subscribe(subscription, expression)

    def set_access(self, grants: Grants) -> None:
        """Ask for another access of the session, which :attr:`changing` has until that is answered.

        Args:
            grants: principal -> its rights, with a password; empty: the session is open to everybody.

        Raises:
            AssertionError: the client has no session, or a password is None.
        """
        assert self.session is not None
        self.changing = self.wanted = grants
        self.world.rights.access_requested(self.session, grants)
        self.protocol.set_access(dict(grants))
        self._speak()

    def _access_answered(self, event: RequestResult) -> None:
        grants, self.changing = self.changing, None
        assert grants is not None and self.session is not None
        if event.error is None:
            self._trace("has changed who may do what")
            if not self.unaware:
                # Else it was in force in a session that has been deleted since.
                self.world.rights.confirmed(self.session, grants)
        elif isinstance(event.error, SessionDeleted):
            self.world.rights.forget(self.session)
        elif isinstance(event.error, Refused):
            self.problems.append(str(event.error))
        else:
            self.world.later(200, lambda: self.set_access(grants) if self.wanted is grants else None)

    def delete(self) -> None:
        """Ask for the client's session to be deleted; the answer comes later."""
        self.protocol.delete()
        self._speak()

    def reset(self) -> None:
        """Forget all requests of the client, of which nothing is owed any more: its session was deleted.

        It counts as never let in, and as one that has not been told of the deletion. What was noted of the access to
        the session is forgotten too.
        """
        if self.runs[-1].deleted_at is None:
            self.runs[-1].deleted_at = len(self.delivered)
        self.unaware = True
        self.ended.update(self.requests)
        self.promised.clear()
        self.open.clear()
        self.joined = None
        self.world.rights.forget(self.session or "")

    def unsubscribe(self, subscription: str) -> None:
        """Ask for a subscription to end. What was published before, which is still owed, is noted at the first request,
        if the client is connected to a proxy that serves the session.
        """
        is_first = subscription not in self.ended
        self.ended.add(subscription)
        self.open.add(subscription)
        engine = self.wire.node.engine if self.wire else None
        if is_first and engine is not None and self.session is not None and engine.sessions.serving(self.session):
            # Earlier matches are still delivered, whatever the session has read, or is catching up.
            self.world.published_before.setdefault(
                (self.session, subscription), PublishedBefore(self.world.last_offsets(), dict(engine.state.frontier))
            )
        self.protocol.unsubscribe(SubscriptionId(subscription))
        self._speak()

    def _ask_again(self, subscription: SubscriptionId) -> None:
        """What could not be written is answered; whoever asked asks again, as a person would."""
        again = self.unsubscribe if subscription in self.ended else self._subscribe
        self.world.later(200, lambda: again(subscription))

    def _subscribe(self, subscription: str) -> None:
        if subscription not in self.ended:
            self.subscribe(subscription, *self.policies[subscription])

    def publish(self, number: int, secrets: Secrets = OPEN, *, count: int = 1) -> None:
        """Publish notifications with the attribute `n`, and as their priority the remainder of `n` by PRIORITIES.

        :attr:`safe` has the coordinate of each once the proxy has acknowledged it.

        Args:
            number: the attribute of the first one; the others have the numbers behind it, all unused so far in the
                whole world.
            secrets: by which the notifications reach subscriptions.
            count: of the notifications, which go in one frame.
        """
        keys = secrets.published().listed()
        for n in range(number, number + count):
            self.world.keys_of[n] = secrets
            body = Notification({"n": n, PRIORITY: n % PRIORITIES}).body
            self.numbers[self.protocol.publish(body, keys, insecure=secrets.insecure)] = n
        self.protocol.flush()
        self._speak()
