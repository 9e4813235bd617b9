"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.config import reachable
from waypost.errors import Refused

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, errors too.")]
KeysFile = Annotated[
    Path | None, typer.Option("--keys-file", help="Keys that go with it, one a line, as `waypost key` prints them.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="Its first line is a token, where not everybody may; else WAYPOST_TOKEN is.")
]


def _address(url: str | None) -> str | None:
    try:
        return reachable(url) if url else None
    except ValueError as error:
        raise Refused(str(error), field="proxy") from None


Proxy = Annotated[
    str | None,
    typer.Option(
        "--proxy",
        envvar="WAYPOST_PROXY",
        callback=_address,
        help="ws://host:port; without it a proxy is found by mDNS.",
    ),
]


def group(says: str) -> typer.Typer:
    """Return a command with others below it."""
    return typer.Typer(help=says, no_args_is_help=True, rich_markup_mode=None)
