"""What the log of a proxy tells an operator: once each, and a thousand alike in a few lines."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from federation.ports import Claimed, DrainChanged, DrainRow, OwnerChanged
from handover.messages import (
    HandoverOffer,
    Trigger,
)
from node.health.dependency_health import Dependency, DependencyHealth
from node.health.operator_log import EXPECTED_CAUSES, OperatorLog
from proxy.core import effects
from proxy.core.effects import ClaimRow, FoundCheckpoint, ignore_result
from proxy.core.inputs import LeaseGranted, LeaseLost, Leave, PeerSent, RegistryReported
from tests.helpers.engine_harness import ME, SESSION, EngineHarness, owner
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.identity import Epoch, Incarnation, ProxyId, SessionId
from waypost.limits import LOG_LINES_ALIKE, LOG_LINES_MS
from waypost.messages import Attach

OTHER = ProxyId("other")
PAGE = Path(__file__).parents[2] / "docs/operating.md"


class OperatorLogHarness(EngineHarness):
    """The engine alone, with what is told of it."""

    def __init__(self, *, lease: bool = True) -> None:
        super().__init__(lease=False)
        self.health = DependencyHealth(random.Random(1), self.clock)
        self.operator_log = OperatorLog(ME, lambda: "ws://me:1", self.health, self.clock)
        self.lines: list[Any] = []
        if lease:
            self.lease()
            self.check()

    def check(self) -> list[str]:
        """Look, with the facts that came since; return the events."""
        return [line["event"] for line in self.new_lines()]

    def new_lines(self) -> list[Any]:
        with capture_logs() as lines:
            self.operator_log.attested(self.facts)
            self.facts.clear()
            self.operator_log.report_changes(self.engine)
        return lines

    def drained(self, drain: DrainRow | None) -> list[str]:
        self.engine.step(RegistryReported(DrainChanged(ME, drain)), 0)
        self.run_effects()
        return self.check()

    def take_over(self, session: str) -> None:
        """Serve a session whose owner is dead."""
        self.engine.step(RegistryReported(OwnerChanged(SessionId(session), owner("dead", 4))), 0)
        self.send(1, Attach(session=SessionId(session), receiver="r", incarnation="i1", frontier={}))
        self.complete(effects.ReadRow, owner("dead", 4))
        found = Checkpoint(SessionId(session), Epoch(4), 0, Descriptor(), {})
        self.complete(effects.FindCheckpoint, FoundCheckpoint((found,), complete=True))
        claim = self.next(ClaimRow)
        answer = Claimed(True, claim.new)
        self.operator_log.claimed(claim, answer)
        self.finish(claim, answer)
        self.run_effects()


def test_a_proxy_says_once_that_it_is_ready_and_where() -> None:
    harness = OperatorLogHarness(lease=False)
    assert harness.check() == []
    harness.lease()
    (line,) = harness.new_lines()
    assert (line["event"], line["url"], line["site"], line["incarnation"]) == ("ready", "ws://me:1", "A", "me#1")
    assert harness.check() == []


def test_lease_that_is_lost_while_the_registry_is_missing_says_so() -> None:
    harness = OperatorLogHarness()
    harness.health.unavailable(Dependency.REGISTRY, OSError("no answer from etcd"))
    harness.engine.step(LeaseLost(), 0)
    assert harness.new_lines()[-1]["why"] == "the registry is missing: no answer from etcd"


def test_expired_lease_is_a_warning_and_the_next_one_is_logged_with_its_incarnation() -> None:
    harness = OperatorLogHarness()
    harness.engine.step(LeaseLost(), 0)
    (lost,) = harness.new_lines()
    assert (lost["event"].split(";")[0], lost["log_level"]) == ("lease lost", "warning")
    assert lost["why"].startswith("it was not renewed")
    assert harness.check() == []
    harness.engine.step(LeaseGranted(Incarnation("me#2"), 1 << 40), 0)
    harness.run_effects()
    (taken,) = harness.new_lines()
    assert (taken["event"], taken["incarnation"]) == ("lease taken anew", "me#2")
    harness.engine.step(LeaseLost(), 0)
    harness.engine.step(LeaseGranted(Incarnation("me#3"), 1 << 40), 0)
    assert harness.check() == ["lease taken anew"]


def test_a_proxy_that_leaves_does_not_warn_of_the_lease_that_it_gives_back() -> None:
    harness = OperatorLogHarness()
    harness.operator_log.prepare_to_leave()
    harness.engine.step(Leave(ignore_result), 0)
    harness.run_effects()
    assert harness.check() == []


def test_drain_is_logged_at_its_begin_pause_resumption_and_cancellation() -> None:
    harness = OperatorLogHarness()
    harness.serve()
    assert harness.drained(DrainRow(rate=5)) == ["drain begun"]
    assert harness.check() == []
    assert harness.drained(DrainRow(rate=5, paused=True)) == ["drain paused"]
    assert harness.drained(DrainRow(rate=7)) == ["drain goes on"]
    assert harness.drained(None) == ["drain cancelled"]


def test_a_drain_has_finished_once_nothing_is_left_and_is_over_when_the_order_is_taken_back() -> None:
    harness = OperatorLogHarness()
    harness.serve()
    harness.drained(DrainRow(rate=5))
    harness.engine.step(RegistryReported(OwnerChanged(SESSION, owner("other", 2))), 0)
    harness.run_effects()
    assert harness.check() == ["drain finished"]
    assert harness.check() == []
    assert harness.drained(None) == ["drain over"]


def test_failover_is_logged_with_session_epoch_and_previous_owner() -> None:
    harness = OperatorLogHarness()
    harness.take_over("s")
    (line,) = harness.new_lines()
    assert (line["event"], line["session"], line["epoch"], line["before"]) == ("failover taken", "s", 5, "dead")


def test_many_failovers_are_logged_up_to_a_limit_and_then_counted() -> None:
    harness = OperatorLogHarness()
    for number in range(100):
        harness.take_over(f"s{number}")
    assert harness.check() == ["failover taken"] * LOG_LINES_ALIKE
    harness.clock.advance(LOG_LINES_MS)
    (more,) = harness.new_lines()
    assert (more["event"], more["count"]) == ("failover taken, more of the same", 100 - LOG_LINES_ALIKE)
    harness.take_over("later")
    assert harness.check() == ["failover taken"]


def test_counted_lines_are_logged_at_close() -> None:
    harness = OperatorLogHarness()
    for number in range(LOG_LINES_ALIKE + 2):
        harness.take_over(f"s{number}")
    harness.check()
    with capture_logs() as lines:
        harness.operator_log.close(harness.engine)
    assert [line["count"] for line in lines] == [2]


def test_creation_of_a_session_is_not_logged() -> None:
    harness = OperatorLogHarness()
    harness.serve()
    assert harness.check() == []


def test_codes_logged_without_a_warning_are_those_that_need_no_action_on_the_operators_page() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \| .* \| Nothing[.;,].* \|$", PAGE.read_text(), re.MULTILINE)
    assert set(rows) == EXPECTED_CAUSES


def test_aborted_handover_is_logged_once_with_its_cause() -> None:
    harness = OperatorLogHarness()
    harness.reload({SESSION: owner("other", 3)}, "other")
    harness.engine.step(PeerSent(OTHER, HandoverOffer(SESSION, Epoch(3), Trigger.DRAIN)), 0)
    harness.run_effects()
    assert harness.check() == []
    harness.pass_time(6_000)
    (line,) = harness.new_lines()
    assert (line["event"], line["log_level"]) == ("handover aborted", "warning")
    assert (line["cause"], line["role"], line["peer"], line["session"]) == ("timeout", "target", "other", "s")
    assert harness.check() == []
