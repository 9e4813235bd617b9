"""What becomes of receivers that are relayed when their session comes to the proxy where they are."""

from __future__ import annotations

from federation.ports import Claimed, ProxyDown, ProxyUp
from handover.machine import Timing
from handover.messages import Frozen, HandoverOffer, Prepare, Prepared, RelayEnd, RelayUp, StayReason, TransferDeclined
from proxy.core import effects
from tests.helpers.alone import SESSION, Alone, owner, row
from waypost.checkpoint import Descriptor
from waypost.frames import encode_message
from waypost.identity import Incarnation, Origin, ProxyId
from waypost.messages import VERSION, Attach, Attached, Hello, Wait

YOU = ProxyId("you")


def relayed() -> Alone:
    """Connection 1 is attached here, and relayed to its session's home, you."""
    alone = Alone()
    alone.reload({SESSION: owner("you", 3)}, "you")
    alone.attach()
    prepare = asked(alone)
    tell(alone, TransferDeclined(SESSION, prepare.transfer, prepare.epoch, StayReason.OTHERS_ATTACHED))
    alone.heard()
    alone.waiting.clear()
    return alone


def tell(alone: Alone, message: Prepared | Frozen | TransferDeclined | HandoverOffer) -> None:
    alone.engine.peer_message(YOU, message)
    alone.settle()


def asked(alone: Alone) -> Prepare:
    message = alone.next(effects.SendPeer).message
    assert isinstance(message, Prepare)
    return message


def come_here(alone: Alone) -> None:
    """The home gives the session away, to us."""
    tell(alone, HandoverOffer(SESSION, owner("you", 3).epoch, "receivers"))
    prepare = asked(alone)
    named = (SESSION, prepare.transfer, prepare.epoch)
    tell(alone, Prepared(*named, descriptor=Descriptor(created_at={}, subscriptions=[], receivers={}), stored=0))
    alone.pass_time(Timing().coverage_ms)
    tell(
        alone,
        Frozen(
            *named,
            descriptor=Descriptor(created_at={}, subscriptions=[], receivers={}),
            cut={Origin("A/0"): 0},
            chunks=0,
            oldest=1,
            next_number=1,
        ),
    )
    alone.keep()
    alone.answer(effects.ClaimRow, Claimed(True, owner("me", 4)))
    alone.keep()


def test_who_was_relayed_is_called_as_soon_as_the_session_is_served_here() -> None:
    alone = relayed()
    come_here(alone)
    (call,) = alone.heard()
    assert isinstance(call, Wait) and call.retry_after_ms == 0
    assert len(alone.engine.dispatcher.relays.near) == 0
    said = [each.message for each in alone.waiting if isinstance(each, effects.SendPeer)]
    assert [each.home for each in said if isinstance(each, RelayEnd)] == [False]


def test_on_the_same_connection_the_receiver_is_let_in_where_its_frontier_says() -> None:
    alone = relayed()
    come_here(alone)
    alone.heard()
    alone.attach(frontier={Origin("A/0"): 0})
    assert Attached in [type(each) for each in alone.heard()]


def test_a_late_word_of_the_near_proxy_s_last_life_leaves_alone_what_this_life_relays() -> None:
    alone = Alone()
    alone.reload({}, "you")
    alone.serve()
    earlier = row("you").incarnation
    for number, message in enumerate(
        (Hello(VERSION, "client"), Attach(session=SESSION, receiver="far", incarnation="i", frontier={})), start=1
    ):
        alone.engine.peer_message(YOU, RelayUp("you#2/1", number, encode_message(message)))
    alone.settle()
    assert len(alone.engine.dispatcher.relays.far) == 1
    alone.engine.registry_event(ProxyDown(YOU, earlier))
    assert len(alone.engine.dispatcher.relays.far) == 1
    alone.engine.registry_event(ProxyUp(row("you").model_copy(update={"incarnation": Incarnation("you#2")})))
    alone.engine.registry_event(ProxyDown(YOU, Incarnation("you#2")))
    assert len(alone.engine.dispatcher.relays.far) == 0
