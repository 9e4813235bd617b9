"""Log epochs: the origin of each record of a site log, and what a log lost with its end (handover rule 27).

All of it stands in the log itself. A record says that a log epoch begins there, and where the origins before it end:
the last offset that the log still has, and the highest that any proxy is known to have seen. So by position:

    ... end of A/0 | of no origin | log-begun | A/0.2 ...

A record between the end and the beginning of the next origin was appended before all knew of that; it has no origin.
Above its end an origin is not known from here: what was published there, and perhaps delivered, went with the end.

A log may lose more, and even the record that began an epoch; then a later record says so. A log whose beginning was
removed says `again` in which epoch it is; that holds below that record too, above the ends of the earlier origins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.finding import LOGS, findings
from spark.schemas import CONTINUED, LOST_END, SPAN
from waypost.identity import NOTHING, SiteId, log_epoch_of, origin_of

LOG_BEGUN = "log-begun"
FOREVER = (1 << 63) - 1


class EpochStart(NamedTuple):
    """A record that names the log epoch of a site log. `ended`: origin -> its last offset, the highest one seen."""

    site: str
    position: int
    log_epoch: int
    again: bool
    ended: dict[str, tuple[int, int]]


class Span(NamedTuple):
    """Positions of a site log, the first and the last one, whose notifications are of `origin`."""

    site: str
    first: int
    last: int
    origin: str


class LostEnd(NamedTuple):
    """The end of an origin: its log has nothing of it from `first` on; it was seen up to `seen` by some proxy."""

    site: str
    origin: str
    first: int
    seen: int


class Continued(NamedTuple):
    """`following` is the origin of a later log epoch, with nothing at or below `begins`; `seen`: as of a LostEnd."""

    origin: str
    following: str
    begins: int
    seen: int


@dataclass(frozen=True, slots=True)
class Epochs:
    """The log epochs of all site logs. Empty while every log is in its first one.

    Args:
        spans: which positions of which log belong to which log epoch.
        continued: which origin follows on which.
    """

    spans: tuple[Span, ...] = ()
    lost: tuple[LostEnd, ...] = ()
    """The ends of all origins that have ended, also where nothing is known to be lost."""
    continued: tuple[Continued, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether any log has been in more than its first epoch."""
        return bool(self.lost)


def read(begun: Iterable[EpochStart], firsts: dict[str, int]) -> Epochs:
    """Return the log epochs of all logs, from the records that name them (handover rule 27); nothing is read here.

    Args:
        begun: all records of all logs that name a log epoch, in any order.
        firsts: site -> the first position that its log has.
    """
    sites = groupby(sorted(begun, key=lambda start: start[:2]), key=lambda start: start.site)
    known = [_Log(site, firsts.get(site, 0), list(records)) for site, records in sites]
    later = [log for log in known if log.ends]
    return Epochs(
        tuple(span for log in later for span in log.spans()),
        tuple(end for log in later for end in log.lost()),
        tuple(pair for log in later for pair in log.continued()),
    )


class _Log:
    """One site's log. `begins`: origin -> the position of the record that began it; `ends`: its last offset, seen."""

    def __init__(self, site: str, first: int, records: list[EpochStart]) -> None:
        self.site = site
        self.present = self._beginning(first, records[0])
        self.begins = {self.present: first - 1}
        self.ends: dict[str, tuple[int, int]] = {}
        if first > 0:
            # The beginning of the log was removed; its first record about epochs repeats what stood there.
            self.begins = dict.fromkeys(records[0].ended, first - 1) | self.begins
            self.ends = {origin: ends for origin, ends in records[0].ended.items() if origin != self.present}
        for record in records:
            if record.log_epoch >= log_epoch_of(self.present):  # type: ignore[arg-type]  # an Origin is a str
                self._take(record)

    def _beginning(self, first: int, begun: EpochStart) -> str:
        """Return the origin of the records below the first one that names a log epoch."""
        if first == 0 and not begun.again:
            return self._origin(1)
        if begun.again:
            return self._origin(begun.log_epoch)
        return self._origin(max([1, *map(log_epoch_of, begun.ended)]))  # type: ignore[arg-type]

    def _take(self, record: EpochStart) -> None:
        for origin, (end, seen) in record.ended.items():
            last, highest = self.ends.get(origin, (self._kept(origin, record.position), NOTHING))
            last = min(end, last)
            self.ends[origin] = (last, max(last, seen, highest))
        following = self._origin(record.log_epoch)
        if following != self.present:
            self.present = following
            self.begins[following] = record.position

    def _kept(self, origin: str, position: int) -> int:
        """Return the highest position that an origin can have whose end is named for the first time, at `position`."""
        return position - 1 if origin == self.present else NOTHING

    def _origin(self, log_epoch: int) -> str:
        return origin_of(SiteId(self.site), log_epoch=log_epoch)

    def _all(self) -> list[str]:
        return sorted({*self.begins, *self.ends}, key=log_epoch_of)  # type: ignore[arg-type]

    def spans(self) -> Iterator[Span]:
        for origin in self._all():
            end = self.ends.get(origin, (FOREVER, FOREVER))[0]
            other_ends = [self.ends[ended][0] for ended in self._all() if ended in self.ends and ended != origin]
            first = max([self.begins.get(origin, FOREVER - 1) + 1, *(last + 1 for last in other_ends if last < end)])
            if first <= end:
                yield Span(self.site, first, end, origin)

    def lost(self) -> Iterator[LostEnd]:
        for origin, (end, seen) in self.ends.items():
            yield LostEnd(self.site, origin, end + 1, seen)

    def continued(self) -> Iterator[Continued]:
        every = self._all()
        for number, origin in enumerate(every):
            for later in every[number + 1 :]:
                if origin in self.ends and later in self.begins:
                    yield Continued(origin, later, self.begins[later], self.ends[origin][1])


# ---------------------------------------------------------------- frames


def of(records: DataFrame, logs: DataFrame) -> Epochs:
    """Return the log epochs of all site logs, from the records that name one, which a Spark job collects: they are few.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
        logs: extents (:func:`spark.sitelogs.extents`).
    """
    rows = records.where(F.col("kind") == LOG_BEGUN).select("site", "position", "begun").collect()
    if not rows:
        return Epochs()
    known = [
        EpochStart(site, position, begun.log_epoch, begun.again, {name: (*ends,) for name, ends in begun.ended.items()})
        for site, position, begun in rows
    ]
    return read(known, dict(logs.select("site", "first").collect()))


def with_origins(records: DataFrame, epochs: Epochs) -> DataFrame:
    """Return the records with the origin of each published one set to that of its log epoch; a published record that is
    of no origin gets the kind `nobodys`.

    Args:
        records: of all logs, as :func:`spark.readers.logs` returns them.
        epochs: of all logs; at least one log is in more than its first one.
    """
    spark = records.sparkSession
    spans = spark.createDataFrame(epochs.spans, SPAN)
    later = F.broadcast(spans.select("site").distinct().withColumn("is_later", F.lit(True)))
    is_in = (F.col("r.site") == F.col("x.of_site")) & F.col("r.position").between(F.col("x.first"), F.col("x.last"))
    placed = spans.select(F.col("site").alias("of_site"), "first", "last", F.col("origin").alias("of_origin"))
    sited = records.join(later, on="site", how="left").alias("r").join(F.broadcast(placed).alias("x"), is_in, "left")
    concerned = F.col("is_later").isNotNull() & (F.col("kind") == "published")
    kind = F.when(concerned & F.col("of_origin").isNull(), "nobodys").otherwise(F.col("kind"))
    origin = F.when(concerned, F.col("of_origin")).otherwise(F.col("origin"))
    return sited.withColumns({"kind": kind, "origin": origin}).select(*records.columns)


def partition(origin: str) -> Column:
    """Return the part of an origin that is the same in all its log epochs, as a column: `A/0` of `A/0.2`.

    Args:
        origin: the name of the column with the origin.
    """
    return F.regexp_replace(origin, r"\.\d+$", "")


def lost_ends(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Return one row for each origin that has ended, of the shape :data:`spark.schemas.LOST_END`: `site`; `origin`;
    `first`, from which offset on the log has nothing of it; `seen`, up to which some proxy has seen it.
    """
    return spark.createDataFrame(epochs.lost, LOST_END)


def continued(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Return one row for each pair of an origin that has ended and a later one of its log, of the shape
    :data:`spark.schemas.CONTINUED`: `origin`; `following`; `begins`, at or below which the later one has nothing;
    `seen`, up to which some proxy has seen the ended one.
    """
    return spark.createDataFrame(epochs.continued, CONTINUED)


def beyond(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Return the ranges beyond the ends of origins, which are unknown, in the shape of :func:`spark.sitelogs.holes`."""
    first, last = F.col("first").alias("first_missing"), F.lit(FOREVER).alias("last_missing")
    return lost_ends(spark, epochs).select("site", first, last, "origin")


def lost(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Find the logs that say that they lost their end (G2), in the shape of :func:`spark.finding.findings`."""
    ends = lost_ends(spark, epochs).where(F.col("first") <= F.col("seen"))
    note = F.concat(F.lit("the log lost its end up to "), F.col("seen"), F.lit(", as it says itself"))
    # A publish whose first copy was lost may rightly stand behind what came later.
    return findings(ends, "G2", note, offset="first", lacks=LOGS)
