"""Gates opened and history fetched: how a session catches up with the live stream of each origin."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from federation.messages import CatchUp
from federation.site.events import LogDamaged, OriginClosed
from proxy.core.effects import FetchHistory, History, Send
from proxy.core.environment import Environment
from proxy.core.events import DeliveryDue
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.gaps import Gaps
from proxy.session.receivers import Receiver
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Matched
from proxy.stream.catch_up_throttle import CatchUpThrottle
from proxy.stream.incremental_scan import IncrementalScan
from proxy.stream.promises import Promises
from proxy.stream.store_writer import StoreWriter
from waypost.checkpoint import GapRow
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.facts import FactKind, GapCause, RemovalPolicy
from waypost.identity import NOTHING, Origin, SessionId, follows, site_of
from waypost.limits import GATED_AT_ONCE
from waypost.messages import Gap
from waypost.notification import read_body


class Coverage:
    """Opens the gates of sessions: fetches the history that each gated origin lacks, stores it, and opens the gate.

    Call :meth:`watch` for a session with gates: it is advanced until all of them are open. Its promises are made on the
    way, for a subscription is effective from where its session is covered.

    Args:
        env: time, settings, lease, and the folded state of the site.
        sessions: all sessions of this proxy.
        output: takes the effects, the events and the facts of gaps.
        promises: is told of each session whose promises may be due.
        store: counts what is caught up, and not stored yet.
    """

    def __init__(
        self, env: Environment, sessions: SessionTable, output: Output, promises: Promises, store: StoreWriter
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._promises = promises
        self._store = store
        self._scan = IncrementalScan[Session](GATED_AT_ONCE)
        self._gated: dict[SessionId, Session] = {}
        self._histories = CatchUpThrottle(self._env.settings.retry_ms)
        self._next_check_ms = 0
        self._request = 0
        """The number of the last catch-up request."""

    def watch(self, session: Session) -> None:
        """Watch the session's gates from now on, until all of them are open, and have a promise made that may be due
        (:meth:`Promises.watch`).
        """
        self._gated[session.id] = session
        self._promises.watch(session)

    def covered(self, expressions: Iterable[str]) -> None:
        """Advance the gated sessions that want one of these expressions, and make the promises that are due: the site
        covers more.

        Args:
            expressions: those that the site covers more of, in canonical form.
        """
        concerned = {
            session.id: session for expression in expressions for session in self._sessions.matcher.holding(expression)
        }
        for session in concerned.values():
            self._promises.watch(session)
            if session.id in self._gated:
                self.advance(session)
        self._promises.promise_all()

    def interest_registered(self, session: Session) -> None:
        """Advance the session's gates and promises. Call it when a record of its interest was read from the log."""
        self.advance(session)
        self._promises.promise(session)

    def tick(self) -> None:
        """Advance watched sessions every `retry_ms`, of many GATED_AT_ONCE at a time, and begin the catch-ups whose
        turn it is.
        """
        now = self._env.time.now_ms
        if now >= self._next_check_ms:
            self._next_check_ms = now + self._env.settings.retry_ms
            for session in self._scan.next_batch(self._gated.values()):
                if self._gated.get(session.id) is session:
                    self.advance(session)
            self._promises.promise_all()
        self._let_ask()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        look_at = self._next_check_ms if self._gated or self._promises else NEVER
        return min(look_at, self._histories.next_deadline())

    def advance(self, session: Session) -> None:
        """Open the session's gates that may open, and begin to fetch what is missing for others. DeliveryDue is
        reported if a gate has opened.

        A shadow or a frozen session stays as it is. A session without gates, or one that is here no more, counts as
        caught up, and its gates are watched no more.
        """
        if self._sessions.get(session.id) is not session or not session.gates:
            if self._gated.get(session.id) is session:
                # Not another copy, which came in its place while it waited in line for history.
                del self._gated[session.id]
            session.end_rebuilding()
            return
        if session.role in (Role.SHADOW, Role.FROZEN):
            return
        before = {origin: gate.seen for origin, gate in session.gates.items()}
        for origin in before:
            self._advance_origin(session, origin)
        if before != {origin: gate.seen for origin, gate in session.gates.items()}:
            self._sessions.mark_changed(session.id)
        if before.keys() != session.gates.keys():
            self._output.report(DeliveryDue(session))

    def covered_from(self, session: Session, origin: Origin) -> int | None:
        """Return X of a gated origin: the offset above which live matches are complete for the session's subscriptions.

        Ends that are known of ended subscriptions lie at or below it (handover rules 7 to 9).

        Returns:
            None: not known yet.

        Raises:
            KeyError: the origin has no gate.
        """
        state = self._env.state
        brings = site_of(origin) == state.site or origin in state.ended or self._sessions.interest.is_installed(session)
        if self._env.rereading or not brings:
            return None
        above = state.covered_above(origin, session.subscriptions.interest_expressions())
        covered = session.gates[origin].covered_from(above)
        if covered is None:
            return None
        ends = [sub.known_end.get(origin, NOTHING) for sub in session.subscriptions.ended]
        return max([covered, *ends])

    def _advance_origin(self, session: Session, origin: Origin) -> None:
        if any(follows(origin, earlier) for earlier in session.gates):
            # Order (P3): what a producer published in an earlier log epoch comes first.
            return
        gate = session.gates[origin]
        covered = self.covered_from(session, origin)
        if covered is not None and gate.seen is None:
            self._begin_at(session, origin, covered)
        if gate.may_open(covered):
            session.open_gate(origin)
            return
        missing = gate.missing(covered)
        now = self._env.time.now_ms
        if missing and not gate.fetching and self._histories.begin(site_of(origin), session, origin, now):
            gate.fetching = True
            self._fetch(session, origin, *missing)

    def _let_ask(self) -> None:
        for session in self._histories.try_start(self._env.time.now_ms):
            self.advance(session)

    def _begin_at(self, session: Session, origin: Origin, covered: int) -> None:
        """Begin the session's coverage of an origin of which no receiver was ever promised anything."""
        session.gates[origin].fetched(covered)
        self._promises.watch(session)
        session.subscriptions.raise_promise_floors({origin: covered})

    def _fetch(self, session: Session, origin: Origin, after: int, upto: int) -> None:
        self._request += 1
        request = CatchUp(self._request, origin, after, upto, session.subscriptions.all_expressions())

        def on_done(answer: History | WaypostError) -> None:
            well = not isinstance(answer, WaypostError)
            self._histories.ended(site_of(origin), self._env.time.now_ms, well=well)
            self._fetched(session, request, answer)
            self._let_ask()

        self._output.emit(FetchHistory(site_of(origin), request, on_done))

    def _fetched(
        self,
        session: Session,
        request: CatchUp,
        answer: History | WaypostError,
        recorded: Collection[int] | None = None,
    ) -> None:
        """Take what was fetched; what is not to be had, or too old, when it is on record (handover rule 21).

        Args:
            recorded: offsets that are too old, by the journal; None: it was not told of any yet.
        """
        origin, after, upto = request.origin, request.after, request.upto
        gate = session.gates.get(origin)
        if gate is None or self._sessions.get(session.id) is not session:
            return
        gate.fetching = False
        if isinstance(answer, WaypostError) or gate.seen != after or session.role is Role.FROZEN:
            return
        if request.expressions != session.subscriptions.all_expressions():
            # Asked for before the subscriptions changed: what the new ones want of it was not fetched.
            self.advance(session)
            return
        gap = range(after + 1, min(answer.first_kept, upto + 1))
        lost = range(max(answer.lost_above, after) + 1, upto + 1) if answer.lost_above is not None else range(0)
        damaged = [range(max(first, after + 1), min(last, upto) + 1) for first, last in answer.damaged]
        if recorded is None:
            old = self._too_old(session, request, answer)
            if old or gap or lost or damaged:
                if site_of(origin) == self._env.state.site:
                    # A proxy that reads it from another site reports nothing: that site does.
                    self._output.counters.damaged["log"] += sum(map(len, damaged))
                gate.fetching = True
                gaps = {GapCause.RETENTION: [gap], GapCause.LOG_LOST: [lost], GapCause.DAMAGE: damaged}
                self._record(session, origin, old, gaps)
                self._output.journal.once_attested(lambda: self._fetched(session, request, answer, old))
                return
        if gap:
            self._report_gap(session, origin, gap, GapCause.RETENTION)
        if lost:
            self._report_gap(session, origin, lost, GapCause.LOG_LOST)
        for offsets in filter(None, damaged):
            self._report_gap(session, origin, offsets, GapCause.DAMAGE)
        for record in answer.records:
            if gate.seen < record.offset <= upto:
                gate.fetched(record.offset)
                matched = session.subscriptions.match(origin, record.offset, read_body(record.body), record.protection)
                if matched and record.offset not in (recorded or ()):
                    young = self._young(session, matched, record.at_ms)
                    stored = StoredNotification.of(origin, record.offset, record)
                    session.accept(stored, young or matched)
                    self._store.count_unstored(stored, young or matched)
        gate.fetched(min(answer.through, upto))
        # Also where the gate stays closed: what is not written stays in memory.
        self._sessions.mark_changed(session.id)
        self._output.report(DeliveryDue(session))
        self.advance(session)

    def _too_old(self, session: Session, request: CatchUp, answer: History) -> list[int]:
        """Return which of these are not stored again."""
        if not (session.rebuilding and session.retention.aging):
            return []
        return [
            record.offset
            for record in answer.records
            if request.after < record.offset <= request.upto
            and (
                matched := session.subscriptions.match(
                    request.origin, record.offset, read_body(record.body), record.protection
                )
            )
            and not self._young(session, matched, record.at_ms)
        ]

    def _young(self, session: Session, matched: Matched, at_ms: int) -> Matched:
        """Return for which of the subscriptions something is worth taking.

        A session that is rebuilt may have been nobody's for long: what is too old by the time in its log is not stored
        again. Elsewhere it is as young as it can be: clocks may differ (failures, F34).
        """
        if not (session.rebuilding and session.retention.aging):
            return matched
        return session.retention.young(matched, self._env.time.unix_ms - at_ms)

    def _record(
        self, session: Session, origin: Origin, old: list[int], gaps: Mapping[GapCause, Sequence[Sequence[int]]]
    ) -> None:
        if old:
            policies = [RemovalPolicy.TIME_TO_LIVE_BY_LOG]
            self._output.journal.attest(FactKind.REMOVED, session, origin=origin, offsets=old, policies=policies)
        for cause, ranges in gaps.items():
            for gap in filter(None, ranges):
                self._output.journal.attest(
                    FactKind.GAP, session, origin=origin, offsets=[gap[0], gap[-1]], cause=cause
                )

    def _report_gap(self, session: Session, origin: Origin, offsets: Sequence[int], cause: GapCause) -> None:
        """Report a gap that is on record. Of others, that are perhaps not yet, nobody is told now."""
        gap = GapRow(origin, offsets[0], offsets[-1], cause, list(session.receivers))
        session.gaps.append(gap)
        self._sessions.mark_changed(session.id)
        for receiver in list(session.receivers.values()):
            self._tell_gaps(receiver, Gaps([gap]))

    def announce_gaps(self, session: Session, receiver: Receiver) -> None:
        """Tell a receiver the gaps that it was not told of since it attached; nothing is done if it is not attached.

        The journal must have the gaps (handover rule 21).
        """
        self._tell_gaps(receiver, session.gaps)

    def _tell_gaps(self, receiver: Receiver, gaps: Gaps) -> None:
        if receiver.connection is None:
            return
        for gap in gaps.pending_for(receiver):
            self._output.emit(Send(receiver.connection, Gap(gap.origin, gap.first, gap.last, gap.cause)))

    # ------------------------------------------------------------ holes

    def broken(self, session: Session) -> None:
        """Close the session's gates of all origins of other sites. Call it when the session's interest was not
        registered all the time.

        The log may have a hole that looks like silence (handover rule 9). Of a gate that is closed already the kept
        matches are dropped: they come by catch-up. Ended origins stay as they are, and no further gate of a shadow or a
        frozen session is closed. The session is watched and marked as changed.
        """
        state = self._env.state
        for origin in state.frontier:
            if site_of(origin) != state.site and origin not in state.ended:
                self._close(session, origin)
        self._gates_closed(session)

    def damaged(self, event: LogDamaged) -> None:
        """Close the gates of all sessions after a record that cannot be read: it may have been of any origin.

        Of the own origin the log itself tells what is lost; of the others coverage begins anew (handover rule 29).
        """
        origin = self._env.state.origin
        for session in self._sessions.values():
            self.broken(session)
            self._close_unknown(session)
            gate = session.gates.get(origin)
            seen = max(event.before, session.gates.seen_beyond_log.get(origin, NOTHING))
            if gate is not None:
                gate.restart(event.offset)
            elif seen < event.offset:
                _gate(session, origin, seen, event.offset)

    def damaged_before(self, had: Mapping[Origin, int]) -> None:
        """Close the gates of other sites' origins after a damaged record that the restored sessions had read before.

        Args:
            had: the frontier up to which they had read.
        """
        state = self._env.state
        for session in self._sessions.values():
            for origin, seen in had.items():
                if site_of(origin) != state.site and origin not in session.gates:
                    session.gates.close(origin, max(seen, session.gates.seen_beyond_log.get(origin, NOTHING)))
            self._gates_closed(session)

    def _close_unknown(self, session: Session) -> None:
        """What is damaged may be all that the site ever heard of an origin of which something was promised."""
        state = self._env.state
        lowest: dict[Origin, int] = {}
        for subscription in session.subscriptions.active():
            for origin, above in subscription.promised.items():
                if origin not in state.frontier and origin not in session.gates and site_of(origin) != state.site:
                    lowest[origin] = min(above, lowest.get(origin, above))
        for origin, above in lowest.items():
            _gate(session, origin, above, NOTHING)

    def ended(self, event: OriginClosed) -> None:
        """Close the gates of an origin that has ended, and of the one that follows, in all sessions (handover rule 27).

        Sessions catch up with the ended origin up to its end, and their receivers are told of what is lost. So that no
        notification of a producer overtakes what it published before, the next origin waits for that (P3).
        """
        known = self._env.state.ended[event.origin]
        for session in self._sessions.values():
            gate = session.gates.get(event.origin)
            if gate is not None:
                gate.restart(known.seen)
            elif (seen := max(event.before, session.gates.seen_beyond_log.get(event.origin, NOTHING))) < known.seen:
                _gate(session, event.origin, seen, known.seen)
            if event.is_first and known.following not in session.gates:
                seen = max(known.begins, session.gates.seen_beyond_log.get(known.following, NOTHING))
                _gate(session, known.following, seen, known.begins)
            self._gates_closed(session)

    def interrupted(self, expression: str, origin: Origin) -> None:
        """Close the gates of an origin for sessions with an expression that is covered no more (handover rule 12).

        Args:
            expression: in canonical form.
        """
        for session in self._sessions.matcher.holding(expression):
            self._close(session, origin)
            self._gates_closed(session)

    def _gates_closed(self, session: Session) -> None:
        """Look after them; and the store must have them with the position in the log behind which they were closed."""
        self.watch(session)
        self._sessions.mark_changed(session.id)

    def _close(self, session: Session, origin: Origin) -> None:
        """Close the gate of the origin, where it is open, and let wait what comes from here on."""
        seen = max(self._env.state.frontier[origin], session.gates.seen_beyond_log.get(origin, NOTHING))
        gate = session.gates.get(origin)
        if gate is not None:
            gate.restart(seen)
        elif session.role not in (Role.SHADOW, Role.FROZEN):
            session.gates.close(origin, seen)


def _gate(session: Session, origin: Origin, seen: int, from_above: int) -> None:
    """Close a gate; what a shadow has seen it learns at the merge."""
    session.gates.close(origin, None if session.role is Role.SHADOW else seen, from_above)
