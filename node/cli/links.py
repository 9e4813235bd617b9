"""`waypost links`: the links between sites, for operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import Config, Data, Etcd, Json, Prefix, group
from node.configuration.config import load_config

app = group("Links between sites; everything is forwarded over a tree of them, and the others stand by.")
One = Annotated[str, typer.Argument(metavar="SITE", help="A site.")]
Other = Annotated[str, typer.Argument(metavar="SITE", help="Another one.")]


@app.command("ls")
def list_links(
    data: Data = None, etcd: Etcd = None, prefix: Prefix = None, config: Config = None, json_: Json = False
) -> None:
    """Show the links, which of them are in the tree, and which directions are up.

    Example: waypost links ls --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.links import show

    asyncio.run(show(load_config({"data": data, "etcd": etcd, "prefix": prefix}, config), as_json=json_))


@app.command("add")
def add(
    one: One,
    other: Other,
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Add a link between two sites. Their proxies follow at once.

    Example: waypost links add A B --etcd 127.0.0.1:2379
    """
    _change(one, other, {"data": data, "etcd": etcd, "prefix": prefix}, config, removed=False, as_json=json_)


@app.command("rm")
def remove(
    one: One,
    other: Other,
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Remove a link between two sites; what a proxy's --neighbours says does not bring it back.

    Example: waypost links rm A B --etcd 127.0.0.1:2379
    """
    _change(one, other, {"data": data, "etcd": etcd, "prefix": prefix}, config, removed=True, as_json=json_)


def _change(
    one: str, other: str, settings: dict[str, object], config: Path | None, *, removed: bool, as_json: bool
) -> None:
    import asyncio

    from node.cli.commands.links import change

    asyncio.run(change(load_config(settings, config), one, other, removed=removed, as_json=as_json))
