"""Bugs in how what is published comes to the log: in parts, with bounds, in its producer's order."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from node.machines.append_admission import AppendAdmission, AppendCompleted
from tests.chaos.simulator.mutation import Mutant, replaced

_part_appended = AppendAdmission._part_appended


def _append_behind_what_failed(self: AppendAdmission, number: int, answer: Any) -> list[Any]:
    """Take a part that failed for appended; if it is the last one, the frame is answered with its error."""
    frame = self._frames[number]
    effects = _part_appended(self, number, answer if isinstance(answer, list) else [-1] * len(frame.part_records))
    return [
        replace(effect, answer=answer)
        if isinstance(effect, AppendCompleted) and effect.append is frame.append and -1 in frame.offsets
        else effect
        for effect in effects
    ]


def _count_offsets_on_from_the_first(self: AppendAdmission, number: int, answer: Any) -> list[Any]:
    frame = self._frames[number]
    if isinstance(answer, list) and isinstance(answer[0], int):
        first = frame.offsets[0] if frame.offsets else answer[0]
        effects = _part_appended(self, number, answer)
        return [
            replace(effect, answer=list(range(first, first + len(effect.answer))))
            if isinstance(effect, AppendCompleted) and isinstance(effect.answer, list) and effect.answer
            else effect
            for effect in effects
        ]
    return _part_appended(self, number, answer)


def _keep_the_room_of_what_failed(self: AppendAdmission, number: int, answer: Any) -> list[Any]:
    part = self._frames[number].part
    effects = _part_appended(self, number, answer)
    if not isinstance(answer, list) and part is not None:
        self._admitted_bytes += part.size
        self._admitted_ns += part.ns
    return effects


MUTANTS = (
    Mutant(
        "appends behind what failed",
        "a part of a frame is appended although the log did not take the part before it",
        replaced(AppendAdmission, "_part_appended", _append_behind_what_failed),
        ("LOST", "ORDER"),
        (15381, 16708),
    ),
    Mutant(
        "counts offsets on from the first",
        "the parts of a frame are acknowledged as if nothing of others could stand between them",
        replaced(AppendAdmission, "_part_appended", _count_offsets_on_from_the_first),
        ("LOST",),
        (98750000,),
    ),
    Mutant(
        "keeps the room of what failed",
        "what the log did not take counts as admitted for ever",
        replaced(AppendAdmission, "_part_appended", _keep_the_room_of_what_failed),
        ("STUCK",),
        (98750323, 98750399),
    ),
    Mutant(
        "admits nothing that waits",
        "what waits for room is not admitted when the log is folded",
        replaced(AppendAdmission, "_let_in", lambda self: []),
        ("STUCK",),
        (98750000, 98750010),
    ),
)
