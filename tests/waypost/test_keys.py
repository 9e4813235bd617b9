"""Security keys: what is said raw on one side and public on the other meets, by scheme, and is never shown."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.errors import BadMessage, Refused
from waypost.keys import (
    CONSUMER,
    OPEN,
    PRODUCER,
    SIDES,
    Algorithm,
    Key,
    Keys,
    Protection,
    Scheme,
    Side,
    primed,
    public_key,
    texts,
)
from waypost.limits import MAX_KEY_BYTES, MAX_KEYS

SECRETS = st.sampled_from([b"a", b"b", b"c"])


def published(keys: Keys, *, insecure: bool = False) -> Protection:
    return Protection.of(primed(PRODUCER, keys.listed()), insecure=insecure)


def subscribed(keys: Keys, *, insecure: bool = False) -> Protection:
    return Protection.of(primed(CONSUMER, keys.listed()), insecure=insecure)


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_the_public_form_of_a_key_is_its_hash(algorithm: Algorithm) -> None:
    assert public_key(b"raw", algorithm) == hashlib.new(algorithm, b"raw").digest()


@pytest.mark.parametrize("algorithm", ["sha256", "sha1"])
def test_key_of_a_producer_meets_its_public_form(algorithm: Algorithm) -> None:
    sent = published(Keys.producer(b"raw", algorithm=algorithm))
    assert sent.allows(subscribed(Keys.producer(public_key(b"raw", algorithm), algorithm=algorithm)))
    assert not sent.allows(subscribed(Keys.producer(public_key(b"other", algorithm), algorithm=algorithm)))


def test_public_key_does_not_pass_for_its_secret() -> None:
    wanted = subscribed(Keys.producer(public_key(b"raw")))
    assert not published(Keys.producer(public_key(b"raw"))).allows(wanted)
    kept = published(Keys.consumer(public_key(b"raw")))
    assert not kept.allows(subscribed(Keys.consumer(public_key(b"raw"))))
    assert kept.allows(subscribed(Keys.consumer(b"raw")))


def test_keys_of_one_algorithm_are_nothing_to_the_other() -> None:
    sent = published(Keys.producer(b"raw", algorithm="sha1"))
    assert not sent.allows(subscribed(Keys.producer(public_key(b"raw", "sha256"), algorithm="sha256")))


@pytest.mark.parametrize("algorithm", ["sha1", "sha256"])
def test_public_key_is_as_long_as_its_hash(algorithm: Algorithm) -> None:
    for wrong in (b"x", b"x" * 1_024, public_key(b"raw", algorithm) + b"x"):
        with pytest.raises(BadMessage, match="a public key of scheme"):
            subscribed(Keys.producer(wrong, algorithm=algorithm))


def test_of_a_dual_scheme_both_sides_must_meet() -> None:
    sent = published(Keys.dual(producer=[b"p"], consumer=[public_key(b"c")]))
    assert sent.allows(subscribed(Keys.dual(producer=[public_key(b"p")], consumer=[b"c"])))
    assert not sent.allows(subscribed(Keys.dual(producer=[public_key(b"p")], consumer=[b"other"])))
    assert not sent.allows(subscribed(Keys.dual(producer=[public_key(b"other")], consumer=[b"c"])))
    assert not sent.allows(subscribed(Keys.producer(public_key(b"p")) | Keys.consumer(b"c")))


def test_any_scheme_that_meets_is_enough() -> None:
    sent = published(Keys.producer(b"p") | Keys.consumer(public_key(b"c")))
    assert sent.allows(subscribed(Keys.consumer(b"c")))
    assert sent.meets(subscribed(Keys.consumer(b"c")))


@pytest.mark.parametrize(
    ("is_sent_insecure", "is_taken_insecure", "comes"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_delivery_without_common_keys_needs_insecure_on_both_sides(
    is_sent_insecure: bool, is_taken_insecure: bool, comes: bool
) -> None:
    sent = published(Keys.producer(b"p"), insecure=is_sent_insecure)
    assert sent.allows(subscribed(Keys(), insecure=is_taken_insecure)) is comes


def test_without_keys_everything_is_open() -> None:
    assert OPEN.allows(OPEN)
    assert not OPEN.meets(OPEN)


@given(
    st.sets(st.tuples(st.sampled_from(sorted(SIDES)), st.sampled_from([PRODUCER, CONSUMER]), SECRETS)),
    st.sets(st.tuples(st.sampled_from(sorted(SIDES)), st.sampled_from([PRODUCER, CONSUMER]), SECRETS)),
)
def test_keys_meet_as_in_elvin(ours: set[tuple[Scheme, Side, bytes]], theirs: set[tuple[Scheme, Side, bytes]]) -> None:
    """By the rule of Elvin's routers, written down scheme by scheme: set by set of a scheme, each must intersect."""

    def of(scheme: Scheme, side: Side, announced: set[tuple[Scheme, Side, bytes]]) -> set[bytes]:
        return {value for each, whose, value in announced if (each, whose) == (scheme, side)}

    def both(scheme: Scheme, side: Side) -> bool:
        return bool(of(scheme, side, ours) & of(scheme, side, theirs))

    expected = any(
        (scheme.endswith("-producer") and both(scheme, PRODUCER))
        or (scheme.endswith("-consumer") and both(scheme, CONSUMER))
        or (scheme.endswith("-dual") and both(scheme, PRODUCER) and both(scheme, CONSUMER))
        for scheme in SIDES
    )
    one, other = (
        Protection(tuple(Key(*each) for each in announced if each[1] in SIDES[each[0]]), False)
        for announced in (ours, theirs)
    )
    assert one.meets(other) == other.meets(one) == expected


def test_a_key_is_not_shown() -> None:
    assert "raw" not in repr(Key("sha256-producer", PRODUCER, b"raw"))
    assert "raw" not in repr(Keys.producer(b"raw"))


def test_public_keys_are_written_as_words() -> None:
    assert texts([Key("sha1-dual", CONSUMER, b"\x01\xff")]) == ["sha1-dual consumer 01ff"]


@pytest.mark.parametrize("value", [b"", b"x" * (MAX_KEY_BYTES + 1)])
def test_a_key_that_is_empty_or_too_long_is_refused(value: bytes) -> None:
    with pytest.raises(Refused) as refused:
        Keys.producer(value)
    assert refused.value.field == "keys"


def test_too_many_keys_are_refused() -> None:
    with pytest.raises(Refused, match="the limit is 64"):
        Keys.producer(*(b"%d" % number for number in range(MAX_KEYS + 1))).listed()


def test_a_scheme_has_no_keys_of_a_side_that_it_does_not_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="no keys of the consumer"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(["sha256-producer", "consumer", b"x"]), type=Key)
