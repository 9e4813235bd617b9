"""`waypost gateway`: peers of a JXTA propagate service, each with a session of the federation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from node.cli.commands.input import parsed
from node.gateway.propagation import Policy
from node.gateway.server import Gateway, GatewaySettings
from node.service import set_up_logging
from waypost.arguments import text
from waypost.limits import MAX_ID_LENGTH


async def serve_peers(
    expression: str,
    name: str,
    address: tuple[str, int],
    limits: Mapping[str, int],
    *,
    proxy: str | None,
    token: Callable[[], str],
    as_json: bool,
) -> None:
    """Serve peers of a propagate service until cancelled, and print the address once the gateway listens there.

    Args:
        expression: what is propagated to peers.
        name: the id of the gateway.
        address: the host and the port where it listens.
        limits: `lease_s`, `peers` of :class:`GatewaySettings`; `cost`, `ttl` of :class:`Policy`.
        proxy: the URL of a proxy; None: one found by mDNS.
        token: returns the token that proves the gateway to proxies; "": none.

    Raises:
        Refused: the expression cannot be subscribed to, the name is no id of a peer, or the gateway cannot listen at
            `address`.
        WaypostError: no proxy lets the gateway in.
    """
    set_up_logging(json=as_json)
    parsed(expression, as_json=as_json)
    text(name.strip(), "name", 1, MAX_ID_LENGTH, such_as="the id of a peer, such as 'lab'")
    settings = GatewaySettings(
        policy=Policy(gateway=name.strip(), cost=limits["cost"], ttl=limits["ttl"]),
        expression=expression,
        host=address[0],
        port=address[1],
        lease_s=limits["lease_s"],
        peers=limits["peers"],
        proxy=proxy,
        token=token,
    )

    def started(url: str) -> None:
        line = f"gateway {settings.policy.gateway} listens at {url}"
        print(json.dumps({"v": 1, "gateway": settings.policy.gateway, "url": url}) if as_json else line, flush=True)

    await Gateway(settings).run(started)
