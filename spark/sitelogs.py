"""Site logs as evidence: the published notifications, and how far the logs are complete.

The truth about a notification is the `Published` record in its origin's log. Where a log has a hole, or no
closing marker, its coordinates are unknown, and nothing is concluded from a record's absence.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.finding import EVERYTHING, LOGS, Reason, findings
from waypost.facts import FactKind

COPY = "copy"
"""The kind of a record of another log with a notification that its own log lost."""


def published(records: DataFrame) -> DataFrame:
    """Return the published notifications: coordinate (`origin`, `offset`), id (`producer`, `incarnation`, `sequence`),
    `digest`, `at_ms`, `keys`, `secure_only`, `matched`.

    Args:
        records: of the shape :data:`spark.schemas.RECORD`.
    """
    return records.where(F.col("kind") == "published").select(*_PUBLISHED)


def copied(copies: DataFrame, records: DataFrame) -> DataFrame:
    """Return the notifications that a log lost with its end and other logs have, in the shape of :func:`published`.

    Those whose copies differ are left out, and those that were appended to the log again after it had lost its end.

    Args:
        copies: as :func:`spark.readers.copies` returns them.
        records: of all logs, with the origins of their log epochs (:func:`spark.epochs.with_origins`).
    """
    identity = ["producer", "incarnation", "sequence", "digest"]
    later = records.where(F.col("kind") == "nobodys").select(
        F.col("site").alias("home"), F.col("position").alias("at"), *identity
    )
    stated = copies.withColumns({"home": site_of("origin"), "at": F.col("offset")}).join(
        later, on=["home", "at", *identity], how="left_anti"
    )
    grouped = stated.groupBy(*_COORDINATE).agg(
        F.count_distinct(F.struct(*_CONTENT)).alias("different"),
        *(F.first(name).alias(name) for name in _PUBLISHED if name not in _COORDINATE),
    )
    return grouped.where(F.col("different") == 1).select(*_PUBLISHED)


_COORDINATE = ("origin", "offset")
_CONTENT = ("producer", "incarnation", "sequence", "digest", "keys", "secure_only")
"""What every copy has as the published record has it."""
_PUBLISHED = (
    *_COORDINATE, "producer", "incarnation", "sequence", "digest", "at_ms", "keys", "secure_only", "matched",
)  # fmt: skip


def expired_incarnations(records: DataFrame) -> DataFrame:
    """Return the incarnations of proxies whose lease ended, as the site logs say: `proxy`, `incarnation`.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    ends = records.where(F.col("kind") == "interests-expired")
    return ends.select(F.col("producer").alias("proxy"), "incarnation").distinct()


def seen(records: DataFrame) -> DataFrame:
    """Return the incarnations of proxies that the site logs have records of, so that they have a journal: `proxy`,
    `incarnation`.

    Those of which only the end is known are left out: one may end before it writes its first fact.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    stated = records.where(F.col("kind").isin("interest-registered", "closed") & F.col("producer").isNotNull())
    return stated.select(F.col("producer").alias("proxy"), "incarnation").distinct()


def site_of(origin: str) -> Column:
    """Return the site of an origin, as a column.

    Args:
        origin: the name of the column with the origin.
    """
    return F.regexp_replace(origin, "/[^/]*$", "")


def markers(records: DataFrame) -> DataFrame:
    """Return the incarnations of proxies that appended closing markers: `proxy`, `incarnation`, and `marked_ms`, the
    time of the last one.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    of_proxies = records.where((F.col("kind") == "closed") & F.col("producer").isNotNull())
    return of_proxies.groupBy(F.col("producer").alias("proxy"), "incarnation").agg(F.max("at_ms").alias("marked_ms"))


def extents(records: DataFrame) -> DataFrame:
    """Return one row a log: `site`, `first` and `last` position, `records`, their number, and `closed`: whether it has
    a closing marker.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    return records.groupBy("site").agg(
        F.min("position").alias("first"),
        F.max("position").alias("last"),
        F.count("position").alias("records"),
        F.max(F.col("kind") == "closed").alias("closed"),
    )


def horizon(records: DataFrame) -> DataFrame:
    """Return a row for each origin of which its own log has a closing marker: `origin`, and `closed_upto`, the highest
    offset that such a marker covers.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    markers = records.where(F.col("kind") == "closed")
    stated = markers.select("site", F.explode("frontier").alias("origin", "upto"))
    return stated.where(site_of("origin") == F.col("site")).groupBy("origin").agg(F.max("upto").alias("closed_upto"))


def holes(records: DataFrame, logs: DataFrame, dense: bool) -> DataFrame:
    """Return the missing ranges of positions of logs: `site`, `first_missing`, `last_missing`, both inclusive; and
    `origin`, which is null: the range may have been of any.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
        logs: :func:`extents`.
        dense: whether a gap between two records is a hole; a beginning that was cut off always is.
    """
    beginnings = logs.where(F.col("first") > 0).select(
        "site",
        F.lit(0).cast("bigint").alias("first_missing"),
        (F.col("first") - 1).alias("last_missing"),
        _any_origin(),
    )
    if not dense:
        return beginnings
    # A log whose count fits its extent has none: that spares the sort of the whole log.
    gappy = logs.where(F.col("records") <= F.col("last") - F.col("first")).select("site")
    suspect = records.select("site", "position").join(F.broadcast(gappy), on="site", how="left_semi")
    before = F.lag("position").over(Window.partitionBy("site").orderBy("position"))
    last = (F.col("position") - 1).alias("last_missing")
    ranges = suspect.select("site", (before + 1).alias("first_missing"), last, _any_origin())
    return beginnings.unionByName(ranges.where(F.col("first_missing") <= F.col("last_missing")))


def unreadable(records: DataFrame) -> DataFrame:
    """Return the records that do not decode, as ranges in the shape of :func:`holes`: anything may have stood there.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    bad = records.where(F.col("kind") == "unusable")
    first, last = F.col("position").alias("first_missing"), F.col("position").alias("last_missing")
    return bad.select("site", first, last, _any_origin())


def _any_origin() -> Column:
    return F.lit(None).cast("string").alias("origin")


def with_completeness(
    coordinates: DataFrame, logs: DataFrame, gaps: DataFrame, present: DataFrame | None = None
) -> DataFrame:
    """Add `complete`: whether the absence of a notification at (`origin`, `offset`) means that there never was one.

    It does where something else stands in the log. Behind the last record nothing is known: a log that was cut off
    looks like one that ends there.

    Args:
        coordinates: rows with `origin` and `offset`.
        logs: :func:`extents`.
        gaps: ranges that are not known, in the shape of :func:`holes`.
        present: the records of logs in which a missing record is no hole; None: it is one.
    """
    sited = coordinates.withColumn("home", site_of("origin"))
    logs = logs.select(F.col("site").alias("home"), "first", "last")
    reached = F.col("offset").between(F.col("first"), F.col("last"))
    if present is not None:
        standing = present.select(F.col("site").alias("home"), F.col("position").alias("offset"))
        sited = sited.join(standing.withColumn("stands", F.lit(True)), on=["home", "offset"], how="left")
        reached &= F.col("stands").isNotNull()
    of_any, of_one = F.col("hole_origin").isNull(), F.col("hole_origin") == F.col("origin")
    # Apart, for a hole may lie beyond the end of an origin too, and no row is to come twice.
    holed = _in_hole(_in_hole(sited.join(F.broadcast(logs), on="home", how="left"), gaps, of_any), gaps, of_one)
    known = F.coalesce(reached, F.lit(False)) & ~F.col("is_in_hole")
    return holed.withColumn("complete", known).drop("home", "first", "last", "stands", "is_in_hole")


def _in_hole(sited: DataFrame, gaps: DataFrame, concerns: Column) -> DataFrame:
    """Add `is_in_hole`, or leave it true, where one of the gaps that `concerns` holds of has the coordinate."""
    before = F.col("is_in_hole") if "is_in_hole" in sited.columns else F.lit(False)
    gaps = gaps.select(
        F.col("site").alias("hole_site"), F.col("origin").alias("hole_origin"), "first_missing", "last_missing"
    )
    lies = F.col("offset").between(F.col("first_missing"), F.col("last_missing"))
    joined = sited.join(F.broadcast(gaps), on=(F.col("home") == F.col("hole_site")) & lies & concerns, how="left")
    holed = joined.withColumn("is_in_hole", before | F.col("hole_site").isNotNull())
    return holed.drop("hole_site", "hole_origin", "first_missing", "last_missing")


# ---------------------------------------------------------------- findings


def damaged(records: DataFrame) -> DataFrame:
    """Find the records that do not decode, and those whose notification does not (A2), in the shape of
    :func:`spark.finding.findings`.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
    """
    bad = records.where(F.col("note").isNotNull())
    lacks = F.when(F.col("kind") == "unusable", LOGS).otherwise("")
    reason = F.when(F.col("kind") == "unusable", Reason.NO_RECORD).otherwise(Reason.NO_NOTIFICATION)
    return findings(bad, "A2", F.col("note"), reason=reason, offset="position", lacks=lacks)


def incomplete(gaps: DataFrame) -> DataFrame:
    """Find the missing ranges of site logs (A1), in the shape of :func:`spark.finding.findings`.

    Args:
        gaps: :func:`holes`.
    """
    first, last = F.col("first_missing"), F.col("last_missing")
    note = F.concat(F.lit("records "), first, F.lit(" to "), last, F.lit(" of this site log are missing"))
    return findings(gaps, "A1", note, reason=Reason.RECORDS_MISSING, offset="first_missing", lacks=LOGS)


def not_closed(logs: DataFrame, mentioned: DataFrame) -> DataFrame:
    """Find the sites without a closing marker in their log, or without a log (A4), in the shape of
    :func:`spark.finding.findings`.

    Args:
        logs: :func:`extents`.
        mentioned: `origin`, of each origin that facts name; its site must have a log.
    """
    sites = mentioned.select(site_of("origin").alias("site")).unionByName(logs.select("site")).distinct()
    joined = sites.join(logs, on="site", how="left").where(~F.coalesce(F.col("closed"), F.lit(False)))
    note = F.when(F.col("closed").isNull(), "facts speak of this site, and there is no log of it")
    lacks = F.when(F.col("closed").isNull(), EVERYTHING).otherwise(LOGS)
    reason = F.when(F.col("closed").isNull(), Reason.NO_LOG).otherwise(Reason.NO_MARKER)
    return findings(joined, "A4", note.otherwise("no closing marker in this site log"), reason=reason, lacks=lacks)


def shorter_than_named(records: DataFrame, journal: DataFrame, logs: DataFrame, ended: DataFrame) -> DataFrame:
    """Find the logs that end before a record that a fact or another record names (A1), in the shape of
    :func:`spark.finding.findings`. Such a log was cut off: it was read after the journals.

    What a receiver says when it attaches is no evidence: it may have the state of another federation.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
        journal: facts, each once (:func:`spark.journal.once`).
        logs: :func:`extents`.
        ended: the `origin` of log epochs that have ended, which say themselves how far they went.
    """
    facts = journal.where(~F.col("kind").isin(FactKind.ATTACHED, FactKind.REGISTERED, FactKind.ROTATED))
    named = [
        facts.where(F.size("offsets") > 0).select("origin", F.array_max("offsets").alias("upto")),
        facts.select(F.explode("frontier").alias("origin", "upto")),
        records.where(F.col("kind") == "forwarded").select("origin", F.col("offset").alias("upto")),
        records.where(F.col("kind") == "closed").select(F.explode("frontier").alias("origin", "upto")),
    ]
    most = reduce(DataFrame.unionByName, named).groupBy("origin").agg(F.max("upto").alias("upto"))
    known = most.join(F.broadcast(ended.select("origin").distinct()), on="origin", how="left_anti")
    short = known.withColumn("site", site_of("origin")).join(F.broadcast(logs), on="site")
    short = short.where(F.col("upto") > F.col("last")).withColumn("first_missing", F.col("last") + 1)
    note = F.concat(F.lit("the log ends at "), F.col("last"), F.lit(", and something names "), F.col("upto"))
    return findings(short, "A1", note, reason=Reason.LOG_ENDS_EARLY, offset="first_missing", lacks=LOGS)


def forwarded(
    records: DataFrame, truth: DataFrame, logs: DataFrame, gaps: DataFrame, present: DataFrame | None = None
) -> DataFrame:
    """Find copies in other sites' logs whose id, digest or keys differ from those of the published record (P5), or that
    have no record (P1) though its log is complete there. A copy without a record elsewhere is no finding.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
        truth: the rows of :func:`published` and of :func:`copied` together.
        logs: :func:`extents`.
        gaps: ranges that are not known, in the shape of :func:`holes`.
        present: as of :func:`with_completeness`.

    Returns:
        One row for each copy that is wrong, as :func:`spark.finding.findings` shapes it.
    """
    copies = records.where(F.col("kind") == "forwarded").select("site", "position", "origin", "offset", *_CONTENT)
    originals = truth.select("origin", "offset", F.struct(*_CONTENT).alias("original"))
    joined = copies.join(originals, on=["origin", "offset"], how="left")
    is_wrong = F.col("original").isNull() | (F.struct(*_CONTENT) != F.col("original"))
    wrong = with_completeness(joined.where(is_wrong), logs, gaps, present)
    code = F.when(F.col("original").isNotNull(), "P5").when(F.col("complete"), "P1")
    note = F.concat(F.lit("a forwarded copy, at "), F.col("position"), F.lit(" of this site's log"))
    return findings(wrong.withColumn("code", code).where(F.col("code").isNotNull()), F.col("code"), note)
