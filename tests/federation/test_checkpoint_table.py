"""The table of checkpoints that follows a compacted topic, record by record."""

from __future__ import annotations

import pytest

from federation.kafka.checkpoint_table import CheckpointTable, checkpoint_key
from waypost.checkpoint import Checkpoint, Descriptor, encode_checkpoint
from waypost.errors import BadRecord, CheckpointOutdated
from waypost.identity import Epoch, SessionId

S = SessionId("s|1")


def checkpoint(epoch: int, serial: int) -> Checkpoint:
    return Checkpoint(S, Epoch(epoch), serial, Descriptor(), {})


def table(*written: tuple[int, int]) -> CheckpointTable:
    made = CheckpointTable()
    for at in written:
        made.apply(checkpoint_key(checkpoint(*at)), encode_checkpoint(checkpoint(*at)))
    return made


def test_deleted_checkpoints_are_gone_in_whatever_order_their_keys_go() -> None:
    made = table((9, 1), (10, 1))
    keys = made.keys_of(S, 10)
    assert keys == [b"s|1|9", b"s|1|10"]
    for key in reversed(keys):
        made.apply(key, None)
        assert made.latest(S) == ()
    assert made.outdated_by(checkpoint(11, 1)) == []


def test_damaged_checkpoint_of_an_owner_counts_as_the_last_of_its_epoch() -> None:
    made = table((4, 1))
    made.apply(b"s|1|4", b"damaged")
    with pytest.raises(BadRecord):
        made.latest(S)
    with pytest.raises(CheckpointOutdated) as outdated:
        made.is_news(checkpoint(4, 7))
    assert not outdated.value.by_owner
    assert made.is_news(checkpoint(5, 1))


def test_empty_checkpoint_of_an_owner_is_a_damaged_one() -> None:
    made = CheckpointTable()
    made.apply(b"s|1", b"")
    with pytest.raises(BadRecord):
        made.latest(SessionId("s"))


def test_damaged_first_checkpoint_hides_and_refuses_none_of_an_owner() -> None:
    made = table((4, 1))
    made.apply(b"s|1|7.0", b"damaged")
    assert made.latest(S) == (checkpoint(4, 1),)
    assert made.is_news(checkpoint(4, 2))
    with pytest.raises(CheckpointOutdated):
        made.is_news(checkpoint(7, 0))
