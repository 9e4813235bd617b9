"""Planted bugs of log epochs: a site log that lost its end (handover rule 27)."""

from __future__ import annotations

from federation.history import HistoryAnswer
from federation.messages import CaughtUp
from federation.site_state import SiteState
from proxy.coverage import Coverage
from tests.chaos.simulator.planting import Plant, replaced

_answer = HistoryAnswer.answer


def _answer_without_loss(self: HistoryAnswer) -> CaughtUp:
    answer = _answer(self)
    return CaughtUp(answer.request, answer.origin, answer.records, answer.through, answer.first_kept)


PLANTS = (
    Plant(
        "tells nobody of a lost end",
        "what was lost with the end of a log is taken for silence",
        replaced(HistoryAnswer, "answer", _answer_without_loss),
        ("LOST",),
        stories=("log_lost_its_end",),
        rule=27,
    ),
    Plant(
        "does not announce that an origin has ended",
        "a neighbour is not told that an origin has ended when its link opens again",
        replaced(SiteState, "standing_ends", lambda self, neighbour: []),
        ("LOST", "STUCK"),
        stories=("log_lost_its_end",),
        rule=27,
    ),
    Plant(
        "asks stand over a lost end",
        "what was asked of neighbours before a log lost its end counts as asked without a break",
        replaced(SiteState, "_ask_anew", lambda self, offset, neighbours: []),
        ("LOST",),
        kept=("61000807",),
        rule=27,
    ),
    Plant(
        "closes gates in memory",
        "gates that close because an origin has ended, or coverage was broken, are not written with the log position",
        replaced(Coverage, "_gates_closed", Coverage.watch),
        ("LOST",),
        kept=("64204732",),
        rule=27,
    ),
)
