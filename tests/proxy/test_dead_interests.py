"""What a proxy that has gone had registered ends, whatever went wrong when its lease ended."""

from __future__ import annotations

from federation.ports import ProxyDown
from proxy.core import effects
from proxy.core.inputs import RegistryReported
from proxy.ownership.row_checks import DEAD_MS
from tests.helpers.engine_harness import SESSION, EngineHarness, row
from waypost.errors import LogUnavailable
from waypost.identity import ProxyId
from waypost.records import InterestRegistered, InterestsExpired

YOU = ProxyId("you")
REGISTERED = InterestRegistered(YOU, row("you").incarnation, SESSION, ("n > 0",))
EXPIRED = InterestsExpired(YOU, row("you").incarnation)


def a_while(harness: EngineHarness, for_ms: int) -> None:
    for _ in range(0, for_ms, 1_000):
        harness.pass_time(1_000)
    harness.read_log()


def registered(harness: EngineHarness) -> list[tuple[ProxyId, str]]:
    return list(harness.engine.state.registered)


def test_an_append_that_failed_when_the_lease_ended_is_made_up_for() -> None:
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.log.append(REGISTERED)
    harness.read_log()
    harness.step(RegistryReported(ProxyDown(YOU, row("you").incarnation)))
    for effect in harness.take_effects():
        if isinstance(effect, effects.Append):
            assert effect.records == [EXPIRED]
            harness.finish(effect, LogUnavailable("away"))
    a_while(harness, 4 * DEAD_MS)
    assert registered(harness) == [] and EXPIRED in harness.log


def test_what_the_dead_registered_last_ends_although_it_stands_behind_their_end() -> None:
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.step(RegistryReported(ProxyDown(YOU, row("you").incarnation)))
    harness.log += [EXPIRED, REGISTERED]
    harness.read_log()
    a_while(harness, 4 * DEAD_MS)
    assert registered(harness) == []


def test_what_a_live_proxy_has_registered_stays() -> None:
    harness = EngineHarness()
    harness.reload({}, "you")
    harness.log.append(REGISTERED)
    harness.read_log()
    a_while(harness, 4 * DEAD_MS)
    assert registered(harness) == [(YOU, SESSION)]
