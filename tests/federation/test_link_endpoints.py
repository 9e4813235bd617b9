"""Both ends of the links of a proxy: which opening counts, what is asked of the log, and links over hostile wires."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import pytest

from federation.links import effects as link_effects
from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords, Ended, FindFirst, LinkEffect, ReadLog, SeenBeyond, SendNeighbour
from federation.links.endpoints import LinkEndpoints
from federation.links.inputs import (
    LinkEffectCompleted,
    LinkInput,
    LinksLeaseGranted,
    LinksLeaseLost,
    NeighbourSent,
    RecordsFolded,
    RegistryChanged,
)
from federation.links.link_sender import UNACKNOWLEDGED_TIMEOUT_MS
from federation.messages import NO_OPENING, LinkAppended, LinkMessage, LinkOpen, LinkRecords, LinkWants
from federation.ports import ProxyRow, ProxyUp
from federation.site.neighbour_filters import digest_of
from federation.site.state import SiteState
from waypost.clock import NEVER
from waypost.errors import BadMessage, HistoryTruncated, LogUnavailable, Refused
from waypost.identity import Incarnation, Origin, ProxyId, SessionId, SiteId
from waypost.keys import OPEN
from waypost.notification import Notification, read_body
from waypost.records import FiltersRequested, Forwarded, InterestRegistered, Published, Record, RequestPart

A, B = SiteId("A"), SiteId("B")
OWN = Origin("A/0")
B1, B2 = ProxyId("b1"), ProxyId("b2")
X, Y = "n > 0", "n % 2 == 0"
Kind = TypeVar("Kind")


def published(number: int) -> Published:
    return Published(
        producer="p", incarnation=Incarnation("i"), sequence=number, at_ms=0, body=Notification({"n": number}).body
    )


class Serving:
    """A's ends, with a neighbour B that a test speaks for."""

    def __init__(self, *records: Record) -> None:
        self.state = SiteState(A, (B,))
        self.endpoints = LinkEndpoints(self.state, random.Random(1), LinkBounds(position_every=2))
        # It may send, for it had a lease; it leads no link.
        for input in (LinksLeaseGranted(), LinksLeaseLost()):
            self.endpoints.step(input, 0)
        self.log: list[Record] = []
        self._wanted: list[LinkEffect] = []
        for record in records:
            self.fold(record)

    def step(self, input: LinkInput) -> None:
        self._wanted += self.endpoints.step(input, 0)

    def tick(self, now_ms: int) -> None:
        self._wanted += self.endpoints.tick(now_ms)

    def finish(self, effect: Any, result: object) -> None:
        """Answer an effect."""
        self.step(LinkEffectCompleted(effect.on_done, result))

    def take_effects(self) -> list[LinkEffect]:
        """Take the effects that nobody has looked at."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def fold(self, record: Record) -> None:
        batch = [(len(self.log), record)]
        self.log.append(record)
        self.state.fold(*batch[0])
        self.step(RecordsFolded(batch))

    def receive(self, message: LinkMessage, peer: ProxyId = B1) -> list[LinkEffect]:
        self.step(NeighbourSent(peer, message))
        return self.take_effects()


def only(kind: type[Kind], effects: list[LinkEffect]) -> list[Kind]:
    return [effect for effect in effects if isinstance(effect, kind)]


def opening(epoch: int, serial: int, wants: dict[str, int] | None = None, above: int | None = None) -> LinkOpen:
    digest = 0
    for expression, installation in (wants or {}).items():
        digest ^= digest_of(expression, (installation, (OPEN,)))
    frontier = {} if above is None else {OWN: above}
    return LinkOpen(site=B, epoch=epoch, frontier=frontier, serial=serial, digest=digest)


def openings(effects: list[LinkEffect]) -> list[tuple[ProxyId, int]]:
    """Return who was sent records of which opening."""
    sent = [(effect.proxy, effect.message) for effect in only(SendNeighbour, effects)]
    return [(proxy, message.opening) for proxy, message in sent if isinstance(message, LinkRecords)]


def test_what_was_read_and_not_folded_yet_is_sent_once_it_was_folded() -> None:
    """A record that enters another dispatching tree may be among it, or before it: this end is closed by it."""
    serving = Serving(FiltersRequested(B, 1, 1, {X: 1}), published(1))
    (read,) = only(ReadLog, serving.receive(opening(1, 5, {X: 1})))
    serving.finish(read, [(1, published(1)), (2, published(2)), (3, published(3))])
    assert forwarded(serving.take_effects()) == [1]
    serving.fold(published(2))
    assert forwarded(serving.take_effects()) == [2]


def forwarded(effects: list[LinkEffect]) -> list[int]:
    messages = [effect.message for effect in only(SendNeighbour, effects)]
    records = [record for message in messages if isinstance(message, LinkRecords) for record in message.records]
    return [record.offset for record in records if isinstance(record, Forwarded)]


def test_an_opening_that_knows_more_of_our_log_than_we_do_waits_until_we_have_folded_that() -> None:
    """Another proxy of our site has served the link so far: we would state again what a later record has ended."""
    serving = Serving(FiltersRequested(B, 1, 1, {X: 1}))
    assert [type(effect) for effect in serving.receive(opening(1, 5, above=2))] == [SeenBeyond]
    serving.fold(published(1))
    assert serving.take_effects() == []
    serving.fold(published(2))
    assert openings(serving.take_effects())[:1] == [(B1, 5)]


def test_a_proxy_does_not_speak_for_another_site() -> None:
    serving = Serving()
    row = ProxyRow(proxy=ProxyId("c1"), incarnation=Incarnation("1"), site=SiteId("C"), url="")
    serving.step(RegistryChanged(ProxyUp(row)))
    with pytest.raises(BadMessage, match="a proxy of site C speaks for site B"):
        serving.receive(opening(2, 7), row.proxy)
    assert only(FindFirst, serving.receive(opening(1, 2)))


def test_a_newer_leaders_opening_takes_the_place_of_an_older_ones_and_not_the_other_way_round() -> None:
    serving = Serving()
    (first,) = only(FindFirst, serving.receive(opening(1, 5)))
    serving.finish(first, 0)
    assert openings(serving.take_effects()) == [(B1, 5)]
    (second,) = only(FindFirst, serving.receive(opening(2, 1), B2))
    (answer,) = only(SendNeighbour, serving.receive(opening(1, 6)))
    assert (answer.proxy, answer.message) == (
        B1,
        LinkRecords(site=A, epoch=2, opening=NO_OPENING, number=1, records=[]),
    )
    serving.finish(second, 0)
    assert openings(serving.take_effects()) == [(B2, 1)]
    serving.fold(published(1))
    serving.tick(1_000)
    assert openings(serving.take_effects()) == [(B2, 1)]


def test_filters_of_an_older_leader_are_not_logged_and_it_is_told_of_the_later_epoch() -> None:
    serving = Serving(FiltersRequested(B, 3, 1, {X: 1}))
    (answer,) = serving.receive(LinkWants(B, 2, 9, {}))
    assert isinstance(answer, SendNeighbour)
    assert (answer.proxy, answer.message) == (
        B1,
        LinkRecords(site=A, epoch=3, opening=NO_OPENING, number=1, records=[]),
    )


def test_a_word_that_is_earlier_than_one_of_its_very_epoch_is_not_written_and_its_leader_hears_of_the_later_one() -> (
    None
):
    serving = Serving(FiltersRequested(B, 3, 7, {X: 1}))
    (answer,) = serving.receive(LinkWants(B, 3, 6, {}))
    assert isinstance(answer, SendNeighbour)
    assert answer.message == LinkRecords(site=A, epoch=3, opening=NO_OPENING, number=7, records=[])
    (answer,) = serving.receive(opening(3, 2))
    assert isinstance(answer, SendNeighbour)


def test_link_ends_when_a_later_leader_of_the_neighbour_is_in_the_log() -> None:
    serving = Serving()
    (first,) = only(FindFirst, serving.receive(opening(3, 5)))
    serving.finish(first, 0)
    assert openings(serving.take_effects()) == [(B1, 5)]
    serving.fold(FiltersRequested(B, 4, 1, {}))
    (ended,) = only(Ended, serving.take_effects())
    assert ended.site == B and "epoch 4" in ended.reason
    serving.tick(1_000)
    assert serving.take_effects() == []
    (answer,) = only(SendNeighbour, serving.receive(opening(3, 6)))
    assert answer.message == LinkRecords(site=A, epoch=4, opening=NO_OPENING, number=1, records=[])


def test_of_two_openings_that_wait_for_the_log_only_the_newer_is_served() -> None:
    serving = Serving()
    (first,) = only(FindFirst, serving.receive(opening(1, 1)))
    (second,) = only(FindFirst, serving.receive(opening(1, 2)))
    serving.finish(second, 0)
    serving.finish(first, 0)
    assert openings(serving.take_effects()) == [(B1, 2)]


def test_an_opening_that_comes_twice_counts_once_also_when_its_end_has_ended() -> None:
    """Its messages would have the numbers of others before them."""
    serving = Serving(published(1))
    (first,) = only(FindFirst, serving.receive(opening(1, 1)))
    assert serving.receive(opening(1, 1)) == []
    serving.finish(first, 0)
    (read,) = only(ReadLog, serving.take_effects())
    serving.finish(read, LogUnavailable("no answer"))
    assert [ended.site for ended in only(Ended, serving.take_effects())] == [B]
    assert serving.receive(opening(1, 1)) == []
    assert only(FindFirst, serving.receive(opening(1, 2)))


def test_an_acknowledgement_of_another_opening_is_passed_over() -> None:
    serving = Serving(FiltersRequested(B, 1, 1, {X: 3}))
    serving.receive(opening(1, 2, {X: 3}))
    serving.receive(LinkAppended(B, 1, 2, 1), B2)
    serving.receive(LinkAppended(B, 1, 1, 1), B1)
    serving.tick(UNACKNOWLEDGED_TIMEOUT_MS)
    assert only(Ended, serving.take_effects())


def test_an_expression_that_is_none_is_refused_and_nothing_is_done() -> None:
    serving = Serving()
    with pytest.raises(Refused):
        serving.receive(LinkWants(B, 1, 1, {"n >": 1}))
    assert serving.take_effects() == []
    assert only(FindFirst, serving.receive(opening(1, 1)))


def test_filters_of_a_neighbour_are_logged_once_and_one_append_at_a_time() -> None:
    serving = Serving()
    (first,) = only(AppendRecords, serving.receive(LinkWants(B, 1, 1, {X: 1})))
    assert first.records == [FiltersRequested(B, 1, 1, {X: 1})]
    assert serving.receive(LinkWants(B, 1, 1, {X: 1})) == []
    assert serving.receive(LinkWants(B, 1, 3, {X: 1, Y: 2})) == []
    assert serving.receive(LinkWants(B, 1, 2, {})) == []
    serving.fold(FiltersRequested(B, 1, 1, {X: 1}))
    serving.finish(first, [0])
    (second,) = only(AppendRecords, serving.take_effects())
    assert second.records == [FiltersRequested(B, 1, 3, {X: 1, Y: 2})]
    serving.fold(FiltersRequested(B, 1, 3, {X: 1, Y: 2}))
    serving.finish(second, [1])
    assert serving.receive(LinkWants(B, 1, 3, {X: 1, Y: 2})) == []


def test_filters_that_failed_to_append_are_logged_when_they_are_sent_again() -> None:
    serving = Serving()
    (append,) = only(AppendRecords, serving.receive(LinkWants(B, 1, 1, {X: 1})))
    serving.finish(append, LogUnavailable("no answer"))
    assert serving.take_effects() == []
    assert only(AppendRecords, serving.receive(LinkWants(B, 1, 1, {X: 1})))


def answers(effects: list[LinkEffect]) -> list[tuple[int, int]]:
    """Return the serials of the requests that B is told to be in force, and not to be."""
    sent = [effect.message for effect in only(SendNeighbour, effects)]
    answer = [
        (message.applied_serial, message.refused_serial)
        for message in sent
        if isinstance(message, LinkRecords) and (message.applied_serial or message.refused_serial)
    ]
    return [answer for answer, _ in groupby(answer)]


def test_request_is_in_force_once_the_log_was_read_so_far() -> None:
    serving = Serving()
    (append,) = only(AppendRecords, serving.receive(opening(1, 1)))
    serving.finish(append, [0])
    assert answers(serving.take_effects()) == []
    serving.fold(append.records[0])
    assert answers(serving.take_effects()) == [(1, 0)]
    change = LinkWants(B, 1, 2, {X: 5}, part=RequestPart.CHANGE)
    (append,) = only(AppendRecords, serving.receive(change))
    serving.fold(append.records[0])
    serving.finish(append, [1])
    assert answers(serving.take_effects()) == [(2, 0)]
    assert answers(serving.receive(change)) == [(2, 0)], "it was sent again"


def test_change_of_filters_that_are_not_in_force_is_refused() -> None:
    """Nothing is written, or an earlier request has come in between: the neighbour states all."""
    serving = Serving(FiltersRequested(B, 1, 0, {X: 1}))
    effects = serving.receive(opening(1, 1, {Y: 1}))
    assert only(AppendRecords, effects) == [] and answers(effects) == [(0, 1)]
    base = opening(1, 1, {X: 1}).digest
    (append,) = only(AppendRecords, serving.receive(LinkWants(B, 1, 2, {Y: 3}, part=RequestPart.CHANGE, base=base)))
    serving.fold(FiltersRequested(B, 1, 1, {}))
    serving.fold(append.records[0])
    serving.finish(append, [2])
    assert answers(serving.take_effects()) == [(0, 2)]
    assert serving.state.neighbour_filters[B].filters == {}


def test_request_of_nothing_is_written_only_for_an_opening() -> None:
    """Where the log has that, no earlier request can come to be in force any more."""
    serving = Serving(FiltersRequested(B, 1, 1, {X: 1}))
    base = opening(1, 2, {X: 1}).digest
    (append,) = only(AppendRecords, serving.receive(opening(1, 2, {X: 1})))
    probe = LinkWants(B, 1, 3, {}, part=RequestPart.CHANGE, base=base)
    assert answers(serving.receive(probe)) == []
    serving.fold(append.records[0])
    serving.finish(append, [1])
    assert answers(serving.take_effects()) == [(2, 0), (3, 0)]
    effects = serving.receive(LinkWants(B, 1, 4, {}, part=RequestPart.CHANGE, base=base))
    assert only(AppendRecords, effects) == [] and answers(effects) == [(4, 0)]
    effects = serving.receive(LinkWants(B, 1, 5, {}, part=RequestPart.CHANGE, base=base + 1))
    assert only(AppendRecords, effects) == [] and answers(effects) == [(4, 5)]


def test_link_opens_at_the_first_offset_that_a_truncated_log_has() -> None:
    serving = Serving(*(published(number) for number in range(6)))
    resumed = opening(1, 1, above=1)
    (read,) = only(ReadLog, serving.receive(resumed))
    assert read.offset == 1
    serving.finish(read, HistoryTruncated("gone", first=4))
    serving.take_effects()
    effects = serving.receive(opening(1, 2, above=1))
    (first,) = only(FindFirst, effects)
    serving.finish(first, 4)
    serving.fold(FiltersRequested(B, 1, 2, {}))
    (read,) = only(ReadLog, serving.take_effects())
    assert read.offset == 4


# ---------------------------------------------------------------- over hostile wires


class Wires:
    """Two sites and their logs, a registry that knows leaders, and messages that get lost, doubled, late and overtaken.

    A's log gets notifications. Proxies of B hold X from the start, and Y now and then.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now = 0
        self.hostile = True
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        self.scheduled = 0
        self.logs: dict[SiteId, list[Record]] = {A: [], B: []}
        self.leader: tuple[ProxyId, int] | None = None
        self.epoch = 0
        self.due: dict[tuple[ProxyId, ProxyId], int] = {}
        self.proxies = {ProxyId(name): Proxy(self, ProxyId(name)) for name in ("a1", "a2", "b1", "b2")}
        self.hold(X)

    def later(self, wait_ms: int, action: Callable[[], None]) -> None:
        self.scheduled += 1
        heapq.heappush(self.queue, (self.now + wait_ms, self.scheduled, action))

    def odd(self, probability: float) -> bool:
        return self.hostile and self.rng.random() < probability

    def passes(self, wait_ms: int) -> None:
        end = self.now + wait_ms
        while self.queue and self.queue[0][0] <= end:
            self.now, _, action = heapq.heappop(self.queue)
            action()
        self.now = end

    def append(self, site: SiteId, records: list[Record]) -> None:
        self.logs[site] += records
        for proxy in self.proxies.values():
            if proxy.site == site:
                self.later(self.rng.randint(1, 30), proxy.fold)

    def hold(self, *expressions: str) -> None:
        self.append(B, [InterestRegistered(B1, Incarnation("1"), SessionId("s"), expressions)])

    def elect(self, proxy: ProxyId) -> int | None:
        if self.leader is not None and self.leader[0] != proxy:
            return None
        self.epoch += 1
        self.leader = (proxy, self.epoch)
        return self.epoch

    def carry(self, sender: ProxyId, to: ProxyId, message: LinkMessage) -> None:
        """In order from one to another, until the connection breaks: then in any."""
        if self.odd(0.05):
            self.due.pop((sender, to), None)
        if self.odd(0.1):
            return
        at = self.now + self.rng.randint(1, 200 if self.odd(0.2) else 10)
        at = self.due[sender, to] = max(at, self.due.get((sender, to), 0))
        for _ in range(2 if self.odd(0.1) else 1):
            self.later(at - self.now, lambda: self.proxies[to].hear(sender, message))


class Proxy:
    """The shell of one proxy's ends, and its fold of its site's log."""

    def __init__(self, wires: Wires, name: ProxyId) -> None:
        self.wires = wires
        self.name = name
        self.site = SiteId(name[0].upper())
        self.state = SiteState(self.site, (B if self.site == A else A,))
        self.events: list[Any] = []
        bounds = LinkBounds(batch=2, window=5, live=4, read=3, queue=20, position_every=3, request_bytes=1)
        self.endpoints = LinkEndpoints(self.state, random.Random(name), bounds)
        self.tick_at = 0
        for other, site in (("a1", A), ("a2", A), ("b1", B), ("b2", B)):
            row = ProxyRow(proxy=ProxyId(other), incarnation=Incarnation("1"), site=site, url="")
            self.step(partial(self.endpoints.step, RegistryChanged(ProxyUp(row))))
        self.step(partial(self.endpoints.step, LinksLeaseGranted()))

    def hear(self, peer: ProxyId, message: LinkMessage) -> None:
        self.step(partial(self.endpoints.step, NeighbourSent(peer, message)))

    def fold(self) -> None:
        log, start = self.wires.logs[self.site], self.state.position
        batch = list(enumerate(log))[start : start + self.wires.rng.randint(1, 5)]
        for offset, record in batch:
            self.events += self.state.fold(offset, record)
        if batch:
            self.step(partial(self.endpoints.step, RecordsFolded(batch)))
            self.wires.later(1, self.fold)

    def step(self, action: Callable[[int], list[LinkEffect]]) -> None:
        for effect in action(self.wires.now):
            self.perform(effect)
        due = self.endpoints.next_deadline()
        if due != NEVER and not self.wires.now < self.tick_at <= due:
            at = self.tick_at = max(due, self.wires.now + 1)
            self.wires.later(
                at - self.wires.now, lambda: self.step(self.endpoints.tick) if self.tick_at == at else None
            )

    def perform(self, effect: LinkEffect) -> None:
        wires, log = self.wires, self.wires.logs[self.site]
        match effect:
            case link_effects.SendNeighbour():
                wires.carry(self.name, effect.proxy, effect.message)
            case link_effects.AppendRecords():
                self.append(effect)
            case link_effects.ReadLog():
                read = list(enumerate(log))[effect.offset : effect.offset + effect.limit]
                self.answer(effect.on_done, LogUnavailable("no answer") if wires.odd(0.02) else read)
            case link_effects.FindFirst():
                self.answer(effect.on_done, 0)
            case link_effects.FindEnd():
                self.answer(effect.on_done, len(log))
            case link_effects.Elect():
                self.answer(effect.on_done, wires.elect(self.name) if self.site == B else None)

    def answer(self, on_done: Callable[[Any, int], None], answer: Any) -> None:
        self.wires.later(
            self.wires.rng.randint(1, 20),
            lambda: self.step(partial(self.endpoints.step, LinkEffectCompleted(on_done, answer))),
        )

    def append(self, effect: AppendRecords) -> None:
        """Of an append that fails nobody knows whether it is done, or when."""
        wires = self.wires
        failed = wires.odd(0.05)

        def land() -> None:
            wires.append(self.site, list(effect.records))
            if not failed:
                self.answer(effect.on_done, list(range(len(effect.records))))

        if failed:
            self.answer(effect.on_done, LogUnavailable("no answer"))
        if not failed or wires.odd(0.5):
            wires.later(wires.rng.randint(1, 500 if wires.odd(0.2) else 20), land)


def random_schedule(wires: Wires) -> None:
    """Publish, hold and let go, and now and then another leads, while the one before still speaks."""
    for number in range(-20, 100):
        wires.append(A, [published(number if number % 5 else -number)])
        wires.passes(wires.rng.randint(0, 60))
        if wires.odd(0.05):
            wires.hold(*wires.rng.choice([(X,), (X, Y)]))
        if wires.odd(0.03):
            wires.leader = None
        if wires.odd(0.03) and wires.leader is not None:
            deposed, wires.leader = wires.proxies[wires.leader[0]], None
            wires.later(1_000, partial(deposed.step, partial(deposed.endpoints.step, LinksLeaseGranted())))
    wires.hostile = False
    for name in (B1, B2):
        wires.proxies[name].step(partial(wires.proxies[name].endpoints.step, LinksLeaseGranted()))
    wires.passes(30_000)


def promised(log: list[Record], above: int, upto: int) -> list[int]:
    """The offsets of what X wants of A's log in (above, upto]."""
    return [
        offset
        for offset, record in enumerate(log)
        if above < offset <= upto and isinstance(record, Published) and read_body(record.body)["n"] > 0  # type: ignore[operator]
    ]


def test_link_sends_no_records_before_forgotten_filters_of_the_neighbour_are_logged_again() -> None:
    serving = Serving()
    effects = serving.receive(opening(1, 1, {X: 3, Y: 4}))
    (find,) = only(FindFirst, effects)
    assert answers(effects) == [(0, 1)]
    serving.finish(find, 4)
    assert openings(serving.take_effects()) == []
    serving.fold(FiltersRequested(B, 1, 2, {X: 3}, part=RequestPart.FIRST))
    assert openings(serving.take_effects()) == []
    serving.fold(FiltersRequested(B, 1, 3, {Y: 4}, part=RequestPart.LAST))
    assert openings(serving.take_effects()) == [(B1, 1)]
