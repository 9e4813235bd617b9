"""Bugs in subscriptions, gates and coverage, in what sites tell each other, in ids and in checkpoints."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec

from chaos.simulator.environment.fake_backends import PlainChangelog
from federation.links import forwarding_filter
from federation.links.endpoints import LinkEndpoints
from federation.links.filter_exchange import FilterRequester
from federation.links.forwarding_filter import ForwardingFilter
from federation.links.link_receiver import LinkReceiver
from federation.messages import LinkRecord, LinkRecords
from federation.site.acceptance import Acceptance
from federation.site.events import Covered, Event
from federation.site.neighbour_filters import Filter, NeighbourFilters
from federation.site.state import SiteState
from handover.gate import Gate
from proxy.clients.connection import Connection
from proxy.clients.dispatcher import ClientDispatcher
from proxy.clients.publish import PublishHandler
from proxy.core.environment import Environment
from proxy.core.interest import Interest
from proxy.core.journal import Journal
from proxy.ownership import incoming_transfers
from proxy.ownership.served_sessions import ServedSessions
from proxy.session.gates import Gates
from proxy.session.receivers import Receiver
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Matched, Subscription
from proxy.session.subscription_set import SubscriptionSet
from proxy.stream.coverage import Coverage
from proxy.stream.interest_repair import InterestRepair
from proxy.stream.promises import Promises
from proxy.stream.subscription_ends import SubscriptionEnds
from tests.chaos.simulator.mutation import Mutant, Switch, replaced
from waypost.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from waypost.client.delivery_state import DeliveryState
from waypost.frontier import RecentIds, join
from waypost.identity import NO_PROXY, NOTHING, Epoch, Origin, Ownership, ProxyId, ReceiverId, SiteId, SubscriptionId
from waypost.messages import Deliver, Delivery, Subscribe, Subscribed, Unsubscribe, Unsubscribed
from waypost.records import Effective, Forwarded, Progress, Record

_arrive, _deliver, _publish = Session.arrive, DeliveryState.deliver, PublishHandler._append
_effective, _announce, _fold, _receive = SiteState._effective, SiteState._announce, SiteState.fold, LinkReceiver.receive
_answered, _step = FilterRequester.answered, ForwardingFilter.step
_wants = Subscription.wants
_join, _withdraw = Session.join, ServedSessions.withdraw
_decode = msgspec.msgpack.Decoder(Delivery).decode


# ---------------------------------------------------------------- subscriptions, gates, coverage


def _put_first_of_epoch(self: PlainChangelog, checkpoint: Checkpoint) -> None:
    known = [other for other in self.latest(checkpoint.session) if other.is_first is checkpoint.is_first]
    if all(other.epoch < checkpoint.epoch for other in known):
        self.highest.put(decode_checkpoint(encode_checkpoint(checkpoint)))


def _no_gates(self: Gates, site: Mapping[Origin, int], *, seen: Mapping[Origin, int] | None) -> None:
    pass


def _answer_at_once(
    self: ClientDispatcher, connection: Connection, session: Session, message: Subscribe | Unsubscribe
) -> None:
    identity = SubscriptionId(message.subscription)
    answers = Subscribed if isinstance(message, Subscribe) else Unsubscribed
    self._send(connection, answers(identity, message.number))
    self._tell_subscription(connection, session, identity, session.subscriptions.get(identity))
    self._promises.promise(session)


def _once_attested_at_once(self: Journal, on_done: Callable[[], None]) -> None:
    on_done()


def _joins_as_durable(self: Session, identity: ReceiverId, above: Mapping[Origin, int] | None = None) -> Receiver:
    joined = _join(self, identity, above)
    joined.is_durable = True
    return joined


def _withdraw_attached(self: ServedSessions, session: Session) -> bool:
    connections = {receiver.id: receiver.connection for receiver in session.receivers.values()}
    is_ours = _withdraw(self, session)
    for receiver in session.receivers.values():
        receiver.connection = connections[receiver.id]
    return is_ours


def _forget_all_ended(self: SubscriptionSet, acknowledged: Mapping[Origin, int]) -> bool:
    self.ended = []
    return True


def _covered_without_ends(self: Coverage, session: Session, origin: Origin) -> int | None:
    if origin != self._env.state.origin and not self._sessions.interest.is_installed(session):
        return None
    return session.gates[origin].covered_from(
        self._env.state.covered_above(origin, session.subscriptions.interest_expressions())
    )


def _lift_starts(self: SubscriptionSet, cut: Mapping[Origin, int]) -> None:
    for subscription in self.active():
        for origin, offset in cut.items():
            if origin not in subscription.promised:
                low = max(subscription.promise_floor.get(origin, offset), offset)
                subscription.start[origin] = subscription.promise_floor[origin] = low


def _covered_if_unknown(self: SiteState, origin: Origin, expressions: Iterable[str]) -> int | None:
    return max([NOTHING, *(self.effective.get(expression, {}).get(origin, NOTHING) for expression in expressions)])


def _promise_before_the_report(self: Promises, session: Session) -> None:
    self._unpromised.pop(session.id, None)
    if self._sessions.serving(session.id) is session and self._sessions.interest.is_installed(session):
        for subscription in session.subscriptions.active():
            self._promise(session, subscription)


def _reached_by_report(self: Environment, session: Session) -> dict[Origin, int]:
    reached = join(dict(self.state.frontier), self.frontier(session))
    for receiver in session.receivers.values():
        join(reached, receiver.known)
    return reached


def _confirmed_as_reported(self: Environment, session: Session, frontier: Mapping[Origin, int]) -> dict[Origin, int]:
    return {origin: upto for origin, upto in frontier.items() if origin in self.state.frontier}


def _floor_of_any_report(
    self: Promises, session: Session, subscription: Subscription, origin: Origin, reached: Mapping[Origin, int]
) -> int:
    known = [receiver.known.get(origin, NOTHING) for receiver in session.receivers.values()]
    return max([subscription.promise_floor.get(origin, NOTHING), *known])


def _await_nobody(self: Promises, subscription: Subscription, due_ahead: Iterable[Origin]) -> set[Origin]:
    return set()


def _no_floor(
    self: Promises, session: Session, subscription: Subscription, origin: Origin, reached: Mapping[Origin, int]
) -> int:
    return NOTHING


# ---------------------------------------------------------------- what sites tell each other


def _effective_as_told(self: SiteState, record: Effective) -> list[Event]:
    events = _effective(self, record)
    if events:
        self.effective[record.expression][record.origin] = record.above
        events[0] = Covered(record.expression, record.origin, record.above)
    return events


def _announce_the_own(
    self: SiteState, neighbour: SiteId, expression: str, installed: Filter, origin: Origin, above: int
) -> list[Event]:
    at, installed.at = installed.at, {}
    events = _announce(self, neighbour, expression, installed, origin, above)
    installed.at = at
    return events


def _announce_before_silence(self: ForwardingFilter, offset: int, record: Record) -> list[LinkRecord]:
    with mock.patch.object(ForwardingFilter, "_silence_of", lambda self, origin: []):
        return _step(self, offset, record)


@contextmanager
def _begin_where_it_began_here() -> Iterator[None]:
    """Either of the two is enough: the announcement has the frontier, or the frontier goes before the announcement."""
    with (
        mock.patch.object(SiteState, "_announce", _announce_the_own),
        mock.patch.object(ForwardingFilter, "step", _announce_before_silence),
    ):
        yield


def _fold_and_count(self: SiteState, offset: int, record: Record) -> list[Event]:
    events = _fold(self, offset, record)
    self.frontier[self.origin] = offset
    return events


def _accept_any_leader(self: Acceptance, record: Forwarded | Progress | Effective) -> bool:
    return record.origin != self.origin and self.upstream.setdefault(record.origin, record.link) == record.link


def _hear_past_holes(self: LinkReceiver, peer: ProxyId, message: LinkRecords, now_ms: int) -> None:
    self._expected = max(self._expected, message.number)
    _receive(self, peer, message, now_ms)


# ---------------------------------------------------------------- ids, checkpoints, publishes


def _dropping_by_id(*roles: Role) -> Switch:
    """Return a switch for a proxy that drops by its id what comes to a session in these roles."""

    @contextmanager
    def switched() -> Iterator[None]:
        seen: dict[Session, set[tuple[str, str, int]]] = {}

        def arrive(self: Session, stored: StoredNotification, matched: Matched) -> bool:
            entry, known = _decode(stored.delivery), seen.setdefault(self, set())
            identity = (entry.producer, entry.incarnation, entry.sequence)
            if self.role in roles and identity in known:
                return False
            known.add(identity)
            return _arrive(self, stored, matched)

        with mock.patch.object(Session, "arrive", arrive):
            yield

    return switched


def _count_what_came(self: DeliveryState, deliver: Deliver, proxy: ProxyId) -> bool:
    had = _deliver(self, deliver, proxy)
    for identity in self._inbox_ids:
        self.state.recent.add(identity)
    return had


@contextmanager
def _last_write_wins() -> Iterator[None]:
    writes = itertools.count()
    with mock.patch.object(Checkpoint, "rank", property(lambda self: (0, next(writes)))):
        yield


def _publish_and_acknowledge(self: PublishHandler, incarnation: Any, producer: Any) -> None:
    frames, first = list(producer.waiting), self._env.state.position
    _publish(self, incarnation, producer)
    self._acknowledge(frames, list(range(first, first + sum(len(frame.records) for frame in frames))))


def _wants_beyond(self: Subscription, origin: Origin, offset: int) -> bool:
    is_beyond = self.has_unknown_end and offset > self.start.get(origin, NOTHING)
    return is_beyond or _wants(self, origin, offset)


def _gone_as_any_other(self: Ownership) -> Ownership:
    return Ownership(NO_PROXY, Epoch(self.epoch + 1))


def _takes_any_answer(self: FilterRequester, applied_serial: int, refused_serial: int) -> None:
    _answered(self, max(applied_serial, refused_serial), 0)


MUTANTS = (
    Mutant(
        "a change counts whatever it changes",
        "a request that came late, or after a loss, changes other filters than it was meant for",
        replaced(NeighbourFilters, "fits", lambda self, request: True),
        ("LOST", "STUCK", "QUENCH", "ASKS"),
        seeds=(6, 11, 19),
    ),
    Mutant(
        "a refused request counts as in force",
        "what the neighbour's log has is not what its requester believes, and nothing is stated again",
        replaced(FilterRequester, "answered", _takes_any_answer),
        ("STUCK", "ASKS", "LOST"),
        seeds=(593, 599, 600),
    ),
    Mutant(
        "ends by what the site has read",
        "a subscription ends where the site has read, not where the logs went that said so",
        replaced(SubscriptionEnds, "_end", lambda self, ending, origin, reached: reached.get(origin, NOTHING)),
        ("LOST",),
        (17567, 18356, 19459),
        rule=7,
    ),
    Mutant(
        "what has ended matches no more",
        "nothing that comes live is matched by what has ended, nobody knows yet where",
        replaced(SubscriptionSet, "matching", SubscriptionSet.active),
        ("LOST",),
        (64, 113, 159),
        rule=7,
    ),
    Mutant(
        "matches beyond a known end",
        "what has ended matches beyond its end where that is known, as long as it is not in another origin",
        replaced(Subscription, "wants", _wants_beyond),
        ("BEYOND",),
        (64, 92, 168),
        rule=7,
    ),
    Mutant(
        "gates open at once",
        "no gate waits for what is missing",
        replaced(Gate, "may_open", lambda self, covered: True),
        ("LOST",),
        (17, 24, 42),
    ),
    Mutant(
        "no gate per origin",
        "a shadow and a rebuilt session have no gates",
        replaced(Gates, "close_all", _no_gates),
        ("LOST",),
        (17, 21, 41),
    ),
    Mutant(
        "gates forget",
        "what waited behind a gate is dropped",
        replaced(Gate, "open", lambda self, take: None),
        ("LOST",),
        (10, 11, 13),
    ),
    Mutant(
        "holes look like silence",
        "a proxy does not mind that its interests were dropped",
        replaced(InterestRepair, "expired", lambda self, event: None),
        ("LOST", "STUCK"),
        scenarios=("published_while_nobody_held_it",),
        rule=3,
    ),
    Mutant(
        "tells before the journal has it",
        "promises and gaps are told before the journal has them",
        replaced(Journal, "once_attested", _once_attested_at_once),
        ("BEFORE",),
        (1, 2, 3),
    ),
    Mutant(
        "lets in who is not registered durably",
        "a receiver that attaches twice is let in before store or changelog have its registration",
        replaced(Session, "join", _joins_as_durable),
        ("BEFORE",),
        kept=("91200152",),
    ),
    Mutant(
        "speaks on for a session that is gone",
        "what was still to be told of a session that was deleted reaches the next one of its name",
        replaced(ServedSessions, "withdraw", _withdraw_attached),
        ("BEFORE",),
        kept=("91200384",),
    ),
    Mutant(
        "answered before it is kept",
        "a subscription change is answered before anything is written",
        replaced(ClientDispatcher, "_reply_when_durable", _answer_at_once),
        ("STUCK", "LOST"),
        scenarios=("subscription_that_nothing_has_taken",),
        rule=6,
    ),
    Mutant(
        "ended and forgotten",
        "an ended subscription goes before its receivers have what it matched",
        replaced(SubscriptionSet, "forget_ended", _forget_all_ended),
        ("LOST",),
        scenarios=("subscribed_again_under_the_same_name",),
        rule=7,
    ),
    Mutant(
        "ended and not fetched",
        "a catch-up asks for active subscriptions only",
        replaced(SubscriptionSet, "all_expressions", SubscriptionSet.interest_expressions),
        ("LOST",),
        scenarios=("ended_and_owed_at_a_site_that_is_behind",),
        rule=7,
    ),
    Mutant(
        "end not reached",
        "a catch-up does not run as far as the end of an ended subscription",
        replaced(Coverage, "covered_from", _covered_without_ends),
        ("LOST",),
        scenarios=("ended_and_owed_at_a_site_that_is_behind",),
        rule=7,
    ),
    Mutant(
        "floors are not lifted",
        "a takeover promises what lies below its cut",
        replaced(SubscriptionSet, "raise_promise_floors", lambda self, cut: None),
        ("LOST",),
        scenarios=("nothing_below_the_cut_is_promised",),
        rule=7,
    ),
    Mutant(
        "merged for an old descriptor",
        "the merge does not mind that the subscriptions changed while the copy ran",
        replaced(incoming_transfers, "_interests", lambda session: set()),
        ("LOST",),
        scenarios=("subscribed_while_the_copy_runs",),
        rule=8,
    ),
    Mutant(
        "unknown means covered",
        "an origin of which no coverage is known counts as covered",
        replaced(SiteState, "covered_above", _covered_if_unknown),
        ("LOST",),
        (20045, 20049, 20058),
        rule=8,
    ),
    Mutant(
        "broken and not gated",
        "a session is not gated when its installation breaks",
        replaced(Coverage, "broken", lambda self, session: None),
        ("LOST",),
        scenarios=("published_while_nobody_held_it",),
        rule=9,
    ),
    Mutant(
        "given and taken back",
        "a proxy that took a session back does not mind to read late that it had let go of it",
        replaced(InterestRepair, "withdrawn", lambda self, event: None),
        ("LOST",),
        scenarios=("taken_back_before_the_log_knows_that_it_was_given",),
        rule=9,
    ),
    Mutant(
        "covered by others",
        "a session counts as covered before its own interest is in the log",
        replaced(Interest, "is_installed", lambda self, session: True),
        ("LOST",),
        scenarios=("held_by_another_session_for_a_while",),
        rule=9,
    ),
    Mutant(
        "promised for two hops",
        "what is passed on begins where it began here",
        _begin_where_it_began_here,
        ("LOST",),
        scenarios=("promised_at_the_end_of_a_line_of_sites",),
        rule=11,
    ),
    Mutant(
        "announced once",
        "announcements are not said again when a link opens",
        replaced(ForwardingFilter, "hello", lambda self: []),
        ("STUCK", "LOST"),
        (18, 21, 33),
        rule=12,
    ),
    Mutant(
        "removed in silence",
        "a link that begins behind what retention removed announces what it announced before",
        replaced(forwarding_filter, "_from_here", lambda effective, frontier: effective),
        ("LOST",),
        scenarios=("retention_has_removed_what_a_catch_up_needs", "retention_at_the_head_of_a_line_of_sites"),
        rule=12,
    ),
    Mutant(
        "promised where the site is covered",
        "a promise looks neither at what receivers reported nor at where the subscription began",
        replaced(Promises, "_floor", _no_floor),
        ("LOST",),
        scenarios=("nothing_is_promised_that_a_receiver_has_passed",),
        rule=13,
    ),
    Mutant(
        "subscribed above any report",
        "a subscription begins above whatever a receiver has reported",
        replaced(Environment, "reached", _reached_by_report),
        ("LOST",),
        scenarios=("a_receiver_has_a_state_of_another_log",),
        rule=30,
    ),
    Mutant(
        "any report counts as had",
        "what a receiver reports counts as had by it, whether or not it exists",
        replaced(Environment, "confirmed", _confirmed_as_reported),
        ("LOST", "STUCK"),
        scenarios=("a_receiver_has_a_state_of_another_log",),
        rule=30,
    ),
    Mutant(
        "promised above any report",
        "a promise is made above whatever a receiver has reported",
        replaced(Promises, "_floor", _floor_of_any_report),
        ("LOST",),
        scenarios=("a_receiver_has_a_state_of_another_log",),
        rule=30,
    ),
    Mutant(
        "nobody ahead is awaited",
        "a promise is made at once, although a receiver has reported more than was read",
        replaced(Promises, "_awaited", _await_nobody),
        ("LOST",),
        scenarios=("a_receiver_has_more_than_the_new_owner_has_read",),
        rule=30,
    ),
    Mutant(
        "promised before the report",
        "a promise is made although no receiver has reported since the session was rebuilt",
        replaced(Promises, "promise", _promise_before_the_report),
        ("LOST",),
        scenarios=("nothing_is_promised_before_a_receiver_has_reported",),
        rule=13,
    ),
    Mutant(
        "markers count",
        "a site's own frontier is the offset of its last record, whatever it is",
        replaced(SiteState, "fold", _fold_and_count),
        ("STUCK",),
        (0, 1, 4),
        rule=14,
    ),
    Mutant(
        "drop markers",
        "a link does not speak of what it passed over in silence",
        replaced(ForwardingFilter, "progress_markers", lambda self: []),
        ("STUCK",),
        (4, 6, 7),
    ),
    Mutant(
        "holes in a link",
        "the leader of a link does not notice that a message is missing",
        replaced(LinkReceiver, "receive", _hear_past_holes),
        ("LOST",),
        (25, 49, 56),
    ),
    Mutant(
        "id counts too early",
        "the library remembers an id before its notification was given",
        replaced(DeliveryState, "deliver", _count_what_came),
        ("LOST",),
        (60, 102, 109),
        rule=17,
    ),
    Mutant(
        "no recent ids",
        "the library keeps no ids",
        replaced(RecentIds, "__contains__", lambda self, identity: False),
        ("TWICE",),
        (24, 82, 83),
        rule=18,
    ),
    Mutant(
        "last checkpoint wins",
        "of two checkpoints the one that was written last counts",
        _last_write_wins,
        ("LOST",),
        (22, 251, 255),
        rule=19,
    ),
    Mutant(
        "first checkpoint wins",
        "of the checkpoints of an epoch the first one counts",
        replaced(PlainChangelog, "put", _put_first_of_epoch),
        ("LOST",),
        (42, 81, 84),
        rule=19,
    ),
    Mutant(
        "checkpoint ahead of its receivers",
        "a checkpoint says that all receivers have what the session has",
        replaced(Session, "acknowledged_frontier", Session.frontier),
        ("LOST",),
        (20062, 20177, 20237),
    ),
    Mutant(
        "published before it is kept",
        "a publish is acknowledged before the log has it",
        replaced(PublishHandler, "_append", _publish_and_acknowledge),
        ("LOST",),
        (2, 5, 9),
    ),
)


MASKED = (
    Mutant(
        "a failed correction stands",
        "a neighbour's earlier request came to the log behind its last one, and it is told that the last one stands",
        replaced(LinkEndpoints, "_not_applied", lambda endpoints, request: None),
        rule=12,
        masked_by="links that compare the log with what was folded before they send, in thousands of schedules",
    ),
    Mutant(
        "deleted as any other change",
        "a session that is created again goes on with the epochs of the one that was deleted",
        replaced(Ownership, "gone", _gone_as_any_other),
        rule=22,
        masked_by="first checkpoints of a higher epoch, which are there before the row is",
    ),
    Mutant(
        "starts are lifted",
        "a takeover lifts the start of what was not promised",
        replaced(SubscriptionSet, "raise_promise_floors", _lift_starts),
        rule=7,
        masked_by="floors, lifted with the starts: nothing below a cut is promised",
    ),
    Mutant(
        "covered as told",
        "coverage begins where the announcement says, also below the site's own frontier",
        replaced(SiteState, "_effective", _effective_as_told),
        rule=10,
        masked_by="starts, floors and gates, none of which begins below the site's own frontier",
    ),
    Mutant(
        "stale leaders count",
        "what an earlier leader of a link still appends counts",
        replaced(Acceptance, "accept", _accept_any_leader),
        masked_by="senders that filter by the place of each record in their log, whoever asks",
    ),
    Mutant(
        "shadow drops by id",
        "a target drops the second copy of a notification while it shadows",
        _dropping_by_id(Role.SHADOW),
        rule=16,
        masked_by="sources that store the first copy too, and hand it over",
    ),
    Mutant(
        "proxy drops by id",
        "a session stores one copy of an id",
        _dropping_by_id(*Role),
        rule=17,
        masked_by="gates and starts, by which what a session took goes to its receivers, or they have it",
    ),
)
