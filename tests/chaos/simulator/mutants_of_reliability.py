"""Bugs in what goes with a process, in what does not, and in what is too much."""

from __future__ import annotations

from typing import Any

from proxy.clients.attach import AttachHandler
from proxy.session.queue_limits import QueueLimits
from proxy.session.receivers import Receiver
from proxy.session.session import Session
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.client.delivery_state import DeliveryState
from waypost.frontier import join

_expire_unpersisted = Receiver.expire_unpersisted
_tell_gaps_first = AttachHandler._send_gaps_first
_take_over = DeliveryState._take_over


def _expire_in_silence(self: Receiver, upto: Any, start: Any) -> dict[Any, Any]:
    _expire_unpersisted(self, upto, start)
    return {}


def _deliver_behind_the_gap(self: AttachHandler, session: Any, receiver: Any) -> None:
    _tell_gaps_first(self, session, receiver)
    receiver.window.is_waiting = False


def _lowest_of_what_is_counted(self: QueueLimits) -> int | None:
    return next(iter(self._entries), None)


def _all_before_it_too(self: DeliveryState, batch: Any) -> None:
    given = [batch.deliver.entries[index] for index in batch.entries[batch.acknowledged : batch.delivered]]
    _take_over(self, batch)
    join(self.state.frontier, {entry.origin: entry.offset for entry in given})


MUTANTS = (
    Mutant(
        "passes over what is overtaken",
        "who was given something by priority counts as having all before it",
        replaced(DeliveryState, "_take_over", _all_before_it_too),
        ("LOST",),
        (10, 802),
    ),
    Mutant(
        "gives what was passed over",
        "who is given by priority is given what policy removed, when another owner brings it behind something later",
        replaced(DeliveryState, "_is_passed", lambda self, entry: False),
        ("ORDER",),
        kept=("64107420",),
    ),
    Mutant(
        "takes the sooner for the whole",
        "what a receiver has above its frontier is taken for its frontier",
        replaced(
            Receiver,
            "raise_selectively",
            lambda self, rows: self.raise_frontier({o: max(each) for o, each in rows.items()}),
        ),
        ("LOST",),
        kept=("mutant-1796",),
    ),
    Mutant(
        "passes over what goes",
        "receivers get past what a queue discards before that is on record",
        replaced(QueueLimits, "lowest", property(_lowest_of_what_is_counted)),
        ("LOST",),
        kept=("mutant-128",),
    ),
    Mutant(
        "expires what is unpersisted in silence",
        "what went with a process is told to nobody",
        replaced(Receiver, "expire_unpersisted", _expire_in_silence),
        ("LOST",),
        scenarios=("best_effort_after_a_restart",),
    ),
    Mutant(
        "delivers behind the gap",
        "a receiver is given what comes behind a gap before it is told of the gap",
        replaced(AttachHandler, "_send_gaps_first", _deliver_behind_the_gap),
        ("LOST",),
        kept=("5001263", "5002786", "5007424"),
        rule=21,
    ),
    Mutant(
        "stores nothing",
        "what receivers of persistent events are still to have is not stored",
        replaced(Session, "_must_be_stored", lambda self: False),
        ("LOST",),
        (41, 59, 84),
    ),
)
MASKED = (
    Mutant(
        "waits for what was passed over",
        "the frontier of who is given by priority stays below what policy removed, until all of a delivery is had",
        replaced(DeliveryState, "_advance", lambda self: None),
        masked_by="ranks: what comes behind something later of its rank is passed over",
    ),
)
