"""A snapshot in parts is there as a whole or not at all, whoever writes and whoever dies."""

from __future__ import annotations

import random

import pytest

from federation.kafka.snapshot_chunks import SnapshotChunks
from federation.ports import SiteSnapshot
from waypost.errors import BadRecord

SIZE = 10


def snapshot(position: int, size: int = 95) -> SiteSnapshot:
    return SiteSnapshot(position, random.Random(position).randbytes(size))


def read(records: list[tuple[bytes, bytes]]) -> SiteSnapshot | None:
    """Return what a reader finds in a log that was compacted."""
    reader = SnapshotChunks(SIZE)
    for key, value in {key: (key, value) for key, value in records}.values():
        reader.add(key, value)
    return reader.latest


@pytest.mark.parametrize("size", [0, 1, SIZE, SIZE + 1, 95])
def test_snapshot_in_chunks_is_read_back_whole(size: int) -> None:
    records = SnapshotChunks(SIZE).cut(snapshot(3, size))
    assert len(records) == max(1, -(-size // SIZE))
    assert read(records) == snapshot(3, size)


def test_a_writer_that_dies_half_way_leaves_the_snapshot_before_it_whole() -> None:
    before = fed([]).cut(snapshot(1))
    half = fed(before).cut(snapshot(2))
    for cut in range(len(half)):
        assert read(before + half[:cut]) == snapshot(1), cut
    assert read(before + half) == snapshot(2)
    shorter = fed(before + half).cut(snapshot(3, 12))
    assert read(before + half + shorter[:1]) == snapshot(2)
    assert read(before + half + shorter) == snapshot(3, 12)


def fed(records: list[tuple[bytes, bytes]]) -> SnapshotChunks:
    """A writer that has read the log so far."""
    writer = SnapshotChunks(SIZE)
    for key, value in {key: (key, value) for key, value in records}.values():
        writer.add(key, value)
    return writer


def test_crash_between_chunks_leaves_the_last_whole_snapshot() -> None:
    log = fed([]).cut(snapshot(1))
    for position in (2, 3, 4):
        # Each another process, which has read what there is, and dies after its first part.
        log += fed(log).cut(snapshot(position))[:1]
        assert read(log) == snapshot(1)
    log += fed(log).cut(snapshot(5))
    assert read(log) == snapshot(5)
    log += fed(log).cut(snapshot(6))[:3]
    assert read(log) == snapshot(5)


def test_writer_behind_the_stored_snapshot_writes_no_chunks() -> None:
    log = fed([]).cut(snapshot(1000))
    assert fed(log).cut(snapshot(500)) == fed(log).cut(snapshot(1000)) == []


def test_parts_of_two_writers_are_never_joined() -> None:
    first, second = SnapshotChunks(SIZE).cut(snapshot(1)), SnapshotChunks(SIZE).cut(snapshot(1))
    assert read([*first[:5], *second[5:]]) is None
    mixed = [each for pair in zip(first, second, strict=True) for each in pair]
    assert read(mixed) == snapshot(1)


def test_an_older_snapshot_that_comes_later_does_not_count() -> None:
    assert read([*SnapshotChunks(SIZE).cut(snapshot(9)), *SnapshotChunks(SIZE).cut(snapshot(10))]) == snapshot(10)
    reader = SnapshotChunks(SIZE)
    for key, value in SnapshotChunks(SIZE).cut(snapshot(10)) + SnapshotChunks(SIZE).cut(snapshot(9)):
        reader.add(key, value)
    assert reader.latest == snapshot(10)


def test_malformed_chunk_is_refused_and_deleted_chunk_is_skipped() -> None:
    reader = SnapshotChunks(SIZE)
    reader.add(b"0/0", None)
    for key, value in ((b"0/0", b"?"), (b"0/first", SnapshotChunks(SIZE).cut(snapshot(1))[0][1]), (b"", b"")):
        with pytest.raises(BadRecord):
            reader.add(key, value)
    assert reader.latest is None
