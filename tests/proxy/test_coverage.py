"""From where on a subscription is effective, and when that is said."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from proxy.core import effects
from proxy.session.session import Session
from proxy.stream.coverage import Coverage
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.checkpoint import GapRow
from waypost.errors import StoreFailed
from waypost.facts import GapCause, OwnedCause
from waypost.identity import Epoch, Incarnation, Origin, ReceiverId, SiteId
from waypost.messages import BecameEffective, DeliverEncoded, Subscribe, Unsubscribe
from waypost.notification import Notification
from waypost.records import Forwarded


def promising() -> EngineHarness:
    """Return a proxy whose promise is on its way to the store and to the changelog."""
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.received()
    harness.read_log()
    return harness


def announced(harness: EngineHarness) -> list[BecameEffective]:
    return [message for message in harness.received() if isinstance(message, BecameEffective)]


def test_promise_is_announced_once_it_is_written() -> None:
    harness = promising()
    assert announced(harness) == []
    harness.complete_writes()
    assert [became_effective.subscription for became_effective in announced(harness)] == ["x"]


@pytest.mark.parametrize("answer", [None, StoreFailed("full")])
def test_promise_written_while_its_session_is_frozen_is_announced_when_it_is_served(
    answer: StoreFailed | None,
) -> None:
    """A frozen session says the same of itself all the time: its cut may be asked for again."""
    harness = promising()
    session = harness.engine.sessions[SESSION]
    session.freeze(harness.engine.state.frontier)
    standing = session.descriptor()
    harness.complete_all(effects.Save, answer)
    harness.complete_all(effects.PutCheckpoint, None)
    assert session.descriptor() == standing
    assert announced(harness) == []
    harness.engine.served_sessions.serve(session, Epoch(2), OwnedCause.THAW)
    harness.run_effects()
    harness.pass_time(1_000)
    harness.complete_writes()
    assert [became_effective.subscription for became_effective in announced(harness)] == ["x"]


def test_promise_pending_in_the_journal_is_not_announced_for_the_next_subscription_of_the_name() -> None:
    harness = promising()
    harness.journal_waits = True
    harness.complete_writes()
    harness.send(1, Unsubscribe("x"))
    harness.send(1, Subscribe(subscription="x", expression="n > 1"))
    harness.complete_writes()
    harness.complete_all(effects.Attest, None)
    harness.complete_all(effects.Attest, None)
    assert announced(harness) == []
    harness.journal_waits = False
    harness.read_log()
    harness.pass_time(1_000)
    harness.complete_writes()
    assert [became_effective.subscription for became_effective in announced(harness)] == ["x"]


def test_damage_that_a_catch_up_finds_in_the_own_log_is_counted() -> None:
    """The proxy itself has not read there: it began behind, with what the changelog had of the site."""
    harness = promising()
    harness.complete_writes()
    session = harness.engine.sessions[SESSION]
    origin = harness.engine.state.origin
    session.gates.close(origin, -1, 4)
    harness.engine.coverage.advance(session)
    harness.run_effects()
    asked = harness.next(effects.FetchHistory)
    harness.finish(asked, effects.History([], 4, 0, None, [(1, 2)]))
    harness.run_effects()
    assert harness.engine.output.counters.damaged["log"] == 2


def test_what_a_catch_up_has_brought_is_delivered_in_the_same_step() -> None:
    harness = promising()
    harness.complete_writes()
    harness.received()
    session, origin = harness.engine.sessions[SESSION], harness.engine.state.origin
    session.gates.close(origin, -1, 4)
    harness.engine.coverage.advance(session)
    harness.run_effects()
    found = Forwarded(
        link=SiteId("A"),
        link_epoch=0,
        origin=origin,
        offset=2,
        path=(),
        producer="p",
        incarnation=Incarnation("i"),
        sequence=1,
        at_ms=0,
        body=Notification({"n": 1}).body,
    )
    harness.complete(effects.FetchHistory, effects.History([found], 4, 0))
    assert [type(message) for message in harness.received()] == [DeliverEncoded]


def test_a_gap_that_is_on_record_is_told_alone() -> None:
    """Others of the same receiver may still be on their way to the journal (handover rule 21)."""
    coverage = Coverage.__new__(Coverage)
    gap_rows: list[GapRow] = []
    coverage._sessions = cast(Any, SimpleNamespace(mark_changed=lambda session: None))
    coverage._tell_gaps = lambda receiver, gaps: gap_rows.extend(gaps)  # type: ignore[method-assign]
    earlier = GapRow(Origin("A/0"), 1, 2, GapCause.LOG_LOST, [ReceiverId("r")])
    session = SimpleNamespace(id="s", gaps=[earlier], receivers={"r": object()})
    coverage._report_gap(cast(Session, session), Origin("A/0"), [5, 6, 7], GapCause.LOG_LOST)
    assert [(gap.first, gap.last) for gap in gap_rows] == [(5, 7)]
    assert len(session.gaps) == 2
