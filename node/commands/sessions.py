"""`waypost sessions`: what there is, and who owns it."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any

from waypost.errors import NoProxy, NotFound, Unreachable


def _address(proxy: str | None) -> str:
    if proxy:
        return proxy
    from discovery.browse import LOOK_S, proxies

    found = asyncio.run(proxies())
    if not found:
        raise NoProxy(f"none found on this network in {LOOK_S:g} s", hint="is one running? try --proxy ws://host:port")
    return found[0].url


def _get(proxy: str | None, path: str) -> Any:
    url = "http" + _address(proxy).removeprefix("ws") + path
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        raise Unreachable(f"{url}: {error}", hint="is a proxy running there?") from None


def list_sessions(proxy: str | None, *, as_json: bool) -> None:
    answer = _get(proxy, "/v1/sessions")
    if as_json:
        print(json.dumps(answer))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="")
    for heading in ("session", "owner", "epoch", "state", "stored", "receivers"):
        table.add_column(heading)
    for row in answer["sessions"]:
        table.add_row(
            *(
                "" if row[each] is None else str(row[each])
                for each in ("session", "owner", "epoch", "state", "stored", "receivers")
            )
        )
    Console(soft_wrap=True).print(table)


def show_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    for row in _get(proxy, "/v1/sessions")["sessions"]:
        if row["session"] == session:
            print(json.dumps({"v": 1} | row) if as_json else "\n".join(f"{key}: {value}" for key, value in row.items()))
            return
    raise NotFound(f"there is no session {session}", field="session")
