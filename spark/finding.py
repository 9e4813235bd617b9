"""The one shape of all anomalies: a finding."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.schemas import FINDING

LACKS = "lacks"
"""A column beside a finding's own, until the verdict: which evidence the finding says is missing, or nothing.

JOURNALS: facts of a proxy, which may be about any session. LOGS: records. EVERYTHING: both, a whole site.
SESSION: facts about the session that the finding names.
"""
JOURNALS, LOGS, EVERYTHING, SESSION = "journals", "logs", "everything", "session"


def findings(
    frame: DataFrame,
    code: str | Column,
    note: str | Column = "",
    *,
    lacks: str | Column = "",
    **renamed: str | Column,
) -> DataFrame:
    """Shape rows into findings: columns named as a finding's are taken over, the others of a finding are null.

    Args:
        frame: one row for each finding.
        code: of the class (:data:`spark.schemas.CLASSES`); text is a constant, in `note` and `lacks` too.
        note: for people.
        lacks: the evidence that the finding says is missing (:data:`LACKS`); "": none.
        renamed: column of a finding -> the column of the frame that is taken instead.

    Returns:
        Rows of the shape :data:`spark.schemas.FINDING`, with the column :data:`LACKS`.
    """
    columns: dict[str, str | Column] = {name: name for name in frame.columns if name in FINDING.fieldNames()}
    columns |= renamed
    columns |= {"code": _literal(code), "note": _literal(note)}
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
