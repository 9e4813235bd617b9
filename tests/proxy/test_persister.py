"""What is written, when, and what happens when it is not taken."""

from __future__ import annotations

import pytest

from federation.site.state import SiteState
from proxy.core import effects
from proxy.core.effects import ignore_result
from proxy.core.inputs import ChangelogLost, CloseLog, Leave
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.errors import LogUnavailable, RegistryUnavailable, StoreFailed
from waypost.identity import Origin, ReceiverId, SessionId, SiteId
from waypost.messages import Acknowledge, Publish, Subscribe, Subscribed
from waypost.notification import Notification


def publish(harness: EngineHarness, *numbers: int) -> None:
    bodies = [Notification({"n": number}).body for number in numbers]
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=bodies))
    harness.read_log()


def serving() -> EngineHarness:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    harness.pass_time(2_000)
    harness.complete_writes()
    return harness


def acknowledged(harness: EngineHarness) -> int:
    """Return what the checkpoint that is being written says of the own origin."""
    written = harness.next(effects.PutCheckpoint)
    harness.finish(written, None)
    return written.checkpoint.acknowledged[Origin("A/0")]


def test_persister_saves_once_at_a_time_and_the_next_save_has_all_changes_since() -> None:
    harness = serving()
    publish(harness, 1)
    harness.pass_time(1_000)
    first = harness.next(effects.Save)
    publish(harness, 2, 3)
    harness.pass_time(1_000)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.Save)]
    harness.finish(first, None)
    harness.run_effects()
    harness.pass_time(1_000)
    (change,) = harness.next(effects.Save).batch.changes
    assert [number for number, _, _ in change.entries] == [2, 3]


def test_a_position_and_what_was_taken_up_to_it_are_one_batch() -> None:
    harness = serving()
    publish(harness, 1)
    harness.pass_time(1_000)
    batch = harness.next(effects.Save).batch
    assert batch.position == len(harness.log)
    assert [number for number, _, _ in batch.changes[0].entries] == [1]


def test_entries_that_every_receiver_acknowledged_are_never_saved() -> None:
    harness = serving()
    publish(harness, 1, 2)
    harness.send(1, Acknowledge(2))
    harness.pass_time(1_000)
    (change,) = harness.next(effects.Save).batch.changes
    assert list(change.entries) == []
    assert change.saved.first_number == 3


def test_failed_save_is_repeated() -> None:
    harness = serving()
    publish(harness, 1)
    harness.pass_time(1_000)
    harness.complete(effects.Save, StoreFailed("full"))
    harness.pass_time(1_000)
    (change,) = harness.next(effects.Save).batch.changes
    assert [number for number, _, _ in change.entries] == [1]


def test_a_checkpoint_follows_the_acknowledgements() -> None:
    harness = serving()
    publish(harness, 1)
    harness.send(1, Acknowledge(1))
    harness.pass_time(2_000)
    checkpoint = harness.next(effects.PutCheckpoint).checkpoint
    assert checkpoint.session == SESSION
    assert checkpoint.acknowledged == {"A/0": len(harness.log) - 1}


def test_a_checkpoint_never_says_more_than_what_every_receiver_has() -> None:
    harness = serving()
    published_at = len(harness.log)
    harness.attach(2, "other")
    publish(harness, 1)
    harness.send(1, Acknowledge(1))
    harness.send(1, Subscribe(subscription="y", expression="n > 5"))
    assert acknowledged(harness) < published_at
    harness.send(2, Acknowledge(1))
    harness.pass_time(2_000)
    assert acknowledged(harness) >= published_at


def test_nothing_that_is_on_its_way_to_the_disk_changes_any_more() -> None:
    """The write happens later, on another thread: it must not see what came after its position."""
    harness = serving()
    publish(harness, 1)
    harness.pass_time(1_000)
    saved = harness.next(effects.Save).batch.changes[0].saved
    before = str(saved.descriptor)
    harness.send(1, Acknowledge(1))
    assert str(saved.descriptor) == before
    assert str(harness.engine.sessions[SESSION].descriptor()) != before


def test_a_session_that_comes_back_before_it_was_deleted_is_written_and_not_deleted() -> None:
    harness = serving()
    session = harness.engine.sessions[SESSION]
    harness.engine.served_sessions.drop(session)
    harness.pass_time(1_000)
    deleting = harness.next(effects.Save)
    assert deleting.batch.deleted == (SESSION,)
    harness.engine.persister.store.replace_copy(SESSION)
    harness.engine.sessions.put(session)
    harness.finish(deleting, StoreFailed("full"))
    harness.run_effects()
    harness.pass_time(1_000)
    batch = harness.next(effects.Save).batch
    assert batch.deleted == ()
    assert [(change.saved.id, change.replaces) for change in batch.changes] == [(SESSION, True)]


def snapshots(harness: EngineHarness) -> list[effects.PutSite]:
    return [effect for effect in harness.pending if isinstance(effect, effects.PutSite)]


def test_the_sites_state_is_kept_once_a_minute_as_long_as_the_log_grows() -> None:
    harness = serving()
    first = harness.next(effects.PutSite)
    assert SiteState.restore(SiteId("A"), (), first.snapshot.state).interest_counts == {"n > 0": 1}
    harness.finish(first, None)
    publish(harness, 1)
    harness.pass_time(50_000)
    assert snapshots(harness) == []
    harness.pass_time(12_000)
    second = harness.next(effects.PutSite)
    assert second.snapshot.position == len(harness.log) > first.snapshot.position
    harness.finish(second, None)
    harness.pass_time(200_000)
    assert snapshots(harness) == []


def test_a_sites_state_that_was_not_taken_is_written_again_at_once() -> None:
    harness = serving()
    harness.finish(harness.next(effects.PutSite), LogUnavailable("away"))
    harness.pass_time(2_000)
    harness.finish(harness.next(effects.PutSite), None)
    harness.pass_time(2_000)
    assert snapshots(harness) == []


def test_only_one_proxy_of_a_site_writes_the_site_snapshot() -> None:
    first, second = EngineHarness(), EngineHarness()
    first.reload(None, "next")
    second.reload(None, "before")
    for harness in (first, second):
        harness.step(CloseLog(ignore_result))
        harness.run_effects()
        harness.read_log()
        harness.pass_time(2_000)
    assert len(snapshots(first)) == 1 and not snapshots(second)
    second.reload(None)
    second.pass_time(2_000)
    assert len(snapshots(second)) == 1


def test_selective_acknowledgement_alone_is_written_to_the_changelog() -> None:
    harness = EngineHarness()
    harness.serve()

    def checkpoints() -> list[effects.PutCheckpoint]:
        for _ in range(5):
            harness.pass_time(1_000)
            harness.complete_all(effects.Save, None)
        return [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]

    checkpoints()
    harness.complete_writes()
    harness.engine.sessions.mark_changed(SESSION)
    assert checkpoints() == [], "nothing has changed"
    harness.engine.state.frontier[Origin("A/0")] = 7
    harness.send(1, Acknowledge(0, selective={Origin("A/0"): [7]}))
    (written,) = checkpoints()
    assert written.checkpoint.descriptor.receivers[ReceiverId("r")].selective == {Origin("A/0"): [7]}


def test_lost_changelog_gets_every_checkpoint_again_without_a_change() -> None:
    harness = serving()
    harness.pass_time(5_000)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
    harness.step(ChangelogLost())
    harness.run_effects()
    harness.pass_time(5_000)
    assert harness.next(effects.PutCheckpoint).checkpoint.session == SESSION
    harness.next(effects.PutSite)


def test_lost_changelog_has_every_checkpoint_again_at_an_orderly_end_right_after() -> None:
    """Else whoever takes the sessions over finds what was answered nowhere."""
    harness = serving()
    harness.pass_time(5_000)
    harness.step(ChangelogLost())
    done: list[None] = []
    harness.step(Leave(done.append))
    harness.run_effects()
    assert harness.next(effects.PutCheckpoint).checkpoint.session == SESSION


def noted(harness: EngineHarness) -> list[effects.NoteCheckpoints]:
    return [effect for effect in harness.pending if isinstance(effect, effects.NoteCheckpoints)]


def test_the_registry_notes_up_to_which_checkpoint_clients_were_answered_and_nothing_before_they_are_durable() -> None:
    harness = serving()
    while noted(harness):
        harness.complete_all(effects.NoteCheckpoints, None)
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    written = harness.next(effects.PutCheckpoint)
    assert "y" in [subscription_row.id for subscription_row in written.checkpoint.descriptor.subscriptions]
    harness.complete_all(effects.Save, None)
    assert not noted(harness)
    harness.finish(written, None)
    harness.run_effects()
    harness.pass_time(2_000)
    assert [note_checkpoints.ranks for note_checkpoints in noted(harness)] == [{SESSION: written.checkpoint.rank}]
    assert "y" in [subscribed.subscription for subscribed in harness.received(1) if isinstance(subscribed, Subscribed)]


def test_leaving_proxy_notes_the_checkpoints_of_its_last_answers() -> None:
    harness = serving()
    while noted(harness):
        harness.complete_all(effects.NoteCheckpoints, None)
    harness.send(1, Subscribe(subscription="y", expression="n > 1"))
    harness.complete_writes()
    harness.step(Leave(ignore_result))
    harness.run_effects()
    assert [list(note_checkpoints.ranks) for note_checkpoints in noted(harness)] == [[SESSION]]


def test_checkpoint_of_a_busy_session_is_not_noted_before_those_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.stream.checkpoint_writer.NOTED_AT_ONCE", 1)
    harness = serving()
    while noted(harness):
        harness.complete_all(effects.NoteCheckpoints, None)
    persister, order = harness.engine.persister, []
    persister.checkpoints._answered = {SessionId("busy"): (1, 1), SessionId("waits"): (1, 1)}
    harness.pass_time(2_000)
    for serial in range(2, 5):
        (note,) = noted(harness)
        order += list(note.ranks)
        if "busy" in persister.checkpoints._answered:
            persister.checkpoints._answered[SessionId("busy")] = (1, serial)
        harness.complete(effects.NoteCheckpoints, None)
    assert order[:3] == ["busy", "waits", "busy"]


def test_failed_note_of_a_checkpoint_is_repeated_with_the_last_rank_only() -> None:
    harness = serving()
    while noted(harness):
        harness.complete_all(effects.NoteCheckpoints, None)
    for number in range(3):
        harness.send(1, Subscribe(subscription=f"s{number}", expression="n > 1"))
        harness.complete_writes()
    harness.pass_time(2_000)
    (first,) = noted(harness)
    harness.send(1, Subscribe(subscription="the last one", expression="n > 1"))
    harness.complete_writes()
    harness.pass_time(2_000)
    assert noted(harness) == [first]
    harness.complete(effects.NoteCheckpoints, RegistryUnavailable("away"))
    assert not noted(harness)
    harness.pass_time(2_000)
    (again,) = noted(harness)
    assert again.ranks[SESSION] > first.ranks[SESSION]


def test_session_has_one_checkpoint_write_at_a_time_and_the_next_serves_all_requests_since() -> None:
    harness = serving()
    for number in range(50):
        harness.send(1, Subscribe(subscription=f"s{number}", expression=f"n > {number}"))
    writes = [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
    assert len(writes) == 1
    harness.finish(harness.next(effects.PutCheckpoint), None)
    harness.run_effects()
    second = harness.next(effects.PutCheckpoint)
    assert len(second.checkpoint.descriptor.subscriptions) == 51
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
    harness.finish(second, None)
    harness.complete_writes()
    harness.run_effects()
    answered = [subscribed.subscription for subscribed in harness.received(1) if isinstance(subscribed, Subscribed)]
    assert {f"s{number}" for number in range(50)} <= set(answered)


def test_error_in_a_checkpoint_callback_does_not_prevent_the_next_checkpoint() -> None:
    harness = serving()
    session = harness.engine.sessions[SESSION]
    answers: list[str] = []

    def raises(error: object) -> None:
        raise ValueError("a fault")

    harness.engine.persister.checkpoints.write(session, raises)
    harness.engine.persister.checkpoints.write(session, lambda error: answers.append("second"))
    harness.run_effects()
    with pytest.raises(ValueError, match="a fault"):
        harness.finish(harness.next(effects.PutCheckpoint), None)
    harness.run_effects()
    harness.finish(harness.next(effects.PutCheckpoint), None)
    assert answers == ["second"]


def test_request_from_a_checkpoint_callback_waits_for_another_checkpoint() -> None:
    harness = serving()
    session = harness.engine.sessions[SESSION]
    answers: list[str] = []
    persister = harness.engine.persister
    persister.checkpoints.write(
        session, lambda _: persister.checkpoints.write(session, lambda _: answers.append("again"))
    )
    harness.run_effects()
    harness.finish(harness.next(effects.PutCheckpoint), None)
    harness.run_effects()
    assert not answers
    harness.finish(harness.next(effects.PutCheckpoint), None)
    assert answers == ["again"]


def test_the_next_checkpoint_of_a_session_that_is_ours_no_more_is_not_written() -> None:
    harness = serving()
    session = harness.engine.sessions[SESSION]
    answers: list[str] = []
    harness.engine.persister.checkpoints.write(session, lambda _: answers.append("first"))
    harness.engine.persister.checkpoints.write(session, lambda _: answers.append("second"))
    harness.run_effects()
    written = harness.next(effects.PutCheckpoint)
    harness.engine.sessions.remove(SESSION)
    harness.finish(written, None)
    harness.run_effects()
    assert answers == ["first", "second"]
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]


def test_failed_checkpoint_is_reported_to_exactly_the_requests_that_waited_for_it() -> None:
    harness = serving()
    session = harness.engine.sessions[SESSION]
    answers: list[tuple[str, bool]] = []
    persister = harness.engine.persister
    persister.checkpoints.write(session, lambda error: answers.append(("first", error is None)))
    persister.checkpoints.write(session, lambda error: answers.append(("second", error is None)))
    persister.checkpoints.write(session, lambda error: answers.append(("third", error is None)))
    harness.run_effects()
    harness.finish(harness.next(effects.PutCheckpoint), LogUnavailable("away"))
    assert answers == [("first", False)]
    harness.run_effects()
    harness.finish(harness.next(effects.PutCheckpoint), None)
    assert answers[1:] == [("second", True), ("third", True)]
