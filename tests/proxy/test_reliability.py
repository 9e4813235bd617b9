"""Reliability at a proxy: what is stored for whom, who may ask for what, and what is a gap after a restart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import msgspec
import pytest

from federation.ports import Claimed
from federation.site.state import SiteState
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected
from proxy.core.settings import EngineBounds
from proxy.core.store_port import Restored, SavedSession, SiteCheckpoint
from tests.helpers.engine_harness import SESSION, EngineHarness
from tests.proxy.test_dispatcher import delivered
from waypost.access import ADMINISTER, READ, SUBSCRIBE, Grant
from waypost.errors import BadMessage
from waypost.facts import GapCause
from waypost.frames import decode_client_message, encode_message
from waypost.identity import Origin, ReceiverId, SiteId
from waypost.limits import BEST_EFFORT_EXPIRY_S
from waypost.messages import (
    Acknowledge,
    Attach,
    Attached,
    DeliverEncoded,
    Gap,
    Problem,
    Publish,
    Subscribe,
    Unsubscribe,
)
from waypost.notification import Notification
from waypost.reliability import BEST_EFFORT, BEST_EFFORT_EVENTS, DEGREES, PERSISTENT, Degree, Reliability

A = Origin("A/0")


def serving(*levels: Reliability | None) -> EngineHarness:
    """Return a proxy with a session of one subscription, and receivers of these levels on connections 11, 12, ..."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    for number, level in enumerate(levels, 11):
        harness.send(
            number,
            Attach(session=SESSION, receiver=f"r{number}", incarnation=f"i{number}", frontier={}, reliability=level),
        )
        harness.complete_writes()
    harness.engine.sessions[SESSION].unregister(harness.engine.sessions[SESSION].receivers[r("r")], {})
    harness.read_log()
    harness.complete_writes()
    harness.received(11)
    return harness


def r(name: str) -> ReceiverId:
    return ReceiverId(name)


def publish(harness: EngineHarness, *numbers: int) -> None:
    for number in numbers:
        harness.send(9, Publish(producer="p", secret="life", first=number, bodies=[Notification({"n": number}).body]))
    harness.read_log()


def stored(harness: EngineHarness) -> list[int]:
    """Let time pass, and return the numbers of the entries that go to the store."""
    found: list[int] = []
    harness.pass_time(1_000)
    while any(isinstance(effect, effects.Save | effects.PutCheckpoint) for effect in harness.pending):
        saves = [effect for effect in harness.pending if isinstance(effect, effects.Save)]
        found += [number for save in saves for change in save.batch.changes for number, *_ in change.entries]
        harness.complete_writes()
    return found


# ---------------------------------------------------------------- levels


@pytest.mark.parametrize("events", DEGREES)
@pytest.mark.parametrize("connection", DEGREES)
def test_three_cells_of_the_matrix_mean_something_and_one_is_refused(events: Degree, connection: Degree) -> None:
    frame = msgspec.msgpack.encode(["attach", "s", "r", "i", {}, 1, True, None, [], None, 0, [events, connection]])
    if (events, connection) == ("persistent", "best-effort"):
        with pytest.raises(BadMessage, match="mean nothing") as refused:
            decode_client_message(frame)
        assert refused.value.field == "reliability"
    else:
        decoded = decode_client_message(frame)
        assert isinstance(decoded, Attach) and decoded.reliability == Reliability(events, connection)
        assert decode_client_message(encode_message(decoded)) == decoded


LEVELS = (PERSISTENT, BEST_EFFORT_EVENTS, BEST_EFFORT)


@pytest.mark.parametrize("above", range(3))
@pytest.mark.parametrize("below", range(3))
@pytest.mark.parametrize("level", ["session_reliability", "reliability"])
def test_a_lower_level_may_only_lower_it(level: str, above: int, below: int) -> None:
    harness = EngineHarness()
    harness.engine.env.settings = replace(harness.engine.env.settings, reliability=LEVELS[above])
    harness.serve()
    harness.send(
        2,
        msgspec.structs.replace(
            Attach(session=SESSION, receiver="other", incarnation="i2", frontier={}), **{level: LEVELS[below]}
        ),
    )
    harness.complete_writes()
    (answer,) = (message for message in harness.received(2) if isinstance(message, Attached | Problem))
    receivers = harness.engine.sessions[SESSION].receivers
    if below < above:
        assert isinstance(answer, Problem)
        assert (answer.code, answer.field) == ("REFUSED", level)
        assert str(LEVELS[above]) in answer.message
        assert r("other") not in receivers
    else:
        assert isinstance(answer, Attached)
        assert receivers[r("other")].reliability == LEVELS[below]


def test_reliability_of_a_session_applies_to_later_attaches() -> None:
    harness = serving(None)
    harness.send(
        12,
        Attach(session=SESSION, receiver="r12", incarnation="i12", frontier={}, session_reliability=BEST_EFFORT_EVENTS),
    )
    harness.complete_writes()
    harness.attach(13, "r13")
    session = harness.engine.sessions[SESSION]
    found = [session.receivers[r(name)].reliability for name in ("r11", "r12", "r13")]
    assert found == [PERSISTENT, BEST_EFFORT_EVENTS, BEST_EFFORT_EVENTS]
    assert session.descriptor().reliability == BEST_EFFORT_EVENTS
    harness.send(14, Attach(session=SESSION, receiver="r14", incarnation="i14", frontier={}, reliability=PERSISTENT))
    assert [problem.field for problem in harness.received(14) if isinstance(problem, Problem)] == ["reliability"]


@pytest.mark.parametrize("change", [{"session_reliability": BEST_EFFORT}, {"session_expiry_s": 1}])
def test_client_without_the_right_to_administer_does_not_change_session_policy(change: dict[str, object]) -> None:
    harness = serving(None)
    session = harness.engine.sessions[SESSION]
    session.set_access({"": Grant((READ, SUBSCRIBE)), "owner": Grant((READ, SUBSCRIBE, ADMINISTER))})
    harness.send(
        12, msgspec.structs.replace(Attach(session=SESSION, receiver="r12", incarnation="i12", frontier={}), **change)
    )
    assert [problem.code for problem in harness.received(12) if isinstance(problem, Problem)] == ["FORBIDDEN"]
    assert (session.idle_time.expiry_s, session.reliability) == (None, PERSISTENT)


def test_a_place_on_a_connection_of_best_effort_ends_soon_after_it() -> None:
    harness = serving(None, BEST_EFFORT)
    harness.step(ClientDisconnected(11))
    harness.step(ClientDisconnected(12))
    for _ in range(BEST_EFFORT_EXPIRY_S - 2):
        harness.pass_time(1_000)
    assert {*harness.engine.sessions[SESSION].receivers} == {"r11", "r12"}
    for _ in range(4):
        harness.pass_time(1_000)
    assert {*harness.engine.sessions[SESSION].receivers} == {"r11"}


# ---------------------------------------------------------------- what is stored


def test_nothing_is_stored_for_receivers_of_best_effort_events_alone() -> None:
    harness = serving(BEST_EFFORT_EVENTS, BEST_EFFORT)
    publish(harness, 1, 2)
    assert stored(harness) == []
    assert harness.engine.sessions[SESSION].entries.count == 2


def test_unacknowledged_backlog_of_one_persistent_receiver_is_stored() -> None:
    harness = serving(BEST_EFFORT_EVENTS, None)
    publish(harness, 1, 2)
    harness.send(12, Acknowledge(2))
    assert stored(harness) == []
    publish(harness, 3)
    assert stored(harness) == [1, 2, 3]


def test_best_effort_entries_that_leave_memory_are_stored() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    harness.engine.env.settings = replace(harness.engine.env.settings, bounds=EngineBounds(queue_in_memory=3))
    publish(harness, 1, 2, 3, 4, 5)
    assert stored(harness) == [1, 2]
    publish(harness, 6)
    assert stored(harness) == [3]
    assert harness.engine.sessions[SESSION].entries.unloaded_number == 3
    assert delivered(harness.received(11)) == [1, 2, 3, 4, 5, 6]


def test_entries_are_stored_from_the_registration_of_a_persistent_receiver_on() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    publish(harness, 1, 2)
    assert stored(harness) == []
    harness.attach(12, "late")
    publish(harness, 3)
    assert 3 in stored(harness)


# ---------------------------------------------------------------- after a restart


def restarted(harness: EngineHarness, entries: int) -> EngineHarness:
    """Return the proxy's next life, which finds on its disk what the store had at its end."""
    session, state = harness.engine.sessions[SESSION], SiteState(SiteId("A"))
    for offset, record in enumerate(harness.log):
        state.fold(offset, record)
    saved = SavedSession(
        id=SESSION,
        epoch=session.epoch,
        checkpointed=(session.epoch, 0),
        role="serving",
        descriptor=session.descriptor(),
        first_number=session.entries.first_number,
        next_number=session.entries.next_number,
        gates={},
    )
    assert session.entries.count == entries
    acceptance, position = state.acceptance.snapshot(), len(harness.log)
    site_checkpoint = SiteCheckpoint(position, acceptance, state.snapshot())
    later = EngineHarness(Restored(position, acceptance, site_checkpoint, [saved]))
    later.log = harness.log
    claim = later.next(effects.ClaimRow)
    harness.finish(claim, Claimed(True, claim.new))
    later.run_effects()
    later.complete_writes()
    return later


def gaps(harness: EngineHarness, connection: int) -> list[tuple[int, int]]:
    return [(gap.first, gap.last) for gap in harness.received(connection) if isinstance(gap, Gap)]


def offsets(harness: EngineHarness, numbers: Iterable[int]) -> list[int]:
    wanted = {Notification({"n": number}).body for number in numbers}
    return [offset for offset, record in enumerate(harness.log) if getattr(record, "body", b"") in wanted]


def test_best_effort_backlog_lost_in_a_restart_is_a_gap_reported_until_acknowledged() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    publish(harness, 1)
    harness.send(11, Acknowledge(1))
    harness.step(ClientDisconnected(11))
    publish(harness, 2, 3)
    first, last = offsets(harness, (2, 3))
    later = restarted(harness, 2)
    (fact,) = (fact for fact in later.facts if fact.kind == "gap")
    assert (fact.receiver, fact.cause) == ("r11", GapCause.LOST_WITH_PROCESS)
    assert fact.offsets[0] <= first and fact.offsets[1] >= last
    later.attach(11, "r11")
    announced = gaps(later, 11)
    assert announced == [(fact.offsets[0], fact.offsets[1])]
    later.attach(12, "r11")
    assert gaps(later, 12) == announced
    later.send(12, Acknowledge(0, gaps=1))
    later.attach(13, "r11")
    assert gaps(later, 13) == []
    assert later.engine.sessions[SESSION].gaps == []


def test_receiver_with_everything_acknowledged_gets_no_gap_after_restart() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    publish(harness, 1, 2)
    harness.send(11, Acknowledge(2))
    later = restarted(harness, 0)
    assert [fact for fact in later.facts if fact.kind == "gap"] == []


def test_acknowledgement_of_an_unreported_gap_is_refused() -> None:
    harness = serving(None)
    harness.send(11, Acknowledge(0, gaps=1))
    assert [problem.field for problem in harness.received(11) if isinstance(problem, Problem)] == ["gaps"]


def test_a_receiver_of_persistent_events_beside_it_has_no_gap() -> None:
    harness = serving(BEST_EFFORT_EVENTS, None)
    harness.step(ClientDisconnected(11))
    harness.step(ClientDisconnected(12))
    publish(harness, 1, 2)
    later = restarted(harness, 2)
    assert {fact.receiver for fact in later.facts if fact.kind == "gap"} == {"r11"}
    assert later.engine.sessions[SESSION].entries.count == 2


def test_a_place_on_a_connection_of_best_effort_is_given_up_after_a_restart_unless_its_client_comes_at_once() -> None:
    harness = serving(BEST_EFFORT, BEST_EFFORT)
    later = restarted(harness, 0)
    later.attach(11, "r11")
    for _ in range(3):
        later.pass_time(1_000)
    assert {*later.engine.sessions[SESSION].receivers} == {"r11"}


def test_receiver_with_a_frontier_past_the_gap_is_not_told_of_it() -> None:
    """Its acknowledgement went with the proxy."""
    harness = serving(BEST_EFFORT_EVENTS)
    publish(harness, 1, 2)
    later = restarted(harness, 2)
    (fact,) = (fact for fact in later.facts if fact.kind == "gap")
    later.attach(11, "r11", {A: fact.offsets[1]})
    assert gaps(later, 11) == []
    assert later.engine.sessions[SESSION].gaps == []


def test_gap_is_reported_after_its_journal_record() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    harness.step(ClientDisconnected(11))
    publish(harness, 1)
    later = restarted(harness, 1)
    later.journal_waits = True
    later.attach(11, "r11")
    assert gaps(later, 11) == []
    later.complete_all(effects.Attest, None)
    assert len(gaps(later, 11)) == 1


def test_entries_behind_a_gap_are_delivered_only_after_the_gap() -> None:
    """Else the receiver's frontier passes the gap, and a crash now would leave it unreported for ever."""
    harness = serving(BEST_EFFORT_EVENTS)
    harness.step(ClientDisconnected(11))
    publish(harness, 1)
    later = restarted(harness, 1)
    later.journal_waits = True
    later.attach(11, "r11")
    publish(later, 2)
    assert delivered(later.received(11)) == []
    later.complete_all(effects.Attest, None)
    announced = later.received(11)
    assert [type(message) for message in announced if isinstance(message, Gap | DeliverEncoded)] == [
        Gap,
        DeliverEncoded,
    ]
    assert delivered(announced) == [2]


def test_a_place_has_its_reliability_from_the_beginning() -> None:
    harness = serving(None)
    harness.send(12, Attach(session=SESSION, receiver="r12", incarnation="i12", frontier={}, reliability=BEST_EFFORT))
    harness.step(ClientDisconnected(12))
    harness.complete_writes()
    for _ in range(BEST_EFFORT_EXPIRY_S + 2):
        harness.pass_time(1_000)
    assert {*harness.engine.sessions[SESSION].receivers} == {"r11"}


def test_receiver_raised_to_persistent_events_attaches_only_after_its_backlog_is_saved() -> None:
    harness = serving(BEST_EFFORT_EVENTS)
    publish(harness, 1)
    harness.send(12, Attach(session=SESSION, receiver="r11", incarnation="i11", frontier={}))
    assert not any(isinstance(message, Attached) for message in harness.received(12))
    saves = [effect for effect in harness.pending if isinstance(effect, effects.Save)]
    assert [number for save in saves for change in save.batch.changes for number, *_ in change.entries] == [1]
    harness.complete_writes()
    assert any(isinstance(message, Attached) for message in harness.received(12))


def test_an_ended_subscription_is_owed_to_receivers_of_best_effort_events_too() -> None:
    harness = serving(BEST_EFFORT_EVENTS, None)
    harness.step(ClientDisconnected(11))
    publish(harness, 1)
    harness.send(12, Acknowledge(1))
    harness.send(12, Unsubscribe("x"))
    for _ in range(3):
        harness.pass_time(1_000)
        harness.complete_writes()
    assert [subscription.id for subscription in harness.engine.sessions[SESSION].subscriptions.ended] == ["x"]
