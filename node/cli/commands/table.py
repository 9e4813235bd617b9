"""A table on stdout, for people."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from waypost.terminal import printable

WIDTH = 1_000
"""Characters of a line: as many as it needs. What is cut off in a narrow window, or in a pipe, cannot be asked for."""


def print_table(headings: Sequence[str], rows: Iterable[Mapping[str, Any]], numbers: Collection[str] = ()) -> None:
    """Print a table on stdout: of each row the cells that have a heading; None is an empty cell, a bool yes or no.

    Args:
        headings: the columns, in order; keys of every row.
        numbers: headings of columns whose cells stand at the right.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(escape(printable(_text(row[heading]))) for heading in headings))
    Console(width=WIDTH, highlight=False).print(table)


def _text(cell: object) -> str:
    if cell is None:
        return ""
    return yes_or_no(cell) if isinstance(cell, bool) else str(cell)


def yes_or_no(value: bool) -> str:
    """Return the word by which the command line shows a bool."""
    return "yes" if value else "no"
