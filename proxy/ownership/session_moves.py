"""Moves of sessions to other proxies: an operator drains this proxy, a rebalance asks, or a session follows receivers.

The source only offers; the target fetches the session as it would for a client, by the same protocol. What operators
want stands in the registry (:class:`federation.ports.DrainRow`), so a drain goes on after a restart, and everybody
knows where not to send anything. An offer that leads to nothing is made again, to whoever is best then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice

from federation.ports import DrainRow, ProxyRow
from handover.messages import HandoverOffer, MoveRequest, Trigger
from proxy.core.effects import SendPeer
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.refusals import Violation
from proxy.core.session_table import SessionTable
from proxy.session.role import Role
from proxy.session.session import Session
from waypost.clock import NEVER
from waypost.identity import NO_PROXY, ProxyId, SessionId
from waypost.limits import MOVES_AT_ONCE, REBALANCE_RATE

GRACE_MS = 1_000
"""Time between not being ready and the first session that leaves, in ms."""
OFFER_MS = 6_000
"""After so long an offer has led to nothing."""


class SessionMoves:
    """The sessions that are to leave this proxy, at a bounded rate."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._wanted: dict[SessionId, tuple[ProxyId, Trigger]] = {}
        """Asked for by a rebalance, or by where its receivers are."""
        self._tried: dict[SessionId, ProxyId] = {}
        """Sessions of which an offer has led to nothing, and to whom it was; the one that was tried last is the last.
        """
        self._offered: dict[SessionId, tuple[ProxyId, int]] = {}
        """To whom, and when."""
        self._next_at = 0

    @property
    def drain_row(self) -> DrainRow | None:
        """The row of this proxy's drain; None: no operator has this proxy drained."""
        return self._env.cluster.drains.get(self._env.proxy)

    @property
    def left(self) -> int:
        """The number of sessions that are still to leave this proxy for its drain; 0: it is not drained."""
        return self._env.cluster.loads()[self._env.proxy] if self.drain_row is not None else 0

    @property
    def offered(self) -> int:
        """The number of sessions that are offered to other proxies, and have not left."""
        return len(self._offered)

    def drain_changed(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the drain of a proxy, as the registry reports it; None: the proxy is not to be drained any more."""
        if proxy == self._env.proxy and self.drain_row is None:
            self._next_at = self._env.time.now_ms + GRACE_MS
        self._env.cluster.drain_changed(proxy, row)

    def on_move_request(self, sender: ProxyId, message: MoveRequest) -> None:
        """Note a rebalancing proxy's request to move a session, in place of any earlier one; a request for another
        epoch is refused and counted.

        Nothing is done if the session is not served here, or is to come to this very proxy.
        """
        session = self._sessions.serving(message.session)
        if session is None or message.target == self._env.proxy:
            return
        if session.epoch != message.epoch:
            detail = f"MoveRequest of session {session.id}, epoch {message.epoch}"
            self._output.refused.note(Violation.WRONG_EPOCH, sender, detail)
            return
        self.request_move(message.session, message.target, Trigger.REBALANCE)

    def request_move(self, session: SessionId, proxy: ProxyId, trigger: Trigger = Trigger.FOLLOW) -> None:
        """Have a session offered to that proxy in its turn, if the proxy is live then. An earlier request for the
        session is replaced.

        Note that while this proxy is drained, the trigger of every handover is DRAIN, and another proxy takes the place
        of one that is not live.

        Args:
            trigger: of the handover.
        """
        self._wanted[session] = (proxy, trigger)

    def _loads(self) -> Counter[ProxyId]:
        loads = self._env.cluster.loads()
        loads.update(proxy for proxy, _ in self._offered.values())
        return loads

    def follow(self, session: Session) -> None:
        """Request a move to the proxy that got more than half of the session's deliveries in `dwell_ms` or longer.

        The deliveries are counted anew then; before `dwell_ms` have passed nothing is done.
        """
        now = self._env.time.now_ms
        if now < session.delivery_count.since_ms + self._env.settings.dwell_ms:
            return
        delivered = session.delivery_count.take(now)
        for proxy, count in delivered.items():
            if 2 * count > delivered.total() and proxy != self._env.proxy:
                self.request_move(session.id, proxy)

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Offer the sessions whose turn it is to other proxies, at the rate of the drain or of rebalances."""
        now = self._env.time.now_ms
        self._forget_finished(now)
        rate = self._rate()
        if rate is None or now < self._next_at or not self._any_candidate():
            return
        loads = self._loads()
        for session in list(islice(self._candidates(), MOVES_AT_ONCE - len(self._offered))):
            if now < self._next_at:
                return
            proxy, trigger = self._wanted.pop(session, (NO_PROXY, Trigger.DRAIN))
            row = self._env.cluster.proxies.get(proxy)
            if row is None and self.drain_row is None:
                continue
            row = row or self._target(session, loads)
            if row is None:
                # No other proxy is there that may take it.
                self._next_at = now + GRACE_MS
                return
            loads[row.proxy] += 1
            self._offered[session] = (row.proxy, now)
            self._next_at = max(self._next_at, now - GRACE_MS) + int(1000 / rate)
            offer = HandoverOffer(
                session, self._sessions[session].epoch, trigger if self.drain_row is None else Trigger.DRAIN
            )
            self._output.counters.offers[offer.trigger] += 1
            self._output.emit(SendPeer(row.proxy, offer))

    def next_deadline(self) -> int:
        """Return when the next session is to be offered, in ms of the engine's clock; NEVER: none."""
        if not self._wanted and not self._offered and self.drain_row is None:
            return NEVER
        now = self._env.time.now_ms
        offered = [at + OFFER_MS for _, at in self._offered.values()]
        due = [max(self._next_at, now + 1)] if self._rate() is not None and self._any_candidate() else []
        return min([*offered, *due], default=NEVER)

    def _target(self, session: SessionId, loads: Counter[ProxyId]) -> ProxyRow | None:
        """Return the best other proxy; the one that has not taken this session before only where there is no other."""
        tried = self._tried.get(session)
        if tried is None:
            return self._env.cluster.target(loads)
        return self._env.cluster.target(loads + Counter({tried: len(self._sessions) + loads.total()}))

    def _rate(self) -> float | None:
        """Sessions a second; None: nothing is to leave now."""
        if not self._env.lease.may_serve():
            return None
        if self.drain_row is not None:
            return None if self.drain_row.paused else self.drain_row.rate
        return REBALANCE_RATE if self._wanted else None

    def _candidates(self) -> Iterator[SessionId]:
        sessions, wanted = self._sessions, self._sessions if self.drain_row is not None else self._wanted
        # Those that could not leave do not hold up the others.
        untried = (session for session in wanted if session not in self._tried)
        for session in chain(untried, (session for session in self._tried if session in wanted)):
            if session not in self._offered and session in sessions and sessions[session].role is Role.SERVING:
                yield session

    def _any_candidate(self) -> bool:
        # Those that are gone already make room at once, not only when the next tick forgets them.
        under_way = sum(session in self._sessions for session in self._offered)
        return under_way < MOVES_AT_ONCE and next(self._candidates(), None) is not None

    def _forget_finished(self, now: int) -> None:
        """Forget the offers that came to an end: the session is gone, or it is still here after a while."""
        for session, (proxy, at) in list(self._offered.items()):
            if session not in self._sessions or now >= at + OFFER_MS:
                del self._offered[session]
                self._tried.pop(session, None)
                if session in self._sessions:
                    self._tried[session] = proxy
        for known in (self._wanted, self._tried):
            for session in [session for session in known if session not in self._sessions]:
                del known[session]
