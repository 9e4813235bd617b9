"""`waypost sessions`: what there is, and who owns it."""

from __future__ import annotations

import json

from node.commands.asking import address, ask
from waypost.errors import NotFound


def list_sessions(proxy: str | None, *, as_json: bool) -> None:
    answer = ask(address(proxy), "/v1/sessions")
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


def delete_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    answer = ask(address(proxy), "/v1/sessions/delete", {"session": session}, post=True)
    print(json.dumps(answer) if as_json else f"session {session} is deleted, with all that was stored for it")


def show_session(session: str, proxy: str | None, *, as_json: bool) -> None:
    for row in ask(address(proxy), "/v1/sessions")["sessions"]:
        if row["session"] == session:
            print(json.dumps({"v": 1} | row) if as_json else "\n".join(f"{key}: {value}" for key, value in row.items()))
            return
    raise NotFound(f"there is no session {session}", field="session")
