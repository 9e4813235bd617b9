"""`waypost token`: a token that proves a principal, signed with the federation's secret."""

from __future__ import annotations

import json
import time

from node.cli.commands.registry import registry_of
from node.configuration.config import NodeConfig
from proxy.clients.tokens import Named, issue, token_key
from waypost.errors import NotFound


async def token(config: NodeConfig, principal: str, expiry_s: int, *, as_json: bool) -> None:
    """Print a token that proves a principal to every proxy of the federation, signed with the registry's secret.

    Args:
        config: names the registry, and the TLS files with which to ask it; nothing else of it counts.
        expiry_s: how long the token holds from now, in seconds.

    Raises:
        BadConfiguration: these files cannot be used.
        NotFound: there is no registry where the configuration says, or no proxy has ever used it.
        RegistryUnavailable: the registry does not answer.
    """
    async with registry_of(config) as registry:
        secret = await registry.secret(make=False)
    if not secret:
        raise NotFound(
            "no proxy has ever used that registry",
            field="registry",
            hint="name it as the proxies do: --etcd and --prefix, or --data",
        )
    until_ms = (int(time.time()) + expiry_s) * 1000
    text = issue(token_key(secret), Named(principal, until_ms))
    print(json.dumps({"v": 1, "principal": principal, "until_ms": until_ms, "token": text}) if as_json else text)
