"""The command line. Human errors are one line on stderr; exit statuses say who is at fault: :data:`STATUSES`."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

# Typer carries its own click, whose errors it has no public name for.
from typer._click.exceptions import ClickException, NoArgsIsHelpError, UsageError

from node.cli import INTERRUPTED, config, keys, links, rendezvous, sessions, sites
from node.cli.commands.stdout import print_no_more
from node.cli.options import (
    Config,
    Data,
    Etcd,
    Json,
    KeysFile,
    Prefix,
    Proxy,
    TokenFile,
    check_repeated,
    of_registry,
    with_settings,
)
from node.configuration.config import load_serving
from node.resources.garbage_collection import without_collection
from waypost.errors import BadArgument, Internal, OutputFailed, Refused, WaypostError
from waypost.limits import MAX_COUNT, MAX_GATEWAY_LEASE_S, MAX_ID_LENGTH, MAX_MESSAGE_TTL, MAX_TTL_S
from waypost.terminal import printable

STATUSES = """Exit status: 0 done; 1 the answer is no: an audit or a demo found an anomaly, or cannot tell; 2 wrong
usage or a bad expression; 3 not reachable in time, trying again may help; 4 not allowed; 5 not found or conflict; 27
the time of -W is over; 70 a fault inside Waypost; 130 ended by Ctrl-C; 143 by SIGTERM."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What writing to stdout may fail by; what else fails so, names a file, or has been translated at its border."""
HELP_NAMES = ["-h", "--help"]

app = typer.Typer(
    name="waypost",
    epilog=STATUSES,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for name, group in {
    "config": config.app,
    "sessions": sessions.app,
    "sites": sites.app,
    "links": links.app,
    "key": keys.app,
    "rendezvous": rendezvous.app,
}.items():
    app.add_typer(group, name=name)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"waypost {version('waypost')}")
        raise typer.Exit


@app.callback()
def waypost(
    asked: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    """A federated proxy service for content-based notifications."""


# ---------------------------------------------------------------- serving


@app.command()
@with_settings
def serve(
    *,
    config: Annotated[Path | None, typer.Option(envvar="WAYPOST_CONFIG", help="A TOML file.")] = None,
    json_: Json = False,
    **settings: Any,
) -> None:
    """Run one proxy, until SIGTERM or Ctrl-C.

    Every option can be set as WAYPOST_NAME and so on too, or in the file.

    Example: waypost serve --name a --site A --neighbours B --data run
    """
    with without_collection(collects=False):
        from node.service import run, set_up_logging

    set_up_logging(json=json_)
    chosen = load_serving(settings, config)

    def started(url: str) -> None:
        if json_:
            print(json.dumps({"v": 1, "proxy": chosen.name, "site": chosen.site, "url": url}), flush=True)
        else:
            print(f"proxy {chosen.name} of site {chosen.site} listens at {url}", flush=True)

    run(chosen, started)
    end_by_signal(0)


# ---------------------------------------------------------------- clients


@app.command()
def sub(
    expression: Annotated[
        str | None,
        typer.Argument(help="What to receive, in the subscription language; none: what the session subscribes to."),
    ] = None,
    session: Annotated[str | None, typer.Option(help="Session to attach to; default: a temporary one.")] = None,
    receiver: Annotated[str, typer.Option(help="The name of the receiver.")] = "main",
    count: Annotated[int, typer.Option("-C", "--count", min=0, help="End after so many; 0: go on.")] = 0,
    wait: Annotated[
        float,
        typer.Option(
            "-W",
            "--wait",
            min=0,
            max=MAX_TTL_S,
            help="End with status 27 if -C is not reached after so many seconds; 0: go on.",
        ),
    ] = 0,
    format_: Annotated[str | None, typer.Option("-f", "--format", help="Such as '{origin} {dep_delay}'.")] = None,
    ttl: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_TTL_S,
            help="Keep what matches for so many seconds while the receiver is away; else for ever.",
        ),
    ] = None,
    max_count: Annotated[
        int | None,
        typer.Option(min=1, max=MAX_COUNT, help="Keep only so many while we are away, the newest; else all."),
    ] = None,
    principal: Annotated[str, typer.Option(help="As whom, if the session's access names principals.")] = "",
    password_file: Annotated[
        Path | None, typer.Option(help="Its first line is the password for the session; else WAYPOST_PASSWORD is.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="Its first line is a token, read at every attach; else WAYPOST_TOKEN is.")
    ] = None,
    events: Annotated[
        str | None, typer.Option(help="persistent, or best-effort: what waits for us goes with its proxy.")
    ] = None,
    connection: Annotated[
        str | None, typer.Option(help="persistent, or best-effort: the registration ends soon after the connection.")
    ] = None,
    order: Annotated[
        str, typer.Option(help="What comes first of what waits: any, fifo, priority or deadline, by their attributes.")
    ] = "any",
    keys_file: KeysFile = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Receive only what comes with a matching key; needs --keys-file.")
    ] = False,
    roam: Annotated[
        bool, typer.Option("--roam", help="Go to the nearest proxy, and on to a nearer one; of WAYPOST_SITE first.")
    ] = False,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Receive notifications, one line each, until Ctrl-C.

    Without an expression a receiver gets what a session has subscribed to already, and needs no right to subscribe.

    Example: waypost sub 'origin == "JFK" && dep_delay > 30'
    """
    if session == "" or receiver == "":
        raise BadArgument("an empty name", field="session" if session == "" else "receiver")
    if expression is None and (session is None or ttl or max_count or keys_file or secure):
        raise BadArgument(
            "write what to receive; without it, only --session is of use, whose subscriptions are as they are",
            field="expression",
        )
    from node.cli.commands.input import asked_reliability, first_line, order_of
    from node.cli.commands.interrupt import run
    from node.cli.commands.keys import read_keys
    from node.cli.commands.proxy_client import token_of
    from node.cli.commands.receive import PASSWORD, receive
    from waypost.client.roaming import Roaming

    run(
        receive(
            expression,
            session=session,
            receiver=receiver,
            count=count,
            wait_s=wait,
            form=format_,
            proxy=proxy,
            as_json=json_,
            ttl_s=ttl,
            max_count=max_count,
            principal=principal,
            password=first_line(password_file, "password-file", PASSWORD),
            token=token_of(token_file),
            keys=read_keys(keys_file, "consumer", secure=secure),
            insecure=not secure,
            reliability=asked_reliability(events, connection),
            order=order_of(order),
            roaming=Roaming() if roam else None,
        )
    )


@app.command()
def pub(
    attributes: Annotated[
        list[str] | None, typer.Argument(help="name=value or name:type=value; '-' reads one JSON object from stdin.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Read JSON objects from stdin, one a line.")] = False,
    keys_file: KeysFile = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="Deliver only to receivers with a matching key; needs --keys-file.")
    ] = False,
    outbox: Annotated[
        Path | None,
        typer.Option(help="File where they wait while no proxy takes them; alone: send on what waits there."),
    ] = None,
    token_file: TokenFile = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Publish one notification. Prints its coordinate once it is safe, or its number in the outbox.

    Example: waypost pub origin=JFK dep_delay:int32=45
    """
    from node.cli.commands.interrupt import run
    from node.cli.commands.keys import read_keys
    from node.cli.commands.proxy_client import token_of
    from node.cli.commands.publish import CONSOLE, notifications_of, post, send

    keys = read_keys(keys_file, "producer", secure=secure)
    if outbox is not None:
        posts = notifications_of(attributes or [], lines=lines) if attributes or lines else None
        token = token_of(token_file)
        producer = CONSOLE if posts is not None and not outbox.exists() else None
        run(post(posts, outbox, producer, proxy=proxy, as_json=json_, keys=keys, insecure=not secure, token=token))
        return
    notifications = notifications_of(attributes or [], lines=lines)
    run(
        send(
            notifications,
            proxy=proxy,
            as_json=json_,
            keys=keys,
            insecure=not secure,
            token=token_of(token_file),
        )
    )


@app.command()
def gateway(
    expression: Annotated[str, typer.Argument(help="What is propagated to peers, in the subscription language.")],
    name: Annotated[str, typer.Option("--name", help="The id of this gateway, which no other one and no peer has.")],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; whoever reaches it is let in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any free one.")] = 0,
    lease: Annotated[
        int, typer.Option("--lease", min=1, max=MAX_GATEWAY_LEASE_S, help="Seconds for which a lease is granted.")
    ] = 60,
    cost: Annotated[
        int, typer.Option("--cost", min=1, max=MAX_MESSAGE_TTL, help="What this gateway takes from a message's TTL.")
    ] = 1,
    ttl: Annotated[int, typer.Option("--ttl", min=1, max=MAX_MESSAGE_TTL, help="TTL of what comes from no peer.")] = 7,
    peers: Annotated[int, typer.Option("--peers", min=1, max=100_000, help="The most that have a lease.")] = 1_000,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback, although peers prove nothing.")
    ] = False,
    token_file: TokenFile = None,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Let peers of a JXTA propagate service in, until Ctrl-C.

    They come by WebSocket; each has a session while its lease lasts.

    Example: waypost gateway 'require(topic)' --name lab --port 7401
    """
    from node.cli.commands.gateway import serve_peers
    from node.cli.commands.interrupt import run
    from node.cli.commands.proxy_client import token_of
    from waypost.client.address import is_loopback

    if cost > ttl:
        raise Refused(f"a TTL of {ttl} does not pay for it: nothing without a peer would be propagated", field="cost")
    if not (insecure or is_loopback(host)):
        raise Refused("whoever reaches it is let in; say --insecure if this is meant", field="host")
    limits = {"lease_s": lease, "cost": cost, "ttl": ttl, "peers": peers}
    run(serve_peers(expression, name, (host, port), limits, proxy=proxy, token=token_of(token_file), as_json=json_))


@app.command()
def drain(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The proxy that is to be emptied; none: list all drains.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.1, max=10_000, help="Sessions a second; 20, or those of the drain that goes on."),
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Stay where it is; go on without this option.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Drain no more: the proxy is ready again.")] = False,
    no_wait: Annotated[bool, typer.Option("--no-wait", help="Do not wait until it is empty.")] = False,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Move all sessions of a proxy to others. It says first that it is not ready. Goes on if either side restarts.

    Example: waypost drain a1 --rate 50
    """
    if pause and stop:
        raise BadArgument("a drain stays where it is, or is over; not both", field="pause")
    from node.cli.commands.moves import drain as empty
    from node.cli.commands.moves import list_drains, stop_drain

    if name is None:
        if rate is not None or pause or stop or no_wait:
            raise BadArgument("say which proxy is meant", field="name")
        list_drains(proxy, as_json=json_)
    elif stop:
        stop_drain(name, proxy, as_json=json_)
    else:
        empty(name, proxy, rate=rate, paused=pause, wait=not no_wait, as_json=json_)


@app.command()
def rebalance(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan only.")] = False,
    proxy: Proxy = None,
    json_: Json = False,
) -> None:
    """Give all proxies of a site equally many sessions."""
    from node.cli.commands.moves import rebalance as level

    level(proxy, dry_run=dry_run, as_json=json_)


@app.command()
def handovers(proxy: Proxy = None, json_: Json = False) -> None:
    """List running and recent handovers of a proxy. Shows phase, age, counts, and why they ended."""
    from node.cli.commands.moves import handovers as show

    show(proxy, as_json=json_)


@app.command()
def token(
    principal: Annotated[str, typer.Argument(help="Who has the token is this principal.")],
    hours: Annotated[float, typer.Option("--hours", min=0.01, max=24 * 366, help="For so long.")] = 8,
    data: Data = None,
    etcd: Etcd = None,
    prefix: Prefix = None,
    config: Config = None,
    json_: Json = False,
) -> None:
    """Print a token that proves a principal to every proxy. Reads the registry's secret to sign it.

    Example: waypost token alice --hours 8 --data run > alice.token
    """
    if not 0 < len(principal) <= MAX_ID_LENGTH:
        raise Refused(f"a name of 1 to {MAX_ID_LENGTH} characters, please", field="principal")
    from node.cli.commands.interrupt import run
    from node.cli.commands.token import token as make

    run(make(of_registry(data, etcd, prefix, config), principal, round(hours * 3600), as_json=json_))


@app.command()
def match(
    expression: Annotated[str | None, typer.Argument(help="A subscription.")] = None,
    notification: Annotated[str | None, typer.Argument(help="A JSON object.")] = None,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch", help="""A file of lines {"expr": "a == 1", "notification": {"a": 1}}, '-' for stdin."""
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Evaluate a subscription: true, false or bottom.

    Bottom is neither: a value is missing, or of another type.

    Example: waypost match 'dep_delay > 30' '{"dep_delay": 45}'
    """
    from node.cli.commands.match import match_batch, match_one

    if batch is not None:
        if expression is not None:
            raise Refused("each line of a batch has its own expression; leave this one out", field="batch")
        match_batch(batch)
    elif expression is None or notification is None:
        missing = "expression" if expression is None else "notification"
        raise Refused(f"the {missing} is missing: name both, or --batch FILE", field=missing)
    else:
        match_one(expression, notification, as_json=json_)


# ---------------------------------------------------------------- errors


def _wants_json(arguments: list[str]) -> bool:
    return "--json" in arguments


def report(error: WaypostError, *, as_json: bool) -> int:
    """Print an error for people on stderr, or as JSON on stdout; return the exit status for it."""
    if as_json:
        body: dict[str, Any] = {
            "code": error.code,
            "message": error.message,
            "hint": error.hint,
            "field": error.field,
            "definite": error.definite,
        }
        offset = getattr(error, "offset", None)
        if offset is not None:
            body["offset"] = offset
        print(json.dumps({"v": 1, "error": body}))
    else:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        if error.hint:
            print("hint:", "\n".join(map(printable, error.hint.split("\n"))), file=sys.stderr)
    return error.exit_status


def _load_commands(arguments: list[str]) -> None:
    """Add the commands of the rooms above, which we must not import: the one that is called, or all for the help."""
    own = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    called = next((argument for argument in arguments if not argument.startswith("-")), None)
    for entry in entry_points(group="waypost.commands"):
        if called == entry.name or (called is None and entry.name not in own):
            command = entry.load()
            if isinstance(command, typer.Typer):
                app.add_typer(command, name=entry.name)
            else:
                app.command(entry.name)(command)


def _run(arguments: list[str]) -> object:
    """Run the command that the arguments name, and return what it gives.

    The groups above it are not asked: they have no options but `--help`, and Typer imports pydantic to see that it
    was not given, which takes longer than all the rest of a `--help`.
    """
    command: Any = typer.main.get_command(app)
    path, rest = ["waypost"], arguments
    while rest and (inner := getattr(command, "commands", {}).get(rest[0])):
        command, path, rest = inner, [*path, rest[0]], rest[1:]
    try:
        return command(args=rest, standalone_mode=False, prog_name=" ".join(path), help_option_names=HELP_NAMES)
    except NoArgsIsHelpError as error:
        print(error.format_message(), flush=True)
        return 2


def main() -> None:
    """Run the command that the process's arguments name, and end the process with its exit status (STATUSES)."""
    arguments = sys.argv[1:]
    try:
        _load_commands(arguments)
        if arguments[:1] in (["serve"], ["config"]):
            check_repeated(arguments)
        status = _run(arguments)
    except WaypostError as error:
        status = report(error, as_json=_wants_json(arguments))
    except ClickException as error:
        command = error.ctx.command_path if isinstance(error, UsageError) and error.ctx else "waypost"
        status = report(Refused(_wording(error), hint=f"{command} --help"), as_json=_wants_json(arguments))
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except SystemExit as end:
        # So Typer ends, with 1, when the reader of our stdout has gone: it has what it wanted.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        print_no_more()
        status = 0
    except BrokenPipeError:
        print_no_more()
        status = 0
    except Exception as error:
        if os.environ.get("WAYPOST_DEBUG"):
            raise
        if _is_interrupt(error):
            status = INTERRUPTED
        elif isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            status = _not_printed(error)
        else:
            status = _fault(error, arguments)
    if status == INTERRUPTED:
        # Typer has made a status of most of them.
        end_by_signal(INTERRUPTED)
    sys.exit(_flushed(status if isinstance(status, int) else 0))


def _is_interrupt(error: BaseException) -> bool:
    """Tell whether Ctrl-C is behind an error, as where it came while a class of a library was being made."""
    causes = (error.__cause__, error.__context__)
    return any(isinstance(cause, KeyboardInterrupt) or (cause and _is_interrupt(cause)) for cause in causes)


def _wording(error: ClickException) -> str:
    """Return what is wrong with an argument, in the words of the configuration."""
    message = error.format_message()
    for kind, words in (("integer", "it is no whole number"), ("number", "it is no number")):
        before, found, _ = message.partition(f"Input should be a valid {kind}")
        if found:
            return before + words
    for kind, words in (("less", "it is too large: say {} or less"), ("greater", "it is too small: say {} or more")):
        before, found, bound = message.partition(f"Input should be {kind} than or equal to ")
        if found:
            return before + words.format(bound)
    return message


def end_by_signal(status: int) -> NoReturn:
    """End the process at once with this exit status, as a signal asked for; what was printed is written first.

    Ctrl-C has no effect from the call on, and Python's own end is not run: a signal that interrupts that end would
    change the status.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    status = _flushed(status)
    sys.stderr.flush()
    os._exit(status)


def _fault(error: Exception, arguments: list[str]) -> int:
    hint = "this is Waypost's fault, not yours; WAYPOST_DEBUG=1 shows where"
    return report(Internal(f"{type(error).__name__}: {error}", hint=hint), as_json=_wants_json(arguments))


def _flushed(status: int) -> int:
    """Write what was printed so far, and return the exit status: another one if stdout does not take it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        print_no_more()
    except OSError as error:
        return _not_printed(error)
    return status


def _not_printed(error: OSError) -> int:
    print_no_more()
    return report(OutputFailed(f"stdout cannot be written: {error.strerror}"), as_json=False)


if __name__ == "__main__":
    main()
