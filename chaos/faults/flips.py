"""Flips: bits of a file turned over while nobody uses it, as a disk or its cable does. The first page stays whole."""

from __future__ import annotations

import random
from pathlib import Path

PAGE_BYTES = 4096


def flip_bits(path: Path, count: int, seed: int, *, keep: int = PAGE_BYTES, end: int = 0) -> list[int]:
    """Turn over `count` bits of a file, one at each of as many drawn bytes; return the offsets of these bytes.

    A byte may be drawn twice. The file must not be in use, and must have more than `keep` + `end` bytes.

    Args:
        seed: of what is drawn.
        keep: the bytes at the beginning that stay whole.
        end: the bytes at the end that stay whole.
    """
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    places = [rng.randrange(keep, len(data) - end) for _ in range(count)]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return places
