"""A snapshot of a site's state in a compacted log that keeps one record of bounded size for each key: in parts.

There are two slots. A writer takes the one in which the highest whole snapshot is not, so that one that dies half-way
through leaves that one whole.
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
    """`put` names the snapshot of which this is one of `count` parts: two of one position may differ in their bytes."""

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
    """Cuts snapshots into records; fed with the log's records in their order, it knows the highest whole one."""

    def __init__(self, part_bytes: int) -> None:
        self.latest: SiteSnapshot | None = None
        self._part_bytes = part_bytes
        self._slot = b""
        """Where the latest is."""
        self._came: dict[bytes, dict[int, _Part]] = defaultdict(dict)

    def cut(self, snapshot: SiteSnapshot) -> list[tuple[bytes, bytes]]:
        """Return the keys and values to be written, in order; none: what is there goes as far."""
        if self.latest is not None and snapshot.rank <= self.latest.rank:
            return []
        state, size = snapshot.state, self._part_bytes
        pieces = [state[at : at + size] for at in range(0, max(1, len(state)), size)]
        put, slot = secrets.token_hex(8), next(each for each in SLOTS if each != self._slot)
        parts = [_Part(put, snapshot.position, len(pieces), piece, snapshot.log_epoch) for piece in pieces]
        return [(slot + f"/{index}".encode(), sealed(msgspec.msgpack.encode(part))) for index, part in enumerate(parts)]

    def add(self, key: bytes, value: bytes | None) -> None:
        """Take the next record. Raises BadRecord."""
        if value is None:
            return
        slot, _, index = key.partition(b"/")
        try:
            part, number = _decoder.decode(unsealed(value) or b""), int(index)
        except (msgspec.DecodeError, ValueError) as error:
            raise BadRecord(f"a part of a site's state cannot be read: {error}") from None
        parts = self._came[slot]
        parts[number] = part
        together = [parts.get(each) for each in range(part.count)]
        if any(each is None or each.put != part.put for each in together):
            return
        self._came[slot] = {}
        if self.latest is None or part.rank > self.latest.rank:
            self._slot = slot
            state = b"".join(part.data for part in together if part is not None)
            self.latest = SiteSnapshot(part.position, state, part.log_epoch)
