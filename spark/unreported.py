"""Notifications that a log lost with its end and some receiver had: which others were owed them, and missed them.

No log knows such a notification any more. But whoever was given it had asked for it; and where a session has asked for
one thing only, the notification matches that. So it is owed to everybody who asked for the same, by the same keys, and
was promised it: it had it, was told of a gap, or it is lost (L1). What nobody was given, and no other log has a copy
of, cannot be judged (L3, where a producer was told that it is safe).
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from spark import obligations
from spark.comparison import LOST
from spark.journal import SESSION_GENERATION, of_kind
from spark.obligations import COORDINATE, KEY
from waypost.facts import FactKind

_ASKED = ["expression_number", "keys", "secure_only"]


def unreported(wanted: DataFrame, journal: DataFrame, ends: DataFrame, known: DataFrame) -> DataFrame:
    """Return the notifications, of those that logs lost, that a receiver was owed and did not get: the columns
    :data:`spark.obligations.KEY`, and `codes`, an array of LOST alone.

    A lost notification is known here by its deliveries to receivers whose session had asked for one thing only.

    Args:
        wanted: each subscription for each receiver of its session (:func:`spark.obligations.wants`).
        journal: facts, each once (:func:`spark.journal.once`).
        ends: the ends that logs lost (:func:`spark.epochs.lost_ends`).
        known: coordinates with a record or a copy, or that may be of another notification; these are left out.
    """
    delivered = obligations.deliveries(journal)
    is_lost = F.col("offset").between(F.col("first"), F.col("seen"))
    bounds = F.broadcast(ends.select("origin", "first", "seen"))
    had = delivered.join(bounds, on="origin").where(is_lost)
    had = had.join(known.select(*COORDINATE).distinct(), on=COORDINATE, how="left_anti")
    matching = (
        had.join(_asked_for_one_thing(wanted), on=SESSION_GENERATION).select(*COORDINATE, *_ASKED, "digest").distinct()
    )
    due = matching.join(wanted, on=_ASKED).where(obligations.is_owed()).select(*KEY, "digest").distinct()
    missed = due.join(delivered.select(*KEY), on=KEY, how="left_anti")
    # A retry of it has the same body, and whoever had one copy drops the other.
    copies = delivered.select(*obligations.RECEIVER, "digest").distinct()
    missed = missed.join(copies, on=[*obligations.RECEIVER, "digest"], how="left_anti")
    return _not_removed(missed.select(*KEY).distinct(), journal).withColumn("codes", F.array(F.lit(LOST)))


def _asked_for_one_thing(wanted: DataFrame) -> DataFrame:
    """Return the one subscription of each session that, for sure, never had another expression or other keys."""
    distinct = wanted.select(*SESSION_GENERATION, *_ASKED, "is_sure").distinct()
    alone = distinct.withColumn("things", F.count("*").over(Window.partitionBy(*SESSION_GENERATION)))
    return alone.where(F.col("is_sure") & (F.col("things") == 1)).select(*SESSION_GENERATION, *_ASKED)


def _not_removed(missed: DataFrame, journal: DataFrame) -> DataFrame:
    """Leave out what a fact says was removed: the subscriptions by which it was owed are not known any more."""
    removed = of_kind(journal, FactKind.REMOVED).select(
        *SESSION_GENERATION, "origin", F.explode("offsets").alias("offset")
    )
    return missed.join(removed.distinct(), on=[*SESSION_GENERATION, *COORDINATE], how="left_anti")
