"""TLS as a proxy speaks it: one certificate on its port and towards other proxies, which have to show theirs.

Who another proxy is, its certificate does not say: that is proven by the federation's secret (node/seal.py), as without
TLS. A certificate says that the authority of this federation gave it, and keeps everybody else from listening.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from node.config import NodeConfig
from waypost.errors import BadConfiguration


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
