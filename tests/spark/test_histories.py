"""200 histories that were drawn, with every kind of fault among them: all that is wrong is found, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession

from spark.audit import judge
from spark.source import locate
from tests.spark.histories import drawn

HISTORIES = 200
SEED = 20_261


def test_audit_finds_what_is_wrong_in_drawn_histories_and_nothing_else(spark: SparkSession, tmp_path: Path) -> None:
    run, expected = drawn(SEED, HISTORIES)
    verdict = judge(spark, locate(str(run.write(tmp_path))))
    found = Counter((finding["code"], str(finding.get("session", ""))) for finding in verdict.examples)
    assert found - expected == Counter(), "found, and not there"
    assert expected - found == Counter(), "there, and not found"
    assert len({code for code, _ in expected}) >= 15
