"""What became of a handover is counted, journalled and shown, whatever way it ends, on both sides."""

from __future__ import annotations

import pytest

from federation.ports import Claimed, ProxyDown
from handover.machine import Timing
from handover.messages import (
    Aborted,
    Chunk,
    DeclineReason,
    Prepare,
    Ready,
    StoredEntry,
    TransferDeclined,
    TransferRefused,
    checksum,
)
from proxy.core import effects
from proxy.core.counters import Handover
from proxy.core.inputs import LeaseLost, RegistryReported
from proxy.core.transfer_record import TransferView
from tests.helpers.engine_harness import SESSION, owner, row
from tests.properties.test_wrong_handover_messages import (
    ENTRIES,
    ORIGIN,
    PHASES,
    SOURCE,
    TARGET,
    YOU,
    Stage,
    chunk,
    committing,
    copying,
    frozen,
    preparing,
    ready,
    reclaiming,
    right,
    shadowing,
    staging,
    waiting,
)
from waypost.errors import StoreFailed
from waypost.facts import Fact

TIMING = Timing()


def counted(place: Stage) -> list[Handover]:
    return list(place.harness.engine.output.counters.handovers.elements())


def last(place: Stage) -> TransferView:
    return place.harness.engine.transfers.shown()[0]


def announced(place: Stage) -> list[Fact]:
    return [fact for fact in place.harness.facts if fact.kind == "handover"]


def words(place: Stage) -> list[str]:
    return [f"{fact.role} {fact.phase}" + (f": {fact.reason}" if fact.reason else "") for fact in announced(place)]


# ---------------------------------------------------------------- while it runs


@pytest.mark.parametrize("phase", [*SOURCE, *TARGET])
def test_every_phase_of_a_handover_is_in_the_journal_when_it_begins(phase: str) -> None:
    place = PHASES[phase]()
    role, phases = ("source", SOURCE) if phase in SOURCE else ("target", TARGET)
    assert words(place) == [f"{role} {phase}" for phase in phases[: phases.index(phase) + 1]]
    assert {(fact.session, fact.transfer, fact.epoch) for fact in announced(place)} == {
        (SESSION, place.transfer, place.epoch)
    }


@pytest.mark.parametrize("phase", [*SOURCE, *TARGET])
def test_a_handover_that_runs_is_shown_with_its_phase_and_counted_as_nothing(phase: str) -> None:
    place = PHASES[phase]()
    shown = last(place)
    assert (shown.phase, shown.outcome, shown.cause, shown.trigger, shown.peer) == (phase, "", "", "attach", YOU)
    assert counted(place) == []


def test_how_long_it_is_in_its_phase_is_shown_and_how_long_it_was_in_those_before() -> None:
    place = copying()
    place.harness.pass_time(100)
    right(place, Ready(SESSION, "t", place.epoch, {ORIGIN: 1 << 40}))
    place.harness.pass_time(30)
    shown = last(place)
    assert (shown.phase, shown.phase_ms, shown.phases_ms, shown.age_ms) == ("waiting", 30, {"copying": 100}, 130)


# ---------------------------------------------------------------- how it ends


def committed_source() -> Stage:
    place = frozen()
    place.harness.reload({SESSION: owner("you", 2)}, "you")
    return place


def committed_target() -> Stage:
    place = committing_again()
    place.harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    return place


def committing_again() -> Stage:
    place = staging()
    place.harness.complete_writes()
    return place


def thawed() -> Stage:
    place = reclaiming()
    place.harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    return place


def back() -> Stage:
    place = waiting()
    place.harness.attach(3)
    return place


def given_up() -> Stage:
    place = copying()
    right(place, Aborted(SESSION, "t", place.epoch, "gave up"))
    return place


def timed_out_source() -> Stage:
    place = copying()
    place.harness.pass_time(TIMING.prepare_ms)
    return place


def superseded() -> Stage:
    place = copying()
    right(place, Prepare(session=SESSION, transfer="u", epoch=place.epoch, receiver="r"))
    right(place, Aborted(SESSION, "u", place.epoch, "gave up"))
    return place


def gone() -> Stage:
    place = waiting()
    place.harness.step(RegistryReported(ProxyDown(YOU, row("you").incarnation)))
    place.harness.run_effects()
    return place


def no_lease(place: Stage) -> Stage:
    place.harness.step(LeaseLost())
    place.harness.run_effects()
    return place


def refused() -> Stage:
    place = preparing()
    right(place, TransferRefused(SESSION, place.transfer, place.epoch, "the session is frozen here"))
    return place


def relayed(why: DeclineReason) -> Stage:
    place = preparing()
    right(place, TransferDeclined(SESSION, place.transfer, place.epoch, why))
    return place


def timed_out_target() -> Stage:
    place = preparing()
    place.harness.pass_time(TIMING.prepare_ms)
    return place


def full_disk() -> Stage:
    place = staging()
    # The write that was under way, and the one that the merge waits for.
    for _ in range(2):
        place.harness.complete_all(effects.Save, StoreFailed("disk full"))
    return place


def lost_to_another() -> Stage:
    place = committing_again()
    place.harness.complete(effects.ClaimRow, Claimed(False, owner("they", 4)))
    return place


ENDS = [
    (committed_source, "source", "committed", "", "source committed"),
    (thawed, "source", "thawed", "timeout", "source thawed: timed out"),
    (back, "source", "aborted", "receiver back", "source aborted: a receiver came back to the source"),
    (given_up, "source", "aborted", "target gave up", "source aborted: gave up"),
    (timed_out_source, "source", "aborted", "timeout", "source aborted: timed out"),
    (gone, "source", "aborted", "peer gone", "source aborted: the lease of the other proxy has ended"),
    (
        lambda: no_lease(waiting()),
        "source",
        "aborted",
        "lease lost",
        "source aborted: the lease of this proxy may have ended",
    ),
    (
        lambda: no_lease(frozen()),
        "source",
        "unsettled",
        "lease lost",
        "source unsettled: the lease of this proxy may have ended",
    ),
    (committed_target, "target", "committed", "", "target committed"),
    (refused, "target", "aborted", "refused", "target aborted: the session is frozen here"),
    (
        lambda: relayed(DeclineReason.OTHERS_ATTACHED),
        "target",
        "relayed",
        "others attached",
        "target relayed: others are attached at the source",
    ),
    (
        lambda: relayed(DeclineReason.LONG_COPY),
        "target",
        "relayed",
        "long copy",
        "target relayed: the session follows when it is copied",
    ),
    (
        lambda: relayed(DeclineReason.ACCESS),
        "target",
        "relayed",
        "access",
        "target relayed: the source looks first whether the receiver may have it",
    ),
    (timed_out_target, "target", "aborted", "timeout", "target aborted: timed out"),
    (full_disk, "target", "aborted", "store failed", "target aborted: the store did not take the session"),
    (lost_to_another, "target", "aborted", "owner changed", "target aborted: the registry names another owner"),
    (
        lambda: no_lease(shadowing()),
        "target",
        "aborted",
        "lease lost",
        "target aborted: the lease of this proxy may have ended",
    ),
    (
        lambda: no_lease(committing()),
        "target",
        "unsettled",
        "lease lost",
        "target unsettled: the lease of this proxy may have ended",
    ),
]


@pytest.mark.parametrize(("end", "role", "outcome", "cause", "said"), ENDS, ids=[f"{e[1]} {e[2]} {e[3]}" for e in ENDS])
def test_handover_is_counted_once_by_outcome_and_cause(
    end: object, role: str, outcome: str, cause: str, said: str
) -> None:
    assert callable(end)
    place = end()
    assert counted(place) == [Handover(role, "attach", outcome, cause)]
    assert words(place)[-1] == said
    shown = last(place)
    assert (shown.phase, shown.outcome, shown.cause) == ("ended", outcome, cause)
    side = place.harness.engine.transfers.sources if role == "source" else place.harness.engine.transfers.targets
    assert side.running == {}


def test_a_transfer_that_another_one_takes_the_place_of_is_counted_too() -> None:
    place = superseded()
    assert [(handover.outcome, handover.cause) for handover in counted(place)] == [
        ("aborted", "superseded"),
        ("aborted", "target gave up"),
    ]
    assert {fact.transfer for fact in announced(place)} == {"t", "u"}


def test_free_text_reason_of_a_peer_is_counted_under_a_fixed_label() -> None:
    place = PHASES["nothing"]()
    right(place, Prepare(session=SESSION, transfer="t", epoch=place.epoch, reason="because of 4711"))
    right(place, Aborted(SESSION, "t", place.epoch, "and of 4712"))
    assert counted(place) == [Handover("source", "other", "aborted", "target gave up")]


# ---------------------------------------------------------------- times and loads


def test_the_time_of_every_phase_is_noted_when_it_has_ended_and_the_pause_with_it() -> None:
    place = thawed()
    counters = place.harness.engine.output.counters
    assert {phase: spread.total for phase, spread in counters.phases.items()} == {
        ("source", "copying"): 0,
        ("source", "waiting"): TIMING.passing_ms,
        ("source", "frozen"): TIMING.frozen_ms,
        ("source", "confirming"): 0,
        ("source", "reclaiming"): 0,
    }
    assert {outcome: (sum(spread.counts), spread.total) for outcome, spread in counters.pauses.items()} == {
        "thawed": (1, TIMING.frozen_ms)
    }


def test_a_handover_that_never_froze_has_no_pause() -> None:
    assert given_up().harness.engine.output.counters.pauses == {}


def test_entries_copied_before_and_after_the_freeze_are_counted_apart() -> None:
    place = frozen()
    counters = place.harness.engine.output.counters
    assert counters.copied["source", "ahead"] == 5
    right(place, Ready(SESSION, "t", place.epoch, {}))
    assert last(place).pre_copied == 5 == last(place).entries - counters.copied["source", "rest"]
    assert announced(place)[0].entries == 0
    assert announced(committed_source())[-1].entries >= 5


def test_the_target_counts_what_came() -> None:
    place = shadowing()
    counters = place.harness.engine.output.counters
    size = sum(len(stored_entry.delivery) for stored_entry in ENTRIES)
    assert (counters.copied["target", "ahead"], counters.copied_bytes["target", "ahead"]) == (1, size)
    right(place, chunk(place))
    assert counters.copied["target", "ahead"] == 1, "a repeat is acknowledged again, and nothing more"


def test_entries_copied_after_the_target_was_ready_count_as_the_rest() -> None:
    place = ready()
    entries = [StoredEntry(number=2, matched=(), origin=ORIGIN, offset=1, delivery=b"\x90")]
    right(
        place,
        Chunk(
            session=SESSION,
            transfer=place.transfer,
            epoch=place.epoch,
            number=2,
            after=1,
            upto=2,
            entries=entries,
            checksum=checksum(entries),
        ),
    )
    counters = place.harness.engine.output.counters
    assert (counters.copied["target", "ahead"], counters.copied["target", "rest"]) == (1, 1)
    assert last(place).pre_copied == 1


def test_the_latest_handover_is_shown_first() -> None:
    place = superseded()
    assert [transfer_view.transfer for transfer_view in place.harness.engine.transfers.shown()] == ["u", "t"]


def test_every_start_of_serving_is_counted_by_how_it_came_about() -> None:
    assert thawed().harness.engine.output.counters.served == {"create": 1, "thaw": 1}
    assert committed_target().harness.engine.output.counters.served == {"handover": 1}
