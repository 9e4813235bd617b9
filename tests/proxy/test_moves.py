"""What an operator wants elsewhere is offered, at a bounded rate, to whoever is best, until it is gone."""

from __future__ import annotations

from federation.ports import DrainChanged, DrainRow, OwnerChanged
from handover.messages import (
    HandoverOffer,
    MoveRequest,
    Trigger,
)
from proxy.core import effects
from proxy.core.inputs import ClientConnected, ClientSent, PeerSent, RegistryReported
from proxy.ownership.session_moves import GRACE_MS, OFFER_MS
from proxy.session.role import Role
from proxy.session.session import Session
from tests.helpers.engine_harness import ME, SESSION, EngineHarness, owner, row
from waypost.facts import OwnedCause
from waypost.identity import Epoch, ProxyId, SessionId
from waypost.limits import MOVES_AT_ONCE
from waypost.messages import VERSION, Attach, Attached, Hello, Moved

YOU = ProxyId("you")


def drained(rate: float = 10, *, others: tuple[str, ...] = ("you",)) -> EngineHarness:
    harness = EngineHarness()
    harness.reload({}, *others)
    harness.serve()
    harness.step(RegistryReported(DrainChanged(ME, DrainRow(rate=rate))))
    harness.run_effects()
    return harness


def offers(harness: EngineHarness) -> list[tuple[str, HandoverOffer]]:
    sent_offers = [
        send_peer
        for send_peer in harness.pending
        if isinstance(send_peer, effects.SendPeer) and isinstance(send_peer.message, HandoverOffer)
    ]
    harness.pending = [effect for effect in harness.pending if effect not in sent_offers]
    return [
        (send_peer.proxy, send_peer.message)
        for send_peer in sent_offers
        if isinstance(send_peer.message, HandoverOffer)
    ]


def test_nothing_leaves_before_the_proxy_has_said_for_a_while_that_it_is_not_healthy() -> None:
    harness = drained()
    harness.pass_time(GRACE_MS - 1)
    assert offers(harness) == []
    harness.pass_time(1)
    assert offers(harness) == [(YOU, HandoverOffer(SESSION, owner("me", 1).epoch, Trigger.DRAIN))]


def test_an_offer_that_led_to_nothing_is_made_again() -> None:
    harness = drained()
    harness.pass_time(GRACE_MS)
    assert len(offers(harness)) == 1
    harness.pass_time(OFFER_MS - 1)
    assert offers(harness) == []
    harness.pass_time(1)
    assert len(offers(harness)) == 1


def test_a_drain_that_is_paused_or_taken_back_offers_nothing() -> None:
    harness = drained()
    harness.step(RegistryReported(DrainChanged(ME, DrainRow(rate=10, paused=True))))
    harness.pass_time(GRACE_MS * 3)
    assert offers(harness) == []
    harness.step(RegistryReported(DrainChanged(ME, None)))
    harness.pass_time(GRACE_MS * 3)
    assert offers(harness) == []


def test_session_stays_when_no_other_proxy_can_take_it() -> None:
    harness = drained(others=())
    harness.pass_time(GRACE_MS * 3)
    assert offers(harness) == []
    assert SESSION in harness.engine.sessions


def test_the_proxy_of_the_same_site_is_better_than_one_of_another_and_one_that_is_drained_is_none() -> None:
    harness = EngineHarness()
    harness.reload({}, "you", "they")
    engine = harness.engine
    engine.env.cluster.proxy_up(row("you", "B"))
    assert (best := engine.env.cluster.target()) is not None and best.proxy == "they"
    harness.step(RegistryReported(DrainChanged(ProxyId("they"), DrainRow(rate=1))))
    assert (best := engine.env.cluster.target()) is not None and best.proxy == YOU


def test_client_of_a_draining_proxy_is_moved_to_another_one() -> None:
    harness = drained()
    harness.step(ClientConnected(2))
    harness.step(ClientSent(2, Hello(VERSION, "c")))
    harness.step(ClientSent(2, Attach(session="other", receiver="main", incarnation="i", frontier={})))
    harness.run_effects()
    assert [moved.proxy for moved in harness.received(2) if isinstance(moved, Moved)] == [YOU]


def test_a_session_that_is_asked_for_at_its_epoch_is_offered_to_that_proxy() -> None:
    harness = EngineHarness()
    harness.reload({}, "they", "you")
    harness.serve()
    harness.step(PeerSent(YOU, MoveRequest(SESSION, owner("me", 7).epoch, YOU)))
    harness.run_effects()
    assert offers(harness) == []
    harness.step(PeerSent(YOU, MoveRequest(SESSION, owner("me", 1).epoch, YOU)))
    harness.run_effects()
    assert [proxy for proxy, _ in offers(harness)] == [YOU]


def test_proxy_answers_a_handover_offer_with_a_prepare() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 4)}, "you")
    harness.step(PeerSent(YOU, HandoverOffer(SESSION, owner("you", 4).epoch, Trigger.DRAIN)))
    harness.run_effects()
    (prepare,) = [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    assert (prepare.proxy, getattr(prepare.message, "trigger", "")) == (YOU, Trigger.DRAIN)
    assert not [sending for sending in harness.sent if isinstance(sending[1], Attached)]


def test_completed_move_makes_room_for_the_next_offer_at_once() -> None:
    harness = drained(rate=2_000)
    others = [SessionId(f"t{number}") for number in range(MOVES_AT_ONCE)]
    for identity in others:
        harness.engine.served_sessions.serve(Session(identity, Epoch(1), Role.DORMANT), Epoch(1), OwnedCause.CREATE)
    harness.pass_time(GRACE_MS)
    assert len(offers(harness)) == MOVES_AT_ONCE
    assert harness.engine.session_moves.next_deadline() == harness.clock.now_ms() + OFFER_MS
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("you", 2))))
    assert harness.engine.session_moves.next_deadline() == harness.clock.now_ms() + 1
    harness.pass_time(1)
    assert len(offers(harness)) == 1
