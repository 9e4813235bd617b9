"""TLS as a proxy speaks it: one certificate on its port and towards other proxies, which have to show theirs.

Who another proxy is, its certificate does not say: that is proven by the federation's secret (node/seal.py), as without
TLS. A certificate says that the authority of this federation gave it, and keeps everybody else from listening.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from node.config import NodeConfig
from proxy.tokens import Named, issue
from waypost.errors import BadConfiguration
from waypost.messages import Attach, ClientMessage, Hello

CERTIFIED_MS = 3_600_000
"""So long a token lasts that stands for a certificate; the client comes again then, on the connection that it has."""


class Tls(NamedTuple):
    """`port`: who connects may show a certificate; a proxy must. `peers`: for connections to other proxies."""

    port: ssl.SSLContext
    peers: ssl.SSLContext


def tls_of(config: NodeConfig) -> Tls | None:
    """Return how the proxy speaks TLS, or None. Raises BadConfiguration, which names the file that is no good."""
    if not config.tls_cert:
        return None
    port, peers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (port, peers):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _load(context, config)
    port.verify_mode = ssl.CERT_OPTIONAL
    return Tls(port, peers)


def _load(context: ssl.SSLContext, config: NodeConfig) -> None:
    for field, file in (("tls_cert", config.tls_cert), ("tls_key", config.tls_key), ("tls_ca", config.tls_ca)):
        if not Path(file).is_file():
            raise BadConfiguration(f"{file or 'nothing'} is no file", field=field)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{config.tls_cert} with {config.tls_key}: {error}", field="tls_cert") from None
    try:
        context.load_verify_locations(config.tls_ca)
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{config.tls_ca}: {error}", field="tls_ca") from None


def name_on(certificate: Mapping[str, Any]) -> str:
    """Return the common name on a verified certificate, as :meth:`ssl.SSLSocket.getpeercert` gives it."""
    parts = (part for each in certificate.get("subject", ()) for part in each)
    return next((str(value) for kind, value in parts if kind == "commonName"), "")


def vouched(message: ClientMessage, name: str, key: bytes, now_ms: int) -> ClientMessage:
    """Return what a client says whose verified certificate has this name.

    If it attaches as the principal of that name it gets a token for that: so a certificate is believed wherever the
    session is served, as every token is, and by the same rule. And it gets one to publish with, if it has no other.

    Args:
        key: of tokens; empty: there is none yet.
        now_ms: in Unix time.
    """
    if not isinstance(message, Attach | Hello) or not key:
        return message
    credential = message.credential
    wanted = name if isinstance(message, Attach) else ""
    if credential.principal != wanted or credential.password or credential.token:
        return message
    token = issue(key, Named(name, now_ms + CERTIFIED_MS))
    return replace(message, credential=replace(credential, token=token))
