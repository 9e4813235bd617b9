"""Ends of sessions, of receivers and of their rights: what is delivered beyond them is out of life (P4).

The owner of a session that is deleted attests `deleted` with the frontier at which it let the session go; another
proxy, for which an operator deleted it, knows less, and bounds only what is owed. `unregistered` has the frontier
beyond which its receiver was given nothing, and so has `detached`: the receiver may not read any more.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark.finding import Reason, findings
from spark.journal import SESSION_GENERATION, of_kind
from spark.obligations import RECEIVER, deliveries
from waypost.facts import FactKind
from waypost.identity import NOTHING


def deletions(journal: DataFrame) -> DataFrame:
    """Return the deletions of sessions that their owners attest: `session`, `generation`, `epoch` and `proxy` of the
    owner, and `origin`, `upto`: the last offset that it gave, of each origin that it knew. One that knew none has one
    row, with null in these two.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    owned = of_kind(journal, FactKind.OWNED).select(*SESSION_GENERATION, "epoch", "writer", "proxy").distinct()
    stated = of_kind(journal, FactKind.DELETED).select(*SESSION_GENERATION, "epoch", "writer", "frontier")
    by_owner = stated.join(owned, on=[*SESSION_GENERATION, "epoch", "writer"])
    apart = by_owner.select(*SESSION_GENERATION, "epoch", "proxy", F.explode_outer("frontier").alias("origin", "upto"))
    # An operator who asks the owner itself makes two facts of it.
    return apart.groupBy(*SESSION_GENERATION, "epoch", "proxy", "origin").agg(F.max("upto").alias("upto"))


def after_deletion(journal: DataFrame) -> DataFrame:
    """Find the deliveries from beyond the end of their session (P4), in the shape of :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    ended = deletions(journal)
    sessions = ended.groupBy(*SESSION_GENERATION).agg(
        F.max("epoch").alias("other_epoch"), F.max("proxy").alias("other")
    )
    bounds = ended.where(F.col("origin").isNotNull()).groupBy(*SESSION_GENERATION, "origin")
    given = deliveries(journal).join(sessions, on=SESSION_GENERATION)
    joined = given.join(bounds.agg(F.max("upto").alias("upto")), on=[*SESSION_GENERATION, "origin"], how="left")
    late = joined.where(F.col("offset") > F.coalesce("upto", F.lit(NOTHING)))
    return findings(late, "P4", _note("session"), reason=Reason.SESSION_DELETED, other_proxy="other")


def departures(journal: DataFrame) -> DataFrame:
    """Return the receivers that left for good: `session`, `generation`, `receiver`; `left_at`, the epoch, and `given`,
    the frontier beyond which the receiver was given nothing. Those that registered or attached after that are left out.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    return _away(journal, FactKind.UNREGISTERED).drop("last_kind")


def _away(journal: DataFrame, *kinds: FactKind) -> DataFrame:
    """Return the receivers of which the last fact says that they are not there: its kind, `last_kind`; its epoch,
    `left_at`; and its frontier, `given`.

    Args:
        kinds: of the facts that say so.
    """
    presence = journal.where(F.col("kind").isin(FactKind.ATTACHED, FactKind.REGISTERED, *kinds))
    last = F.max_by(F.struct("kind", "epoch", "frontier"), F.struct("epoch", "number"))
    away = presence.groupBy(*RECEIVER).agg(last.alias("last")).where(F.col("last.kind").isin(*kinds))
    return away.select(
        *RECEIVER,
        F.col("last.kind").alias("last_kind"),
        F.col("last.epoch").alias("left_at"),
        F.col("last.frontier").alias("given"),
    )


def after_departure(journal: DataFrame) -> DataFrame:
    """Find the deliveries to receivers that had left for good, or may not read any more (P4), in the shape of
    :func:`spark.finding.findings`.

    Args:
        journal: facts, each once (:func:`spark.journal.once`).
    """
    away = _away(journal, FactKind.UNREGISTERED, FactKind.DETACHED)
    joined = deliveries(journal).join(away, on=RECEIVER)
    is_later = F.col("epoch") > F.col("left_at")
    upto = F.coalesce(F.try_element_at("given", F.col("origin")), F.lit(NOTHING))
    is_beyond = (F.col("epoch") == F.col("left_at")) & (F.size("given") > 0) & (F.col("offset") > upto)
    late = joined.withColumn("upto", upto).where(is_later | is_beyond)
    taken = F.col("last_kind") == FactKind.DETACHED
    reason = F.when(taken, Reason.RIGHT_TAKEN).otherwise(Reason.RECEIVER_LEFT)
    note = F.when(taken, _note("receiver's right to read")).otherwise(_note("receiver"))
    return findings(late, "P4", note, reason=reason, other_epoch="left_at")


def _note(whose: str) -> Column:
    return F.concat(F.lit(f"beyond the end of its {whose}, which is "), F.coalesce("upto", F.lit(NOTHING)))
