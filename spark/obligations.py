"""Obligations: the notifications that each receiver was owed; subscriptions as intervals of each origin.

A notification at (o, n) is owed to a receiver of a session if some subscription of the session matches it and
X0[o] < n <= R[o]. Names are used again: a session of one name that was deleted and created again is another session
(its epochs are of another *generation*), and so is a subscription that was taken back and made again
(`subscription_generation`). Facts of one generation may be written often, and the first ones be missing: every start of
serving writes again those that count (`restated`). Per generation of a subscription and origin:

X0    the first promise, of all `effective` and `restated` facts that name the origin: by epoch, then by time. Later
      ones repeat it after a handover, and may not lower it (handover rule 7, L_FIXED). Without one, nothing is owed.
      A promise for an origin that has ended is one for those that follow it, from where they begin (handover rule 27).
R     of the `unsubscribed` facts. An origin that they do not name was not reached, so nothing of it is owed; without
      such a fact the interval is open. If several disagree, the lowest counts for what is owed, and the highest
      for what may be delivered. Where they name an origin only as one of their `unknown_ends`, nothing of it is owed,
      and everything may be delivered: nobody lived to say more. What the session's deletion ended is owed up to where
      `deleted` says, which may come from a proxy that knows less than the owner did: it does not say what may be
      delivered.

The receivers of a session are those that attached, received or drained. One whose every `attached` fact reports a
frontier is owed nothing at or below the lowest of them: it came later, or had that already. A registered receiver is
owed what lies above its registration; of one that was registered again, only the last registration is judged. One that
left for good is owed no more than it was drained of (:mod:`spark.loss_reasons`).
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark.journal import SESSION_GENERATION, of_kind
from spark.keys import let_through
from waypost.facts import FactKind
from waypost.identity import NOTHING
from waypost.queue import ORDERS, goes_by_attributes

SUBSCRIPTION = [*SESSION_GENERATION, "subscription", "subscription_generation"]
RECEIVER = [*SESSION_GENERATION, "receiver"]
COORDINATE = ["origin", "offset"]
KEY = [*RECEIVER, *COORDINATE]
REQUESTS, PROMISES, POLICIES = (
    (FactKind.SUBSCRIBED, FactKind.RESTATED),
    (FactKind.EFFECTIVE, FactKind.RESTATED),
    (FactKind.POLICY, FactKind.RESTATED),
)
"""The kinds of facts with expressions of subscriptions, with promises, and with policies."""
TERMS = ("ages_since", "counts_since", "least_ttl_s", "least_count")
"""The policies of a subscription: the (epoch, number) of the first fact with a time to live, and of that with a maximum
count; and the shortest time, in s, and the smallest count that were ever stated. Null: there is none.
"""
OPEN_END = 1 << 62
"""Above every offset: no fact names the end of the interval."""


def subscriptions(journal: DataFrame, expressions: DataFrame, continued: DataFrame | None = None) -> DataFrame:
    """Return one row for each generation of a subscription, and for each expression and keys that facts state for it.

    A row has the columns :data:`SUBSCRIPTION`, those of :data:`spark.schemas.EXPRESSION`, the keys (`keys`,
    `secure_only`), :data:`TERMS`, and the bounds as maps by origin: `above` (X0), `until` (R, for what is owed) and
    `last` (R, for what may be delivered); `is_ended`, whether an `unsubscribed` fact is there; `since_epoch`, in which
    it was made; and `variants`, the number of rows of this generation. `is_sure` states whether anything is owed by the
    subscription: not if it has two expressions, or other keys at another time, or an expression that cannot be
    evaluated. It is never true, and may be null, for an expression that is not in `expressions`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
        expressions: of the shape :data:`spark.schemas.EXPRESSION`, of all subscribed and restated facts.
        continued: the origins that follow others, of the shape :data:`spark.schemas.CONTINUED`; None: there are none.
    """
    stated = journal.where(F.col("kind").isin(*REQUESTS))
    asked = stated.groupBy(*SUBSCRIPTION, "expression", "keys", "secure_only").agg(
        F.min(_made_in()).alias("since_epoch")
    )
    variants = F.count("expression").over(Window.partitionBy(*SUBSCRIPTION))
    known = asked.withColumn("variants", variants).join(F.broadcast(expressions), on="expression", how="left")
    bounded = (
        known.join(_starts(journal, continued), on=SUBSCRIPTION, how="left")
        .join(_ends(journal), on=SUBSCRIPTION, how="left")
        .join(_deletions(journal), on=SESSION_GENERATION, how="left")
        .join(_policies(journal), on=SUBSCRIPTION, how="left")
    )
    return bounded.withColumns(
        {
            "is_sure": F.col("is_usable") & (F.col("variants") == 1),
            "is_ended": F.coalesce("is_ended", F.lit(False)),
            "until": F.coalesce("until", "gone"),
        }
    )


def _made_in() -> Column:
    """The epoch in which a subscription was made: its generation says so, also where its first fact is missing."""
    return F.coalesce(F.substring_index("subscription_generation", "/", 1).try_cast("bigint"), F.col("epoch"))


def _deletions(journal: DataFrame) -> DataFrame:
    """Return `gone` of each session that was deleted: origin -> the last offset that it could be owed."""
    stated = of_kind(journal, FactKind.DELETED).select(
        *SESSION_GENERATION, F.explode_outer("frontier").alias("origin", "upto")
    )
    lowest = stated.groupBy(*SESSION_GENERATION, "origin").agg(F.min("upto").alias("lowest"))
    return lowest.groupBy(*SESSION_GENERATION).agg(_by_origin("lowest").alias("gone"))


def _policies(journal: DataFrame) -> DataFrame:
    """Return of each subscription :data:`TERMS`."""
    position, ages, counts = F.struct("epoch", "number"), F.col("ttl_s") > 0, F.col("max_count") > 0
    stated = journal.where(F.col("kind").isin(*POLICIES)).groupBy(*SUBSCRIPTION)
    return stated.agg(
        F.min(F.when(ages, position)).alias("ages_since"),
        F.min(F.when(counts, position)).alias("counts_since"),
        F.min(F.when(ages, F.col("ttl_s"))).alias("least_ttl_s"),
        F.min(F.when(counts, F.col("max_count"))).alias("least_count"),
    )


def _starts(journal: DataFrame, continued: DataFrame | None) -> DataFrame:
    promised = promises(journal)
    if continued is not None:
        # A promise that begins above all that was seen was made when the origin had ended already.
        before = promised.join(F.broadcast(continued), on="origin").where(F.col("above") < F.col("seen"))
        later = before.select(*SUBSCRIPTION, F.col("following").alias("origin"), F.col("begins").alias("above"))
        promised = promised.unionByName(later).groupBy(*SUBSCRIPTION, "origin").agg(F.min("above").alias("above"))
    return promised.groupBy(*SUBSCRIPTION).agg(_by_origin("above").alias("above"))


def promises(journal: DataFrame) -> DataFrame:
    """Return the first promise of each subscription for each origin: the columns :data:`SUBSCRIPTION`, `origin`, and
    `above` (X0), the offset above which everything that matches is owed.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    stated = journal.where(F.col("kind").isin(*PROMISES)).select(
        *SUBSCRIPTION, "epoch", "at_ms", "number", F.explode("frontier").alias("origin", "x")
    )
    first = F.min_by("x", F.struct("epoch", "number"))
    return stated.groupBy(*SUBSCRIPTION, "origin").agg(first.alias("above"))


def _ends(journal: DataFrame) -> DataFrame:
    facts = of_kind(journal, FactKind.UNSUBSCRIBED)
    known = facts.select(*SUBSCRIPTION, F.explode_outer("frontier").alias("origin", "r"))
    unknown = facts.select(*SUBSCRIPTION, F.explode("unknown_ends").alias("origin"), F.lit(None).alias("r"))
    highest = F.coalesce(F.max("r"), F.lit(OPEN_END)).alias("highest")
    ends = known.unionByName(unknown).groupBy(*SUBSCRIPTION, "origin").agg(F.min("r").alias("lowest"), highest)
    return ends.groupBy(*SUBSCRIPTION).agg(
        F.lit(True).alias("is_ended"),
        _by_origin("lowest").alias("until"),
        _by_origin("highest").alias("last"),
    )


def _by_origin(column: str) -> Column:
    entry = F.when(F.col("origin").isNotNull(), F.struct("origin", column))
    return F.map_from_entries(F.collect_list(entry))


_PRESENT = (FactKind.ATTACHED, FactKind.REGISTERED, FactKind.UNREGISTERED, FactKind.RECEIVED, FactKind.DRAINED)


def receivers(journal: DataFrame) -> DataFrame:
    """Return one row for each receiver: `session`, `generation`, `receiver`, and `start`: by origin, the offset up to
    which the receiver is owed nothing.

    `start` is null for a receiver that had nothing when it came.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    presence = journal.where(F.col("kind").isin(*_PRESENT))
    is_arrival = F.col("kind") == FactKind.ATTACHED
    present = presence.groupBy(*RECEIVER).agg(F.count(F.when(is_arrival, 1)).alias("arrivals"))
    reported = presence.where(is_arrival).select(*RECEIVER, F.explode("frontier").alias("origin", "reported"))
    lowest = reported.groupBy(*RECEIVER, "origin").agg(
        F.min("reported").alias("lowest"), F.count("reported").alias("times")
    )
    known = present.join(lowest, on=RECEIVER, how="left")
    # An origin that one report leaves out was then seen up to nothing.
    always = known.where(F.col("times") == F.col("arrivals")).select(
        *RECEIVER, "origin", F.col("lowest").alias("begins")
    )
    starts = (
        always.unionByName(_registrations(presence)).groupBy(*RECEIVER, "origin").agg(F.max("begins").alias("begins"))
    )
    start = F.map_from_entries(F.collect_list(F.struct("origin", "begins")))
    return present.join(starts.groupBy(*RECEIVER).agg(start.alias("start")), on=RECEIVER, how="left").drop("arrivals")


def _registrations(presence: DataFrame) -> DataFrame:
    """Return `begins` of each registered receiver: the offset, by origin, above which its last registration owes."""
    order = F.struct("epoch", "number")
    registered = presence.where(F.col("kind") == FactKind.REGISTERED)
    last = registered.groupBy(*RECEIVER).agg(F.max_by("frontier", order).alias("registration"))
    return last.select(*RECEIVER, F.explode("registration").alias("origin", "begins"))


def wants(subscribed: DataFrame, present: DataFrame) -> DataFrame:
    """Return each subscription for each receiver of its session; a session without receivers has one, named ''.

    Args:
        subscribed: :func:`subscriptions`.
        present: :func:`receivers`.
    """
    joined = subscribed.join(present, on=SESSION_GENERATION, how="left")
    return joined.withColumn("receiver", F.coalesce("receiver", F.lit("")))


def standing(truth: DataFrame, wanted: DataFrame) -> DataFrame:
    """Return each published notification for each receiver with a subscription that matches it.

    A row has the columns :data:`KEY`, each key once; the id; `published_digest`; `is_owed`; `may_live`: delivering it
    is not too late; and `since_epoch`, in which the oldest subscription that matches was made.

    Args:
        truth: published notifications (:func:`spark.sitelogs.published`).
        wanted: :func:`wants`.
    """
    met = _met(truth, wanted).withColumns(
        {
            "is_owed": is_owed(),
            "may_live": ~F.col("is_ended") | (F.col("offset") <= _at("last")),
        }
    )
    # The id follows from the key. As part of the group it can be hashed; picked by `first`, it would be sorted.
    # Partitioned by the key alone, the result is also ready to be joined with the deliveries.
    return (
        met.repartition(*KEY)
        .groupBy(*KEY, "producer", "incarnation", "sequence", F.col("digest").alias("published_digest"))
        .agg(
            F.max("is_owed").alias("is_owed"),
            F.max("may_live").alias("may_live"),
            F.min("since_epoch").alias("since_epoch"),
        )
    )


def _met(truth: DataFrame, wanted: DataFrame) -> DataFrame:
    """Return each published notification with each subscription that matches and may have it, for each receiver."""
    matches = truth.select(
        "origin",
        "offset",
        "producer",
        "incarnation",
        "sequence",
        "digest",
        "at_ms",
        F.col("keys").alias("came_with"),
        F.col("secure_only").alias("for_keys_only"),
        F.explode("matched").alias("expression_number"),
    )
    met = matches.join(F.broadcast(wanted), on="expression_number", how="inner")
    return met.where(let_through("came_with", "for_keys_only", "keys", "secure_only"))


def owing(truth: DataFrame, wanted: DataFrame, missed: DataFrame) -> DataFrame:
    """Return the policies of the subscriptions by which notifications that were missed are owed: the columns
    :data:`KEY`; `published_ms`, by the record of the notification; and `terms`, an array of structs of :data:`TERMS`
    and of `followed`: how many notifications that the subscription matches may have come to the session after it.

    Args:
        truth: published notifications (:func:`spark.sitelogs.published`).
        wanted: :func:`wants`.
        missed: rows with the columns :data:`KEY`; one that no subscription owes is left out.
    """
    concerned = truth.join(missed.select(*COORDINATE).distinct(), on=COORDINATE, how="left_semi")
    due = _met(concerned, wanted).where(is_owed())
    followed = _followed(truth, due.where(F.col("least_count").isNotNull()))
    counted = due.join(followed, on=["expression_number", *COORDINATE], how="left")
    terms = F.collect_list(F.struct(*TERMS, "followed"))
    at_ms = F.max("at_ms").alias("published_ms")
    return counted.groupBy(*KEY).agg(terms.alias("terms"), at_ms).join(missed.select(*KEY), on=KEY, how="left_semi")


def _followed(truth: DataFrame, due: DataFrame) -> DataFrame:
    """Return `followed`, by expression and coordinate: how many match that do not lie before it in its own log."""
    asked = due.select("expression_number").distinct()
    matches = truth.select(*COORDINATE, F.explode("matched").alias("expression_number"))
    alike = matches.join(F.broadcast(asked), on="expression_number")
    upto = F.row_number().over(Window.partitionBy("expression_number", "origin").orderBy("offset"))
    of_all = F.count("*").over(Window.partitionBy("expression_number"))
    return alike.select("expression_number", *COORDINATE, (of_all - upto).alias("followed"))


def is_owed() -> Column:
    """Tell, as a boolean column, whether the coordinate of a row is owed to its receiver by its subscription.

    The row has `origin` and `offset`, and the columns of :func:`wants`.
    """
    has_begun = F.coalesce(F.col("offset") > F.col("above")[F.col("origin")], F.lit(False))
    is_not_over = F.col("until").isNull() | (F.col("offset") <= _at("until"))
    return F.col("is_sure") & has_begun & is_not_over & (F.col("offset") > _at("start"))


def _at(bounds: str) -> Column:
    return F.coalesce(F.col(bounds)[F.col("origin")], F.lit(NOTHING))


def deliveries(journal: DataFrame) -> DataFrame:
    """Return one row for each delivery that a receiver attested: the columns :data:`KEY`, `writer`, `number`, `epoch`,
    `proxy`; `digest`, of the body; `at`, the delivery's index in the fact that attests it; and `is_by_order`: the
    receiver had asked for the order of priority or deadline.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    facts = of_kind(journal, FactKind.RECEIVED)
    attested = F.posexplode(F.arrays_zip("offsets", "digests")).alias("at", "attested")
    is_by_order = F.col("order").isin(*filter(goes_by_attributes, ORDERS)).alias("is_by_order")
    apart = facts.select(*RECEIVER, "writer", "number", "epoch", "proxy", "origin", is_by_order, attested)
    return apart.withColumns({"offset": F.col("attested.offsets"), "digest": F.col("attested.digests")}).drop(
        "attested"
    )
