"""Who owned a session, as proxies attest it, held beside what receivers attest: H1, H2 and H3.

A proxy attests `owned` when it begins to serve a session at an epoch, and `released` when the registry names another
owner: with the frontier at which it has cut its copy, so it delivers nothing beyond that. A receiver attests with each
delivery who owned the session, and at which epoch. A transfer of a session attests each of its phases, and its end.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark import doubt, ends
from spark import journal as journals
from spark.finding import Reason, findings
from spark.journal import of_kind, proxy_of
from waypost.facts import FactKind, OwnedCause, TransferEnd
from waypost.identity import NOTHING

TRANSFER_MS = 60_000
"""Time for a phase of a transfer, in ms by the clock of its proxy, as long as nothing else says that it is over."""

CONTINUING = (OwnedCause.HANDOVER, OwnedCause.THAW)
"""Causes of `owned` after which the owner begins where the owner before had come to; a store may be behind."""

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
    return findings(
        highest.where(F.col("epoch") < F.col("other_epoch")), "H1", _deliveries(), reason=Reason.OLDER_EPOCH
    )


def unowned_deliveries(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Find the facts by which a receiver attests deliveries of a proxy that does not attest to have owned the session
    at their epoch (H1), in the shape of :func:`spark.finding.findings`.

    A process that is killed may deliver before its journal has `owned`. So an epoch that no proxy attests is no finding
    where an incarnation of that proxy was killed that attests nothing else at that epoch, and where the session has a
    later owner, or no incarnation of the proxy has ended in order. A fact of a journal that is missing could attest it:
    where one is, these are doubtful (spark/doubt.py).

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
        dropped: `proxy` and `incarnation` of those whose lease ended (:func:`spark.sitelogs.expired_incarnations`).
    """
    killed = _killed(journal, dropped)
    joined = _received(journal).join(_owners(journal), on=_OWNERSHIP, how="left")
    later = of_kind(journal, FactKind.OWNED).groupBy("session").agg(F.max("epoch").alias("last_epoch"))
    joined = joined.join(later, on="session", how="left").join(_ends(journal, killed), on="proxy", how="left")
    attesting = _attesting(journal, killed).withColumn("attests_serving", F.lit(True))
    joined = joined.join(attesting, on=[*_OWNERSHIP, "proxy"], how="left")
    is_owned = F.coalesce(F.array_contains("owners", F.col("proxy")), F.lit(False))
    has_later = F.coalesce(F.col("last_epoch") > F.col("epoch"), F.lit(False))
    may_be_silent = F.coalesce(F.col("is_killed") & (has_later | ~F.col("is_closed")), F.lit(False))
    is_excused = F.col("owners").isNull() & F.col("attests_serving").isNull() & may_be_silent
    unowned = joined.where(~is_owned & ~is_excused).withColumn("other_proxy", F.get("owners", F.lit(0)))
    nobody = F.lit(", and no proxy attests to have owned the session at this epoch")
    other = F.concat(F.lit(", and at this epoch the session was owned by "), F.array_join("owners", ", "))
    note = F.concat(_deliveries(), F.when(F.col("owners").isNull(), nobody).otherwise(other))
    other_epoch = F.when(F.col("owners").isNotNull(), F.col("epoch"))
    reason = F.when(F.col("owners").isNull(), Reason.NO_OWNER).otherwise(Reason.NOT_THE_OWNER)
    return findings(unowned.withColumn("other_epoch", other_epoch), doubt.UNOWNED, note, reason=reason)


def deliveries_beyond_cuts(journal: DataFrame) -> DataFrame:
    """Find the deliveries from beyond the cut at which their owner had let the session go (H1), one finding for each,
    in the shape of :func:`spark.finding.findings`.

    A cut is the frontier of `released`, if the incarnation that served the session attests it, and has not served the
    session again at that epoch; and that of `owned` at the next epoch after a handover or a thaw, which begins where
    the owner before had come to. After a failover or a restart the next owner may begin earlier; and where `owned` of
    the next epoch is missing, as of a process that was killed, a later one tells nothing of this epoch. A fact that is
    missing could attest another owner: where one is, these are doubtful (spark/doubt.py).

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    deliveries = of_kind(journal, FactKind.RECEIVED).withColumn("offset", F.explode("offsets"))
    deliveries = deliveries.join(_released(journal), on=[*_OWNERSHIP, "proxy"], how="left")
    deliveries = deliveries.join(_taken_over(journal), on=_OWNERSHIP, how="left")
    # Where the owner itself attests the end of the session, what comes after it is out of life (spark/ends.py).
    deliveries = deliveries.join(
        ends.deletions(journal).select(*_OWNERSHIP, "proxy"), [*_OWNERSHIP, "proxy"], "left_anti"
    )
    cuts = [_upto(name) for name in ("released_at", "taken_over_at")]
    beyond = deliveries.withColumn("cut", F.least(*cuts)).where(F.col("offset") > F.col("cut"))
    note = F.concat(F.lit("beyond the cut of its owner, which is "), F.col("cut"))
    return findings(beyond, doubt.UNOWNED, note, reason=Reason.BEYOND_CUT)


def _upto(cut: str) -> Column:
    """Return how far a cut goes in the origin of the row; null: there is no cut."""
    return F.when(F.col(cut).isNotNull(), F.coalesce(F.try_element_at(cut, F.col("origin")), F.lit(NOTHING)))


def _released(journal: DataFrame) -> DataFrame:
    """Return `session`, `epoch`, `proxy`, and `released_at`: the cut at which the incarnation that served let go."""
    steps = journal.where(F.col("kind").isin(FactKind.OWNED, FactKind.RELEASED))
    is_release = F.col("kind") == FactKind.RELEASED
    last = steps.groupBy(*_OWNERSHIP, "proxy").agg(
        F.count_distinct("writer").alias("incarnations"),
        F.max_by(is_release, "number").alias("is_released"),
        F.min(is_release).alias("was_never_served"),
        F.max_by("frontier", "number").alias("released_at"),
    )
    cuts = last.where((F.col("incarnations") == 1) & F.col("is_released") & ~F.col("was_never_served"))
    return cuts.select(*_OWNERSHIP, "proxy", "released_at")


def _taken_over(journal: DataFrame) -> DataFrame:
    """Return `session`, `epoch`, and `taken_over_at`: where the owner of the next epoch began, if it went on at a
    cut.
    """
    first = F.min_by(F.struct("cause", "frontier"), "number").alias("begun")
    owned = of_kind(journal, FactKind.OWNED).groupBy("session", "generation", "epoch").agg(first)
    following = Window.partitionBy("session", "generation").orderBy("epoch")
    begun = owned.select(
        *_OWNERSHIP, *(F.lead(name).over(following).alias(f"next_{name}") for name in ("epoch", "begun"))
    )
    is_next = F.col("next_epoch") == F.col("epoch") + 1
    cut = F.col("next_begun.cause").isin(*CONTINUING) & (F.size("next_begun.frontier") > 0)
    return begun.where(is_next & cut).select(*_OWNERSHIP, F.col("next_begun.frontier").alias("taken_over_at"))


def split_ownership(journal: DataFrame) -> DataFrame:
    """Find the epochs of a session that two proxies attest to own, or two incarnations of one (H2), in the shape of
    :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    split = _owners(journal).where((F.size("owners") > 1) | (F.size("writers") > 1))
    first, second = F.get("owners", F.lit(0)), F.coalesce(F.get("owners", F.lit(1)), F.get("owners", F.lit(0)))
    note = F.when(F.size("owners") > 1, F.array_join("owners", ", ")).otherwise(F.array_join("writers", ", "))
    reason = F.when(F.size("owners") > 1, Reason.TWO_PROXIES).otherwise(Reason.TWO_INCARNATIONS)
    return findings(split, "H2", note, reason=reason, proxy=first, other_proxy=second, other_epoch="epoch")


def unended_transfers(journal: DataFrame) -> DataFrame:
    """Find the transfers that a proxy began, and of which it attests no end (H3), one finding for each role, in the
    shape of :func:`spark.finding.findings`.

    A transfer has to end before its proxy closes its journal. Where the journal goes on (`marked`), it is one if the
    proxy itself attests in between that it does not own that epoch any more, or owns a later one; or if the phase takes
    longer than TRANSFER_MS. That of a process that was killed has ended with it.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    steps = of_kind(journal, FactKind.HANDOVER)
    last = F.max_by(F.struct("phase", "number", "at_ms", "session", "generation", "epoch", "proxy"), "number")
    left = steps.groupBy("transfer", "role", "writer").agg(last.alias("last"))
    left = left.select("transfer", "role", "writer", "last.*").where(~F.col("phase").isin(*TransferEnd))
    ends = journal.where(F.col("kind").isin(FactKind.CLOSED, FactKind.MARKED)).select(
        "writer", F.col("number").alias("later"), F.col("at_ms").alias("later_ms"), F.col("kind").alias("later_kind")
    )
    known = journal.where(F.col("kind").isin(FactKind.OWNED, FactKind.RELEASED)).select(
        "writer",
        "session",
        "generation",
        F.col("number").alias("between"),
        F.when(F.col("kind") == FactKind.OWNED, F.col("epoch")).otherwise(F.col("epoch") + 1).alias("known_epoch"),
    )
    seen = left.join(ends, on="writer").where(F.col("later") > F.col("number"))
    seen = seen.join(known, on=["writer", "session", "generation"], how="left")
    is_between = F.col("between").between(F.col("number"), F.col("later")) & (F.col("known_epoch") > F.col("epoch"))
    is_over = (
        (F.col("later_kind") == FactKind.CLOSED)
        | F.coalesce(is_between, F.lit(False))
        | (F.col("later_ms") - F.col("at_ms") > TRANSFER_MS)
    )
    stalled = seen.where(is_over).dropDuplicates(["transfer", "role", "writer"])
    note = F.concat(
        F.lit("transfer "), F.col("transfer"), F.lit(" began "), F.col("phase"), F.lit(" as "), F.col("role"),
        F.lit(", and never ended"),
    )  # fmt: skip
    return findings(stalled, "H3", note, reason=F.col("phase"))


def _killed(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Return the incarnations that ended without closing their journal: `writer`."""
    closed = of_kind(journal, FactKind.CLOSED).select("writer")
    return journals.ended(journal, dropped).distinct().join(closed, on="writer", how="left_anti")


def _ends(journal: DataFrame, killed: DataFrame) -> DataFrame:
    """Return `proxy`, and of its incarnations: `is_killed`, one was killed; `is_closed`, one ended in order."""
    closed = of_kind(journal, FactKind.CLOSED).select("writer")
    ends = killed.withColumn("by_kill", F.lit(True)).unionByName(closed.withColumn("by_kill", F.lit(False)))
    named = ends.groupBy(proxy_of("writer").alias("proxy"))
    return named.agg(F.max("by_kill").alias("is_killed"), F.max(~F.col("by_kill")).alias("is_closed"))


def _attesting(journal: DataFrame, killed: DataFrame) -> DataFrame:
    """Return `session`, `epoch` and `proxy` where an incarnation that was killed attests anything else of serving."""
    attested = journal.where(~F.col("kind").isin(FactKind.RECEIVED, FactKind.HANDOVER, FactKind.RELEASED))
    attested = attested.where(F.col("session") != "").join(killed, on="writer", how="left_semi")
    return attested.select(*_OWNERSHIP, proxy_of("writer").alias("proxy")).distinct()


def _owners(journal: DataFrame) -> DataFrame:
    """Return `session` and `epoch`, and sorted: `owners`, the proxies that attest to own it then, and `writers`, their
    incarnations.
    """
    proxies, writers = F.sort_array(F.collect_set("proxy")), F.sort_array(F.collect_set("writer"))
    owned = of_kind(journal, FactKind.OWNED).groupBy(*_OWNERSHIP)
    return owned.agg(proxies.alias("owners"), writers.alias("writers"))


def _received(journal: DataFrame) -> DataFrame:
    """Return the facts by which receivers attest deliveries, and as `offset` the first that each names."""
    return of_kind(journal, FactKind.RECEIVED).withColumn("offset", F.get("offsets", F.lit(0)))


def _deliveries() -> Column:
    return F.format_string("%d deliveries in this fact", F.size("offsets"))
