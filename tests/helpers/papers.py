"""Certificates for tests, as files and as contexts."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from chaos.servers.server import ServerTls


class Papers:
    """An authority, and what it has certified, as files. The certificate is for 127.0.0.1 and for no other name."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        self.authority = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self.authority))
        proxy = self._authority.issue_cert("127.0.0.1")
        self.certificate, self.key = folder / "proxy.pem", folder / "proxy.key"
        proxy.cert_chain_pems[0].write_to_path(str(self.certificate))
        key = load_pem_private_key(proxy.private_key_pem.bytes(), password=None)
        self.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @property
    def flags(self) -> dict[str, str]:
        return {
            "no-discovery": "",
            "tls-cert": str(self.certificate),
            "tls-key": str(self.key),
            "tls-ca": str(self.authority),
        }

    @property
    def server(self) -> ServerTls:
        return ServerTls(self.authority, self.certificate, self.key)

    def client(self, name: str = "") -> ssl.SSLContext:
        """Return how somebody speaks TLS who believes this authority; with a name, certified by it."""
        context = ssl.create_default_context(cafile=str(self.authority))
        if name:
            self._authority.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
        return context
