"""One question to all other live proxies: how far have they seen a log? Whom it waits for, and what counts. Pure.

A question or its answer may be lost, a proxy may come up or begin anew meanwhile, and one that cannot be reached holds
nobody up (handover rule 27). node/site_log/witnesses.py asks on real parts, the simulator over channels of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from federation.messages import SeenRequest, SeenResponse
from federation.ports import ProxyRow
from node.machines.log_guard import Witnessed
from waypost.errors import RegistryUnavailable
from waypost.identity import NOTHING, ProxyId, SiteId
from waypost.limits import WITNESS_S

LOOK_MS = 50
"""The interval at which :meth:`WitnessPoll.look` is to be called."""
AGAIN_MS = 250
"""A proxy that has not answered is asked again after so long: question or answer may have been lost. An answer that
nobody gets is a loss that nobody sees, and asking twice costs nothing."""


class WitnessPoll:
    """One poll. It is over when every live proxy that can be reached has answered, of those that come up meanwhile too,
    and after WITNESS_S seconds at the latest.

    What a proxy has answered counts, also if it has ended since or begins another incarnation: it has seen that.

    Args:
        proxy: this one, which asks.
        site: of this proxy; the log is this site's.
        request: the question, with a number that no other one has.
        now_ms: by the caller's clock.
    """

    def __init__(self, proxy: ProxyId, site: SiteId, request: SeenRequest, now_ms: int) -> None:
        self.request = request
        self.is_over = False
        self._proxy = proxy
        self._site = site
        self._began_ms = now_ms
        self._is_known = False
        """Whether the registry had said who lives when it was looked last."""
        self._asked: dict[ProxyId, ProxyRow] = {}
        """The row that each had when it was asked last."""
        self._asked_ms: dict[ProxyId, int] = {}
        self._answered: set[ProxyId] = set()
        """Those whose present incarnation has answered, as far as is known."""
        self._here = self._elsewhere = self._before = NOTHING
        self._is_confirmed = False

    def look(self, living: Collection[ProxyRow] | None, failed_ms: Mapping[ProxyId, int], now_ms: int) -> list[ProxyId]:
        """Return the proxies to which the request is to be sent now; find whether the poll is over (:attr:`is_over`).

        Args:
            living: the rows of all live proxies, as the registry's watch has them; None: it has not said yet.
            failed_ms: the proxies that cannot be reached -> when that was last tried. A try before the poll began says
                nothing of it.
            now_ms: by the caller's clock.
        """
        self._is_known = living is not None
        others = {row.proxy: row for row in living or () if row.proxy != self._proxy}
        unreached = {proxy for proxy, failed in failed_ms.items() if failed >= self._began_ms}
        to_ask = []
        for proxy, row in sorted(others.items()):
            if self._asked.get(proxy) != row:
                self._answered.discard(proxy)
            elif proxy in self._answered or now_ms < self._asked_ms[proxy] + AGAIN_MS:
                continue
            self._asked[proxy], self._asked_ms[proxy] = row, now_ms
            to_ask.append(proxy)
        is_complete = self._is_known and others.keys() <= self._answered | unreached
        self.is_over = is_complete or now_ms >= self._began_ms + 1000 * WITNESS_S
        return to_ask

    def receive(self, peer: ProxyId, answer: SeenResponse) -> None:
        """Note an answer; one of a proxy that was not asked, or to another question, changes nothing."""
        row = self._asked.get(peer)
        if row is None or answer.request != self.request.request:
            return
        self._answered.add(peer)
        self._before = max(self._before, answer.before)
        if row.site == self._site:
            self._here = max(self._here, answer.offset)
            self._is_confirmed |= answer.is_confirmed
        else:
            self._elsewhere = max(self._elsewhere, answer.offset)

    def result(self) -> Witnessed:
        """Return what the others have seen. Call it once the poll is over.

        Raises:
            RegistryUnavailable: the registry has not said by then who lives.
        """
        if not self._is_known:
            raise RegistryUnavailable("the registry has not said yet which proxies live")
        return Witnessed(self._here, self._elsewhere, self._is_confirmed, self._before)
