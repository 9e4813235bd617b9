"""Flips: bits of a file turned over while nobody uses it, as a disk or its cable does. The first page stays whole."""

from __future__ import annotations

import random
from pathlib import Path

PAGE_BYTES = 4096


def flip_bits(path: Path, count: int, seed: int, *, keep: int = PAGE_BYTES, end: int = 0) -> list[int]:
    """Turn over so many bits behind the first `keep` bytes and before the last `end`; return at which bytes."""
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    places = [rng.randrange(keep, len(data) - end) for _ in range(count)]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return places
