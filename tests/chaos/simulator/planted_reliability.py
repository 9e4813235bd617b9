"""Bugs in what goes with a process, in what does not, and in what is too much."""

from __future__ import annotations

from typing import Any

from proxy.quota import Quota
from proxy.receivers import Receiver
from proxy.session import Session
from tests.chaos.simulator.planting import Plant, replaced

_lapse = Receiver.lapse


def _lapse_in_silence(self: Receiver, upto: Any, start: Any) -> dict[Any, Any]:
    _lapse(self, upto, start)
    return {}


def _lowest_of_what_is_counted(self: Quota) -> int | None:
    return next(iter(self._kept), None)


PLANTS = (
    Plant(
        "passes over what goes",
        "receivers get past what a queue discards before that is on record",
        replaced(Quota, "lowest", property(_lowest_of_what_is_counted)),
        ("LOST",),
        (23, 687, 840),
    ),
    Plant(
        "lapses in silence",
        "what went with a process is told to nobody",
        replaced(Receiver, "lapse", _lapse_in_silence),
        ("LOST",),
        stories=("best_effort_after_a_restart",),
    ),
    Plant(
        "stores nothing",
        "what receivers of persistent events are still to have is not stored",
        replaced(Session, "_must_be_stored", lambda self: False),
        ("LOST",),
        (327, 347, 461),
    ),
)
