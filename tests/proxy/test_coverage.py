"""From where on a subscription is effective, and when that is said."""

from __future__ import annotations

import pytest

from proxy.core import effects
from tests.helpers.alone import SESSION, Alone
from waypost.errors import StoreFailed
from waypost.facts import Acquisition
from waypost.identity import Epoch
from waypost.messages import BecameEffective, Subscribe, Unsubscribe


def promising() -> Alone:
    """Return a proxy whose promise is on its way to the store and to the changelog."""
    alone = Alone()
    alone.serve()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.heard()
    alone.read_log()
    return alone


def told(alone: Alone) -> list[BecameEffective]:
    return [each for each in alone.heard() if isinstance(each, BecameEffective)]


def test_a_promise_is_told_once_it_is_written() -> None:
    alone = promising()
    assert told(alone) == []
    alone.keep()
    assert [each.subscription for each in told(alone)] == ["x"]


@pytest.mark.parametrize("answer", [None, StoreFailed("full")])
def test_a_promise_that_is_written_while_its_session_stands_still_is_told_when_it_is_served(
    answer: StoreFailed | None,
) -> None:
    """A frozen session says the same of itself all the time: its cut may be asked for again."""
    alone = promising()
    session = alone.engine.context.sessions[SESSION]
    session.freeze(alone.engine.state.frontier)
    standing = session.descriptor()
    alone.answer_all(effects.Save, answer)
    alone.answer_all(effects.PutCheckpoint, None)
    assert session.descriptor() == standing
    assert told(alone) == []
    alone.engine.served.serve(session, Epoch(2), Acquisition.THAW)
    alone.settle()
    alone.pass_time(1_000)
    alone.keep()
    assert [each.subscription for each in told(alone)] == ["x"]


def test_a_promise_on_its_way_to_the_journal_is_not_told_of_the_next_one_of_the_name() -> None:
    alone = promising()
    alone.journal_waits = True
    alone.keep()
    alone.says(1, Unsubscribe("x"))
    alone.says(1, Subscribe(subscription="x", expression="n > 1"))
    alone.keep()
    alone.answer_all(effects.Attest, None)
    alone.answer_all(effects.Attest, None)
    assert told(alone) == []
    alone.journal_waits = False
    alone.read_log()
    alone.pass_time(1_000)
    alone.keep()
    assert [each.subscription for each in told(alone)] == ["x"]
