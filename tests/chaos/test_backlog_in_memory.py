"""A large backlog moves between real processes, and the memory of neither grows with it (failures, F42)."""

from __future__ import annotations

from pathlib import Path

from bench.backlog import measure
from bench.handover import FLAGS
from chaos.cluster import Cluster, Place

STORED = 100_000
"""Some 24 MB of deliveries, and twice that as objects."""
MORE_MB = 20
"""QUEUE_IN_MEMORY, COPY_UNSAVED and a window of chunks, here some 8,000 entries; the caches of SQLite; slack."""


async def test_a_backlog_moves_in_memory_that_does_not_grow_with_it(tmp_path: Path) -> None:
    places = [Place("a1", "A", FLAGS), Place("a2", "A", FLAGS)]
    with Cluster(places, [], tmp_path) as cluster:
        found = await measure(cluster, STORED)
    assert found.read == STORED
    assert max(*found.moving_mb, *found.reading_mb) <= MORE_MB
