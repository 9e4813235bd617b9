"""The choice of a proxy by site, load and measured round trip, and of a nearer one later. Pure: no I/O, no clock.

Theory
------
A round trip is the time from a ping to its pong (round_trip.py), so a proxy that does not answer is not chosen. Two
round trips that differ by less than the margin count as the same: among the proxies within the margin of the shortest
one, the least loaded is chosen. So neither noise nor a proxy's name sends all clients to one proxy.

Each move of a receiver is a handover, so a client stays where it is unless another proxy is clearly nearer, has been so
for some measurements in a row, and the client has been where it is for a while (hysteresis): the round trip to the
present proxy has to be longer than the shortest one by more than twice the margin. A client between two proxies, with
round trips that go up and down by less than the margin, stays at one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from waypost.arguments import seconds, text, whole
from waypost.client.address import is_address, may_follow
from waypost.errors import BadArgument, BadConfiguration
from waypost.limits import MAX_ID_LENGTH
from waypost.messages import ProxyAddress

LEAST_EVERY_S, LONGEST_S = 0.1, 86_400
"""The least time between two measurements, and the longest of all times of a policy, in seconds."""
MEASURED_AT_ONCE = 8
"""Proxies to which round trips are measured together; of more, the nearest ones known and some of the others."""
MEASURED_AGAIN = 3
"""The nearest proxies known, and as many of the client's own site, which each measurement includes."""
LEAST_AVOIDED_S, AVOIDED_HOLDS = 1.0, 16
"""The least time for which a proxy that has not let the client in is avoided, in seconds, and the longest, in holds."""
UNANSWERED_MS = 3_000.0
"""The round trip that a present proxy counts as having that has not answered, in ms: the longest that is measured."""
SHOWN_NAMES = 8
"""Proxies of one federation that an error names; the others are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roaming:
    """A policy of a client: it goes to the nearest proxy of the federation, and moves where another one stays nearer.

    The client uses the proxies that its proxy names, beside those that it was given or has found: so it also has
    somewhere to go when all of these are away.

    Args:
        site: whose proxies count as nearer than all others, as long as one of them answers; None: that of the variable
            WAYPOST_SITE, if it is set.
        margin_ms: the difference of two round trips that counts as none, in milliseconds.
        every_s: the mean time between two measurements, in seconds. Each opens a connection to at most MEASURED_AT_ONCE
            proxies.
        confirmations: the number of measurements in a row by which another proxy has to be nearer.
        hold_s: the least time at a proxy before the client moves, in seconds; for so long, and for longer each time, it
            avoids a proxy that did not let it in.
    """

    site: str | None = None
    margin_ms: int = 10
    every_s: float = 60
    confirmations: int = 3
    hold_s: float = 120

    def check(self) -> None:
        """Check what a program passed.

        Raises:
            BadArgument: an option is of the wrong type or out of its range: `margin_ms` 0 to 60,000, `confirmations` 1
                to 1,000, `every_s` LEAST_EVERY_S and `hold_s` 0 to LONGEST_S seconds.
        """
        if self.site is not None:
            text(self.site, "roaming.site", 1, MAX_ID_LENGTH)
        whole(self.margin_ms, "roaming.margin_ms", 0, 60_000)
        whole(self.confirmations, "roaming.confirmations", 1, 1_000)
        for field, least_s in (("every_s", LEAST_EVERY_S), ("hold_s", 0)):
            value = getattr(self, field)
            seconds(value, f"roaming.{field}")
            if not least_s <= value <= LONGEST_S:
                raise BadArgument(f"{value:g}; it is {least_s:g} to {LONGEST_S} seconds", field=f"roaming.{field}")


def of_one_federation(proxies: Sequence[ProxyAddress], federation: str = "") -> list[ProxyAddress]:
    """Return those of the proxies that were found that a client may use, in their order.

    Args:
        proxies: of which some may not know their federation.
        federation: the identity of the client's federation; "": any, if all are of the same one.

    Raises:
        BadConfiguration: the proxies are of several federations, and the client has none yet.
    """
    if federation:
        return [proxy for proxy in proxies if proxy.federation in ("", federation)]
    found: dict[str, list[str]] = {}
    for proxy in proxies:
        if proxy.federation:
            found.setdefault(proxy.federation, []).append(proxy.proxy)
    if len(found) > 1:
        listed = "; ".join(f"{identity!r}: {_named(names)}" for identity, names in sorted(found.items())[:SHOWN_NAMES])
        raise BadConfiguration(
            f"proxies of {len(found)} federations announce themselves on this network ({listed})",
            field="proxy",
            hint="name a proxy by its address, or set WAYPOST_FEDERATION to one of these",
        )
    return list(proxies)


def _named(names: Sequence[str]) -> str:
    """Return some names for people: whoever announces them may write anything."""
    shown = ", ".join(repr(name[:MAX_ID_LENGTH]) for name in sorted(names)[:SHOWN_NAMES])
    return shown if len(names) <= SHOWN_NAMES else f"{shown} and {len(names) - SHOWN_NAMES} more"


class ProxyChooser:
    """The proxies that a roaming client knows, and the choice among them.

    Args:
        policy: of the client.
        addresses: of the proxies that it was given.
    """

    def __init__(self, policy: Roaming, addresses: Iterable[str] = ()) -> None:
        self._policy = policy
        self._given = {url: ProxyAddress(url=url) for url in addresses}
        self._named: dict[str, ProxyAddress] = {}
        """The proxies that a proxy has named last, by address."""
        self._recognised: dict[str, ProxyAddress] = {}
        """The proxies that have let the client in, with their names and sites, by address."""
        self._round_trips: dict[str, float] = {}
        """The last round trip to each proxy that has answered the last time that it was asked, in milliseconds."""
        self._measured: list[str] = []
        """The addresses that are being measured."""
        self._avoided: dict[str, tuple[int, int]] = {}
        """Proxies that did not let the client in -> until when they are avoided, and for how long, in ms."""
        self._following = 0
        """The place in the list of all proxies at which the next measurement goes on."""
        self._has_chosen = False
        """Whether a choice was made among the proxies that a proxy has named."""
        self._confirmed = 0
        """Measurements in a row by which another proxy is nearer."""
        self._here = ""
        self._here_since_ms = 0

    # ------------------------------------------------------------ what is known

    @property
    def knows_several(self) -> bool:
        """Whether there is a choice."""
        return len(self._proxies()) > 1

    def avoids_all(self, now_ms: int) -> bool:
        """Tell whether every known proxy is avoided now (:meth:`avoids`), or none is known; `now_ms` is of the
        connector's clock.
        """
        return all(self.avoids(url, now_ms) for url in self._proxies())

    def replace_found(self, proxies: Sequence[ProxyAddress]) -> None:
        """Replace the proxies that the client was given, or has found before, by those that it has found now, without
        those whose address is none. What is remembered of addresses that are not known any more is forgotten.
        """
        self._given = {proxy.url: proxy for proxy in proxies if is_address(proxy.url)}
        self._forget_unknown()

    def replace_named(self, proxies: Sequence[ProxyAddress], here: str) -> None:
        """Replace the proxies that a proxy has named before by those that it names now. What is remembered of addresses
        that are not known any more is forgotten.

        Left out are addresses to which a client may not go from there (:func:`waypost.client.address.may_follow`): such
        as are no address of a proxy, or have a path or a password, or lead out of TLS, or from elsewhere to the
        client's own machine.

        Args:
            proxies: as the proxy names them.
            here: the address of that proxy.
        """
        self._named = {proxy.url: proxy for proxy in proxies if may_follow(proxy.url, here)}
        self._forget_unknown()

    def recognise(self, url: str, proxy: str, site: str) -> None:
        """Note which proxy is at an address: it may have several."""
        self._recognised[url] = replace(self._proxies().get(url, ProxyAddress(url=url)), proxy=proxy, site=site)

    def _proxies(self) -> dict[str, ProxyAddress]:
        known = self._given | self._named
        return known | {url: proxy for url, proxy in self._recognised.items() if url in known}

    def _forget_unknown(self) -> None:
        known = self._proxies()
        self._round_trips = {url: ms for url, ms in self._round_trips.items() if url in known}
        self._avoided = {url: avoided for url, avoided in self._avoided.items() if url in known}
        self._recognised = {url: proxy for url, proxy in self._recognised.items() if url in known or url == self._here}

    # ------------------------------------------------------------ where the client is, and is not

    def on_entered(self, url: str, now_ms: int) -> None:
        """Note that the client was let in at this address, which is avoided no more; at another address than before the
        client's stay begins. `now_ms` is of the connector's clock.
        """
        self._avoided.pop(url, None)
        if url != self._here:
            self._here, self._here_since_ms, self._confirmed = url, now_ms, 0

    def on_refused(self, url: str, now_ms: int) -> None:
        """Note that the client was not let in at this address. It is avoided: for the policy's `hold_s` at first, but
        LEAST_AVOIDED_S at least, and twice as long each time after that, up to AVOIDED_HOLDS times as long as at first.

        Args:
            url: the address.
            now_ms: by the connector's clock.
        """
        hold_ms = int(max(self._policy.hold_s, LEAST_AVOIDED_S) * 1000)
        _, before_ms = self._avoided.get(url, (0, 0))
        pause_ms = min(max(2 * before_ms, hold_ms), AVOIDED_HOLDS * hold_ms)
        self._avoided[url] = (now_ms + pause_ms, pause_ms)

    def avoids(self, url: str, now_ms: int) -> bool:
        """Tell whether the proxy at this address is avoided: it did not let the client in (:meth:`on_refused`), and the
        pause for that is not over. False for one that was not tried. `now_ms` is of the connector's clock.
        """
        return url in self._avoided and now_ms < self._avoided[url][0]

    # ------------------------------------------------------------ measurements

    def to_measure(self, here: str = "") -> list[str]:
        """Return the addresses to which round trips are to be measured now, at most MEASURED_AT_ONCE.

        Args:
            here: the address of the present connection, which is one of them; "": there is none.
        """
        proxies = self._proxies()
        nearest = sorted(self._round_trips, key=lambda url: (self._round_trips[url], url))[:MEASURED_AGAIN]
        own = [url for url in proxies if self._is_of_site(url)][:MEASURED_AGAIN]
        fixed = [*dict.fromkeys([*([here] if here else []), *nearest, *own])]
        others = [*proxies]
        following = self._following % max(1, len(others))
        turn = [url for url in others[following:] + others[:following] if url not in fixed]
        taken = turn[: max(0, MEASURED_AT_ONCE - len(fixed))]
        if taken:
            self._following = others.index(taken[-1]) + 1
        self._measured = [*fixed, *taken]
        return self._measured

    def order(self, round_trips: Mapping[str, float], now_ms: int) -> list[str]:
        """Take a measurement, and return all known addresses in the order in which to try them, with those that have
        answered although they are not known any more.

        By site, nearness and load those that have answered, then the others; proxies that are avoided come last. The
        round trips are remembered, and those of measured addresses that did not answer are forgotten:
        :meth:`to_measure` goes by them.

        Args:
            round_trips: by address, in milliseconds; an address that is missing has not answered.
            now_ms: of the connector's clock.
        """
        ranked = self._ranked(round_trips)
        every = [*ranked, *(url for url in self._proxies() if url not in round_trips)]
        return sorted(every, key=lambda url: self.avoids(url, now_ms))

    def nearer(self, here: str, round_trips: Mapping[str, float], now_ms: int) -> str | None:
        """Return the address of the proxy to move to after a measurement; None: the client stays. Call it once for each
        measurement: it counts those in a row by which another proxy is nearer, and remembers the round trips as
        :meth:`order` does.

        The first measurement after a proxy has named others decides at once: the client may have come to that proxy
        because it knew no other. A present proxy that has not answered is far away. Where an address is returned, the
        count and the client's stay begin anew: the caller has to move.

        Args:
            here: the address of the present connection.
            round_trips: by address, in milliseconds; an address that is missing has not answered.
            now_ms: of the connector's clock.
        """
        found = {url: ms for url, ms in round_trips.items() if not self.avoids(url, now_ms)}
        found[here] = round_trips.get(here, UNANSWERED_MS)
        best = self._ranked(found)[0]
        is_first, self._has_chosen = not self._has_chosen and bool(self._named), self._has_chosen or bool(self._named)
        if self._is_near(here, best, found):
            self._confirmed = 0
            return None
        self._confirmed += 1
        is_settled = now_ms >= self._here_since_ms + self._policy.hold_s * 1000
        if not is_first and not (is_settled and self._confirmed >= self._policy.confirmations):
            return None
        # Should the client come back from there, it stays for a while.
        self._confirmed, self._here_since_ms = 0, now_ms
        return best

    def _ranked(self, round_trips: Mapping[str, float]) -> list[str]:
        """Return the addresses that have answered, best first: by site, then by nearness, then by load."""
        for url in self._measured:
            if url not in round_trips:
                self._round_trips.pop(url, None)
        self._round_trips.update(round_trips)
        own = {url: ms for url, ms in round_trips.items() if self._is_of_site(url)}
        others = {url: ms for url, ms in round_trips.items() if url not in own}
        return [*self._by_nearness(own), *self._by_nearness(others)]

    def _is_of_site(self, url: str) -> bool:
        proxy = self._proxies().get(url) or self._recognised.get(url)
        return self._policy.site is not None and proxy is not None and proxy.site == self._policy.site

    def _by_nearness(self, round_trips: Mapping[str, float]) -> list[str]:
        near_ms = min(round_trips.values(), default=0) + self._policy.margin_ms
        near = [url for url, ms in round_trips.items() if ms <= near_ms]
        far = [url for url, ms in round_trips.items() if ms > near_ms]
        near.sort(key=lambda url: (self._load(url), round_trips[url], url))
        return [*near, *sorted(far, key=lambda url: (round_trips[url], url))]

    def _load(self, url: str) -> int:
        proxy = self._proxies().get(url)
        return proxy.load if proxy is not None else 0

    def _is_same(self, one: str, other: str) -> bool:
        """Tell whether two addresses are of one proxy, as far as is known."""
        known = self._recognised | self._proxies()
        names = [known[url].proxy if url in known else "" for url in (one, other)]
        return one == other or (names[0] == names[1] != "")

    def _is_near(self, here: str, best: str, round_trips: Mapping[str, float]) -> bool:
        if self._is_same(here, best):
            return True
        if self._is_of_site(best) and not self._is_of_site(here):
            return False
        rivals = [ms for url, ms in round_trips.items() if self._is_of_site(url) == self._is_of_site(here)]
        return round_trips[here] <= min(rivals) + 2 * self._policy.margin_ms
