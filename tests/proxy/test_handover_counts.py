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
    Trigger,
    checksum,
)
from proxy.core import effects
from proxy.core.counters import Handover
from proxy.core.inputs import LeaseLost, RegistryReported
from proxy.core.transfer_record import (
    Cause,
    TransferView,
)
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
from waypost.facts import (
    Fact,
    TransferEnd,
)

TIMING = Timing()


def counted(stage: Stage) -> list[Handover]:
    return list(stage.harness.engine.output.counters.handovers.elements())


def last(stage: Stage) -> TransferView:
    return stage.harness.engine.transfers.views()[0]


def announced(stage: Stage) -> list[Fact]:
    return [fact for fact in stage.harness.facts if fact.kind == "handover"]


def words(stage: Stage) -> list[str]:
    return [f"{fact.role} {fact.phase}" + (f": {fact.reason}" if fact.reason else "") for fact in announced(stage)]


# ---------------------------------------------------------------- while it runs


@pytest.mark.parametrize("phase", [*SOURCE, *TARGET])
def test_every_phase_of_a_handover_is_in_the_journal_when_it_begins(phase: str) -> None:
    stage = PHASES[phase]()
    role, phases = ("source", SOURCE) if phase in SOURCE else ("target", TARGET)
    assert words(stage) == [f"{role} {phase}" for phase in phases[: phases.index(phase) + 1]]
    assert {(fact.session, fact.transfer, fact.epoch) for fact in announced(stage)} == {
        (SESSION, stage.transfer, stage.epoch)
    }


@pytest.mark.parametrize("phase", [*SOURCE, *TARGET])
def test_a_handover_that_runs_is_shown_with_its_phase_and_counted_as_nothing(phase: str) -> None:
    stage = PHASES[phase]()
    shown = last(stage)
    assert (shown.phase, shown.outcome, shown.cause) == (phase, None, Cause.NONE)
    assert (shown.trigger, shown.peer) == (Trigger.ATTACH, YOU)
    assert counted(stage) == []


def test_how_long_it_is_in_its_phase_is_shown_and_how_long_it_was_in_those_before() -> None:
    stage = copying()
    stage.harness.pass_time(100)
    right(stage, Ready(SESSION, "t", stage.epoch, {ORIGIN: 1 << 40}))
    stage.harness.pass_time(30)
    shown = last(stage)
    assert (shown.phase, shown.phase_ms, shown.phases_ms, shown.age_ms) == ("waiting", 30, {"copying": 100}, 130)


# ---------------------------------------------------------------- how it ends


def committed_source() -> Stage:
    stage = frozen()
    stage.harness.reload({SESSION: owner("you", 2)}, "you")
    return stage


def committed_target() -> Stage:
    stage = committing_again()
    stage.harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    return stage


def committing_again() -> Stage:
    stage = staging()
    stage.harness.complete_writes()
    return stage


def thawed() -> Stage:
    stage = reclaiming()
    stage.harness.complete(effects.ClaimRow, Claimed(True, owner("me", 2)))
    return stage


def back() -> Stage:
    stage = waiting()
    stage.harness.attach(3)
    return stage


def given_up() -> Stage:
    stage = copying()
    right(stage, Aborted(SESSION, "t", stage.epoch, "gave up"))
    return stage


def timed_out_source() -> Stage:
    stage = copying()
    stage.harness.pass_time(TIMING.prepare_ms)
    return stage


def superseded() -> Stage:
    stage = copying()
    right(stage, Prepare(session=SESSION, transfer="u", epoch=stage.epoch, receiver="r"))
    right(stage, Aborted(SESSION, "u", stage.epoch, "gave up"))
    return stage


def gone() -> Stage:
    stage = waiting()
    stage.harness.step(RegistryReported(ProxyDown(YOU, row("you").incarnation)))
    stage.harness.run_effects()
    return stage


def no_lease(stage: Stage) -> Stage:
    stage.harness.step(LeaseLost())
    stage.harness.run_effects()
    return stage


def refused() -> Stage:
    stage = preparing()
    right(stage, TransferRefused(SESSION, stage.transfer, stage.epoch, "the session is frozen here"))
    return stage


def relayed(why: DeclineReason) -> Stage:
    stage = preparing()
    right(stage, TransferDeclined(SESSION, stage.transfer, stage.epoch, why))
    return stage


def timed_out_target() -> Stage:
    stage = preparing()
    stage.harness.pass_time(TIMING.prepare_ms)
    return stage


def full_disk() -> Stage:
    stage = staging()
    # The write that was under way, and the one that the merge waits for.
    for _ in range(2):
        stage.harness.complete_all(effects.Save, StoreFailed("disk full"))
    return stage


def lost_to_another() -> Stage:
    stage = committing_again()
    stage.harness.complete(effects.ClaimRow, Claimed(False, owner("they", 4)))
    return stage


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


@pytest.mark.parametrize(
    ("end", "role", "outcome", "cause", "last_fact"), ENDS, ids=[f"{e[1]} {e[2]} {e[3]}" for e in ENDS]
)
def test_handover_is_counted_once_by_outcome_and_cause(
    end: object, role: str, outcome: TransferEnd, cause: Cause, last_fact: str
) -> None:
    assert callable(end)
    stage = end()
    assert counted(stage) == [Handover(role, Trigger.ATTACH, outcome, cause)]
    assert words(stage)[-1] == last_fact
    shown = last(stage)
    assert (shown.phase, shown.outcome, shown.cause) == ("ended", outcome, cause)
    side = stage.harness.engine.transfers.sources if role == "source" else stage.harness.engine.transfers.targets
    assert side.running == {}


def test_a_transfer_that_another_one_takes_the_place_of_is_counted_too() -> None:
    stage = superseded()
    assert [(handover.outcome, handover.cause) for handover in counted(stage)] == [
        ("aborted", "superseded"),
        ("aborted", "target gave up"),
    ]
    assert {fact.transfer for fact in announced(stage)} == {"t", "u"}


def test_free_text_reason_of_a_peer_is_counted_under_a_fixed_label() -> None:
    stage = PHASES["nothing"]()
    right(stage, Prepare(session=SESSION, transfer="t", epoch=stage.epoch, trigger=Trigger.DRAIN))
    right(stage, Aborted(SESSION, "t", stage.epoch, "because of 4711"))
    assert counted(stage) == [Handover("source", Trigger.DRAIN, TransferEnd.ABORTED, Cause.TARGET_GAVE_UP)]


# ---------------------------------------------------------------- times and loads


def test_the_time_of_every_phase_is_noted_when_it_has_ended_and_the_pause_with_it() -> None:
    stage = thawed()
    counters = stage.harness.engine.output.counters
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
    stage = frozen()
    counters = stage.harness.engine.output.counters
    assert counters.copied["source", "ahead"] == 5
    right(stage, Ready(SESSION, "t", stage.epoch, {}))
    assert last(stage).pre_copied == 5 == last(stage).entries - counters.copied["source", "rest"]
    assert announced(stage)[0].entries == 0
    assert announced(committed_source())[-1].entries >= 5


def test_the_target_counts_what_came() -> None:
    stage = shadowing()
    counters = stage.harness.engine.output.counters
    size = sum(len(stored_entry.delivery) for stored_entry in ENTRIES)
    assert (counters.copied["target", "ahead"], counters.copied_bytes["target", "ahead"]) == (1, size)
    right(stage, chunk(stage))
    assert counters.copied["target", "ahead"] == 1, "a repeat is acknowledged again, and nothing more"


def test_entries_copied_after_the_target_was_ready_count_as_the_rest() -> None:
    stage = ready()
    entries = [StoredEntry(number=2, matched=(), origin=ORIGIN, offset=1, delivery=b"\x90")]
    right(
        stage,
        Chunk(
            session=SESSION,
            transfer=stage.transfer,
            epoch=stage.epoch,
            number=2,
            after=1,
            upto=2,
            entries=entries,
            checksum=checksum(entries),
        ),
    )
    counters = stage.harness.engine.output.counters
    assert (counters.copied["target", "ahead"], counters.copied["target", "rest"]) == (1, 1)
    assert last(stage).pre_copied == 1


def test_the_latest_handover_is_shown_first() -> None:
    stage = superseded()
    assert [transfer_view.transfer for transfer_view in stage.harness.engine.transfers.views()] == ["u", "t"]


def test_every_start_of_serving_is_counted_by_how_it_came_about() -> None:
    assert thawed().harness.engine.output.counters.served == {"create": 1, "thaw": 1}
    assert committed_target().harness.engine.output.counters.served == {"handover": 1}
