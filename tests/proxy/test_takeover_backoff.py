"""Two devices that use one receiver's name: each takes the place from the other, and waits longer every time."""

from __future__ import annotations

from handover.messages import Prepare, TransferRefused
from proxy.core.effects import SendPeer
from proxy.core.inputs import PeerSent
from proxy.core.takeover_backoff import TakeoverBackoff
from tests.helpers.engine_harness import SESSION, EngineHarness
from waypost.identity import Epoch, ProxyId, ReceiverId, SessionId
from waypost.limits import TAKEOVER_FIRST_MS, TAKEOVER_MAX_MS, TAKEOVERS_REMEMBERED
from waypost.messages import Attached, Wait

R = ReceiverId("r")


def test_takeover_delay_doubles_up_to_a_maximum_and_resets_after_a_quiet_period() -> None:
    takeover_backoff, now, pauses = TakeoverBackoff(), 0, []
    for attempt in range(12):
        own, yours = f"life {attempt % 2}", f"life {1 - attempt % 2}"
        assert takeover_backoff.try_takeover(SESSION, R, own, now) == 0
        assert takeover_backoff.try_takeover(SESSION, R, own, now) == 0
        pauses.append(takeover_backoff.try_takeover(SESSION, R, yours, now))
        now += pauses[-1]
    assert pauses[:4] == [TAKEOVER_FIRST_MS * 2**number for number in range(4)]
    assert pauses[-1] == TAKEOVER_MAX_MS
    now += 2 * TAKEOVER_MAX_MS
    assert takeover_backoff.try_takeover(SESSION, R, "life 0", now) == 0
    assert takeover_backoff.try_takeover(SESSION, R, "life 1", now) == TAKEOVER_FIRST_MS
    assert takeover_backoff.damped == 13


def test_takeover_delay_is_per_session_and_its_memory_is_bounded() -> None:
    takeover_backoff = TakeoverBackoff()
    for number in range(TAKEOVERS_REMEMBERED + 1):
        assert takeover_backoff.try_takeover(SessionId(f"s{number}"), R, "mine", 0) == 0
    assert takeover_backoff.try_takeover(SessionId("s0"), R, "yours", 0) == 0
    assert takeover_backoff.try_takeover(SessionId(f"s{TAKEOVERS_REMEMBERED}"), R, "yours", 0) == TAKEOVER_FIRST_MS


def test_displaced_receiver_that_reattaches_at_once_waits_and_the_attached_one_is_served_on() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.attach(2)
    assert any(isinstance(message, Attached) for message in harness.received(2))
    harness.attach(3)
    (wait,) = [message for message in harness.received(3) if isinstance(message, Wait)]
    assert wait.retry_after_ms == TAKEOVER_FIRST_MS
    assert harness.engine.sessions[SESSION].receivers[R].connection == 2
    harness.pass_time(TAKEOVER_FIRST_MS)
    harness.attach(3)
    assert harness.engine.sessions[SESSION].receivers[R].connection == 3


def test_the_session_is_not_handed_over_back_and_forth() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.attach(2)
    harness.pending.clear()
    you = ProxyId("you")
    harness.reload({}, "you")
    prepare = Prepare(session=SESSION, transfer="t", epoch=Epoch(1), receiver="r", incarnation="another")
    harness.step(PeerSent(you, prepare))
    harness.run_effects()
    assert isinstance(harness.next(SendPeer).message, TransferRefused)
    harness.pass_time(TAKEOVER_FIRST_MS)
    harness.pending.clear()
    harness.step(PeerSent(you, prepare))
    harness.run_effects()
    assert not isinstance(harness.next(SendPeer).message, TransferRefused)
