"""The input end: what is refused, and what becomes of lines and records that mean nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from pyspark.sql import SparkSession

from chaos.servers.kafka import KafkaServer
from spark.audit import judge, run
from spark.matcher import Matcher
from spark.readers import parse_facts
from spark.record_rows import rows
from spark.schemas import FACT, RECORD
from spark.source import BadInput, Folder, Topics, locate
from tests.helpers.papers import Papers
from tests.spark.runs import Run, origin
from waypost.errors import BadConfiguration, LogUnavailable
from waypost.facts import Fact, FactKind, GapCause, RemovalPolicy, encode_fact
from waypost.identity import Incarnation, Origin, ProxyId
from waypost.notification import Int64, Notification
from waypost.records import Closed, InterestsExpired, Published, encode_record

A = origin("A")


def small_run() -> Run:
    run = Run()
    own = [run.publish("A", topic="x", n=n) for n in range(4)]
    run.subscribe("s", "topic == 'x' && n > 0", {A: -1})
    run.receive("s", *own[1:3])
    run.drain("s", {A: 10_000})
    run.end()
    return run


# ---------------------------------------------------------------- where the input is


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nowhere", "is no folder"),
        (".", "holds no site log"),
        ("kafka://", "is not of the form"),
        ("kafka://A/prefix", "is not of the form"),
        ("kafka://A=h:1,B/prefix", "is not of the form"),
        ("kafka://A=h:1", "is not of the form"),
    ],
)
def test_path_without_a_run_is_refused_in_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=complaint) as caught:
        locate(str(tmp_path) if text == "." else text)
    assert caught.value.exit_status == 2
    assert "\n" not in str(caught.value)


def test_a_run_without_a_journal_is_refused(tmp_path: Path) -> None:
    run = small_run()
    run.write(tmp_path)
    for path in tmp_path.glob("sites/*/journal/*"):
        path.unlink()
    with pytest.raises(BadInput, match="holds no journal"):
        locate(str(tmp_path))


def test_a_kafka_that_does_not_answer_is_named() -> None:
    with pytest.raises(LogUnavailable, match=r"no Kafka answers at 127\.0\.0\.1:1:"):
        locate("kafka://A=127.0.0.1:1/prefix")


def test_both_forms_are_located(tmp_path: Path, kafka: KafkaServer) -> None:
    folder = locate(str(small_run().write(tmp_path)))
    assert isinstance(folder, Folder)
    assert list(folder.logs) == ["A"]
    assert [path.name for path in folder.journals["A"]] == ["one [1].jsonl", "two.jsonl"]
    topics = locate(f"kafka://A={kafka.bootstrap},B={kafka.bootstrap}/pre.fix")
    assert topics == Topics({"A": kafka.bootstrap, "B": kafka.bootstrap}, "pre.fix")
    assert topics.log_topic("B") == "pre.fix.B.log"


def test_a_file_that_is_no_database_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    small_run().write(tmp_path)
    log = tmp_path / "sites" / "A" / "log.db"
    log.write_bytes(b"not a database, though it is where one should be")
    with pytest.raises(BadInput, match="is no site log"):
        judge(spark, locate(str(tmp_path)))
    log.unlink()
    sqlite3.connect(log).close()
    with pytest.raises(BadInput, match="is no site log"):
        judge(spark, locate(str(tmp_path)))


# ---------------------------------------------------------------- facts and records


def test_the_shape_of_a_fact_is_the_shape_that_is_written() -> None:
    assert tuple(FACT.fieldNames()) == Fact.__struct_fields__


def test_facts_are_parsed_with_their_defaults_and_lines_that_are_none_are_kept(spark: SparkSession) -> None:
    whole = Fact(
        writer="w",
        number=1,
        at_ms=2,
        kind=FactKind.RECEIVED,
        proxy="a",
        site="A",
        session="s",
        epoch=3,
        receiver="r",
        subscription="s1",
        expression="x",
        origin=A,
        offsets=[1, 2],
        digests=[3, 4],
        frontier={A: 5},
        cause=GapCause.DAMAGE,
        policies=[RemovalPolicy.MAX_COUNT, RemovalPolicy.TIME_TO_LIVE],
        reason="why",
        role="target",
        phase="copying",
        discard="fifo",
        deadlines=True,
        transfer="t",
        entries=6,
        bytes=7,
    )
    bare = Fact(writer="w", number=2, at_ms=0, kind=FactKind.OPENED)
    bad = ["", "  ", "{", "[1]", '"text"', '{"writer":"w"}', '{"writer":"w","number":"1","at_ms":0,"kind":"opened"}']
    lines = [encode_fact(whole).decode(), encode_fact(bare).decode(), *bad]
    facts = parse_facts(spark.createDataFrame([("file", line) for line in lines], "source string, value string"))
    found = facts.collect()
    usable = [tuple(row[name] for name in Fact.__struct_fields__) for row in found if row["unusable"] is None]
    assert usable == [tuple(getattr(fact, name) for name in Fact.__struct_fields__) for fact in (whole, bare)]
    assert [row["unusable"] for row in found if row["unusable"] is not None] == bad[2:]


def test_a_record_becomes_a_row_of_the_shape_whatever_it_is() -> None:
    body = Notification({"a": 1, "b": Int64(2), "c": 0.5, "d": "text", "e": b"123", "f": 9}).body
    records = [
        encode_record(Published(producer="p", incarnation=Incarnation("i"), sequence=7, at_ms=0, body=body)),
        encode_record(Closed("w", 0, {Origin(A): 4})),
        encode_record(InterestsExpired(ProxyId("a"), Incarnation("i"))),
        encode_record(Published(producer="p", incarnation=Incarnation("i"), sequence=2**63, at_ms=0, body=body)),
        b"\x90",
        None,
    ]
    matcher = Matcher(
        ["a == 1 && b == 2L && c == 0.5 && d == 'text' && size(e) == 3 && f == 9", "absent == 1", "f == 9"]
    )
    found = list(rows((("A", 0, n, record) for n, record in enumerate(records)), matcher))
    assert {len(row) for row in found} == {len(RECORD)}
    published = dict(zip(RECORD.fieldNames(), found[0], strict=True))
    assert (published["origin"], published["offset"], published["sequence"]) == (A, 0, 7)
    assert published["matched"] == [0, 2]
    assert [row[-1] for row in found[1:]] == [None] * 5
    assert [row[2] for row in found] == ["published", "closed", "interests-expired", *["unusable"] * 3]
    assert dict(zip(RECORD.fieldNames(), found[1], strict=True))["frontier"] == {A: 4}


# ---------------------------------------------------------------- Kafka


async def fill(kafka: KafkaServer, topics: dict[str, list[bytes]], **security: Any) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap, **security)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1) for name in topics])
    finally:
        await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all", **security) as producer:
        for name, values in topics.items():
            for value in values:
                await producer.send_and_wait(name, value)


async def test_a_run_over_kafka_is_judged_as_the_embedded_one(
    spark: SparkSession, kafka: KafkaServer, topic_prefix: str, tmp_path: Path
) -> None:
    run_in_files = small_run()
    prefix = f"{topic_prefix}run"
    log, lines = list(run_in_files.logs["A"].values()), run_in_files.lines()
    await fill(kafka, {f"{prefix}.A.log": log, f"{prefix}.A.journal": lines})
    embedded = judge(spark, locate(str(run_in_files.write(tmp_path))))
    over_kafka = run(f"kafka://A={kafka.bootstrap}/{prefix}")
    assert over_kafka == embedded
    assert over_kafka.counts == {"L1": 1}
    assert (over_kafka.published, over_kafka.owed, over_kafka.delivered) == (4, 3, 2)


async def test_a_kafka_that_asks_for_a_certificate_is_shown_the_one_that_proxies_show(
    spark: SparkSession, kafka_over_tls: KafkaServer, papers: Papers, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix, own, where = f"{topic_prefix}run", small_run(), f"kafka://A={kafka_over_tls.bootstrap}/{topic_prefix}run"
    topics = {f"{prefix}.A.log": list(own.logs["A"].values()), f"{prefix}.A.journal": own.lines()}
    await fill(kafka_over_tls, topics, security_protocol="SSL", ssl_context=papers.client("auditor"))
    monkeypatch.setenv("WAYPOST_BACKEND_CA", str(papers.authority))
    with pytest.raises(LogUnavailable) as refused:
        judge(spark, locate(where))
    assert "\n" not in str(refused.value)
    monkeypatch.setenv("WAYPOST_BACKEND_CERT", str(papers.certificate))
    monkeypatch.setenv("WAYPOST_BACKEND_KEY", str(papers.key))
    assert judge(spark, locate(where)).counts == {"L1": 1}
    monkeypatch.setenv("WAYPOST_BACKEND_KEY", "/nowhere")
    with pytest.raises(BadConfiguration, match="WAYPOST_BACKEND_KEY: /nowhere cannot be read"):
        locate(where)


def test_topics_that_are_not_there_are_one_clear_error(spark: SparkSession, kafka: KafkaServer) -> None:
    with pytest.raises(LogUnavailable, match="does not hold the topics"):
        judge(spark, locate(f"kafka://A={kafka.bootstrap}/no-such-run"))
