"""A second look at what was owed and not delivered: lost, lost in a handover, unseen, or excused.

A loss counts only behind a closed horizon: a closing marker in the origin's log covers it, and a `drained` fact says
that the receiver was there, and idle, when all up to it had been handed over. Else it is unseen (L3), and so it
is if the receiver's own journal has a hole.

A loss is one in a handover (L2) if the session changed its owner, by a handover, a failover or a thaw, between the
deliveries on either side of it: the nearest of the same origin below and above. Where there is none, the first
and the last epoch of the session stand in.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.finding import findings
from spark.journal import of_kind, torn_receivers
from spark.judged import LOST
from spark.owed import FORGOTTEN
from waypost.identity import NOTHING

HANDOVERS = ("handover", "failover", "thaw")
"""Reasons of `owned` that mean that another proxy, or the same after a break, took over."""

_RECEIVER = ["session", "receiver"]
_IDENTITY = [*_RECEIVER, "producer", "incarnation", "sequence"]


def losses(rows: DataFrame, journal: DataFrame, horizons: DataFrame) -> DataFrame:
    """Find L1 to L4, one finding for each notification and receiver.

    An id that has several coordinates is lost only if none of them may still come, and excused only if all are.
    """
    missed = rows.where(F.array_contains("codes", LOST)).select(*_IDENTITY, "origin", "offset")
    looked_at = _with_excuses(_with_horizon(missed, journal, horizons), journal)
    rank = F.when(F.col("is_gap"), 9).when(F.col("excuse").isNotNull(), 2).when(F.col("is_open"), 0).otherwise(1)
    coordinate = F.struct(rank.alias("rank"), "origin", "offset", "excuse")
    worst = looked_at.groupBy(*_IDENTITY).agg(F.min(coordinate).alias("worst"))
    apart = worst.select(*_IDENTITY, "worst.*").where(F.col("rank") < 9)
    code = F.element_at(F.array(F.lit("L3"), F.lit("L1"), F.lit("L4")), F.col("rank") + 1)
    return _with_handovers(apart.withColumn("code", code), rows, journal)


def _with_horizon(missed: DataFrame, journal: DataFrame, horizons: DataFrame) -> DataFrame:
    """Add `is_open`, if it may still have come; and `has_left`, if nobody is there any more to whom it could."""
    said = of_kind(journal, "drained").select(*_RECEIVER, F.explode("frontier").alias("origin", "upto"))
    drained = said.groupBy(*_RECEIVER, "origin").agg(F.max("upto").alias("drained_upto"))
    torn = torn_receivers(journal).withColumn("is_torn", F.lit(True))
    joined = (
        missed.join(horizons, on="origin", how="left")
        .join(drained, on=[*_RECEIVER, "origin"], how="left")
        .join(torn, on=_RECEIVER, how="left")
        .join(_gone(journal), on=_RECEIVER, how="left")
    )
    reach = F.least(F.coalesce("closed_upto", F.lit(NOTHING)), F.coalesce("drained_upto", F.lit(NOTHING)))
    is_open = F.col("is_torn").isNotNull() | (reach < F.col("offset"))
    has_left = is_open & F.coalesce("is_gone", F.lit(False))
    return joined.select(*_IDENTITY, "origin", "offset", is_open.alias("is_open"), has_left.alias("has_left"))


def _gone(journal: DataFrame) -> DataFrame:
    """Return the receivers whose last `attached` fact says that they left for good."""
    last = F.max_by(F.col("reason") == FORGOTTEN, F.struct("epoch", "at_ms", "number"))
    return of_kind(journal, "attached").groupBy(*_RECEIVER).agg(last.alias("is_gone"))


def _with_excuses(missed: DataFrame, journal: DataFrame) -> DataFrame:
    """Add `excuse`, the reason of a removal by policy, and `is_gap`, if a gap was told of there (G1 says so itself)."""
    stated = of_kind(journal, "policy").where("ttl_s > 0 or max_count > 0").select("session").distinct()
    removed = of_kind(journal, "removed").join(stated, "session", "left_semi")
    removed = removed.select(
        "session",
        F.col("receiver").alias("of_receiver"),
        "origin",
        F.explode("offsets").alias("offset"),
        "reason",
    )
    removals = removed.groupBy("session", "of_receiver", "origin", "offset").agg(F.min("reason").alias("reason"))
    joined = missed.alias("m").join(
        removals.alias("x"), on=_concerns(F.col("m.offset") == F.col("x.offset")), how="left"
    )
    left = F.when(F.col("m.has_left"), F.lit("the receiver left for good"))
    deleted = _with_deletions(joined.select("m.*", F.col("x.reason").alias("removal")), journal)
    reason = F.coalesce(F.min("m.removal"), F.min("x.reason"), left)
    excused = deleted.groupBy(*(f"m.{name}" for name in missed.columns)).agg(reason.alias("excuse"))
    bounds = F.col("m.offset").between(F.col("x.first"), F.col("x.last"))
    gaps = gap_facts(journal).withColumnRenamed("receiver", "of_receiver").withColumn("is_gap", F.lit(True))
    told = excused.alias("m").join(gaps.alias("x"), on=_concerns(bounds), how="left")
    return told.select("m.*", F.col("x.is_gap").isNotNull().alias("is_gap")).distinct()


def _with_deletions(missed: DataFrame, journal: DataFrame) -> DataFrame:
    """Join what was missed with the deletions of its session that took it along: all up to a frontier."""
    taken = of_kind(journal, "deleted").select("session", "reason", F.explode("frontier").alias("origin", "upto"))
    place = (F.col("m.session") == F.col("x.session")) & (F.col("m.origin") == F.col("x.origin"))
    return missed.alias("m").join(taken.alias("x"), on=place & (F.col("m.offset") <= F.col("x.upto")), how="left")


def _concerns(place: Column) -> Column:
    """Match a fact about a session, or about one receiver of it, with what that receiver missed."""
    same = (F.col("m.session") == F.col("x.session")) & (F.col("m.origin") == F.col("x.origin"))
    return same & place & F.col("x.of_receiver").isin("") | same & place & (
        F.col("x.of_receiver") == F.col("m.receiver")
    )


def gap_facts(journal: DataFrame) -> DataFrame:
    """Return each gap that somebody was told of: `first` to `last` of `origin`."""
    bounds = {"first": F.col("offsets").getItem(0), "last": F.element_at(F.col("offsets"), -1)}
    told = of_kind(journal, "gap").where(F.size("offsets") > 0).withColumns(bounds)
    return told.select("session", "receiver", "origin", "first", "last", "epoch", "proxy", "writer", "number", "reason")


def gaps(journal: DataFrame) -> DataFrame:
    told = gap_facts(journal)
    note = F.concat(F.lit("up to "), F.col("last"), F.lit(" could not be had: "), F.col("reason"))
    return findings(told, "G1", note, offset="first")


# ---------------------------------------------------------------- handovers around


def _with_handovers(lost: DataFrame, rows: DataFrame, journal: DataFrame) -> DataFrame:
    around = _with_neighbours(lost, rows).join(_owners(journal), on="session", how="left")
    before = F.coalesce(F.col("before.epoch"), F.col("first_epoch"))
    after = F.coalesce(F.col("after.epoch"), F.col("last_epoch"))
    between = F.filter("takeovers", lambda taken: (taken["epoch"] > before) & (taken["epoch"] <= after))
    looked = around.withColumns({"takeover": F.get(between, F.lit(0)), "other_epoch": before, "epoch": after})
    code = F.when((F.col("code") == "L1") & F.col("takeover").isNotNull(), "L2").otherwise(F.col("code"))
    taken = F.format_string("epoch %d went to %s by %s", "takeover.epoch", "takeover.proxy", "takeover.reason")
    note = F.coalesce("excuse", F.when(F.col("takeover").isNotNull(), taken), F.lit(""))
    return findings(looked, code, note, proxy="after.proxy", other_proxy="before.proxy")


def _with_neighbours(lost: DataFrame, rows: DataFrame) -> DataFrame:
    """Add `before` and `after`: epoch and proxy of the nearest deliveries of the same origin to the same receiver."""
    stream = [*_RECEIVER, "origin"]
    concerned = lost.select(*stream).distinct()
    delivered = rows.where("is_delivery").select(*stream, "offset", F.struct("epoch", "proxy").alias("owner"))
    near = delivered.join(concerned, on=stream, how="left_semi")
    together = lost.unionByName(near, allowMissingColumns=True)
    by_offset = Window.partitionBy(*stream).orderBy("offset")
    below = by_offset.rowsBetween(Window.unboundedPreceding, -1)
    above = Window.partitionBy(*stream).orderBy(F.col("offset").desc()).rowsBetween(Window.unboundedPreceding, -1)
    sided = together.withColumns(
        {
            "before": F.last("owner", ignorenulls=True).over(below),
            "after": F.last("owner", ignorenulls=True).over(above),
        }
    )
    return sided.where(F.col("code").isNotNull()).drop("owner")


def _owners(journal: DataFrame) -> DataFrame:
    owned = of_kind(journal, "owned")
    takeover = F.when(F.col("reason").isin(*HANDOVERS), F.struct("epoch", "proxy", "reason"))
    return owned.groupBy("session").agg(
        F.min("epoch").alias("first_epoch"),
        F.max("epoch").alias("last_epoch"),
        F.sort_array(F.collect_set(takeover)).alias("takeovers"),
    )
