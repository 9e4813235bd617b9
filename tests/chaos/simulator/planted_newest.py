"""Bugs in retention, deletion, copies that go on, and relays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos.simulator.parts import PlainRegistry
from federation.site_state import SiteState, Snapshot
from proxy import attaching
from proxy.connection import Connection
from proxy.delivering import Delivering
from proxy.door import Door
from proxy.receivers import Receiver
from proxy.relay_near import NearEnds
from proxy.session import Session
from proxy.stored import Entry
from proxy.subscription import Subscription
from tests.chaos.simulator.planting import Plant, replaced
from waypost.checkpoint import SubscriptionRow
from waypost.client.machine import ClientMachine
from waypost.identity import Origin, Ownership, SessionId
from waypost.messages import Attach, Attached

_of, _made, _begin, _know = Subscription.of, Session.__init__, NearEnds.begin, SiteState.begin
_forget, _attached, _lapse = PlainRegistry.forget, ClientMachine._attached, Session.lapse


def _of_undecided(row: SubscriptionRow) -> Subscription:
    made = _of(row)
    made.expired_below = made.displaced_below = 0
    return made


def _record_meanwhile(self: Delivering, session: Session, receiver: Receiver, gone: list[Entry]) -> None:
    why = session.retention.why
    removed = [(stored.origin, stored.offset, why(number, matched)) for number, stored, matched in gone]
    self._sweeps.note(session, removed)
    receiver.recorded |= {number for number, _, _ in gone}


def _made_as_one_copy(self: Session, *given: Any) -> None:
    _made(self, *given)
    self.copy = "the copy"


def _begin_by_connection(self: NearEnds, connection: Connection, attach: Attach, home: Any) -> None:
    self._begun = connection.number - 1
    _begin(self, connection, attach, home)


def _forget_without_floor(self: PlainRegistry, deleted: Mapping[SessionId, Ownership]) -> None:
    _forget(self, deleted)
    self.floor = 0


def _begin_at_the_log(self: SiteState, first: int, known: Snapshot | None, log_epoch: int = 1) -> None:
    _know(self, first, None, log_epoch)


def _unavailable_for_all(self: Door, session: SessionId, reason: Any) -> None:
    self._deferred.pop(session, None)
    self.attaching.unavailable(session, reason)


def _attached_without_counting_anew(self: ClientMachine, message: Attached) -> None:
    gaps = self._gaps
    _attached(self, message)
    self._gaps = gaps


def _lapse_without_floors(self: Session, upto: Mapping[Origin, int]) -> None:
    floors = [(each, dict(each.floor)) for each in self.active()]
    _lapse(self, upto)
    for subscription, floor in floors:
        subscription.floor = floor


PLANTS = (
    Plant(
        "policies begin anew",
        "what policy has decided does not go with the session",
        replaced(Subscription, "of", _of_undecided),
        ("POLICY",),
        (4, 7, 12),
        rule=20,
    ),
    Plant(
        "passed before it is recorded",
        "a receiver gets past what policy removed before the journal has the record",
        replaced(Delivering, "_record", _record_meanwhile),
        ("LOST",),
        (308, 798),
        rule=21,
    ),
    Plant(
        "wakes what was deleted",
        "what a store or a changelog has of a deleted session counts for the next one of its name",
        replaced(Ownership, "outlives", lambda self, epoch: False),
        ("PROBLEM", "RIGHTS"),
        kept=("5021843", "5043516"),
        stories=("deleted_and_created_again_with_a_disk_that_is_full",),
        rule=22,
    ),
    Plant(
        "copies of one name",
        "all copies of a session have one name, whoever numbered them",
        replaced(Session, "__init__", _made_as_one_copy),
        ("COPY",),
        (231, 383, 406),
        rule=23,
    ),
    Plant(
        "relays of one name",
        "a relay has the name of the one before it on the same connection",
        replaced(NearEnds, "begin", _begin_by_connection),
        ("LOST", "STUCK"),
        (37, 74, 87),
        rule=24,
    ),
    Plant(
        "read once",
        "what could not be read from the store is not read again",
        replaced(Delivering, "tick", lambda self: None),
        ("STUCK", "LOST"),
        stories=("store_that_cannot_be_read_for_a_while",),
    ),
    Plant(
        "begins at the log",
        "a proxy with an empty disk knows only what its site's log still has",
        replaced(SiteState, "begin", _begin_at_the_log),
        ("LOST",),
        stories=("empty_disk_at_a_log_whose_beginning_is_gone",),
        rule=25,
    ),
    Plant(
        "rows go without a floor",
        "the row of a deleted session goes, and nothing keeps what it said",
        replaced(PlainRegistry, "forget", _forget_without_floor),
        ("EPOCH",),
        (1, 9, 15),
        rule=28,
    ),
    Plant(
        "waits for an attach that does not come",
        "a client asks again only at its next attach, also where it is attached as far as it knows",
        replaced(ClientMachine, "_not_served", lambda self, error: None),
        ("STUCK",),
        kept=("64124599",),
    ),
    Plant(
        "forgets what waited",
        "what was asked of a session that stands still is dropped when somebody else is told to wait for it",
        replaced(Door, "unavailable", _unavailable_for_all),
        ("STUCK",),
        kept=("76299360",),
    ),
    Plant(
        "promises what was let pass",
        "receivers of best-effort events get past what nobody was promised yet, and it may still be promised",
        replaced(Session, "lapse", _lapse_without_floors),
        ("LOST",),
        kept=("78128974",),
        rule=7,
    ),
    Plant(
        "lets in who means an earlier session",
        "an attach that was late has a place in the next session of the name",
        replaced(attaching, "_is_of_earlier_generation", lambda session, message: False),
        ("STUCK",),
        kept=("79140792",),
        rule=22,
    ),
    Plant(
        "takes any answer",
        "a client takes the answer to what it asked of a subscription before for that to what it asks of it now",
        replaced(ClientMachine, "_is_asked", lambda self, subscription, number: subscription in self._asked),
        ("LOST",),
        kept=("78237648",),
        rule=6,
    ),
    Plant(
        "counts gaps on",
        "a client that is let in twice on one connection goes on with the count of gaps that it has heard",
        replaced(ClientMachine, "_attached", _attached_without_counting_anew),
        ("LOST", "STUCK"),
        kept=("76329770",),
    ),
)
