"""TLS of a client: the authorities that it trusts, and its own certificate."""

from __future__ import annotations

import os
import ssl

from waypost.errors import BadConfiguration

CA, CERT, KEY = "WAYPOST_CA", "WAYPOST_CERT", "WAYPOST_KEY"


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
