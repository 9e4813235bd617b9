"""A snapshot of a site's state in parts, for a compacted log that keeps one record of bounded size for each key.

There are two slots. A writer takes the one without the highest complete snapshot, so that a crash half-way leaves that
one complete.
"""

from __future__ import annotations

import secrets
from collections import defaultdict

import msgspec

from federation.ports import SiteSnapshot
from waypost.checksum import sealed, unsealed
from waypost.errors import BadRecord

SLOTS = (b"0", b"1")


class _Part(msgspec.Struct, frozen=True, array_like=True):
    """One of `count` parts of the snapshot named `put`: two snapshots of one position may differ in their bytes."""

    put: str
    position: int
    count: int
    data: bytes
    log_epoch: int = 1

    @property
    def rank(self) -> tuple[int, int]:
        return self.log_epoch, self.position


_decoder = msgspec.msgpack.Decoder(_Part)


class SnapshotChunks:
    """The highest complete snapshot of a log, from its records, added in their order; and the records of a new one.

    Args:
        part_bytes: the most bytes of state in one record.
    """

    def __init__(self, part_bytes: int) -> None:
        self.latest: SiteSnapshot | None = None
        self._part_bytes = part_bytes
        self._slot = b""
        """The slot of the latest."""
        self._came: dict[bytes, dict[int, _Part]] = defaultdict(dict)

    def cut(self, snapshot: SiteSnapshot) -> list[tuple[bytes, bytes]]:
        """Return the records of a snapshot, keys and values, to be written in this order; nothing is recorded here.

        Empty: there is a snapshot of its rank or a higher one.
        """
        if self.latest is not None and snapshot.rank <= self.latest.rank:
            return []
        state, size = snapshot.state, self._part_bytes
        pieces = [state[at : at + size] for at in range(0, max(1, len(state)), size)]
        put, slot = secrets.token_hex(8), next(name for name in SLOTS if name != self._slot)
        parts = [_Part(put, snapshot.position, len(pieces), piece, snapshot.log_epoch) for piece in pieces]
        return [(slot + f"/{index}".encode(), sealed(msgspec.msgpack.encode(part))) for index, part in enumerate(parts)]

    def add(self, key: bytes, value: bytes | None) -> None:
        """Add the next record of the log; the last part of a snapshot of a higher rank makes that the `latest` one.

        Args:
            key: of the record.
            value: a part of a snapshot; None is ignored.

        Raises:
            BadRecord: the value is no part, or damaged.
        """
        if value is None:
            return
        slot, _, index = key.partition(b"/")
        try:
            part, number = _decoder.decode(unsealed(value) or b""), int(index)
        except (msgspec.DecodeError, ValueError) as error:
            raise BadRecord(f"a part of a site's state cannot be read: {error}") from None
        parts = self._came[slot]
        parts[number] = part
        together = [parts.get(position) for position in range(part.count)]
        if any(found is None or found.put != part.put for found in together):
            return
        self._came[slot] = {}
        if self.latest is None or part.rank > self.latest.rank:
            self._slot = slot
            state = b"".join(part.data for part in together if part is not None)
            self.latest = SiteSnapshot(part.position, state, part.log_epoch)
