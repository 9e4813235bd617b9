"""What a site wants forwarded, and what its neighbour's log has of that: the same after losses, repeats, forgetting.

The model is dumb: all that is wanted, as one dictionary.
"""

from __future__ import annotations

import random

import pytest

from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords, LinkEffect
from federation.links.filter_exchange import FilterInstaller, FilterRequester, request_of
from federation.links.output import LinkEvent, RequestAnswered
from federation.messages import LinkWants
from federation.site.neighbour_filters import NeighbourFilters, digest_of
from federation.site.state import SiteState
from tests.helpers.link_parts import ToTest
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId
from waypost.keys import OPEN, SIDES, Key, Protection
from waypost.limits import LINK_REQUEST_BYTES, LINK_REQUEST_FILTERS
from waypost.records import FiltersRequested, InterestRegistered, LogBegun, Record, RequestPart, encode_record
from waypost.subscription import parse

A, B, C = SiteId("A"), SiteId("B"), SiteId("C")
EXPRESSIONS = [f"n == {number}" for number in range(12)]
COVERING = ["n < 3", "n < 8", "n >= 2 && n < 10", "require(n)", "n < 3 || n == 11"]


class Pair:
    """B, which wants something, and A, which has it in its log; messages, answers and appends get lost or come late."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.near, self.far = SiteState(B, (A, C)), SiteState(A, (B,))
        self.near_log: list[Record] = []
        self.far_log: list[Record] = []
        self.late: list[Record] = []
        """Appends that were said to have failed, and may come to the log all the same."""
        bounds = LinkBounds(
            request_filters=self.rng.choice([1, 2, 100]), request_bytes=self.rng.choice([1, 200, 10_000])
        )
        self.requester = FilterRequester(self.near, A, bounds)
        self.installer = FilterInstaller(B, self.far, ToTest(self._perform, self._reported))
        self.serial = 0
        self.answers = (0, 0)
        self.lossy = True
        self.covered: set[str] = set()
        """Needed expressions whose filter, or that of what covers them, was in force since they are needed."""

    def odd(self, probability: float) -> bool:
        return self.lossy and self.rng.random() < probability

    def hold(self, *expressions: str) -> None:
        keys: dict[str, tuple[Protection, ...]] = {
            expression: (Protection.of([Key(next(iter(SIDES)), "producer", bytes(20))]),)
            for expression in expressions
            if self.rng.random() < 0.2
        }
        self._fold_near(InterestRegistered(ProxyId("b1"), Incarnation("1"), SessionId("s"), expressions, keys))

    def _fold_near(self, record: Record) -> None:
        self.near.fold(len(self.near_log), record)
        self.near_log.append(record)
        self.covered.intersection_update(self.near.requests[A].needed)
        self._cover()

    def _cover(self) -> None:
        requests, known = self.near.requests[A], self.installer.in_force.filters
        for text in requests.needed:
            carrier = requests.carrier_of(text)
            if carrier in known and known[carrier].installation == requests.installations[carrier]:
                self.covered.add(text)

    def fold_far(self, record: Record) -> None:
        """Append to the far log. A match of what was covered still passes then."""
        self.far.fold(len(self.far_log), record)
        self.far_log.append(record)
        passing = {n for text in self.installer.in_force.filters for n in matched(text)}
        lost = {text: missed for text in self.covered if (missed := matched(text) - passing)}
        assert not lost, (lost, record)
        self._cover()

    def forget(self) -> None:
        """Lose what is in force: the log has lost its end."""
        self.far.neighbour_filters.clear()
        self.covered.clear()

    def _perform(self, effect: LinkEffect) -> None:
        assert isinstance(effect, AppendRecords)
        (record,) = effect.records
        if self.odd(0.2):
            self.late.append(record)
            effect.on_done(LogUnavailable("no answer"), 0)
            return
        if self.odd(0.2) and self.late:
            self.fold_far(self.late.pop(self.rng.randrange(len(self.late))))
        self.fold_far(record)
        effect.on_done([len(self.far_log) - 1], 0)

    def _reported(self, event: LinkEvent) -> None:
        assert isinstance(event, RequestAnswered)
        if not self.odd(0.2):
            (applied, refused), serial = self.answers, event.request.serial
            self.answers = (max(applied, serial), refused) if event.is_applied else (applied, max(refused, serial))

    def open(self) -> None:
        self.serial += 1
        self.requester.open(1, self.serial, 0)

    def exchange(self) -> None:
        """Send the request under way, or the next one, and hand over the answer."""
        self.requester.answered(*self.answers)
        request = self.requester.under_way or self.requester.next(self.serial + 1)
        if request is not None:
            self.serial = max(self.serial, request.serial)
            self._send(request)

    def _send(self, request: LinkWants) -> None:
        for _ in range(self.rng.choice([1, 1, 1, 0, 2]) if self.lossy else 1):
            assert len(request.installations) <= LINK_REQUEST_FILTERS
            self.installer.take(request_of(request))

    def wanted(self) -> dict[str, tuple[int, tuple[Protection, ...]]]:
        wanted = {expression: self.near.wanted(A, expression) for expression in self.near.requested(A)}
        return {expression: found for expression, found in wanted.items() if found is not None}


def matched(text: str) -> set[int]:
    return {n for n in range(12) if parse(text).matches({"n": n})}


def in_force(filters: NeighbourFilters) -> dict[str, tuple[int, tuple[Protection, ...]]]:
    return {text: (found.installation, found.protections) for text, found in filters.filters.items()}


def digest(filters: NeighbourFilters) -> int:
    """Return it, computed anew."""
    total = 0
    for text, wanted in in_force(filters).items():
        total ^= digest_of(text, wanted)
    return total


@pytest.mark.parametrize("seed", range(300))
def test_what_is_wanted_is_in_force_in_the_end_whatever_was_lost(seed: int) -> None:
    pair = Pair(seed)
    pair.open()
    for _ in range(60):
        if pair.rng.random() < 0.4:
            pair.hold(*pair.rng.sample(EXPRESSIONS + COVERING, pair.rng.randint(0, 8)))
        if pair.rng.random() < 0.05:
            pair.open()
        if pair.rng.random() < 0.03:
            pair.forget()
        pair.exchange()
        assert pair.installer.in_force.digest == digest(pair.installer.in_force)
    pair.lossy = False
    for _ in range(40):
        pair.exchange()
    pair.serial += 1
    pair.requester.probe(pair.serial)
    for _ in range(40):
        pair.exchange()
    assert in_force(pair.installer.in_force) == pair.wanted()
    assert pair.covered == pair.near.requests[A].needed.keys()


def test_a_filter_that_stays_is_never_removed_while_all_is_stated_again() -> None:
    filters = NeighbourFilters()
    filters.apply(FiltersRequested(B, 1, 1, {"a": 1, "b": 2, "c": 3}), {})
    stays = filters.filters["c"]
    filters.apply(FiltersRequested(B, 1, 2, {"a": 1}, part=RequestPart.FIRST), {})
    assert set(filters.filters) == {"a", "b", "c"}
    assert filters.apply(FiltersRequested(B, 1, 3, {}, removed=("c",), part=RequestPart.CHANGE), {}) is None
    changes = filters.apply(FiltersRequested(B, 1, 4, {"c": 3}, part=RequestPart.LAST), {})
    assert changes is not None and (changes.toggled, changes.changed, changes.installed) == ({"b"}, {"b"}, {})
    assert set(filters.filters) == {"a", "c"} and filters.filters["c"] is stays


def test_parts_of_one_statement_are_of_one_leader() -> None:
    """Those of another one may lack what the first part of this one had."""
    filters = NeighbourFilters()
    filters.apply(FiltersRequested(B, 1, 1, {"a": 1}, part=RequestPart.FIRST), {})
    assert filters.apply(FiltersRequested(B, 2, 1, {"b": 1}, part=RequestPart.LAST), {}) is None
    assert filters.apply(FiltersRequested(B, 2, 2, {"c": 1}, part=RequestPart.ALL), {}) is not None
    assert set(filters.filters) == {"c"}


def test_change_of_other_filters_than_are_in_force_has_no_effect() -> None:
    filters = NeighbourFilters()
    filters.apply(FiltersRequested(B, 1, 1, {"a": 1}), {})
    base = filters.digest
    for wrong in (
        FiltersRequested(B, 1, 2, {"b": 2}, part=RequestPart.CHANGE, base=base + 1),
        FiltersRequested(B, 1, 1, {"b": 2}, part=RequestPart.CHANGE, base=base),
        FiltersRequested(B, 1, 2, {"b": 2}, part=RequestPart.NEXT),
    ):
        assert filters.apply(wrong, {}) is None
    assert filters.apply(FiltersRequested(B, 1, 2, {"b": 2}, part=RequestPart.CHANGE, base=base), {}) is not None
    assert filters.digest == base ^ digest_of("b", (2, (OPEN,)))


def test_no_request_is_larger_than_a_record_of_a_log_may_be() -> None:
    """1,700 expressions of 620 bytes."""
    pair = Pair(0)
    pair.lossy = False
    pair.requester = FilterRequester(pair.near, A, LinkBounds())
    pair.fold_far(LogBegun(federation="f", identity="i", log_epoch=1))
    for number in range(170):
        long = tuple(f'topic == "{"x" * 600}{10 * number + index:06d}"' for index in range(10))
        pair._fold_near(InterestRegistered(ProxyId("b1"), Incarnation("1"), SessionId(f"s{number}"), long))
    pair.open()
    for _ in range(60):
        pair.exchange()
    assert in_force(pair.installer.in_force) == pair.wanted()
    assert len(pair.wanted()) == 1_700
    assert max(len(encode_record(record)) for record in pair.far_log) < LINK_REQUEST_BYTES + 16_000
