"""What a client says to have, held against what can be; and what of it its place keeps."""

from __future__ import annotations

import pytest

from federation.ports import Claimed
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected
from proxy.session.receivers import Receiver
from proxy.session.role import Role
from proxy.session.session import Session
from tests.helpers.engine_harness import SESSION, EngineHarness, owner
from waypost.errors import BadMessage, LimitExceeded
from waypost.frames import decode_client_message, encode_message
from waypost.identity import Epoch, Origin, ProxyId, ReceiverId, SessionId
from waypost.limits import KNOWN_KEPT, MAX_ORIGINS, MAX_OUT_OF_ORDER
from waypost.messages import Acknowledge, Attach, Attached, Attestation, Detach, Problem

A = Origin("A/0")


def served(harness: EngineHarness) -> Receiver:
    (receiver,) = harness.engine.sessions[SESSION].receivers.values()
    return receiver


def test_receiver_with_too_many_selective_offsets_is_refused_and_stays_registered() -> None:
    harness = EngineHarness()
    harness.serve()
    receiver = served(harness)
    harness.engine.state.frontier[A] = 5
    too_many = {A: [*range(3 * MAX_OUT_OF_ORDER + 1)]}
    harness.send(1, Acknowledge(0, selective=too_many))
    harness.send(
        1,
        Attach(
            session=SESSION, receiver=receiver.id, incarnation="i", frontier={}, order="priority", selective=too_many
        ),
    )
    harness.send(
        1,
        Attach(
            session=SESSION, receiver=receiver.id, incarnation="i", frontier={}, order="priority", selective={A: [5]}
        ),
    )
    answers = [message for message in harness.received(1) if isinstance(message, Problem | Attached)]
    assert [problem.field if isinstance(problem, Problem) else "attached" for problem in answers] == [
        "selective"
    ] * 2 + ["attached"]
    assert receiver.selective.rows() == {A: [5]}


def test_repeated_selective_acknowledgements_count_once() -> None:
    harness = EngineHarness()
    harness.serve()
    many = {A: [*range(2 * MAX_OUT_OF_ORDER)]}
    harness.engine.state.frontier[A] = 2 * MAX_OUT_OF_ORDER
    harness.send(1, Acknowledge(0, selective=many))
    harness.send(1, Detach(selective=many))
    assert [problem for problem in harness.received(1) if isinstance(problem, Problem)] == []
    assert len(served(harness).selective) == 2 * MAX_OUT_OF_ORDER


def test_unknown_origins_of_a_detach_are_not_kept() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, Detach(frontier={Origin("nowhere/0"): 5}))
    assert "nowhere/0" not in served(harness).frontier


@pytest.mark.parametrize(
    "frontier",
    [{Origin(f"A/{number}"): 0 for number in range(MAX_ORIGINS + 1)}, {Origin("x" * 10_000): 0}],
    ids=["too many", "too long"],
)
def test_a_frontier_that_no_federation_has_is_no_message(frontier: dict[Origin, int]) -> None:
    for message in (
        Attach(session="s", receiver="r", incarnation="i", frontier=frontier),
        Detach(frontier=frontier),
        Acknowledge(0, frontier=frontier),
    ):
        with pytest.raises(BadMessage):
            decode_client_message(encode_message(message))


def test_late_attach_of_an_unregistered_receiver_does_not_register_it_after_a_handover() -> None:
    here = Session(SessionId("s"), Epoch(1), Role.SERVING)
    here.former_receivers.record_unregistration(ReceiverId("r"), "life", 3)
    there = Session(SessionId("s"), Epoch(2), Role.STAGED)
    there.describe(here.descriptor())
    asked = [there.former_receivers.has_left_since(ReceiverId("r"), "life", times, 0) for times in (0, 2, 3, 4)]
    assert asked == [False, True, True, False]
    assert not there.former_receivers.has_left_since(ReceiverId("r"), "another", 1, 0)


def test_a_cursor_never_moves_back() -> None:
    receiver = Receiver(id=ReceiverId("r"), acknowledged=0)
    receiver.connect(1, Attach(session="s", receiver="r", incarnation="i", frontier={}), {}, {})
    receiver.set_acknowledged(15)
    receiver.acknowledge(10)
    assert receiver.acknowledged == 15


def test_origins_that_there_are_not_are_forgotten_when_the_client_has_gone() -> None:
    harness = EngineHarness()
    invented = {Origin(f"{number}/0"): number for number in range(KNOWN_KEPT + 1)}
    harness.send(1, Attach(session=SESSION, receiver="r", incarnation="i", frontier=invented))
    harness.complete(effects.ReadRow, None)
    harness.complete(effects.CreateRow, Claimed(True, owner("me", 1)))
    harness.complete_writes()
    receiver = served(harness)
    assert receiver.known.keys() >= invented.keys()
    harness.step(ClientDisconnected(1))
    assert not receiver.known.keys() & invented.keys()


def test_descriptors_of_all_sessions_together_have_a_bound() -> None:
    sessions = EngineHarness().engine.sessions
    for number in range(3):
        session = Session(SessionId(f"s{number}"), Epoch(1), Role.SERVING)
        sessions.put(session)
        sessions.require_room(session, 1_000, max_bytes=10_000)
    with pytest.raises(LimitExceeded, match="of all sessions"):
        sessions.require_room(session, 9_000, max_bytes=10_000)
    # What was refused takes no room of others.
    sessions.require_room(sessions[SessionId("s1")], 1_000, max_bytes=10_000)
    sessions.remove(SessionId("s2"))
    sessions.require_room(sessions[SessionId("s0")], 5_000, max_bytes=10_000)


def test_reported_coordinates_that_nobody_knows_to_exist_count_for_this_attachment_alone() -> None:
    receiver = Receiver(id=ReceiverId("r"), acknowledged=0)
    origin = Origin("A/0")
    attach = Attach(session="s", receiver="r", incarnation="i", frontier={}, selective={origin: [7, 5000]})
    receiver.connect(1, attach, {}, {origin: [7]})
    assert receiver.reported.has(origin, 5000) and receiver.row().selective == {origin: [7]}
    receiver.connect(2, Attach(session="s", receiver="r", incarnation="j", frontier={}), {}, {})
    assert not receiver.reported and receiver.row().selective == {origin: [7]}


def test_attestation_without_a_digest_for_each_offset_is_refused_and_no_fact() -> None:
    harness = EngineHarness()
    harness.serve()
    wrong = Attestation(number=1, epoch=Epoch(1), proxy=ProxyId("me"), origin=A, offsets=[0, 1], digests=[7])
    harness.send(1, Acknowledge(0, [wrong]))
    (problem,) = [message for message in harness.received() if isinstance(message, Problem)]
    assert (problem.code, problem.field) == (BadMessage.code, "attestations")
    assert "received" not in [fact.kind for fact in harness.facts]
