"""`waypost sessions`: the sessions of a federation and their owners."""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import urlencode

from node.cli.commands.proxy_client import address, request
from node.cli.commands.table import print_table
from waypost.errors import NotFound, Unreachable
from waypost.terminal import printable

ELSEWHERE, UNSERVED = "elsewhere", "unserved"
"""States of a session that another proxy owns: one that has a lease, and one that has none."""
COLUMNS = ("session", "owner", "epoch", "state", "stored", "attached", "registered")
FOLLOWED = 3
"""The number of times that a session is followed which moves while we ask for it."""


def list_sessions(proxy: str | None, *, as_json: bool) -> None:
    """Print all sessions as a proxy knows them.

    Args:
        proxy: the URL of the proxy; None: one found by mDNS.

    Raises:
        NoProxy: none was found.
        WaypostError: as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/sessions")
    if as_json:
        print(json.dumps(answer))
        return
    print_table(COLUMNS, answer["sessions"])


def delete_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    """Have a session deleted with all that is stored for it, and print that it is.

    Args:
        proxy: the URL of the proxy that is asked, which need not own the session; None: one found by mDNS.

    Raises:
        NotFound: there is no such session.
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    answer = request(address(proxy), "/v1/sessions/delete", {"session": session}, post=True)
    print(
        json.dumps(answer) if as_json else f"session {printable(session)} is deleted, with all that was stored for it"
    )


def show_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    """Print a session as its owner knows it; if the owner cannot be asked, as another proxy does, with a hint on
    stderr.

    Args:
        proxy: the URL of the proxy that is asked first; None: one found by mDNS.

    Raises:
        NotFound: there is no such session.
        WaypostError: no proxy was found, or as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    row, hint = row_of(session, address(proxy))
    if as_json:
        print(json.dumps({"v": 1} | row))
    else:
        print(printed(row))
    if hint:
        print(f"hint: {hint}", file=sys.stderr)


def printed(row: dict[str, Any]) -> str:
    """Return the fields of a session's row that are not None, one a line, as "name: value"."""
    shown = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for key, value in row.items()
    }
    return "\n".join(f"{key}: {printable(shown[key])}" for key, value in row.items() if value is not None)


def row_of(session: str, url: str) -> tuple[dict[str, Any], str]:
    """Return a session's row, and why it is not its owner's; "": it is.

    Args:
        url: of the proxy that is asked first, whose row is returned if the owner cannot be asked.

    Raises:
        NotFound: there is no such session.
        Unreachable: the first proxy does not answer.
        WaypostError: a proxy refuses the request.
    """
    row = _row(session, url)
    for _ in range(FOLLOWED):
        if row["state"] not in (ELSEWHERE, UNSERVED):
            return row, ""
        owner = row["owner"]
        if row["state"] == UNSERVED:
            return row, f"only proxy {owner} knows more of it, and that one has no lease; whoever attaches gets it"
        try:
            row = _row(session, row["url"])
        except Unreachable as error:
            return row, f"only proxy {owner} knows more of it: {error.message}"
    return row, "it changes hands at this moment; ask again"


def _row(session: str, url: str) -> dict[str, Any]:
    """Raises NotFound."""
    for row in request(url, f"/v1/sessions?{urlencode({'session': session})}")["sessions"]:
        if row["session"] == session:
            return dict(row)
    raise NotFound(f"there is no session {session}", field="session")
