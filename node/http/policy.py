"""Which HTTP requests and WebSocket handshakes a node accepts, decided by their Host, Origin and Content-Type headers.

Theory
------
A browser on an operator's machine reaches servers on its loopback, so a hostile page may try to use the proxy in the
operator's place. Two ways are open to it, and each has a header that gives it away and that no page can set:

cross-origin    WebSockets have no same-origin policy, and simple POSTs are sent before any is applied. The browser
                names the page in Origin; a program sends none. So an Origin is refused unless it is configured.
DNS rebinding   The page's own host name resolves to our address, so the browser takes us for the page's own server, and
                lets it read answers too. Host then has the page's name, never ours. So only our names are accepted, on
                every request but the probes, whose callers (a load balancer) often know nothing but an address.

A body of a POST must say that it is JSON: a page can send the other content types without asking us first (CORS).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from node.configuration.config import NodeConfig, is_unspecified
from waypost.client.address import is_ip_address, is_loopback
from waypost.errors import BadMessage, ForeignOrigin, Misdirected, Refused, WrongContentType

PROBES = ("/livez", "/readyz")
"""Pages that answer whatever Host says; they tell nothing that a page could use."""
STATUS_OF: dict[type[Refused], int] = {BadMessage: 400, ForeignOrigin: 403, Misdirected: 421, WrongContentType: 415}
JSON = "application/json"


def host_name(header: str) -> str:
    """Return the host of a Host header in lower case, without its port and a final dot; "": it names none."""
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # raises ValueError: it is none
    except ValueError:
        return ""
    if parts.netloc != header or "@" in header:
        return ""
    return (parts.hostname or "").removesuffix(".")


def is_json(content_type: str) -> bool:
    """Tell whether a Content-Type header is application/json, with whatever parameters."""
    return content_type.partition(";")[0].strip().lower() == JSON


@dataclass(frozen=True, slots=True)
class WebPolicy:
    """The requests that a node accepts.

    Args:
        names: host names of this node, in lower case, without a final dot.
        origins: web origins that may use it, as a browser writes them.
        addresses: whether any IP address is ours, because the node listens on all.
        loopback: whether the names of the loopback are ours.
    """

    names: frozenset[str]
    origins: frozenset[str] = frozenset()
    addresses: bool = False
    loopback: bool = False

    @classmethod
    def of(cls, config: NodeConfig) -> WebPolicy:
        """Return the policy of a node with this configuration."""
        everywhere = is_unspecified(config.host)
        advertised = urlsplit(config.advertise).hostname or ""
        names = {name.lower().removesuffix(".") for name in (config.host, advertised, *config.host_names) if name}
        return cls(
            frozenset(names),
            frozenset(config.allow_origins),
            addresses=everywhere,
            loopback=everywhere or is_loopback(config.host),
        )

    def is_ours(self, host: str) -> bool:
        """Tell whether a Host header names this node."""
        name = host_name(host)
        if name in self.names:
            return True
        return (self.loopback and is_loopback(name)) or (self.addresses and is_ip_address(name))

    def refusal(self, kind: str, method: str, path: str, headers: Headers) -> Refused | None:
        """Return the reason why a request is refused; None: it is accepted. Only computes.

        Args:
            kind: "http" or "websocket", as ASGI has it.
            method: of HTTP; "GET" of a handshake.
            path: of the URL; PROBES are answered at every host.
        """
        if path not in PROBES and not _all(self.is_ours, headers.getlist("host")):
            return Misdirected("the Host header names no host of this proxy; see --host-names", field="host")
        if "transfer-encoding" in headers and "content-length" in headers:
            # An intermediary may believe the other one (RFC 9112, section 6.1).
            return BadMessage("a request has Transfer-Encoding or Content-Length, not both", field="transfer-encoding")
        if kind != "websocket" and method != "POST":
            return None
        origins = headers.getlist("origin")
        if origins and not _all(self.origins.__contains__, origins):
            return ForeignOrigin("pages of this origin may not use this proxy; see --allow-origins", field="origin")
        if kind == "http" and _has_body(headers) and not _all(is_json, headers.getlist("content-type")):
            return WrongContentType(f"a body is JSON; say Content-Type: {JSON}", field="content-type")
        return None


def _all(accepted: Callable[[str], bool], values: Iterable[str]) -> bool:
    """Tell whether there is a value and all are accepted: of a header that is sent twice, others may read another."""
    found = [accepted(value) for value in values]
    return bool(found) and all(found)


def _has_body(headers: Headers) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip() != "0"


class WebPolicyMiddleware:
    """Answers requests that the policy refuses, in the application's place: by its status, or 403 to a handshake.

    Starlette's TrustedHostMiddleware is not used: it answers 400 in plain text, takes an IPv6 address for a name with a
    port, and reports no refusal.

    Args:
        refused: called with each refusal.
    """

    def __init__(self, app: ASGIApp, policy: WebPolicy, refused: Callable[[Refused], None]) -> None:
        self._app = app
        self._policy = policy
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the application, or answer it with what the policy has against it."""
        kind: str = scope["type"]
        refusal = None
        if kind in ("http", "websocket"):
            refusal = self._policy.refusal(kind, scope.get("method", "GET"), scope["path"], Headers(scope=scope))
        if refusal is None:
            await self._app(scope, receive, send)
            return
        self._refused(refusal)
        body = {"v": 1, "error": {"code": refusal.code, "message": refusal.message, "field": refusal.field}}
        await JSONResponse(body, 403 if kind == "websocket" else STATUS_OF[type(refusal)])(scope, receive, send)
