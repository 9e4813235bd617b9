"""Flips: bits of a file turned over while nobody uses it, as a disk or its cable does. The first page stays whole."""

from __future__ import annotations

import random
from pathlib import Path

PAGE_BYTES = 4096


def flip_bits(path: Path, count: int, seed: int, *, keep: int = PAGE_BYTES, end: int = 0) -> list[int]:
    """Flip one bit in each of `count` bytes of a file, which are drawn; return the offsets of these bytes, as drawn.

    A byte may be drawn twice. The file must not be in use.

    Args:
        path: of the file, which is written anew.
        count: the number of bits.
        seed: of what is drawn.
        keep: the number of bytes at the beginning that stay whole.
        end: the number of bytes at the end that stay whole.

    Raises:
        ValueError: the file has no more than `keep` + `end` bytes.
        OSError: the file cannot be read or written.
    """
    rng, data = random.Random(seed), bytearray(path.read_bytes())
    places = [rng.randrange(keep, len(data) - end) for _ in range(count)]
    for place in places:
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    return places
