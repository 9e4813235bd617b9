"""The audit from end to end: read, judge, count, report."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark import classification, comparison, connector, doubt, epochs, obligations, readers, sitelogs
from spark import journal as journals
from spark import session as sessions
from spark.classification import Evidence
from spark.epochs import Epochs
from spark.matcher import Matcher
from spark.report import write_report
from spark.schemas import CLASSES, EXPRESSION, OK, UNKNOWN, VIOLATED
from spark.session import keep
from spark.source import Source, Topics, locate
from spark.verdict import MAX_EXAMPLES, Finding, Verdict
from waypost.errors import LogUnavailable


def run(
    input: str,
    report: Path | None = None,
    progress: Callable[[str], None] = lambda line: None,
    *,
    master: str | None = None,
) -> Verdict:
    """Audit a run, and return the verdict. The call blocks for seconds or minutes; a Spark session that it starts goes
    on.

    Args:
        input: the run: a folder, or kafka://SITE=HOST:PORT,.../PREFIX.
        report: the folder to which audit.json and audit.html are written, in place of earlier ones; None: no report.
        progress: called with a line for people before each step.
        master: Spark's master URL, as :func:`spark.session.build` takes it.

    Raises:
        BadInput: there is no run at `input`, a file is no site log, or all are empty.
        BadConfiguration: Java, Maven or Spark's connector is missing, a running Spark session does not fit
            (:func:`spark.session.build`), or a file for TLS cannot be read.
        LogUnavailable: Kafka does not answer, or does not hold these topics.
        Unreachable: Maven could not fetch the connector.
        OSError: the report cannot be written. Other errors of Spark are raised as they are.
    """
    source = locate(input)
    if isinstance(source, Topics):
        connector.require(progress)
    progress("starting Spark")
    verdict = judge(sessions.build(master), source, progress)
    if report is not None:
        write_report(verdict, input, report)
    return verdict


def judge(spark: SparkSession, source: Source, progress: Callable[[str], None] = lambda line: None) -> Verdict:
    """Audit a located run in this Spark session, and return the verdict. Nothing is written; the session's settings are
    changed during the call.

    Args:
        spark: a session of :func:`spark.session.build`.
        source: the run, as :func:`spark.source.locate` returns it.
        progress: called with a line for people before each step.

    Raises:
        BadInput: a file is no site log, or all are empty.
        BadConfiguration: the run is in Kafka, and the session was started without the connector.
        LogUnavailable: Kafka does not answer, or does not hold these topics. Other errors of Spark are raised as they
            are.
    """
    try:
        return _judged(spark, source, progress)
    except (PySparkException, Py4JJavaError) as error:
        if isinstance(source, Topics) and "kafka" in str(error):
            raise _kafka_error(str(error)) from error
        raise


def _kafka_error(text: str) -> LogUnavailable:
    if "UnknownTopicOrPartition" in text:
        return LogUnavailable("Kafka does not hold the topics PREFIX.SITE.log and PREFIX.SITE.journal of every site")
    causes = [line for line in text.splitlines() if "kafka" in line and "\tat " not in line]
    return LogUnavailable(f"Kafka could not be read: {causes[-1].strip() if causes else 'no reason given'}")


def _judged(spark: SparkSession, source: Source, progress: Callable[[str], None]) -> Verdict:
    progress("reading the journals")
    with sessions.tuned(spark, readers.size_rows(spark, source)):
        facts = keep(journals.numbered(readers.journals(spark, source)))
        program = _program(spark, journals.once(facts))
        progress(f"reading the site logs, by {len(program.matcher.texts):,} expressions")
        logs = _logs(spark, source, program.matcher, keep(readers.logs(spark, source, program.matcher)))
        facts_count, records_count = facts.count(), logs.records.count()
        rows = facts_count + records_count
        progress(f"comparing {facts_count:,} facts with {records_count:,} records")
    with sessions.tuned(spark, rows):
        evidence = _evidence(facts, logs, program.expressions, source.dense)
        return _verdict(evidence, progress)


@dataclass(frozen=True, slots=True)
class _Logs:
    """The site logs: their records, each with the origin of its log epoch; their extents; and their log epochs."""

    records: DataFrame
    extents: DataFrame
    epochs: Epochs
    copies: DataFrame | None


def _logs(spark: SparkSession, source: Source, matcher: Matcher, records: DataFrame) -> _Logs:
    """Return the site logs. Where one lost its end, all are read again: other logs may have copies of what was lost."""
    extents = keep(sitelogs.extents(records))
    known = epochs.of(records, extents)
    if not known:
        return _Logs(records, extents, known, None)
    records = keep(epochs.with_origins(records, known))
    beyond = {end.origin: end.first for end in known.lost}
    copies = readers.copies(spark, source, matcher, beyond)
    return _Logs(records, extents, known, keep(sitelogs.copied(copies, records)))


def _evidence(facts: DataFrame, logs: _Logs, expressions: DataFrame, dense: bool) -> Evidence:
    journal, records, spark = journals.once(facts), logs.records, facts.sparkSession
    continued = epochs.continued(spark, logs.epochs) if logs.epochs else None
    asked = keep(obligations.subscriptions(journal, expressions, continued))
    wanted = obligations.wants(asked, obligations.receivers(journal))
    holes = keep(sitelogs.holes(records, logs.extents, dense))
    unknown = holes.unionByName(sitelogs.unreadable(records))
    truth = sitelogs.published(records)
    if logs.copies is not None:
        unknown = unknown.unionByName(epochs.beyond(spark, logs.epochs))
        truth = truth.unionByName(logs.copies)
    stood = obligations.standing(truth, wanted)
    line = epochs.partition("origin") if logs.epochs else None
    evidence = Evidence(
        facts=facts,
        records=records,
        logs=logs.extents,
        holes=holes,
        unknown=keep(unknown),
        subscriptions=asked,
        wanted=wanted,
        judged=keep(comparison.judged(stood, obligations.deliveries(journal), line)),
        epochs=logs.epochs,
        copies=logs.copies,
        is_dense=dense,
    )
    if not logs.epochs:
        return evidence
    return replace(evidence, judged=keep(classification.with_unreported(evidence)))


@dataclass(frozen=True, slots=True)
class _Program:
    """Every distinct expression, and the table that gives each its number and says whether it can be evaluated."""

    matcher: Matcher
    expressions: DataFrame


def _program(spark: SparkSession, journal: DataFrame) -> _Program:
    matcher = Matcher([row[0] for row in _distinct_expressions(journal).collect()])
    table = [(text, number, matcher.is_usable(number)) for number, text in enumerate(matcher.texts)]
    return _Program(matcher, spark.createDataFrame(table, EXPRESSION))


def _distinct_expressions(journal: DataFrame) -> DataFrame:
    return (
        journal.where(F.col("kind").isin(*obligations.REQUESTS)).select("expression").distinct().orderBy("expression")
    )


def _verdict(evidence: Evidence, progress: Callable[[str], None]) -> Verdict:
    totals = comparison.totals(evidence.judged).collect()[0]
    progress(f"looking for anomalies in {totals['delivered']:,} deliveries of {totals['owed']:,} owed")
    second_looks = [code for code in (comparison.LOST, comparison.STRAY, comparison.RETRIED) if totals[code] > 0]
    found = classification.all_findings(evidence, second_looks)
    # A union has as many partitions as all its parts together, nearly all of them empty.
    found = doubt.weighed(keep(found.coalesce(found.sparkSession.sparkContext.defaultParallelism)))
    counts = {row["code"]: row["count"] for row in found.groupBy("code").count().collect()}
    return Verdict(
        verdict=overall(counts),
        counts={code: counts[code] for code in CLASSES if code in counts},
        # A record is appended again where its producer got no answer: it is one notification.
        published=evidence.records.where(F.col("kind") == "published")
        .select("producer", "incarnation", "sequence")
        .distinct()
        .count(),
        owed=totals["owed"],
        delivered=totals["delivered"],
        lost=counts.get("L1", 0) + counts.get("L2", 0),
        pending=counts.get("L5", 0),
        duplicated=counts.get("D1", 0) + counts.get("D2", 0),
        examples=_examples(found) if counts else [],
    )


def overall(counts: Iterable[str]) -> str:
    """Return the verdict on a run, "violated", "unknown" or "ok": the worst of :data:`spark.schemas.CLASSES` for these
    codes.

    Args:
        counts: the codes of the classes that have findings; none: "ok".
    """
    verdicts = {CLASSES[code][0] for code in counts}
    return next((verdict for verdict in (VIOLATED, UNKNOWN) if verdict in verdicts), OK)


def _examples(found: DataFrame) -> list[Finding]:
    order = Window.partitionBy("code").orderBy("session", "receiver", "origin", "offset", "writer", "number", "site")
    first = found.withColumn("rank", F.row_number().over(order)).where(F.col("rank") <= MAX_EXAMPLES)
    rows = first.orderBy("code", "rank").drop("rank").collect()
    return worst_first({name: value for name, value in row.asDict().items() if value is not None} for row in rows)


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in the order of a report: those that make the run violated, then unknown, then the others."""
    severity = (VIOLATED, UNKNOWN, OK)
    return sorted(findings, key=lambda finding: severity.index(CLASSES[finding["code"]][0]))
