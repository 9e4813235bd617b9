"""`waypost config`: the configuration of a proxy, before it is started."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from node.cli.options import Json, group, with_settings
from node.configuration.config import load_serving, sources_of

app = group("The configuration of a proxy.")


@app.callback()
def _several() -> None:
    """The configuration of a proxy."""


@app.command()
@with_settings
def check(
    *,
    config: Annotated[Path | None, typer.Option(envvar="WAYPOST_CONFIG", help="A TOML file.")] = None,
    json_: Json = False,
    **settings: Any,
) -> None:
    """Show every setting, its value and where that comes from. Refuses what `waypost serve` would refuse.

    It takes what `waypost serve` takes, and connects to nothing.

    Example: waypost config check --config waypost.toml --site A
    """
    from node.cli.commands.config import show
    from node.security.tls import credentials_of, tls_of

    chosen = load_serving(settings, config)
    tls_of(chosen)
    credentials_of(chosen)
    show(chosen, sources_of(settings, config), as_json=json_)
