"""What is written, when, and what happens when it is not taken."""

from __future__ import annotations

import pytest

from federation.site_state import SiteState
from proxy.core import effects
from tests.helpers.alone import SESSION, Alone
from waypost.errors import LogUnavailable, RegistryUnavailable, StoreFailed
from waypost.identity import Origin, ReceiverId, SessionId, SiteId
from waypost.messages import Acknowledge, Publish, Subscribe, Subscribed
from waypost.notification import Notification


def publish(alone: Alone, *numbers: int) -> None:
    bodies = [Notification({"n": number}).body for number in numbers]
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=bodies))
    alone.read_log()


def serving() -> Alone:
    alone = Alone()
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    alone.pass_time(2_000)
    alone.keep()
    return alone


def acknowledged(alone: Alone) -> int:
    """Return what the checkpoint that is being written says of the own origin."""
    written = alone.next(effects.PutCheckpoint)
    written.on_done(None)
    return written.checkpoint.acknowledged[Origin("A/0")]


def test_one_write_at_a_time_and_the_next_one_has_all_that_came_meanwhile() -> None:
    alone = serving()
    publish(alone, 1)
    alone.pass_time(1_000)
    first = alone.next(effects.Save)
    publish(alone, 2, 3)
    alone.pass_time(1_000)
    assert not [each for each in alone.waiting if isinstance(each, effects.Save)]
    first.on_done(None)
    alone.settle()
    alone.pass_time(1_000)
    (change,) = alone.next(effects.Save).batch.changes
    assert [number for number, _, _ in change.entries] == [2, 3]


def test_a_position_and_what_was_taken_up_to_it_are_one_batch() -> None:
    alone = serving()
    publish(alone, 1)
    alone.pass_time(1_000)
    batch = alone.next(effects.Save).batch
    assert batch.position == len(alone.log)
    assert [number for number, _, _ in batch.changes[0].entries] == [1]


def test_what_everybody_acknowledged_meanwhile_is_never_written() -> None:
    alone = serving()
    publish(alone, 1, 2)
    alone.says(1, Acknowledge(2))
    alone.pass_time(1_000)
    (change,) = alone.next(effects.Save).batch.changes
    assert list(change.entries) == []
    assert change.saved.first_number == 3


def test_what_was_not_taken_is_written_again() -> None:
    alone = serving()
    publish(alone, 1)
    alone.pass_time(1_000)
    alone.answer(effects.Save, StoreFailed("full"))
    alone.pass_time(1_000)
    (change,) = alone.next(effects.Save).batch.changes
    assert [number for number, _, _ in change.entries] == [1]


def test_a_checkpoint_follows_the_acknowledgements() -> None:
    alone = serving()
    publish(alone, 1)
    alone.says(1, Acknowledge(1))
    alone.pass_time(2_000)
    checkpoint = alone.next(effects.PutCheckpoint).checkpoint
    assert checkpoint.session == SESSION
    assert checkpoint.acknowledged == {"A/0": len(alone.log) - 1}


def test_a_checkpoint_never_says_more_than_what_every_receiver_has() -> None:
    alone = serving()
    published_at = len(alone.log)
    alone.attach(2, "other")
    publish(alone, 1)
    alone.says(1, Acknowledge(1))
    alone.says(1, Subscribe(subscription="y", expression="n > 5"))
    assert acknowledged(alone) < published_at
    alone.says(2, Acknowledge(1))
    alone.pass_time(2_000)
    assert acknowledged(alone) >= published_at


def test_nothing_that_is_on_its_way_to_the_disk_changes_any_more() -> None:
    """The write happens later, on another thread: it must not see what came after its position."""
    alone = serving()
    publish(alone, 1)
    alone.pass_time(1_000)
    saved = alone.next(effects.Save).batch.changes[0].saved
    before = str(saved.descriptor)
    alone.says(1, Acknowledge(1))
    assert str(saved.descriptor) == before
    assert str(alone.engine.context.sessions[SESSION].descriptor()) != before


def test_a_session_that_comes_back_before_it_was_deleted_is_written_and_not_deleted() -> None:
    alone = serving()
    session = alone.engine.context.sessions[SESSION]
    alone.engine.served.drop(session)
    alone.pass_time(1_000)
    deleting = alone.next(effects.Save)
    assert deleting.batch.dropped == (SESSION,)
    alone.engine.persister.renew(SESSION)
    alone.engine.context.sessions.put(session)
    deleting.on_done(StoreFailed("full"))
    alone.settle()
    alone.pass_time(1_000)
    batch = alone.next(effects.Save).batch
    assert batch.dropped == ()
    assert [(change.saved.id, change.fresh) for change in batch.changes] == [(SESSION, True)]


def snapshots(alone: Alone) -> list[effects.PutSite]:
    return [each for each in alone.waiting if isinstance(each, effects.PutSite)]


def test_the_sites_state_is_kept_once_a_minute_as_long_as_the_log_grows() -> None:
    alone = serving()
    first = alone.next(effects.PutSite)
    assert SiteState.restore(SiteId("A"), (), first.snapshot.state).held == {"n > 0": 1}
    first.on_done(None)
    publish(alone, 1)
    alone.pass_time(50_000)
    assert snapshots(alone) == []
    alone.pass_time(12_000)
    second = alone.next(effects.PutSite)
    assert second.snapshot.position == len(alone.log) > first.snapshot.position
    second.on_done(None)
    alone.pass_time(200_000)
    assert snapshots(alone) == []


def test_a_sites_state_that_was_not_taken_is_written_again_at_once() -> None:
    alone = serving()
    alone.next(effects.PutSite).on_done(LogUnavailable("away"))
    alone.pass_time(2_000)
    alone.next(effects.PutSite).on_done(None)
    alone.pass_time(2_000)
    assert snapshots(alone) == []


def test_one_proxy_keeps_the_state_for_all_of_its_site() -> None:
    first, second = Alone(), Alone()
    first.reload(None, "next")
    second.reload(None, "before")
    for alone in (first, second):
        alone.engine.close_log()
        alone.settle()
        alone.read_log()
        alone.pass_time(2_000)
    assert len(snapshots(first)) == 1 and not snapshots(second)
    second.reload(None)
    second.pass_time(2_000)
    assert len(snapshots(second)) == 1


def test_what_a_receiver_has_out_of_order_reaches_the_changelog_by_itself() -> None:
    alone = Alone()
    alone.serve()

    def checkpoints() -> list[effects.PutCheckpoint]:
        for _ in range(5):
            alone.pass_time(1_000)
            alone.answer_all(effects.Save, None)
        return [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]

    checkpoints()
    alone.keep()
    alone.engine.context.sessions.mark_changed(SESSION)
    assert checkpoints() == [], "nothing has changed"
    alone.says(1, Acknowledge(0, selective={Origin("A/0"): [7]}))
    (written,) = checkpoints()
    assert written.checkpoint.descriptor.receivers[ReceiverId("r")].selective == {Origin("A/0"): [7]}


def test_what_a_changelog_has_lost_is_written_again_though_nothing_has_changed() -> None:
    alone = serving()
    alone.pass_time(5_000)
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]
    alone.engine.changelog_lost()
    alone.settle()
    alone.pass_time(5_000)
    assert alone.next(effects.PutCheckpoint).checkpoint.session == SESSION
    alone.next(effects.PutSite)


def noted(alone: Alone) -> list[effects.NoteCheckpoints]:
    return [each for each in alone.waiting if isinstance(each, effects.NoteCheckpoints)]


def test_the_registry_notes_up_to_which_checkpoint_clients_were_answered_and_nothing_before_they_are_durable() -> None:
    alone = serving()
    while noted(alone):
        alone.answer_all(effects.NoteCheckpoints, None)
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    written = alone.next(effects.PutCheckpoint)
    assert "y" in [each.id for each in written.checkpoint.descriptor.subscriptions]
    alone.answer_all(effects.Save, None)
    assert not noted(alone)
    written.on_done(None)
    alone.settle()
    alone.pass_time(2_000)
    assert [each.ranks for each in noted(alone)] == [{SESSION: written.checkpoint.rank}]
    assert "y" in [each.subscription for each in alone.heard(1) if isinstance(each, Subscribed)]


def test_who_leaves_in_good_order_notes_what_clients_were_answered_last() -> None:
    alone = serving()
    while noted(alone):
        alone.answer_all(effects.NoteCheckpoints, None)
    alone.says(1, Subscribe(subscription="y", expression="n > 1"))
    alone.keep()
    alone.engine.leave()
    alone.settle()
    assert [list(each.ranks) for each in noted(alone)] == [[SESSION]]


def test_what_changes_all_the_time_is_not_noted_before_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.stream.persister.NOTED_AT_ONCE", 1)
    alone = serving()
    while noted(alone):
        alone.answer_all(effects.NoteCheckpoints, None)
    persister, order = alone.engine.persister, []
    persister._to_note = {SessionId("busy"): (1, 1), SessionId("waits"): (1, 1)}
    alone.pass_time(2_000)
    for serial in range(2, 5):
        (note,) = noted(alone)
        order += list(note.ranks)
        if "busy" in persister._to_note:
            persister._to_note[SessionId("busy")] = (1, serial)
        alone.answer(effects.NoteCheckpoints, None)
    assert order[:3] == ["busy", "waits", "busy"]


def test_what_the_registry_could_not_note_it_is_told_again_and_only_the_last_of_it() -> None:
    alone = serving()
    while noted(alone):
        alone.answer_all(effects.NoteCheckpoints, None)
    for number in range(3):
        alone.says(1, Subscribe(subscription=f"s{number}", expression="n > 1"))
        alone.keep()
    alone.pass_time(2_000)
    (first,) = noted(alone)
    alone.says(1, Subscribe(subscription="the last one", expression="n > 1"))
    alone.keep()
    alone.pass_time(2_000)
    assert noted(alone) == [first]
    alone.answer(effects.NoteCheckpoints, RegistryUnavailable("away"))
    assert not noted(alone)
    alone.pass_time(2_000)
    (again,) = noted(alone)
    assert again.ranks[SESSION] > first.ranks[SESSION]


def test_one_checkpoint_of_a_session_at_a_time_and_the_next_one_is_for_all_who_asked_meanwhile() -> None:
    alone = serving()
    for number in range(50):
        alone.says(1, Subscribe(subscription=f"s{number}", expression=f"n > {number}"))
    writes = [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]
    assert len(writes) == 1
    alone.next(effects.PutCheckpoint).on_done(None)
    alone.settle()
    second = alone.next(effects.PutCheckpoint)
    assert len(second.checkpoint.descriptor.subscriptions) == 51
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]
    second.on_done(None)
    alone.keep()
    alone.settle()
    answered = [each.subscription for each in alone.heard(1) if isinstance(each, Subscribed)]
    assert {f"s{number}" for number in range(50)} <= set(answered)


def test_who_raises_when_it_is_told_does_not_keep_the_next_checkpoint_from_being_written() -> None:
    alone = serving()
    session = alone.engine.context.sessions[SESSION]
    told: list[str] = []

    def raises(error: object) -> None:
        raise ValueError("a fault")

    alone.engine.persister.checkpoint(session, raises)
    alone.engine.persister.checkpoint(session, lambda error: told.append("second"))
    alone.settle()
    with pytest.raises(ValueError, match="a fault"):
        alone.next(effects.PutCheckpoint).on_done(None)
    alone.settle()
    alone.next(effects.PutCheckpoint).on_done(None)
    assert told == ["second"]


def test_who_asks_again_when_it_is_told_waits_for_another_checkpoint() -> None:
    alone = serving()
    session = alone.engine.context.sessions[SESSION]
    told: list[str] = []
    persister = alone.engine.persister
    persister.checkpoint(session, lambda _: persister.checkpoint(session, lambda _: told.append("again")))
    alone.settle()
    alone.next(effects.PutCheckpoint).on_done(None)
    alone.settle()
    assert not told
    alone.next(effects.PutCheckpoint).on_done(None)
    assert told == ["again"]


def test_the_next_checkpoint_of_a_session_that_is_ours_no_more_is_not_written() -> None:
    alone = serving()
    session = alone.engine.context.sessions[SESSION]
    told: list[str] = []
    alone.engine.persister.checkpoint(session, lambda _: told.append("first"))
    alone.engine.persister.checkpoint(session, lambda _: told.append("second"))
    alone.settle()
    written = alone.next(effects.PutCheckpoint)
    alone.engine.context.sessions.remove(SESSION)
    written.on_done(None)
    alone.settle()
    assert told == ["first", "second"]
    assert not [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint)]


def test_a_checkpoint_that_failed_is_told_to_all_who_waited_for_it_and_to_nobody_else() -> None:
    alone = serving()
    session = alone.engine.context.sessions[SESSION]
    told: list[tuple[str, bool]] = []
    persister = alone.engine.persister
    persister.checkpoint(session, lambda error: told.append(("first", error is None)))
    persister.checkpoint(session, lambda error: told.append(("second", error is None)))
    persister.checkpoint(session, lambda error: told.append(("third", error is None)))
    alone.settle()
    alone.next(effects.PutCheckpoint).on_done(LogUnavailable("away"))
    assert told == [("first", False)]
    alone.settle()
    alone.next(effects.PutCheckpoint).on_done(None)
    assert told[1:] == [("second", True), ("third", True)]
