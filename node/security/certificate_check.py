"""Checks a proxy's own certificate as it runs: read again when its files change, and seen as other proxies see it."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import urlsplit

import structlog

from node.health.dependency_health import ENDED_CERTIFICATE, DependencyHealth
from node.security.tls import DATE_CODES, Tls, TlsFiles, certified
from waypost.errors import BadConfiguration, Unreachable

log = structlog.get_logger("waypost")

FILES = "files of TLS"
CERTIFICATE = "certificate"
"""Names in :attr:`DependencyHealth.now`."""
SOON_DAYS = 14
"""A certificate that ends in fewer days is reported."""
HINT = "write another one to the files of --tls-cert and --tls-key; it is read at once"
AGAIN_MS, AGAIN_IN_TROUBLE_MS = 600_000, 30_000
REACH_S = 5.0
DAY_MS = 86_400_000


class CertificateCheck:
    """Checks the node's own certificate, and reports what is wrong with it to `health`. Call :meth:`renew` and
    :meth:`check` again and again.

    Args:
        files: of the certificate.
        tls: the proxy's contexts, made from these files.
        url: the address at which other proxies reach this one.
        health: of the node.
    """

    def __init__(self, files: TlsFiles, tls: Tls, url: str, health: DependencyHealth) -> None:
        self._files = files
        self._tls = tls
        self._url = url
        self._health = health
        self._looked_ms: int | None = None
        self.expires_ms: int | None = None
        """The end of its validity, in Unix time; None: not known yet."""

    def renew(self) -> None:
        """Read the files of the certificate again if they have changed, for connections from now on; report files that
        cannot be used to the node's health.
        """
        try:
            if self._files.renew():
                log.info("the files of TLS were read again; connections from now on see them")
                self._looked_ms = None
            self._health.available(FILES)
        except BadConfiguration as error:
            self._health.unavailable(FILES, error)

    async def check(self, now_ms: int, unix_ms: int) -> None:
        """Connect to our own port by TLS as another proxy does; report a failure, or an end that is near, to the node's
        health.

        Does nothing if the last call that tried was less than AGAIN_MS ago, or AGAIN_IN_TROUBLE_MS while something is
        reported; but a certificate that has just ended, or was just read by :meth:`renew`, is looked at. Sets
        :attr:`expires_ms` where the connection is made; else that stays as it was.

        Args:
            now_ms: by a monotonic clock.
            unix_ms: the same moment in Unix time.
        """
        is_in_trouble = not {CERTIFICATE, ENDED_CERTIFICATE}.isdisjoint(self._health.now)
        again_ms = AGAIN_IN_TROUBLE_MS if is_in_trouble else AGAIN_MS
        has_ended = (
            self.expires_ms is not None and unix_ms >= self.expires_ms and ENDED_CERTIFICATE not in self._health.now
        )
        if self._looked_ms is not None and now_ms < self._looked_ms + again_ms and not has_ended:
            return
        self._looked_ms = now_ms
        parts = urlsplit(self._url)
        try:
            async with asyncio.timeout(REACH_S):
                _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=self._tls.peers)
            self.expires_ms = certified(writer.get_extra_info("peercert")).until_ms
            writer.close()
        except ssl.SSLCertVerificationError as error:
            name = ENDED_CERTIFICATE if error.verify_code in DATE_CODES else CERTIFICATE
            if name == ENDED_CERTIFICATE:
                # The warning about its end is over with it.
                self._health.available(CERTIFICATE)
            self._health.unavailable(name, Unreachable(f"{self._url}: {error.verify_message}; {HINT}"))
            return
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {REACH_S:g} s"
            self._health.unavailable(
                CERTIFICATE, Unreachable(f"other proxies cannot speak TLS with {self._url}: {why}")
            )
            return
        self._health.available(ENDED_CERTIFICATE)
        days = (self.expires_ms - unix_ms) // DAY_MS
        if days < SOON_DAYS:
            self._health.unavailable(CERTIFICATE, Unreachable(f"the certificate ends in {days} days; {HINT}"))
        else:
            self._health.available(CERTIFICATE)
