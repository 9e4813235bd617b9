"""`waypost key`: security keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import group

app = group("Security keys of producers and receivers.")


@app.command("new")
def new(
    scheme: Annotated[str, typer.Option(help="Whose secret it is, and how it is hashed.")] = "sha256-producer",
) -> None:
    """Print new raw keys, one for each side of a scheme. One a line: SCHEME SIDE raw HEX.

    Schemes: sha256-producer, sha256-consumer, sha256-dual, sha1-producer, sha1-consumer, sha1-dual. The side in the
    name keeps its key secret, and gives the other side the public form.

    Example: waypost key new > office.key; waypost key public office.key > office.pub
    """
    from node.cli.commands.keys import new_keys, print_keys

    print_keys(new_keys(scheme), "raw")


@app.command("public")
def public(file: Annotated[Path, typer.Argument(help="A file of raw keys.")]) -> None:
    """Print the public forms of raw keys: what the other side is given."""
    from node.cli.commands.keys import print_keys, public_keys

    print_keys(public_keys(file), "public")
