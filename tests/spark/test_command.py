"""`waypost audit` as people and scripts meet it, and the report it leaves."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from spark.audit import worst_first
from spark.command import audit
from spark.report import document, page, write_report
from spark.verdict import Finding, Verdict
from tests.spark.test_readers import small_run
from waypost.errors import WaypostError

app = typer.Typer(rich_markup_mode=None)
app.command()(audit)


def violated(example: Finding, *, lost: int, **totals: int) -> Verdict:
    """Return a verdict on a run with so many losses, of which one is an example."""
    counts = {"L1": lost}
    return Verdict(verdict="violated", counts=counts, lost=lost, pending=0, duplicated=0, examples=[example], **totals)


def test_violations_are_listed_before_other_findings() -> None:
    findings = [{"code": code} for code in ("A1", "D4", "L4", "P4")]
    assert [finding["code"] for finding in worst_first(findings)] == ["P4", "A1", "D4", "L4"]


def test_an_anomaly_is_exit_status_1_in_json_with_a_report(spark: SparkSession, tmp_path: Path) -> None:
    folder = small_run().write(tmp_path / "run")
    done = CliRunner().invoke(app, [str(folder), "--json", "--report", str(tmp_path / "report")])
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert report["v"] == 1
    assert report["verdict"] == "violated"
    assert report["totals"] == {"published": 4, "owed": 3, "delivered": 2, "lost": 1, "pending": 0, "duplicated": 0}
    assert [(row["code"], row["count"]) for row in report["classes"]] == [("L1", 1)]
    assert report["findings"][0]["sequence"] == "4"
    assert json.loads((tmp_path / "report" / "audit.json").read_text()) == report
    assert "violated" in (tmp_path / "report" / "audit.html").read_text()


def test_people_get_a_line_a_table_and_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    example = {"code": "L1", "session": "s", "receiver": "r", "producer": "[bold]p", "site": ""}
    verdict = violated(example, published=4, owed=3, delivered=2, lost=1)
    monkeypatch.setattr("spark.audit.run", lambda *_, **__: verdict)
    done = CliRunner().invoke(app, [str(small_run().write(tmp_path))])
    assert done.exit_code == 1
    assert "violated" in done.stdout
    assert "4 published, 3 owed, 2 delivered, 1 lost, 0 pending, 0 duplicated" in done.stdout
    assert "L1  session=s receiver=r producer=[bold]p" in done.stdout
    assert "more" not in done.stdout


def test_people_are_told_how_many_findings_are_not_listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict = violated({"code": "L1", "session": "s"}, published=1240, owed=1240, delivered=6, lost=1234)
    monkeypatch.setattr("spark.audit.run", lambda *_, **__: verdict)
    done = CliRunner().invoke(app, [str(small_run().write(tmp_path))])
    assert "and 1,233 more; a report (--report DIR) lists up to 1,000 of each class" in done.stdout


def test_wrong_input_is_refused_without_waiting_for_spark(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [str(tmp_path / "nowhere")])
    assert isinstance(done.exception, WaypostError)
    assert done.exception.exit_status == 2
    script = "import spark.command, spark.source, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


def test_unwritable_report_is_refused_without_waiting_for_spark(tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("a file")
    done = CliRunner().invoke(app, [str(small_run().write(tmp_path / "run")), "--report", str(taken)])
    assert isinstance(done.exception, WaypostError)
    assert (done.exception.exit_status, done.exception.field) == (2, "report")


class Visible(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_page_escapes_what_clients_chose() -> None:
    evil = "<script>alert(1)</script>"
    finding = {"code": "L1", "session": evil, "producer": '"><img src=x>', "sequence": 2**60}
    verdict = violated(finding, published=1, owed=1, delivered=0, lost=1234)
    text = page(verdict, evil)
    reader = Visible()
    reader.feed(text)
    assert not {"script", "img", "link", "iframe"} & set(reader.tags)
    assert "and 1,233 more" in text
    assert document(verdict, evil)["findings"][0]["sequence"] == str(2**60)


@pytest.mark.parametrize("verdict", ["ok", "unknown"])
def test_a_report_is_written_where_there_was_no_folder(verdict: str, tmp_path: Path) -> None:
    write_report(
        Verdict(verdict=verdict, counts={}, published=1, owed=1, delivered=1, lost=0, pending=0, duplicated=0),
        "run",
        tmp_path / "a" / "b",
    )
    assert json.loads((tmp_path / "a" / "b" / "audit.json").read_text())["verdict"] == verdict
    assert "<p>None.</p>" in (tmp_path / "a" / "b" / "audit.html").read_text()


def test_java_says_why_it_did_not_start(tmp_path: Path) -> None:
    folder = small_run().write(tmp_path / "run")
    command = [str(Path(sys.executable).with_name("waypost")), "audit", str(folder)]
    environment = os.environ | {"WAYPOST_SPARK_MEMORY": "1k"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "error: BAD_CONFIGURATION: Spark did not start" in done.stderr
    assert "heap" in done.stderr
