"""TLS as a proxy speaks it: one certificate on its port and towards other proxies, which have to show theirs.
Kafka and etcd are certified by others, and what is shown to them is a certificate of its own.

Who another proxy is, its certificate does not say: that is proven by the federation's secret (node/seal.py), as without
TLS. A certificate says that the authority of this federation gave it, and keeps everybody else from listening.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from federation.credentials import Credentials
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
        _show(context, config, "tls")
        _believe(context, config, "tls")
    port.verify_mode = ssl.CERT_OPTIONAL
    return Tls(port, peers)


@cache
def credentials_of(config: NodeConfig) -> Credentials | None:
    """Return how Kafka and etcd are spoken to; None: in the clear. The files are read once.

    Raises:
        BadConfiguration: names the file that is no good.
    """
    if not config.parts_ca:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _believe(context, config, "parts")
    authorities = Path(config.parts_ca).read_bytes()
    if not config.parts_cert:
        return Credentials(context, authorities)
    _show(context, config, "parts")
    return Credentials(context, authorities, Path(config.parts_cert).read_bytes(), Path(config.parts_key).read_bytes())


def _show(context: ssl.SSLContext, config: NodeConfig, whose: str) -> None:
    """Show the certificate in `whose`_cert, with its key."""
    cert, key = _file(config, f"{whose}_cert"), _file(config, f"{whose}_key")
    try:
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{cert} with {key}: {error}", field=f"{whose}_cert") from None


def _believe(context: ssl.SSLContext, config: NodeConfig, whose: str) -> None:
    """Believe the authorities in `whose`_ca."""
    ca = _file(config, f"{whose}_ca")
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{ca}: {error}", field=f"{whose}_ca") from None


def _file(config: NodeConfig, field: str) -> str:
    file: str = getattr(config, field)
    if not Path(file).is_file():
        raise BadConfiguration(f"{file or 'nothing'} is no file", field=field)
    return file


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
