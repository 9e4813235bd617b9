"""Planted bugs of damage: records of a site log that cannot be read any more (handover rule 29)."""

from __future__ import annotations

from federation.history import HistoryAnswer
from proxy.coverage import Coverage
from tests.chaos.simulator.planting import Plant, replaced

PLANTS = (
    Plant(
        "takes damage for silence",
        "a catch-up passes over what cannot be read",
        replaced(HistoryAnswer, "_pass_over", lambda self, offset: None),
        ("LOST",),
        stories=("records_of_a_log_are_damaged",),
        rule=29,
    ),
    Plant(
        "goes on after rereading damage",
        "a record that cannot be read, and that the sessions had, is taken for nothing",
        replaced(Coverage, "damaged_before", lambda self, had: None),
        ("LOST",),
        kept=("63100331",),
        rule=29,
    ),
)
