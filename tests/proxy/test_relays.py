"""What becomes of receivers that are relayed when their session comes to the proxy where they are."""

from __future__ import annotations

from federation.ports import Claimed, ProxyDown, ProxyUp
from handover.machine import Timing
from handover.messages import (
    DeclineReason,
    Frozen,
    HandoverOffer,
    Prepare,
    Prepared,
    RelayEnd,
    RelayUp,
    TransferDeclined,
    Trigger,
)
from proxy.core import effects
from proxy.core.inputs import PeerSent, RegistryReported
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from waypost.checkpoint import Descriptor
from waypost.frames import encode_message
from waypost.identity import Incarnation, Origin, ProxyId
from waypost.messages import VERSION, Attach, Attached, Hello, Wait

YOU = ProxyId("you")


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
