"""What documents and comments name is there: rules, failures, files, commands, links."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import itertools
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from bench.__main__ import NAMES
from handover.source import SourceState
from handover.target import TargetState
from node.cli.app import main
from waypost import facts, queue, records

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS: list[str] = SETTINGS["tool"]["importlinter"]["root_packages"]
SMALLER_ROOMS = [
    str(path.parent.relative_to(ROOT))
    for room in ("proxy", "node", "chaos")
    for path in (ROOT / room).glob("*/README.md")
]
FOLDERS = [*ROOMS, "bench", "docs", "tests"]
FILES = [*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))]
PAGES = sorted(path for path in FILES if path.suffix == ".md")
SOURCES = sorted(path for path in FILES if path.suffix in (".py", ".txt", ".lark"))
RULES, FAILURES = ROOT / "docs/handover-rules.md", ROOT / "docs/failures.md"

CITED_RULE = re.compile(r"\b[Rr]ules? (\d+)(?: to (\d+))?((?:(?:,| and) \d+)*)")
CITED_FAILURE = re.compile(r"\bF(\d{1,3})\b")
BLOCK, SPAN = re.compile(r"^```.*?\n(.*?)^```", re.DOTALL | re.MULTILINE), re.compile(r"`([^`]+)`")
WHERE = re.compile(r"^\| .* \| `([^`]+\.py)` \| `(\w+)` \|$", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(r"[\w.-]*[\w./-]+(?:\.(?:py|md|txt|toml|lark)|/)")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code_of(page: Path) -> Iterator[str]:
    """Return what stands in a page as code, line by line or span by span."""
    text = page.read_text()
    for block in BLOCK.findall(text):
        yield from (line for line in block.splitlines() if line.strip())
    for span in SPAN.findall(BLOCK.sub("", text)):
        yield " ".join(span.split())


def cited_rules(text: str) -> set[int]:
    found: set[int] = set()
    for first, last, more in CITED_RULE.findall(text):
        found |= {*range(int(first), int(last or first) + 1), *(int(number) for number in re.findall(r"\d+", more))}
    return found


def rows_of_failures() -> dict[int, str]:
    """Return failure -> where it is shown."""
    rows = [line.strip("| \n").split(" | ") for line in FAILURES.read_text().splitlines() if line.startswith("| F")]
    assert all(len(row) == 4 for row in rows)
    return {int(row[0][1:]): row[3] for row in rows}


@cache
def help_of(*words: str) -> str:
    """Return what `waypost WORDS --help` prints; nothing if there is no such command."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(sys, "argv", ["waypost", *words, "--help"])
        with contextlib.redirect_stderr(io.StringIO()), pytest.raises(SystemExit) as end:
            main()
    return printed.getvalue() if end.value.code == 0 else ""


def calls() -> Iterator[list[str]]:
    """Return every call of `waypost` that a page shows, as words."""
    for page in PAGES:
        for code in code_of(page):
            line = code.removeprefix("$ ")
            if re.match(r"waypost [a-z]", line):
                yield line.partition("#")[0].split()[1:]


# ---------------------------------------------------------------- rules and failures


def test_the_rules_are_numbered_without_a_hole_and_name_where_they_live() -> None:
    parts = re.findall(r"^\*\*Rule .*?(?=^\*\*Rule |^## )", RULES.read_text(), re.MULTILINE | re.DOTALL)
    assert [int(part.split()[1].rstrip(",")) for part in parts] == list(range(1, len(parts) + 1))
    for part in parts:
        assert "Lives in" in part or "Lives\nin" in part, part.splitlines()[0]


def test_every_rule_that_is_cited_is_written_down() -> None:
    written = {int(rule) for rule in re.findall(r"^\*\*Rule (\d+)", RULES.read_text(), re.MULTILINE)}
    cited = {name(path): cited_rules(path.read_text()) for path in SOURCES}
    assert len([path for path, rules in cited.items() if rules]) > 10
    assert {path: rules - written for path, rules in cited.items() if rules - written} == {}


@pytest.mark.parametrize(
    ("text", "rules"),
    [("(handover rule 9)", {9}), ("rules 7 to 9", {7, 8, 9}), ("Rules 1, 2 and 5", {1, 2, 5}), ("rule by rule", set())],
)
def test_citations_are_understood(text: str, rules: set[int]) -> None:
    assert cited_rules(text) == rules


def test_every_failure_has_a_row_that_names_a_file_or_says_that_it_is_not_shown() -> None:
    rows = rows_of_failures()
    assert list(rows) == list(range(1, len(rows) + 1))
    for number, shown in rows.items():
        assert any(prefix in shown for prefix in ("`tests/", "`chaos/scenarios/")) or "not yet shown" in shown, (
            f"F{number}"
        )


def test_every_failure_that_is_cited_is_written_down() -> None:
    rows = rows_of_failures()
    cited = {name(path): {int(failure) for failure in CITED_FAILURE.findall(path.read_text())} for path in SOURCES}
    assert len([path for path, found in cited.items() if found]) > 10
    assert {path: found - set(rows) for path, found in cited.items() if found - set(rows)} == {}


def test_a_scenario_that_says_which_failure_it_shows_stands_in_that_row() -> None:
    rows = rows_of_failures()
    for scenario in sorted((ROOT / "chaos/scenarios").glob("*.txt")):
        for number in CITED_FAILURE.findall(scenario.read_text()):
            assert name(scenario) in rows[int(number)], f"F{number} does not name {scenario.name}"


# ---------------------------------------------------------------- files


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = [word for code in code_of(page) for word in code.split() if PATH.fullmatch(word) and "SITE" not in word]
    made = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    missing = [
        path
        for path in named
        if path.split("/")[0] not in made and not any((at / path).exists() for at in (page.parent, ROOT))
    ]
    assert missing == []


def test_where_to_find_what_names_what_is_there() -> None:
    page = (ROOT / "docs/where.md").read_text()
    rows = WHERE.findall(page)
    listed = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| concept")]
    assert len(rows) == len(listed)
    for file, symbol in rows:
        source = (ROOT / file).read_text()
        defined = rf"^ *(?:class|def|async def) {symbol}\b|^{symbol}\b *[:=]"
        assert re.search(defined, source, re.MULTILINE), f"{file} has no {symbol}"


def test_every_page_that_a_source_names_exists() -> None:
    named = {each for path in SOURCES for each in re.findall(r"docs/[\w/.-]+\.md", path.read_text())}
    assert "docs/subscription-language.md" in named
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("room", [*ROOMS, *SMALLER_ROOMS])
def test_the_readme_of_a_room_names_every_file_of_the_room(room: str) -> None:
    named = set(re.findall(r"[\w]+\.py|\w+/", " ".join(code_of(ROOT / room / "README.md"))))
    files = {path.name for path in (ROOT / room).glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in (ROOT / room).glob("*/__init__.py")}
    assert files | folders
    assert (files | folders) - named == set()


# ---------------------------------------------------------------- the journal


def first_cells(page: str) -> list[str]:
    """Return the names in the first cells of a page's tables."""
    return [named for row in rows_of(page) for named in re.findall(r"`([^`]+)`", row[0])]


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of the rows of a page's tables, but those of their heads."""
    lines = [line for line in (ROOT / page).read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_kind_field_code_and_record_is_in_the_page_of_the_journal() -> None:
    kinds = get_args(records._Known)
    tags = {kind.__struct_config__.tag for kind in kinds}
    fields = {name for kind in kinds for name in kind.__struct_fields__}
    written = {*facts.FactKind, *facts.Fact.__struct_fields__, *facts.OwnedCause, *tags, *fields}
    assert set(first_cells("docs/journal.md")) == written
    page = (ROOT / "docs/journal.md").read_text()
    states = [state.name.lower() for state in (*SourceState, *TargetState) if state.name not in ("IDLE", "ENDED")]
    codes = [*facts.Departure, *facts.GapCause, *facts.RemovalPolicy, *facts.TransferEnd, *states]
    codes += [*queue.DISCARDS, *queue.ORDERS, *records.RequestPart]
    assert [code for code in codes if f"`{code}`" not in page] == []


def test_the_page_of_the_journal_has_the_fields_of_each_record_in_their_order() -> None:
    rows = {row[0].strip("`"): row[-1] for row in rows_of("docs/journal.md")}
    for kind in get_args(records._Known):
        row = rows[str(kind.__struct_config__.tag)]
        assert tuple(re.findall(r"`([^`]+)`", row)) == kind.__struct_fields__


# ---------------------------------------------------------------- pictures


LEVELS = {"info", "warning", "error", "exception"}


def log_lines() -> Iterator[str]:
    """The lines that a proxy or gateway writes to its log, up to the first semicolon or colon: they are told apart by
    that."""
    for path in sorted((ROOT / "node").rglob("*.py")):
        if "cli" in path.relative_to(ROOT).parts:
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            # As log.info("..."), and as tell(log.info, "...").
            named = [call.func, *call.args]
            for function, text in itertools.pairwise(named):
                is_log = isinstance(function, ast.Attribute) and function.attr in LEVELS
                if is_log and isinstance(text, ast.Constant) and isinstance(text.value, str):
                    yield re.split("[;:]", text.value)[0]


def test_every_line_of_the_log_is_in_the_page_for_operators() -> None:
    page = (ROOT / "docs/operating.md").read_text()
    lines = list(log_lines())
    assert len(lines) > 30
    assert [line for line in lines if line not in page] == []


def test_pictures_are_drawn_from_their_sources() -> None:
    sources = sorted((ROOT / "docs/pictures").glob("*.toml"))
    draw = runpy.run_path(str(ROOT / "docs/pictures/render.py"))["drawn"]
    assert sources
    for source in sources:
        assert source.with_suffix(".svg").read_text() == draw(source.read_text()), f"{name(source)}: make pictures"


# ---------------------------------------------------------------- commands


GROUPS = {"config", "experiment", "key", "links", "rendezvous", "sessions", "sites"}
"""Commands with others below them."""


def command_of(call: list[str]) -> tuple[str, ...]:
    return tuple(call[: 2 if call[0] in GROUPS else 1])


def test_every_make_target_that_a_page_names_exists() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for page in PAGES for code in code_of(page) for target in re.findall(r"\bmake ([a-z]+)", code)}
    assert {"demo", "test"} <= named <= targets


def test_every_command_of_waypost_that_a_page_names_exists() -> None:
    named = {call[0] for call in calls()}
    assert {"serve", "sub", "pub", "match", "audit", "demo"} <= named
    assert [command for command in sorted(named) if not help_of(command)] == []
    assert not help_of("nosuch")


def test_every_command_below_another_that_a_page_names_exists() -> None:
    named = {tuple(call[:2]) for call in calls() if call[0] in GROUPS and len(call) > 1}
    assert {("sessions", "ls"), ("key", "new"), ("rendezvous", "request")} <= named
    assert [command for command in sorted(named) if not help_of(*command)] == []


def test_every_flag_of_waypost_that_a_page_names_exists() -> None:
    named = {(command_of(call), word) for call in calls() for word in call if re.fullmatch(r"--[a-z-]+", word)}
    assert (("serve",), "--neighbours") in named
    assert [(command, flag) for command, flag in sorted(named) if f"{flag} " not in help_of(*command)] == []


def test_every_module_that_a_page_runs_exists() -> None:
    named = {module for page in PAGES for code in code_of(page) for module in re.findall(r"python -m ([\w.]+)", code)}
    assert "handover" in named
    for module in named:
        found = importlib.util.find_spec(module)
        assert found is not None, module
        assert not found.submodule_search_locations or importlib.util.find_spec(f"{module}.__main__"), module


def test_every_benchmark_that_a_page_names_is_run_by_make_bench() -> None:
    named = {
        word for page in PAGES for code in code_of(page) for word in re.findall(r"python -m bench ([a-z_]+)", code)
    }
    assert "handover" in named
    assert named <= set(NAMES)
    for benchmark in NAMES:
        assert callable(importlib.import_module(f"bench.{benchmark}").run), benchmark


# ---------------------------------------------------------------- links


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_within_the_repository_resolves(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if "://" in link:
            continue
        path_text, _, heading = link.partition("#")
        target = (page.parent / path_text).resolve() if path_text else page
        assert target.exists(), link
        assert not heading or heading in headings(target), link


def headings(page: Path) -> set[str]:
    found = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each).strip().lower().replace(" ", "-") for each in found}
