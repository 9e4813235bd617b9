"""A producer is told the origin of what it published by the offset, whatever the log has entered since."""

from __future__ import annotations

from proxy.core import effects
from proxy.core.inputs import ClientConnected, ClientSent
from tests.helpers.engine_harness import EngineHarness
from waypost.facts import FactKind
from waypost.identity import Origin
from waypost.messages import VERSION, Acknowledged, Hello, Publish
from waypost.notification import Notification
from waypost.records import LogBegun

FIRST, SECOND = Origin("A/0"), Origin("A/0.2")


def test_answer_that_comes_after_the_next_log_epoch_was_read_names_the_origins_of_its_offsets() -> None:
    """The log had 0 and 1 of the first epoch, lost what came then, and has begun the second one at 2."""
    harness = EngineHarness()
    harness.step(ClientConnected(9))
    harness.step(ClientSent(9, Hello(VERSION, "producer")))
    bodies = [Notification({"n": number}).body for number in range(3)]
    harness.step(ClientSent(9, Publish(producer="p", secret="i", first=5, bodies=bodies)))
    (append,) = (effect for effect in harness.take_effects() if isinstance(effect, effects.Append))
    harness.log += [append.records[0], append.records[1]]
    harness.log.append(LogBegun(federation="f", identity="log", log_epoch=2, ended={FIRST: (1, 1)}))
    harness.log.append(append.records[2])
    harness.read_log()
    harness.finish(append, [0, 1, 3])
    harness.run_effects()
    answers = [message for message in harness.received(9) if isinstance(message, Acknowledged)]
    assert answers == [Acknowledged(5, FIRST, [0, 1]), Acknowledged(7, SECOND, [3])]
    facts = [fact for fact in harness.facts if fact.kind is FactKind.ACKNOWLEDGED]
    assert [(fact.origin, [*fact.offsets]) for fact in facts] == [(FIRST, [0, 1]), (SECOND, [3])]
