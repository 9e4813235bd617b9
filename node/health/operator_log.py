"""The lines for operators in a node's log: leases, drains, failovers, handovers that failed.

The engine knows of no log. After every turn of the loop this module compares it with the last look, and writes what has
changed; a failover, which only passes by, is taken from the journal's fact. So no line is on the way of a notification.
What goes as it should has no line of its own: metrics count it, and `GET /v1/handovers` lists it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

import structlog

from federation.ports import Claimed, DrainRow
from node.health.dependency_health import Dependency, DependencyHealth
from node.health.rate_limited_log import RateLimitedLog
from proxy.core.effects import ClaimRow
from proxy.core.registry_memory import Lost
from proxy.core.transfer_record import Cause, TransferView
from proxy.engine import Engine
from proxy.ownership.transfer_driver import TransferDriver
from waypost.clock import Clock
from waypost.facts import Fact, FactKind, OwnedCause, TransferEnd
from waypost.identity import Incarnation, ProxyId, SessionId

log = structlog.get_logger("waypost")
NOT_COMMITTED = (TransferEnd.ABORTED, TransferEnd.THAWED, TransferEnd.UNSETTLED)
EXPECTED_CAUSES = {
    Cause.REFUSED,
    Cause.RECEIVER_BACK,
    Cause.SOURCE_ENDS,
    Cause.OWNER_CHANGED,
    Cause.SUPERSEDED,
    Cause.OTHERS_ATTACHED,
    Cause.LONG_COPY,
    Cause.ACCESS,
}
"""Causes for which there is nothing to do; docs/operating.md says of each what it means."""


class OperatorLog:
    """Writes the changes of a node to its log.

    Args:
        proxy: the name of this proxy.
        url: returns the address at which clients and peers reach the node.
        health: the dependencies that are missing.
        clock: bounds the lines of a kind (:class:`RateLimitedLog`).
    """

    def __init__(self, proxy: ProxyId, url: Callable[[], str], health: DependencyHealth, clock: Clock) -> None:
        self._proxy = proxy
        self._health = health
        self._url = url
        self._clock = clock
        self._served_before = False
        self._damaged: Counter[str] = Counter()
        self._rows_lost = self._outdated = 0
        self._lost: dict[SessionId, Lost] = {}
        self._incarnation = Incarnation("")
        """Under which we serve; empty: there is no lease."""
        self._drain: DrainRow | None = None
        self._drained = False
        self._moved_before = 0
        self._last: dict[str, TransferView] = {}
        """Role -> the transfer of that role that ended last, and was looked at."""
        self._reported_owners: dict[str, ProxyId] = {}
        """Session -> from whom the registry let us have it, until it is served here."""
        self._rate_limited = RateLimitedLog(clock)

    def report_changes(self, engine: Engine) -> None:
        """Write what has changed in the engine since the last call: lease, drain, damage, transfers. Computed from the
        engine, which is not changed.
        """
        self._report_lease(engine)
        self._report_drain(engine)
        self._report_damage(engine)
        self._report_transfers(engine.transfers.sources)
        self._report_transfers(engine.transfers.targets)
        self._rate_limited.report_suppressed()

    def close(self, engine: Engine | None) -> None:
        """Write the last changes, and the counts of suppressed lines. `engine` None: the node never started."""
        if engine is not None:
            self.report_changes(engine)
        self._rate_limited.report_suppressed(at_once=True)

    # ------------------------------------------------------------ the lease

    def _report_lease(self, engine: Engine) -> None:
        before, sessions = self._incarnation, len(engine.sessions)
        incarnation = self._incarnation = (
            engine.env.lease.incarnation if engine.env.lease.may_serve() else Incarnation("")
        )
        if incarnation == before:
            return
        if not incarnation:
            missing = self._health.now.get(Dependency.REGISTRY)
            why = "it was not renewed: this process or its machine stood still, or another one took the proxy's name"
            log.warning(
                "lease lost; nothing is served until there is another one",
                why=why if missing is None else f"the registry is missing: {missing}",
                incarnation=before,
                sessions=sessions,
            )
        elif self._served_before:
            log.info("lease taken anew", incarnation=incarnation, sessions=sessions)
        else:
            site = engine.env.settings.site
            log.info("ready", proxy=self._proxy, site=site, url=self._url(), incarnation=incarnation, sessions=sessions)
        self._served_before = True

    def prepare_to_leave(self) -> None:
        """Write no line about the loss of the lease from now on: the process is about to give it back."""
        self._incarnation = Incarnation("")

    # ------------------------------------------------------------ damage

    def _report_damage(self, engine: Engine) -> None:
        damaged = engine.output.counters.damaged
        if engine.output.counters.rows_lost > self._rows_lost:
            count, self._rows_lost = (
                engine.output.counters.rows_lost - self._rows_lost,
                engine.output.counters.rows_lost,
            )
            log.error(
                "the registry has lost rows of our sessions: it was restored from an older copy, or is another one; "
                "they are written again",
                count=count,
            )
        if (outdated := engine.output.counters.outdated) > self._outdated:
            log.error(
                "the changelog has later checkpoints of sessions than the registry has owners: it was restored from "
                "an older copy; they are rebuilt from the changelog",
                count=outdated - self._outdated,
            )
            self._outdated = outdated
        if damaged["log"] > self._damaged["log"]:
            known, self._damaged["log"] = self._damaged["log"], damaged["log"]
            count = damaged["log"] - known
            self._rate_limited.write(log.error, "what was written cannot be read", "log", dependency="log", count=count)
        if damaged["session"] > self._damaged["session"]:
            self._damaged["session"] = damaged["session"]
            for session, lost in engine.env.registry_memory.lost.items():
                if self._lost.get(session) != lost:
                    hint = f"waypost sessions rm {session} lets it begin anew"
                    self._rate_limited.write(
                        log.error, "a session was lost", "lost", session=session, why=lost.why, hint=hint
                    )
            self._lost = dict(engine.env.registry_memory.lost)

    # ------------------------------------------------------------ a drain of this proxy

    def _report_drain(self, engine: Engine) -> None:
        row, before = engine.session_moves.drain_row, self._drain
        if row is not before and row != before:
            self._drain = row
            if before is None:
                self._drained, self._moved_before = False, engine.output.counters.drained
            self._drain_changed(before, row, engine)
        # To count what is left is to walk over all sessions of the federation, so only when none is here any more.
        if row is not None and not self._drained and not engine.sessions and engine.session_moves.left == 0:
            self._drained = True
            log.info("drain finished", moved=engine.output.counters.drained - self._moved_before)

    def _drain_changed(self, before: DrainRow | None, row: DrainRow | None, engine: Engine) -> None:
        if row is None:
            log.info("drain over" if self._drained else "drain cancelled", sessions=len(engine.sessions))
        elif row.paused:
            log.info("drain paused", left=engine.session_moves.left)
        else:
            log.info(
                "drain begun" if before is None else "drain goes on", rate=row.rate, left=engine.session_moves.left
            )

    # ------------------------------------------------------------ sessions

    def claimed(self, claim: ClaimRow, answer: Claimed) -> None:
        """Note from which owner a claim took a session, for the line about a failover; nothing is written yet.

        Args:
            claim: as it was requested.
            answer: the registry's answer to `claim`; one that this proxy has not won is ignored.
        """
        if answer.won and claim.new.proxy == self._proxy:
            self._reported_owners[claim.session] = claim.expected.proxy

    def attested(self, facts: Iterable[Fact]) -> None:
        """Write a line about each failover among facts that go to the journal; other facts have no line here."""
        for fact in facts:
            if fact.kind != FactKind.OWNED:
                continue
            before = self._reported_owners.pop(fact.session, None)
            if fact.cause == OwnedCause.FAILOVER and before is None:
                event = (
                    "failover taken of a session whose row the registry has lost: it goes on from its last checkpoint"
                )
                self._rate_limited.write(log.warning, event, session=fact.session, epoch=fact.epoch)
            elif fact.cause == OwnedCause.FAILOVER:
                self._rate_limited.write(
                    log.info, "failover taken", session=fact.session, epoch=fact.epoch, before=before
                )

    def _report_transfers(self, side: TransferDriver[Any]) -> None:
        """Write a line about each transfer that failed since the last look."""
        last = self._last.get(side.role)
        if not side.recent_views or side.recent_views[-1] is last:
            return
        self._last[side.role] = side.recent_views[-1]
        for transfer in reversed(list(takewhile(lambda ended: ended is not last, reversed(side.recent_views)))):
            self._ended(transfer)

    def _ended(self, transfer: TransferView) -> None:
        if transfer.outcome not in NOT_COMMITTED:
            return
        self._rate_limited.write(
            log.info if transfer.cause in EXPECTED_CAUSES else log.warning,
            f"handover {transfer.outcome}",
            kind=(transfer.role, transfer.cause),
            cause=transfer.cause.value,
            why=transfer.why,
            role=transfer.role,
            peer=transfer.peer,
            session=transfer.session,
            epoch=transfer.epoch,
            transfer=transfer.transfer,
            trigger=transfer.trigger.value,
        )
