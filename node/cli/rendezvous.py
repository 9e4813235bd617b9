"""`waypost rendezvous`: files of somebody who may be away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import Json, Proxy, TokenFile, group
from waypost.limits import MAX_TTL_S

app = group("Files between two who may both be away.")

AsWhom = Annotated[str, typer.Option("--as", help="The name of the requester; answers go to it.")]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file", help="The raw key of the name, scheme sha256-consumer: nobody else reads what is sent to it."
    ),
]


@app.command("offer")
def offer(
    name: Annotated[str, typer.Argument(help="The name whose requests are answered.")],
    folder: Annotated[Path, typer.Argument(help="The files below it can be had.")],
    key_file: KeyFile = None,
    token_file: TokenFile = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Answer requests to an owner with files of a folder. Ends with Ctrl-C; what is asked meanwhile waits.

    Example: waypost rendezvous offer bob ~/photos
    """
    from node.cli.commands.interrupt import run
    from node.cli.commands.keys import consumer_key
    from node.cli.commands.proxy_client import token_of
    from node.cli.commands.rendezvous import offer as answer

    key, token = consumer_key(key_file, "raw"), token_of(token_file)
    run(answer(name, folder, proxy=proxy, key=key, token=token, as_json=json_))


@app.command("request")
def request(
    owner: Annotated[str, typer.Argument(help="Whose file it is.")],
    path: Annotated[str, typer.Argument(help="Its path, as the owner knows it.")],
    requester: AsWhom,
    key_file: KeyFile = None,
    owner_key_file: Annotated[
        Path | None, typer.Option(help="The owner's public key: nobody else reads what is asked.")
    ] = None,
    token_file: TokenFile = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Ask for a file of an owner who may be away. Prints the rendezvous' id once the request is safe.

    A request to an owner who has never offered is lost: the command says so, with status 5.

    Example: waypost rendezvous request bob holiday/1.jpg --as alice
    """
    from node.cli.commands.interrupt import run
    from node.cli.commands.keys import consumer_key
    from node.cli.commands.proxy_client import token_of
    from node.cli.commands.rendezvous import request as arrange

    key, owner_key = consumer_key(key_file, "raw"), consumer_key(owner_key_file, "public")
    token = token_of(token_file)
    run(arrange(requester, owner, path, proxy=proxy, key=key, owner_key=owner_key, token=token, as_json=json_))


@app.command("receive")
def receive(
    folder: Annotated[Path, typer.Argument(help="Where the files are written.")],
    requester: AsWhom,
    count: Annotated[int, typer.Option("-C", "--count", min=0, help="End after so many; 0: go on.")] = 0,
    wait: Annotated[
        float, typer.Option("-W", "--wait", min=0, max=MAX_TTL_S, help="End after so many seconds, all told; 0: go on.")
    ] = 0,
    key_file: KeyFile = None,
    token_file: TokenFile = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Write the files that come into a folder, a line for each. Those that came before, too.

    Example: waypost rendezvous receive ~/incoming --as alice --count 1
    """
    from node.cli.commands.interrupt import run
    from node.cli.commands.keys import consumer_key
    from node.cli.commands.proxy_client import token_of
    from node.cli.commands.rendezvous import take as save_files

    key, token = consumer_key(key_file, "raw"), token_of(token_file)
    run(save_files(requester, folder, count=count, wait_s=wait, proxy=proxy, key=key, token=token, as_json=json_))
