"""What a client's library makes of what it is told of interest: in doubt, somebody wants it."""

from __future__ import annotations

from waypost.client.quench import QuenchView
from waypost.messages import Interest, Quench
from waypost.notification import Notification


def announced(*added: str, removed: tuple[str, ...] = (), number: int = 1, level: bool = True) -> Interest:
    return Interest(number, list(added), list(removed), level)


def asked(*names: str) -> QuenchView:
    quench = QuenchView()
    quench.ask(list(names), [], insecure=True)
    return quench


def test_producer_without_quench_sends_every_notification() -> None:
    assert QuenchView().wanted({"a": 1})


def test_before_all_was_told_anything_may_be_wanted() -> None:
    quench = asked("a")
    assert quench.wanted({"a": 1})
    quench.receive(announced("a == 2", level=False))
    assert quench.wanted({"a": 1})
    quench.receive(announced())
    assert not quench.wanted({"a": 1})


def test_notification_is_wanted_exactly_when_a_term_matches() -> None:
    quench = asked("a", "b")
    quench.receive(announced("a == 1", "b > 5"))
    assert quench.wanted(Notification({"a": 1, "b": 0}))
    assert quench.wanted({"b": 6})
    assert not quench.wanted({"a": 2, "b": 5})
    quench.receive(announced(removed=("b > 5",)))
    assert not quench.wanted({"b": 6})


def test_term_that_this_library_cannot_parse_may_match_any_notification() -> None:
    quench = asked("a")
    assert quench.receive(announced("a == 1", "function-of-a-later-release(a)"))
    assert quench.wanted({"a": 2})
    quench.receive(announced(removed=("function-of-a-later-release(a)",)))
    assert not quench.wanted({"a": 2})


def test_of_an_attribute_that_was_not_named_nothing_is_known() -> None:
    quench = asked("a")
    quench.receive(announced())
    assert quench.wanted({"a": 1, "b": 1})


def test_an_answer_to_an_earlier_question_means_nothing() -> None:
    quench = asked("a")
    quench.ask(["b"], [], insecure=True)
    assert not quench.receive(announced("a == 1", number=1))
    assert quench.receive(announced("b == 1", number=2))
    assert list(quench.terms) == ["b == 1"]


def test_on_a_new_connection_all_is_asked_and_told_anew() -> None:
    quench = asked("a")
    quench.receive(announced("a == 1"))
    assert quench.reset() == [Quench(1, ["a"])]
    assert (quench.terms, quench.caught_up) == ({}, False)


def test_producer_that_ended_its_quench_sends_every_notification_and_does_not_request_it_again() -> None:
    quench = asked("a")
    quench.receive(announced())
    quench.ask([], [], insecure=True)
    assert quench.wanted({"a": 1})
    assert quench.reset() == []
