"""Bugs in retention, deletion, copies that go on, and relays."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from chaos.simulator.environment.fake_backends import PlainRegistry
from federation.site.state import SiteState, Snapshot
from proxy.clients import attach, durable_reply
from proxy.clients.connection import Connection
from proxy.clients.delivery import DeliveryHandler
from proxy.clients.dispatcher import ClientDispatcher
from proxy.clients.relay_near import NearRelays
from proxy.core.environment import Environment
from proxy.session import best_effort
from proxy.session.former_receivers import FormerReceivers
from proxy.session.receivers import Receiver
from proxy.session.session import Session
from proxy.session.stored_notification import Entry
from proxy.session.subscription import Subscription
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.checkpoint import ReceiverRow, SubscriptionRow
from waypost.client.connector import Connector, ConnectorState, Lost
from waypost.client.events import PublishFailed, Redirected, Retry
from waypost.client.protocol import ClientProtocol
from waypost.client.roaming import ProxyChooser
from waypost.clock import NEVER
from waypost.identity import NOTHING, Origin, Ownership, ReceiverId, SessionId
from waypost.messages import Attach, Attached, Attestation, Attested

_of, _made, _begin, _know = Subscription.of, Session.__init__, NearRelays.begin, SiteState.begin
_has_left_since = FormerReceivers.has_left_since
_follow, _lost, _open_next = Connector._follow, Connector._lost, Connector._open_next
_row = Receiver.row
_enter, _put_on_record = Connector._enter, ClientDispatcher._put_on_record
_forget, _attached, _expire_unpersisted = PlainRegistry.forget, ClientProtocol._attached, best_effort.expire_unpersisted


def _of_undecided(row: SubscriptionRow) -> Subscription:
    made = _of(row)
    made.expired_below = made.displaced_below = 0
    return made


def _record_meanwhile(self: DeliveryHandler, session: Session, receiver: Receiver, gone: list[Entry]) -> None:
    removed_by = session.retention.removed_by
    removed = [(stored.origin, stored.offset, removed_by(number, matched)) for number, stored, matched in gone]
    self._expiry.note(session, removed)
    receiver.window.recorded |= {number for number, _, _ in gone}


def _attest_at_once(self: ClientDispatcher, connection: Connection, attestations: list[Attestation]) -> None:
    _put_on_record(self, connection, attestations)
    self._send(connection, Attested(attestations[-1].number))


def _made_as_one_copy(self: Session, *given: Any) -> None:
    _made(self, *given)
    self.copy = "the copy"


def _begin_by_connection(self: NearRelays, connection: Connection, attach: Attach, home: Any, departures: int) -> None:
    self._relay_count = connection.number - 1
    _begin(self, connection, attach, home, departures)


def _attached_to_the_relay(self: ClientProtocol, message: Attached) -> None:
    _attached(self, message)
    self._owner = self.proxy


def _row_without_coordinates(self: Receiver) -> ReceiverRow:
    return msgspec.structs.replace(_row(self), selective={})


def _row_without_frontier(self: Receiver) -> ReceiverRow:
    return msgspec.structs.replace(_row(self), frontier={})


def _coordinates_read_here(
    self: Environment, session: Session, coordinates: Mapping[Origin, Iterable[int]]
) -> dict[Origin, list[int]]:
    read = self.state.frontier
    return {
        origin: [offset for offset in offsets if offset <= read.get(origin, NOTHING)]
        for origin, offsets in coordinates.items()
    }


def _forget_without_floor(self: PlainRegistry, deleted: Mapping[SessionId, Ownership]) -> None:
    _forget(self, deleted)
    self.generation_floor = 0


def _begin_at_the_log(self: SiteState, first: int, known: Snapshot | None, log_epoch: int = 1) -> None:
    _know(self, first, None, log_epoch)


def _unavailable_for_all(self: ClientDispatcher, session: SessionId, reason: Any) -> None:
    self._deferred.pop(session, None)
    self.attach_handler.unavailable(session, reason)


def _attached_without_counting_anew(self: ClientProtocol, message: Attached) -> None:
    gaps = self._gaps
    _attached(self, message)
    self._gaps = gaps


def _expire_without_promise_floors(session: Session, upto: Mapping[Origin, int]) -> None:
    floors = [(subscription, dict(subscription.promise_floor)) for subscription in session.subscriptions.active()]
    _expire_unpersisted(session, upto)
    for subscription, floor in floors:
        subscription.promise_floor = floor


class _Never(Exception):
    """Nobody raises it."""


def _follow_all_but(kind: type) -> Any:
    def follow(self: Connector, event: Any, now_ms: int) -> list[Any]:
        return [] if isinstance(event, kind) else _follow(self, event, now_ms)

    return follow


def _lost_and_that_is_all(self: Connector, reason: str, now_ms: int) -> list[Any]:
    self._protocol.disconnected()
    self.state = ConnectorState.PAUSING
    return []


def _lost_at_the_first_address(self: Connector, lost: Lost, now_ms: int) -> list[Any]:
    effects = _lost(self, lost, now_ms)
    self._next_index = 0
    return effects


def _find_once(self: Connector, now_ms: int) -> list[Any]:
    effects = _open_next(self, now_ms)
    if self._attempts and self.state is ConnectorState.FINDING:
        self.state = ConnectorState.PAUSING
        return []
    return effects


def _enter_for_good(self: Connector, now_ms: int) -> None:
    _enter(self, now_ms)
    self._measure_at = NEVER


def _left_by_incarnation(
    self: FormerReceivers, identity: ReceiverId, incarnation: str, attach_seq: int, departures: int
) -> bool:
    return _has_left_since(self, identity, incarnation, attach_seq, sys.maxsize)


MUTANTS = (
    Mutant(
        "an earlier incarnation comes back after all",
        "what was sent before its receiver left for good, by an incarnation that nobody knows any more, registers it",
        replaced(FormerReceivers, "has_left_since", _left_by_incarnation),
        ("STUCK",),
        kept=("99555091",),
    ),
    Mutant(
        "tries one proxy of its list",
        "a client that loses its connection tries the first proxy of its list again, and no other one",
        replaced(Connector, "_lost", _lost_at_the_first_address),
        ("STUCK",),
        kept=("mutant-one-proxy-of-a-list",),
    ),
    Mutant(
        "looks for proxies once",
        "a client that was given no list of proxies looks for those that run when it starts, and not again",
        replaced(Connector, "_open_next", _find_once),
        ("STUCK",),
        (20008, 20201, 20220),
    ),
    Mutant(
        "does not go where the session is",
        "a client that is told where its session has gone stays where it is",
        replaced(Connector, "_follow", _follow_all_but(Redirected)),
        ("STUCK",),
        (20, 33, 52),
    ),
    Mutant(
        "waits for ever",
        "a client that has to wait does not ask again",
        replaced(Connector, "_follow", _follow_all_but(Retry)),
        ("STUCK",),
        (6, 7, 11),
    ),
    Mutant(
        "publishes once",
        "a client does not publish again what the log did not take",
        replaced(Connector, "_follow", _follow_all_but(PublishFailed)),
        ("STUCK",),
        (69, 82, 83),
    ),
    Mutant(
        "connects once",
        "a client that loses its connection makes no other one",
        replaced(Connector, "_lost", _lost_and_that_is_all),
        ("STUCK",),
        (41, 61, 81),
    ),
    Mutant(
        "tells a client what another owner wrote",
        "a client is told that its change was refused where the changelog has a later owner's checkpoint",
        replaced(durable_reply, "CheckpointOutdated", _Never),
        ("PROBLEM",),
        kept=("91011927",),
    ),
    Mutant(
        "policies begin anew",
        "what policy has decided does not go with the session",
        replaced(Subscription, "of", _of_undecided),
        ("POLICY",),
        (4, 7, 12),
        rule=20,
    ),
    Mutant(
        "passed before it is recorded",
        "a receiver gets past what policy removed before the journal has the record",
        replaced(DeliveryHandler, "_record", _record_meanwhile),
        ("LOST",),
        (308, 798, 2277, 2859),
        rule=21,
    ),
    Mutant(
        "attests before the journal has it",
        "a receiver is told that its attestations are on record before the journal has them",
        replaced(ClientDispatcher, "_put_on_record", _attest_at_once),
        ("BEFORE",),
        (0, 1, 2),
    ),
    Mutant(
        "copies of one name",
        "all copies of a session have one name, whoever numbered them",
        replaced(Session, "__init__", _made_as_one_copy),
        ("COPY",),
        (529, 799, 1082),
        rule=23,
    ),
    Mutant(
        "relays of one name",
        "a relay has the name of the one before it on the same connection",
        replaced(NearRelays, "begin", _begin_by_connection),
        ("LOST", "STUCK"),
        (20017, 20181, 20194),
        rule=24,
    ),
    Mutant(
        "read once",
        "what could not be read from the store is not read again",
        replaced(DeliveryHandler, "tick", lambda self: None),
        ("STUCK", "LOST"),
        scenarios=("store_that_cannot_be_read_for_a_while",),
    ),
    Mutant(
        "begins at the log",
        "a proxy with an empty disk knows only what its site's log still has",
        replaced(SiteState, "begin", _begin_at_the_log),
        ("LOST",),
        scenarios=("empty_disk_at_a_log_whose_beginning_is_gone",),
        rule=25,
    ),
    Mutant(
        "rows go without a floor",
        "the row of a deleted session goes, and nothing keeps what it said",
        replaced(PlainRegistry, "forget", _forget_without_floor),
        ("EPOCH",),
        (1, 9, 15),
        rule=28,
    ),
    Mutant(
        "waits for an attach that does not come",
        "a client asks again only at its next attach, also where it is attached as far as it knows",
        replaced(ClientProtocol, "_not_served", lambda self, error: None),
        ("STUCK",),
        kept=("64124599",),
    ),
    Mutant(
        "forgets what waited",
        "what was asked of a session that stands still is dropped when somebody else is told to wait for it",
        replaced(ClientDispatcher, "unavailable", _unavailable_for_all),
        ("STUCK",),
        kept=("76299360",),
    ),
    Mutant(
        "lets in who means an earlier session",
        "an attach that was late has a place in the next session of the name",
        replaced(attach, "_is_of_earlier_generation", lambda session, message: False),
        ("STUCK",),
        kept=("79140792",),
        rule=22,
    ),
    Mutant(
        "takes any answer",
        "a client takes the answer to what it asked of a subscription before for that to what it asks of it now",
        replaced(
            ClientProtocol, "_is_pending", lambda self, subscription, number: subscription in self._pending_requests
        ),
        ("LOST",),
        kept=("78237648",),
        rule=6,
    ),
    Mutant(
        "attests the relay",
        "a receiver attests that the proxy which relays has delivered, and not the owner",
        replaced(ClientProtocol, "_attached", _attached_to_the_relay),
        ("OWNER",),
        (43, 98, 251),
    ),
    Mutant(
        "coordinates in memory alone",
        "store, changelog and copies have no coordinates above a receiver's frontier",
        replaced(Receiver, "row", _row_without_coordinates),
        ("TWICE",),
        scenarios=("a_receiver_loses_its_state_before_a_failover",),
    ),
    Mutant(
        "frontiers in memory alone",
        "store, changelog and copies have no frontiers of receivers",
        replaced(Receiver, "row", _row_without_frontier),
        ("TWICE",),
        (249,),
    ),
    Mutant(
        "coordinates that were read here",
        "coordinates count as had only where this proxy has read them, although the session has taken them elsewhere",
        replaced(Environment, "confirmed_coordinates", _coordinates_read_here),
        ("TWICE",),
        scenarios=("a_receiver_loses_its_state_where_a_link_is_slow",),
        rule=30,
    ),
    Mutant(
        "stays far",
        "a roaming client never confirms that another proxy is nearer",
        replaced(ProxyChooser, "nearer", lambda self, here, round_trips, now_ms: None),
        ("FAR",),
        (28, 31, 37),
        scenarios=("a_client_comes_nearer_to_another_proxy",),
    ),
    Mutant(
        "knows no other proxy",
        "a roaming client does not keep the proxies that its proxy names",
        replaced(ProxyChooser, "replace_named", lambda self, proxies, here: None),
        ("FAR",),
        (37, 57, 162),
    ),
    Mutant(
        "measures once",
        "a roaming client measures no round trip while it is connected",
        replaced(Connector, "_enter", _enter_for_good),
        ("FAR",),
        (28, 31, 37),
        scenarios=("a_client_comes_nearer_to_another_proxy",),
    ),
)
MASKED = (
    Mutant(
        "wakes what was deleted",
        "what a store or a changelog has of a deleted session counts for the next one of its name",
        replaced(Ownership, "is_later_generation_than", lambda self, epoch: False),
        rule=22,
        masked_by="disks that have no earlier copy of a session when it is made or rebuilt",
    ),
    Mutant(
        "counts gaps on",
        "a client that is let in twice on one connection goes on with the count of gaps that it has heard",
        replaced(ClientProtocol, "_attached", _attached_without_counting_anew),
        masked_by="pauses of clients as long as the library's, which leave it no moment in thousands of schedules",
    ),
    Mutant(
        "promises what was let pass",
        "receivers of best-effort events get past what nobody was promised yet, and it may still be promised",
        replaced(best_effort, "expire_unpersisted", _expire_without_promise_floors),
        rule=7,
        masked_by="pauses of clients as long as the library's, which leave it no moment in thousands of schedules",
    ),
)
