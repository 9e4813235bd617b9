"""Options that several commands share."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from node.cli.commands.table import yes_or_no
from node.configuration.config import NodeConfig, load_config, reachable
from waypost.errors import Refused

Json = Annotated[bool, typer.Option("--json", help="JSON on stdout, errors too.")]
KeysFile = Annotated[
    Path | None, typer.Option("--keys-file", help="Keys that go with it, one a line, as `waypost key` prints them.")
]
TokenFile = Annotated[
    Path | None, typer.Option(help="File whose first line is a token, where one is needed; default: WAYPOST_TOKEN.")
]

# Where the registry is, of commands that ask it themselves.
Data = Annotated[Path | None, typer.Option(help="Folder of the proxies, if their registry is embedded.")]
Etcd = Annotated[str | None, typer.Option(help="host:port of their etcd.")]
Prefix = Annotated[str | None, typer.Option(help="Of their etcd keys.")]
Config = Annotated[Path | None, typer.Option(envvar="WAYPOST_CONFIG", help="A proxy's TOML file.")]


def of_registry(data: Path | None, etcd: str | None, prefix: str | None, config: Path | None) -> NodeConfig:
    """Return the settings that say where the registry is, from a command's options; None: an option was not given.

    Raises:
        BadConfiguration: a value, of an option, a variable or the file, is not allowed.
    """
    return load_config({"data": data, "etcd": etcd, "prefix": prefix}, config)


def _address(url: str | None) -> str | None:
    try:
        if url is not None and not url.strip():
            raise Refused("it is empty: name a proxy, as ws://host:7301, or leave it out", field="proxy")
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


def group(help_text: str) -> typer.Typer:
    """Return a command that has subcommands, none yet; called without one it prints its help."""
    return typer.Typer(help=help_text, no_args_is_help=True, rich_markup_mode=None)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each setting of a node, and return the command; to be used as a decorator. The
    command's signature is replaced.

    The command takes them as ``**settings``: all of them, by name; None: an option was not given.
    """
    kinds = get_type_hints(NodeConfig)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                _word(field, kinds) | None,
                typer.Option(help=field.metadata["help"], show_default=_default_text(field.default), **_range(field)),
            ],
        )
        for field in fields(NodeConfig)
    ]
    signature = inspect.signature(command, eval_str=True)
    own = [
        parameter for parameter in signature.parameters.values() if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    command.__signature__ = signature.replace(parameters=[*options, *own])  # type: ignore[attr-defined]
    return command


def check_repeated(arguments: Sequence[str]) -> None:
    """Check that no setting is given twice on a command line: the first value would be dropped in silence.

    Raises:
        Refused: a setting is given twice; `field` names it.
    """
    names = {f"--{field.name.replace('_', '-')}" for field in fields(NodeConfig)}
    given = Counter(argument.partition("=")[0] for argument in arguments)
    for name in names & given.keys():
        if given[name] > 1:
            why = "it is given twice; several values of one setting have commas between them"
            raise Refused(why, field=name.removeprefix("--"))


def _range(setting: Field[Any]) -> dict[str, Any]:
    """Return the bounds of a number, by which it is refused before anything of a proxy is imported."""
    if setting.metadata["check"]:
        return {}
    bounds = setting.metadata["bounds"]
    return {name: bounds[bound] for name, bound in (("min", "ge"), ("max", "le")) if bound in bounds}


def _word(setting: Field[Any], kinds: Mapping[str, Any]) -> Any:
    """Return the type of a setting on the command line, where a list, or a size, is one word."""
    return str if setting.metadata["check"] else kinds[setting.name]


def _default_text(default: object) -> str | bool:
    """Return a setting's default for the help; the command itself must not have it, to know what was given."""
    if isinstance(default, bool):
        return yes_or_no(default)
    return str(default) if default not in ("", ()) else False
