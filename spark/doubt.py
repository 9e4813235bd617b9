"""Findings weighed against missing evidence: nothing is called broken that a missing fact or record could excuse.

==========  =======================================================================  ==========================
looks like  could be excused by                                                      and then it is
==========  =======================================================================  ==========================
L1, L2      a removal, a gap, an end of the subscription or of the receiver; a       L3, unseen
            delivery that is not on record, or that nobody can name
P3, P4      another subscription, an earlier one, a later end                        A5, doubtful
O1, O3      an earlier copy of the same notification: its retry lies, rightly,       A5, doubtful
            behind what the producer sent later
O4          both of these: a fact that excuses its first copy, an earlier copy       A5, doubtful
UNOWNED     another fact of ownership                                                A5, doubtful
P1          the record itself (:func:`spark.sitelogs.with_completeness`)             A5; nothing, if forwarded
L1 of what  the record itself                                                        L3
was acknowledged
==========  =======================================================================  ==========================

Facts excuse the first two, records of any log the third. D1, D2, P5, H2, H3, G1, and an H1 that two facts of a receiver
show, are seen in what is there: two deliveries of one id, two digests, two epochs, two owners, a gap that was told of.
No other fact makes them right. An H1 by the absence of an owner has the code UNOWNED until it is weighed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.finding import EVERYTHING, JOURNALS, LACKS, LOGS, SESSION, Reason

CODE = "A5"
UNOWNED = "H1 by absence"
"""The code of a delivery that no fact of ownership covers, until it is weighed: H1, or doubtful."""
_LOSSES, _DELIVERIES, _ORDER = ("L1", "L2"), ("P3", "P4"), ("O1", "O3")
_RETRY = "O4"


def weighed(found: DataFrame) -> DataFrame:
    """Return the findings with the code L3 or A5 in place of that of each one that missing evidence could excuse, and a
    note of that. A Spark job looks first which evidence is missing.

    Args:
        found: of the shape :data:`spark.schemas.FINDING`, with the column :data:`spark.finding.LACKS`, which the result
            does not have.
    """
    missing = {row[0] for row in found.where(F.col(LACKS) != "").select(LACKS).distinct().collect()}
    if not missing:
        return found.drop(LACKS).withColumn("code", _settled(F.col("code")))
    facts, records = bool(missing & {JOURNALS, EVERYTHING}), bool(missing & {LOGS, EVERYTHING})
    return _called(_marked(found), facts, records).select(*(name for name in found.columns if name != LACKS))


def _marked(found: DataFrame) -> DataFrame:
    """Add `is_doubtful` if facts about its session are missing, `is_unnamed` if its receiver got what no log names."""
    doubtful = found.where(F.col(LACKS) == SESSION).select("session").distinct().withColumn("is_doubtful", F.lit(True))
    unnamed = found.where(F.col("code") == CODE).select("session", "receiver").distinct()
    marked = found.join(doubtful, on="session", how="left")
    return marked.join(unnamed.withColumn("is_unnamed", F.lit(True)), on=["session", "receiver"], how="left")


def _called(marked: DataFrame, facts: bool, records: bool) -> DataFrame:
    code = F.col("code")
    by_facts = F.lit(facts) | F.col("is_doubtful").isNotNull()
    is_loss = code.isin(*_LOSSES) & F.col("session").isNotNull() & (by_facts | F.col("is_unnamed").isNotNull())
    is_other = (code.isin(*_DELIVERIES, _RETRY, UNOWNED) & by_facts) | (code.isin(*_ORDER, _RETRY) & F.lit(records))
    note = F.when(is_loss | is_other, _note()).otherwise(F.col("note"))
    called = F.when(is_loss, "L3").when(is_other, CODE).otherwise(_settled(code))
    reason = F.when(is_loss, Reason.MISSING_EVIDENCE).when(is_other, _settled(code)).otherwise(F.col("reason"))
    return marked.withColumns({"code": called, "reason": reason, "note": note})


def _settled(code: Column) -> Column:
    """Return the code of the class: that of an unowned delivery is H1."""
    return F.when(code == UNOWNED, "H1").otherwise(code)


def _note() -> Column:
    text = F.concat(F.lit("looks like "), _settled(F.col("code")), F.lit("; evidence that could excuse it is missing"))
    return F.concat(text, F.when(F.col("note") != "", F.concat(F.lit("; "), F.col("note"))).otherwise(""))
