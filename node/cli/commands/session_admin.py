"""`waypost sessions`: changes by operators, requested of the proxy that owns the session, whichever one is named."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from node.cli.commands.input import unreadable
from node.cli.commands.proxy_client import address, request
from node.cli.commands.sessions import printed, row_of
from waypost import arguments
from waypost.access import LEVELS
from waypost.errors import NoAnswer, NotServed, Refused, Unreachable
from waypost.queue import DISCARDS
from waypost.reliability import DEGREES

UNNAMED = "(none)"
"""The name of a client without a principal."""
TOKEN, ITS_NAME = "a token", "its name"
"""Proofs of a principal, as the pages show them; a client that names none can prove nothing but a password."""
AGAIN_S = 0.3
"""A handover takes no longer, as a rule."""
SAME_AGAIN = ("access", "policy", "retention")
"""Idempotent changes: they are requested again where it is not known whether they were made."""
HANDOVER_WITHIN_S = 15.0
"""How long to wait for the proxy that comes to own the session."""


def set_access(
    session: str, texts: list[str], passwords: Path | None, *, open_: bool, proxy: str | None, as_json: bool
) -> None:
    """Replace all grants of a session, and print the session as it is then.

    Args:
        texts: WHO=LEVEL each, (none)=LEVEL for clients without a principal; empty with `open_`.
        passwords: a file of lines WHO:PASSWORD; a principal that is not in it keeps the proof that it has, and a new
            one proves itself by a token. None: there is no such file.
        open_: whether everybody may do everything.
        proxy: the URL of the proxy that is asked first; None: one found by mDNS.

    Raises:
        Refused: a text or the file is not of that form, a principal is named twice or has a password and no level, or
            both or neither of `texts` and `open_` is given.
        WaypostError: as :func:`change` raises it.
    """
    if open_ == bool(texts):
        raise Refused("name who may do what, or --open; one of the two", field="grants")
    known = _passwords(passwords) if passwords else {}
    levels = _levels(texts)
    if unnamed := next((principal for principal in known if principal not in levels), None):
        raise Refused(f"{unnamed or UNNAMED} has a password there, and may do nothing", field="grants")
    row, _ = row_of(session, address(proxy))
    proofs = {principal: grant["proof"] for principal, grant in (row.get("access") or {}).items()}
    grants = {}
    for principal, level in levels.items():
        proof = proofs.get(principal, TOKEN if principal else ITS_NAME)
        password = known.get(principal, "" if proof == ITS_NAME else None)
        by_token = password is None and proof == TOKEN
        grants[principal] = {"rights": LEVELS[level], "password": password, "by_token": by_token}
    change("access", session, {"grants": grants}, proxy=proxy, as_json=as_json)


def _levels(texts: list[str]) -> dict[str, str]:
    """Return principal -> level. Raises Refused: a text is not WHO=LEVEL, or a principal is named twice."""
    levels: dict[str, str] = {}
    for text in texts:
        named, _, level = text.rpartition("=")
        if level not in LEVELS:
            raise Refused(f"{text!r} is not WHO=LEVEL; levels are {', '.join(LEVELS)}", field="grants")
        if not named:
            raise Refused(f"{text!r} names nobody; {UNNAMED}{text} is for clients without a principal", field="grants")
        principal = "" if named == UNNAMED else named
        if principal in levels:
            raise Refused(f"{named} is named twice", field="grants")
        levels[principal] = level
    return levels


def _passwords(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(file, error, "passwords-file") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        principal, _, password = line.partition(":")
        if not line:
            continue
        if not password:
            raise Refused(f"line {number} of {file} is not WHO:PASSWORD", field="passwords-file")
        if principal in found:
            raise Refused(f"line {number} of {file} names {principal or '(none)'} again", field="passwords-file")
        found[principal] = password
    return found


def set_policy(
    session: str,
    *,
    expiry_s: int | None,
    queue: dict[str, Any],
    reliability: dict[str, str | None],
    proxy: str | None,
    as_json: bool,
) -> None:
    """Change the policy of a session where a value is not None, and print the session as it is then; 0 is no bound.

    Args:
        expiry_s: seconds without an attached receiver after which the session ends; 0: never.
        queue: `max_count`, `max_bytes`, `discard`, `deadlines`.
        reliability: `events`, `connection`: persistent or best-effort.
        proxy: the URL of the proxy that is asked first; None: one found by mDNS.

    Raises:
        Refused: all values are None; or the proxy refuses one.
        BadArgument: one is none of the words that there are.
        WaypostError: as :func:`change` raises it.
    """
    for field, text in _given_options(reliability).items():
        arguments.one_of(text, field, DEGREES)
    if queue["discard"] is not None:
        arguments.one_of(queue["discard"], "discard", DISCARDS)
    changes: dict[str, Any] = {"expiry_s": expiry_s or None} if expiry_s is not None else {}
    changes |= {
        name: options
        for name, options in (("queue", bounds(queue)), ("reliability", _given_options(reliability)))
        if options
    }
    if not changes:
        raise Refused(
            "say what is to be changed: --expiry, --max-count, --max-bytes, --discard, --deadlines, --events, "
            "--connection, or several of these"
        )
    change("policy", session, changes, proxy=proxy, as_json=as_json)


def set_retention(
    session: str, subscription: str, options: dict[str, int | None], *, proxy: str | None, as_json: bool
) -> None:
    """Change the retention of a subscription, and print the session as it is then.

    Args:
        options: `ttl_s` and `max_count`; None: it stays as it is; 0: no bound.
        proxy: the URL of the proxy that is asked first; None: one found by mDNS.

    Raises:
        Refused: all values are None; or the proxy refuses one.
        WaypostError: as :func:`change` raises it.
    """
    changes = bounds(options)
    if not changes:
        raise Refused("say what is to be changed: --ttl SECONDS, --max-count NUMBER, or both; 0 is no bound")
    change("retention", session, {"subscription": subscription, **changes}, proxy=proxy, as_json=as_json)


def bounds(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options that are not None, as the proxy takes them: 0, no bound, becomes None."""
    return {
        name: None if value == 0 and value is not False else value for name, value in _given_options(options).items()
    }


def _given_options(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def change(what: str, session: str, changes: dict[str, Any], *, proxy: str | None, as_json: bool) -> None:
    """Request a change of the proxy that owns the session, and print the session as it is then.

    While the session changes hands the request is repeated, for HANDOVER_WITHIN_S seconds.

    Args:
        what: the last part of the page's path, below /v1/sessions.
        changes: the fields of the body, beside the session.
        proxy: the URL of the proxy that is asked first; None: one found by mDNS.

    Raises:
        NotFound, Refused: as the proxy answers.
        NoAnswer: the change may have been made or not. A change whose repetition does no harm (`what` in SAME_AGAIN) is
            requested again instead, for the same time.
        Unreachable: the proxy does not answer, or after HANDOVER_WITHIN_S the session still changes hands or the
            repeated change has no answer; it may have been made.
        WaypostError: as :func:`node.cli.commands.proxy_client.request` raises it.
    """
    url = address(proxy)
    deadline = time.monotonic() + HANDOVER_WITHIN_S
    while True:
        try:
            row, _ = row_of(session, url)
            answer = request(row["url"] or url, f"/v1/sessions/{what}", {"session": session, **changes}, post=True)
        except (NotServed, NoAnswer) as error:
            if isinstance(error, NoAnswer) and what not in SAME_AGAIN:
                raise
            if time.monotonic() > deadline:
                hint = f"it has been changing hands for {HANDOVER_WITHIN_S:g} s; try again"
                raise Unreachable(error.message, field="session", hint=hint) from None
            time.sleep(AGAIN_S)
            continue
        print(json.dumps(answer) if as_json else printed(answer["session"]))
        return
