"""What an operator wants elsewhere is offered, at a bounded rate, to whoever is best, until it is gone."""

from __future__ import annotations

from federation.ports import DrainChanged, DrainRow, OwnerChanged
from handover.messages import HandoverOffer, MoveRequest
from proxy.core import effects
from proxy.ownership.drain import GRACE_MS, OFFER_MS
from proxy.session.session import Role, Session
from tests.helpers.alone import ME, SESSION, Alone, owner, row
from waypost.facts import Acquisition
from waypost.identity import Epoch, ProxyId, SessionId
from waypost.limits import MOVES_AT_ONCE
from waypost.messages import VERSION, Attach, Attached, Hello, Moved

YOU = ProxyId("you")


def drained(rate: float = 10, *, others: tuple[str, ...] = ("you",)) -> Alone:
    alone = Alone()
    alone.reload({}, *others)
    alone.serve()
    alone.engine.registry_event(DrainChanged(ME, DrainRow(rate=rate)))
    alone.settle()
    return alone


def offers(alone: Alone) -> list[tuple[str, HandoverOffer]]:
    said = [
        each for each in alone.waiting if isinstance(each, effects.SendPeer) and isinstance(each.message, HandoverOffer)
    ]
    alone.waiting = [each for each in alone.waiting if each not in said]
    return [(each.proxy, each.message) for each in said if isinstance(each.message, HandoverOffer)]


def test_nothing_leaves_before_the_proxy_has_said_for_a_while_that_it_is_not_healthy() -> None:
    alone = drained()
    alone.pass_time(GRACE_MS - 1)
    assert offers(alone) == []
    alone.pass_time(1)
    assert offers(alone) == [(YOU, HandoverOffer(SESSION, owner("me", 1).epoch, "drain"))]


def test_an_offer_that_led_to_nothing_is_made_again() -> None:
    alone = drained()
    alone.pass_time(GRACE_MS)
    assert len(offers(alone)) == 1
    alone.pass_time(OFFER_MS - 1)
    assert offers(alone) == []
    alone.pass_time(1)
    assert len(offers(alone)) == 1


def test_a_drain_that_is_paused_or_taken_back_offers_nothing() -> None:
    alone = drained()
    alone.engine.registry_event(DrainChanged(ME, DrainRow(rate=10, paused=True)))
    alone.pass_time(GRACE_MS * 3)
    assert offers(alone) == []
    alone.engine.registry_event(DrainChanged(ME, None))
    alone.pass_time(GRACE_MS * 3)
    assert offers(alone) == []


def test_with_nobody_to_take_it_a_session_stays() -> None:
    alone = drained(others=())
    alone.pass_time(GRACE_MS * 3)
    assert offers(alone) == []
    assert SESSION in alone.engine.context.sessions


def test_the_proxy_of_the_same_site_is_better_than_one_of_another_and_one_that_is_drained_is_none() -> None:
    alone = Alone()
    alone.reload({}, "you", "they")
    context = alone.engine.context
    context.cluster.proxy_up(row("you", "B"))
    assert (best := alone.engine.moving.target()) is not None and best.proxy == "they"
    alone.engine.registry_event(DrainChanged(ProxyId("they"), DrainRow(rate=1)))
    assert (best := alone.engine.moving.target()) is not None and best.proxy == YOU


def test_a_client_that_comes_to_a_proxy_that_is_drained_is_told_a_better_one() -> None:
    alone = drained()
    alone.engine.client_connected(2)
    alone.engine.client_message(2, Hello(VERSION, "c"))
    alone.engine.client_message(2, Attach(session="other", receiver="main", incarnation="i", frontier={}))
    alone.settle()
    assert [each.proxy for each in alone.heard(2) if isinstance(each, Moved)] == [YOU]


def test_a_session_that_is_asked_for_at_its_epoch_is_offered_to_that_proxy() -> None:
    alone = Alone()
    alone.reload({}, "they", "you")
    alone.serve()
    alone.engine.peer_message(YOU, MoveRequest(SESSION, owner("me", 7).epoch, YOU))
    alone.settle()
    assert offers(alone) == []
    alone.engine.peer_message(YOU, MoveRequest(SESSION, owner("me", 1).epoch, YOU))
    alone.settle()
    assert [proxy for proxy, _ in offers(alone)] == [YOU]


def test_what_is_offered_is_asked_for() -> None:
    alone = Alone()
    alone.reload({SESSION: owner("you", 4)}, "you")
    alone.engine.peer_message(YOU, HandoverOffer(SESSION, owner("you", 4).epoch, "drain"))
    alone.settle()
    (prepare,) = [each for each in alone.waiting if isinstance(each, effects.SendPeer)]
    assert (prepare.proxy, getattr(prepare.message, "reason", "")) == (YOU, "drain")
    assert not [each for each in alone.sent if isinstance(each[1], Attached)]


def test_what_has_left_makes_room_for_the_next_one_at_once() -> None:
    alone = drained(rate=2_000)
    others = [SessionId(f"t{number}") for number in range(MOVES_AT_ONCE)]
    for identity in others:
        alone.engine.served.serve(Session(identity, Epoch(1), Role.DORMANT), Epoch(1), Acquisition.CREATE)
    alone.pass_time(GRACE_MS)
    assert len(offers(alone)) == MOVES_AT_ONCE
    assert alone.engine.moving.next_deadline() == alone.clock.now_ms() + OFFER_MS
    alone.engine.registry_event(OwnerChanged(SESSION, owner("you", 2)))
    assert alone.engine.moving.next_deadline() == alone.clock.now_ms() + 1
    alone.pass_time(1)
    assert len(offers(alone)) == 1
