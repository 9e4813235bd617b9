"""TLS of a client: the authorities that it trusts, and its own certificate."""

from __future__ import annotations

import asyncio
import os
import ssl
from urllib.parse import urlsplit

from waypost.errors import BadConfiguration

CA, CERT, KEY = "WAYPOST_CA", "WAYPOST_CERT", "WAYPOST_KEY"


SPEAKS_TLS_S = 3.0
"""Time for a TLS handshake, in seconds."""
NOT_YET_VALID, EXPIRED, WRONG_NAME = 9, 10, 62
"""OpenSSL's codes of why a certificate is not accepted."""


def wrong_tls(url: str, error: ssl.SSLError) -> BadConfiguration | None:
    """Return the error that names the configuration of client or proxy that a failed TLS handshake shows to be wrong.

    Args:
        url: the address, as ``wss://host:port``.
        error: of the handshake.

    Returns:
        None: the handshake may succeed the next time; so it may where this machine's clock is behind, after a boot.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code == NOT_YET_VALID:
            return None
        why = f"{url}: the proxy's certificate is not accepted: {error.verify_message}"
        if error.verify_code == EXPIRED:
            return BadConfiguration(why, hint="the proxy needs another one, or this machine's clock is wrong")
        if error.verify_code == WRONG_NAME:
            return BadConfiguration(why, hint="name the proxy as its certificate does")
        return BadConfiguration(why, field=CA, hint=f"{CA} names the file of the authority that certifies proxies")
    if error.reason == "WRONG_VERSION_NUMBER":
        hint = f"the address of a proxy without TLS begins with ws:, not {url.partition('//')[0]}"
        return BadConfiguration(f"{url}: what listens there does not speak TLS", hint=hint)
    return None


async def speaks_tls(url: str) -> bool:
    """Connect to an address, and tell whether the server there completes a TLS handshake; its certificate is not
    checked.

    Args:
        url: ``ws://host:port`` or ``wss://host:port``.

    Returns:
        False: no connection can be opened, or the handshake fails or takes longer than SPEAKS_TLS_S.
    """
    parts = urlsplit(url)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        _, writer = await asyncio.open_connection(
            parts.hostname, parts.port or 80, ssl=context, ssl_handshake_timeout=SPEAKS_TLS_S
        )
    except (OSError, TimeoutError):
        return False
    writer.transport.abort()
    return True


def tls_from_environment() -> ssl.SSLContext:
    """Return the TLS context for ``wss://`` addresses, TLS 1.3 at least.

    WAYPOST_CA names a file of the authorities that certify proxies; without it the system's are trusted. WAYPOST_CERT
    and WAYPOST_KEY name files of the client's certificate, which proves a principal, and of its key.

    Raises:
        BadConfiguration: a file is missing, or its content is not of that kind.
    """
    authorities, certificate, key = (os.environ.get(variable) or None for variable in (CA, CERT, KEY))
    try:
        context = ssl.create_default_context(cafile=authorities)
    except (OSError, ssl.SSLError) as error:
        raise BadConfiguration(f"{authorities}: {error.strerror or error}", field=CA) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError) as error:
            raise BadConfiguration(f"{certificate}: {error.strerror or error}", field=CERT) from None
    return context
