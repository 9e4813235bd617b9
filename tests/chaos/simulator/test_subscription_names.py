"""What the simulator remembers of subscriptions that end."""

from __future__ import annotations

from chaos.simulator.environment.subscription_names import PublishedBefore
from waypost.identity import Origin

A, B = Origin("A/0"), Origin("B/0")


def test_where_a_log_has_lost_its_end_what_comes_to_stand_there_was_not_published_before() -> None:
    """Seed 97077662: nobody had read the record, and the same notification was published again, at its offset."""
    before = PublishedBefore({A: 7, B: 3}, {A: 5, B: 3})
    after = before.without([A, Origin("A/0.2")], 7)
    assert after == PublishedBefore({A: 6, B: 3}, {A: 5, B: 3})
    assert after.without([A], 9) == after
