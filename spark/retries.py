"""A retry that comes behind what its producer sent later: the exception of P3, or a disorder.

A publish whose answer was lost is appended again, behind what its producer sent meanwhile. A receiver that had the
first copy drops the retry; one that came in between is given the retry alone, behind the newer ones, and rightly so:
that is the exception of P3 (O2). But where the first copy was owed to it, and did not come, the order is broken, though
nothing is missing in the end (O4), unless a stated policy, or a gap that was told of, excuses that it did not come.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark import epochs, loss_reasons, obligations
from spark.comparison import RETRIED
from spark.finding import findings
from spark.obligations import KEY, RECEIVER

_ID = ["producer", "incarnation", "sequence"]


def retries(
    rows: DataFrame,
    truth: DataFrame,
    wanted: DataFrame,
    journal: DataFrame,
    owing: Callable[[DataFrame], DataFrame],
) -> DataFrame:
    """Find O2 and O4, one finding for each retry that came behind what its producer sent later, in the shape of
    :func:`spark.finding.findings`.

    Args:
        rows: judged deliveries (:func:`spark.comparison.judged`); those with the code RETRIED are looked at.
        truth: published notifications (:func:`spark.sitelogs.published`).
        wanted: :func:`spark.obligations.wants`.
        journal: facts, each once (:func:`spark.journal.once`).
        owing: returns the policies under which rows with the columns :data:`spark.obligations.KEY` are owed
            (:func:`spark.obligations.owing`).
    """
    late = rows.where(F.array_contains("codes", RETRIED))
    looked = late.join(_first_copies(late, rows, truth, wanted), on=KEY, how="left")
    first = {"origin": F.col("first_copy.origin"), "offset": F.col("first_copy.offset")}
    missed = looked.where(F.col("first_copy").isNotNull()).withColumns(first).select(*KEY).distinct()
    excused = loss_reasons.excuses(missed, journal, owing(missed)).select(
        *(F.col(name).alias(f"x_{name}") for name in KEY), F.lit(True).alias("is_excused")
    )
    same_key = [F.col(f"x_{name}") == F.col(name) for name in RECEIVER]
    same_key += [F.col(f"x_{name}") == column for name, column in first.items()]
    looked = looked.join(excused, on=same_key, how="left")
    is_allowed = F.col("first_copy").isNull() | F.col("is_excused").isNotNull()
    note = F.concat(F.lit("its first copy was owed: "), "first_copy.origin", F.lit(":"), "first_copy.offset")
    return findings(looked, F.when(is_allowed, "O2").otherwise("O4"), F.when(is_allowed, "").otherwise(note))


def _first_copies(late: DataFrame, rows: DataFrame, truth: DataFrame, wanted: DataFrame) -> DataFrame:
    """Return `first_copy` of those of `late` that have one: an earlier coordinate of the id at the same origin, owed to
    the receiver and not delivered.
    """
    copies = truth.join(late.select(*_ID).distinct(), on=_ID, how="left_semi")
    due = obligations.standing(copies, wanted).where("is_owed").select(*KEY, *_ID)
    absent = due.join(rows.where("is_delivery").select(*KEY), on=KEY, how="left_anti")
    before = absent.select(*RECEIVER, *_ID, _coordinate().alias("first_copy"))
    met = late.select(*KEY, *_ID).join(before, on=[*RECEIVER, *_ID])
    same = epochs.partition("origin") == epochs.partition("first_copy.origin")
    first = met.where(same & (F.col("first_copy") < _coordinate()))
    return first.groupBy(*KEY).agg(F.min("first_copy").alias("first_copy"))


def _coordinate() -> Column:
    """A coordinate, so that those of a later log epoch are the greater ones."""
    return F.struct(F.length("origin").alias("length"), "origin", "offset")
