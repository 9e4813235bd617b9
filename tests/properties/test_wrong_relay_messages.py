"""What another proxy says wrong of a relay is refused by name, and changes nothing; what is late is not wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from federation.ports import ProxyDown
from handover.messages import DeclineReason, Prepare, RelayDown, RelayEnd, RelayMessage, RelayUp, TransferDeclined
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected, PeerSent, RegistryReported
from proxy.core.refusals import Refusal
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from tests.properties.test_wrong_handover_messages import picture
from waypost.frames import encode_message
from waypost.identity import ProxyId
from waypost.messages import VERSION, Attach, Attested, Detach, Hello, Publish

YOU, THEY = ProxyId("you"), ProxyId("they")


HERE, THERE, OTHER = "me#1/1", "you#1/1", "you#1/2"
"""Names of relays: near at us, and near at you."""


def near() -> EngineHarness:
    """Connection 1 is attached here, and relayed to its session's home, you."""
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you", "they")
    harness.attach()
    asked = harness.next(effects.SendPeer).message
    assert isinstance(asked, Prepare)
    harness.step(PeerSent(YOU, TransferDeclined(SESSION, asked.transfer, asked.epoch, DeclineReason.OTHERS_ATTACHED)))
    harness.run_effects()
    assert len(harness.engine.dispatcher.relays.near) == 1
    return harness


def far() -> EngineHarness:
    """The session is served here, and a receiver of it is at you."""
    harness = EngineHarness()
    harness.reload({}, "you", "they")
    harness.serve()
    for number, message in enumerate(
        (Hello(VERSION, "client"), Attach(session=SESSION, receiver="far", incarnation="i", frontier={})), start=1
    ):
        harness.step(PeerSent(YOU, RelayUp(THERE, number, encode_message(message))))
        harness.run_effects()
    harness.complete_writes()
    assert len(harness.engine.dispatcher.relays.far) == 1
    return harness


ENDS = {"near": near, "far": far}


def known(harness: EngineHarness) -> Any:
    """All that the engine knows of relays, connections and sessions, and when it will do something next."""
    relays, engine = harness.engine.dispatcher.relays, harness.engine
    return picture(
        [
            relays.near._near,
            relays.far._far,
            list(relays.far._numbers.items()),
            list(relays.near._ended._ended),
            dict(engine.sessions),
            harness.engine.dispatcher.connections,
            engine.sessions._changed,
            harness.engine.next_deadline(),
        ]
    )


def sent(harness: EngineHarness) -> list[Any]:
    """Return what was said to other proxies since the last time."""
    found = [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    harness.pending = [effect for effect in harness.pending if effect not in found]
    return [(send_peer.proxy, send_peer.message) for send_peer in found]


def tell(harness: EngineHarness, sender: ProxyId, message: RelayMessage) -> None:
    harness.step(PeerSent(sender, message))
    harness.run_effects()


# ---------------------------------------------------------------- what must hold

anything = st.binary(max_size=8)
numbers = st.integers(-(1 << 40), 1 << 40)
others = st.text(max_size=20).filter(lambda name: name not in (HERE, THERE))


@st.composite
def violating(draw: st.DrawFn, end: str) -> tuple[ProxyId, RelayMessage]:
    """A message that is of no relay of that proxy, or numbered as none can be."""
    kinds = ["unknown end", "unknown down", "number"]
    kind = draw(st.sampled_from([*kinds, "sender", "taken"] if end == "near" else kinds))
    below = numbers.filter(lambda number: number < 1)
    match kind:
        case "unknown end":
            return draw(st.sampled_from([YOU, THEY])), RelayEnd(draw(others), by_owner=draw(st.booleans()))
        case "unknown down":
            return YOU, RelayDown(draw(others), draw(numbers), draw(anything), draw(numbers))
        case "sender":
            messages: list[RelayMessage] = [RelayDown(HERE, 1, draw(anything), 0), RelayEnd(HERE, by_owner=True)]
            return THEY, draw(st.sampled_from(messages))
        case "taken":
            # Two messages were passed on.
            return YOU, RelayDown(HERE, 1, draw(anything), draw(numbers.filter(lambda taken: not 0 <= taken <= 2)))
    if end == "near":
        return YOU, RelayDown(HERE, draw(below), draw(anything), 0)
    return YOU, RelayUp(draw(st.sampled_from([THERE, OTHER])), draw(below), draw(anything))


@pytest.mark.parametrize("end", ENDS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_wrong_messages_change_nothing_and_are_counted(end: str, data: st.DataObject) -> None:
    harness = ENDS[end]()
    for sender, message in data.draw(st.lists(violating(end), min_size=1, max_size=6)):
        before, counts = known(harness), harness.engine.output.refused.counts.copy()
        sent(harness)
        tell(harness, sender, message)
        assert known(harness) == before
        assert (harness.engine.output.refused.counts - counts).total() == 1, message
        assert sent(harness) in ([], [(sender, RelayEnd(message.relay, by_owner=False))])


NAMES: list[tuple[str, str, ProxyId, RelayMessage]] = [
    ("unknown relay", "near", YOU, RelayDown("nobody/9", 1, b"", 0)),
    ("unknown relay", "near", YOU, RelayEnd("nobody/9", by_owner=True)),
    ("unknown relay", "far", YOU, RelayEnd("nobody/9", by_owner=False)),
    ("unknown relay", "far", THEY, RelayEnd(THERE, by_owner=False)),
    ("wrong sender", "near", THEY, RelayDown(HERE, 1, b"", 0)),
    ("wrong sender", "near", THEY, RelayEnd(HERE, by_owner=True)),
    ("wrong number of a relay", "near", YOU, RelayDown(HERE, 0, b"", 0)),
    ("wrong number of a relay", "near", YOU, RelayDown(HERE, 1, b"", 3)),
    ("wrong number of a relay", "far", YOU, RelayUp(THERE, 0, b"")),
    ("relay of what is not of a session", "far", YOU, RelayUp(THERE, 3, b"\xc1")),
    (
        "relay of what is not of a session",
        "far",
        YOU,
        RelayUp(THERE, 3, encode_message(Publish(producer="p", secret="i", first=1, bodies=[]))),
    ),
]


@pytest.mark.parametrize(("name", "end", "sender", "message"), NAMES)
def test_wrong_relay_message_is_refused_by_name(name: str, end: str, sender: ProxyId, message: RelayMessage) -> None:
    harness = ENDS[end]()
    tell(harness, sender, message)
    refused = harness.engine.output.refused
    assert refused.counts == {name: 1}
    detail = f"{type(message).__name__} of relay {message.relay}"
    assert refused.take_new() == [Refusal(name, sender, detail)]
    tell(harness, sender, message)
    assert refused.take_new() == [], "it is told of once"


def test_relay_with_an_invalid_client_message_ends_and_its_client_attaches_again() -> None:
    """Left in place it would wait for ever: what was refused is never answered."""
    harness = far()
    sent(harness)
    tell(harness, YOU, RelayUp(THERE, 3, b"\xc1"))
    assert len(harness.engine.dispatcher.relays.far) == 0
    assert sent(harness) == [(YOU, RelayEnd(THERE, by_owner=True))]
    assert harness.engine.sessions[SESSION].receivers.attached() == {"r"}


def test_a_relay_goes_on_after_all_that_was_wrong() -> None:
    harness = far()
    for sender, message in ((YOU, RelayUp(THERE, 0, b"")), (THEY, RelayEnd(THERE, by_owner=False))):
        tell(harness, sender, message)
    tell(harness, YOU, RelayUp(THERE, 3, encode_message(Detach(forget=True))))
    assert set(harness.engine.sessions[SESSION].receivers) == {"r"}


# ---------------------------------------------------------------- late, and not wrong


def test_relay_message_in_flight_when_the_client_left_is_not_refused() -> None:
    harness = near()
    harness.step(ClientDisconnected(1))
    harness.run_effects()
    for message in (RelayDown(HERE, 1, b"", 2), RelayDown(HERE, 2, b"", 99), RelayEnd(HERE, by_owner=True)):
        tell(harness, YOU, message)
    assert harness.engine.output.refused.counts == {}


def test_both_ends_may_end_a_relay_at_once() -> None:
    harness = far()
    harness.step(RegistryReported(ProxyDown(YOU, row("you").incarnation)))
    tell(harness, YOU, RelayEnd(THERE, by_owner=False))
    assert harness.engine.output.refused.counts == {}


def test_message_of_an_earlier_relay_is_not_taken_for_one_of_the_next_relay() -> None:
    harness = near()
    harness.attach()
    asked = harness.next(effects.SendPeer)
    while not isinstance(asked.message, Prepare):
        asked = harness.next(effects.SendPeer)
    harness.step(
        PeerSent(
            YOU, TransferDeclined(SESSION, asked.message.transfer, asked.message.epoch, DeclineReason.OTHERS_ATTACHED)
        )
    )
    harness.run_effects()
    harness.received()
    tell(harness, YOU, RelayDown(HERE, 2, b"", 0))
    for number in (1, 2):
        tell(harness, YOU, RelayDown("me#1/2", number, encode_message(Attested(number)), 0))
    assert harness.received() == [Raw(encode_message(Attested(number))) for number in (1, 2)]
