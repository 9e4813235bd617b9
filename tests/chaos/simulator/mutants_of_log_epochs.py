"""Mutants of log epochs: a site log that lost its end (handover rule 27)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chaos.simulator.environment.fake_backends import PlainRegistry
from federation.messages import CaughtUp
from federation.ports import ProxyRow
from federation.site import log_epochs
from federation.site.acceptance import Acceptance
from federation.site.events import Event, SeveranceAnnounced
from federation.site.history import HistoryAnswer
from federation.site.log_epochs import after_loss
from federation.site.state import SiteState
from node.machines.log_guard import AppendRecord, LogGuard, Procedure, Question
from node.machines.witness_poll import WitnessPoll
from proxy.core.interest import Interest
from proxy.stream.coverage import Coverage
from proxy.stream.interest_repair import InterestRepair
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.identity import Incarnation, Origin, ProxyId, origin_of
from waypost.records import LogBegun, OriginEnded

_answer, _elect, _origin_ended = HistoryAnswer.answer, PlainRegistry.elect, SiteState._origin_ended
_look, _begin_log, _end_origin = WitnessPoll.look, Acceptance.begin_log, Acceptance.end_origin


def _answer_without_loss(self: HistoryAnswer) -> CaughtUp:
    answer = _answer(self)
    return CaughtUp(
        request=answer.request,
        origin=answer.origin,
        records=answer.records,
        through=answer.through,
        first_kept=answer.first_kept,
    )


def _elect_as_before(self: PlainRegistry, link: str, incarnation: tuple[ProxyId, Incarnation]) -> int | None:
    leader, epoch = self.leaders.get(link, (None, 0))
    return epoch if leader == incarnation and incarnation in self.incarnations else _elect(self, link, incarnation)


def _tell_nobody(self: SiteState, offset: int, record: OriginEnded) -> list[Event]:
    return [event for event in _origin_ended(self, offset, record) if not isinstance(event, SeveranceAnnounced)]


def _append_wherever_it_is(self: LogGuard, record: LogBegun) -> Procedure:
    yield AppendRecord(record)


def _check_nothing(self: LogGuard) -> Generator[Question, Any, int]:
    yield from ()
    return 0


def _ask_nobody(self: LogGuard) -> Procedure:
    self.is_confirmed = True
    yield from ()


def _claim_whatever_the_epoch(self: LogGuard, log_epoch: int, seen: int, end: int) -> Generator[Question, Any, bool]:
    is_same = yield from self._is_same_log(end)
    return (yield from self._claim(after_loss(self.site, self.row, seen, end, is_same=is_same)))


@contextmanager
def _looks_at_no_end() -> Iterator[None]:
    with (
        replaced(LogGuard, "_append", _append_wherever_it_is)(),
        replaced(LogGuard, "_check_reported", _check_nothing)(),
        replaced(LogGuard, "confirm", _ask_nobody)(),
    ):
        yield


def _wait_for_nobody(
    self: WitnessPoll, living: Collection[ProxyRow] | None, failed_ms: Mapping[ProxyId, int], now_ms: int
) -> list[ProxyId]:
    to_ask = _look(self, living, failed_ms, now_ms)
    self.is_over = living is not None
    return to_ask


def _ask_once(
    self: WitnessPoll, living: Collection[ProxyRow] | None, failed_ms: Mapping[ProxyId, int], now_ms: int
) -> list[ProxyId]:
    before = dict(self._asked)
    return [proxy for proxy in _look(self, living, failed_ms, now_ms) if before.get(proxy) != self._asked[proxy]]


def _believe_the_record(self: Acceptance, record: OriginEnded) -> bool:
    frontier, self.frontier = self.frontier, {}
    try:
        is_new = _end_origin(self, record)
    finally:
        raised, self.frontier = self.frontier, frontier
    for origin, offset in raised.items():
        self._raise(origin, offset)
    return is_new


def _begin_below(self: Acceptance, offset: int, record: LogBegun) -> list[Origin]:
    following = origin_of(self.site, log_epoch=record.log_epoch)
    before = self.frontier.get(following)
    changed = _begin_log(self, offset, record)
    if before is not None:
        self.frontier[following] = before
    return changed


def _cut_each_for_itself(ended: Mapping[Origin, tuple[int, int]], end: int) -> dict[Origin, tuple[int, int]]:
    return {origin: (min(last, end - 1), seen) for origin, (last, seen) in ended.items()}


@contextmanager
def _known_by_its_site_alone() -> Iterator[None]:
    with (
        replaced(Acceptance, "end_origin", _believe_the_record)(),
        replaced(Acceptance, "_arrive", Acceptance._raise)(),
    ):
        yield


MUTANTS = (
    Mutant(
        "begins below what its neighbours count",
        "a proxy that starts at the record which begins a log epoch has not seen what its neighbours count as seen",
        replaced(Acceptance, "begin_log", _begin_below),
        ("NOLOSS",),
        kept=("99527037",),
        rule=27,
    ),
    Mutant(
        "keeps the name of an epoch that is lost",
        "what stands below a log epoch of which nothing is left is taken for that epoch's",
        replaced(log_epochs, "_cut", _cut_each_for_itself),
        ("REMOVED", "TWICE"),
        kept=("99532829",),
        rule=27,
    ),
    Mutant(
        "waits for no witness",
        "what others have seen of a log is asked of them, and their answers are not waited for",
        replaced(WitnessPoll, "look", _wait_for_nobody),
        ("LOST", "STUCK"),
        scenarios=("power_cut_of_a_site_whose_end_only_another_one_has_seen",),
        rule=27,
    ),
    Mutant(
        "a hole of a neighbour's loss is told to nobody",
        "a site whose neighbour lost the end of its log, and its requests, tells those behind it nothing of the hole",
        replaced(SiteState, "_origin_ended", _tell_nobody),
        ("LOST",),
        kept=("98512928",),
        rule=27,
    ),
    Mutant(
        "tells nobody of a lost end",
        "what was lost with the end of a log is taken for silence",
        replaced(HistoryAnswer, "answer", _answer_without_loss),
        ("LOST",),
        scenarios=("log_lost_its_end",),
        rule=27,
    ),
    Mutant(
        "does not announce that an origin has ended",
        "a neighbour is not told that an origin has ended when its link opens again",
        replaced(SiteState, "ended_origins", lambda self, neighbour: []),
        ("LOST", "STUCK"),
        scenarios=("log_lost_its_end",),
        rule=27,
    ),
    Mutant(
        "waits for a log's end that is gone",
        "a proxy that starts reads up to where its log ended, also after the log has lost that end",
        replaced(LogGuard, "has_read", lambda self, end: self._state.position >= end),
        ("STUCK",),
        kept=("95671918",),
        rule=27,
    ),
    Mutant(
        "begins at whatever is left of a log",
        "a proxy that starts compares nothing with what was read: not the log's end, nor its own first record's place",
        _looks_at_no_end,
        ("LOST",),
        kept=("99415883",),
        rule=27,
    ),
    Mutant(
        "asks no other proxy when it starts",
        "a proxy that starts appends before others, also of other sites, have said what they have seen of the log",
        replaced(LogGuard, "confirm", _ask_nobody),
        ("LOST", "STUCK"),
        scenarios=("power_cut_of_a_site_whose_end_only_another_one_has_seen",),
        rule=27,
    ),
    Mutant(
        "claims one loss twice",
        "two procedures of a process that find the same loss each begin a log epoch",
        replaced(LogGuard, "_claim_loss", _claim_whatever_the_epoch),
        ("NOLOSS",),
        (685, 742, 768),
        rule=27,
    ),
    Mutant(
        "answers from any log",
        "a proxy that has not noticed that its log is another one answers a catch-up from it",
        replaced(HistoryAnswer, "compare", lambda self, batch: None),
        ("LOST",),
        kept=("79080573", "96324101"),
        rule=27,
    ),
    Mutant(
        "believes its last registration",
        "what a session needs stands in the log as an append without an answer left it, behind what was said last",
        replaced(Interest, "correct", Interest.register_all),
        ("ASKS", "QUENCH"),
        kept=("96979793",),
    ),
)
MASKED = (
    Mutant(
        "only its own site knows how far an origin was seen",
        "what a site has seen of an origin that has ended, beyond what that origin's site knows, passes as silence",
        _known_by_its_site_alone,
        rule=27,
        masked_by="starts that ask others how far they have seen the epoch before, in thousands of schedules",
    ),
    Mutant(
        "asks a witness once",
        "a question to a witness that got lost, or its answer, is not sent again",
        replaced(WitnessPoll, "look", _ask_once),
        rule=27,
        masked_by="openings of links, which say how far the neighbour has seen the log, in thousands of schedules",
    ),
    Mutant(
        "asks stand over a lost end",
        "what was asked of neighbours before a log lost its end counts as asked without a break",
        replaced(SiteState, "_request_again", lambda self, offset, neighbours: []),
        rule=27,
        masked_by="logs that are away for a while before they have lost their end, in thousands of schedules",
    ),
    Mutant(
        "leads on at its epoch",
        "a leader of a link that is elected again has the epoch that it had, and so has what it never had an answer to",
        replaced(PlainRegistry, "elect", _elect_as_before),
        rule=12,
        masked_by="leaders that take no epoch which their log knows",
    ),
    Mutant(
        "closes gates in memory",
        "gates that close because an origin has ended, or coverage was broken, are not written with the log position",
        replaced(Coverage, "_gates_closed", Coverage.watch),
        rule=27,
        masked_by="pauses of clients as long as the library's, which leave it no moment in thousands of schedules",
    ),
    Mutant(
        "believes to have said it",
        "interests that were registered, and lost with the end of the log before it was read, is not said again",
        replaced(InterestRepair, "log_end_lost", lambda self: None),
        masked_by="rule 27: whoever had an answer to what the log has lost begins anew, and says all of it again",
    ),
)
