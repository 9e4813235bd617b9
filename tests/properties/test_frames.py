"""Whatever bytes come in, what comes out is a message or an error of ours that says what is wrong.

Frames are made from random bytes, from random values that MessagePack can carry, and from whole messages that were
scratched: cut short, with bytes changed, inserted or taken out, or with a field of another type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from federation.messages import (
    AskSeen,
    CatchUp,
    CatchUpFailed,
    CaughtUp,
    LinkAppended,
    LinkOpen,
    LinkRecords,
    LinkWants,
    SeenSo,
)
from handover.messages import (
    Aborted,
    Chunk,
    ChunkStored,
    Frozen,
    Give,
    Offer,
    Prepare,
    Prepared,
    Ready,
    Refused,
    RelayDown,
    RelayEnd,
    RelayUp,
    Stay,
    StayReason,
    StoredEntry,
)
from node.peers import (
    IntroductionMessage,
    PeerChallenge,
    PeerHello,
    PeerMessage,
    PeerWelcome,
    decode_introduction,
    decode_peer_message,
)
from waypost import messages, records
from waypost.access import EVERYTHING, READ, Grant
from waypost.checkpoint import (
    Checkpoint,
    Descriptor,
    ReceiverRow,
    SubscriptionRow,
    decode_checkpoint,
    encode_checkpoint,
)
from waypost.checksum import sealed
from waypost.errors import BadMessage, BadRecord, LimitExceeded
from waypost.frames import decode_client_message, decode_proxy_message
from waypost.identity import Epoch, Incarnation, Origin, ProxyId, ReceiverId, SessionId, SiteId, SubscriptionId
from waypost.keys import Key, Protection
from waypost.limits import MAX_FRAME_BYTES
from waypost.notification import Notification
from waypost.queue import Queue
from waypost.records import decode_fact, decode_record, encode_record
from waypost.reliability import BEST_EFFORT, BEST_EFFORT_EVENTS

SESSION, LIFE, PROXY, SITE = SessionId("s"), Incarnation("i"), ProxyId("p"), SiteId("A")
ORIGIN, X = Origin("A/0"), SubscriptionId("x")
BODY = Notification({"n": 1, "text": "ü", "raw": b"\x00"}).body
KEY = Key("sha256-producer", "producer", b"key")
GUARDED = Protection((KEY,), False)
FORWARDED = records.Forwarded(SITE, 1, ORIGIN, 7, (SITE,), "p", LIFE, 1, 0, BODY)
NAMED = (SESSION, "t-1", Epoch(1))
DESCRIPTOR = Descriptor(
    {ORIGIN: 1},
    [SubscriptionRow(X, "n > 0", {ORIGIN: 1}, {}, {ORIGIN: 2}, None, keys=(KEY,), insecure=False)],
    {ReceiverId("r"): ReceiverRow(3, {ORIGIN: 2})},
    access={"": Grant(EVERYTHING, "$argon2id$"), "alice": Grant((READ,))},
)

FROM_CLIENT = [
    messages.Hello(messages.VERSION, "c"),
    messages.Attach("s", "r", "i", {ORIGIN: 3}),
    messages.Attach("s", "r", "i", {}, credential=messages.Credential("alice", "secret")),
    messages.Attach(
        "s",
        "r",
        "i",
        {},
        place_s=5,
        previous="a1",
        epoch=7,
        reliability=BEST_EFFORT,
        session_reliability=BEST_EFFORT_EVENTS,
        queue=Queue(3, 1_000, "priority", deadlines=True),
    ),
    messages.Acknowledge(1, gaps=2),
    messages.SetAccess(1, {"": messages.Granted(["read"], "secret"), "alice": messages.Granted(["administer"])}),
    messages.Subscribe("x", "n > 0"),
    messages.Subscribe("x", "n > 0", 60, 5, [KEY], False),
    messages.Unsubscribe("x"),
    messages.SetKeys(1, [KEY]),
    messages.Publish("p", "i", 0, [BODY, BODY]),
    messages.Publish("p", "i", 0, [BODY], [KEY], False),
    messages.PublishWith([KEY]),
    messages.Quench(1, ["n", "m"], [KEY], False),
    messages.Acknowledge(3, [messages.Attestation(1, Epoch(1), PROXY, ORIGIN, [1, 2], [3, 4])]),
    messages.Detach(forget=True),
    messages.Delete(),
]
FROM_PROXY = [
    messages.Welcome(1, PROXY, SITE),
    messages.Attached(SESSION, Epoch(1), PROXY, SITE, {X: messages.SubscriptionSettings("n > 0", 60, None, "main")}, 2),
    messages.Wait("later", 500),
    messages.Moved(SESSION, PROXY, "ws://h:1"),
    messages.Deleted(SESSION, "receiver main asked for it"),
    messages.Forgotten("main"),
    messages.Subscribed(X),
    messages.SubscriptionChanged(X, None),
    messages.BecameEffective(X, {ORIGIN: 3}),
    messages.Unsubscribed(X),
    messages.AccessChanged(1),
    messages.KeysChanged(1),
    messages.Interest(1, ["n > 0"], ["m == 1"], True),
    messages.Problem("FORBIDDEN", "no", None, messages.AboutKeys(1)),
    messages.Problem("FORBIDDEN", "no", "credential", messages.AboutAccess(1)),
    messages.Problem("FORBIDDEN", "no", "credential", messages.AboutDeletion()),
    messages.Deliver(Epoch(1), 1, [(X,)], [0], [messages.Delivery(ORIGIN, 1, "p", LIFE, 1, 0, BODY, 9)]),
    messages.Acknowledged(0, ORIGIN, [1, 2]),
    messages.Attested(1),
    messages.Gap(ORIGIN, 1, 2, "gone"),
    messages.Problem("REFUSED", "no", "field", messages.AboutSubscription(X)),
]
INTRODUCING = [
    PeerChallenge(bytes(16)),
    PeerHello(messages.VERSION, PROXY, LIFE, PROXY, bytes(16), b"proof"),
    PeerWelcome(b"proof"),
]
FROM_PEER = [
    Prepare(*NAMED, receiver="r", incarnation="i"),
    ChunkStored(*NAMED, 1),
    Ready(*NAMED, {ORIGIN: None}),
    Aborted(*NAMED, "no"),
    Prepared(*NAMED, DESCRIPTOR, 2),
    Chunk(*NAMED, 1, None, 1, [StoredEntry(1, ("x",), ORIGIN, 1, BODY)], 0),
    Frozen(*NAMED, DESCRIPTOR, {ORIGIN: 1}, 1, 1, 2),
    Refused(*NAMED, "no"),
    Stay(*NAMED, StayReason.OTHERS_ATTACHED),
    Offer(SESSION, Epoch(1), "drain"),
    Give(SESSION, Epoch(1), PROXY),
    RelayUp("you#1/1", 1, b"x"),
    RelayDown("you#1/1", 1, b"x", 1),
    RelayEnd("you#1/1", True),
    LinkOpen(SITE, 1, {ORIGIN: 1}, 1, {"n > 0": 1}),
    LinkWants(SITE, 1, 2, {"n > 0": 1}, {"n > 0": (GUARDED,)}),
    LinkRecords(SITE, 1, 1, 1, [FORWARDED, records.Progress(SITE, 1, ORIGIN, 9)]),
    LinkAppended(SITE, 1, 1, 2),
    CatchUp(1, ORIGIN, 1, 2, ("n > 0",)),
    CaughtUp(1, ORIGIN, [FORWARDED], 2),
    CatchUpFailed(1, ORIGIN, "no"),
    AskSeen(1, ORIGIN),
    SeenSo(1, -1),
]
IN_LOGS: list[msgspec.Struct] = [
    records.Published("p", LIFE, 1, 0, BODY),
    FORWARDED,
    records.Progress(SITE, 1, ORIGIN, 9),
    records.Effective(SITE, 1, "n > 0", 1, ORIGIN, 3),
    records.Published("p", LIFE, 1, 0, BODY, GUARDED),
    records.Held(PROXY, LIFE, SESSION, ("n > 0",)),
    records.Held(PROXY, LIFE, SESSION, ("n > 0",), {"n > 0": (GUARDED,)}),
    records.Dropped(PROXY, LIFE),
    records.Asked(SITE, 1, 1, {"n > 0": 1}),
    records.Closed("w", 0, {ORIGIN: 3}),
]
FACTS = [
    records.Fact(
        "w", 1, 0, records.FactKind.RECEIVED, session="s", origin="A/0", offsets=[1], digests=[2], frontier={"A/0": 1}
    )
]
CHECKPOINTS = [Checkpoint(SESSION, Epoch(1), 1, DESCRIPTOR, {ORIGIN: 1})]

Decode = Callable[[bytes], object]
WIRE: dict[str, tuple[Decode, list[Any]]] = {
    "client": (decode_client_message, FROM_CLIENT),
    "proxy": (decode_proxy_message, FROM_PROXY),
    "peer": (decode_peer_message, FROM_PEER),
    "introduction": (decode_introduction, INTRODUCING),
}
LOGS: dict[str, tuple[Decode, list[Any], Callable[[Any], bytes]]] = {
    "record": (decode_record, IN_LOGS, encode_record),
    "fact": (decode_fact, FACTS, msgspec.json.encode),
    "checkpoint": (decode_checkpoint, CHECKPOINTS, encode_checkpoint),
}

# ---------------------------------------------------------------- what is tried

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def scratched(draw: st.DrawFn, whole: bytes) -> bytes:
    """Change a few bytes of a message that was whole."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["cut", "change", "insert", "remove", "double"]))
        if what == "cut":
            del data[place:]
        elif what == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=4))
        elif what == "remove":
            del data[place : place + draw(st.integers(1, 4))]
        elif what == "double":
            data += data[place:]
        elif place < len(data):
            data[place] = draw(st.integers(0, 255))
    return bytes(data)


def misfitted(whole: bytes) -> st.SearchStrategy[bytes]:
    """Put something else into one field of a message."""
    fields: Any = msgspec.msgpack.decode(whole)
    keys = list(fields) if isinstance(fields, dict) else list(range(len(fields)))

    def replaced(key: Any, value: object) -> bytes:
        changed = dict(fields) if isinstance(fields, dict) else list(fields)
        changed[key] = value
        return msgspec.msgpack.encode(changed)

    return st.builds(replaced, st.sampled_from(keys), plain)


def frames(samples: list[Any]) -> st.SearchStrategy[bytes]:
    wholes = st.sampled_from([msgspec.msgpack.encode(each) for each in samples])
    return st.one_of(
        st.binary(max_size=60), plain.map(msgspec.msgpack.encode), wholes.flatmap(scratched), wholes.flatmap(misfitted)
    )


DEEP = b"\x91" * 1_500


def with_a_deep_field() -> bytes:
    """A message that is whole, with a field that nobody knows, where arrays stand in arrays without an end."""
    fields: Any = msgspec.to_builtins(FROM_PEER[4])
    whole = msgspec.msgpack.encode(fields | {"unknown": None})
    return whole.replace(b"unknown\xc0", b"unknown" + DEEP + b"\xc0")


# ---------------------------------------------------------------- what must hold


@pytest.mark.parametrize("kind", WIRE)
def test_a_whole_message_comes_back_as_it_was(kind: str) -> None:
    decode, samples = WIRE[kind]
    for sample in samples:
        assert decode(msgspec.msgpack.encode(sample)) == sample


@pytest.mark.parametrize(
    ("kind", "union"),
    [
        ("client", messages.ClientMessage),
        ("proxy", messages.ProxyMessage),
        ("peer", PeerMessage),
        ("introduction", IntroductionMessage),
    ],
)
def test_every_message_of_the_wire_is_among_the_samples(kind: str, union: Any) -> None:
    assert {type(sample) for sample in WIRE[kind][1]} == set(union.__args__)


def answered(decode: Decode, frame: bytes) -> None:
    """Decode, and look at the refusal, if it is one."""
    try:
        decode(frame)
    except (BadMessage, LimitExceeded) as error:
        assert error.definite
        assert error.message and "\n" not in error.message


@given(frames(FROM_CLIENT))
@example(DEEP)
@example(b"")
@example(b"\xc1")
def test_any_frame_of_a_client_is_a_message_or_refused_by_name(frame: bytes) -> None:
    answered(decode_client_message, frame)


@given(frames(FROM_PROXY))
@example(DEEP)
@example(b"")
def test_any_frame_of_a_proxy_is_a_message_or_refused_by_name(frame: bytes) -> None:
    answered(decode_proxy_message, frame)


@given(frames(FROM_PEER))
@example(with_a_deep_field())
@example(DEEP)
@example(b"")
def test_any_frame_of_a_peer_is_a_message_or_refused_by_name(frame: bytes) -> None:
    answered(decode_peer_message, frame)


@given(frames(INTRODUCING))
@example(b"")
def test_any_frame_before_anything_is_proven_is_a_message_or_refused_by_name(frame: bytes) -> None:
    answered(decode_introduction, frame)


@pytest.mark.parametrize("kind", WIRE)
def test_a_frame_past_the_limit_is_refused_unread(kind: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        WIRE[kind][0](bytes(MAX_FRAME_BYTES + 1))
    assert caught.value.field == "frame"


@pytest.mark.parametrize(
    ("frame", "field"),
    [
        (["subscribe", "x"], None),
        (["subscribe", "x", 7], "expression"),
        (["attach", "s", "r", "i", {"A/0": "three"}], "frontier[...]"),
        (["publish", "p", "i", -1, [b""]], "first"),
        (["nonsense"], "$[0]"),
        ({"a": 1}, None),
    ],
)
def test_a_refusal_names_the_field(frame: object, field: str | None) -> None:
    with pytest.raises(BadMessage) as caught:
        decode_client_message(msgspec.msgpack.encode(frame))
    assert caught.value.field == field


# ---------------------------------------------------------------- logs


def read(decode: Decode, data: bytes) -> None:
    """Decode what a log holds; what means nothing is refused as such."""
    try:
        decode(data)
    except BadRecord as error:
        assert error.message and "\n" not in error.message


@pytest.mark.parametrize("kind", LOGS)
def test_a_whole_record_comes_back_as_it_was(kind: str) -> None:
    decode, samples, encode = LOGS[kind]
    for sample in samples:
        assert decode(encode(sample)) == sample


@given(frames(IN_LOGS))
@example(DEEP)
@example(b"")
def test_any_bytes_in_a_site_log_are_a_record_or_refused(data: bytes) -> None:
    read(decode_record, data)
    read(lambda whole: decode_record(sealed(whole)), data)


json_like = plain.map(msgspec.json.encode)


@given(st.binary(max_size=60) | json_like | scratched(msgspec.json.encode(FACTS[0])))
@example(b'{"unknown":' + b"[" * 1_500)
@example(b"[" * 1_500)
@example(b"")
def test_any_line_of_a_journal_is_a_fact_or_refused(line: bytes) -> None:
    read(decode_fact, line)


@given(st.binary(max_size=60) | json_like | scratched(msgspec.json.encode(CHECKPOINTS[0])))
@example(b'{"unknown":' + b"[" * 1_500)
@example(b"[" * 1_500)
@example(b"")
def test_any_bytes_in_a_changelog_are_a_checkpoint_or_refused(data: bytes) -> None:
    read(decode_checkpoint, data)
