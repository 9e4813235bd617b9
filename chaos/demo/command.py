"""`waypost demo`: the main job in one command, with live progress, a table and a verdict."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.errors import BadConfiguration

if TYPE_CHECKING:
    from chaos.demo.run import Outcome, Progress


MARK = ".waypost-demo"


def demo(
    seed: Annotated[int, typer.Option(help="Another seed gives other roaming, and another week.")] = 1,
    real: Annotated[bool, typer.Option("--real", help="Real Kafka, one broker a site, and real etcd.")] = False,
    whole_year: Annotated[bool, typer.Option("--all", help="All 336,776 flights of 2013, not one week.")] = False,
    people: Annotated[int, typer.Option("--travellers", min=20, help="How many travellers roam.")] = 24,
    data: Annotated[Path | None, typer.Option(help="Folder for data and logs; else a new one.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="JSON on stdout, errors too.")] = False,
) -> None:
    """Replay real flights to roaming travellers.

    Kills a proxy on the way, and proves that nothing was lost or repeated.

    Exit status 1 if anything was lost, repeated, out of order or not owed at the clients, was still missing at the end,
    or if the audit finds a violation or anything pending. A folder that an earlier demo left is emptied.
    """
    import uvloop

    from chaos.demo.run import Demo, Plan

    root = _emptied(data) if data else Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    screen = Screen()
    run = Demo(Plan(seed, real, whole_year, people), root, screen.write_line, screen.show)
    screen.write_line(f"data and logs: {root}")
    with run.cluster:
        try:
            outcome = uvloop.run(run.run())
        finally:
            screen.close()
        run.cluster.stop_proxies()
        screen.write_line("the proxies have ended; Spark reads their logs")
        verdict = _audit(run.cluster.audit_input, root / "report")
    # Every traveller has come back: nothing may wait for one any more.
    clean = outcome.result.clean and outcome.is_complete and verdict.verdict == "ok" and not verdict.pending
    _print(outcome, verdict, as_json=json_)
    raise typer.Exit(0 if clean else 1)


def _emptied(folder: Path) -> Path:
    """Return the folder, made anew. What an earlier demo left there goes; anybody else's things do not."""
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / MARK).exists():
            raise BadConfiguration(f"{folder} is not empty, and no demo left it so", field="data")
        if folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True)
        (folder / MARK).touch()
    except OSError as error:
        raise BadConfiguration(f"{folder} cannot be made anew: {error.strerror}", field="data") from None
    return folder


def _audit(source: str, report: Path) -> Any:
    from spark.audit import run

    return run(source, report)


def _rows(outcome: Outcome, verdict: Any) -> list[tuple[str, str, str]]:
    result = outcome.result
    return [
        ("published", f"{result.published:,}", f"{verdict.published:,}"),
        ("owed", f"{result.expected:,}", f"{verdict.owed:,}"),
        ("delivered", f"{result.delivered:,}", f"{verdict.delivered:,}"),
        ("lost", f"{len(result.lost):,}", f"{verdict.lost:,}"),
        ("pending", "", f"{verdict.pending:,}"),
        ("duplicated", f"{len(result.duplicated):,}", f"{verdict.duplicated:,}"),
        ("phantom", f"{len(result.phantom):,}", ""),
        ("reordered", f"{len(result.reordered):,}", ""),
        ("repeats dropped by the library", f"{outcome.repeats_dropped:,}", ""),
        ("handovers to another proxy", f"{len(outcome.moves_ms):,}", ""),
        ("  p50 / p99", f"{outcome.p50_ms:.0f} / {outcome.p99_ms:.0f} ms", ""),
        ("absences", f"{outcome.absences:,}", ""),
        ("seconds", f"{outcome.seconds:.0f}", ""),
        ("verdict", "ok" if result.clean and outcome.is_complete else "VIOLATED", verdict.verdict),
    ]


def _print(outcome: Outcome, verdict: Any, *, as_json: bool) -> None:
    rows = _rows(outcome, verdict)
    if as_json:
        import json

        print(json.dumps({"v": 1, "clients": {name.strip(): end for name, end, _ in rows}, "audit": verdict.to_dict()}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("", "at the clients", "by the audit, from the logs alone")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
    for name, cases in outcome.result.worst.items():
        for receiver, identity in cases:
            print(f"  {name}: {receiver}: {identity}", file=sys.stderr)


class Screen:
    """Progress on stderr: a live line on a terminal, else a plain line now and then."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, soft_wrap=True)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True) if sys.stderr.isatty() else None
        if self._live:
            self._live.start()
        self._ticks = 0

    def write_line(self, line: str) -> None:
        """Print a line for people on stderr, above what is drawn."""
        self._console.print(line, markup=False, highlight=False)

    def show(self, progress: Progress) -> None:
        """Draw the demo's progress anew; without a terminal, print every sixth one as a line."""
        from rich.text import Text

        line = (
            f"{progress.published:,} of {progress.total:,} flights, {progress.delivered:,} delivered, "
            f"{progress.online} online, {progress.moves} handovers {progress.note}"
        )
        self._ticks += 1
        if self._live:
            self._live.update(Text(line))
        elif self._ticks % 6 == 1:
            self.write_line(line)

    def close(self) -> None:
        """End the drawing, and remove what was drawn; written lines stay. Nothing happens without a terminal."""
        if self._live:
            self._live.stop()
