"""The one Spark session, with the known pitfalls handled.

- Workers run this very interpreter; else Spark takes the `python3` of the PATH, which lacks our packages. On a cluster,
  where it may lie elsewhere, PYSPARK_PYTHON says where.
- On one machine driver and executors meet on the loopback; else Spark picks an address that may not be reachable. On a
  cluster nothing is said about addresses, memory and cores: `spark-submit` and Spark's own files say that.
- ANSI mode is off: integers of the subscription language wrap, and division by zero is bottom, not an error.
- A deeper thread stack: Spark recurses over plans, and ours are long.
- The connector for Kafka can only be given when the session starts, so it is given whenever it is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryFile
from typing import IO

from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark import connector
from waypost.errors import BadConfiguration

LOOPBACK = "127.0.0.1"
LOCAL = "local[*]"
SMALL_ROWS = 50_000
"""A run of fewer facts and records is audited in one partition, and without code generation."""
ROWS_A_PARTITION = 250_000
_FOR_A_SMALL_RUN = {
    "spark.sql.shuffle.partitions": "1",
    # A frame of one partition needs no shuffle; Spark, which cannot know the size of cached frames, would shuffle it.
    "spark.sql.defaultSizeInBytes": "1",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def build(master: str | None = None) -> SparkSession:
    """Return the running Spark session, or start one, with the connector for Kafka if that is installed.

    To start one sets PYSPARK_PYTHON in the environment, and on one machine PYSPARK_DRIVER_PYTHON and, if it is not set,
    SPARK_LOCAL_IP; and redirects stdout and stderr of this process meanwhile.

    Args:
        master: Spark's master URL, for a new session; None: that of `spark-submit`, if it started this process; else
            WAYPOST_SPARK_MASTER, or all cores of this machine.

    Raises:
        BadConfiguration: Spark did not start, which needs Java 17; or a running session has ANSI mode on.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return _checked(running)
    builder = SparkSession.builder.appName("waypost audit")
    if master is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        master = os.environ.get("WAYPOST_SPARK_MASTER", LOCAL)
    is_local = _is_local(master)
    if is_local:
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master is not None:
        builder = builder.master(master)
    for key, value in _settings(is_local).items():
        builder = builder.config(key, value)
    with TemporaryFile() as output:
        try:
            with _java_overheard(output):
                session = builder.getOrCreate()
        except PySparkException as error:
            output.seek(0)
            hint = output.read().decode(errors="replace").strip() or str(error)
            raise BadConfiguration("Spark did not start; it needs Java 17", hint=hint) from error
    session.sparkContext.setLogLevel("OFF")
    return _checked(session)


@contextmanager
def _java_overheard(listener: IO[bytes]) -> Iterator[None]:
    """Redirect stdout and stderr of the block, child processes too, to a file: Java prints three lines of warnings at
    every start, and the reason where it does not start. Only the latter is of use.
    """
    sys.stdout.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    for number, _ in kept:
        os.dup2(listener.fileno(), number)
    try:
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)


def _is_local(master: str | None) -> bool:
    """Tell whether driver and executors are on this machine; None: `spark-submit` knows, and it may be a cluster."""
    return master is not None and master.startswith("local")


def _settings(is_local: bool) -> dict[str, str]:
    settings = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # On one machine the plan made beforehand is good enough, and a quarter faster for not being made again.
        "spark.sql.adaptive.enabled": "false" if is_local else "true",
        # Python's call sites, gathered for each column that is made, take ten times as long as the columns.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.dataFrameQueryContext.enabled": "false",
    }
    if is_local:
        settings |= {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": os.environ.get("WAYPOST_SPARK_MEMORY", "3g"),
            "spark.driver.extraJavaOptions": "-Xss16m -XX:+UseParallelGC -Dlog4j2.level=OFF",
            "spark.ui.enabled": "false",
        }
    jars = connector.jars()
    return {**settings, "spark.jars": ",".join(jars)} if jars else settings


@contextmanager
def tuned(session: SparkSession, rows: int) -> Iterator[None]:
    """Change the settings of the session to those for a run of this size, until the end of the block, which restores
    them.

    A small run is all overhead: fifty shuffles of next to nothing, and a Java class to compile for each. Without those
    the audit of a demo takes seconds instead of a minute.

    Args:
        rows: facts and records together, roughly.
    """
    wanted = _FOR_A_SMALL_RUN
    if rows >= SMALL_ROWS:
        needed = max(session.sparkContext.defaultParallelism, rows // ROWS_A_PARTITION)
        wanted = {"spark.sql.shuffle.partitions": str(needed)}
    before = {key: session.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            if old is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, old)


def keep(frame: DataFrame) -> DataFrame:
    """Compute a frame that several steps need, and keep it, in memory and past that on disk, as long as it is used. The
    call runs a Spark job.

    Its plan is cut off: else every step would plan all the steps before it again, which takes longer than the work. In
    a small run (:func:`tuned`) on one machine it is one partition. On a cluster two executors have each partition, as
    one may end.
    """
    session = frame.sparkSession
    if _is_local(session.sparkContext.master):
        is_small = session.conf.get("spark.sql.shuffle.partitions") == "1"
        return (frame.coalesce(1) if is_small else frame).localCheckpoint()
    return frame.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK_2)


def require_connector(session: SparkSession) -> None:
    """Check that this session can read from Kafka. Raises BadConfiguration: it was started without the connector."""
    if connector.CONNECTOR not in session.conf.get("spark.jars", ""):  # type: ignore[operator]
        raise BadConfiguration(
            "this Spark session was started without Spark's Kafka connector",
            hint="start it after spark.connector.require(), or set WAYPOST_PARTS to the folder that holds spark-jars/",
        )


def _checked(session: SparkSession) -> SparkSession:
    if session.conf.get("spark.sql.ansi.enabled", "true") != "false":
        raise BadConfiguration("the audit needs a Spark session with spark.sql.ansi.enabled=false")
    return session
