"""`waypost sessions`: sessions as operators see and change them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import Json, Proxy, group
from waypost.limits import MAX_COUNT, MAX_STORED, MAX_STORED_BYTES, MAX_TTL_S

app = group("Sessions of the federation.")
Subscription = Annotated[str, typer.Argument(help="The id of one of its subscriptions.")]


@app.command("ls")
def ls(proxy: Proxy = None, json_: Json = False) -> None:
    """List all sessions of the federation.

    Shows owner and epoch; of sessions of the asked proxy also how much they store, how many receivers are attached,
    and how many are registered, attached or away.
    """
    from node.cli.commands.sessions import list_sessions

    list_sessions(proxy, as_json=json_)


@app.command("show")
def show(session: str, proxy: Proxy = None, json_: Json = False) -> None:
    """Show one session, as its owner knows it. Any proxy can be asked."""
    from node.cli.commands.sessions import show_session

    show_session(session, proxy, as_json=json_)


@app.command("rm")
def rm(session: str, proxy: Proxy = None, json_: Json = False) -> None:
    """Delete a session with all that is stored for it. Its owner may be gone."""
    from node.cli.commands.sessions import delete_session

    delete_session(session, proxy, as_json=json_)


@app.command("access")
def access(
    session: str,
    grants: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WHO=LEVEL", help="Who is what: user, admin or owner; WHO (none): clients without a principal."
        ),
    ] = None,
    passwords_file: Annotated[
        Path | None,
        typer.Option(help="Lines WHO:PASSWORD; who is not in it keeps the proof that it has, a new one a token."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Everybody may do everything.")] = False,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Say who may do what with a session, and nobody else anything. A user reads, an admin subscribes too, an owner
    does everything.

    Example: waypost sessions access team/red alice=owner bob=user
    """
    from node.cli.commands.session_admin import set_access

    set_access(session, grants or [], passwords_file, open_=open_, proxy=proxy, as_json=json_)


@app.command("set")
def set_(
    session: str,
    expiry: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_TTL_S, help="It ends when nobody was attached for so many seconds; 0: never."),
    ] = None,
    max_count: Annotated[
        int | None,
        typer.Option(min=0, max=MAX_STORED, help="So many notifications it stores at most; 0: no bound of its own."),
    ] = None,
    max_bytes: Annotated[
        int | None, typer.Option(min=0, max=MAX_STORED_BYTES, help="Bytes of the same; 0: no bound of its own.")
    ] = None,
    discard: Annotated[
        str | None, typer.Option(help="What goes when it is more: any, fifo, lifo, priority or deadline.")
    ] = None,
    deadlines: Annotated[
        bool | None, typer.Option(help="What is past its StopTime or Timeout goes, whatever the bounds.")
    ] = None,
    events: Annotated[
        str | None, typer.Option(help="persistent or best-effort: what its receivers' may not exceed.")
    ] = None,
    connection: Annotated[str | None, typer.Option(help="The same of their connections.")] = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Set when a session expires and what it stores.

    Also how reliably it stores. What is not said stays.

    Example: waypost sessions set team/red --max-count 10000 --discard priority
    """
    from node.cli.commands.session_admin import set_policy

    set_policy(
        session,
        expiry_s=expiry,
        queue={"max_count": max_count, "max_bytes": max_bytes, "discard": discard, "deadlines": deadlines},
        reliability={"events": events, "connection": connection},
        proxy=proxy,
        as_json=json_,
    )


@app.command("retain")
def retain(
    session: str,
    subscription: Subscription,
    ttl: Annotated[
        int | None, typer.Option(min=0, max=MAX_TTL_S, help="Store what matches for so many seconds; 0: for ever.")
    ] = None,
    max_count: Annotated[
        int | None, typer.Option(min=0, max=MAX_COUNT, help="Store only so many, the newest; 0: all.")
    ] = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Set how much of a subscription is stored, and how long. What is not said stays.

    Example: waypost sessions retain team/red goals --ttl 3600
    """
    from node.cli.commands.session_admin import set_retention

    set_retention(session, subscription, {"ttl_s": ttl, "max_count": max_count}, proxy=proxy, as_json=json_)


@app.command("unsubscribe")
def unsubscribe(session: str, subscription: Subscription, proxy: Proxy = None, json_: Json = False) -> None:
    """End a subscription of a session, for all its receivers. They still get what it matched before."""
    from node.cli.commands.session_admin import change

    change("unsubscribe", session, {"subscription": subscription}, proxy=proxy, as_json=json_)


@app.command("forget")
def forget(
    session: str,
    receiver: Annotated[str, typer.Argument(help="One of its receivers, which is not attached.")],
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Unregister a receiver that is away. Nothing is stored for it any more.

    The session itself goes on storing what its subscriptions match, for whoever comes next; end those by `sessions
    unsubscribe`, or the session by `sessions rm`.
    """
    from node.cli.commands.session_admin import change

    change("forget", session, {"receiver": receiver}, proxy=proxy, as_json=json_)
