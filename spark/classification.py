"""Every class of anomaly, from the evidence: DataFrames in, findings out, nothing read or written."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark import doubt, ends, epochs, loss_reasons, obligations, owners, retries, sitelogs, unreported
from spark import journal as journals
from spark.comparison import LOST, RETRIED, STRAY
from spark.epochs import Epochs
from spark.finding import SESSION, Reason, findings
from spark.journal import of_kind
from waypost.facts import FactKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence that all classes are judged by. Each frame is used several times, so the caller keeps them."""

    facts: DataFrame
    """All facts, numbered (:func:`spark.journal.numbered`), with repeats and unusable lines."""
    records: DataFrame
    """The records of all site logs (:func:`spark.readers.logs`)."""
    logs: DataFrame
    """The extent of each site log (:func:`spark.sitelogs.extents`)."""
    holes: DataFrame
    """The ranges that are missing from the logs (:func:`spark.sitelogs.holes`)."""
    unknown: DataFrame
    """The holes, the unreadable records, and the ranges beyond the ends of origins."""
    subscriptions: DataFrame
    wanted: DataFrame
    """Each subscription for each receiver of its session (:func:`spark.obligations.wants`)."""
    judged: DataFrame
    """Each delivery, and each notification that was owed and not delivered (:func:`spark.comparison.judged`)."""
    epochs: Epochs
    copies: DataFrame | None
    """Copies in other logs of notifications that a log lost with its end; None: no log lost its end."""
    is_dense: bool
    """Whether a record that is missing between two others is a hole."""

    @property
    def journal(self) -> DataFrame:
        """Each usable fact once (:func:`spark.journal.once`)."""
        return journals.once(self.facts)

    @property
    def truth(self) -> DataFrame:
        """All published notifications that a log has, in the shape of :func:`spark.sitelogs.published`."""
        published = sitelogs.published(self.records)
        return published if self.copies is None else published.unionByName(self.copies)

    @property
    def present(self) -> DataFrame | None:
        """The records, as of :func:`spark.sitelogs.with_completeness`, of logs in which a missing record is no hole;
        None: the logs are dense, so a missing record is one.
        """
        return None if self.is_dense else self.records

    @property
    def ends(self) -> DataFrame:
        """The end of each origin that has ended (:func:`spark.epochs.lost_ends`)."""
        return epochs.lost_ends(self.records.sparkSession, self.epochs)

    def owing(self, missed: DataFrame) -> DataFrame:
        """Return the policies under which notifications that were missed are owed, as :func:`spark.obligations.owing`
        does.

        Args:
            missed: rows with the columns :data:`spark.obligations.KEY`.
        """
        return obligations.owing(self.truth, self.wanted, missed)


def all_findings(evidence: Evidence, second_looks: Collection[str]) -> DataFrame:
    """Return every finding of every class, before missing evidence is weighed (:func:`spark.doubt.weighed`).

    Args:
        evidence: what the run left behind, as frames.
        second_looks: those of LOST, STRAY and RETRIED (:mod:`spark.comparison`) of which `judged` has any row; the
            findings that follow from another one are left out. Each costs a dozen shuffles even of nothing.

    Returns:
        Rows of the shape :data:`spark.schemas.FINDING`, with the column :data:`spark.finding.LACKS`.
    """
    parts = [_of_deliveries(evidence.judged)]
    if evidence.epochs:
        parts.append(epochs.lost(evidence.records.sparkSession, evidence.epochs))
    if LOST in second_looks:
        horizons = sitelogs.horizon(evidence.records)
        parts.append(loss_reasons.losses(evidence.judged, evidence.journal, horizons, evidence.owing))
    if STRAY in second_looks:
        parts.append(_of_strays(evidence))
    if RETRIED in second_looks:
        named = evidence.truth, evidence.wanted, evidence.journal, evidence.owing
        parts.append(retries.retries(evidence.judged, *named))
    parts += _of_journal(evidence) + _of_logs(evidence)
    return reduce(DataFrame.union, parts)


def with_unreported(evidence: Evidence) -> DataFrame:
    """Return the rows of `evidence.judged`, and one with the code LOST for each notification that a log lost with its
    end, that no log knows, and that a receiver was owed and did not get.

    Args:
        evidence: of a run in which a log lost its end.
    """
    later = evidence.records.where(F.col("kind") == "nobodys").select("site", F.col("position").alias("offset"))
    later = later.join(evidence.ends, on="site").select("origin", "offset")
    known = evidence.truth.select("origin", "offset").unionByName(later)
    missed = unreported.unreported(evidence.wanted, evidence.journal, evidence.ends, known)
    return evidence.judged.unionByName(missed, allowMissingColumns=True)


def _of_journal(evidence: Evidence) -> list[DataFrame]:
    journal, dropped = evidence.journal, sitelogs.expired_incarnations(evidence.records)
    return [
        loss_reasons.gaps(journal),
        owners.stale_epochs(journal),
        owners.unowned_deliveries(journal, dropped),
        owners.deliveries_beyond_cuts(journal),
        owners.split_ownership(journal),
        ends.after_deletion(journal),
        ends.after_departure(journal),
        owners.unended_transfers(journal),
        journals.repeats(evidence.facts),
        journals.unusable(evidence.facts),
        journals.malformed(journal),
        journals.holes(journal),
        journals.silenced(journal),
        journals.not_closed(journal, dropped),
        journals.behind_markers(journal, dropped, sitelogs.markers(evidence.records)),
        journals.unheard(journal, sitelogs.seen(evidence.records)),
        *_unusable_facts(evidence),
    ]


def _of_logs(evidence: Evidence) -> list[DataFrame]:
    return [
        _lost_after_acknowledgement(evidence),
        sitelogs.forwarded(evidence.records, evidence.truth, evidence.logs, evidence.unknown, evidence.present),
        sitelogs.damaged(evidence.records),
        sitelogs.incomplete(evidence.holes),
        sitelogs.shorter_than_named(evidence.records, evidence.journal, evidence.logs, evidence.ends),
        sitelogs.not_closed(evidence.logs, _mentioned(evidence.journal)),
    ]


def _of_deliveries(judged: DataFrame) -> DataFrame:
    with_code = judged.where(F.size("codes") > 0).withColumn("code", F.explode("codes"))
    final = with_code.where(~F.col("code").isin(LOST, STRAY, RETRIED))
    return findings(final, F.col("code"), reason=F.when(F.col("code") == "P4", Reason.UNSUBSCRIBED).otherwise(""))


def _of_strays(evidence: Evidence) -> DataFrame:
    """Tell deliveries that no subscription matches (P3) from those of notifications that were never published (P1).

    Where a log cannot tell whether one was published, they are doubtful (A5). There is no finding where the body or one
    of the session's expressions cannot be read: others say that.
    """
    strays = evidence.judged.where(F.array_contains("codes", STRAY)).drop("producer", "incarnation", "sequence")
    doubtful = evidence.subscriptions.where(~F.coalesce("is_usable", F.lit(False))).select("session").distinct()
    known = evidence.truth.withColumn("is_published", F.lit(True)).drop("digest")
    joined = strays.join(known, on=["origin", "offset"], how="left")
    joined = joined.join(doubtful.withColumn("is_doubtful", F.lit(True)), on="session", how="left")
    looked = sitelogs.with_completeness(joined, evidence.logs, evidence.unknown, evidence.present)
    is_mismatch = F.col("is_published") & F.col("matched").isNotNull() & F.col("is_doubtful").isNull()
    is_phantom = F.col("is_published").isNull() & F.col("complete")
    is_unknown = F.col("is_published").isNull() & F.col("offset").isNotNull() & ~F.col("complete")
    code = F.when(is_mismatch, "P3").when(is_phantom, "P1").when(is_unknown, doubt.CODE)
    judged = looked.withColumn("code", code).where(F.col("code").isNotNull())
    note = F.when(is_unknown, "no log says what was published there").otherwise("")
    return findings(judged, F.col("code"), note, reason=F.when(is_unknown, Reason.UNKNOWN_RECORD).otherwise(""))


def _lost_after_acknowledgement(evidence: Evidence) -> DataFrame:
    """Find the notifications that were acknowledged to a producer, and are not in the log (L1, L3)."""
    facts = of_kind(evidence.journal, FactKind.ACKNOWLEDGED)
    acknowledged = facts.select("origin", F.explode("offsets").alias("offset"), "writer", "number")
    present = evidence.truth.select("origin", "offset")
    absent = acknowledged.join(present, on=["origin", "offset"], how="left_anti")
    if evidence.epochs:
        absent = absent.join(_under_an_earlier_name(evidence), on=["origin", "offset"], how="left_anti")
    once = absent.groupBy("origin", "offset").agg(F.min("writer").alias("writer"), F.min("number").alias("number"))
    looked = sitelogs.with_completeness(once, evidence.logs, evidence.unknown, evidence.present)
    if not evidence.epochs:
        return findings(looked, F.when(F.col("complete"), "L1").otherwise("L3"), "acknowledged, but not in the log")
    ends = F.broadcast(evidence.ends.select("origin", "first", "seen"))
    stated = looked.join(ends, on="origin", how="left").withColumn("is_stated", F.col("offset") <= F.col("seen"))
    is_beyond = ~F.coalesce("is_stated", F.lit(True)) & (F.col("offset") >= F.col("first"))
    note = F.when(F.col("is_stated") & (F.col("offset") >= F.col("first")), "lost with the end of its log")
    code = F.when(F.col("complete") | is_beyond, "L1").otherwise("L3")
    return findings(stated, code, F.concat_ws(", ", F.lit("acknowledged, but not in the log"), note))


def _under_an_earlier_name(evidence: Evidence) -> DataFrame:
    """Return the coordinates of records under an earlier origin, by which a proxy that learned late of a log epoch may
    have acknowledged them.
    """
    ends = evidence.ends.select("site", F.col("origin").alias("ended"), "seen")
    published = evidence.records.where(F.col("kind") == "published").join(F.broadcast(ends), on="site")
    later = published.where((F.col("offset") > F.col("seen")) & (F.col("origin") != F.col("ended")))
    return later.select(F.col("ended").alias("origin"), "offset")


def _mentioned(journal: DataFrame) -> DataFrame:
    """Return the origins that facts name."""
    named = journal.where(F.col("origin") != "").select("origin")
    stated = journal.where(F.col("kind").isin(*obligations.PROMISES))
    promised = stated.select(F.explode(F.map_keys("frontier")).alias("origin"))
    return named.unionByName(promised).distinct()


def _unusable_facts(evidence: Evidence) -> list[DataFrame]:
    """Find facts that are well formed and contradict others, or cannot be evaluated (A2)."""
    asked = evidence.subscriptions
    name = F.col("subscription")
    unreadable = asked.where(~F.coalesce("is_usable", F.lit(False)))
    twice = asked.where(F.col("variants") > 1).groupBy(*obligations.SUBSCRIPTION).agg(F.count("*").alias("times"))
    promised = obligations.promises(evidence.journal).select(*obligations.SUBSCRIPTION).distinct()
    unknown = promised.join(asked.select(*obligations.SUBSCRIPTION), on=obligations.SUBSCRIPTION, how="left_anti")
    return [
        findings(
            unreadable,
            "A2",
            F.concat(F.lit("the expression of subscription "), name, F.lit(" cannot be judged by")),
            reason=Reason.EXPRESSION,
            lacks=SESSION,
        ),
        findings(
            twice,
            "A2",
            F.concat(F.lit("two expressions for subscription "), name),
            reason=Reason.TWO_EXPRESSIONS,
            lacks=SESSION,
        ),
        findings(
            unknown,
            "A2",
            F.concat(F.lit("a promise for subscription "), name, F.lit(", which nobody subscribed")),
            reason=Reason.PROMISE_ALONE,
            lacks=SESSION,
        ),
    ]
