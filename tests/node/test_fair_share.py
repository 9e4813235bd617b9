"""Who costs much waits, however many there are; who costs little never does."""

from __future__ import annotations

import pytest

from node.resources.fair_share import FairQueue, Turns
from waypost.limits import CREDITS_SHARE, LEAST_CREDIT_SHARE, LINE_SHARE, TURN_CREDIT_S

STEP_S = 0.001


@pytest.mark.parametrize("clients", [1, 20, 500])
def test_clients_that_use_all_they_get_have_a_bounded_share_of_the_loop_together(clients: int) -> None:
    line, now_s, spent_s = FairQueue(), 1_000.0, 0.0
    turns = [Turns(line, now_s) for _ in range(clients)]
    free_at = [now_s] * clients
    begin_s = now_s + clients * TURN_CREDIT_S / LINE_SHARE
    while now_s < begin_s + 10:
        for number, turn in enumerate(turns):
            if free_at[number] <= now_s:
                free_at[number] = now_s + turn.spent(STEP_S, now_s)
                spent_s += STEP_S if now_s >= begin_s else 0.0
        now_s += STEP_S
    assert spent_s / 10 < LINE_SHARE + CREDITS_SHARE + clients * LEAST_CREDIT_SHARE + 0.02


def test_a_client_that_costs_little_never_waits_beside_those_that_cost_much() -> None:
    line, now_s = FairQueue(), 1_000.0
    greedy, frugal = [Turns(line, now_s) for _ in range(50)], Turns(line, now_s)
    waits = []
    for _ in range(500):
        for turn in greedy:
            turn.spent(STEP_S, now_s)
        waits.append(frugal.spent(0.000_004, now_s))
        now_s += 0.01
    assert not any(waits)


def test_a_line_says_for_how_long_new_work_would_wait() -> None:
    line = FairQueue()
    assert line.queued_s(1_000.0) == 0.0
    assert line.turn_s(0.004, 1_000.0) == 0.0
    assert line.queued_s(1_000.0) == pytest.approx(0.004 / LINE_SHARE)
    assert line.queued_s(2_000.0) == 0.0
