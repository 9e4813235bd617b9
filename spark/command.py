"""`waypost audit` and `waypost explain`, for people and for scripts."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.errors import BadMessage
from waypost.terminal import escaped

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
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Spark's master; default: all cores of this machine.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Audit a run by its logs alone: who was owed what.

    Finds what was lost, repeated, invented or reordered.

    Example: waypost audit ./run --report ./report

    On a cluster, whose machines must all see the files: waypost audit ./run --master spark://HOST:7077

    Exit status: 0 all promises held; 1 an anomaly, or not enough evidence; 2 wrong usage or input; 3 Kafka
    does not answer.
    """
    from spark.source import locate

    locate(input)  # before Spark is even imported: a wrong path is to be told at once
    if report is not None:
        _require_writable(report)
    from spark.audit import run

    verdict = run(input, report, lambda line: typer.echo(line, err=True), master=master)
    if as_json:
        from spark.report import document

        typer.echo(json.dumps(document(verdict, input), ensure_ascii=False))
    else:
        _print(verdict, input, report)
    raise typer.Exit(0 if verdict.verdict == "ok" else ANOMALY)


def explain(
    notification: Annotated[
        str,
        typer.Argument(
            metavar="NOTIFICATION",
            help="ORIGIN:OFFSET, as A/0:17; or PRODUCER/INCARNATION/SEQUENCE; or an expression, true of it alone.",
        ),
    ],
    session: Annotated[str, typer.Option("--session", metavar="S", help="The session that got it, or did not.")],
    receiver: Annotated[str, typer.Option("--receiver", metavar="R", help="One of its receivers; default: any.")] = "",
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="The run's folder.")] = Path(),
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
) -> None:
    """Explain why a session got a notification, or did not. Prints what logs and journals say of it, a line each.

    Example: waypost explain A/0:17 --session s --run ./run

    Exit status: 0 it is explained, also that no notification stands at ORIGIN:OFFSET; 2 wrong usage or input, or no
    notification has that name, or matches, or nothing is known of the session.
    """
    from spark.explain import explain as explained
    from spark.source import Folder, locate

    source = locate(str(run))
    if not isinstance(source, Folder):
        raise BadMessage("a run in Kafka can be audited, but not explained", field="run")
    found = explained(source, notification, session, receiver)
    if as_json:
        typer.echo(json.dumps({"v": 1, **asdict(found)}, ensure_ascii=False))
        return
    typer.echo(found.sentence)
    for line in found.lines:
        at = "" if line.at_ms is None else f"{datetime.fromtimestamp(line.at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
        typer.echo(f"{at:23}  {line.what:12}  {escaped(line.text)}  [{line.where}]")


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

    from spark.verdict import MAX_EXAMPLES

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
        more = sum(verdict.counts.values()) - min(len(verdict.examples), _LISTED)
        if more:
            where = "the report" if report else "a report (--report DIR)"
            console.print(f"and {more:,} more; {where} lists up to {MAX_EXAMPLES:,} of each class")
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
