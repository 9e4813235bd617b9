"""What a link forwards on one core, how many bytes that takes, and how many filters a federation keeps.

Both ends are the machines that proxies run, with the frames of proxies and the records of a log between them; what is
not here is sockets and disks. The filters of a federation are those of 16 sites in a tree, each with its own interests.
"""

from __future__ import annotations

import random
import time
from contextlib import nullcontext

import msgspec

from bench.measurement import Row
from chaos.experiments.hierarchy import Federation, Hierarchy, nothing_covers
from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords, Elect, FindEnd, ReadLog, SendNeighbour
from federation.links.forwarding_filter import Position
from federation.links.link_receiver import LinkReceiver
from federation.links.link_sender import LinkSender
from federation.links.neighbour_proxies import NeighbourProxies
from federation.links.output import LinkOutput
from federation.messages import LeaseRequest, LinkAppended, LinkOpen, LinkRecords, LinkWants
from federation.ports import ProxyRow, ProxyUp
from federation.site.acceptance import Acceptance
from federation.site.state import SiteState
from node.peers.peers import decode_peer_message
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId
from waypost.notification import Notification
from waypost.records import FiltersRequested, InterestRegistered, LinkLed, Published, decode_record, encode_record

A, B = SiteId("A"), SiteId("B")
A1, B1 = ProxyId("a1"), ProxyId("b1")
COUNT = 40_000
KINDS = 100
REPEATS = 5
SITES = 16
DISTINCT = 10_000


def run() -> list[Row]:
    """Measure the rate and the bytes of a link, then the filters of a federation."""
    everything = [_Link("require(kind)").forward() for _ in range(REPEATS)]
    selective = [_Link("kind == 7").forward() for _ in range(REPEATS)]
    wanted = COUNT // KINDS
    return [
        Row("link, all wanted", "notifications/s", tuple(COUNT / seconds for seconds, _ in everything), ">= 40,000"),
        Row("link, 1% wanted, records read", "notifications/s", tuple(COUNT / seconds for seconds, _ in selective)),
        Row("bytes over the link for a wanted one, all sent", "bytes", tuple(size / wanted for _, size in everything)),
        Row("the same, filtered", "bytes", tuple(size / wanted for _, size in selective)),
        *_filters(),
    ]


class _Link:
    """A link from A, whose log has everything from the beginning, to B."""

    def __init__(self, wanted: str) -> None:
        self._near, self._far = SiteState(A, (B,)), SiteState(B, (A,))
        self._log: list[bytes] = []
        request = FiltersRequested(B, 1, 0, {wanted: 0})
        self._near.fold(0, request)
        self._log.append(encode_record(request))
        for number in range(1, COUNT + 1):
            body = Notification({"kind": number % KINDS, "text": "x" * 150}).body
            record = Published(producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=0, body=body)
            self._near.fold(number, record)
            self._log.append(encode_record(record))
        self._far_log: list[bytes] = []
        interest = InterestRegistered(B1, Incarnation("1"), SessionId("s"), (wanted,))
        self._appended([interest])
        proxies = NeighbourProxies()
        proxies.reported(ProxyUp(ProxyRow(proxy=A1, incarnation=Incarnation("1"), site=A, url="")))
        self._out, self._in = LinkOutput(), LinkOutput()
        self._receiver = LinkReceiver(A, self._far, proxies, random.Random(1), self._in, LinkBounds())
        self._sender: LinkSender | None = None
        self.size = 0

    def forward(self) -> tuple[float, int]:
        """Forward the whole log; return the seconds of it, and the bytes of all messages."""
        self._receiver.lease_granted(0)
        while self._sender is None:
            self._perform_far()
        began = time.perf_counter()
        self._sender.begin(Position(0, Acceptance(A)), 0)
        while self._perform_near() or self._perform_far():
            pass
        seconds = time.perf_counter() - began
        assert self._far.frontier.get(self._near.origin, 0) >= COUNT - KINDS
        return seconds, self.size

    def _appended(self, records: list[object]) -> list[int]:
        first = len(self._far_log)
        self._far_log += [encode_record(record) for record in records]  # type: ignore[arg-type]
        for offset, data in enumerate(self._far_log[first:], first):
            record = decode_record(data)
            self._far.fold(offset, record)
            if isinstance(record, LinkLed):
                self._receiver.named(record, 0)
        return list(range(first, len(self._far_log)))

    def _perform_far(self) -> bool:
        effects = self._in.drain_effects()
        for effect in effects:
            match effect:
                case Elect():
                    effect.on_done(1, 0)
                case FindEnd():
                    effect.on_done(len(self._far_log), 0)
                case AppendRecords():
                    effect.on_done(self._appended(list(effect.records)), 0)
                    self._receiver.folded(0)
                case SendNeighbour(message=message):
                    self._to_near(decode_peer_message(msgspec.msgpack.encode(message)))
                case _:
                    raise AssertionError(effect)
        return bool(effects)

    def _to_near(self, message: object) -> None:
        match message:
            case LinkOpen():
                self._sender = LinkSender(B1, message, self._near, self._out, LinkBounds())
                self._sender.answer(message.serial, 0, is_applied=True)
            case LinkAppended():
                assert self._sender is not None
                self._sender.appended(message.count, 0)
            case LinkWants() | LeaseRequest():
                pass
            case _:
                raise AssertionError(message)

    def _perform_near(self) -> bool:
        effects = self._out.drain_effects()
        for effect in effects:
            match effect:
                case ReadLog(offset=offset, limit=limit):
                    read = self._log[offset : offset + limit]
                    effect.on_done([(offset + at, decode_record(data)) for at, data in enumerate(read)], 0)
                case SendNeighbour(message=message):
                    frame = msgspec.msgpack.encode(message)
                    self.size += len(frame)
                    received = decode_peer_message(frame)
                    assert isinstance(received, LinkRecords)
                    self._receiver.receive(A1, received, 0)
                case _:
                    raise AssertionError(effect)
        if not effects and self._sender is not None and self._sender.next_deadline() == 0:
            self._sender.tick(0)
            return True
        return bool(effects)


# ------------------------------------------------------------ filters of a federation


def _filters() -> list[Row]:
    rows = []
    for name, switch in (("covering", nullcontext), ("every one requested", nothing_covers)):
        with switch():
            began = time.perf_counter()
            federation = Federation(Hierarchy(sites=SITES, below=3))
            _subscribe(federation, DISTINCT)
            seconds = time.perf_counter() - began
        installed = [len(filters.filters) for site in federation.states for filters in site.neighbour_filters.values()]
        what = f"{DISTINCT:,} subscriptions at {SITES} sites, {name}"
        rows += [
            Row(f"{what}: filters at all sites", "filters", (float(sum(installed)),)),
            Row(f"{what}: at the fullest end of a link", "filters", (float(max(installed)),)),
            Row(f"{what}: requests", "records", (float(federation.requests),), note=f"{seconds:.1f} s for all folds"),
        ]
    return rows


def _subscribe(federation: Federation, count: int) -> None:
    """Have sessions at random sites want so many distinct expressions, each in its turn."""
    rng = random.Random(1)
    for text in _expressions(rng, count):
        site = rng.randrange(SITES)
        federation.register(site, text, is_wanted=True)
        federation.exchange([site])


def _expressions(rng: random.Random, count: int) -> list[str]:
    """Return distinct expressions as a plant has them: of one device, of a line, of a hall, above a level."""
    found: dict[str, None] = {}
    while len(found) < count:
        hall, line, device = rng.randrange(20), rng.randrange(20), rng.randrange(50)
        one = f'device == "hall{hall}/line{line}/device{device}"'
        found[
            rng.choices(
                [
                    one,
                    f"{one} && level > {rng.randrange(10)}",
                    f'begins-with(device, "hall{hall}/line{line}/")',
                    f'begins-with(device, "hall{hall}/") && level > {rng.randrange(10)}',
                ],
                [45, 45, 8, 2],
            )[0]
        ] = None
    return list(found)
