"""The one checksum: CRC-32C over bytes as they were encoded. What is kept or sent carries it, and whoever reads looks.

Sealed bytes are the bytes and four more. A CRC over both is the same number for all bytes that are whole, so one call
over what was read tells, and nothing is copied for it.
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
    """Return the bytes with their checksum behind them."""
    return data + _pack(checksum(data))


def is_whole(data: bytes) -> bool:
    """Tell whether these are sealed bytes, as they were sealed."""
    return len(data) >= SEAL_BYTES and checksum(data) == _WHOLE


def seal_of(data: bytes) -> int:
    """Return the seal of sealed bytes, whole or not."""
    return int.from_bytes(data[-SEAL_BYTES:], "little")


def unsealed(data: bytes) -> bytes | None:
    """Return what was sealed; None: these are other bytes than that."""
    return data[:-SEAL_BYTES] if is_whole(data) else None
