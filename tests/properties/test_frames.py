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
    CatchUp,
    CatchUpFailed,
    CaughtUp,
    LeaseGranted,
    LeaseRequest,
    LinkAppended,
    LinkOpen,
    LinkRecords,
    LinkWants,
    LogEndRequest,
    LogEndResponse,
    SeenRequest,
    SeenResponse,
)
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
    RelayDown,
    RelayEnd,
    RelayUp,
    StoredEntry,
    TransferDeclined,
    TransferRefused,
    Trigger,
)
from node.peers.peers import (
    IntroductionMessage,
    PeerChallenge,
    PeerHello,
    PeerMessage,
    PeerWelcome,
    decode_introduction,
    decode_peer_message,
)
from node.peers.routes import Routed
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
from waypost.facts import Fact, FactKind, GapCause, decode_fact
from waypost.frames import decode_client_message, decode_proxy_message
from waypost.identity import Epoch, Incarnation, Origin, ProxyId, ReceiverId, SessionId, SiteId, SubscriptionId
from waypost.keys import Key, Protection
from waypost.limits import MAX_FRAME_BYTES
from waypost.notification import Notification
from waypost.queue import Queue
from waypost.records import decode_record, encode_record
from waypost.reliability import BEST_EFFORT, BEST_EFFORT_EVENTS

SESSION, INCARNATION, PROXY, SITE = SessionId("s"), Incarnation("i"), ProxyId("p"), SiteId("A")
ORIGIN, X = Origin("A/0"), SubscriptionId("x")
BODY = Notification({"n": 1, "text": "ü", "raw": b"\x00"}).body
KEY = Key("sha256-producer", "producer", b"key")
GUARDED = Protection((KEY,), False)
FORWARDED = records.Forwarded(
    link=SITE,
    link_epoch=1,
    origin=ORIGIN,
    offset=7,
    path=(SITE,),
    producer="p",
    incarnation=INCARNATION,
    sequence=1,
    at_ms=0,
    body=BODY,
)
NAMED = (SESSION, "t-1", Epoch(1))
DESCRIPTOR = Descriptor(
    created_at={ORIGIN: 1},
    subscriptions=[
        SubscriptionRow(
            id=X,
            expression="n > 0",
            start={ORIGIN: 1},
            promise_floor={},
            promised={ORIGIN: 2},
            end=None,
            keys=(KEY,),
            insecure=False,
        )
    ],
    receivers={ReceiverId("r"): ReceiverRow(acknowledged=3, frontier={ORIGIN: 2})},
    access={"": Grant(EVERYTHING, "$argon2id$"), "alice": Grant((READ,))},
)

FROM_CLIENT = [
    messages.Hello(messages.VERSION, "c"),
    messages.Attach(session="s", receiver="r", incarnation="i", frontier={ORIGIN: 3}),
    messages.Attach(
        session="s", receiver="r", incarnation="i", frontier={}, credential=messages.Credential("alice", "secret")
    ),
    messages.Attach(
        session="s",
        receiver="r",
        incarnation="i",
        frontier={},
        receiver_expiry_s=5,
        epoch=7,
        reliability=BEST_EFFORT,
        session_reliability=BEST_EFFORT_EVENTS,
        queue=Queue(3, 1_000, "priority", deadlines=True),
    ),
    messages.Acknowledge(1, gaps=2),
    messages.ListProxies(),
    messages.SetAccess(1, {"": messages.Granted(["read"], "secret"), "alice": messages.Granted(["administer"])}),
    messages.Subscribe(subscription="x", expression="n > 0"),
    messages.Subscribe(subscription="x", expression="n > 0", ttl_s=60, max_count=5, keys=[KEY], insecure=False),
    messages.Unsubscribe("x"),
    messages.SetKeys(1, [KEY]),
    messages.Publish(producer="p", secret="i", first=0, bodies=[BODY, BODY]),
    messages.Publish(producer="p", secret="i", first=0, bodies=[BODY], keys=[KEY], insecure=False),
    messages.PublishWith([KEY]),
    messages.Quench(1, ["n", "m"], [KEY], False),
    messages.Acknowledge(
        3, [messages.Attestation(number=1, epoch=Epoch(1), proxy=PROXY, origin=ORIGIN, offsets=[1, 2], digests=[3, 4])]
    ),
    messages.Detach(forget=True),
    messages.Delete(),
]
FROM_PROXY = [
    messages.Welcome(1, PROXY, SITE, "f"),
    messages.Proxies([messages.ProxyAddress(url="ws://h:1", proxy=PROXY, site=SITE, load=3, federation="f")]),
    messages.Attached(
        session=SESSION,
        epoch=Epoch(1),
        proxy=PROXY,
        site=SITE,
        subscriptions={X: messages.SubscriptionSettings(expression="n > 0", ttl_s=60, max_count=None, owner="main")},
        stored=2,
    ),
    messages.Wait(messages.WaitCause.BUSY, "later", 500),
    messages.Moved(SESSION, PROXY, "ws://h:1"),
    messages.Deleted(SESSION, "receiver main asked for it"),
    messages.Left("main"),
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
    messages.Deliver(
        epoch=Epoch(1),
        through=1,
        matches=[(X,)],
        matched=[0],
        entries=[
            messages.Delivery(
                origin=ORIGIN, offset=1, producer="p", incarnation=INCARNATION, sequence=1, at_ms=0, body=BODY, check=9
            )
        ],
    ),
    messages.Acknowledged(0, ORIGIN, [1, 2]),
    messages.Attested(1),
    messages.Gap(ORIGIN, 1, 2, GapCause.RETENTION),
    messages.Problem("REFUSED", "no", "field", messages.AboutSubscription(X)),
]
INTRODUCING = [
    PeerChallenge(bytes(16)),
    PeerHello(
        version=messages.VERSION, proxy=PROXY, incarnation=INCARNATION, callee=PROXY, nonce=bytes(16), proof=b"proof"
    ),
    PeerWelcome(b"proof"),
]
FROM_PEER = [
    Routed(target=PROXY, sender=PROXY, incarnation=INCARNATION, passed=1, data=b"data"),
    Prepare(*NAMED, receiver="r", incarnation="i"),
    ChunkStored(*NAMED, 1),
    Ready(*NAMED, {ORIGIN: None}),
    Aborted(*NAMED, "no"),
    Prepared(*NAMED, descriptor=DESCRIPTOR, stored=2),
    Chunk(
        *NAMED,
        number=1,
        after=None,
        upto=1,
        entries=[StoredEntry(number=1, matched=(SubscriptionId("x"),), origin=ORIGIN, offset=1, delivery=BODY)],
        checksum=0,
    ),
    Frozen(*NAMED, descriptor=DESCRIPTOR, cut={ORIGIN: 1}, chunks=1, oldest=1, next_number=2),
    TransferRefused(*NAMED, "no"),
    TransferDeclined(*NAMED, DeclineReason.OTHERS_ATTACHED),
    HandoverOffer(SESSION, Epoch(1), Trigger.DRAIN),
    MoveRequest(SESSION, Epoch(1), PROXY),
    RelayUp("you#1/1", 1, b"x"),
    RelayDown("you#1/1", 1, b"x", 1),
    RelayEnd("you#1/1", True),
    LinkOpen(site=SITE, epoch=1, frontier={ORIGIN: 1}, serial=1, digest=2**64 - 1),
    LeaseRequest(SITE, 1, 10_000),
    LeaseGranted(SITE, 1),
    LinkWants(SITE, 1, 2, {"n > 0": 1}, {"n > 0": (GUARDED,)}),
    LinkWants(SITE, 1, 3, {}, removed=("n > 0",), part=records.RequestPart.CHANGE, base=2**64 - 1),
    LinkRecords(site=SITE, epoch=1, opening=1, number=1, records=[FORWARDED, records.Progress(SITE, 1, ORIGIN, 9)]),
    LinkAppended(SITE, 1, 1, 2),
    CatchUp(1, ORIGIN, 1, 2, ("n > 0",)),
    CaughtUp(request=1, origin=ORIGIN, records=[FORWARDED], through=2),
    CatchUpFailed(1, ORIGIN, "no"),
    LogEndRequest(Incarnation("i"), 4),
    LogEndResponse(Incarnation("i"), 4, {ORIGIN: 3}),
    SeenRequest(1, ORIGIN),
    SeenResponse(1, -1, is_confirmed=False),
]
IN_LOGS: list[msgspec.Struct] = [
    records.Published(producer="p", incarnation=INCARNATION, sequence=1, at_ms=0, body=BODY),
    FORWARDED,
    records.Progress(SITE, 1, ORIGIN, 9),
    records.Effective(link=SITE, link_epoch=1, expression="n > 0", installation=1, origin=ORIGIN, above=3),
    records.Published(producer="p", incarnation=INCARNATION, sequence=1, at_ms=0, body=BODY, protection=GUARDED),
    records.InterestRegistered(PROXY, INCARNATION, SESSION, ("n > 0",)),
    records.InterestRegistered(PROXY, INCARNATION, SESSION, ("n > 0",), {"n > 0": (GUARDED,)}),
    records.InterestsExpired(PROXY, INCARNATION),
    records.FiltersRequested(SITE, 1, 1, {"n > 0": 1}),
    records.Closed("w", 0, {ORIGIN: 3}),
]
FACTS = [
    Fact(
        writer="w",
        number=1,
        at_ms=0,
        kind=FactKind.RECEIVED,
        session="s",
        origin="A/0",
        offsets=[1],
        digests=[2],
        frontier={"A/0": 1},
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
        index = draw(st.integers(0, len(data)))
        what = draw(st.sampled_from(["cut", "change", "insert", "remove", "double"]))
        if what == "cut":
            del data[index:]
        elif what == "insert":
            data[index:index] = draw(st.binary(min_size=1, max_size=4))
        elif what == "remove":
            del data[index : index + draw(st.integers(1, 4))]
        elif what == "double":
            data += data[index:]
        elif index < len(data):
            data[index] = draw(st.integers(0, 255))
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
    wholes = st.sampled_from([msgspec.msgpack.encode(sample) for sample in samples])
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
