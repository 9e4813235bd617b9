"""The audit as a detector: every anomaly that was planted is found, with its count, and nothing else is.

All are planted in one run, each in a session, a writer or a site of its own, beside sessions that are in order. What
the evidence lacks is planted in a second run, with all the rest: there no more is said than can be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.audit import judge
from spark.source import locate
from spark.verdict import Finding, Verdict
from tests.spark.anomalies import EVERYTHING, NOTHING, TTL, WANTED, A, AnomalyRun, damaged, injected
from tests.spark.runs import Run
from waypost.identity import Incarnation, ProxyId, SessionId
from waypost.records import InterestRegistered


@pytest.fixture(scope="module")
def planting() -> AnomalyRun:
    return injected()


@pytest.fixture(scope="module")
def verdict(spark: SparkSession, planting: AnomalyRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Verdict]:
    yield judge(spark, locate(str(planting.run.write(tmp_path_factory.mktemp("planted")))))


@pytest.fixture(scope="module")
def damaged_run() -> AnomalyRun:
    return damaged()


def test_audit_finds_no_anomaly_that_missing_evidence_could_excuse(
    spark: SparkSession, damaged_run: AnomalyRun, tmp_path: Path
) -> None:
    verdict = judge(spark, locate(str(damaged_run.run.write(tmp_path))))
    found = Counter((finding["code"], where(finding)) for finding in verdict.examples)
    assert found == damaged_run.expected
    (doubt,) = (example["note"] for example in verdict.examples if where(example) == "mismatch")
    assert doubt == "looks like P3; evidence that could excuse it is missing"


def two_sites() -> Run:
    """A session that began at B, with a second subscription and a policy stated there, and went on at A."""
    run = Run()
    own = [run.publish("A", topic="x", n=n) for n in range(3)]
    other = run.publish("A", topic="y")
    far = [run.publish("B", "q", topic="x", n=n) for n in range(2)]
    session = "s"
    for proxy, site in (("a", "A"), ("b", "B")):
        run.append(site, InterestRegistered(ProxyId(proxy), Incarnation("life"), SessionId(session), (WANTED,)))
        run.fact(f"proxy/{proxy}/life", "opened", site=site)
    at = {"session": session, "subscription": "s1"}
    run.fact("proxy/a/life", "subscribed", **at, expression=WANTED, epoch=1)
    run.fact("proxy/a/life", "effective", **at, frontier=NOTHING, epoch=1)
    at["subscription"] = "s2"
    run.fact("proxy/b/life", "subscribed", **at, expression="topic == 'y'", epoch=1)
    run.fact("proxy/b/life", "policy", session=session, subscription="s1", epoch=1, ttl_s=60)
    about = {"session": session, "origin": A, "offsets": [own[2].offset], "epoch": 1, "policies": [TTL]}
    run.fact("proxy/b/life", "removed", at_ms=60_000, **about)
    run.receive(session, *own[:2], other, *far)
    run.fact("proxy/a/life", "drained", session=session, receiver="r", frontier=EVERYTHING)
    run.end()
    return run


def without_the_journal(run: Run) -> None:
    del run.journals["proxy/b/life"]


def without_the_site(run: Run) -> None:
    del run.journals["proxy/b/life"]
    del run.logs["B"]


def without_the_end_of_the_journal(run: Run) -> None:
    del run.journals["proxy/b/life"][1:]


def with_a_line_that_is_none(run: Run) -> None:
    run.journals["proxy/b/life"][1] = run.journals["proxy/b/life"][2] = b"{"


def test_audit_accepts_an_anomaly_that_another_journal_excuses(spark: SparkSession, tmp_path: Path) -> None:
    verdict = judge(spark, locate(str(two_sites().write(tmp_path))))
    assert (verdict.verdict, verdict.counts) == ("ok", {"L4": 1})


@pytest.mark.parametrize(
    "take",
    [without_the_journal, without_the_site, without_the_end_of_the_journal, with_a_line_that_is_none],
    ids=lambda take: take.__name__,
)
def test_evidence_that_was_taken_away_makes_the_verdict_unknown(
    take: Callable[[Run], None], spark: SparkSession, tmp_path: Path
) -> None:
    run = two_sites()
    take(run)
    verdict = judge(spark, locate(str(run.write(tmp_path))))
    assert verdict.verdict == "unknown"
    assert {finding["note"] for finding in verdict.examples if finding["code"] in ("L3", "A5")} >= {
        "looks like P3; evidence that could excuse it is missing",
        "looks like L1; evidence that could excuse it is missing",
    }


def test_a_retry_is_not_out_of_order_where_its_first_copy_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    run = Run()
    first = run.publish("A", "w", 1, topic="x")
    second = run.publish("A", "w", 2, topic="x")
    again = run.publish("A", "w", 1, topic="x")
    run.subscribe("s", WANTED, {A: -1})
    run.receive("s", second, again)
    run.drain("s", EVERYTHING)
    run.end()
    del run.logs["A"][first.offset]
    verdict = judge(spark, locate(str(run.write(tmp_path))))
    assert (verdict.verdict, verdict.counts) == ("unknown", {"A1": 1, "A5": 1})


def test_copy_delivered_from_a_log_with_a_hole_is_not_lost_under_its_other_coordinate(
    spark: SparkSession, tmp_path: Path
) -> None:
    run = Run()
    run.publish("A", "w", 1, topic="x")
    copy = run.publish("B", "w", 1, topic="x")
    run.publish("B", topic="z")
    run.subscribe("s", WANTED, NOTHING)
    run.receive("s", copy)
    run.drain("s", EVERYTHING)
    run.end()
    del run.logs["B"][copy.offset]
    verdict = judge(spark, locate(str(run.write(tmp_path))))
    assert (verdict.verdict, verdict.counts) == ("unknown", {"L3": 1, "A1": 1, "A5": 1})


def where(finding: Finding) -> str:
    return str(finding.get("session") or finding.get("writer") or finding.get("site") or "")


def test_audit_finds_every_planted_anomaly_and_no_other(planting: AnomalyRun, verdict: Verdict) -> None:
    found = Counter((finding["code"], where(finding)) for finding in verdict.examples)
    assert found == planting.expected


def test_the_counts_are_exact_and_the_run_is_violated(planting: AnomalyRun, verdict: Verdict) -> None:
    expected: Counter[str] = Counter()
    for (code, _), count in planting.expected.items():
        expected[code] += count
    assert verdict.counts == dict(expected)
    assert verdict.verdict == "violated"
    assert verdict.lost == expected["L1"] + expected["L2"]
    assert verdict.duplicated == expected["D1"] + expected["D2"]


def test_a_finding_names_ids_coordinates_epochs_and_proxies(planting: AnomalyRun, verdict: Verdict) -> None:
    (moved,) = (example for example in verdict.examples if where(example) == "moved")
    lost = planting.site_a[3]
    assert moved == {
        "code": "L2",
        "session": "moved",
        "receiver": "r",
        "producer": "p",
        "incarnation": "life",
        "sequence": 4,
        "origin": lost.origin,
        "offset": lost.offset,
        "other_epoch": 1,
        "other_proxy": "a",
        "epoch": 2,
        "proxy": "b",
        "reason": "handover",
        "note": "epoch 2 went to b by handover",
    }
    (again,) = (example for example in verdict.examples if example["code"] == "D2")
    assert (again["epoch"], again["proxy"], again["other_epoch"], again["other_proxy"]) == (2, "b", 1, "a")
    assert (again["origin"], again["offset"]) == planting.site_a[1]
    (altered,) = (example for example in verdict.examples if where(example) == "altered")
    assert (altered["writer"], altered["number"]) == ("altered/rsecond", 1)


def test_an_open_horizon_makes_the_verdict_unknown(spark: SparkSession, tmp_path: Path) -> None:
    run = Run()
    own = [run.publish("A", topic="x", n=n) for n in range(4)]
    run.subscribe("s", WANTED, {A: -1})
    run.receive("s", *own[:2])
    for writer in list(run.journals):
        run.fact(writer, "closed")
    verdict = judge(spark, locate(str(run.write(tmp_path))))
    assert verdict.verdict == "unknown"
    assert verdict.counts == {"L5": 2, "A4": 1}
    assert verdict.published == 4
