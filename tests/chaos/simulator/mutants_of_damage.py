"""Mutants of damage: records of a site log that cannot be read any more (handover rule 29)."""

from __future__ import annotations

from federation.site.history import HistoryAnswer
from proxy.stream.coverage import Coverage
from tests.chaos.simulator.mutation import Mutant, replaced

MUTANTS = (
    Mutant(
        "takes damage for silence",
        "a catch-up passes over what cannot be read",
        replaced(HistoryAnswer, "_pass_over", lambda self, offset: None),
        ("LOST",),
        scenarios=("records_of_a_log_are_damaged",),
        rule=29,
    ),
    Mutant(
        "goes on after rereading damage",
        "a record that cannot be read, and that the sessions had, is taken for nothing",
        replaced(Coverage, "damaged_before", lambda self, had: None),
        ("LOST",),
        kept=("8441433",),
        rule=29,
    ),
)
