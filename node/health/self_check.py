"""Checks of a configuration that only a running proxy can make: its neighbours, its peers, and its own address.

A proxy with one of them wrong still serves its own site. So they are reported, not refused; `waypost_part_missing` has
them.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import InvalidHandshake, WebSocketException

from federation.ports import ProxyRow
from node.health.dependency_health import PROXY, DependencyHealth
from waypost.errors import Unreachable, WaypostError
from waypost.frames import decode_proxy_message, encode_message
from waypost.identity import ProxyId, SiteId
from waypost.limits import MAX_FRAME_BYTES
from waypost.messages import VERSION, Hello, Welcome

NEIGHBOUR = "neighbour "
"""With the name of a site."""
LONE_SITE = "links of its site"
ADVERTISED = "advertised address"
SHARED = "address of its own"
GRACE_MS = 30_000
"""A federation that starts is not complete at once."""
AGAIN_MS = 30_000
REACH_S = 5.0
UNREACHED_MS = 20_000
"""Longer than a proxy that has ended keeps its lease."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """A peer to which no connection could be made lately.

    Args:
        since_ms: the first attempt that failed since one succeeded, or since a longer pause, by the node's clock.
        last_ms: the last one.
        why: where the peer was looked for, and what came of that.
    """

    since_ms: int
    last_ms: int
    why: str


def unknown_neighbours(
    site: SiteId, neighbours: Iterable[SiteId], proxies: Collection[ProxyRow], known: Collection[SiteId]
) -> dict[SiteId, str]:
    """Return neighbour -> why it cannot be reached as a site, in words; a neighbour with a live proxy is left out.

    Args:
        site: of this proxy.
        neighbours: the sites that the registry knows links with.
        proxies: the rows of the live proxies.
        known: the sites of which a proxy was ever announced.
    """
    reasons: dict[SiteId, str] = {}
    for neighbour in neighbours:
        rows = [row for row in proxies if row.site == neighbour]
        alike = _alike(neighbour, known)
        if neighbour not in known and not rows:
            hint = f"site {alike} was; is that meant?" if alike else "is it spelt as its proxies spell it?"
            way_out = f"If it is not: waypost links rm {site} {neighbour}"
            reasons[neighbour] = f"no proxy of site {neighbour} was ever announced; {hint} {way_out}"
        elif not rows:
            reasons[neighbour] = f"no proxy of site {neighbour} lives: all are down, or cut off from the registry"
    return reasons


def _alike(site: SiteId, known: Iterable[SiteId]) -> SiteId | None:
    """Return a site that is written with other capitals."""
    return next((name for name in known if name != site and name.casefold() == site.casefold()), None)


class SelfCheck:
    """Makes the checks, and reports what is wrong to `health`.

    Args:
        proxy: the name of this proxy.
        site: of this proxy.
        advertise: the configured address at which others reach the proxy; "": there is none to be checked.
        now_ms: the start of the proxy, by the monotonic clock of the methods.
    """

    def __init__(
        self,
        proxy: ProxyId,
        site: SiteId,
        advertise: str,
        health: DependencyHealth,
        now_ms: int,
    ) -> None:
        self._proxy = proxy
        self._site = site
        self._advertise = advertise
        self._health = health
        self._began_ms = now_ms
        self._reported: set[SiteId] = set()
        """The neighbours that were checked last."""
        self._tried_ms: int | None = None

    def check_neighbours(
        self, neighbours: Iterable[SiteId], proxies: Collection[ProxyRow], known: Collection[SiteId], now_ms: int
    ) -> None:
        """Report the neighbours that are no site, or have no live proxy, to the node's health, and those that are well
        again.

        Not before GRACE_MS after the start, except a neighbour whose name differs from a known site's by capitals
        alone.

        Args:
            neighbours: the sites that the registry knows links with.
            proxies: the rows of the live proxies.
            known: the sites of which a proxy was ever announced.
            now_ms: by the monotonic clock of the constructor.
        """
        listed = list(neighbours)
        reasons = unknown_neighbours(self._site, listed, proxies, known)
        for neighbour in self._reported.difference(listed):
            self._health.available(NEIGHBOUR + neighbour)
        self._reported = set(listed)
        is_early = now_ms < self._began_ms + GRACE_MS
        for neighbour in listed:
            if is_early and not _alike(neighbour, known):
                continue
            if neighbour in reasons:
                self._health.unavailable(NEIGHBOUR + neighbour, Unreachable(reasons[neighbour]))
            else:
                self._health.available(NEIGHBOUR + neighbour)

    def check_site(self, neighbours: Collection[SiteId], known: Collection[SiteId], now_ms: int) -> None:
        """Report a site without neighbours in a federation that has other sites, to the node's health: its name may be
        misspelt.

        Not before GRACE_MS after the start, except a name that differs from another site's by capitals alone.

        Args:
            neighbours: the sites that the registry knows links with.
            known: the sites of which a proxy was ever announced.
            now_ms: by the monotonic clock of the constructor.
        """
        others, alike = sorted(name for name in known if name != self._site), _alike(self._site, known)
        if neighbours or not others:
            self._health.available(LONE_SITE)
        elif alike or now_ms >= self._began_ms + GRACE_MS:
            meant = f"is site {alike} meant (--site)?" if alike else "is --site right, and is --neighbours missing?"
            why = f"site {self._site} has no neighbours, and the federation has sites {', '.join(others)}; {meant}"
            self._health.unavailable(LONE_SITE, Unreachable(why))

    def check_address(self, url: str, proxies: Iterable[ProxyRow], now_ms: int) -> None:
        """Report to the node's health that other proxies are announced under this proxy's own address: clients and
        peers that mean one of them come to another. Not before GRACE_MS after the start.

        Args:
            url: the address under which this proxy is announced.
            proxies: the rows of the other live proxies.
            now_ms: by the monotonic clock of the constructor.
        """
        others = ", ".join(sorted(row.proxy for row in proxies if row.url == url))
        if not others:
            self._health.available(SHARED)
        elif now_ms >= self._began_ms + GRACE_MS:
            why = f"{url} is also the address of {others}; each proxy needs one of its own (--advertise)"
            self._health.unavailable(SHARED, Unreachable(why))

    def check_peers(self, unreached: Mapping[ProxyId, Unreached], live: Container[ProxyId]) -> None:
        """Report to the node's health the live proxies that could not be reached for UNREACHED_MS: no session moves
        between them and this one. Those that are not among `unreached`, or not live, any more are reported as
        available.

        Args:
            unreached: the peers to which connections failed (:attr:`node.peers.peers.Peers.unreached`), and are tried
                again and again.
            live: the proxies that have a lease.
        """
        failing = {PROXY + proxy: failed for proxy, failed in unreached.items() if proxy in live}
        for trouble in [name for name in self._health.now if name.startswith(PROXY) and name not in failing]:
            self._health.available(trouble)
        for trouble, failed in failing.items():
            if failed.last_ms - failed.since_ms >= UNREACHED_MS:
                hint = "is its --advertise right, and the way there open?"
                why = f"it cannot be reached from here at {failed.why}; {hint}"
                self._health.unavailable(trouble, Unreachable(why))

    async def try_advertised(self, now_ms: int) -> None:
        """Connect to the advertised address as a client does, and report to the node's health that it cannot be reached
        within REACH_S seconds, or what answers there if it is not this proxy; else that all is well.

        Does nothing without such an address, once it was this proxy, or if the last try was less than AGAIN_MS ago.

        Args:
            now_ms: by the monotonic clock of the constructor.
        """
        if not self._advertise or (self._tried_ms is not None and now_ms < self._tried_ms + AGAIN_MS):
            return
        self._tried_ms = now_ms
        try:
            async with asyncio.timeout(REACH_S):
                found = await greeted(self._advertise)
            if found != self._proxy:
                raise Unreachable(f"{self._advertise} is the address of proxy {found}, not of this one (--advertise)")
        except Unreachable as error:
            self._health.unavailable(ADVERTISED, error)
        except (InvalidHandshake, WaypostError) as error:
            why = f"{self._advertise} answers, but is no proxy; is --advertise right? ({error})"
            self._health.unavailable(ADVERTISED, Unreachable(why))
        except (OSError, TimeoutError, WebSocketException) as error:
            why = str(error) or f"no answer within {REACH_S:g} s"
            self._health.unavailable(ADVERTISED, Unreachable(f"{self._advertise} cannot be reached from here: {why}"))
        else:
            self._advertise = ""
            self._health.available(ADVERTISED)


async def greeted(url: str) -> ProxyId:
    """Return the name of the proxy at an address, ws:// or wss://, which it tells every client.

    Whose certificate it shows does not matter here: another program may end TLS in front of the proxy. An answer is
    waited for without a bound; the caller sets one.

    Raises:
        OSError, WebSocketException: nothing answers there, or no WebSocket.
        WaypostError: what answers is no proxy.
    """
    tls: ssl.SSLContext | None = None
    if urlsplit(url).scheme == "wss":
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    async with connect(f"{url.rstrip('/')}/v1/client", ssl=tls, compression=None, max_size=MAX_FRAME_BYTES) as socket:
        await socket.send(encode_message(Hello(VERSION, "check of the advertised address")))
        message = decode_proxy_message(await socket.recv())
    if not isinstance(message, Welcome):
        raise Unreachable(f"{url} does not welcome a client: {message}")
    return message.proxy
