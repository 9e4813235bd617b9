"""Bugs in what goes with a process, in what does not, and in what is too much."""

from __future__ import annotations

from typing import Any

from proxy.attaching import Attaching
from proxy.quota import Quota
from proxy.receivers import Receiver
from proxy.session import Session
from tests.chaos.simulator.planting import Plant, replaced
from waypost.client.receiving import Receiving
from waypost.frontier import join

_lapse = Receiver.lapse
_tell_gaps_first = Attaching._tell_gaps_first
_take_over = Receiving._take_over


def _lapse_in_silence(self: Receiver, upto: Any, start: Any) -> dict[Any, Any]:
    _lapse(self, upto, start)
    return {}


def _deliver_behind_the_gap(self: Attaching, session: Any, receiver: Any) -> None:
    _tell_gaps_first(self, session, receiver)
    receiver.fetching = False


def _lowest_of_what_is_counted(self: Quota) -> int | None:
    return next(iter(self._kept), None)


def _all_before_it_too(self: Receiving, batch: Any) -> None:
    given = [batch.deliver.entries[each] for each in batch.fresh[batch.had : batch.given]]
    _take_over(self, batch)
    join(self.state.frontier, {entry.origin: entry.offset for entry in given})


PLANTS = (
    Plant(
        "passes over what is overtaken",
        "who was given something by priority counts as having all before it",
        replaced(Receiving, "_take_over", _all_before_it_too),
        ("LOST",),
        (10, 802),
    ),
    Plant(
        "gives what was passed over",
        "who is given by priority is given what policy removed, when another owner brings it behind something later",
        replaced(Receiving, "_is_passed", lambda self, entry: False),
        ("ORDER",),
        kept=("64107420",),
    ),
    Plant(
        "takes the sooner for the whole",
        "what a receiver has above its frontier is taken for its frontier",
        replaced(Receiver, "had_selectively", lambda self, rows: self.had({o: max(each) for o, each in rows.items()})),
        ("LOST",),
        (263, 802),
    ),
    Plant(
        "passes over what goes",
        "receivers get past what a queue discards before that is on record",
        replaced(Quota, "lowest", property(_lowest_of_what_is_counted)),
        ("LOST",),
        (128, 747, 1370),
    ),
    Plant(
        "lapses in silence",
        "what went with a process is told to nobody",
        replaced(Receiver, "lapse", _lapse_in_silence),
        ("LOST",),
        stories=("best_effort_after_a_restart",),
    ),
    Plant(
        "delivers behind the gap",
        "a receiver is given what comes behind a gap before it is told of the gap",
        replaced(Attaching, "_tell_gaps_first", _deliver_behind_the_gap),
        ("LOST",),
        kept=("5001263", "5002786", "5007424"),
        rule=21,
    ),
    Plant(
        "stores nothing",
        "what receivers of persistent events are still to have is not stored",
        replaced(Session, "_must_be_stored", lambda self: False),
        ("LOST",),
        (11, 32, 63),
    ),
)
MASKED = (
    Plant(
        "waits for what was passed over",
        "the frontier of who is given by priority stays below what policy removed, until all of a delivery is had",
        replaced(Receiving, "_advance", lambda self: None),
        masked_by="ranks: what comes behind something later of its rank is passed over",
    ),
)
