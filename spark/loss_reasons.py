"""A second look at notifications that were owed and not delivered: lost, lost in a handover, unseen, pending, or
excused.

A loss counts only behind a closed horizon: a closing marker in the origin's log covers it, and a `drained` fact says
that the receiver was there, and idle, when all up to it had been handed over. Before that it is pending (L5) as long as
nothing says that the receiver has come to it: it is away, or reads on. Where the receiver got something behind it, or
has everything up to there though no marker covers it, it is unseen (L3), and so it is if the receiver's own journal has
a hole.

A loss is excused (L4) if policy removed it: if every subscription by which it is owed had stated, before that, a policy
of a kind that the removal names, and the records bear it out - the time to live had passed since it was published, or
so many that match came after it - or the session had a queue of that kind. Whoever removed it is not asked. And if the
session was deleted, which takes along all that its receivers do not have; a name that was created again has epochs of a
later generation, which says so too. And if it waited for a receiver when the process that kept it ended, and that
receiver had said before that best effort is enough for its events. And if the receiver had got, in the log's order,
something behind it in an epoch before the subscription was made, or had these keys: the order (P3) forbids to give what
the receiver has passed, so no later subscription owes it (handover rule 30).

A loss is one in a handover (L2) if the session changed its owner, by a handover, a failover or a thaw, between the
deliveries on either side of it: the nearest of the same origin below and above. Where there is none, the first
and the last epoch of the session stand in.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.comparison import LOST
from spark.ends import departures
from spark.finding import Reason, findings
from spark.journal import SESSION_GENERATION, of_kind, torn_receivers
from spark.obligations import KEY
from spark.obligations import RECEIVER as _RECEIVER
from waypost.facts import FactKind, GapCause, OwnedCause, RemovalPolicy
from waypost.identity import NOTHING
from waypost.queue import ORDERS, goes_by_attributes

_RANKS = ("L3", "L5", "L1", "L4")
"""The classes of one coordinate, the one that decides for all coordinates of an id first."""
_ANNOUNCED_RANK = 9
"""The rank of a notification in a gap that its receiver was told of."""
CLOCKS_MS = 5_000
"""The most that the clocks of two proxies may differ: by so much a time to live may have passed too early."""
HANDOVERS = (OwnedCause.HANDOVER, OwnedCause.FAILOVER, OwnedCause.THAW)
"""Causes of `owned` that mean that another proxy, or the same after a break, took over."""

_IDENTITY = [*_RECEIVER, "producer", "incarnation", "sequence"]


def losses(
    rows: DataFrame, journal: DataFrame, horizons: DataFrame, owing: Callable[[DataFrame], DataFrame]
) -> DataFrame:
    """Find L1 to L5, one finding for each notification and receiver, in the shape of :func:`spark.finding.findings`.

    An id that has several coordinates is lost only if none of them may still come, and excused only if all are. A
    notification in a gap that its receiver was told of is no finding here (:func:`gaps`).

    Args:
        rows: judged deliveries (:func:`spark.comparison.judged`); those with the code LOST are looked at.
        journal: facts, each once (:func:`spark.journal.once`).
        horizons: :func:`spark.sitelogs.horizon`.
        owing: returns the policies under which rows with the columns :data:`spark.obligations.KEY` are owed
            (:func:`spark.obligations.owing`).
    """
    missed = rows.where(F.array_contains("codes", LOST)).select(*_IDENTITY, "origin", "offset", "since_epoch")
    looked_at = _with_excuses(_with_horizon(missed, journal, horizons), journal, owing(missed))
    rank = (
        F.when(F.col("is_gap"), _ANNOUNCED_RANK)
        .when(F.col("excuse").isNotNull(), _RANKS.index("L4"))
        .when(F.col("is_ahead"), _RANKS.index("L5"))
        .when(F.col("is_open"), _RANKS.index("L3"))
        .otherwise(_RANKS.index("L1"))
    )
    coordinate = F.struct(rank.alias("rank"), "origin", "offset", "excuse", "reason")
    # A notification that no log knows (spark/unreported.py) has a coordinate and no id.
    nameless = F.when(F.col("producer").isNull(), F.struct("origin", "offset"))
    worst = looked_at.groupBy(*_IDENTITY, nameless.alias("nameless")).agg(F.min(coordinate).alias("worst"))
    apart = worst.select(*_IDENTITY, "worst.*").where(F.col("rank") < _ANNOUNCED_RANK)
    code = F.element_at(F.array(*map(F.lit, _RANKS)), F.col("rank") + 1)
    return _with_handovers(apart.withColumn("code", code), rows, journal)


def excuses(missed: DataFrame, journal: DataFrame, owing: DataFrame) -> DataFrame:
    """Return the :data:`spark.obligations.KEY` of the notifications that were missed and are excused, or lie in a gap
    that was reported to the receiver.

    Excuses are a removal by a policy, the deletion of the session, and the loss with a process under best effort. That
    a receiver has left, or had passed the notification, does not count here.

    Args:
        missed: rows with the columns `KEY`, owed and not delivered.
        journal: facts, each once (:func:`spark.journal.once`).
        owing: the policies under which they are owed (:func:`spark.obligations.owing`).
    """
    first_look = missed.withColumns({"has_left": F.lit(False), "had_passed": F.lit(False)})
    looked_at = _with_excuses(first_look, journal, owing)
    return looked_at.where(F.col("is_gap") | F.col("excuse").isNotNull()).select(*KEY).distinct()


def _with_horizon(missed: DataFrame, journal: DataFrame, horizons: DataFrame) -> DataFrame:
    """Add `is_open`: it may still have come; `is_ahead`: it may, and nothing says that its receiver has come to it;
    `has_left`: it may, and its receiver has left for good; and `had_passed`: its receiver had got something behind it
    before any subscription that matches it was made.
    """
    stated = of_kind(journal, FactKind.DRAINED).select(*_RECEIVER, F.explode("frontier").alias("origin", "upto"))
    drained = stated.groupBy(*_RECEIVER, "origin").agg(F.max("upto").alias("drained_upto"))
    torn = torn_receivers(journal).withColumn("is_torn", F.lit(True))
    gone = departures(journal).select(*_RECEIVER, F.lit(True).alias("is_gone"))
    joined = (
        missed.join(horizons, on="origin", how="left")
        .join(drained, on=[*_RECEIVER, "origin"], how="left")
        .join(torn, on=_RECEIVER, how="left")
        .join(_passed(journal), on=[*_RECEIVER, "origin"], how="left")
        .join(gone, on=_RECEIVER, how="left")
    )
    is_torn, is_beyond = F.col("is_torn").isNotNull(), {}
    for name in ("closed_upto", "drained_upto", "passed_upto"):
        is_beyond[name] = F.coalesce(name, F.lit(NOTHING)) < F.col("offset")
    is_open = is_torn | is_beyond["closed_upto"] | is_beyond["drained_upto"]
    had_passed = F.exists(
        "passed_by_epoch",
        lambda passed: (passed["epoch"] < F.col("since_epoch")) & (passed["upto"] > F.col("offset")),
    )
    return joined.select(
        *_IDENTITY,
        "origin",
        "offset",
        is_open.alias("is_open"),
        (~is_torn & is_beyond["drained_upto"] & is_beyond["passed_upto"]).alias("is_ahead"),
        (is_open & F.coalesce("is_gone", F.lit(False))).alias("has_left"),
        F.coalesce(had_passed, F.lit(False)).alias("had_passed"),
    )


def _passed(journal: DataFrame) -> DataFrame:
    """Return, by receiver and origin, `passed_upto`: the highest offset that it got in the order of the log; and
    `passed_by_epoch`: the same of each epoch, an array of structs of `epoch` and `upto`.
    """
    facts = of_kind(journal, FactKind.RECEIVED).where(~F.col("order").isin(*filter(goes_by_attributes, ORDERS)))
    # Partitioned by the wider key, the rows are exchanged once for both steps.
    apart = facts.repartition(*_RECEIVER, "origin")
    upto = F.max(F.array_max("offsets")).alias("upto")
    by_epoch = F.collect_list(F.struct("epoch", "upto")).alias("passed_by_epoch")
    highest = apart.groupBy(*_RECEIVER, "origin", "epoch").agg(upto)
    return highest.groupBy(*_RECEIVER, "origin").agg(F.max("upto").alias("passed_upto"), by_epoch)


def _with_excuses(missed: DataFrame, journal: DataFrame, owing: DataFrame) -> DataFrame:
    """Add `excuse`, for people, null: there is none; `reason`, its code; and `is_gap`: the receiver was told of a gap
    there, which is a G1.
    """
    removed = missed.join(_removals(missed, journal, owing), on=KEY, how="left")
    deleted = removed.join(_deletions(journal), on=SESSION_GENERATION, how="left")
    unpersisted = deleted.join(_lost_with_process(missed, journal), on=KEY, how="left")
    left = F.when(F.col("has_left"), F.lit("the receiver left for good"))
    passed = F.when(F.col("had_passed"), F.lit("the receiver had passed it before the subscription was made"))
    reason = (
        F.when(F.col("removal").isNotNull(), F.get(F.split("removal", " and "), F.lit(0)))
        .when(F.col("deletion").isNotNull(), F.col("deletion_reason"))
        .when(F.col("expiry").isNotNull(), F.col("expiry"))
        .when(F.col("has_left"), Reason.RECEIVER_LEFT)
        .when(F.col("had_passed"), Reason.PASSED_BEFORE)
    )
    excuse = F.coalesce("removal", "deletion", "expiry", left, passed)
    excused = unpersisted.withColumns({"excuse": excuse, "reason": reason})
    bounds = F.col("m.offset").between(F.col("x.first"), F.col("x.last"))
    gaps = gap_facts(journal).withColumnRenamed("receiver", "of_receiver").withColumn("is_gap", F.lit(True))
    reported = excused.alias("m").join(gaps.alias("x"), on=_concerns(bounds), how="left")
    return reported.select("m.*", F.col("x.is_gap").isNotNull().alias("is_gap")).distinct()


def _removals(missed: DataFrame, journal: DataFrame, owing: DataFrame) -> DataFrame:
    """Return `removal`, the policies, of each KEY that was removed as all subscriptions that it is owed by allow."""
    removed = of_kind(journal, FactKind.REMOVED).select(
        *SESSION_GENERATION,
        F.col("receiver").alias("of_receiver"),
        "origin",
        F.explode("offsets").alias("offset"),
        "policies",
        F.struct("epoch", "number").alias("said"),
        F.col("at_ms").alias("removed_ms"),
    )
    same_offset = F.col("m.offset") == F.col("x.offset")
    met = missed.join(owing, on=KEY).alias("m").join(removed.alias("x"), on=_concerns(same_offset))
    bounded = met.join(
        _bounds(journal), on=[F.col(f"m.{name}") == F.col(f"b_{name}") for name in SESSION_GENERATION], how="left"
    )
    allowed = bounded.where(F.forall("m.terms", _allows) | _allowed_by_the_queue())
    return allowed.groupBy(*(f"m.{name}" for name in KEY)).agg(
        F.min(F.array_join("x.policies", " and ")).alias("removal")
    )


def _allows(column: Column) -> Column:
    """Tell whether a subscription on these terms had stated before a policy of a kind that the removal names, and the
    records bear it out: the time had passed, or so many had come.
    """
    ages = _names(RemovalPolicy.TIME_TO_LIVE) | _names(RemovalPolicy.TIME_TO_LIVE_BY_LOG)
    age_ms = F.col("x.removed_ms") - F.col("m.published_ms")
    has_passed = age_ms + CLOCKS_MS >= column["least_ttl_s"] * 1000
    by_age = ages & (column["ages_since"] < F.col("x.said")) & has_passed
    has_followed = column["followed"] >= column["least_count"]
    by_count = _names(RemovalPolicy.MAX_COUNT) & (column["counts_since"] < F.col("x.said")) & has_followed
    return F.coalesce(by_age, F.lit(False)) | F.coalesce(by_count, F.lit(False))


def _names(policy: RemovalPolicy) -> Column:
    """Tell whether the removal names the policy."""
    return F.array_contains("x.policies", policy.value)


def _lost_with_process(missed: DataFrame, journal: DataFrame) -> DataFrame:
    """Return `expiry`, the cause, of each KEY that was lost with its process, where the receiver's last attach before
    that asked for best effort.
    """
    position = F.struct("epoch", "number")
    arrivals = journal.where(F.col("kind").isin(FactKind.ATTACHED, FactKind.REGISTERED))
    attached = arrivals.select(*_RECEIVER, "best_effort", position.alias("at"))
    reported = _gap_facts(journal).where(F.col("cause") == GapCause.LOST_WITH_PROCESS).withColumn("said", position)
    before = reported.join(attached, on=_RECEIVER).where(F.col("at") < F.col("said"))
    last = before.groupBy(*_RECEIVER, "origin", "first", "last", "cause", "said").agg(
        F.max_by("best_effort", "at").alias("allows")
    )
    allowing = last.where("allows")
    within = F.col("m.offset").between(F.col("x.first"), F.col("x.last"))
    same = [F.col(f"m.{name}") == F.col(f"x.{name}") for name in (*_RECEIVER, "origin")]
    met = missed.alias("m").join(allowing.alias("x"), on=reduce(Column.__and__, same, within))
    return met.groupBy(*(f"m.{name}" for name in KEY)).agg(F.min("x.cause").alias("expiry"))


def _bounds(journal: DataFrame) -> DataFrame:
    """Return, for each session, since which fact it has had a queue that discards, and one in which deadlines count."""
    stated = of_kind(journal, FactKind.POLICY).where(F.col("subscription") == "")
    position = F.struct("epoch", "number")
    bounded, deadlines = (F.col("max_count") > 0) | (F.col("bytes") > 0), F.col("deadlines")
    names = [F.col(name).alias(f"b_{name}") for name in SESSION_GENERATION]
    return stated.groupBy(*names).agg(
        F.min(F.when(bounded, position)).alias("bounded_since"),
        F.min(F.when(deadlines, position)).alias("deadlines_since"),
    )


def _allowed_by_the_queue() -> Column:
    """Tell whether the session had stated before a queue of a kind that the removal names."""
    kinds = {RemovalPolicy.MAX_QUEUE: "bounded_since", RemovalPolicy.DEADLINE: "deadlines_since"}
    named = [_names(policy) & (F.col(since) < F.col("x.said")) for policy, since in kinds.items()]
    return F.coalesce(named[0], F.lit(False)) | F.coalesce(named[1], F.lit(False))


def _deletions(journal: DataFrame) -> DataFrame:
    """Return `deletion`, for people, and `deletion_reason`, the code, of each session that was deleted; a later session
    of its name implies it too.
    """
    stated = of_kind(journal, FactKind.DELETED).groupBy(*SESSION_GENERATION).agg(F.min("reason").alias("reason"))
    last = F.max("generation").over(Window.partitionBy("session"))
    generations = journal.where(F.col("session") != "").select(*SESSION_GENERATION).distinct().withColumn("last", last)
    known = generations.join(stated, on=SESSION_GENERATION, how="left")
    following = F.when(F.col("generation") < F.col("last"), F.lit("deleted, and created again"))
    code = F.when(F.col("reason").isNotNull(), Reason.SESSION_DELETED).otherwise(Reason.SESSION_CREATED_AGAIN)
    deletion = F.coalesce("reason", following).alias("deletion")
    stated = known.select(*SESSION_GENERATION, deletion, code.alias("deletion_reason"))
    return stated.where(F.col("deletion").isNotNull())


def _concerns(coordinate: Column) -> Column:
    """Match a fact about a session, or about one receiver of it (`x`), with notifications that were missed (`m`)."""
    same = F.col("m.origin") == F.col("x.origin")
    for name in SESSION_GENERATION:
        same &= F.col(f"m.{name}") == F.col(f"x.{name}")
    return same & coordinate & F.col("x.of_receiver").isin("") | same & coordinate & (
        F.col("x.of_receiver") == F.col("m.receiver")
    )


def gap_facts(journal: DataFrame) -> DataFrame:
    """Return each gap in the logs that was reported to receivers: `session`, `generation` and `receiver`, which is ""
    for all of the session; `origin`, `first`, `last` and `cause` of the gap; and `epoch`, `proxy`, `writer` and
    `number` of the fact.

    What was lost with a proxy's process is left out.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    return _gap_facts(journal).where(F.col("cause") != GapCause.LOST_WITH_PROCESS)


def _gap_facts(journal: DataFrame) -> DataFrame:
    bounds = {"first": F.col("offsets").getItem(0), "last": F.element_at(F.col("offsets"), -1)}
    reported = of_kind(journal, FactKind.GAP).where(F.size("offsets") > 0).withColumns(bounds)
    return reported.select(*_RECEIVER, "origin", "first", "last", "epoch", "proxy", "writer", "number", "cause")


def gaps(journal: DataFrame) -> DataFrame:
    """Find the gaps in the logs that receivers were told of (G1), in the shape of :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    reported = gap_facts(journal)
    note = F.concat(F.lit("up to "), F.col("last"), F.lit(" could not be had: "), F.col("cause"))
    return findings(reported, "G1", note, reason=F.col("cause"), offset="first")


# ---------------------------------------------------------------- handovers around


def _with_handovers(lost: DataFrame, rows: DataFrame, journal: DataFrame) -> DataFrame:
    around = _with_neighbours(lost, rows).join(_owners(journal), on=SESSION_GENERATION, how="left")
    before = F.coalesce(F.col("before.epoch"), F.col("first_epoch"))
    after = F.coalesce(F.col("after.epoch"), F.col("last_epoch"))
    between = F.filter("takeovers", lambda taken: (taken["epoch"] > before) & (taken["epoch"] <= after))
    looked = around.withColumns({"takeover": F.get(between, F.lit(0)), "other_epoch": before, "epoch": after})
    code = F.when((F.col("code") == "L1") & F.col("takeover").isNotNull(), "L2").otherwise(F.col("code"))
    taken = F.format_string("epoch %d went to %s by %s", "takeover.epoch", "takeover.proxy", "takeover.cause")
    note = F.coalesce("excuse", F.when(F.col("takeover").isNotNull(), taken), F.lit(""))
    reason = (
        F.when(code == "L2", F.col("takeover.cause"))
        .when(code == "L3", Reason.NOT_DRAINED)
        .otherwise(F.coalesce("reason", F.lit("")))
    )
    return findings(looked, code, note, reason=reason, proxy="after.proxy", other_proxy="before.proxy")


def _with_neighbours(lost: DataFrame, rows: DataFrame) -> DataFrame:
    """Add `before` and `after`: epoch and proxy of the nearest deliveries of the same origin to the same receiver."""
    stream = [*_RECEIVER, "origin"]
    concerned = lost.select(*stream).distinct()
    delivered = rows.where("is_delivery").select(*stream, "offset", F.struct("epoch", "proxy").alias("owner"))
    relevant = delivered.join(concerned, on=stream, how="left_semi")
    together = lost.unionByName(relevant, allowMissingColumns=True)
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
    owned = of_kind(journal, FactKind.OWNED)
    takeover = F.when(F.col("cause").isin(*HANDOVERS), F.struct("epoch", "proxy", "cause"))
    return owned.groupBy(*SESSION_GENERATION).agg(
        F.min("epoch").alias("first_epoch"),
        F.max("epoch").alias("last_epoch"),
        F.sort_array(F.collect_set(takeover)).alias("takeovers"),
    )
