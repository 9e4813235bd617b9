"""What takes long to be matched is appended in parts; what cost little goes first; what fails gives its room back."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest

from node.machines.append_admission import (
    AdmissionInput,
    AppendAdmission,
    AppendCompleted,
    AppendPart,
    AppendRequested,
    EstimateCosts,
    Estimated,
    LogFolded,
    PartAppended,
)
from node.machines.fair_order import FairOrder
from proxy.core.effects import Append, ignore_result
from waypost.errors import LogUnavailable
from waypost.identity import Incarnation, ProxyId
from waypost.limits import ADMISSION_BATCH_S, ADMITTED_BYTES, ADMITTED_S, WAITING_BYTES, WAITING_BYTES_PER_CONNECTION
from waypost.records import InterestsExpired, Published, Record

MS = 1_000_000
INCARNATION = Incarnation("i")
AT_ONCE_MS = int((ADMITTED_S + ADMISSION_BATCH_S) * 1_000)


def published(*sizes: int) -> list[Published]:
    return [
        Published(producer="p", incarnation=INCARNATION, sequence=number, at_ms=0, body=bytes(size))
        for number, size in enumerate(sizes)
    ]


LONG_S = 1_000.0
"""At least as long as all was foreseen to take."""


class AdmissionHarness:
    """A log, what it has read of it, and what each notification takes, in milliseconds: as many as it has bytes."""

    def __init__(self) -> None:
        self.connections: list[int] = []
        """Of each record."""
        self.appends: list[int] = []
        self.factor = 1.0
        self.admission = AppendAdmission()
        self.fails_after: int | None = None
        self.gone: set[int] = set()
        self.answers: dict[int, Any] = {}
        """The answer to each effect that is complete, by its id."""
        self.is_paused = False
        """Whether the answers of the log wait."""
        self.unanswered: deque[PartAppended] = deque()
        self._requested: dict[int, Append] = {}

    def publish(self, connection: int, *records: Record) -> Append:
        effect = Append(records, ignore_result, connection, lambda: connection not in self.gone)
        self._requested[id(effect)] = effect
        self.step(AppendRequested(effect))
        return effect

    def is_done(self, effect: Append) -> bool:
        return id(effect) in self.answers

    def step(self, input: AdmissionInput) -> None:
        """Step the machine, and all that follows of it."""
        inputs = deque([input])
        while inputs:
            for effect in self.admission.step(inputs.popleft(), 0):
                match effect:
                    case EstimateCosts():
                        inputs.append(Estimated(effect.number, self._estimate(effect.bodies)))
                    case AppendPart():
                        answer = PartAppended(effect.number, self._append(effect))
                        (self.unanswered if self.is_paused else inputs).append(answer)
                    case AppendCompleted():
                        self.answers[id(effect.append)] = effect.answer

    def _estimate(self, bodies: Sequence[bytes]) -> list[int]:
        return [int(len(body) * self.factor * MS) for body in bodies]

    def _append(self, part: AppendPart) -> list[int] | LogUnavailable:
        if self.fails_after is not None and len(self.connections) >= self.fails_after:
            return LogUnavailable("away")
        self.appends.append(len(part.records))
        first = len(self.connections)
        connection = self.admission._frames[part.number].append.connection
        self.connections += [connection] * len(part.records)
        return list(range(first, len(self.connections)))

    def read(self, count: int | None = None, spent_s: float = LONG_S) -> None:
        """Have the log folded below this offset; None: to its end."""
        self.step(LogFolded(len(self.connections) if count is None else count, spent_s))

    def read_until(self, effect: Append, spent_s: float = LONG_S) -> Any:
        """Read until an effect is complete; return its answer."""
        for _ in range(10_000):
            if self.is_done(effect):
                return self.answers[id(effect)]
            self.read(spent_s=spent_s)
        raise AssertionError("it is never complete")

    def is_empty(self) -> bool:
        admission = self.admission
        counted = (
            admission._admitted_bytes,
            admission._admitted_ns,
            admission._waiting_bytes,
            admission._waiting_total,
        )
        return counted == (0, 0, {}, 0) and not admission._frames and admission.under_way == 0


def test_publish_without_cost_is_one_append() -> None:
    log = AdmissionHarness()
    effect = log.publish(1, *published(*[0] * 1_000))
    assert log.answers[id(effect)] == list(range(1_000))
    assert log.appends == [1_000]


def test_costly_publish_is_appended_in_parts_as_the_log_is_read() -> None:
    log = AdmissionHarness()
    effect = log.publish(1, *published(*[10] * 100))
    first = len(log.connections)
    assert first == AT_ONCE_MS // 10
    while not log.is_done(effect):
        before = len(log.connections)
        log.read()
        assert before < len(log.connections) <= before + first or log.is_done(effect)
    assert log.answers[id(effect)] == list(range(100))
    log.read()
    assert log.is_empty()


def test_notification_that_exceeds_the_whole_budget_is_appended_alone() -> None:
    log = AdmissionHarness()
    effect = log.publish(1, *published(5_000, 5_000))
    assert log.appends == [1]
    log.read(1)
    assert log.answers[id(effect)] == [0, 1]


def test_cheap_publish_is_admitted_before_most_costly_ones() -> None:
    log = AdmissionHarness()
    hostile = [log.publish(number, *published(*[50] * 20)) for number in range(1, 31)]
    for _ in range(30):
        log.read()
    innocent = log.publish(99, *published(5))
    assert not log.is_done(innocent)
    for _ in range(2):
        log.read()
    assert log.is_done(innocent)
    assert not all(map(log.is_done, hostile))


def test_costly_publish_is_not_starved_by_later_ones() -> None:
    log = AdmissionHarness()
    much = log.publish(1, *published(*[500] * 4))
    for number in range(2, 1_000):
        log.publish(number, *published(100))
        log.read(log.connections.index(number - 1) + 1 if number - 1 in log.connections else None)
        if log.is_done(much):
            break
    assert log.is_done(much) and number < 900


def test_cost_of_a_publish_is_estimated_again_for_each_part() -> None:
    log = AdmissionHarness()
    log.publish(1, *published(*[1] * 500))
    assert len(log.connections) == AT_ONCE_MS
    log.factor = 100
    log.read()
    assert len(log.connections) < AT_ONCE_MS + 40


def test_records_of_the_proxy_itself_are_appended_without_waiting() -> None:
    log = AdmissionHarness()
    log.publish(1, *published(*[1_000] * 10))
    end = len(log.connections)
    own = log.publish(0, InterestsExpired(ProxyId("a"), INCARNATION))
    assert log.answers[id(own)] == [end]


@pytest.mark.parametrize("after", [0, 27, 30])
def test_failed_part_ends_its_publish_and_releases_its_budget_to_waiting_ones(after: int) -> None:
    log = AdmissionHarness()
    log.fails_after = after
    failing = log.publish(1, *published(*[10] * 100))
    log.fails_after = after or None
    waiting = log.publish(2, *published(*[10] * 3))
    assert isinstance(log.read_until(failing), LogUnavailable)
    assert after <= len(log.connections) <= after + AT_ONCE_MS // 10
    log.fails_after = None
    log.read_until(waiting)
    log.read()
    assert log.is_empty()


def test_publish_of_a_disconnected_producer_is_not_appended() -> None:
    log = AdmissionHarness()
    effect = log.publish(1, *published(*[10] * 100))
    log.gone.add(1)
    log.read()
    assert isinstance(log.answers[id(effect)], LogUnavailable)
    assert len(log.connections) == AT_ONCE_MS // 10
    log.read()
    assert log.is_empty()


def test_admitted_bytes_count_until_they_are_read_and_waiting_bytes_do_not_close_the_others() -> None:
    log = AdmissionHarness()
    log.factor = 0
    log.publish(1, *published(ADMITTED_BYTES, 1))
    assert not log.admission.has_room(2)
    log.read(1)
    assert not log.admission.has_room(2)
    log.read(2)
    assert log.admission.has_room(2)
    log.factor = 1
    log.publish(1, *published(*[100_000] * 100))
    assert log.admission.waiting and log.admission.has_room(2)


def test_any_order_of_requests_answers_failures_and_ends_returns_the_whole_budget() -> None:
    for seed in range(200):
        log, rng = AdmissionHarness(), random.Random(seed)
        log.is_paused = True
        effects = []
        for step in range(100):
            match rng.randrange(5):
                case 0:
                    connection = rng.randint(1, 9)
                    effects.append(
                        log.publish(connection, *published(*rng.choices([0, 5, 20, 300], k=rng.randint(1, 40))))
                    )
                case 1 | 2 if log.unanswered:
                    log.step(log.unanswered.popleft())
                case 3:
                    log.read(rng.randint(log.admission._position, len(log.connections)))
                case _:
                    log.gone ^= {rng.randint(1, 9)}
                    log.fails_after = rng.choice([None, None, len(log.connections)])
            under_way = len(effects) - len(log.answers)
            assert log.admission.under_way + log.admission.waiting == under_way, (seed, step)
        log.fails_after = None
        while not all(map(log.is_done, effects)):
            while log.unanswered:
                log.step(log.unanswered.popleft())
            log.read()
        log.read()
        assert log.is_empty(), seed


def test_connection_with_much_waiting_may_publish_no_more_and_others_may_until_all_have_twice_the_bound() -> None:
    log = AdmissionHarness()
    log.publish(200, *published(1_000), *published(1_000))

    def wait(connection: int, size: int) -> None:
        """Have so many bytes of a connection wait."""
        log.factor = 1 / size
        log.publish(connection, *published(size))
        log.factor = 1.0

    wait(1, WAITING_BYTES_PER_CONNECTION)
    assert not log.admission.has_room(1) and log.admission.has_room(2)
    for connection in range(3, 3 + WAITING_BYTES // WAITING_BYTES_PER_CONNECTION):
        wait(connection, WAITING_BYTES_PER_CONNECTION)
    wait(100, 1)
    assert log.admission.has_room(2), "nothing of it waits"
    assert not log.admission.has_room(100)
    wait(101, WAITING_BYTES)
    assert not log.admission.has_room(2)


def test_fair_order_completes_no_job_later_than_equal_shares_would() -> None:
    """Whenever they come: in a model that serves all at once, in small steps."""
    rng = random.Random(3)
    for _ in range(100):
        jobs = sorted((rng.uniform(0, 500), rng.choice([1.0, 10.0, 200.0])) for _ in range(rng.randint(1, 30)))
        assert all(fair <= shared + 1 for fair, shared in zip(in_order(jobs), in_shares(jobs), strict=True))


def in_order(jobs: list[tuple[float, float]]) -> list[float]:
    """Return when each job is done, given when it comes and how long it takes: one after another, in parts."""
    order, waiting, now, next_job = FairOrder(), list[tuple[float, int]](), 0.0, 0
    left, done = [cost for _, cost in jobs], [0.0] * len(jobs)
    while next_job < len(jobs) or waiting:
        if not waiting:
            now = max(now, jobs[next_job][0])
        while next_job < len(jobs) and jobs[next_job][0] <= now:
            waiting.append((order.charge(next_job, jobs[next_job][1]), next_job))
            next_job += 1
        tag, job = min(waiting)
        part = min(left[job], 0.5)
        order.advance(part)
        now, left[job] = now + part, left[job] - part
        if not left[job]:
            waiting.remove((tag, job))
            done[job] = now
    return done


def in_shares(jobs: list[tuple[float, float]]) -> list[float]:
    left, done, now = [cost for _, cost in jobs], [0.0] * len(jobs), 0.0
    while not all(done):
        here = [job for job, (came, _) in enumerate(jobs) if came <= now and not done[job]]
        for job in here:
            left[job] -= 0.5 / len(here)
            if left[job] <= 1e-9:
                done[job] = now + 0.5
        now += 0.5
    return done


def test_cheap_job_is_first_in_the_fair_order_among_many_costly_ones() -> None:
    order = FairOrder()
    much = [order.charge(connection, 19_000.0) for connection in range(1, 61)]
    for _ in range(1_000):
        assert order.charge(0, 9.0) < min(much)
        order.advance(9.0)
        order.advance(19.0)


def test_a_frame_that_turns_out_to_be_costly_waits_as_such_and_what_was_not_appended_is_given_back() -> None:
    order = FairOrder()
    assert order.charge(1, 10.0) < order.charge(2, 100.0)
    assert order.charge(1, 990.0) > order.charge(3, 100.0)
    order.charge(1, -1_000.0)
    assert order.charge(1, 10.0) == 10.0


def test_cost_spent_without_competition_does_not_count_in_the_fair_order() -> None:
    order = FairOrder()
    for _ in range(1_000):
        order.charge(1, 100.0)
        order.advance(100.0)
    assert order.charge(1, 1.0) < order.charge(2, 2.0)


def test_waiting_job_is_overtaken_by_a_bounded_number_of_later_ones() -> None:
    order, overtaken = FairOrder(), 0
    waiting = order.charge(1, 1_000.0)
    for connection in range(2, 100_000):
        overtaken += order.charge(connection, 10.0) < waiting
        order.advance(10.0)
    assert overtaken < 10_000
    assert len(order._finish) < 1_000 and len(order._next) < 10_000


def test_admission_takes_more_together_where_folding_takes_less_than_was_foreseen() -> None:
    log = AdmissionHarness()

    def admitted_together() -> int:
        read = len(log.connections)
        effect = log.publish(1, *published(*[20] * 200))
        together = len(log.connections) - read
        while not log.is_done(effect):
            more, read = len(log.connections) - read, len(log.connections)
            log.read(spent_s=more * 0.002)
        log.read(spent_s=(len(log.connections) - read) * 0.002)
        return together

    first = admitted_together()
    for _ in range(5):
        last = admitted_together()
    assert last > 5 * first
    assert log.is_empty()


def test_admission_goes_by_its_estimates_again_at_once_where_folding_takes_longer() -> None:
    log = AdmissionHarness()
    effect = log.publish(1, *published(*[20] * 500))
    at_first = sum(log.appends)
    log.read_until(effect, spent_s=0.001)
    last = log.publish(1, *published(*[20] * 500))
    log.read()
    before = sum(log.appends)
    log.read()
    assert sum(log.appends) - before <= 2 * at_first
    log.read_until(last)
