from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from chaos.servers import parts
from spark import session as sessions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves sockets of collected results to the garbage collector, which says so whenever it runs."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One Spark for the whole run: it takes seconds to start, and its first job seconds more."""
    # The connector for Kafka can only be given when Spark starts.
    parts.install(["spark-jars"])
    with pytest.MonkeyPatch.context() as patch:
        # Other servers run with the lesser of Java's compilers (tests/servers.py); thirty audits are worth the better.
        patch.delenv("JDK_JAVA_OPTIONS", raising=False)
        running = sessions.build("local[2]")
    yield running
    running.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()
