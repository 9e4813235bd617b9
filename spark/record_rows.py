"""From a record's bytes to a row of :data:`spark.schemas.RECORD`: the only Python that runs once a record.

MessagePack needs Python, and so do expressions over it (:mod:`spark.matcher`); all else is left to the JVM. A record
that does not decode becomes a row that says so.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from spark.matcher import Matcher
from waypost.errors import BadNotification
from waypost.identity import SiteId, origin_of
from waypost.keys import OPEN, texts
from waypost.notification import INT64_MAX, decode_body
from waypost.records import (
    Closed,
    Damaged,
    Forwarded,
    InterestRegistered,
    InterestsExpired,
    LogBegun,
    Published,
    Record,
    Unreadable,
    decode_record,
)

Row = tuple[Any, ...]
Raw = tuple[str, int, int, bytes | None]
"""Site, partition, offset in the log, bytes."""

_OPEN: Row = (None, False)
"""The keys of a notification that was published without any."""


def rows(raws: Iterable[Raw], matcher: Matcher) -> Iterator[Row]:
    """Yield one row of :data:`spark.schemas.RECORD` for each record; one that does not decode, or whose sequence does
    not fit 64 bits, has the kind `unusable`.

    The origin of a published record is that of the first log epoch, because the record does not name its own
    (:func:`spark.epochs.with_origins`).

    Args:
        raws: site, partition, offset and bytes of each record.
        matcher: the expressions by which notifications are tested.
    """
    for site, partition, position, data in raws:
        yield _row(site, partition, position, data, matcher)


def _row(site: str, partition: int, position: int, data: bytes | None, matcher: Matcher) -> Row:
    record = decode_record(data)
    if isinstance(record, Unreadable | Damaged):
        return _unusable(site, position, f"the record does not decode: {record.why}")
    if isinstance(record, Published | Forwarded) and record.sequence > INT64_MAX:
        return _unusable(site, position, "the sequence does not fit 64 bits")
    if isinstance(record, Published):
        return _published(site, partition, position, record, matcher)
    return _other(site, position, record)


def _unusable(site: str, position: int, note: str) -> Row:
    return (site, position, "unusable", *(None,) * 8, note, None, *_OPEN, None)


def _published(site: str, partition: int, position: int, record: Published, matcher: Matcher) -> Row:
    # The record does not name its log epoch; spark/epochs.py does, once it has seen all of the log.
    coordinate = (str(origin_of(SiteId(site), partition)), position)
    return (site, position, "published", *coordinate, *_content(record, matcher))


def _content(record: Published | Forwarded, matcher: Matcher) -> Row:
    """Return the columns of a notification that are the same in every log."""
    note = matched = None
    try:
        matched = matcher.matching(decode_body(record.body))
    except BadNotification as error:
        note = error.message
    return (*_identity(record), record.at_ms, None, note, None, *_protected(record), matched)


def _protected(record: Published | Forwarded) -> Row:
    protection = record.protection
    return _OPEN if protection == OPEN else (texts(protection.keys), not protection.insecure)


def _identity(record: Published | Forwarded) -> Row:
    return record.producer, str(record.incarnation), record.sequence, zlib.crc32(record.body)


def copies(raws: Iterable[Raw], matcher: Matcher, beyond: dict[str, int]) -> Iterator[Row]:
    """Yield the forwarded copies of notifications that their own log lost, as rows of :data:`spark.schemas.RECORD` of
    the kind `copy`.

    Args:
        raws: site, partition, offset and bytes of each record.
        matcher: the expressions by which notifications are tested.
        beyond: origin -> the first offset that its log does not have.
    """
    for site, _, position, data in raws:
        record = decode_record(data)
        if isinstance(record, Forwarded) and record.sequence <= INT64_MAX:
            first = beyond.get(record.origin)
            if first is not None and record.offset >= first:
                yield (site, position, "copy", str(record.origin), record.offset, *_content(record, matcher))


def _other(site: str, position: int, record: Record) -> Row:
    if isinstance(record, Forwarded):
        coordinate = (str(record.origin), record.offset)
        rest = (None, None, None, None, *_protected(record), None)
        return (site, position, "forwarded", *coordinate, *_identity(record), *rest)
    at_ms, frontier = (record.at_ms, dict(record.frontier)) if isinstance(record, Closed) else (None, None)
    tag = str(record.__struct_config__.tag)
    rest = (None, None, at_ms, frontier, None, _log_begun_row(record), *_OPEN, None)
    return (site, position, tag, None, None, *_incarnation_of(record), *rest)


def _log_begun_row(record: Record) -> Row | None:
    if not isinstance(record, LogBegun):
        return None
    return record.log_epoch, record.again, {str(origin): list(ends) for origin, ends in record.ended.items()}


def _incarnation_of(record: Record) -> tuple[str | None, str | None]:
    """Return the name and the incarnation of the proxy that wrote the record, or that it is about."""
    if isinstance(record, InterestRegistered | InterestsExpired):
        return record.proxy, record.incarnation
    kind, *incarnation = record.writer.split("/") if isinstance(record, Closed) else ("",)
    return (incarnation[0], incarnation[1]) if kind == "proxy" and len(incarnation) == 2 else (None, None)
