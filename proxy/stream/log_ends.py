"""How far the logs of sites go: asked of a proxy there, and answered to others.

The answer holds all that was acknowledged at that site before it was asked: whoever answers finds the end of the log,
reads up to there, and says how far its own origins are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.messages import LogEndMessage, LogEndRequest, LogEndResponse
from proxy.core.effects import FindLogEnd, SendPeer
from proxy.core.environment import Environment
from proxy.core.events import LogEndFound
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import Origin, ProxyId, SiteId, site_of
from waypost.limits import LOG_END_MS, LOG_END_RETRY_MS


@dataclass(slots=True, kw_only=True)
class _Site:
    """What one site is asked: one question at a time."""

    sent: int = 0
    """The number of the last question."""
    answered: int = 0
    wanted: int = 0
    """The number of the question whose answer somebody waits for."""
    again_at: int = NEVER
    """The time of the next question; NEVER: no question is under way."""
    until: int = NEVER
    tries: int = 0
    frontier: Mapping[Origin, int] = field(default_factory=dict)


class LogEnds:
    """Asks sites for the ends of their logs, our own too, and answers the questions of other proxies."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._sites: dict[SiteId, _Site] = {}
        self._to_read: list[tuple[int, ProxyId, LogEndRequest]] = []
        """The peers that are answered when the log is read up to its end as it was at their question."""

    # ------------------------------------------------------------ asking

    def ask(self, site: SiteId) -> int:
        """Ask a site, our own too, for the end of its log; return the number of the question, for :meth:`answer`.

        Only one question is under way for a site: a call meanwhile gets the number of the next one.
        """
        query = self._sites.setdefault(site, _Site())
        query.wanted = query.sent + 1
        if query.again_at == NEVER:
            self._ask_next(site, query)
        return query.wanted

    def answer(self, site: SiteId, number: int) -> Mapping[Origin, int] | None:
        """Return the answer to a question: origin of that site -> its last offset when the question was asked, or
        later.

        Args:
            number: of the question, as :meth:`ask` returned it.

        Returns:
            None: there is no answer yet; another site than our own may never answer.
        """
        query = self._sites.get(site)
        return query.frontier if query is not None and query.answered >= number else None

    def _ask_next(self, site: SiteId, query: _Site) -> None:
        query.sent += 1
        query.until = self._env.time.now_ms + LOG_END_MS
        self._repeat(site, query)

    def _repeat(self, site: SiteId, query: _Site) -> None:
        query.again_at = self._env.time.now_ms + LOG_END_RETRY_MS
        query.tries += 1
        request = LogEndRequest(self._env.lease.incarnation, query.sent)
        if site == self._env.state.site:
            self._find_end(self._env.proxy, request)
        elif proxies := self._env.cluster.at_site(site):
            self._output.emit(SendPeer(proxies[query.tries % len(proxies)], request))

    def _answered(self, site: SiteId, response: LogEndResponse) -> None:
        query = self._sites.get(site)
        is_mine = response.incarnation == self._env.lease.incarnation
        if query is None or not is_mine or response.request != query.sent or query.answered == query.sent:
            return
        query.answered, query.frontier, query.again_at = query.sent, response.frontier, NEVER
        if query.wanted > query.sent:
            self._ask_next(site, query)

    def tick(self) -> None:
        """Repeat questions that have no answer; those to other sites than our own are given up after LOG_END_MS."""
        now = self._env.time.now_ms
        for site, query in self._sites.items():
            if now < query.again_at:
                continue
            if now < query.until or site == self._env.state.site:
                self._repeat(site, query)
            elif query.wanted > query.sent:
                # A part that asked while that question had no answer has not waited for so long.
                self._ask_next(site, query)
            else:
                query.again_at = NEVER

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return min((query.again_at for query in self._sites.values()), default=NEVER)

    # ------------------------------------------------------------ answering

    def peer_message(self, peer: ProxyId, message: LogEndMessage) -> None:
        """Take a proxy's question or answer. An answer is dropped if the proxy is not live, or if it does not belong to
        the last question to its site, asked by this incarnation and not answered yet.
        """
        if isinstance(message, LogEndRequest):
            self._find_end(peer, message)
        elif (row := self._env.cluster.proxies.get(peer)) is not None:
            self._answered(row.site, message)

    def _find_end(self, peer: ProxyId, request: LogEndRequest) -> None:
        def on_done(answer: int | WaypostError) -> None:
            if not isinstance(answer, WaypostError):
                self._to_read.append((answer, peer, request))
                self._output.report(LogEndFound())

        self._output.emit(FindLogEnd(on_done))

    def proceed(self) -> None:
        """Answer the questions whose end of the log has been read by now. Call it when the log was read further."""
        if not self._to_read:
            return
        state = self._env.state
        read = [waiting for waiting in self._to_read if waiting[0] <= state.position]
        self._to_read = [waiting for waiting in self._to_read if waiting[0] > state.position]
        own = {origin: upto for origin, upto in state.frontier.items() if site_of(origin) == state.site}
        for _, peer, request in read:
            response = LogEndResponse(request.incarnation, request.request, own)
            if peer == self._env.proxy:
                self._answered(state.site, response)
            else:
                self._output.emit(SendPeer(peer, response))
