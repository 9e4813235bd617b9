"""Whether what a neighbour's records say can be so at all: they are appended to this site's log, and kept for ever."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from federation.messages import LinkRecord
from waypost.errors import BadMessage
from waypost.identity import NOTHING, Origin, follows
from waypost.records import Effective, Forwarded, OriginEnded, Progress, Severed

OFFSETS = 1 << 62
"""No log has so many records."""
_ORIGIN = re.compile(r"[^/]+/\d{1,9}(\.[1-9]\d{0,9})?", re.ASCII)


def check_records(records: Sequence[LinkRecord]) -> None:
    """Check that records of a neighbour name origins, and offsets that a log can have.

    Raises:
        BadMessage: one does not; none of them is to be appended.
    """
    for record in records:
        if not _can_be(record):
            kind = type(record).__name__
            raise BadMessage(f"a neighbour's {kind} names an origin or an offset that no log has", field="records")


def _can_be(record: LinkRecord) -> bool:
    match record:
        case Forwarded():
            return _is_origin(record.origin) and 0 <= record.offset < OFFSETS
        case Progress():
            return _is_origin(record.origin) and NOTHING <= record.upto < OFFSETS
        case Effective():
            return _is_origin(record.origin) and NOTHING <= record.above < OFFSETS
        case OriginEnded():
            are_origins = _is_origin(record.origin) and _is_origin(record.following)
            offsets = (record.end, record.seen, record.begins)
            return (
                are_origins
                and follows(record.following, record.origin)
                and all(NOTHING <= offset < OFFSETS for offset in offsets)
            )
        case Severed():
            return all(map(_is_origin, record.origins))


@lru_cache(maxsize=4096)
def _is_origin(origin: Origin) -> bool:
    return _ORIGIN.fullmatch(origin) is not None
