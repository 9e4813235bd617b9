"""`waypost config check`: every setting, its value, and where that comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields

from node.cli.commands.table import yes_or_no
from node.configuration.config import NodeConfig


def show(config: NodeConfig, sources: Mapping[str, str], *, as_json: bool) -> None:
    """Print every setting, its value and the source of that, in the order of the help.

    Args:
        sources: as :func:`node.configuration.config.sources_of` returns them.
    """
    values = {field.name: _plain(getattr(config, field.name)) for field in fields(NodeConfig)}
    if as_json:
        settings = {name: {"value": value, "source": sources[name]} for name, value in values.items()}
        print(json.dumps({"v": 1, "settings": settings}, ensure_ascii=False))
        return
    rows = [(name.replace("_", "-"), _shown(value), sources[name]) for name, value in values.items()]
    names, shown = (max(len(row[column]) for row in rows) for column in (0, 1))
    for name, value, source in rows:
        print(f"{name:{names}}  {value:{shown}}  {source}")


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value if isinstance(value, bool | int | str) else str(value)


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return yes_or_no(value)
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value) if value != "" else "-"
