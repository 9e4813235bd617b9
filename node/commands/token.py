"""`waypost token`: a token that proves a principal, signed with the federation's secret."""

from __future__ import annotations

import json
import time

from node.config import NodeConfig
from node.parts import open_registry, registry_file
from proxy.tokens import Named, issue, token_key
from waypost.errors import NotFound


async def token(config: NodeConfig, principal: str, lasts_s: int, *, as_json: bool) -> None:
    """Print a token. Whoever can read the registry may make one: nobody else knows the secret.

    Raises:
        NotFound: there is no registry where the configuration says.
        RegistryUnavailable: it does not answer.
    """
    if not config.etcd and not registry_file(config).exists():
        raise NotFound(f"there is no registry {registry_file(config)}", field="data", hint="name the folder of a proxy")
    registry = open_registry(config)
    try:
        await registry.start()
        secret = await registry.secret()
    finally:
        await registry.close()
    until_ms = (int(time.time()) + lasts_s) * 1000
    text = issue(token_key(secret), Named(principal, until_ms))
    print(json.dumps({"v": 1, "principal": principal, "until_ms": until_ms, "token": text}) if as_json else text)
