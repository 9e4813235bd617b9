"""TLS as a proxy speaks it: one certificate on its port and towards other proxies, which have to show theirs.
Kafka and etcd are certified by others, and what is shown to them is a certificate of its own.

A certificate does not identify another proxy: that is proven by the federation's secret (node/security/seal.py), as
without TLS. It says that the authority of this federation gave it, and keeps everybody else from listening.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from federation.credentials import Credentials
from node.configuration.config import NodeConfig
from proxy.clients.tokens import Named, issue
from waypost.errors import BadConfiguration
from waypost.messages import Attach, ClientMessage, Hello

CERTIFICATE, PRIVATE_KEY = "CERTIFICATE", "PRIVATE KEY"
"""Labels of PEM files (RFC 7468)."""
NOT_YET_VALID, EXPIRED = 9, 10
DATE_CODES = (NOT_YET_VALID, EXPIRED)
"""Codes of OpenSSL's verification."""
CERTIFIED_MS = 3_600_000
"""The time to live of a token that stands for a certificate; the client attaches again then, on the same connection."""


class Tls(NamedTuple):
    """Contexts: `port` accepts connections, on which a client may show a certificate and a proxy must; `peers` opens
    connections to other proxies.
    """

    port: ssl.SSLContext
    peers: ssl.SSLContext


def tls_of(config: NodeConfig) -> Tls | None:
    """Return the proxy's TLS contexts; None: it speaks no TLS. Raises BadConfiguration, which names the bad file."""
    if not config.tls_cert:
        return None
    port, peers = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for context in (port, peers):
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        _show(context, config, "tls")
        _believe(context, config, "tls")
    port.verify_mode = ssl.CERT_OPTIONAL
    _check_dates(config, port)
    return Tls(port, peers)


def _check_dates(config: NodeConfig, port: ssl.SSLContext) -> None:
    """Shake hands in memory, as a proxy that believes the same authorities.

    A certificate of another authority, or for another name, may be meant for clients; one that has ended never is.

    Raises:
        BadConfiguration: the certificate has ended, or is not valid yet.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    _believe(context, config, "tls")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server)
    server = port.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in DATE_CODES:
                raise BadConfiguration(
                    f"{config.tls_cert}: {error.verify_message}, by the clock of this machine", field="tls_cert"
                ) from None
            return


class TlsFiles:
    """The files of a proxy's certificate, which it reads again as it runs, when another one is written to them.

    New authorities are trusted from then on; those trusted before stay so until the process ends.
    """

    def __init__(self, config: NodeConfig, tls: Tls) -> None:
        self._config = config
        self._tls = tls
        self._seen = self._state()

    def renew(self) -> bool:
        """Read the files of the certificate if they have changed, for connections from now on; tell whether they had.

        Raises:
            BadConfiguration: a file cannot be used. The certificate read before stays in use; the next call tries
                again.
        """
        now = self._state()
        if now == self._seen:
            return False
        # First where it harms nobody: of a new certificate with the old key neither may be shown.
        tls_of(self._config)
        for context in self._tls:
            _show(context, self._config, "tls")
            _believe(context, self._config, "tls")
        self._seen = now
        return True

    def _state(self) -> list[tuple[int, int]]:
        files = (Path(getattr(self._config, field)) for field in ("tls_cert", "tls_key", "tls_ca"))
        return [(found.st_mtime_ns, found.st_ino) if (found := _stat(file)) else (0, 0) for file in files]


def _stat(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except OSError:
        return None


@cache
def credentials_of(config: NodeConfig) -> Credentials | None:
    """Return the credentials for Kafka and etcd; None: connections to these are in the clear. The files are read once.

    Raises:
        BadConfiguration: a file cannot be used; `field` and message name it.
    """
    if not config.backend_ca:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _believe(context, config, "backend")
    authorities = Path(config.backend_ca).read_bytes()
    if not config.backend_cert:
        return Credentials(context, authorities)
    _show(context, config, "backend")
    return Credentials(
        context, authorities, Path(config.backend_cert).read_bytes(), Path(config.backend_key).read_bytes()
    )


def _show(context: ssl.SSLContext, config: NodeConfig, whose: str) -> None:
    """Show the certificate in `whose`_cert, with its key."""
    cert = _pem(config, f"{whose}_cert", CERTIFICATE)
    key = _pem(config, f"{whose}_key", PRIVATE_KEY)
    if "ENCRYPTED" in Path(key).read_text():
        raise BadConfiguration(
            f"the key in {key} is encrypted, and nobody is there to type its password",
            field=f"{whose}_key",
            hint=f"write it without one: openssl pkey -in {key} -out PLAIN, readable by this user only",
        )
    try:
        # Without a password OpenSSL would ask the terminal for that of an encrypted key.
        context.load_cert_chain(cert, key, password="")
    except (OSError, ssl.SSLError) as error:
        if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
            raise BadConfiguration(
                f"the key in {key} is not that of the certificate in {cert}", field=f"{whose}_key"
            ) from None
        raise BadConfiguration(f"{cert} with {key}: {error}", field=f"{whose}_cert") from None


def _believe(context: ssl.SSLContext, config: NodeConfig, whose: str) -> None:
    """Believe the authorities in `whose`_ca."""
    ca = _pem(config, f"{whose}_ca", CERTIFICATE)
    try:
        context.load_verify_locations(ca)
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{ca}: {error}", field=f"{whose}_ca") from None


def _pem(config: NodeConfig, field: str, label: str) -> str:
    """Return the name of a file that has something under that PEM label. Raises BadConfiguration."""
    file: str = getattr(config, field)
    flag = f"--{field.replace('_', '-')}"
    if not file:
        raise BadConfiguration("it is missing", field=field, hint=f"name a file with {flag}")
    if not Path(file).is_file():
        raise BadConfiguration(f"{file} is no file", field=field, hint=f"name a file with {flag}")
    try:
        text = Path(file).read_bytes()
    except OSError as error:
        raise BadConfiguration(f"{file} cannot be read: {error.strerror}", field=field) from None
    if f"{label}-----".encode() not in text:
        raise BadConfiguration(
            f"{file} has no {label.lower()} in PEM",
            field=field,
            hint=f"such a file begins with -----BEGIN {label}-----",
        )
    return file


class Certified(NamedTuple):
    """The common name of a verified certificate ("": it has none), and its end in Unix time, milliseconds."""

    name: str
    until_ms: int


def certified(certificate: Mapping[str, Any]) -> Certified:
    """Return the common name ("": it has none) and the end, in ms of Unix time, of a verified certificate.

    Args:
        certificate: as :meth:`ssl.SSLSocket.getpeercert` gives it, not empty.
    """
    parts = (part for relative_name in certificate.get("subject", ()) for part in relative_name)
    name = next((str(value) for kind, value in parts if kind == "commonName"), "")
    return Certified(name, int(ssl.cert_time_to_seconds(certificate["notAfter"])) * 1_000)


def vouched(message: ClientMessage, by: Certified, key: bytes, now_ms: int) -> ClientMessage:
    """Return a client's message with a token in it, for a client that has shown this certificate.

    An Attach as the principal of that name gets a token for it: so a certificate is believed wherever the session is
    served, as every token is, and by the same rule. A Hello that names no principal gets one to publish with. A message
    that has a password or a token of its own stays as it is, and so does every other message, and all of them under a
    certificate without a name.

    The token ends with the certificate, or after CERTIFIED_MS.

    Args:
        by: the certificate.
        key: the federation's key of tokens; empty: there is none yet, and the message stays as it is.
        now_ms: in Unix time.
    """
    if not isinstance(message, Attach | Hello) or not key or not by.name:
        return message
    credential = message.credential
    wanted = by.name if isinstance(message, Attach) else ""
    if credential.principal != wanted or credential.password or credential.token:
        return message
    token = issue(key, Named(by.name, min(now_ms + CERTIFIED_MS, by.until_ms)))
    return replace(message, credential=replace(credential, token=token))
