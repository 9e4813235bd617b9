"""Bugs in the life of a process: its leases, and its orderly end."""

from __future__ import annotations

from node import lifecycle
from node.lifecycle import TABLE, LifecycleState
from tests.chaos.simulator.mutation import Mutant, rows

_S = LifecycleState
MUTANTS = (
    Mutant(
        "one lease and no other",
        "a process whose lease has ended announces no other incarnation",
        rows(TABLE, {(_S.SERVING, lifecycle.LeaseEnded): ((lifecycle.LoseLease,), _S.LEARNING)}),
        ("STUCK", "SIDES"),
        (3, 6, 18),
    ),
    Mutant(
        "a lease that is not prolonged",
        "the engine does not hear that the lease was renewed",
        rows(TABLE, {(_S.SERVING, lifecycle.Renewed): ((), _S.SERVING)}),
        ("STUCK",),
        (0, 1, 3),
    ),
    Mutant(
        "never ends",
        "a process that is told to end does not, where the registry does not take its lease back",
        rows(TABLE, {(_S.REVOKING, lifecycle.Overdue): ((), _S.REVOKING)}),
        ("STUCK",),
        (238, 360, 371),
    ),
)
MASKED = (
    Mutant(
        "serves on without a lease",
        "a process whose lease has ended does not tell its engine",
        rows(TABLE, {(_S.SERVING, lifecycle.LeaseEnded): ((lifecycle.LearnSecret,), _S.LEARNING)}),
        rule=1,
        masked_by="engines that stop by the clock before their lease can end",
    ),
    Mutant(
        "ends without a word",
        "a process that ends in good order gives its lease back and says nothing before",
        rows(TABLE, {(_S.HANDING_BACK, lifecycle.HandedBack): ((lifecycle.RevokeLease,), _S.REVOKING)}),
        masked_by="receivers that say themselves what they have",
    ),
)
