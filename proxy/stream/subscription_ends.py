"""Where subscriptions end: above all that was acknowledged before they were ended (handover rule 7).

A publish is acknowledged when it stands in its site's log, and that is before this proxy reads it. So an end is not
known when it is asked for. Until it is, of each origin (UNKNOWN_END), the subscription goes on matching, and its site
goes on holding it. An end is known when the origin's site has said how far its log went, and the session has what came
up to there. What a site has acknowledged that does not answer for LOG_END_MS is not owed, but for what the own log has
of it already: the journal says so (`unconfirmed_ends`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from federation.messages import LogEndMessage
from proxy.core import journal_facts
from proxy.core.environment import Environment
from proxy.core.events import EndsChanged
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.stream.coverage import Coverage
from proxy.stream.log_ends import LogEnds
from waypost.clock import NEVER
from waypost.identity import NOTHING, Origin, ProxyId, SessionId, SiteId, site_of
from waypost.limits import LOG_END_MS


@dataclass(slots=True)
class _Ending:
    session: Session
    term: int
    subscription: Subscription
    unanswered: dict[SiteId, int]
    """The sites that have not answered yet, with the number of what each was asked."""
    until: int
    """Not after this is any site waited for but our own, if it has said nothing."""

    def is_for(self, subscription: Subscription, session: Session) -> bool:
        """Tell whether this is what is asked of the subscription since the session is served."""
        return self.subscription is subscription and self.term == session.term


class SubscriptionEnds:
    """Finds the ends of subscriptions, in sessions that are served here."""

    def __init__(self, env: Environment, sessions: SessionTable, output: Output, coverage: Coverage) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._coverage = coverage
        self._log_ends = LogEnds(env, output)
        self._endings: dict[tuple[SessionId, str], _Ending] = {}

    def watch(self, session: Session) -> None:
        """Begin to find the unknown ends of the session's subscriptions: ask the sites how far their logs go.

        Answers from before the session was served anew do not count: it has matched more since (handover rule 7).
        """
        for subscription in session.subscriptions.ended:
            key = (session.id, subscription.generation)
            known = self._endings.get(key)
            if not subscription.has_unknown_end or (known is not None and known.is_for(subscription, session)):
                continue
            unanswered = {
                site: self._log_ends.ask(site) for site in dict.fromkeys(map(site_of, subscription.end or ()))
            }
            until = self._env.time.now_ms + LOG_END_MS
            self._endings[key] = _Ending(session, session.term, subscription, unanswered, until)

    def proceed(self) -> None:
        """Answer other proxies as far as the log is read, and set the ends of subscriptions that can be known now.

        Call it when the log was read further, a site has answered, or time went on. EndsChanged is reported of each
        session that knows more.
        """
        self._log_ends.proceed()
        by_session: dict[Session, list[_Ending]] = {}
        for key, ending in list(self._endings.items()):
            session = ending.session
            if self._sessions.get(session.id) is not session or session.role is Role.DORMANT:
                # Its next owner asks anew.
                del self._endings[key]
            elif session.role is Role.SERVING:
                # Also without a lease: what was passed over by a limit is not asked for anew.
                by_session.setdefault(session, []).append(ending)
        for session, endings in by_session.items():
            self._resolve(session, endings)
            for ending in endings:
                if not ending.subscription.has_unknown_end:
                    del self._endings[session.id, ending.subscription.generation]

    def peer_message(self, peer: ProxyId, message: LogEndMessage) -> None:
        """Take a proxy's question for the end of our log, or its answer for the end of its own."""
        self._log_ends.peer_message(peer, message)
        self.proceed()

    def tick(self) -> None:
        """Repeat questions that have no answer, and set the ends that are waited for no longer."""
        self._log_ends.tick()
        self.proceed()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        now = self._env.time.now_ms
        due = [ending.until for ending in self._endings.values() if ending.until > now]
        return min([self._log_ends.next_deadline(), *due], default=NEVER)

    def _resolve(self, session: Session, endings: list[_Ending]) -> None:
        """Say where these end in each origin of which that is known now."""
        reached = self._env.reached(session)
        resolved: list[tuple[Subscription, dict[Origin, int]]] = []
        for ending in endings:
            self._take_answers(ending, reached)
            subscription = ending.subscription
            at = {origin: self._end(ending, origin, reached) for origin in subscription.unknown_ends}
            known = {origin: last for origin, last in at.items() if last is not None}
            if known:
                resolved.append((subscription, known))
                for origin in known:
                    if origin not in subscription.limits and site_of(origin) in ending.unanswered:
                        subscription.end_unconfirmed(origin)
        if resolved:
            session.resolve_ends(resolved)
            self._output.report(EndsChanged(session))
            self._sessions.subscriptions_changed(session)
            self._sessions.mark_changed(session.id)
            if self._sessions.serving(session.id) is session:
                # Else whoever serves it next says so.
                for subscription, _ in resolved:
                    journal_facts.unsubscribed(self._output.journal, session, subscription)
                self._sessions.interest.register(session)

    def _take_answers(self, ending: _Ending, reached: Mapping[Origin, int]) -> None:
        """From here on nothing above matches but what has come already."""
        subscription = ending.subscription
        for site, number in list(ending.unanswered.items()):
            answer = self._log_ends.answer(site, number)
            if answer is not None:
                del ending.unanswered[site]
                subscription.limit(
                    {origin: max(through, reached.get(origin, NOTHING)) for origin, through in answer.items()}
                )

    def _end(self, ending: _Ending, origin: Origin, reached: Mapping[Origin, int]) -> int | None:
        """Return where it ends in the origin; None: that is not known yet, or not all came that lies below."""
        session, site, seen = ending.session, site_of(origin), reached.get(origin, NOTHING)
        limit = ending.subscription.limits.get(origin)
        if limit is not None:
            # The session's catch-up reaches up to there (Coverage.covered_from).
            return limit if origin in session.gates or seen >= limit else None
        if site in ending.unanswered and (
            self._env.time.now_ms < ending.until or not self._has_read_own_log(ending, reached)
        ):
            return None
        if origin not in session.gates:
            return seen
        covered = self._coverage.covered_from(session, origin)
        return None if covered is None else max(covered, seen)

    def _has_read_own_log(self, ending: _Ending, reached: Mapping[Origin, int]) -> bool:
        """Tell whether our own site's log was read as far as it went when the end was asked for: what had come from
        other sites by then stands in it.
        """
        state = self._env.state
        limit = ending.subscription.limits.get(state.origin)
        return state.site not in ending.unanswered and (limit is None or reached.get(state.origin, NOTHING) >= limit)
