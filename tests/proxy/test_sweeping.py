"""Time to live, maximum count and the end of a session, as a proxy carries them out."""

from __future__ import annotations

from federation.ports import OwnerChanged
from proxy import effects
from proxy.ports import Outdated, Swept
from proxy.retention import MAXIMUM_COUNT, TIME_TO_LIVE
from tests.helpers.alone import ME, SESSION, Alone, owner
from tests.proxy.test_door import delivered
from waypost.identity import GENERATION, NO_PROXY, Origin, SubscriptionId
from waypost.messages import Attach, Delete, Deleted, Publish, Subscribe
from waypost.notification import Notification

A = Origin("A/0")
X = SubscriptionId("x")


def policed(ttl_s: int | None = None, max_count: int | None = None) -> Alone:
    """Return a proxy that serves a session with one subscription; its receiver is away."""
    alone = Alone()
    alone.serve()
    alone.says(1, Subscribe("x", "n > 0", ttl_s, max_count))
    alone.keep()
    alone.engine.client_disconnected(1)
    return alone


def take(alone: Alone, *numbers: int) -> None:
    for number in numbers:
        alone.says(9, Publish("p", "life", number, [Notification({"n": number}).body]))
    alone.read_log()
    alone.keep()


def given(alone: Alone) -> list[object]:
    return delivered(alone.heard(2))


def test_what_has_lived_its_time_is_passed_over_at_delivery() -> None:
    alone = policed(ttl_s=2)
    take(alone, 1)
    alone.pass_time(1_100)
    take(alone, 2)
    alone.pass_time(1_100)
    alone.pass_time(900)
    alone.facts.clear()
    alone.attach(2)
    assert given(alone) == [2]
    assert [fact.reason for fact in alone.facts if fact.kind == "removed"] == [TIME_TO_LIVE]


def test_of_too_many_the_newest_are_kept() -> None:
    alone = policed(max_count=2)
    take(alone, 1, 2, 3)
    alone.attach(2)
    assert given(alone) == [2, 3]


def test_who_is_attached_is_given_all_of_a_burst() -> None:
    alone = policed(max_count=1)
    alone.attach(2)
    take(alone, 1, 2, 3)
    assert given(alone) == [1, 2, 3]


def test_the_journal_says_what_is_removed_before_the_store_removes_it() -> None:
    alone = policed(max_count=1)
    take(alone, 1, 2)
    alone.pass_time(300)
    alone.keep()
    alone.facts.clear()
    alone.pass_time(61_000)
    alone.keep()
    find = alone.next(effects.FindOutdated)
    (window,) = find.windows
    find.then(Swept([Outdated(1, window.matched, A, 1)], 2))
    assert not alone.engine.context.sessions[SESSION].retention.leaving
    alone.settle()
    assert [fact.reason for fact in alone.facts if fact.kind == "removed"] == [MAXIMUM_COUNT]
    assert alone.engine.context.sessions[SESSION].retention.leaving == [window]
    alone.pass_time(300)
    (change,) = alone.next(effects.Save).batch.changes
    assert list(change.removed) == [window]
    assert change.saved.first_number == 2


def test_nobody_gets_past_what_policy_removed_before_the_journal_says_so() -> None:
    alone = policed(max_count=1)
    take(alone, 1, 2)
    alone.journal_waits = True
    alone.attach(2)
    receiver = next(iter(alone.engine.context.sessions[SESSION].receivers.values()))
    assert (given(alone), receiver.acknowledged) == ([], 0)
    while any(isinstance(each, effects.Attest) for each in alone.waiting):
        alone.answer(effects.Attest, None)
    assert (given(alone), receiver.acknowledged) == ([2], 0)


def test_what_is_removed_is_put_on_record_once_while_somebody_waits_for_it() -> None:
    alone = policed(max_count=1)
    take(alone, 1, 2)
    alone.journal_waits = True
    alone.attach(2)
    take(alone, 3)
    removed = [
        fact.offsets
        for each in alone.waiting
        if isinstance(each, effects.Attest)
        for fact in each.facts
        if fact.kind == "removed"
    ]
    assert removed == [[1]]


def test_a_session_ends_when_nobody_was_attached_for_so_long() -> None:
    alone = Alone()
    alone.serve(lasts_s=3)
    for _ in range(5):
        alone.pass_time(1_000)
    assert not [each for each in alone.waiting if isinstance(each, effects.ClaimRow)]
    alone.engine.client_disconnected(1)
    for _ in range(4):
        alone.pass_time(1_000)
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(ME, 1), owner(NO_PROXY, GENERATION))


def test_a_deletion_counts_when_the_registry_says_so_and_all_receivers_are_told() -> None:
    alone = Alone()
    alone.serve()
    alone.attach(2, "other")
    alone.says(1, Delete())
    claim = alone.next(effects.ClaimRow)
    assert SESSION in alone.engine.context.sessions
    alone.engine.registry_event(OwnerChanged(SESSION, claim.new))
    alone.settle()
    for connection in (1, 2):
        assert isinstance(alone.heard(connection)[-1], Deleted)
    assert SESSION not in alone.engine.context.sessions


def test_a_session_of_the_same_name_takes_the_epoch_after_the_deletion() -> None:
    alone = Alone()
    alone.says(1, Attach("s", "r", "life", {}))
    alone.answer(effects.ReadRow, owner(NO_PROXY, 7))
    claim = alone.next(effects.ClaimRow)
    assert (claim.expected, claim.new) == (owner(NO_PROXY, 7), owner(ME, 8))


def test_who_does_not_want_to_create_a_session_is_told_that_it_was_deleted() -> None:
    alone = Alone()
    alone.says(1, Attach("s", "r", "life", {}, create=False))
    alone.answer(effects.ReadRow, owner(NO_PROXY, 7))
    assert alone.heard(1)[-1].code == "NOT_FOUND"
