"""Whether what a neighbour's records say can be so at all: they are appended to this site's log, and kept for ever."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from federation.messages import LARGEST, LinkRecord
from waypost.errors import BadMessage
from waypost.identity import NOTHING, Origin, follows
from waypost.records import Effective, Forwarded, OriginEnded, Progress, Severed

_ORIGIN = re.compile(r"[^/]+/\d{1,9}(\.[1-9]\d{0,9})?", re.ASCII)


def check_records(records: Sequence[LinkRecord]) -> None:
    """Check that records of a neighbour name origins, and offsets and epochs that can be.

    Raises:
        BadMessage: one does not; none of them is to be appended.
    """
    for record in records:
        if not _can_be(record):
            kind = type(record).__name__
            raise BadMessage(f"a neighbour's {kind} names an origin, offset or epoch that no log has", field="records")


def _can_be(record: LinkRecord) -> bool:
    if not 0 <= record.link_epoch < LARGEST:
        return False
    match record:
        case Forwarded():
            return _is_origin(record.origin) and 0 <= record.offset < LARGEST
        case Progress():
            return _is_origin(record.origin) and NOTHING <= record.upto < LARGEST
        case Effective():
            return _is_origin(record.origin) and NOTHING <= record.above < LARGEST
        case OriginEnded():
            are_origins = _is_origin(record.origin) and _is_origin(record.following)
            offsets = (record.end, record.seen, record.begins)
            return (
                are_origins
                and follows(record.following, record.origin)
                and all(NOTHING <= offset < LARGEST for offset in offsets)
            )
        case Severed():
            return all(map(_is_origin, record.origins))


@lru_cache(maxsize=4096)
def _is_origin(origin: Origin) -> bool:
    return _ORIGIN.fullmatch(origin) is not None
