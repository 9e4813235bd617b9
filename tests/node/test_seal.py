"""Two proxies prove themselves to each other, and nobody can change, repeat, reorder or send back what they say."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from node.security.seal import OVERHEAD_BYTES, Introduction, Opener, Sealer, check_proof, new_nonce
from waypost.errors import Unproven
from waypost.identity import Incarnation, ProxyId

SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
INTRODUCTION = Introduction(
    challenge=b"c" * 16,
    nonce=b"n" * 16,
    version=1,
    caller=ProxyId("a1"),
    incarnation=Incarnation("life"),
    callee=ProxyId("a2"),
)


def ends(introduction: Introduction = INTRODUCTION) -> tuple[Sealer, Opener]:
    return Sealer(introduction.frame_key(SECRET)), Opener(introduction.frame_key(SECRET))


def changed(introduction: Introduction, field: str) -> Introduction:
    value: Any = getattr(introduction, field)
    another: dict[str, Any] = {field: value[:-1] if isinstance(value, bytes | str) else value + 1}
    return replace(introduction, **another)


# ---------------------------------------------------------------- proofs


def test_both_ends_that_know_the_secret_agree() -> None:
    again = replace(INTRODUCTION)
    check_proof(again.callers_proof(SECRET), INTRODUCTION.callers_proof(SECRET))
    check_proof(again.callees_proof(SECRET), INTRODUCTION.callees_proof(SECRET))
    assert again.frame_key(SECRET) == INTRODUCTION.frame_key(SECRET)


def test_without_the_secret_there_is_no_proof() -> None:
    with pytest.raises(Unproven, match="wrong proof"):
        check_proof(INTRODUCTION.callers_proof(SECRET), INTRODUCTION.callers_proof(OTHER_SECRET))
    with pytest.raises(Unproven, match="wrong proof"):
        check_proof(INTRODUCTION.callees_proof(SECRET), b"")


@pytest.mark.parametrize("field", [field.name for field in fields(Introduction)])
def test_proof_is_valid_for_its_own_introduction_only(field: str) -> None:
    with pytest.raises(Unproven):
        check_proof(changed(INTRODUCTION, field).callers_proof(SECRET), INTRODUCTION.callers_proof(SECRET))
    assert changed(INTRODUCTION, field).frame_key(SECRET) != INTRODUCTION.frame_key(SECRET)


def test_a_proof_that_is_sent_back_proves_nothing() -> None:
    """Also with the names turned round: nobody can make a proxy answer its own challenge."""
    turned = replace(
        INTRODUCTION,
        caller=INTRODUCTION.callee,
        callee=INTRODUCTION.caller,
        challenge=INTRODUCTION.nonce,
        nonce=INTRODUCTION.challenge,
    )
    made = {INTRODUCTION.callers_proof(SECRET), INTRODUCTION.callees_proof(SECRET), INTRODUCTION.frame_key(SECRET)}
    made |= {turned.callers_proof(SECRET), turned.callees_proof(SECRET), turned.frame_key(SECRET)}
    assert len(made) == 6


def test_introduction_with_a_shifted_name_boundary_has_another_proof() -> None:
    moved = replace(INTRODUCTION, caller=ProxyId("a1l"), incarnation=Incarnation("ife"))
    assert moved.callers_proof(SECRET) != INTRODUCTION.callers_proof(SECRET)


def test_no_two_challenges_are_the_same() -> None:
    assert len({new_nonce() for _ in range(1_000)}) == 1_000


# ---------------------------------------------------------------- frames


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_sealed_frames_open_to_the_same_bytes(frames: list[bytes]) -> None:
    sealer, opener = ends()
    sealed = [sealer.seal(frame) for frame in frames]
    assert [len(frame) - OVERHEAD_BYTES for frame in sealed] == [len(frame) for frame in frames]
    assert [opener.open(frame) for frame in sealed] == frames


@given(st.binary(max_size=60), st.data())
def test_a_frame_that_was_changed_anywhere_is_refused(frame: bytes, data: st.DataObject) -> None:
    sealer, opener = ends()
    sealed = bytearray(sealer.seal(frame))
    index = data.draw(st.integers(0, len(sealed) - 1))
    sealed[index] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Unproven, match="wrong tag"):
        opener.open(bytes(sealed))


@given(st.binary(max_size=60), st.binary(max_size=100))
def test_a_frame_that_was_cut_or_made_up_is_refused(frame: bytes, made_up: bytes) -> None:
    sealer, opener = ends()
    sealed = sealer.seal(frame)
    assume(made_up != sealed)
    for wrong in (sealed[:-1], sealed[1:], sealed + b"\0", made_up):
        with pytest.raises(Unproven, match="wrong tag"):
            opener.open(wrong)


def test_a_frame_that_is_repeated_is_refused() -> None:
    sealer, opener = ends()
    sealed = sealer.seal(b"one")
    opener.open(sealed)
    with pytest.raises(Unproven, match="out of sequence"):
        opener.open(sealed)


def test_a_frame_that_is_left_out_or_overtaken_is_noticed() -> None:
    sealer, opener = ends()
    _, second = sealer.seal(b"one"), sealer.seal(b"two")
    with pytest.raises(Unproven, match="out of sequence"):
        opener.open(second)


def test_a_frame_of_another_connection_is_refused() -> None:
    """Of the same two proxies, a moment ago: each connection has a nonce of either side."""
    sealer, _ = ends()
    for field in ("challenge", "nonce"):
        _, opener = ends(changed(INTRODUCTION, field))
        with pytest.raises(Unproven, match="wrong tag"):
            opener.open(sealer.seal(b"one"))


def test_a_frame_that_is_sent_back_is_refused() -> None:
    sealer, _ = ends()
    turned = replace(INTRODUCTION, caller=INTRODUCTION.callee, callee=INTRODUCTION.caller)
    with pytest.raises(Unproven, match="wrong tag"):
        Opener(turned.frame_key(SECRET)).open(sealer.seal(b"one"))


def test_a_frame_under_another_secret_is_refused() -> None:
    _, opener = ends()
    with pytest.raises(Unproven, match="wrong tag"):
        opener.open(Sealer(INTRODUCTION.frame_key(OTHER_SECRET)).seal(b"one"))
