"""What becomes of receivers that are relayed when their session comes to the proxy where they are."""

from __future__ import annotations

import pytest

from federation.ports import Claimed, ProxyDown, ProxyUp
from handover.machine import Timing
from handover.messages import (
    DeclineReason,
    Frozen,
    HandoverOffer,
    Prepare,
    Prepared,
    Ready,
    RelayEnd,
    RelayUp,
    TransferDeclined,
    Trigger,
)
from proxy.core import effects
from proxy.core.inputs import ClientConnected, ClientSent, PeerSent, RegistryReported
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from waypost.checkpoint import Descriptor, SubscriptionRow
from waypost.frames import encode_message
from waypost.identity import Incarnation, Origin, ProxyId, ReceiverId, SiteId, SubscriptionId
from waypost.messages import VERSION, Attach, Attached, Detach, Hello, Wait
from waypost.records import Progress, TreeEntered

YOU, F = ProxyId("you"), SiteId("F")


def relayed() -> EngineHarness:
    """Connection 1 is attached here, and relayed to its session's home, you."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you")
    harness.attach()
    prepare = asked(harness)
    tell(harness, TransferDeclined(SESSION, prepare.transfer, prepare.epoch, DeclineReason.OTHERS_ATTACHED))
    harness.received()
    harness.pending.clear()
    return harness


def tell(harness: EngineHarness, message: Prepared | Frozen | TransferDeclined | HandoverOffer) -> None:
    harness.step(PeerSent(YOU, message))
    harness.run_effects()


def asked(harness: EngineHarness) -> Prepare:
    message = harness.next(effects.SendPeer).message
    assert isinstance(message, Prepare)
    return message


def come_here(harness: EngineHarness) -> None:
    """The home gives the session away, to us."""
    tell(harness, HandoverOffer(SESSION, owner("you", 3).epoch, Trigger.FOLLOW))
    prepare = asked(harness)
    named = (SESSION, prepare.transfer, prepare.epoch)
    tell(harness, Prepared(*named, descriptor=Descriptor(created_at={}, subscriptions=[], receivers={}), stored=0))
    harness.pass_time(Timing().coverage_ms)
    tell(
        harness,
        Frozen(
            *named,
            descriptor=Descriptor(created_at={}, subscriptions=[], receivers={}),
            cut={Origin("A/0"): 0},
            chunks=0,
            oldest=1,
            next_number=1,
        ),
    )
    harness.complete_writes()
    harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    harness.complete_writes()


def test_relayed_receiver_is_told_to_reattach_as_soon_as_the_session_is_served_locally() -> None:
    harness = relayed()
    come_here(harness)
    (call,) = harness.received()
    assert isinstance(call, Wait) and call.retry_after_ms == 0
    assert len(harness.engine.dispatcher.relays.near) == 0
    sent = [send_peer.message for send_peer in harness.pending if isinstance(send_peer, effects.SendPeer)]
    assert [relay_end.by_owner for relay_end in sent if isinstance(relay_end, RelayEnd)] == [False]


def test_on_the_same_connection_the_receiver_is_let_in_where_its_frontier_says() -> None:
    harness = relayed()
    come_here(harness)
    harness.received()
    harness.attach(frontier={Origin("A/0"): 0})
    assert Attached in [type(message) for message in harness.received()]


def test_late_end_of_an_earlier_incarnation_leaves_the_relays_of_the_current_one() -> None:
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.serve()
    earlier = row("you").incarnation
    for number, message in enumerate(
        (Hello(VERSION, "client"), Attach(session=SESSION, receiver="far", incarnation="i", frontier={})), start=1
    ):
        harness.step(PeerSent(YOU, RelayUp("you#2/1", number, encode_message(message))))
    harness.run_effects()
    assert len(harness.engine.dispatcher.relays.far) == 1
    harness.step(RegistryReported(ProxyDown(YOU, earlier)))
    assert len(harness.engine.dispatcher.relays.far) == 1
    harness.step(RegistryReported(ProxyUp(row("you").model_copy(update={"incarnation": Incarnation("you#2")}))))
    harness.step(RegistryReported(ProxyDown(YOU, Incarnation("you#2"))))
    assert len(harness.engine.dispatcher.relays.far) == 0


def come_by_relay(harness: EngineHarness, relay: str, departures: int) -> None:
    """The receiver far attaches at you, which relays that to us."""
    attach = Attach(session=SESSION, receiver="far", incarnation=relay, frontier={})
    for number, message in enumerate((Hello(VERSION, "client"), attach), start=1):
        up = RelayUp(f"you#1/{relay}", number, encode_message(message), departures=departures)
        harness.step(PeerSent(YOU, up))
    harness.run_effects()
    harness.complete_writes()


def receivers(harness: EngineHarness) -> set[str]:
    return set(harness.engine.sessions[SESSION].receivers)


def test_what_was_on_its_way_before_a_receiver_left_for_good_does_not_register_it_again() -> None:
    """It was sent by an earlier incarnation, which had lost its state: the later one cannot count its attaches."""
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.serve()
    harness.step(ClientConnected(3))
    harness.step(ClientSent(3, Hello(VERSION, "a connection that is as old")))
    harness.attach(2, "far")
    assert receivers(harness) == {"r", "far"}
    harness.send(2, Detach(forget=True))
    harness.complete_writes()
    harness.run_effects()
    assert receivers(harness) == {"r"}
    come_by_relay(harness, "earlier", 0)
    harness.attach(3, "far")
    assert receivers(harness) == {"r"}
    sent = [effect.message for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    assert RelayEnd("you#1/earlier", by_owner=True) in sent
    come_by_relay(harness, "later", 1)
    assert receivers(harness) == {"r", "far"}


def test_a_relay_names_what_the_owner_said_when_it_declined() -> None:
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you")
    harness.attach()
    prepare = asked(harness)
    tell(harness, TransferDeclined(SESSION, prepare.transfer, prepare.epoch, DeclineReason.OTHERS_ATTACHED, 7))
    sent = [effect.message for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    assert [message.departures for message in sent if isinstance(message, RelayUp)] == [7, 7]


@pytest.mark.parametrize("is_reached", [True, False])
def test_a_handover_does_not_wait_for_coverage_of_a_site_that_the_tree_does_not_reach(*, is_reached: bool) -> None:
    """It is down, and nothing comes of it, whoever serves."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you")
    a, b = SiteId("A"), SiteId("B")
    edges = ((a, b), (a, F)) if is_reached else ((a, b),)
    harness.log += [Progress(F, 1, Origin("F/0"), 5), TreeEntered(1, edges)]
    harness.read_log()
    harness.attach()
    prepare = asked(harness)
    named = (SESSION, prepare.transfer, prepare.epoch)
    subscription = SubscriptionRow(
        id=SubscriptionId("x"), expression="n > 0", start={}, promise_floor={}, promised={}, owner=ReceiverId("r")
    )
    descriptor = Descriptor(created_at={}, subscriptions=[subscription], receivers={})
    tell(harness, Prepared(*named, descriptor=descriptor, stored=0))
    harness.complete_writes()
    harness.run_effects()
    harness.read_log()
    sent = [effect.message for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    assert any(isinstance(message, Ready) for message in sent) is not is_reached
