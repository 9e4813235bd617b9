"""Who owned a session, as proxies attest it, held beside what receivers attest: H1, H2 and H3.

A proxy attests `owned` when it begins to serve a session at an epoch, and `released` when the registry names another
owner: with the frontier at which it has cut its copy, so it delivers nothing beyond that. A receiver attests with each
delivery who owned the session, and at which epoch. A transfer of a session attests each of its phases, and its end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark import doubt
from spark.finding import findings
from spark.journal import of_kind, writer_of
from waypost.facts import FactKind
from waypost.identity import NOTHING

ENDS = ("committed", "aborted", "thawed", "relayed", "unsettled")
"""The phases with which a transfer ends (proxy/core/transfer_record.py)."""
TRANSFER_MS = 60_000
"""Time for a phase of a transfer, in ms by the clock of its proxy, as long as nothing else says that it is over."""

_OWNERSHIP = ["session", "epoch"]


def stale_epochs(journal: DataFrame) -> DataFrame:
    """Find the facts by which a receiver attests deliveries of an older epoch than one of its facts before them (H1),
    in the shape of :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    before = Window.partitionBy("session", "receiver", "writer").orderBy("number")
    before = before.rowsBetween(Window.unboundedPreceding, -1)
    highest = _received(journal).withColumn("other_epoch", F.max("epoch").over(before))
    return findings(highest.where(F.col("epoch") < F.col("other_epoch")), "H1", _deliveries())


def unowned_deliveries(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Find the facts by which a receiver attests deliveries of a proxy that does not attest to have owned the session
    at their epoch (H1), in the shape of :func:`spark.finding.findings`.

    A process that is killed may deliver before its journal has `owned`: an epoch that no proxy attests is no finding
    where an incarnation of that proxy was killed. A fact of a journal that is missing could attest it: where one is,
    these are doubtful (spark/doubt.py).

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
        dropped: `proxy` and `incarnation` of those whose lease ended (:func:`spark.sitelogs.expired_incarnations`).
    """
    joined = _received(journal).join(_owners(journal), on=_OWNERSHIP, how="left")
    killed = _killed(journal, dropped).withColumn("was_killed", F.lit(True))
    joined = joined.join(F.broadcast(killed), on="proxy", how="left")
    is_owned = F.coalesce(F.array_contains("owners", F.col("proxy")), F.lit(False))
    is_excused = F.col("owners").isNull() & F.col("was_killed").isNotNull()
    unowned = joined.where(~is_owned & ~is_excused).withColumn("other_proxy", F.get("owners", F.lit(0)))
    nobody = F.lit(", and no proxy attests to have owned the session at this epoch")
    other = F.concat(F.lit(", and at this epoch the session was owned by "), F.array_join("owners", ", "))
    note = F.concat(_deliveries(), F.when(F.col("owners").isNull(), nobody).otherwise(other))
    other_epoch = F.when(F.col("owners").isNotNull(), F.col("epoch"))
    return findings(unowned.withColumn("other_epoch", other_epoch), doubt.UNOWNED, note)


def _killed(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Return the proxies of which an incarnation ended without closing its journal: `proxy`."""
    ended = of_kind(journal, FactKind.ENDED).select(F.col("proxy").alias("writer"))
    ended = ended.unionByName(dropped.select(writer_of("proxy", "incarnation").alias("writer")))
    closed = of_kind(journal, FactKind.CLOSED).select("writer")
    killed = ended.join(closed, on="writer", how="left_anti")
    return killed.select(F.regexp_extract("writer", "^proxy/(.*)/[^/]*$", 1).alias("proxy")).distinct()


def deliveries_beyond_cuts(journal: DataFrame) -> DataFrame:
    """Find the deliveries from beyond the cut at which their owner had released the session (H1), one finding for each,
    in the shape of :func:`spark.finding.findings`.

    A cut holds if the incarnation that served the session has made it, and has not served the session again at that
    epoch. A fact that is missing could attest that: where one is, these are doubtful (spark/doubt.py).

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    steps = journal.where(F.col("kind").isin(FactKind.OWNED, FactKind.RELEASED))
    is_release = F.col("kind") == FactKind.RELEASED
    last = steps.groupBy(*_OWNERSHIP, "proxy").agg(
        F.count_distinct("writer").alias("incarnations"),
        F.max_by(is_release, "number").alias("is_released"),
        F.min(is_release).alias("was_never_served"),
        F.max_by("frontier", "number").alias("cut"),
    )
    cuts = last.where((F.col("incarnations") == 1) & F.col("is_released") & ~F.col("was_never_served"))
    given = of_kind(journal, FactKind.RECEIVED).withColumn("offset", F.explode("offsets"))
    given = given.join(cuts.select(*_OWNERSHIP, "proxy", "cut"), on=[*_OWNERSHIP, "proxy"])
    upto = F.coalesce(F.try_element_at("cut", F.col("origin")), F.lit(NOTHING))
    note = F.concat(F.lit("beyond the cut of its owner, which is "), upto)
    return findings(given.where(F.col("offset") > upto), doubt.UNOWNED, note)


def split_ownership(journal: DataFrame) -> DataFrame:
    """Find the epochs of a session in which two proxies say that they own it (H2), in the shape of
    :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    split = _owners(journal).where(F.size("owners") > 1)
    first, second = F.get("owners", F.lit(0)), F.get("owners", F.lit(1))
    note = F.array_join("owners", ", ")
    return findings(split, "H2", note, proxy=first, other_proxy=second, other_epoch="epoch")


def unended_transfers(journal: DataFrame) -> DataFrame:
    """Find the transfers that a proxy began, and of which it attests no end (H3), one finding for each role, in the
    shape of :func:`spark.finding.findings`.

    A transfer has to end before its proxy closes its journal. Where the journal goes on (`marked`), it is one if the
    session has a later owner since, or if the phase takes longer than TRANSFER_MS. That of a process that was killed
    has ended with it.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    steps = of_kind(journal, FactKind.HANDOVER)
    last = F.max_by(F.struct("phase", "number", "at_ms", "session", "epoch", "proxy"), "number").alias("last")
    left = steps.groupBy("transfer", "role", "writer").agg(last).select("transfer", "role", "writer", "last.*")
    left = left.where(~F.col("phase").isin(*ENDS))
    goes_on = journal.where(F.col("kind").isin(FactKind.CLOSED, FactKind.MARKED)).select(
        "writer", F.col("number").alias("later"), F.col("at_ms").alias("later_ms"), F.col("kind").alias("later_kind")
    )
    owned = of_kind(journal, FactKind.OWNED).groupBy("session").agg(F.max("epoch").alias("last_epoch"))
    seen = left.join(goes_on, on="writer").where(F.col("later") > F.col("number")).join(owned, on="session", how="left")
    is_over = (
        (F.col("later_kind") == FactKind.CLOSED)
        | F.coalesce(F.col("last_epoch") > F.col("epoch"), F.lit(False))
        | (F.col("later_ms") - F.col("at_ms") > TRANSFER_MS)
    )
    stalled = seen.where(is_over).dropDuplicates(["transfer", "role", "writer"])
    note = F.concat(
        F.lit("transfer "), F.col("transfer"), F.lit(" began "), F.col("phase"), F.lit(" as "), F.col("role"),
        F.lit(", and never ended"),
    )  # fmt: skip
    return findings(stalled, "H3", note)


def _owners(journal: DataFrame) -> DataFrame:
    """Return `session`, `epoch`, and `owners`: the proxies that attest to own the session at the epoch, by name."""
    owned = of_kind(journal, FactKind.OWNED).groupBy(*_OWNERSHIP)
    return owned.agg(F.sort_array(F.collect_set("proxy")).alias("owners"))


def _received(journal: DataFrame) -> DataFrame:
    """Return the facts by which receivers attest deliveries, and as `offset` the first that each names."""
    return of_kind(journal, FactKind.RECEIVED).withColumn("offset", F.get("offsets", F.lit(0)))


def _deliveries() -> Column:
    return F.format_string("%d deliveries in this fact", F.size("offsets"))
