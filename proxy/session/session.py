"""A session as one proxy holds it: its role, its subscriptions, what is stored, and gates.

Theory
------
*Entries* are what it has stored (proxy/session/message_queue.py): they go from the front when all receivers have them.

*Gates.* A live match is stored at once, unless the session has not caught up with its origin yet: then it waits behind
that origin's gate (handover/gate.py) until what is missing was fetched. So the session's frontier is the site's, except
for gated origins, where it is what was seen of them, and for those of which a handover or a catch-up brought more than
the site's log has brought here (`seen_beyond_log`).

*Roles.* The registry says who owns a session, the role says what this copy has to do with that. It changes as
:data:`CHANGES` says and in no other way.

All that is no entry is the descriptor: it is what travels, what is kept in a checkpoint, and what the store has beside
the entries. Whatever of a session must outlive its copy here stands in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import msgspec

from handover.gate import Gate
from proxy.session.gaps import Gaps
from proxy.session.message_queue import MessageQueue
from proxy.session.queue_limits import QueueLimits
from proxy.session.receivers import Receiver, Receivers
from proxy.session.retention import Matched, Retention
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Subscription
from waypost.access import Grant
from waypost.checkpoint import Descriptor, GapRow, Rank, ReceiverRow, ReceiverTombstone
from waypost.errors import Internal, LimitExceeded
from waypost.facts import GapCause
from waypost.frontier import join
from waypost.identity import (
    NOTHING,
    Epoch,
    Incarnation,
    Origin,
    ProxyId,
    ReceiverId,
    SessionId,
    SubscriptionId,
    site_of,
)
from waypost.keys import OPEN, Protection
from waypost.limits import DELIVERY_BATCH, MAX_DESCRIPTOR_BYTES, UNREGISTERED_REMEMBERED
from waypost.messages import DeliverEncoded
from waypost.notification import Value
from waypost.queue import UNBOUNDED, Queue
from waypost.reliability import PERSISTENT, Reliability

ROOM_CHECKS = 16
"""One in so many checks of the descriptor's size measures it."""


class Role(Enum):
    """What this copy of the session is. Only a SERVING one delivers or accepts changes."""

    SHADOW = "shadow"
    """A target's: all origins gated, the cut not known yet."""
    STAGED = "staged"
    """A target's, merged and stored, waiting for the registry."""
    DORMANT = "dormant"
    """Ours by the store; the epoch of this start of serving is not taken yet."""
    SERVING = "serving"
    FROZEN = "frozen"
    """A source's, still at its cut; the registry decides what becomes of it."""
    ORPHAN = "orphan"
    """A staged copy whose transfer ended with our lease or with the process: ours if the row has its very epoch, or if
    the row has the epoch before and the copy commits after all."""


CHANGES = {
    (Role.SHADOW, Role.STAGED): "merge",
    (Role.STAGED, Role.SERVING): "commit",
    (Role.STAGED, Role.ORPHAN): "the transfer is gone",
    (Role.ORPHAN, Role.DORMANT): "the row has its epoch, or was given it",
    (Role.DORMANT, Role.SERVING): "a new epoch was taken",
    (Role.SERVING, Role.FROZEN): "freeze",
    (Role.SERVING, Role.DORMANT): "the lease has ended",
    (Role.FROZEN, Role.SERVING): "thaw",
    (Role.FROZEN, Role.DORMANT): "the lease has ended",
}
"""All changes of a copy's role; there are no others."""


# Looked up once: every notification of every session asks.
SHADOW, SERVING, FROZEN = Role.SHADOW, Role.SERVING, Role.FROZEN


@dataclass(slots=True)
class AuthFailures:
    """The failed and running checks of the password of one principal of a session.

    Kept in memory only (proxy/clients/authorization.py).
    """

    failures: int = 0
    """Wrong passwords since the last right one."""
    next_ms: int = 0
    """The time before which no password is checked."""
    under_way: int = 0
    known: bytes = b""
    """A digest of the password that was right, by a key that never leaves this process."""


_Gate = Gate[tuple[StoredNotification, Matched]]


class Session:
    """The state of one session. It knows nothing of sockets, clocks, logs or the registry."""

    def __init__(self, identity: SessionId, epoch: Epoch, role: Role, *, source: ProxyId | None = None) -> None:
        self.id = identity
        self.epoch = epoch
        self.role = role
        self.term = 0
        """The number of times that this copy began to be served."""
        self.subscriptions: dict[SubscriptionId, Subscription] = {}
        self.ended: list[Subscription] = []
        """Ended subscriptions, until all receivers have what they matched before their end."""
        self.receivers = Receivers()
        self.unregistered: dict[ReceiverId, dict[Origin, int]] = {}
        """The cursors of receivers that are not registered any more: should they come back, they get nothing again."""
        self.checkpointed: Rank = (Epoch(0), 0)
        """The rank of the last checkpoint that was written of this copy."""
        self._room_checks = -1
        self._room_taken = 0
        """Bytes of the descriptor, as far as counted since it was measured."""
        self.tombstones: dict[ReceiverId, ReceiverTombstone] = {}
        self._gates: dict[Origin, _Gate] = {}
        self.seen_beyond_log: dict[Origin, int] = {}
        """By origin, an offset seen; it counts where it is above what the log of the site brings here."""
        self.interrupted_promises: list[tuple[Subscription, dict[Origin, int]]] = []
        """Promises whose writing came to its end while the session was not served: they are made anew when it is."""
        self.created_at: dict[Origin, int] = {}
        """The frontier at which the session was made: what a receiver that never acknowledged has."""
        self.entries = MessageQueue()
        self.source = source
        """The proxy that handed a staged copy over."""
        self.copy = ""
        """Its name to whom it is copied, from the first time on: in this copy, a number means one entry for ever."""
        self.delivered: Counter[ProxyId] = Counter()
        """Notifications since the last look, by the proxy at which their receivers are."""
        self.counted_since_ms = 0
        """The time of that look, in ms of the engine's clock."""
        self.served_since_ms = 0
        """The time at which it began to be served here, in ms of the engine's clock."""
        self.was_served = False
        """True if this process served it, and no other proxy had it at its epoch or a later one when that ended."""
        self.gaps = Gaps()
        self.expiry_s: int | None = None
        """The session ends when no receiver was attached for so many seconds; None: never."""
        self.idle_ms = 0
        """Time for which no receiver has been attached, while it was served and no transfer ran."""
        self.idle = False
        """True if no receiver was attached at the last look."""
        self.reliability = PERSISTENT
        """The reliability that those of its receivers may not exceed."""
        self.queue = UNBOUNDED
        """The most that it stores, by its own settings."""
        self.queue_limits: QueueLimits | None = None
        """A count of what it has stored, where that is bounded, while it is served."""
        self.access: dict[str, Grant] = {}
        """Grants by principal; without any, everybody may do everything."""
        self.auth_failures: dict[str, AuthFailures] = {}
        """The recent checks of passwords, by principal of :attr:`access`."""
        self.rebuilding = False
        """Whether it was rebuilt from its last checkpoint and has not caught up with every origin yet."""
        self.retention = Retention()
        self.retention.copying = role is SHADOW
        self._made = 0
        """Subscriptions made in this copy."""
        self._interest_expressions: tuple[str, ...] | None = ()
        """Expressions that the site must hold for it; None: they are to be found anew."""

    def become(self, role: Role) -> None:
        """Change the role. A change to FROZEN or DORMANT also drops the limits of ended subscriptions: the next start
        of serving asks for them anew.

        Raises:
            Internal: :data:`CHANGES` does not list the change.
        """
        if (self.role, role) not in CHANGES:
            raise Internal(f"session {self.id}: {self.role.value} never becomes {role.value}")
        self.role = role
        if role is Role.SERVING:
            self.term += 1
        if role in (Role.FROZEN, Role.DORMANT):
            # Whoever serves it next asks anew where they end: until then all matches that may lie below.
            for subscription in self.ended:
                subscription.limits.clear()

    # ------------------------------------------------------------ where it is served

    def name_copy(self, incarnation: Incarnation) -> None:
        """Give this copy a name for the proxies that it is copied to, unless it has one (handover rule 23).

        Args:
            incarnation: that of this proxy; with the session's epoch it makes up the name.
        """
        self.copy = self.copy or f"{incarnation}/{self.epoch}"

    def begin_rebuilding(self) -> None:
        """Note that the session was rebuilt from its last checkpoint. Until :meth:`end_rebuilding`, what it catches up,
        and is older by the time in its log than its subscriptions' times to live, is not stored.
        """
        self.rebuilding = True

    def end_rebuilding(self) -> None:
        """Note that the session has caught up with every origin since it was rebuilt; what it catches up later counts
        as young as it can be.
        """
        self.rebuilding = False

    def take_delivered(self, now_ms: int) -> Counter[ProxyId]:
        """Return the number of notifications delivered since the last call, by their receivers' proxy; count anew.

        Args:
            now_ms: by the engine's clock.
        """
        self.counted_since_ms = now_ms
        delivered, self.delivered = self.delivered, Counter()
        return delivered

    def next_serial(self) -> int:
        """Return the serial of the next checkpoint, and use it up: 1, 2, 3, ... in each epoch (handover rule 19).

        Should another owner of that epoch have written, the changelog refuses a checkpoint whose rank is not higher.
        """
        epoch, serial = self.checkpointed
        serial = serial + 1 if epoch == self.epoch else 1
        self.checkpointed = (self.epoch, serial)
        return serial

    # ------------------------------------------------------------ its policy

    def apply_policy(self, expiry_s: int | None, reliability: Reliability, queue: Queue) -> None:
        """Set the expiry in seconds without an attached receiver (None: never), reliability, and queue bounds.

        :meth:`bound` puts the bounds in force.
        """
        self.expiry_s, self.reliability, self.queue = expiry_s, reliability, queue

    def reset_idle(self) -> None:
        """Reset the time without an attached receiver to 0."""
        self.idle_ms = 0

    def count_idle(self, grain_ms: int) -> bool:
        """Count time without a receiver, if no receiver was attached at the last call and none is attached now.

        Args:
            grain_ms: the time to add; 0: none, and False is returned.

        Returns:
            Whether the time was counted.
        """
        was_idle, self.idle = self.idle, not self.receivers.attached()
        if not self.idle:
            self.idle_ms = 0
        if not (was_idle and self.idle and grain_ms):
            return False
        self.idle_ms += grain_ms
        return True

    # ------------------------------------------------------------ subscriptions

    def active(self) -> list[Subscription]:
        """Return the subscriptions that have not ended."""
        return list(self.subscriptions.values())

    def subscriptions_changed(self) -> None:
        """Recompute what the session derives from its subscriptions: call it after each change of one. Its methods that
        add, end or replace subscriptions do so. The proxy matches by them after
        :meth:`SessionTable.subscriptions_changed`.
        """
        self._interest_expressions = None
        stored = ((number, matched) for number, _, matched in self.entries.in_memory)
        self.retention.set_subscriptions([*self.active(), *self.ended], stored)

    def add_subscription(self, subscription: Subscription) -> None:
        """Add a new subscription, and give it a generation that no other one of the session has. The caller checks that
        no active subscription has its id: it would be overwritten.

        The generation is made of the epoch and a number: no other copy of the session ever serves at this epoch.
        """
        self._made += 1
        subscription.generation = f"{self.epoch}/{self._made}"
        self.subscriptions[subscription.id] = subscription
        self.subscriptions_changed()

    def end_subscription(self, identity: SubscriptionId, at: Mapping[Origin, int]) -> Subscription:
        """End a subscription, and return it; it stays in :attr:`ended` until all receivers have what it matched.

        Args:
            at: origin -> the last offset that it still matches; UNKNOWN_END: not known yet.

        Raises:
            KeyError: there is no such subscription.
        """
        subscription = self.subscriptions.pop(identity)
        subscription.end = dict(at)
        for earlier in self.generations(identity):
            earlier.replaced = False
        self.ended.append(subscription)
        self.subscriptions_changed()
        return subscription

    def known_ends(self) -> frozenset[tuple[str, frozenset[tuple[Origin, int]]]]:
        """Return (generation, known ends by origin) of each ended subscription, in a form that can be compared. Origins
        in which the end is not known are left out.
        """
        return frozenset((ended.generation, frozenset(ended.known_end.items())) for ended in self.ended)

    def resolve_ends(self, resolved: Iterable[tuple[Subscription, Mapping[Origin, int]]]) -> None:
        """Set ends of ended subscriptions that are known by now.

        Args:
            resolved: an ended subscription, and origin -> the last offset that it matches; others stay.
        """
        for subscription, at in resolved:
            subscription.end = {**(subscription.end or {}), **at}
            for origin in at:
                subscription.limits.pop(origin, None)
        self.subscriptions_changed()

    def replace_subscription(self, following: Subscription, at: Mapping[Origin, int]) -> Subscription:
        """Replace a subscription by its next generation, with the same id and other keys; return the one before.

        Args:
            following: the next generation; it gets a generation's name here.
            at: origin -> the last offset that the generation before matches.

        Raises:
            KeyError: there is no active subscription of that id.
        """
        before = self.subscriptions[following.id]
        before.end, before.replaced = dict(at), True
        self.ended.append(before)
        self.add_subscription(following)
        return before

    def generations(self, identity: SubscriptionId) -> list[Subscription]:
        """Return the active subscription of an id, behind its earlier generations that are still owed.

        Empty: there is none, neither active nor owed.
        """
        replaced = [
            subscription for subscription in self.ended if subscription.replaced and subscription.id == identity
        ]
        return [*replaced, self.subscriptions[identity]] if identity in self.subscriptions else replaced

    def forget_ended(self, acknowledged: Mapping[Origin, int]) -> None:
        """Forget the ended subscriptions that no receiver is owed any more, and whose end the journal has.

        Args:
            acknowledged: the frontier up to which every receiver has all (:meth:`acknowledged_by_all`).
        """
        owed = [
            sub
            for sub in self.ended
            if not sub.is_end_on_record
            or any(acknowledged.get(origin, NOTHING) < last for origin, last in (sub.end or {}).items())
        ]
        if len(owed) != len(self.ended):
            self.ended = owed
            self.subscriptions_changed()

    def interest_expressions(self) -> tuple[str, ...]:
        """Return the expressions that the site must have registered for this session: canonical, sorted, each once."""
        if self._interest_expressions is None:
            self._interest_expressions = tuple(
                sorted({subscription.expression.canonical for subscription in self.matching()})
            )
        return self._interest_expressions

    def matching(self) -> list[Subscription]:
        """Return the subscriptions that match live notifications: active ones, and those with an unknown end."""
        return [*self.active(), *(subscription for subscription in self.ended if subscription.has_unknown_end)]

    def interest_protections(self) -> dict[str, tuple[Protection, ...]]:
        """Return canonical expression -> the protections of its subscriptions, sorted, for what the site registers.

        Expressions all of whose subscriptions are open to every notification (OPEN) are left out.
        """
        needing = self.matching()
        if all(subscription.protection == OPEN for subscription in needing):
            return {}
        found: dict[str, set[Protection]] = {}
        for subscription in needing:
            found.setdefault(subscription.expression.canonical, set()).add(subscription.protection)
        return {expression: tuple(sorted(by)) for expression, by in sorted(found.items()) if by != {OPEN}}

    def all_expressions(self) -> tuple[str, ...]:
        """Return the expressions of all subscriptions, ended ones too, for a catch-up: canonical, sorted, each once."""
        return tuple(sorted({sub.expression.canonical for sub in [*self.active(), *self.ended]}))

    def match(
        self, origin: Origin, offset: int, attributes: Mapping[str, Value], protection: Protection = OPEN
    ) -> Matched:
        """Return the ids of the subscriptions that match a notification, each once; ended ones too. Empty: none.

        Args:
            origin: of the notification.
            offset: of the notification, in its origin's log.
            attributes: of the notification.
            protection: the keys of the notification; a subscription matches only if its own keys let it.
        """
        wanting = (
            sub.id
            for sub in [*self.active(), *self.ended]
            if sub.wants(origin, offset) and sub.protection.allows(protection) and sub.expression.matches(attributes)
        )
        # One that has ended may overlap one of the same name that was made since.
        return tuple(dict.fromkeys(wanting))

    def set_access(self, access: Mapping[str, Grant]) -> None:
        """Set the session's access, by principal; empty: everybody may do everything. Wrong passwords are forgotten."""
        self.access = dict(access)
        self.auth_failures.clear()

    # ------------------------------------------------------------ what comes

    def frontier(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier up to which the session has taken what it matched.

        Args:
            site: the frontier of the site log, as read here. The session's own differs from it for gated origins, and
                for those of which it has seen more; origins of which that is not known (a shadow) are left out.
        """
        seen = join(dict(site), self.seen_beyond_log)
        for origin, gate in self._gates.items():
            if gate.seen is None:
                seen.pop(origin, None)
            else:
                seen[origin] = gate.seen
        return seen

    def seen_apart(self, site: Mapping[Origin, int]) -> dict[Origin, int | None]:
        """Return origin -> the last offset seen, of the origins where the session differs from the site's frontier.

        None: not known (a shadow). The store keeps these offsets; a restored session has all of these origins gated
        there.

        Args:
            site: the frontier of the site log, as read here.
        """
        further = {origin: seen for origin, seen in self.seen_beyond_log.items() if seen > site.get(origin, NOTHING)}
        return further | {origin: gate.seen for origin, gate in self._gates.items()}

    def arrive(self, stored: StoredNotification, matched: Matched) -> bool:
        """Take a live match; tell whether it was stored at once.

        False: the notification waits behind a gate - past its bound it is dropped, and comes by catch-up -, or was seen
        before and is dropped.

        Args:
            stored: the notification.
            matched: the subscriptions that match it.
        """
        if self.seen_beyond_log and stored.offset <= self.seen_beyond_log.get(stored.origin, NOTHING):
            return False
        if not self._gates and self.role is SERVING:
            self.accept(stored, matched)
            return True
        gate = self._gates.get(stored.origin)
        if gate is None and self.role is SHADOW:
            gate = self.gate(stored.origin, None)
        elif gate is None and self.role is FROZEN:
            # Learnt after the freeze, and before its first match nothing was passed over.
            gate = self.gate(stored.origin, stored.offset - 1)
        if gate is None:
            self.accept(stored, matched)
            return True
        gate.keep(stored.offset, (stored, matched), stored.size)
        return False

    @property
    def has_policies(self) -> bool:
        """Whether a new entry may make others go, by a time to live, a maximum count, or a bounded queue."""
        return self.retention.active or self.queue_limits is not None

    def accept(self, stored: StoredNotification, matched: Matched) -> None:
        """Append a notification to the session's entries, whatever gates and frontier say. It is for what was caught up
        and for what waited at a gate; :meth:`arrive` is for the live stream. A repeat is stored twice, and the frontier
        stays.

        Args:
            matched: the subscriptions that match it; at least one.
        """
        entry = self.entries.add(stored, matched)
        self.retention.add(entry[0], matched)
        if self.queue_limits is not None:
            self.queue_limits.add(entry)

    def close_gates(self, site: Mapping[Origin, int], *, seen: Mapping[Origin, int] | None) -> None:
        """Close a gate for every origin of `site` and `seen`. It takes the place of any gate that the origin has;
        matches that waited there are dropped, and come by catch-up.

        Args:
            site: the frontier of the site log, as read here.
            seen: the frontier up to which the session has all; None: not known (a shadow).
        """
        for origin in {**site, **(seen or {})}:
            self.gate(origin, None if seen is None else seen.get(origin), site.get(origin, NOTHING))

    @property
    def gates(self) -> Mapping[Origin, _Gate]:
        """The closed gates, by origin; a view. The session alone closes and opens them."""
        return self._gates

    def gate(self, origin: Origin, seen: int | None, live_from: int | None = None) -> _Gate:
        """Close a gate for an origin, and return it; it takes the place of any gate that the origin has.

        Args:
            seen: the last offset that the session has seen; None: not known, as of a shadow.
            live_from: the offset above which live matches come, and wait; None: above `seen`.
        """
        if live_from is None:
            live_from = NOTHING if seen is None else seen
        gate = self._gates[origin] = Gate(seen, live_from)
        return gate

    def drop_gates(self) -> None:
        """Remove all gates, with what waits behind them: the session is a copy that nothing is matched for."""
        self._gates.clear()

    def begin_serving(self, epoch: Epoch, now_ms: int) -> None:
        """Change the role to SERVING at an epoch of which the registry names us the owner. Gates stay closed; entries
        that all receivers have acknowledged are dropped.

        Args:
            epoch: that of the row.
            now_ms: by the engine's clock.

        Raises:
            Internal: the session is neither dormant, staged nor frozen (:meth:`become`).
        """
        self.epoch = epoch
        self.become(Role.SERVING)
        self.was_served = True
        self.served_since_ms = self.counted_since_ms = now_ms
        self.delivered.clear()
        self.remove_acknowledged()

    def begin_at(self, frontier: Mapping[Origin, int]) -> None:
        """Set the frontier above which a session that is made now takes notifications."""
        self.created_at = dict(frontier)

    def copied_from(self, source: ProxyId, epoch: Epoch) -> None:
        """Set the proxy from which a copy comes, and its epoch: the source's, and from the merge on the wanted one."""
        self.source, self.epoch = source, epoch

    def count_delivered(self, at: ProxyId, count: int) -> None:
        """Count notifications that were delivered to a receiver whose client is connected at this proxy."""
        self.delivered[at] += count

    def raise_epoch(self, epoch: Epoch) -> None:
        """Set the epoch to a later one at which the session is known to be served; a lower one changes nothing."""
        self.epoch = max(self.epoch, epoch)

    def freeze(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Freeze a session that is served: live matches wait behind gates from here on. Return the cut.

        Args:
            site: the frontier of the site log, as read here.

        Raises:
            Internal: the session is not served.
        """
        cut = self.frontier(site)
        for origin in site:
            if origin not in self._gates:
                self.gate(origin, cut[origin])
        self.become(Role.FROZEN)
        return cut

    def merge(self, cut: Mapping[Origin, int], site: Mapping[Origin, int], oldest: int, following: int) -> None:
        """Make of a shadow a staged copy at the source's cut. Call :meth:`describe` with the descriptor at the cut, and
        :meth:`take_entries` with all entries of the source, before.

        Where the cut does not name an origin, the gate opens where coverage begins; unless the origin was promised, and
        the source has lost what it knew of it with the end of its log: then all above the promise is missing.

        Args:
            cut: the source's frontier when it froze.
            site: the frontier of the site log, as read here.
            oldest: the source's first number: entries below it went to all receivers.
            following: the number of the next entry.

        Raises:
            Internal: the session is not a shadow.
        """
        cut = {**self.promised_from(), **cut}
        for origin in {**cut, **site}:
            if origin not in self._gates:
                self.gate(origin, None, site.get(origin, NOTHING))
            self._gates[origin].seen = cut.get(origin)
        self._begin_with(oldest)
        self.entries.next_number = following
        self.entries.saved_number = max(self.entries.saved_number, oldest - 1)
        self.retention.copying = False
        self.subscriptions_changed()
        self.become(Role.STAGED)

    def open_gate(self, origin: Origin) -> None:
        """Open the gate of an origin, and store the matches behind it. The caller has asked :meth:`Gate.may_open`.

        Raises:
            KeyError: there is no gate.
        """
        gate = self._gates.pop(origin)
        gate.open(lambda _, item: self.accept(*item))
        if gate.seen is not None:
            self.seen_beyond_log[origin] = gate.seen

    # ------------------------------------------------------------ what is stored

    def unsaved(self, keep: int) -> tuple[list[Entry], int]:
        """Return the entries to store now, and the number up to which the store then has all that it must have.

        Entries that are owed only to receivers of best-effort events are stored only where memory has no room.

        Args:
            keep: the number of entries that may stay in memory.
        """
        return self.entries.unsaved(None if self._must_be_stored() else keep)

    def _must_be_stored(self) -> bool:
        if self.role in (Role.SHADOW, Role.STAGED) or not self.receivers:
            return True
        return any(
            not receiver.is_best_effort and receiver.acknowledged < self.entries.last_number
            for receiver in self.receivers.values()
        )

    def remove_acknowledged(self) -> None:
        """Drop the entries that all receivers have acknowledged; none is dropped while there are no receivers."""
        through = self.receivers.have()
        if through is not None and through >= self.entries.first_number:
            self._begin_with(through + 1)

    def ahead(self, reached: Mapping[Origin, int]) -> set[Origin]:
        """Return the origins of which a receiver has reported more than is known to exist.

        Args:
            reached: the frontier up to which the proxy has read the site log, or the session has taken.
        """
        return set().union(*(receiver.ahead(reached) for receiver in self.receivers.values()))

    def raise_frontier(self, receiver: Receiver, frontier: Mapping[Origin, int]) -> None:
        """Note that the receiver's application was given all up to a frontier that the client reported.

        The receiver's acknowledged number follows as far as entries are in memory; then entries that all receivers have
        are dropped.
        """
        if frontier:
            receiver.raise_frontier(frontier)
            for number, stored, _ in self.entries.after(receiver.acknowledged, DELIVERY_BATCH) or ():
                if stored.offset > receiver.frontier.get(stored.origin, NOTHING):
                    break
                receiver.set_acknowledged(number)
        self.remove_acknowledged()

    def learn_acknowledged(self, rows: Mapping[ReceiverId, ReceiverRow]) -> None:
        """Raise the frontiers of receivers to those of the last checkpoint of the copy's owner, before it is served.

        The changelog has what receivers had acknowledged where the store did not take it (failures, F164). Receivers
        that are not registered here are left out.

        Args:
            rows: by receiver, its row in the checkpoint.
        """
        for identity, row in rows.items():
            receiver = self.receivers.get(identity)
            if receiver is not None:
                receiver.raise_selectively(row.selective)
                self.raise_frontier(receiver, row.frontier)

    def _begin_with(self, number: int) -> None:
        self.entries.drop_below(number)
        self.retention.remove(number)
        if self.queue_limits is not None:
            self.queue_limits.remove(number)

    def bound(self, queue: Queue) -> None:
        """Bound the queue from now on, and count the entries in memory if the store has no others. Nothing is discarded
        here: :meth:`QueueLimits.surplus` chooses what is.

        Args:
            queue: the bounds; UNBOUNDED: none, but entries that are being discarded still go.
        """
        discarding = self.queue_limits.discarding if self.queue_limits is not None else {}
        self.queue_limits = None if queue == UNBOUNDED and not discarding else QueueLimits(queue)
        if self.queue_limits is None:
            return
        self.queue_limits.discarding.update(discarding)
        if self.entries.evicted_number < self.entries.first_number:
            self.queue_limits.prepend(map(self.queue_limits.measure, self.entries.in_memory), self.entries.first_number)

    def remove_entries(self, numbers: Iterable[int]) -> None:
        """Remove discarded entries, by number; the journal has to have them on record before."""
        discarded = list(numbers)
        for number in discarded:
            self.entries.remove(number)
        self.retention.leaving_one_by_one += discarded
        if self.queue_limits is not None:
            self.queue_limits.forget(discarded)

    def pass_over(self, lowest: int, gone: Iterable[tuple[int, Origin, int]]) -> None:
        """Move the detached receivers past entries that no subscription holds any more.

        Args:
            lowest: the lowest number that is still held.
            gone: (number, origin, offset) of entries below it that were swept, in order; frontiers follow them.
        """
        passed = list(gone)
        for receiver in self.receivers.values():
            receiver.pass_over(lowest, passed)
        self.remove_acknowledged()

    # ------------------------------------------------------------ receivers

    def goes_on(self, subscription: Subscription) -> bool:
        """Tell whether a subscription is active, or was replaced by its next generation with other keys.

        Else it has ended, and its id may name another one.
        """
        now = self.subscriptions.get(subscription.id)
        return now is subscription or (now is not None and subscription.replaced)

    def join(self, identity: ReceiverId, above: Mapping[Origin, int] | None = None) -> Receiver:
        """Register a new receiver, and return it; it is owed every entry that is stored, and its registration is not
        durable yet. The caller checks that the receiver is not registered.

        A receiver that was registered before is not sent again what it had then.

        Args:
            above: the frontier above which the receiver is owed notifications; None: :attr:`created_at`.
        """
        begins = join(dict(self.created_at if above is None else above), self.unregistered.pop(identity, {}))
        joined = self.receivers[identity] = Receiver(
            id=identity, acknowledged=self.entries.first_number - 1, frontier=begins, is_new=True, is_durable=False
        )
        return joined

    def record_unregistration(self, identity: ReceiverId, incarnation: str, attach_seq: int) -> None:
        """Remember that a receiver has unregistered itself (UNREGISTERED_REMEMBERED at most, the oldest go first).

        Args:
            incarnation: of the receiver.
            attach_seq: its attach counter: its attaches up to this one are void.
        """
        self.tombstones.pop(identity, None)
        self.tombstones[identity] = ReceiverTombstone(incarnation, attach_seq)
        if len(self.tombstones) > UNREGISTERED_REMEMBERED:
            del self.tombstones[next(iter(self.tombstones))]

    def has_left_since(self, identity: ReceiverId, incarnation: str, attach_seq: int) -> bool:
        """Tell whether the receiver has unregistered itself after it sent this attach.

        Args:
            incarnation: of the receiver, as the attach has it.
            attach_seq: the attach counter of the attach; 0: the client does not count, and False is returned.
        """
        tombstone = self.tombstones.get(identity)
        return tombstone is not None and tombstone.incarnation == incarnation and 0 < attach_seq <= tombstone.attach_seq

    def unregister(self, receiver: Receiver, site: Mapping[Origin, int]) -> None:
        """Remove a receiver's registration.

        After the last one no entries are left, and the session begins anew at its frontier.

        Args:
            site: the frontier of the site log, as read here.
        """
        self.unregistered[receiver.id] = dict(receiver.frontier)
        if len(self.unregistered) > UNREGISTERED_REMEMBERED:
            del self.unregistered[next(iter(self.unregistered))]
        if [*self.receivers] == [receiver.id]:
            self.created_at = self.frontier(site)
        self.receivers.pop(receiver.id, None)
        self.gaps.forget(receiver.id)
        self.remove_acknowledged()
        if not self.receivers:
            self._begin_with(self.entries.next_number)

    def next_delivery(self, receiver: Receiver, entries: Sequence[Entry], upto: int = 0) -> DeliverEncoded | None:
        """Return the receiver's next delivery, and note that it is under way. Give it no more entries than
        :meth:`Receiver.room` allows, and none that :meth:`Receiver.unrecorded` returns.

        Args:
            entries: those that follow the last one sent, in order of number.
            upto: there are no other entries up to this number.

        Returns:
            None: the receiver is to have none of them; its cursor is past them, and entries that all receivers have are
            dropped.
        """
        delivery = receiver.next_delivery(self.epoch, entries, self.retention, upto)
        if delivery is None:
            self.remove_acknowledged()
        return delivery

    def acknowledged_frontier(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier at which a failover would begin: every receiver of persistent events has all up to it.

        Without receivers it is :attr:`created_at`; if all are receivers of best-effort events, it is the session's
        frontier.

        Args:
            site: the frontier of the site log, as read here.
        """
        if not self.receivers:
            return dict(self.created_at)
        return self.receivers.have_frontier(self.frontier(site), self.entries.last_number, self.promised_from())

    def acknowledged_by_all(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier up to which every receiver has all, receivers of best-effort events included.

        Without receivers it is :attr:`created_at`.

        Args:
            site: the frontier of the site log, as read here.
        """
        if not self.receivers:
            return dict(self.created_at)
        seen = self.frontier(site)
        return self.receivers.have_frontier(seen, self.entries.last_number, self.promised_from(), all_of_them=True)

    def promised_from(self) -> dict[Origin, int]:
        """Return origin -> the lowest offset above which a subscription, active or ended, was promised.

        A receiver that never reported the origin counts as having all up to there.
        """
        start: dict[Origin, int] = {}
        for subscription in [*self.active(), *self.ended]:
            for origin, above in subscription.promised.items():
                start[origin] = min(above, start.get(origin, above))
        return start

    # ------------------------------------------------------------ best effort

    def mark_caught_up(self, site: Mapping[Origin, int]) -> None:
        """Raise the frontiers of best-effort receivers that have every entry to the session's: no gap lies below it.

        Args:
            site: the frontier of the site log, as read here.
        """
        for receiver in self.receivers.values():
            if receiver.is_best_effort and receiver.acknowledged >= self.entries.last_number:
                receiver.raise_frontier(self.frontier(site))

    def expire_unpersisted(self, upto: Mapping[Origin, int]) -> None:
        """Turn the backlog of best-effort receivers, which was lost with its process, into gaps, and move them past it.

        Their frontiers move, their numbers do not (:meth:`expire_unpersisted_copy`).

        Args:
            upto: the frontier above which the session goes on.
        """
        start = self.promised_from()
        # Whoever was promised a site's notifications is owed all of its later log epochs, promised yet or not.
        sites = {site_of(origin) for origin in start}
        start |= {origin: NOTHING for origin in upto if origin not in start and site_of(origin) in sites}
        lapsing = [receiver for receiver in self.receivers.values() if receiver.is_best_effort]
        for receiver in lapsing:
            for origin, (first, last) in receiver.expire_unpersisted(upto, start).items():
                self.gaps.add(GapRow(origin, first, last, GapCause.LOST_WITH_PROCESS, [receiver.id]))
        if lapsing:
            # They get past what was promised to nobody yet, and no gap says so.
            self.raise_promise_floors(upto)

    def raise_promise_floors(self, cut: Mapping[Origin, int]) -> None:
        """Promise nothing at or below the cut, in origins without a promise; starts stay (handover rule 7, L_FIXED).

        Args:
            cut: the frontier up to which no promise is made any more.
        """
        for subscription in self.active():
            for origin, offset in cut.items():
                if origin not in subscription.promised:
                    subscription.promise_floor[origin] = max(subscription.promise_floor.get(origin, offset), offset)

    def expire_unpersisted_copy(self, upto: Mapping[Origin, int]) -> None:
        """Turn the lost backlog of best-effort receivers into gaps, and move them past all entries of this stored copy.

        Args:
            upto: the frontier above which the session goes on.
        """
        self.mark_caught_up(upto)
        self.expire_unpersisted(upto)
        for receiver in self.receivers.values():
            if receiver.is_best_effort:
                receiver.set_acknowledged(max(receiver.acknowledged, self.entries.last_number))
        self.remove_acknowledged()

    # ------------------------------------------------------------ what travels

    @property
    def described_bytes(self) -> int:
        """An estimate of the bytes of the descriptor, as :meth:`check_room` has counted them; 0 before its first call.
        Each change of the session writes them to store and changelog.
        """
        return self._room_taken

    def check_room(self, more: int) -> None:
        """Check that the descriptor still fits into a record of the changelog (MAX_DESCRIPTOR_BYTES), and count `more`
        as added: call it once for each addition.

        Far below the bound only one call in ROOM_CHECKS measures it: that costs as much as the session has receivers.

        Args:
            more: bytes that are about to be added to the descriptor.

        Raises:
            LimitExceeded: the descriptor, with `more`, would be too large.
        """
        self._room_checks += 1
        self._room_taken += more
        if self._room_taken <= MAX_DESCRIPTOR_BYTES // 2 and self._room_checks % ROOM_CHECKS:
            return
        self._room_taken = size = len(msgspec.json.encode(self.descriptor())) + more
        if size > MAX_DESCRIPTOR_BYTES:
            raise LimitExceeded(f"the session's subscriptions and receivers take {size} bytes; end some of them")

    def descriptor(self) -> Descriptor:
        """Return the descriptor: all of the session but its entries; a copy, which later changes do not reach."""
        return Descriptor(
            created_at=dict(self.created_at),
            subscriptions=[sub.row() for sub in [*self.active(), *self.ended]],
            receivers={identity: receiver.row() for identity, receiver in self.receivers.items()},
            expiry_s=self.expiry_s,
            idle_ms=self.idle_ms,
            gaps=Gaps.copied(self.gaps),
            access=dict(self.access),
            unregistered={identity: dict(frontier) for identity, frontier in self.unregistered.items()},
            reliability=self.reliability,
            queue=self.queue,
            tombstones=dict(self.tombstones),
        )

    def describe(self, descriptor: Descriptor) -> None:
        """Set the whole state of the session but its entries, gates, role and epoch from a descriptor. No receiver is
        attached afterwards.
        """
        self.created_at = dict(descriptor.created_at)
        self.expiry_s, self.idle_ms = descriptor.expiry_s, descriptor.idle_ms
        self.gaps = Gaps.copied(descriptor.gaps)
        self.unregistered = {identity: dict(frontier) for identity, frontier in descriptor.unregistered.items()}
        self.reliability, self.queue = descriptor.reliability, descriptor.queue
        self.tombstones = dict(descriptor.tombstones)
        self.set_access(descriptor.access)
        listed = [Subscription.of(row) for row in descriptor.subscriptions]
        self.subscriptions = {sub.id: sub for sub in listed if sub.end is None}
        self.ended = [sub for sub in listed if sub.end is not None]
        self.subscriptions_changed()
        self.receivers = Receivers(
            {identity: Receiver.of(identity, row) for identity, row in descriptor.receivers.items()}
        )

    def renumber(self) -> None:
        """Reset the receivers' numbers and the state of retention in a rebuilt session without entries: the entries are
        fetched again, and numbered from 1.
        """
        for receiver in self.receivers.values():
            receiver.renumber()
        self.retention.reset()

    def take_entries(self, entries: Iterable[Entry]) -> None:
        """Append entries that another proxy has numbered, in ascending order; repeats are dropped."""
        for entry in entries:
            if self.entries.append_numbered(entry):
                number, _, matched = entry
                self.retention.add(number, matched)
