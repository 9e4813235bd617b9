"""A session as one proxy holds it: what comes, what is stored, who has what, and how it changes its role.

It joins the values of this room: subscriptions (subscription_set.py), receivers, entries (message_queue.py: they go
from the front when all receivers have them), gates, and retention. The registry says who owns a session; the role says
what this copy has to do with that (role.py).

All that is no entry is the descriptor: it is what travels, what is kept in a checkpoint, and what the store has beside
the entries. Whatever of a session must outlive its copy here stands in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from proxy.session.auth_failures import AuthFailures
from proxy.session.delivery_count import DeliveryCount
from proxy.session.former_receivers import FormerReceivers
from proxy.session.gaps import Gaps
from proxy.session.gates import Gates
from proxy.session.idle_time import IdleTime
from proxy.session.message_queue import MessageQueue
from proxy.session.queue_limits import QueueLimits
from proxy.session.receivers import Receiver, Receivers
from proxy.session.retention import Retention
from proxy.session.role import CHANGES, Role
from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Matched, Subscription
from proxy.session.subscription_set import SubscriptionSet
from waypost.access import Grant
from waypost.checkpoint import Descriptor, Rank, ReceiverRow
from waypost.errors import Internal, LimitExceeded
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
)
from waypost.limits import DELIVERY_BATCH, MAX_DESCRIPTOR_BYTES
from waypost.messages import DeliverEncoded
from waypost.queue import UNBOUNDED, Queue
from waypost.reliability import PERSISTENT, Reliability

ROOM_CHECKS = 16
"""One in so many checks of the descriptor's size measures it."""


# Looked up once: every notification of every session asks.
SHADOW, SERVING, FROZEN = Role.SHADOW, Role.SERVING, Role.FROZEN


class Session:
    """The state of one session. It knows nothing of sockets, clocks, logs or the registry."""

    def __init__(self, identity: SessionId, epoch: Epoch, role: Role, *, source: ProxyId | None = None) -> None:
        self.id = identity
        self.epoch = epoch
        self.role = role
        self.term = 0
        """The number of times that this copy began to be served."""
        self.subscriptions = SubscriptionSet()
        self.receivers = Receivers()
        self.former_receivers = FormerReceivers()
        self.checkpointed: Rank = (epoch, 0)
        """The rank of the last checkpoint that was written of this copy; of serial 0: none was, and what it holds is of
        that epoch.
        """
        self._room_checks = 0
        self._room_taken: int | None = None
        """Bytes of the descriptor, as far as counted since it was measured; None: it was not measured yet."""
        self.gates = Gates()
        self.interrupted_promises: list[tuple[Subscription, dict[Origin, int]]] = []
        """Promises whose writing came to its end while the session was not served: they are made anew when it is."""
        self.created_at: dict[Origin, int] = {}
        """The frontier at which the session was made: what a receiver that never acknowledged has."""
        self.entries = MessageQueue()
        self.source = source
        """The proxy that handed a staged copy over."""
        self.copy = ""
        """Its name to whom it is copied, from the first time on: in this copy, a number means one entry for ever."""
        self.delivery_count = DeliveryCount()
        self.served_since_ms = 0
        """The time at which it began to be served here, in ms of the engine's clock."""
        self.was_served = False
        """True if this process served it, and no other proxy had it at its epoch or a later one when that ended."""
        self.gaps = Gaps()
        self.idle_time = IdleTime()
        """The time for which no receiver was attached; the session may end by it."""
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

    def become(self, role: Role) -> None:
        """Change the role. A change to SERVING begins another term; one to FROZEN or DORMANT drops the limits of ended
        subscriptions: the next start of serving asks for them anew.

        Raises:
            Internal: :data:`CHANGES` does not list the change.
        """
        if (self.role, role) not in CHANGES:
            raise Internal(f"session {self.id}: {self.role.value} never becomes {role.value}")
        self.role = role
        if role is Role.SERVING:
            self.term += 1
        if role in (Role.FROZEN, Role.DORMANT):
            self.subscriptions.drop_limits()

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

    def stored_after(self, rank: Rank) -> None:
        """Take the rank of the last checkpoint that was written of this copy before it was stored."""
        self.checkpointed = rank

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
        self.idle_time.expiry_s, self.reliability, self.queue = expiry_s, reliability, queue

    # ------------------------------------------------------------ subscriptions

    def subscriptions_changed(self) -> None:
        """Recompute what the session derives from its subscriptions: call it after each change of one. Its methods that
        add, end or replace subscriptions do so. Maximum counts are applied at once: what they let go of is delivered to
        nobody any more.

        The proxy matches by the subscriptions after :meth:`SessionTable.subscriptions_changed`.
        """
        self.subscriptions.changed()
        stored = ((number, matched) for number, _, matched in self.entries.in_memory)
        self.retention.set_subscriptions(self.subscriptions.all(), stored)

    def add_subscription(self, subscription: Subscription) -> None:
        """Add a new subscription, and give it a generation, as :meth:`SubscriptionSet.add` does; an active one of its
        id would be overwritten. Retention follows it at once; the proxy matches by it after
        :meth:`SessionTable.subscriptions_changed`.
        """
        self.subscriptions.add(subscription, self.epoch)
        self.subscriptions_changed()

    def end_subscription(self, identity: SubscriptionId, at: Mapping[Origin, int]) -> Subscription:
        """End a subscription, and return it, as :meth:`SubscriptionSet.end` does.

        Args:
            at: origin -> the last offset that it still matches; UNKNOWN_END: not known yet.

        Raises:
            KeyError: there is no such subscription.
        """
        ended = self.subscriptions.end(identity, at)
        self.subscriptions_changed()
        return ended

    def replace_subscription(self, following: Subscription, at: Mapping[Origin, int]) -> Subscription:
        """Replace a subscription by its next generation, and return the one before, as :meth:`SubscriptionSet.replace`
        does.

        Args:
            following: the next generation, with the same id and other keys.
            at: origin -> the last offset that the generation before matches.

        Raises:
            KeyError: there is no active subscription of that id.
        """
        before = self.subscriptions.replace(following, at, self.epoch)
        self.subscriptions_changed()
        return before

    def resolve_ends(self, resolved: Iterable[tuple[Subscription, Mapping[Origin, int]]]) -> None:
        """Set ends of ended subscriptions that are known by now.

        Args:
            resolved: an ended subscription, and origin -> the last offset that it matches; others stay.
        """
        self.subscriptions.resolve_ends(resolved)
        self.subscriptions_changed()

    def forget_ended(self, site: Mapping[Origin, int]) -> None:
        """Forget the ended subscriptions that no receiver is owed any more, and whose end the journal has.

        Args:
            site: the frontier of the site log, as read here.
        """
        if self.subscriptions.ended and self.subscriptions.forget_ended(self.acknowledged_by_all(site)):
            self.subscriptions_changed()

    # ------------------------------------------------------------ its access

    def set_access(self, access: Mapping[str, Grant]) -> None:
        """Set the session's access, by principal; empty: everybody may do everything. Wrong passwords are forgotten."""
        self.access = dict(access)
        self.auth_failures.clear()

    # ------------------------------------------------------------ what comes

    def frontier(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier up to which the session has taken what it matched (:meth:`Gates.frontier`).

        Args:
            site: the frontier of the site log, as read here.
        """
        return self.gates.frontier(site)

    def arrive(self, stored: StoredNotification, matched: Matched) -> bool:
        """Take a live match; tell whether it was stored at once.

        False: the notification waits behind a gate - past its bound it is dropped, and comes by catch-up -, or was seen
        before and is dropped.

        Args:
            stored: the notification.
            matched: the subscriptions that match it.
        """
        gates = self.gates
        if gates.seen_beyond_log and stored.offset <= gates.seen_beyond_log.get(stored.origin, NOTHING):
            return False
        if not gates and self.role is SERVING:
            self.accept(stored, matched)
            return True
        gate = gates.get(stored.origin)
        if gate is None and self.role is SHADOW:
            gate = gates.close(stored.origin, None)
        elif gate is None and self.role is FROZEN:
            # Learnt after the freeze, and before its first match nothing was passed over.
            gate = gates.close(stored.origin, stored.offset - 1)
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
        self.served_since_ms = now_ms
        self.delivery_count.restart(now_ms)
        self.remove_acknowledged()

    def begin_at(self, frontier: Mapping[Origin, int]) -> None:
        """Set the frontier above which a session that is made now takes notifications."""
        self.created_at = dict(frontier)

    def copied_from(self, source: ProxyId, epoch: Epoch) -> None:
        """Set the proxy from which a copy comes, and its epoch: the source's, and from the merge on the wanted one."""
        self.source, self.epoch, self.checkpointed = source, epoch, (epoch, 0)

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
            if origin not in self.gates:
                self.gates.close(origin, cut[origin])
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
        cut = {**self.subscriptions.promised_from(), **cut}
        for origin in {**cut, **site}:
            if origin not in self.gates:
                self.gates.close(origin, None, site.get(origin, NOTHING))
            self.gates[origin].seen = cut.get(origin)
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
        gate = self.gates.pop(origin)
        gate.open(lambda _, item: self.accept(*item))
        if gate.seen is not None:
            self.gates.seen_beyond_log[origin] = gate.seen

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

    def reported_beyond(self, reached: Mapping[Origin, int]) -> set[Origin]:
        """Return the origins of which a receiver has reported more than is known to exist.

        Args:
            reached: the frontier up to which the proxy has read the site log, or the session has taken.
        """
        return set().union(*(receiver.reported_beyond(reached) for receiver in self.receivers.values()))

    def raise_frontier(self, receiver: Receiver, frontier: Mapping[Origin, int]) -> None:
        """Note that the receiver's application was given all up to a frontier that the client reported.

        The receiver's acknowledged number follows over at most DELIVERY_BATCH entries, and not at all where the next
        one is in the store only; then entries that all receivers have are dropped.
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
        """Bound the queue from now on, and count the entries in memory if the store has no others; else nothing is
        chosen before the others are counted (:attr:`QueueLimits.known`). Nothing is discarded here:
        :meth:`QueueLimits.surplus` chooses what is. :attr:`queue` stays as it is.

        Args:
            queue: the bounds; UNBOUNDED: none, but entries that are being discarded still go.
        """
        discarding = self.queue_limits.discarding if self.queue_limits is not None else {}
        self.queue_limits = None if queue == UNBOUNDED and not discarding else QueueLimits(queue)
        if self.queue_limits is None:
            return
        self.queue_limits.discarding.update(discarding)
        if self.entries.unloaded_number < self.entries.first_number:
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
        """Move the detached receivers past entries that no subscription holds any more; then entries that all receivers
        have are dropped.

        Args:
            lowest: the lowest number that is still held.
            gone: (number, origin, offset) of entries below it that were swept, in order; frontiers follow them.
        """
        passed = list(gone)
        for receiver in self.receivers.values():
            receiver.pass_over(lowest, passed)
        self.remove_acknowledged()

    # ------------------------------------------------------------ receivers

    def join(self, identity: ReceiverId, above: Mapping[Origin, int] | None = None) -> Receiver:
        """Register a new receiver, and return it; it is owed every entry that is stored, and its registration is not
        durable yet. The caller checks that the receiver is not registered.

        A receiver that was registered before is not sent again what it had then.

        Args:
            above: the frontier above which the receiver is owed notifications; None: :attr:`created_at`.
        """
        begins = join(dict(self.created_at if above is None else above), self.former_receivers.take_frontier(identity))
        joined = self.receivers[identity] = Receiver(
            id=identity, acknowledged=self.entries.first_number - 1, frontier=begins, is_new=True, is_durable=False
        )
        return joined

    def unregister(self, receiver: Receiver, site: Mapping[Origin, int]) -> None:
        """Remove a receiver's registration; the caller has it on record, and no client attached as it.

        Its frontier is remembered, so that it gets nothing again should it come back; its gaps are forgotten, and
        entries that only it was owed are dropped. After the last receiver no entries are left, and the session begins
        anew at its frontier.

        Args:
            site: the frontier of the site log, as read here.
        """
        self.former_receivers.remember(receiver.id, receiver.frontier)
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
        return self.receivers.have_frontier(
            self.frontier(site), self.entries.last_number, self.subscriptions.promised_from()
        )

    def acknowledged_by_all(self, site: Mapping[Origin, int]) -> dict[Origin, int]:
        """Return the frontier up to which every receiver has all, receivers of best-effort events included.

        Without receivers it is :attr:`created_at`.

        Args:
            site: the frontier of the site log, as read here.
        """
        if not self.receivers:
            return dict(self.created_at)
        seen = self.frontier(site)
        return self.receivers.have_frontier(
            seen, self.entries.last_number, self.subscriptions.promised_from(), all_of_them=True
        )

    # ------------------------------------------------------------ what travels

    @property
    def described_bytes(self) -> int:
        """An estimate of the bytes of the descriptor, measured now and then, with what :meth:`check_room` has counted
        since. Each change of the session writes them to store and changelog.
        """
        if self._room_taken is None:
            self._room_taken = len(msgspec.json.encode(self.descriptor()))
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
        if self.described_bytes + more > MAX_DESCRIPTOR_BYTES // 2 or self._room_checks % ROOM_CHECKS == 0:
            self._room_taken = None
        taken = self.described_bytes
        if taken + more > MAX_DESCRIPTOR_BYTES:
            raise LimitExceeded(
                f"the session's subscriptions and receivers take {taken + more} bytes; end some of them"
            )
        self._room_taken = taken + more

    def return_room(self, less: int) -> None:
        """Count `less` bytes, which :meth:`check_room` has counted, as not added after all."""
        self._room_taken = max(0, self.described_bytes - less)

    def descriptor(self) -> Descriptor:
        """Return the descriptor: all of the session but its entries; a copy, which later changes do not reach."""
        return Descriptor(
            created_at=dict(self.created_at),
            subscriptions=[subscription.row() for subscription in self.subscriptions.all()],
            receivers={identity: receiver.row() for identity, receiver in self.receivers.items()},
            expiry_s=self.idle_time.expiry_s,
            idle_ms=self.idle_time.ms,
            gaps=Gaps.copied(self.gaps),
            access=dict(self.access),
            unregistered={identity: dict(frontier) for identity, frontier in self.former_receivers.frontiers.items()},
            reliability=self.reliability,
            queue=self.queue,
            tombstones=dict(self.former_receivers.tombstones),
        )

    def describe(self, descriptor: Descriptor) -> None:
        """Set the whole state of the session but its entries, gates, role and epoch from a descriptor. No receiver is
        attached afterwards.
        """
        self.created_at = dict(descriptor.created_at)
        self.idle_time.expiry_s, self.idle_time.ms = descriptor.expiry_s, descriptor.idle_ms
        self.gaps = Gaps.copied(descriptor.gaps)
        self.former_receivers.describe(descriptor.unregistered, descriptor.tombstones)
        self.reliability, self.queue = descriptor.reliability, descriptor.queue
        self.set_access(descriptor.access)
        self.subscriptions.describe(descriptor.subscriptions)
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
