"""The one checksum: CRC-32C of encoded bytes. Everything stored or sent carries it, and every reader checks it.

Sealed bytes are the bytes followed by their checksum, four bytes. The CRC of sealed bytes is the same number for all
that are whole, so one call checks them without a copy.
"""

from __future__ import annotations

from struct import Struct

import google_crc32c

checksum = google_crc32c.value
"""Return the CRC-32C of bytes."""
SEAL_BYTES = 4
_WHOLE = 0x48674BC7
_pack = Struct("<I").pack


def sealed(data: bytes) -> bytes:
    """Return the bytes followed by their checksum."""
    return data + _pack(checksum(data))


def is_whole(data: bytes) -> bool:
    """Tell whether these are sealed bytes, unchanged."""
    return len(data) >= SEAL_BYTES and checksum(data) == _WHOLE


def seal_of(data: bytes) -> int:
    """Return the checksum at the end of sealed bytes, whole or not."""
    return int.from_bytes(data[-SEAL_BYTES:], "little")


def unsealed(data: bytes) -> bytes | None:
    """Return the bytes that :func:`sealed` was called with; None: `data` is damaged, or was never sealed."""
    return data[:-SEAL_BYTES] if is_whole(data) else None
