"""The journal as evidence: each fact once, and the facts that are missing.

Facts of a writer are numbered 1, 2, 3, ... and end with `closed`, so a repeat and a hole are both visible; one that
goes on says `marked` where it has written down all so far. A repeat is removed before anything is judged (D4). A hole
makes the run's verdict unknown (A1), and so does a writer of which nothing says up to where it is complete.

A journal may be in parts, of which somebody has put away the oldest. Each begins with a fact of the journal's own
(`rotated`), numbered as the parts are, which says up to which number of each writer there were facts in those before.
Where the first of them that is there is not the first, what it speaks of is not a hole (A3), though as unknown as one.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark.finding import JOURNALS, SESSION, Reason, findings
from spark.schemas import CODES, FACT, REQUIRED
from waypost.facts import FactKind, RemovalPolicy
from waypost.identity import GENERATION

SESSION_GENERATION = ["session", "generation"]
"""The key of a session: one that was deleted and created again under the same name is another one."""


def numbered(facts: DataFrame) -> DataFrame:
    """Add two columns to facts: `copy`, a number from 1 on for the facts of one writer and number; and `differs`,
    whether a fact's contents are not those of copy 1.

    Args:
        facts: as :func:`spark.readers.journals` returns them.
    """
    # A receiver's fact is dated by the proxy that relays it: relayed by two, it is still the same fact.
    contents = [name for name in FACT.fieldNames() if name not in ("at_ms", "frontier")]
    fingerprint = F.xxhash64(*contents, F.map_entries("frontier"))
    copies = Window.partitionBy("writer", "number").orderBy("at_ms", "print")
    return (
        facts.repartition("writer")
        .withColumn("print", fingerprint)
        .withColumn("copy", F.row_number().over(copies))
        .withColumn("differs", F.col("print") != F.first("print").over(copies))
        .drop("print")
    )


def once(facts: DataFrame) -> DataFrame:
    """Return each usable fact once: the columns of :data:`spark.schemas.FACT`, and the `generation` of its session's
    epoch.

    Args:
        facts: as :func:`numbered` returns them.
    """
    generation = F.floor(F.col("epoch") / GENERATION).alias("generation")
    return _usable(facts).where(F.col("copy") == 1).select(*FACT.fieldNames(), generation)


def _usable(facts: DataFrame) -> DataFrame:
    return facts.where(F.col("unusable").isNull())


def of_kind(journal: DataFrame, kind: FactKind) -> DataFrame:
    """Return the facts of one kind.

    Args:
        journal: facts, each once (:func:`once`).
        kind: of the facts to return.
    """
    return journal.where(F.col("kind") == kind)


def repeats(facts: DataFrame) -> DataFrame:
    """Find the numbers of a writer under which two facts were written: the same (D4), or different ones (A2).

    Args:
        facts: as :func:`numbered` returns them.

    Returns:
        One row for each further fact, as :func:`spark.finding.findings` shapes it.
    """
    again = _usable(facts).where(F.col("copy") > 1).drop("origin")
    code = F.when(F.col("differs"), "A2").otherwise("D4")
    note = F.when(F.col("differs"), "another fact has this writer and number").otherwise("")
    # A receiver's library can hide by this only what its receiver got.
    hidden = F.when(F.col("kind") == FactKind.RECEIVED, SESSION).otherwise(JOURNALS)
    reason = F.when(F.col("differs"), Reason.NUMBER_USED_TWICE).otherwise("")
    return findings(again, code, note, reason=reason, lacks=F.when(F.col("differs"), hidden).otherwise(""))


def unusable(facts: DataFrame) -> DataFrame:
    """Find the lines of journals that are no facts (A2), in the shape of :func:`spark.finding.findings`.

    Args:
        facts: as :func:`numbered` returns them.
    """
    text = F.concat(F.lit("no fact, in "), F.col("source"), F.lit(": "), F.substring("unusable", 1, 120))
    lines = facts.where(F.col("unusable").isNotNull()).select("source", "unusable")
    return findings(lines, "A2", text, reason=Reason.NO_FACT, lacks=JOURNALS)


def malformed(journal: DataFrame) -> DataFrame:
    """Find the facts that are of no kind that is known, lack what their kind needs, or have a code that is not known
    (A2), in the shape of :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`once`).
    """
    kind = F.col("kind")
    lacking = {name: _lacks(name) & kind.isin(*kinds) for name, kinds in _kinds_by_field().items()}
    wrong = [(kind == of) & ~F.col("cause").isin("", *codes) for of, codes in CODES.items()]
    wrong.append(~F.forall("policies", lambda policy: policy.isin(*RemovalPolicy)))
    problem = (
        F.when(~kind.isin(*FactKind), Reason.UNKNOWN_KIND)
        .when(reduce(Column.__or__, lacking.values()), Reason.MISSING_FIELD)
        .when(reduce(Column.__or__, wrong), Reason.UNKNOWN_CODE)
        .when((kind == FactKind.RECEIVED) & (F.size("digests") != F.size("offsets")), Reason.UNEVEN_DIGESTS)
    )
    bad = journal.withColumn("problem", problem).where(F.col("problem").isNotNull())
    names = F.array_compact(F.array(*(F.when(lacks, name) for name, lacks in lacking.items())))
    note = (
        F.when(F.col("problem") == Reason.UNKNOWN_KIND, F.concat(F.lit("no fact is known of the kind "), kind))
        .when(F.col("problem") == Reason.MISSING_FIELD, F.concat(F.lit("it lacks "), F.array_join(names, ", ")))
        .when(F.col("problem") == Reason.UNKNOWN_CODE, F.concat_ws(" ", F.lit("of codes"), "cause", "policies"))
        .otherwise("not as many digests as offsets")
    )
    # Nobody knows what a fact of an unknown kind, or without a session, may be about.
    is_of_session = (F.col("session") != "") & (F.col("problem") != Reason.UNKNOWN_KIND)
    lacks = F.when(is_of_session, SESSION).otherwise(JOURNALS)
    return findings(bad, "A2", note, reason=F.col("problem"), lacks=lacks)


def _kinds_by_field() -> dict[str, list[FactKind]]:
    """Return the fields that any kind of fact needs, each with these kinds."""
    kinds: dict[str, list[FactKind]] = {}
    for kind, fields in REQUIRED.items():
        for field in fields:
            kinds.setdefault(field, []).append(kind)
    return kinds


def _lacks(field: str) -> Column:
    """Tell whether a fact has nothing in the field (:func:`spark.readers.parse_facts` gives it a default)."""
    return F.size(field) == 0 if isinstance(FACT[field].dataType, T.ArrayType) else F.col(field) == ""


def put_away(journal: DataFrame) -> DataFrame:
    """Return the last number of each writer in parts of journals that are not there any more: `writer`,
    `put_away_upto`.

    Args:
        journal: facts, each once (:func:`once`).
    """
    parts = of_kind(journal, FactKind.ROTATED).groupBy("writer")
    begins = parts.agg(F.min("number").alias("first"), F.min_by("frontier", "number").alias("before"))
    known = begins.where(F.col("first") > 1).select(F.explode("before").alias("writer", "upto"))
    return known.groupBy("writer").agg(F.max("upto").alias("put_away_upto"))


def missing(journal: DataFrame) -> DataFrame:
    """Return the missing ranges of fact numbers: `writer`; `first_missing`; `number`, of the fact that follows the
    range; and `is_receiver`: the writer has no facts but `received`.

    Args:
        journal: facts, each once (:func:`once`).
    """
    before = F.lag("number", 1, 0).over(Window.partitionBy("writer").orderBy("number"))
    is_receiver = F.min(F.col("kind") == FactKind.RECEIVED).over(Window.partitionBy("writer"))
    ranges = journal.select("writer", "number", (before + 1).alias("first_missing"), is_receiver.alias("is_receiver"))
    return ranges.where(F.col("number") > F.col("first_missing"))


def holes(journal: DataFrame) -> DataFrame:
    """Find the missing ranges of facts: those in parts that were put away (A3), and all others (A1).

    Args:
        journal: facts, each once (:func:`once`).

    Returns:
        One row for each range, as :func:`spark.finding.findings` shapes it.
    """
    gaps = missing(journal).join(put_away(journal), on="writer", how="left")
    last = F.col("number") - 1
    # A receiver's facts are in the journals of all proxies that it was attached at, so any part of them may be away.
    is_beginning = (F.col("first_missing") == 1) | F.col("is_receiver")
    is_away = F.coalesce(is_beginning & (last <= F.col("put_away_upto")), F.lit(False))
    why = F.when(is_away, "are in parts of a journal that were put away").otherwise("of this writer are missing")
    note = F.concat(F.lit("facts "), F.col("first_missing"), F.lit(" to "), last, F.lit(" "), why)
    # The missing facts of a receiver's library are deliveries: :func:`torn_receivers` has them.
    lacks = F.when(F.col("is_receiver"), "").otherwise(JOURNALS)
    reason = F.when(is_away, "").otherwise(Reason.FACTS_MISSING)
    return findings(gaps, F.when(is_away, "A3").otherwise("A1"), note, reason=reason, lacks=lacks)


def silenced(journal: DataFrame) -> DataFrame:
    """Find the writers all of whose facts are in parts that were put away (A3), in the shape of
    :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`once`).
    """
    silent = put_away(journal).join(journal.select("writer").distinct(), on="writer", how="left_anti")
    note = F.concat(
        F.lit("facts 1 to "), F.col("put_away_upto"), F.lit(" are in parts of a journal that were put away")
    )
    return findings(silent, "A3", note, lacks=JOURNALS)


def not_closed(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Find the writers whose journal may have gone on (A1): nothing says that they ended, or are complete so far.

    A writer says so itself (`closed`, `marked`), or another one does (`ended`, whose `proxy` names it), or a site log
    does: a proxy writes what it promises before it promises it, so nothing is missing once its lease has ended.
    Receivers' libraries, which have only `received` facts, do not close; `drained` says how far they had everything.

    Args:
        journal: facts, each once (:func:`once`).
        dropped: `proxy` and `incarnation` of those whose lease ended (:func:`spark.sitelogs.expired_incarnations`).

    Returns:
        One row for each writer, as :func:`spark.finding.findings` shapes it.
    """
    done = journal.where(F.col("kind").isin(FactKind.CLOSED, FactKind.MARKED)).select("writer")
    done = done.unionByName(ended(journal, dropped))
    writers = journal.groupBy("writer").agg(
        F.max("number").alias("number"),
        F.max(~F.col("kind").isin(FactKind.RECEIVED, FactKind.ROTATED)).alias("is_to_close"),
    )
    left = writers.where("is_to_close").join(done, on="writer", how="left_anti")
    note = "nothing says that this writer has ended, or up to where it is complete"
    return findings(left, "A1", note, reason=Reason.WRITER_OPEN, lacks=JOURNALS)


def behind_markers(journal: DataFrame, dropped: DataFrame, markers: DataFrame) -> DataFrame:
    """Find the writers whose facts are all older than a closing marker that they appended to a site log (A1): each of
    them attests that marker behind it, so the end of its journal is missing. Writers whose lease has ended are left
    out: they may have been killed before they attested the marker.

    Args:
        journal: facts, each once (:func:`once`).
        dropped: as of :func:`not_closed`.
        markers: `proxy`, `incarnation` and `marked_ms` (:func:`spark.sitelogs.markers`).

    Returns:
        One row for each writer, as :func:`spark.finding.findings` shapes it.
    """
    last = journal.groupBy("writer").agg(F.max("number").alias("number"), F.max("at_ms").alias("last_ms"))
    marked = markers.select(_writer().alias("writer"), "marked_ms")
    behind = last.join(marked, on="writer").where(F.col("last_ms") < F.col("marked_ms"))
    left = behind.join(ended(journal, dropped), on="writer", how="left_anti")
    note = "a closing marker of this writer is younger than all its facts"
    return findings(left, "A1", note, reason=Reason.WRITER_ENDS_EARLY, lacks=JOURNALS)


def ended(journal: DataFrame, dropped: DataFrame) -> DataFrame:
    """Return the proxies' writers whose lease has ended, as another proxy or a site log says: `writer`, some several
    times.

    Args:
        journal: facts, each once (:func:`once`).
        dropped: as of :func:`not_closed`.
    """
    attested = of_kind(journal, FactKind.ENDED).select(F.col("proxy").alias("writer"))
    return attested.unionByName(dropped.select(_writer().alias("writer")))


def unheard(journal: DataFrame, incarnations: DataFrame) -> DataFrame:
    """Find the incarnations of proxies that a site log knows, and that left no fact at all (A1).

    Args:
        journal: facts, each once (:func:`once`).
        incarnations: `proxy` and `incarnation` (:func:`spark.sitelogs.seen`).

    Returns:
        One row for each incarnation, as :func:`spark.finding.findings` shapes it.
    """
    known = incarnations.select(_writer().alias("writer")).distinct()
    present = journal.select("writer").unionByName(put_away(journal).select("writer")).distinct()
    silent = known.join(present, on="writer", how="left_anti")
    note = "a site log speaks of this writer, and there is no fact of it"
    return findings(silent, "A1", note, reason=Reason.WRITER_SILENT, lacks=JOURNALS)


def _writer() -> Column:
    return F.concat_ws("/", F.lit("proxy"), "proxy", "incarnation")


def proxy_of(writer: str) -> Column:
    """Return, as a column, the name of the proxy of which an incarnation wrote a fact; "": the writer is no proxy.

    Args:
        writer: the name of the column with the writer, ``proxy/NAME/INCARNATION`` of a proxy.
    """
    return F.regexp_extract(writer, "^proxy/(.*)/[^/]*$", 1)


def torn_receivers(journal: DataFrame) -> DataFrame:
    """Return the receivers some of whose `received` facts are missing: `session`, `generation`, `receiver`.

    Args:
        journal: facts, each once (:func:`once`).
    """
    attested = of_kind(journal, FactKind.RECEIVED).select("writer", *SESSION_GENERATION, "receiver").distinct()
    torn = missing(journal).select("writer").distinct()
    return attested.join(torn, on="writer", how="left_semi").select(*SESSION_GENERATION, "receiver").distinct()
