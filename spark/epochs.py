"""Log epochs: of which origin each record of a site log is, and what a log lost with its end (handover rule 27).

All of it stands in the log itself. A record says that a log epoch begins there, and where the origins before it end:
the last offset that the log still has, and the highest that anybody is known to have seen. So by position:

    ... end of A/0 | of no origin | log-begun | A/0.2 ...

What stands between the end and the beginning of the next origin was appended before all knew of that; it is nobody's.
Above its end an origin is not known from here: what was published there, and perhaps delivered, went with the end.

A log may lose more, and even what it said of an epoch; then a later record says so. A log that has forgotten its
beginning says `again` in which epoch it is; that is what stands below too, above the ends of the origins before.
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
    """A record that says in which log epoch a site log is. `ended`: origin -> its last offset, the highest seen."""

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
    """Of `origin` the log has nothing from `first` on; anybody is known to have seen it up to `seen`."""

    site: str
    origin: str
    first: int
    seen: int


class Continued(NamedTuple):
    """`following` is `origin` in a later log epoch, and has nothing at or below `begins`; `seen`: as of a LostEnd."""

    origin: str
    following: str
    begins: int
    seen: int


@dataclass(frozen=True, slots=True)
class Epochs:
    """What all site logs say of their epochs."""

    spans: tuple[Span, ...] = ()
    lost: tuple[LostEnd, ...] = ()
    """The ends of all origins that have ended, also of those of which nothing is known to be lost."""
    continued: tuple[Continued, ...] = ()

    def __bool__(self) -> bool:
        """Tell whether any log has been in more than its first epoch."""
        return bool(self.lost)


def read(begun: Iterable[EpochStart], firsts: dict[str, int]) -> Epochs:
    """Return the epochs of all logs.

    Args:
        begun: all that the logs say of it.
        firsts: site -> the first position that its log has.
    """
    sites = groupby(sorted(begun, key=lambda each: each[:2]), key=lambda each: each.site)
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
            # What the log has forgotten of its beginning, the first word of it repeats.
            self.begins = dict.fromkeys(records[0].ended, first - 1) | self.begins
            self.ends = {each: ends for each, ends in records[0].ended.items() if each != self.present}
        for record in records:
            if record.log_epoch >= log_epoch_of(self.present):  # type: ignore[arg-type]  # an Origin is a str
                self._take(record)

    def _beginning(self, first: int, begun: EpochStart) -> str:
        """Return the origin of what stands below the first record that says anything of it."""
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
        """Return up to where the log can have an origin of which it says for the first time that it has ended."""
        return position - 1 if origin == self.present else NOTHING

    def _origin(self, log_epoch: int) -> str:
        return origin_of(SiteId(self.site), log_epoch=log_epoch)

    def _all(self) -> list[str]:
        return sorted({*self.begins, *self.ends}, key=log_epoch_of)  # type: ignore[arg-type]

    def spans(self) -> Iterator[Span]:
        for origin in self._all():
            end = self.ends.get(origin, (FOREVER, FOREVER))[0]
            before = [self.ends[each][0] for each in self._all() if each in self.ends and each != origin]
            first = max([self.begins.get(origin, FOREVER - 1) + 1, *(each + 1 for each in before if each < end)])
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
    """Return what the logs say; they say it seldom: where an epoch begins, and where a proxy does."""
    rows = records.where(F.col("kind") == LOG_BEGUN).select("site", "position", "begun").collect()
    if not rows:
        return Epochs()
    known = [
        EpochStart(site, position, begun.log_epoch, begun.again, {name: (*ends,) for name, ends in begun.ended.items()})
        for site, position, begun in rows
    ]
    return read(known, dict(logs.select("site", "first").collect()))


def with_origins(records: DataFrame, epochs: Epochs) -> DataFrame:
    """Name the origin of each published record as its log epoch does; what is of no origin is `nobodys`."""
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
    """Return what is the same of an origin in all its log epochs."""
    return F.regexp_replace(origin, r"\.\d+$", "")


def lost_ends(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Return the end of each origin that has ended: `site`, `origin`, `first`, `seen`."""
    return spark.createDataFrame(epochs.lost, LOST_END)


def continued(spark: SparkSession, epochs: Epochs) -> DataFrame:
    return spark.createDataFrame(epochs.continued, CONTINUED)


def beyond(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Return what no log can tell of origins that have ended, in the shape of :func:`spark.sitelogs.holes`."""
    first, last = F.col("first").alias("first_missing"), F.lit(FOREVER).alias("last_missing")
    return lost_ends(spark, epochs).select("site", first, last, "origin")


def lost(spark: SparkSession, epochs: Epochs) -> DataFrame:
    """Find the logs that say that they lost their end (G2)."""
    ends = lost_ends(spark, epochs).where(F.col("first") <= F.col("seen"))
    note = F.concat(F.lit("the log lost its end up to "), F.col("seen"), F.lit(", as it says itself"))
    # A publish whose first copy was lost may rightly stand behind what came later.
    return findings(ends, "G2", note, offset="first", lacks=LOGS)
