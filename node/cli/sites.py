"""`waypost sites`: the logs of sites, for operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import Json, group
from node.configuration.config import load_config

app = group("Sites and their logs.")


@app.command("begin-log")
def begin_log(
    site: Annotated[str, typer.Argument(help="The site whose log is lost for good.")],
    data: Annotated[Path | None, typer.Option(help="Folder of the proxies, if their registry is embedded.")] = None,
    etcd: Annotated[str | None, typer.Option(help="host:port of their etcd.")] = None,
    prefix: Annotated[str | None, typer.Option(help="Of their etcd keys.")] = None,
    config: Annotated[Path | None, typer.Option(envvar="WAYPOST_CONFIG", help="A proxy's TOML file.")] = None,
    json_: Json = False,
) -> None:
    """Let a site begin with an empty log in the place of the one that was read: what that had is lost, and told so.

    Stop the proxies of the site first, and start them again afterwards.

    Example: waypost sites begin-log A --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.sites import begin_log as begin

    asyncio.run(begin(load_config({"data": data, "etcd": etcd, "prefix": prefix}, config), site, as_json=json_))
