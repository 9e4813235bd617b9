"""The shapes that the audit works on, written out: nothing is ever inferred.

`RECORD` mirrors :mod:`waypost.records`, `FACT` mirrors :mod:`waypost.facts`; `FINDING` is what every class of anomaly
ends as.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from pyspark.sql import types as T

from waypost.facts import Departure, FactKind, GapCause, OwnedCause

_STRING, _LONG, _INT = T.StringType(), T.LongType(), T.IntegerType()
_OFFSETS = T.MapType(_STRING, _LONG, valueContainsNull=False)


def _fields(**types: T.DataType) -> list[T.StructField]:
    return [T.StructField(name, kind) for name, kind in types.items()]


# ---------------------------------------------------------------- evidence

RECORD: Final = T.StructType(
    _fields(
        site=_STRING,
        position=_LONG,  # the offset in the log of `site`
        kind=_STRING,  # the record's tag, or "unusable"
        origin=_STRING,  # with `offset`: the coordinate of the notification
        offset=_LONG,
        producer=_STRING,  # with `incarnation`; of a proxy's own records: the proxy's
        incarnation=_STRING,
        sequence=_LONG,
        digest=_LONG,  # crc32 of the body
        at_ms=_LONG,  # Unix time: when it was published, or the closing marker was made
        frontier=_OFFSETS,  # of a closing marker
        note=_STRING,  # why a record or its body is unusable
        begun=T.StructType(  # of a record that says in which log epoch the log is
            _fields(
                log_epoch=_INT,
                again=T.BooleanType(),
                ended=T.MapType(_STRING, T.ArrayType(_LONG, containsNull=False), valueContainsNull=False),
            )
        ),
        keys=T.ArrayType(_STRING),  # that were published with it, as the journal writes them; null: none
        secure_only=T.BooleanType(),  # it goes only where keys meet
        # The numbers of the expressions that are true of a published notification or a copy; null: another record, or
        # its body is unusable.
        matched=T.ArrayType(_INT, containsNull=False),
    )
)

FACT: Final = T.StructType(
    _fields(
        writer=_STRING,
        number=_LONG,
        at_ms=_LONG,
        kind=_STRING,
        proxy=_STRING,
        site=_STRING,
        session=_STRING,
        epoch=_LONG,
        receiver=_STRING,
        subscription=_STRING,
        expression=_STRING,
        origin=_STRING,
        offsets=T.ArrayType(_LONG),
        digests=T.ArrayType(_LONG),
        frontier=_OFFSETS,
        cause=_STRING,
        policies=T.ArrayType(_STRING),
        reason=_STRING,
        role=_STRING,
        phase=_STRING,
        discard=_STRING,
        deadlines=T.BooleanType(),
        transfer=_STRING,
        entries=_LONG,
        bytes=_LONG,
        ttl_s=_LONG,
        max_count=_LONG,
        subscription_generation=_STRING,
        unknown_ends=T.ArrayType(_STRING),
        unconfirmed_ends=T.ArrayType(_STRING),
        keys=T.ArrayType(_STRING),
        secure_only=T.BooleanType(),
        best_effort=T.BooleanType(),
        order=_STRING,
    )
)

REQUIRED: Final[dict[FactKind, tuple[str, ...]]] = {
    FactKind.ENDED: ("proxy",),
    FactKind.ACKNOWLEDGED: ("origin", "offsets"),
    FactKind.ATTACHED: ("session", "receiver"),
    FactKind.DETACHED: ("session", "receiver"),
    FactKind.REGISTERED: ("session", "receiver"),
    FactKind.UNREGISTERED: ("session", "receiver", "cause"),
    FactKind.DRAINED: ("session", "receiver"),
    FactKind.SUBSCRIBED: ("session", "subscription", "expression"),
    FactKind.POLICY: ("session",),
    FactKind.RESTATED: ("session", "subscription", "expression"),
    FactKind.ACCESS: ("session",),
    FactKind.EFFECTIVE: ("session", "subscription"),
    FactKind.UNSUBSCRIBED: ("session", "subscription"),
    FactKind.RECEIVED: ("session", "receiver", "proxy", "origin", "offsets", "digests"),
    FactKind.OWNED: ("session", "proxy", "cause"),
    FactKind.RELEASED: ("session",),
    FactKind.DELETED: ("session",),
    FactKind.REMOVED: ("session", "origin", "offsets", "policies"),
    FactKind.GAP: ("session", "origin", "offsets", "cause"),
    FactKind.HANDOVER: ("session", "transfer", "role", "phase"),
}
"""Fields without which a fact of a kind says nothing. An empty frontier is one."""
CODES: Final[dict[FactKind, type[StrEnum]]] = {
    FactKind.OWNED: OwnedCause,
    FactKind.UNREGISTERED: Departure,
    FactKind.GAP: GapCause,
}
"""The codes in the `cause` of a fact."""

EXPRESSION: Final = T.StructType(_fields(expression=_STRING, expression_number=_INT, is_usable=T.BooleanType()))
"""Each distinct expression, by its number in `matched`; not usable: it cannot be evaluated."""

# ---------------------------------------------------------------- log epochs

SPAN: Final = T.StructType(_fields(site=_STRING, first=_LONG, last=_LONG, origin=_STRING))
LOST_END: Final = T.StructType(_fields(site=_STRING, origin=_STRING, first=_LONG, seen=_LONG))
CONTINUED: Final = T.StructType(_fields(origin=_STRING, following=_STRING, begins=_LONG, seen=_LONG))
"""The tuples of :mod:`spark.epochs`."""

# ---------------------------------------------------------------- findings

FINDING: Final = T.StructType(
    _fields(
        code=_STRING,
        session=_STRING,
        receiver=_STRING,
        producer=_STRING,
        incarnation=_STRING,
        sequence=_LONG,
        origin=_STRING,
        offset=_LONG,
        epoch=_LONG,
        proxy=_STRING,
        other_epoch=_LONG,  # of the delivery or the owner that this one is at odds with
        other_proxy=_STRING,
        writer=_STRING,
        number=_LONG,
        site=_STRING,
        reason=_STRING,  # a code, where the class has several (:class:`spark.finding.Reason`)
        note=_STRING,
    )
)

VIOLATED, UNKNOWN, OK = "violated", "unknown", "ok"

CLASSES: Final[dict[str, tuple[str, str, str]]] = {
    "L1": (VIOLATED, "lost", "owed, the horizon closed, never delivered, not excused"),
    "L2": (
        VIOLATED,
        "lost in a handover",
        "as L1, and the session changed owner between the deliveries around it",
    ),
    "L3": (
        UNKNOWN,
        "unseen",
        "as L1, but not all is known to have been handed over, or missing evidence could excuse it",
    ),
    "L4": (OK, "excused", "owed and not delivered, removed by a stated policy"),
    "L5": (OK, "pending", "owed, and its receiver has not come to it: it is away, or reads on"),
    "D1": (VIOLATED, "duplicate", "delivered again to one receiver by one proxy in one epoch"),
    "D2": (VIOLATED, "duplicate across a handover", "delivered again by another proxy or in another epoch"),
    "D4": (OK, "journal duplicate", "a fact written twice; one was removed before judging"),
    "P1": (VIOLATED, "phantom", "delivered or forwarded, never published"),
    "P3": (VIOLATED, "mismatch", "delivered, but no subscription of the session matches"),
    "P4": (
        VIOLATED,
        "out of life",
        "delivered from beyond the end of every subscription that matches, of the session, or of the receiver",
    ),
    "P5": (VIOLATED, "altered", "the body delivered or forwarded is not the body published"),
    "O1": (VIOLATED, "out of order", "one producer's sequence goes back within one epoch of a receiver"),
    "O3": (VIOLATED, "out of order across a handover", "as O1, between two epochs or two proxies"),
    "O2": (
        OK,
        "retried behind newer ones",
        "as O1, by a retry: its first copy was not owed, or excused (the exception of P3)",
    ),
    "O4": (
        VIOLATED,
        "retry out of order",
        "as O1 or O3, by a retry whose first copy was owed, and neither delivered nor excused",
    ),
    "H1": (
        VIOLATED,
        "stale owner",
        "delivered in an older epoch than before, by a proxy that did not own the epoch, or beyond its owner's cut",
    ),
    "H2": (VIOLATED, "split ownership", "two proxies own a session in one epoch"),
    "H3": (VIOLATED, "stalled handover", "a transfer began a phase and never ended, and its proxy went on"),
    "G1": (VIOLATED, "gap", "a part of an origin could not be had any more"),
    "G2": (OK, "lost end", "a site log lost its end, and says so: what was lost is had, or told (G1), or a loss (L1)"),
    "A1": (UNKNOWN, "hole", "records of a log or facts of a writer are missing"),
    "A2": (UNKNOWN, "unusable", "a record or a fact that means nothing"),
    "A3": (
        UNKNOWN,
        "put away",
        "facts of a writer were in parts of a journal that are not there, as the next one says",
    ),
    "A4": (UNKNOWN, "not closed", "a site log is missing or has no closing marker"),
    "A5": (UNKNOWN, "doubtful", "a delivery that looks wrong, and that missing evidence could excuse"),
}
"""Code -> what it makes of the run, its name, its rule."""
