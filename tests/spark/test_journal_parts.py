"""A journal in parts: all of them there, the oldest put away, one missing from the middle. Written by the adapter."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from federation.embedded.journal import EmbeddedJournal, read_facts, segment_paths
from federation.journal_segments import Rotation
from spark.audit import judge
from spark.source import locate
from spark.verdict import Verdict
from tests.spark.runs import Run
from waypost.facts import Fact, FactKind, OwnedCause
from waypost.identity import Incarnation, ProxyId, SessionId
from waypost.records import InterestRegistered

WANTED = "topic == 'x'"
WRITER, JOURNAL = "proxy/a/life", "a-life"
EVERYTHING = {"A/0": 10_000}


def attested_run() -> Run:
    """A run of one proxy: what `s` is owed and had; `early` had all before the first part was full."""
    run = Run()
    own = [run.publish("A", topic="x", n=n) for n in range(12)]
    run.append("A", InterestRegistered(ProxyId("a"), Incarnation("life"), SessionId("s"), (WANTED,)))
    run.fact(WRITER, "opened", site="A")
    run.fact(WRITER, "subscribed", session="s", subscription="s1", expression=WANTED, epoch=1)
    run.fact(WRITER, "effective", session="s", subscription="s1", frontier={"A/0": -1}, epoch=1)
    for coordinate in own:
        run.fact(WRITER, "acknowledged", origin="A/0", offsets=[coordinate.offset])
    run.fact(WRITER, "owned", session="s", proxy="a", epoch=1, cause=OwnedCause.CREATE)
    run.owned.add(("s", 1))
    run.receive("s", *own[:3])
    run.receive("s", *own[3:])
    run.fact(WRITER, "drained", session="s", receiver="r", frontier=EVERYTHING, epoch=1)
    run.end()
    return run


async def write(folder: Path, facts: list[Fact]) -> None:
    journal = EmbeddedJournal(folder, JOURNAL, rotation=Rotation(segment_bytes=700))
    for fact in facts:
        await journal.attest([fact])
    await journal.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    run, root = attested_run(), tmp_path_factory.mktemp("parts")
    of_proxy, of_receiver = run.journals.pop(WRITER), run.journals.pop("s/r")
    run.write(root)
    folder = root / "sites" / "A" / "journal"
    for path in folder.iterdir():
        path.unlink()
    first, rest = of_proxy[:6], of_proxy[6:]
    facts = [fact for fact in (*first, of_receiver[0], *rest, of_receiver[1]) if isinstance(fact, Fact)]
    asyncio.run(write(folder, facts))
    yield root


def parts(root: Path) -> list[Path]:
    return segment_paths(root / "sites" / "A" / "journal", JOURNAL)


def without(written: Path, tmp_path: Path, *away: int) -> Path:
    root = tmp_path / "run"
    shutil.copytree(written, root)
    paths = parts(root)
    assert len(paths) > 3
    for number in away:
        paths[number].unlink()
    return root


def audited(root: Path, spark: SparkSession) -> Verdict:
    return judge(spark, locate(str(root)))


def writers(verdict: Verdict, code: str) -> Counter[str]:
    return Counter(str(example["writer"]) for example in verdict.examples if example["code"] == code)


def test_all_parts_are_read(written: Path, spark: SparkSession) -> None:
    begins = [
        fact for fact in read_facts(written / "sites" / "A" / "journal", JOURNAL) if fact.kind == FactKind.ROTATED
    ]
    assert len(begins) == len(parts(written)) > 3
    verdict = audited(written, spark)
    assert (verdict.verdict, verdict.counts, verdict.delivered) == ("ok", {}, 12), verdict.examples


def test_parts_that_were_put_away_are_no_hole(written: Path, tmp_path: Path, spark: SparkSession) -> None:
    verdict = audited(without(written, tmp_path, 0, 1), spark)
    assert verdict.verdict == "unknown", verdict.examples
    assert verdict.counts.keys() >= {"A3"} and not verdict.counts.keys() & {"A1", "L1", "P3", "P4"}
    assert writers(verdict, "A3").keys() >= {WRITER, f"journal/{JOURNAL}"}
    assert all("put away" in example["note"] for example in verdict.examples if example["code"] == "A3")


def test_a_part_that_is_missing_from_the_middle_is_a_hole(written: Path, tmp_path: Path, spark: SparkSession) -> None:
    verdict = audited(without(written, tmp_path, 1), spark)
    assert verdict.verdict == "unknown"
    assert writers(verdict, "A1").keys() >= {WRITER, f"journal/{JOURNAL}"}
    assert not writers(verdict, "A3")


def test_the_oldest_put_away_and_one_more_from_the_middle_are_told_apart(
    written: Path, tmp_path: Path, spark: SparkSession
) -> None:
    verdict = audited(without(written, tmp_path, 0, 2), spark)
    assert WRITER in writers(verdict, "A3") and WRITER in writers(verdict, "A1")


def test_journal_without_a_recorded_beginning_has_a_hole(written: Path, tmp_path: Path, spark: SparkSession) -> None:
    root = without(written, tmp_path)
    path = parts(root)[0]
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    # The second part says what was in the first; the first says that it is the first, or nobody does.
    for later in parts(root)[1:]:
        later.write_bytes(b"".join(later.read_bytes().splitlines(keepends=True)[1:]))
    verdict = audited(root, spark)
    assert WRITER in writers(verdict, "A1") and not writers(verdict, "A3")
