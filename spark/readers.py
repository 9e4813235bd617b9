"""The input end: site logs and journals as DataFrames, from the embedded form or from Kafka.

The journals are read first, because their subscriptions have the expressions by which `logs` then tests every
notification, as it decodes it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial, reduce
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark import record_rows
from spark.matcher import Matcher
from spark.record_rows import Raw, Row, rows
from spark.schemas import FACT, RECORD
from spark.session import require_connector
from spark.source import BadInput, Folder, Source, Topics, opened

RECORDS_A_TASK = 50_000
BYTES_A_ROW = 320
"""The size of a fact or a record in a file, roughly."""
Slice = tuple[str, str, int, int]
"""Site, file, first offset, offset behind the last."""
Decode = Callable[[Iterable[Raw]], Iterator[Row]]


def size_rows(spark: SparkSession, source: Source) -> int:
    """Return about how many facts and records a run has together. In Kafka they are counted, which reads them.

    Args:
        spark: the session.
        source: the run.

    Raises:
        BadConfiguration: the source is Kafka, and this session has no connector.
    """
    if isinstance(source, Folder):
        return source.size_bytes // BYTES_A_ROW
    topics = {site: f"{source.log_topic(site)},{source.journal_topic(site)}" for site in source.servers}
    return _union([_topic(spark, source, site, both).select() for site, both in topics.items()]).count()


def journals(spark: SparkSession, source: Source) -> DataFrame:
    """Return all lines of all journals, as :func:`parse_facts` does: facts may be repeated, in any order, or unusable.
    They are read when the frame is used.

    Args:
        spark: the session.
        source: the run.

    Raises:
        BadConfiguration: the source is Kafka, and this session has no connector.
    """
    if isinstance(source, Folder):
        return parse_facts(_journal_files(spark, source))
    return parse_facts(_union([_journal_topic(spark, source, site) for site in source.servers]))


def logs(spark: SparkSession, source: Source, matcher: Matcher) -> DataFrame:
    """Return all records of all site logs, of the shape :data:`spark.schemas.RECORD`. They are read when the frame is
    used; of a folder the extents of the logs are read at once.

    Note that the origin of each published record is that of the first log epoch, whatever its own is:
    :func:`spark.epochs.with_origins` sets it.

    Args:
        spark: the session.
        source: the run.
        matcher: the expressions by which notifications are tested.

    Raises:
        BadInput: a file is no site log, or all are empty.
        BadConfiguration: the source is Kafka, and this session has no connector.
    """
    return _decoded(spark, source, partial(rows, matcher=matcher))


def copies(spark: SparkSession, source: Source, matcher: Matcher, beyond: dict[str, int]) -> DataFrame:
    """Return the copies, in other sites' logs, of notifications that their own log lost: records of the kind `copy`.

    Args:
        spark: the session.
        source: the run.
        matcher: the expressions by which notifications are tested.
        beyond: origin that has ended -> the first offset that its log does not have.

    Raises:
        BadInput: a file is no site log, or all are empty.
        BadConfiguration: the source is Kafka, and this session has no connector.
    """
    return _decoded(spark, source, partial(record_rows.copies, matcher=matcher, beyond=beyond))


def _decoded(spark: SparkSession, source: Source, decode: Decode) -> DataFrame:
    if isinstance(source, Folder):
        slices = _slices(source)
        raws = spark.sparkContext.parallelize(slices, len(slices)).mapPartitions(_read_slices)
        return spark.createDataFrame(raws.mapPartitions(decode), RECORD, verifySchema=False)
    return _union([_log_topic(spark, source, site, decode) for site in source.servers])


def _union(frames: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, frames)


# ---------------------------------------------------------------- journals


def _journal_files(spark: SparkSession, folder: Folder) -> DataFrame:
    paths = [_plain(path) for paths in folder.journals.values() for path in paths]
    lines = spark.read.text(paths, lineSep="\n")
    return lines.select(F.col("_metadata.file_name").alias("source"), F.col("value"))


def _plain(path: Path) -> str:
    """Return the path so that Spark takes no character of it for a wildcard."""
    text = str(path.absolute())
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in text)


def parse_facts(lines: DataFrame) -> DataFrame:
    """Parse lines of JSON, one fact each; blank ones are left out.

    Args:
        lines: `source`, the file or topic, and `value`, the text.

    Returns:
        The columns of :data:`spark.schemas.FACT`, where absent fields have the defaults of :class:`waypost.facts.Fact`;
        `source`; and `unusable`, the text of a line that is no fact, else null.
    """
    schema = T.StructType([*FACT.fields, T.StructField("corrupt", T.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "corrupt"}
    written = lines.where(F.trim(F.col("value")) != "")
    parsed = written.withColumn("fact", F.from_json(F.col("value"), schema, options))
    fields = [_with_default(name) for name in FACT.fieldNames()]
    incomplete = [F.col(f"fact.{name}").isNull() for name in ("writer", "number", "at_ms", "kind")]
    is_unusable = F.col("fact.corrupt").isNotNull() | reduce(lambda left, right: left | right, incomplete)
    return parsed.select("source", *fields, F.when(is_unusable, F.col("value")).alias("unusable"))


def _with_default(name: str) -> F.Column:  # type: ignore[name-defined]  # Column is re-exported there
    """Return the field of the fact, or the value that its absence stands for: empty fields are not written."""
    field = F.col(f"fact.{name}")
    if name in ("number", "at_ms"):
        return field.alias(name)
    match FACT[name].dataType:
        case T.ArrayType() as array:
            absent = F.array().cast(array)
        case T.MapType() as entries:
            absent = F.create_map().cast(entries)
        case T.BooleanType():
            absent = F.lit(False)
        case T.LongType():
            absent = F.lit(0).cast("bigint")
        case _:
            absent = F.lit("any" if name == "order" else "")
    return F.coalesce(field, absent).alias(name)


# ---------------------------------------------------------------- embedded logs


def _slices(folder: Folder) -> list[Slice]:
    """Cut every log into tasks, up to its present end: a log that still grows is read up to there."""
    slices = []
    for site, path in folder.logs.items():
        first, end = _extent(path)
        starts = range(first, end, RECORDS_A_TASK)
        slices += [(site, str(path), start, min(start + RECORDS_A_TASK, end)) for start in starts]
    if not slices:
        raise BadInput("all site logs are empty")
    return slices


def _extent(path: Path) -> tuple[int, int]:
    try:
        with closing(opened(path)) as log:
            first, last = log.execute("SELECT MIN(offset), MAX(offset) FROM log").fetchone()
    except sqlite3.Error as error:
        raise BadInput(f"{path} is no site log: {error}") from None
    return (0, 0) if first is None else (first, last + 1)


def _read_slices(slices: Iterable[Slice]) -> Iterator[Raw]:
    for site, path, start, end in slices:
        with closing(opened(Path(path))) as log:
            query = "SELECT offset, record FROM log WHERE offset >= ? AND offset < ? ORDER BY offset"
            for offset, record in log.execute(query, (start, end)):
                yield site, 0, offset, record


# ---------------------------------------------------------------- Kafka


def _topic(spark: SparkSession, topics: Topics, site: str, topic: str) -> DataFrame:
    """Return the messages of a topic of the site, or of several with commas between.

    Raises BadConfiguration: the session has no connector.
    """
    require_connector(spark)
    client = {"bootstrap.servers": topics.servers[site], **topics.tls}
    reader = spark.read.format("kafka").options(**{f"kafka.{name}": value for name, value in client.items()})
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("endingOffsets", "latest")
    # A record of an aborted transaction was never acknowledged to anybody, and is none.
    return reader.option("kafka.isolation.level", "read_committed").load()


def _journal_topic(spark: SparkSession, topics: Topics, site: str) -> DataFrame:
    topic = topics.journal_topic(site)
    frame = _topic(spark, topics, site, topic)
    value = F.coalesce(F.col("value").cast("string"), F.lit("null"))
    return frame.select(F.lit(topic).alias("source"), value.alias("value"))


def _log_topic(spark: SparkSession, topics: Topics, site: str, decode: Decode) -> DataFrame:
    frame = _topic(spark, topics, site, topics.log_topic(site))
    raws = frame.select("partition", "offset", "value").rdd
    decoded = raws.mapPartitions(partial(_from_kafka, site=site, decode=decode))
    return spark.createDataFrame(decoded, RECORD, verifySchema=False)


def _from_kafka(messages: Iterable[tuple[int, int, bytearray | None]], site: str, decode: Decode) -> Iterator[Row]:
    raws = ((site, partition, offset, None if value is None else bytes(value)) for partition, offset, value in messages)
    return decode(raws)
