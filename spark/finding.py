"""The one shape of all anomalies: a finding."""

from __future__ import annotations

from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import FINDING

LACKS = "lacks"
"""A column beside a finding's own, until the verdict: which evidence the finding says is missing, or nothing.

JOURNALS: facts of a proxy, which may be about any session. LOGS: records. EVERYTHING: both, a whole site.
SESSION: facts about the session that the finding names.
"""
JOURNALS, LOGS, EVERYTHING, SESSION = "journals", "logs", "everything", "session"


class Reason(StrEnum):
    """The reason of a finding, where its class has several. Besides these, a reason is a code of the facts: an
    :class:`~waypost.facts.OwnedCause` (L2), a :class:`~waypost.facts.RemovalPolicy` (L4), a
    :class:`~waypost.facts.GapCause` (L4, G1), or the code of the class that a doubtful delivery looks like (A5).
    """

    MISSING_EVIDENCE = "missing-evidence"
    """L3: a loss, but for facts that are missing."""
    NOT_DRAINED = "not-drained"
    """L3: nothing says that its receiver had all up to there."""
    SESSION_DELETED = "session-deleted"
    """L4, P4: the session was deleted."""
    SESSION_CREATED_AGAIN = "session-created-again"
    """L4: a later session has its name, so it was deleted."""
    RECEIVER_LEFT = "receiver-left"
    """L4, P4: the receiver left for good."""
    PASSED_BEFORE = "passed-before"
    """L4: in an epoch before its subscription was made, the receiver had got a later notification of that origin."""
    RIGHT_TAKEN = "right-taken"
    """P4: the right of the receiver to read the session was taken away."""
    UNSUBSCRIBED = "unsubscribed"
    """P4: every subscription that matches it had ended."""
    OLDER_EPOCH = "older-epoch"
    """H1: the receiver had got something of a later epoch before."""
    NOT_THE_OWNER = "not-the-owner"
    """H1: another proxy owned the session at that epoch."""
    NO_OWNER = "no-owner"
    """H1: no proxy attests to have owned the session at that epoch."""
    BEYOND_CUT = "beyond-cut"
    """H1: its owner had let the session go."""
    TWO_PROXIES = "two-proxies"
    """H2."""
    TWO_INCARNATIONS = "two-incarnations"
    """H2: of one proxy."""
    RECORDS_MISSING = "records-missing"
    """A1: between two records of a log, or before its first."""
    LOG_ENDS_EARLY = "log-ends-early"
    """A1: something names a record behind the last one of its log."""
    FACTS_MISSING = "facts-missing"
    """A1: between two facts of a writer, or before its first."""
    WRITER_OPEN = "writer-open"
    """A1: nothing says that the writer ended, or up to where it is complete."""
    WRITER_SILENT = "writer-silent"
    """A1: a site log speaks of the writer, and no fact of it is there."""
    WRITER_ENDS_EARLY = "writer-ends-early"
    """A1: a closing marker of the writer in a site log is younger than all its facts."""
    NO_FACT = "no-fact"
    """A2: a line of a journal that is none."""
    UNKNOWN_KIND = "unknown-kind"
    """A2: a fact of a kind that this release does not know."""
    UNKNOWN_CODE = "unknown-code"
    """A2: a fact with a code that this release does not know."""
    MISSING_FIELD = "missing-field"
    """A2: a fact without a field that its kind needs."""
    UNEVEN_DIGESTS = "uneven-digests"
    """A2: a fact with another number of digests than of offsets."""
    NUMBER_USED_TWICE = "number-used-twice"
    """A2: two different facts of a writer with one number."""
    EXPRESSION = "expression"
    """A2: an expression that cannot be evaluated."""
    TWO_EXPRESSIONS = "two-expressions"
    """A2: of one subscription."""
    PROMISE_ALONE = "promise-alone"
    """A2: a promise for a subscription of which there is no other fact."""
    NO_RECORD = "no-record"
    """A2: a record that does not decode."""
    NO_NOTIFICATION = "no-notification"
    """A2: a record whose notification does not decode."""
    NO_MARKER = "no-marker"
    """A4: a site log without a closing marker."""
    NO_LOG = "no-log"
    """A4: facts speak of a site of which there is no log."""
    UNKNOWN_RECORD = "unknown-record"
    """A5: no log says what was published there."""


def findings(
    frame: DataFrame,
    code: str | Column,
    note: str | Column = "",
    *,
    reason: str | Column = "",
    lacks: str | Column = "",
    **renamed: str | Column,
) -> DataFrame:
    """Shape rows into findings: columns named as a finding's are taken over, the others of a finding are null.

    Args:
        frame: one row for each finding.
        code: of the class (:data:`spark.schemas.CLASSES`); text is a constant, in `note`, `reason` and `lacks` too.
        note: for people.
        reason: a code (:class:`Reason`); "": the class says all.
        lacks: the evidence that the finding says is missing (:data:`LACKS`); "": none.
        renamed: column of a finding -> the column of the frame that is taken instead.

    Returns:
        Rows of the shape :data:`spark.schemas.FINDING`, with the column :data:`LACKS`.
    """
    columns: dict[str, str | Column] = {name: name for name in frame.columns if name in FINDING.fieldNames()}
    columns |= renamed
    columns |= {"code": _literal(code), "note": _literal(note), "reason": _literal(reason)}
    return frame.select(
        *(_field(columns.get(field.name), field.dataType.simpleString(), field.name) for field in FINDING),
        _literal(lacks).alias(LACKS),
    )


def _literal(value: str | Column) -> Column:
    return F.lit(value) if isinstance(value, str) else value


def _field(column: str | Column | None, kind: str, name: str) -> Column:
    if column is None:
        return F.lit(None).cast(kind).alias(name)
    return (F.col(column) if isinstance(column, str) else column).cast(kind).alias(name)
