"""`waypost audit`: the audit for people and for scripts."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.errors import BadMessage

if TYPE_CHECKING:
    from spark.verdict import Verdict

# Spark is imported when it is needed: `waypost --help` lists this command, and must not wait for that.

ANOMALY = 1
_LISTED = 10
_COLOURS = {"ok": "green", "violated": "red", "unknown": "yellow"}


def audit(
    input: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A run's folder, or kafka://SITE=HOST:PORT,.../PREFIX"),
    ],
    report: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Write audit.json and audit.html into DIR.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Recompute from logs alone who was owed what, and find what was lost, repeated, invented or reordered.

    Example: waypost audit ./run --report ./report

    Exit status: 0 all promises held; 1 an anomaly, or not enough evidence; 2 wrong usage or input; 3 Kafka
    does not answer.
    """
    from spark.source import locate

    locate(input)  # before Spark is even imported: a wrong path is to be told at once
    if report is not None:
        _require_writable(report)
    from spark.audit import run

    verdict = run(input, report, lambda line: typer.echo(line, err=True))
    if as_json:
        from spark.report import document

        typer.echo(json.dumps(document(verdict, input), ensure_ascii=False))
    else:
        _print(verdict, input, report)
    raise typer.Exit(0 if verdict.verdict == "ok" else ANOMALY)


def _require_writable(report: Path) -> None:
    """Raises BadMessage: the report could not be written; an audit takes too long to be told so at its end."""
    try:
        report.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=report):
            pass
    except OSError as error:
        raise BadMessage(f"{report} cannot be written: {error.strerror}", field="report") from None


def _print(verdict: Verdict, source: str, report: Path | None) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console(highlight=False)
    console.print(f"[bold {_COLOURS[verdict.verdict]}]{verdict.verdict}[/]  {escape(source)}")
    console.print(
        f"{verdict.published:,} published, {verdict.owed:,} owed, {verdict.delivered:,} delivered, "
        f"{verdict.lost:,} lost, {verdict.pending:,} pending, {verdict.duplicated:,} duplicated"
    )
    if verdict.counts:
        console.print(_table(verdict))
        for finding in verdict.examples[:_LISTED]:
            fields = (f"{name}={value}" for name, value in finding.items() if name != "code" and value != "")
            console.print(escape(f"{finding['code']}  {' '.join(fields)}"), soft_wrap=True)
    if report is not None:
        console.print(f"report: {escape(str(report / 'audit.html'))}", soft_wrap=True)


def _table(verdict: Verdict) -> object:
    from rich.table import Table

    from spark.schemas import CLASSES

    table = Table("code", "class", "number", "makes the run", box=None)
    for code, count in verdict.counts.items():
        makes, name, _ = CLASSES[code]
        table.add_row(code, name, f"{count:,}", makes)
    return table
