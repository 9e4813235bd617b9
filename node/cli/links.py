"""`waypost links`: the links between sites, for operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from node.cli.options import Config, Data, Etcd, Json, Prefix, group, of_registry
from node.configuration.config import NodeConfig

app = group("Links between sites. All is forwarded over a tree of them; the others stand by.")
One = Annotated[str, typer.Argument(metavar="SITE", help="A site.")]
Other = Annotated[str, typer.Argument(metavar="SITE", help="Another one.")]


@app.command("ls")
def list_links(
    data: Data = None, etcd: Etcd = None, prefix: Prefix = None, config: Config = None, json_: Json = False
) -> None:
    """Show the links. Says which are in the tree, and which directions are up.

    Example: waypost links ls --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.links import show

    asyncio.run(show(of_registry(data, etcd, prefix, config), as_json=json_))


@app.command("add")
def add(
    one: One,
    other: Other,
    leaf: Annotated[
        list[str] | None, typer.Option("--leaf", help="An end of it that passes nothing on to others.")
    ] = None,
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Add a link between two sites, or change the one that there is. Their proxies follow at once.

    Example: waypost links add A B --leaf B --etcd 127.0.0.1:2379
    """
    _change(one, other, of_registry(data, etcd, prefix, config), leaves=leaf or (), as_json=json_)


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
    """Remove a link between two sites. What a proxy's --neighbours says does not bring it back.

    Example: waypost links rm A B --etcd 127.0.0.1:2379
    """
    _change(one, other, of_registry(data, etcd, prefix, config), leaves=None, as_json=json_)


def _change(one: str, other: str, settings: NodeConfig, *, leaves: Sequence[str] | None, as_json: bool) -> None:
    import asyncio

    from node.cli.commands.links import change

    asyncio.run(change(settings, one, other, leaves=leaves, as_json=as_json))
