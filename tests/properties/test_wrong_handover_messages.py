"""A handover message that is wrong is refused by name and counted, and nothing of any session or transfer changes.

Engines in every phase of a handover, of either role and of none, are told random wrong messages; a picture of all that
they know of sessions and transfers is the same before and after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from federation.ports import Claimed
from handover.machine import Timing
from handover.messages import (
    Aborted,
    Chunk,
    ChunkStored,
    DeclineReason,
    Frozen,
    HandoverOffer,
    MoveRequest,
    Prepare,
    Prepared,
    Ready,
    StoredEntry,
    TransferDeclined,
    TransferMessage,
    TransferRefused,
    Trigger,
    checksum,
)
from proxy.core import effects
from proxy.core.inputs import PeerSent
from proxy.session.role import Role
from tests.helpers.engine_harness import ME, SESSION, EngineHarness, owner
from waypost.checkpoint import Descriptor
from waypost.identity import Epoch, Origin, ProxyId, SessionId
from waypost.messages import Publish, Subscribe
from waypost.notification import Notification
from waypost.subscription import Expression

YOU, THEY = ProxyId("you"), ProxyId("they")
ORIGIN = Origin("A/0")
NOBODYS = Descriptor(created_at={}, subscriptions=[], receivers={})
ENTRIES = [StoredEntry(number=1, matched=(), origin=ORIGIN, offset=0, delivery=b"\x90")]
WAIT_FOR_EVER: dict[Origin, int | None] = {ORIGIN: 1 << 40}


class Stage(NamedTuple):
    """An engine in some phase of a transfer, and what a right message carries there."""

    harness: EngineHarness
    transfer: str
    epoch: Epoch


# ---------------------------------------------------------------- the phases


def nothing() -> Stage:
    """The session is served here, and nobody asked for it."""
    harness = EngineHarness()
    harness.reload({}, "you", "they")
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.send(
        2,
        Publish(producer="p", secret="i", first=1, bodies=[Notification({"n": number}).body for number in range(1, 6)]),
    )
    harness.read_log()
    harness.pass_time(1_000)
    harness.complete_writes()
    assert harness.engine.sessions[SESSION].entries.count == 5
    return Stage(harness, "t", owner("me", 1).epoch)


def copying() -> Stage:
    stage = nothing()
    right(stage, Prepare(session=SESSION, transfer="t", epoch=stage.epoch, receiver="r"))
    return stage


def waiting() -> Stage:
    stage = copying()
    right(stage, ChunkStored(SESSION, "t", stage.epoch, 1))
    right(stage, Ready(SESSION, "t", stage.epoch, WAIT_FOR_EVER))
    return stage


def frozen() -> Stage:
    stage = waiting()
    stage.harness.pass_time(Timing().passing_ms)
    return stage


def confirming() -> Stage:
    stage = frozen()
    stage.harness.changelog_waits = True
    stage.harness.pass_time(Timing().frozen_ms)
    return stage


def reclaiming() -> Stage:
    stage = confirming()
    stage.harness.changelog_waits = False
    stage.harness.complete(effects.FindCheckpoint, effects.FoundCheckpoint((), complete=True))
    return stage


def preparing() -> Stage:
    harness = EngineHarness()
    harness.reload({SESSION: owner("you", 3)}, "you", "they")
    harness.attach()
    asked = harness.next(effects.SendPeer).message
    assert isinstance(asked, Prepare)
    return Stage(harness, asked.transfer, asked.epoch)


def shadowing(stored: int = 3) -> Stage:
    stage = preparing()
    right(
        stage, Prepared(session=SESSION, transfer=stage.transfer, epoch=stage.epoch, descriptor=NOBODYS, stored=stored)
    )
    right(stage, chunk(stage))
    return stage


def ready() -> Stage:
    stage = shadowing(stored=1)
    stage.harness.pass_time(Timing().coverage_ms)
    return stage


def staging() -> Stage:
    stage = ready()
    right(
        stage,
        Frozen(
            session=SESSION,
            transfer=stage.transfer,
            epoch=stage.epoch,
            descriptor=NOBODYS,
            cut={ORIGIN: 0},
            chunks=1,
            oldest=1,
            next_number=2,
        ),
    )
    return stage


def committing() -> Stage:
    stage = staging()
    stage.harness.complete_writes()
    stage.harness.next(effects.ClaimRow)
    return stage


PHASES: dict[str, Callable[[], Stage]] = {
    each.__name__: each
    for each in (
        nothing,
        copying,
        waiting,
        frozen,
        confirming,
        reclaiming,
        preparing,
        shadowing,
        ready,
        staging,
        committing,
    )
}
SOURCE = ("copying", "waiting", "frozen", "confirming", "reclaiming")
TARGET = ("preparing", "shadowing", "ready", "staging", "committing")


def right(stage: Stage, message: Any) -> None:
    stage.harness.step(PeerSent(YOU, message))
    stage.harness.run_effects()


def stay(stage: Stage) -> TransferDeclined:
    return TransferDeclined(SESSION, stage.transfer, stage.epoch, DeclineReason.OTHERS_ATTACHED)


def chunk(stage: Stage, number: int = 1, after: int | None = None, damage: int = 0) -> Chunk:
    named = (SESSION, stage.transfer, stage.epoch)
    return Chunk(*named, number=number, after=after, upto=number, entries=ENTRIES, checksum=checksum(ENTRIES) ^ damage)


def test_the_phases_are_what_they_are_called() -> None:
    for name in SOURCE:
        (out,) = PHASES[name]().harness.engine.transfers.sources.running.values()
        assert out.machine.state.name.lower() == name
    for name in TARGET:
        (into,) = PHASES[name]().harness.engine.transfers.targets.running.values()
        assert into.machine.state.name.lower() == name


# ---------------------------------------------------------------- what is wrong


def messages_of(stage: Stage) -> list[Any]:
    """One of every kind, as it would be right for this transfer, somewhere in it."""
    named = (SESSION, stage.transfer, stage.epoch)
    return [
        Prepare(*named, receiver="r"),
        ChunkStored(*named, 0),
        Ready(*named, {ORIGIN: 1}),
        Aborted(*named, "why not"),
        Prepared(*named, descriptor=NOBODYS, stored=9),
        chunk(stage, 2, 1),
        Frozen(*named, descriptor=NOBODYS, cut={ORIGIN: 3}, chunks=1, oldest=1, next_number=2),
        TransferRefused(*named, "why not"),
        TransferDeclined(*named, DeclineReason.OTHERS_ATTACHED),
    ]


wrong_epochs = st.integers(-1, 9) | st.integers(1 << 30, 1 << 50)
numbers = st.integers(-(1 << 40), 1 << 40)
FromPeer = tuple[ProxyId, Any]


@st.composite
def misaddressed(draw: st.DrawFn, phase: str, stage: Stage) -> FromPeer:
    """A message that is right but for its epoch, its transfer, its session or its sender, one of them or more."""
    message = draw(st.sampled_from(messages_of(stage)))
    fields = ["epoch", "session", "transfer", "sender"]
    if isinstance(message, Prepare):
        # With another transfer's name, or for who owns nothing, it is a question like any other.
        fields = ["epoch", "session", "sender"] if phase in SOURCE else ["epoch", "session"]
    wrong = draw(st.sets(st.sampled_from(fields), min_size=1))
    changes: dict[str, Any] = {}
    if "epoch" in wrong:
        # The next epoch is that of a staged copy: a Prepare that names it is refused, and yet not wrong.
        changes["epoch"] = Epoch(draw(wrong_epochs.filter(lambda epoch: epoch not in (stage.epoch, stage.epoch + 1))))
    if "session" in wrong:
        changes["session"] = SessionId(draw(st.sampled_from(["", "other", "S"])))
    if "transfer" in wrong:
        changes["transfer"] = draw(st.sampled_from(["", "other", f"{stage.transfer}0"]))
    return (THEY if "sender" in wrong else YOU), msgspec.structs.replace(message, **changes)


def misfitting(phase: str, stage: Stage) -> st.SearchStrategy[FromPeer]:
    """A message of the very transfer that is wrong by itself, or answers what was never said."""
    named = (SESSION, stage.transfer, stage.epoch)
    wrong: list[st.SearchStrategy[Any]] = [
        wrong_epochs.filter(lambda epoch: epoch < stage.epoch).map(
            lambda epoch: HandoverOffer(SESSION, Epoch(epoch), Trigger.DRAIN)
        ),
    ]
    if phase == "nothing":
        wrong.append(st.sampled_from([message for message in messages_of(stage) if not isinstance(message, Prepare)]))
        others = wrong_epochs.filter(lambda epoch: epoch != stage.epoch)
        wrong.append(others.map(lambda epoch: MoveRequest(SESSION, Epoch(epoch), YOU)))
    if phase in SOURCE:
        never_sent = numbers.filter(lambda number: not 0 <= number <= 1)
        wrong.append(never_sent.map(lambda number: ChunkStored(*named, number)))
        wrong.append(st.just(Prepared(*named, descriptor=NOBODYS, stored=9)))
    if phase in TARGET:
        wrong.append(st.just(Ready(*named, {ORIGIN: 1})))
    if phase in TARGET[1:]:
        wrong.append(numbers.filter(lambda number: number not in (1, 2)).map(lambda number: chunk(stage, number, 1)))
        wrong.append(st.builds(lambda after: chunk(stage, 2, after), st.none() | numbers.filter(lambda n: n != 1)))
        wrong.append(st.integers(1, (1 << 32) - 1).map(lambda damage: chunk(stage, 2, 1, damage)))
    if phase in ("preparing", "shadowing"):
        wrong.append(st.just(Frozen(*named, descriptor=NOBODYS, cut={ORIGIN: 3}, chunks=1, oldest=1, next_number=2)))
    if phase in TARGET[1:]:
        wrong.append(st.just(TransferDeclined(*named, DeclineReason.OTHERS_ATTACHED)))
    return st.tuples(st.just(YOU), st.one_of(wrong))


# ---------------------------------------------------------------- the picture


def picture(value: Any, above: tuple[int, ...] = ()) -> Any:
    """Return all that an object holds, as plain values that compare."""
    if id(value) in above:
        return "..."
    below = (*above, id(value))
    match value:
        case None | bool() | int() | float() | str() | bytes() | Enum():
            return value
        case Expression():
            return value.text
        case dict():
            return {str(picture(key)): picture(element, below) for key, element in value.items()}
        case set() | frozenset():
            return sorted(map(repr, value))
        case list() | tuple() | deque():
            return [picture(element, below) for element in value]
        case msgspec.Struct():
            return msgspec.to_builtins(value)
        case msgspec.Raw():
            return bytes(value)
    if callable(value):
        return "a function"
    names = {*getattr(value, "__dict__", {}), *(name for kind in type(value).__mro__ for name in slots(kind))}
    return {name: picture(getattr(value, name), below) for name in sorted(names)}


def slots(kind: type) -> tuple[str, ...]:
    found = getattr(kind, "__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def known(harness: EngineHarness) -> Any:
    """All that the engine knows of sessions and transfers, and when it will do something next."""
    engine, transfers = harness.engine, harness.engine.transfers
    running: list[Mapping[Any, object]] = [transfers.sources.running, transfers.targets.running]
    views = [transfers.sources.recent_views, transfers.targets.recent_views]
    return picture(
        [
            dict(engine.sessions),
            engine.env.cluster.owners,
            engine.sessions._changed,
            engine.sessions.interest._registered,
            [dict(each) for each in running],
            views,
            transfers.sources.recent_ids,
            vars(harness.engine.session_moves) | {"_env": None, "_sessions": None, "_output": None},
            len(harness.log),
            harness.engine.next_deadline(),
        ]
    )


def test_the_picture_shows_what_changes() -> None:
    stage = copying()
    before = known(stage.harness)
    assert known(stage.harness) == before == known(copying().harness)
    right(stage, ChunkStored(SESSION, "t", stage.epoch, 1))
    assert known(stage.harness) != before
    stage.harness.engine.sessions[SESSION].become(Role.FROZEN)
    again = known(stage.harness)
    stage.harness.engine.sessions[SESSION].receivers.popitem()
    assert known(stage.harness) != again


# ---------------------------------------------------------------- what must hold


def refused(stage: Stage, sender: ProxyId, message: Any) -> None:
    """Say it, and look: nothing has changed but one count, and nothing was said but that it is refused."""
    harness = stage.harness
    refusals = harness.engine.output.refused
    before, counted, emitted = known(harness), refusals.counts.copy(), list(harness.pending)
    harness.step(PeerSent(sender, message))
    harness.run_effects()
    assert known(harness) == before
    assert (refusals.counts - counted).total() == 1, (refusals.counts - counted, message)
    for effect in harness.pending[len(emitted) :]:
        assert isinstance(effect, effects.SendPeer) and isinstance(effect.message, TransferRefused | Aborted)
        assert effect.proxy == sender
        harness.pending.remove(effect)


@pytest.mark.parametrize("phase", PHASES)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_wrong_messages_change_nothing_and_are_counted(phase: str, data: st.DataObject) -> None:
    stage = PHASES[phase]()
    wrong = misaddressed(phase, stage) | misfitting(phase, stage)
    for sender, message in data.draw(st.lists(wrong, min_size=1, max_size=8)):
        refused(stage, sender, message)


NAMES: list[tuple[str, str, ProxyId, Callable[[Stage], Any]]] = [
    ("wrong epoch", "copying", YOU, lambda stage: Ready(SESSION, "t", Epoch(7), {})),
    ("wrong epoch", "nothing", YOU, lambda stage: Prepare(session=SESSION, transfer="t", epoch=Epoch(7))),
    ("wrong epoch", "frozen", YOU, lambda stage: Prepare(session=SESSION, transfer="u", epoch=Epoch(7))),
    ("wrong epoch", "nothing", YOU, lambda stage: HandoverOffer(SESSION, Epoch(0), Trigger.DRAIN)),
    ("wrong epoch", "nothing", YOU, lambda stage: MoveRequest(SESSION, Epoch(7), YOU)),
    ("wrong sender", "copying", THEY, lambda stage: ChunkStored(SESSION, "t", stage.epoch, 1)),
    ("wrong sender", "copying", THEY, lambda stage: Prepare(session=SESSION, transfer="t", epoch=stage.epoch)),
    ("wrong sender", "ready", THEY, lambda stage: chunk(stage, 2, 1)),
    ("unknown transfer", "nothing", YOU, lambda stage: Ready(SESSION, "t", stage.epoch, {})),
    ("unknown transfer", "copying", YOU, lambda stage: Aborted(SESSION, "other", stage.epoch, "")),
    ("unknown transfer", "shadowing", YOU, lambda stage: TransferRefused(SESSION, "other", stage.epoch, "")),
    (
        "unknown session",
        "nothing",
        YOU,
        lambda stage: Prepare(session=SessionId("other"), transfer="t", epoch=stage.epoch),
    ),
    ("target is the source", "nothing", ME, lambda stage: Prepare(session=SESSION, transfer="t", epoch=stage.epoch)),
    ("answer to a chunk that was never sent", "copying", YOU, lambda stage: ChunkStored(SESSION, "t", stage.epoch, 9)),
    ("chunk out of order", "shadowing", YOU, lambda stage: chunk(stage, 3, 1)),
    ("chunk out of order", "shadowing", YOU, lambda stage: chunk(stage, 2, 7)),
    ("wrong checksum", "shadowing", YOU, lambda stage: chunk(stage, 2, 1, damage=1)),
    ("unexpected TransferDeclined in SHADOWING", "shadowing", YOU, stay),
    ("unexpected TransferDeclined in STAGING", "staging", YOU, stay),
    (
        "unexpected Frozen in SHADOWING",
        "shadowing",
        YOU,
        lambda stage: Frozen(
            session=SESSION,
            transfer=stage.transfer,
            epoch=stage.epoch,
            descriptor=NOBODYS,
            cut={},
            chunks=9,
            oldest=1,
            next_number=2,
        ),
    ),
]


@pytest.mark.parametrize(("name", "phase", "sender", "message"), NAMES)
def test_wrong_handover_message_is_refused_by_name(
    name: str, phase: str, sender: ProxyId, message: Callable[[Stage], Any]
) -> None:
    stage = PHASES[phase]()
    refused(stage, sender, message(stage))
    assert stage.harness.engine.output.refused.counts == {name: 1}


def test_first_refusal_of_a_kind_from_a_peer_is_logged_and_all_are_counted() -> None:
    stage = copying()
    refusals = stage.harness.engine.output.refused
    for sender in (YOU, YOU, THEY, YOU, THEY):
        refused(stage, sender, Aborted(SESSION, "other", stage.epoch, ""))
    assert [(refusal.name, refusal.peer) for refusal in refusals.take_new()] == [
        ("unknown transfer", YOU),
        ("unknown transfer", THEY),
    ]
    refused(stage, YOU, Ready(SESSION, "t", Epoch(7), {}))
    assert [(refusal.name, refusal.detail) for refusal in refusals.take_new()] == [
        ("wrong epoch", f"Ready of session {SESSION}, transfer t, epoch 7")
    ]
    assert refusals.counts == {"unknown transfer": 5, "wrong epoch": 1}


def test_a_transfer_goes_on_after_all_that_was_wrong() -> None:
    stage = ready()
    for message in (chunk(stage, 2, 1, damage=1), chunk(stage, 9, 1)):
        refused(stage, YOU, message)
    for each in messages_of(stage):
        wrong: TransferMessage = msgspec.structs.replace(each, epoch=Epoch(9))
        refused(stage, YOU, wrong)
    right(
        stage,
        Frozen(
            session=SESSION,
            transfer=stage.transfer,
            epoch=stage.epoch,
            descriptor=NOBODYS,
            cut={ORIGIN: 0},
            chunks=1,
            oldest=1,
            next_number=2,
        ),
    )
    stage.harness.complete_writes()
    stage.harness.complete(effects.ClaimRow, Claimed(True, owner("me", 4)))
    session = stage.harness.engine.sessions[SESSION]
    assert (session.role, session.epoch, session.entries.count) == (Role.SERVING, 4, 1)
