"""HTTP requests to a proxy, as operators make them."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

from node.cli.commands.input import first_line
from waypost.client.tls import tls_from_environment
from waypost.errors import NoProxy, Unreachable, from_wire

ANSWER_S = 15.0
UNAUTHORIZED = 401
TOKEN = "WAYPOST_TOKEN"
"""The variable with the token to attach, to publish, or to use the pages for operators."""


def token_of(file: Path | None) -> Callable[[], str]:
    """Return a function that returns the token, "" for none; call it at every attach, because the file may have another
    one by then.

    Args:
        file: its first line is the token; None: the variable TOKEN has it, or there is no token.

    Raises:
        Refused: the file cannot be read, or its first line is empty. The returned function raises it, too, at any later
            time.
    """

    def read() -> str:
        return first_line(file, "token-file", TOKEN)

    read()
    return read


def address(proxy: str | None) -> str:
    """Return the address of a proxy.

    Args:
        proxy: its URL, which is returned; None: that of the best proxy found by mDNS, of WAYPOST_FEDERATION if that is
            set. That takes up to POLL_S, and must not be called in an event loop.

    Raises:
        NoProxy: none was found.
        BadConfiguration: proxies of several federations were found.
        Unreachable: there is no multicast here.
    """
    if proxy:
        return proxy
    from discovery.browse import POLL_S, find
    from waypost.client.roaming import of_one_federation

    found = of_one_federation(asyncio.run(find()))
    if not found:
        raise NoProxy(f"none found on this network in {POLL_S:g} s", hint="is one running? try --proxy ws://host:port")
    return found[0].url


def request(proxy: str, path: str, body: object | None = None, *, post: bool = False) -> Any:
    """Request a page of a proxy, and return its answer, decoded from JSON; block until then. An operator's token is
    sent if the environment's variable TOKEN has one.

    Args:
        proxy: its URL, ws:// or wss://.
        path: of the page, with its query.
        body: to be sent as JSON, by a POST; None: there is none.
        post: whether it is a POST although it has no body.

    Raises:
        WaypostError: the error that the proxy answers with.
        BadConfiguration: the proxy is at wss://, and a file that the environment names for TLS cannot be used.
        Unreachable: the connection cannot be made, a part of the answer does not come within ANSWER_S seconds, or the
            answer is no JSON; what was requested may be done.
    """
    url = "http" + proxy.removeprefix("ws") + path
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, method="POST" if post or data else "GET")
    if data is not None:
        request.add_header("Content-Type", "application/json")
    if token := os.environ.get(TOKEN):
        request.add_header("Authorization", f"Bearer {token}")
    try:
        security = tls_from_environment() if url.startswith("https:") else None
        with urllib.request.urlopen(request, timeout=ANSWER_S, context=security) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as refusal:
        with refusal:
            raise _refusal(refusal.read(), url, refusal.code) from None
    except HTTPException as error:
        raise Unreachable(
            f"{url}: what answers there is no proxy, or ended amid its answer ({type(error).__name__})"
        ) from None
    except (OSError, ValueError) as error:
        raise Unreachable(f"{url}: {_why(error)}", hint="is a proxy running there?") from None


def _why(error: Exception) -> str:
    """Return the system's reason of an error, without the layers around it."""
    reason = getattr(error, "reason", error)
    return getattr(reason, "strerror", None) or str(reason)


def _refusal(body: bytes, url: str, status: int) -> Exception:
    try:
        refusal = json.loads(body)["error"]
        error = from_wire(refusal["code"], refusal["message"], refusal["field"])
        if status == UNAUTHORIZED:
            error.hint = f"put an operator's token into {TOKEN}; `waypost token` makes one"
        return error
    except (ValueError, KeyError, TypeError):
        return Unreachable(f"{url}: HTTP status {status}", hint="is a proxy running there?")
