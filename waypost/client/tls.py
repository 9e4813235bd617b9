"""TLS as a client speaks it: whom it believes, and who it says it is."""

from __future__ import annotations

import os
import ssl

from waypost.errors import BadConfiguration

CA, CERT, KEY = "WAYPOST_CA", "WAYPOST_CERT", "WAYPOST_KEY"


def tls_from_environment() -> ssl.SSLContext:
    """Return what a ``wss://`` address is spoken to with.

    WAYPOST_CA names a file of the authorities that certify proxies; else the system's are believed. WAYPOST_CERT and
    WAYPOST_KEY name files of a certificate of our own, which proves a principal, and of its key.

    Raises:
        BadConfiguration: one of the files is not there, or is none of that sort.
    """
    authorities, certificate, key = (os.environ.get(each) or None for each in (CA, CERT, KEY))
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
