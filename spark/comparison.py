"""Obligations beside deliveries, with the codes of the rules that each row breaks.

The heart of the audit: one row for each delivery, and one for each notification owed that was not delivered. A
notification is the same by its id, also where a retried publish gave it a second coordinate; so repeats and
losses are judged by id, and the rest by coordinate.

Deliveries of a receiver are ordered by (writer, number, index in the fact). Between two writers, that is two processes
of a receiver's library, no order is claimed, because only clocks could tell it; nor of a receiver that had asked for
the order of priority or deadline.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark.obligations import COORDINATE, KEY, RECEIVER

LOST, STRAY, RETRIED = "lost", "stray", "retried"
"""Not yet findings: owed and not delivered; delivered and not matched; a retry behind what its producer sent later. All
need a second look."""

_STREAM = [*RECEIVER, "producer", "incarnation"]
_IDENTITY = [*_STREAM, "sequence"]
_POSITION = ["writer", "number", "at"]


def judged(stood: DataFrame, delivered: DataFrame, line: Column | None = None) -> DataFrame:
    """Return one row for each delivery, and for each notification that was owed to a receiver and not delivered.

    The columns are :data:`spark.obligations.KEY`, `epoch`, `proxy`, `is_delivery`; `is_first_owed`, true in one row of
    each notification owed to a receiver; `codes`, the classes of :data:`spark.schemas.CLASSES` that the row makes, with
    LOST, STRAY and RETRIED; and details. Codes and details are null in a row that breaks no rule.

    Args:
        stood: :func:`spark.obligations.standing`.
        delivered: :func:`spark.obligations.deliveries`.
        line: the column within whose values a producer's order holds; None: the origin.
    """
    both = stood.join(delivered, on=KEY, how="full_outer")
    # All that follows is judged within one producer and receiver: one shuffle serves every window.
    rows = both.repartition(*_STREAM).withColumns(
        {
            "is_delivery": F.col("number").isNotNull(),
            "is_matched": F.col("producer").isNotNull(),
            "is_owed": F.coalesce("is_owed", F.lit(False)),
        }
    )
    lined = rows.withColumn("line", F.col("origin") if line is None else line)
    return _with_codes(_with_order(_with_repeats(lined)))


def _with_repeats(rows: DataFrame) -> DataFrame:
    same = Window.partitionBy(*_IDENTITY)
    before = _before(same.orderBy(*_POSITION, *COORDINATE))
    owner = F.when(F.col("is_delivery"), F.struct("epoch", "proxy"))
    # A number is compared sooner than a text.
    coordinate = F.xxhash64("origin", "offset")
    is_copied = F.min(coordinate).over(same) != F.max(coordinate).over(same)
    owed_before = F.coalesce(F.max("is_owed").over(before), F.lit(False))
    return rows.withColumns(
        {
            "earlier": F.last(owner, ignorenulls=True).over(before),
            "is_ever_delivered": F.max("is_delivery").over(same),
            "is_copied": is_copied,
            "is_first_owed": F.col("is_owed") & F.col("is_matched") & ~owed_before,
        }
    )


def _with_order(rows: DataFrame) -> DataFrame:
    """Add `previous`: the delivery before this one of the same producer at the same origin, to the same writer.

    Repeats do not count. An id with two coordinates is not the previous one of any: its retry may lie, rightly, behind
    what the producer sent later (:mod:`spark.retries`).
    """
    is_new = F.col("is_delivery") & F.col("is_matched") & F.col("earlier").isNull()
    stream = Window.partitionBy(*_STREAM, "line", "writer").orderBy("number", "at", "offset")
    delivery = F.when(is_new & ~F.col("is_copied"), F.struct("sequence", "epoch", "proxy"))
    previous = F.when(is_new, F.last(delivery, ignorenulls=True).over(_before(stream)))
    return rows.withColumn("previous", previous)


def _before(window: WindowSpec) -> WindowSpec:
    return window.rowsBetween(Window.unboundedPreceding, -1)


def _with_codes(rows: DataFrame) -> DataFrame:
    delivered, matched = F.col("is_delivery"), F.col("is_matched")
    seen = delivered & matched
    again = seen & F.col("earlier").isNotNull()
    back = ~F.col("is_by_order") & (F.col("sequence") < F.col("previous.sequence"))
    rules = {
        LOST: F.col("is_owed") & ~delivered & ~F.col("is_ever_delivered"),
        STRAY: delivered & ~matched,
        "D1": again & _same_owner("earlier"),
        "D2": again & ~_same_owner("earlier"),
        "P3": seen & (F.col("epoch") < F.col("since_epoch")),
        "P4": seen & ~F.col("may_live"),
        "P5": seen & (F.col("digest") != F.col("published_digest")),
        "O1": back & ~F.col("is_copied") & _same_owner("previous"),
        "O3": back & ~F.col("is_copied") & ~_same_owner("previous"),
        RETRIED: back & F.col("is_copied"),
    }
    codes = F.array_compact(F.array(*(F.when(rule, F.lit(code)) for code, rule in rules.items())))
    opposed = F.coalesce("earlier", F.struct("previous.epoch", "previous.proxy"))
    guilty = F.size("codes") > 0
    # The details of the innocent are dropped: nearly all rows are, and all are kept until the end.
    details = {name: F.col(name) for name in ("producer", "incarnation", "sequence", "writer", "number", "since_epoch")}
    details |= {"other_epoch": opposed["epoch"], "other_proxy": opposed["proxy"]}
    return rows.withColumn("codes", codes).select(
        *KEY,
        "epoch",
        "proxy",
        "is_delivery",
        "is_first_owed",
        *(F.when(guilty, column).alias(name) for name, column in details.items()),
        F.when(guilty, F.col("codes")).alias("codes"),
    )


def _same_owner(delivery: str) -> Column:
    return (F.col("epoch") == F.col(f"{delivery}.epoch")) & (F.col("proxy") == F.col(f"{delivery}.proxy"))


def totals(rows: DataFrame) -> DataFrame:
    """Return one row of counts: `owed`, the notifications owed, once for each receiver; `delivered`, all deliveries,
    also the repeated ones and those that were not owed; and the rows with the codes LOST, STRAY and RETRIED.

    Args:
        rows: what :func:`judged` returns: `is_first_owed` and `is_delivery` (boolean), `codes` (array of strings).
    """
    counted = {
        "owed": F.col("is_first_owed"),
        "delivered": F.col("is_delivery"),
        LOST: F.array_contains("codes", LOST),
        STRAY: F.array_contains("codes", STRAY),
        RETRIED: F.array_contains("codes", RETRIED),
    }
    return rows.agg(*(F.count(F.when(condition, 1)).alias(name) for name, condition in counted.items()))
