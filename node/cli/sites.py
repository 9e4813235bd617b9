"""`waypost sites`: the logs of sites, for operators."""

from __future__ import annotations

from typing import Annotated

import typer

from node.cli.options import Config, Data, Etcd, Json, Prefix, group, of_registry

app = group("Sites and their logs.")


@app.command("ls")
def list_sites(
    data: Data = None, etcd: Etcd = None, prefix: Prefix = None, config: Config = None, json_: Json = False
) -> None:
    """Show the sites that the registry knows. Names the proxies that run, the links, and where the checkpoints are.

    Example: waypost sites ls --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.sites import show

    asyncio.run(show(of_registry(data, etcd, prefix, config), as_json=json_))


@app.command("forget")
def forget(
    site: Annotated[str, typer.Argument(help="The site that does not come back.")],
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Also if sessions may have their last checkpoint there alone.")
    ] = False,
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Forget a site that does not come back. Removes its links; nobody looks for checkpoints there any more.

    Until then a session that is made or taken over waits for the checkpoints of a site that does not answer.

    Example: waypost sites forget B --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.sites import forget as forget_site

    settings = of_registry(data, etcd, prefix, config)
    asyncio.run(forget_site(settings, site, anyway=anyway, as_json=json_))


@app.command("begin-log")
def begin_log(
    site: Annotated[str, typer.Argument(help="The site whose log is lost for good.")],
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Let a site begin with an empty log in place of a lost one. Receivers are told what is lost with it.

    Stop the proxies of the site first, and start them again afterwards.

    Example: waypost sites begin-log A --etcd 127.0.0.1:2379
    """
    import asyncio

    from node.cli.commands.sites import begin_log as begin

    asyncio.run(begin(of_registry(data, etcd, prefix, config), site, as_json=json_))
