"""`waypost token`: a token that proves a principal, signed with the federation's secret."""

from __future__ import annotations

import json
import time

from node.commands.registry import registry_of
from node.config import NodeConfig
from proxy.tokens import Named, issue, token_key


async def token(config: NodeConfig, principal: str, lasts_s: int, *, as_json: bool) -> None:
    """Print a token. Whoever can read the registry may make one: nobody else knows the secret.

    Raises:
        NotFound: there is no registry where the configuration says.
        RegistryUnavailable: it does not answer.
    """
    async with registry_of(config) as registry:
        secret = await registry.secret()
    until_ms = (int(time.time()) + lasts_s) * 1000
    text = issue(token_key(secret), Named(principal, until_ms))
    print(json.dumps({"v": 1, "principal": principal, "until_ms": until_ms, "token": text}) if as_json else text)
