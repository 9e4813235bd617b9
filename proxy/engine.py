"""The proxy as one deterministic machine: inputs in, effects out. No sockets, no clock of its own, no tasks.

A notification's walk through here: `Publish` at the dispatcher -> Append -> the site log -> :class:`RecordsRead` ->
fold -> matcher -> session (or its gate) -> Deliver -> `Acknowledge` -> the receiver's cursor -> checkpoint.

The shell (node/) performs the effects in order, and steps the engine with answers; the simulator has another shell.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, assert_never

from federation.messages import LogEndRequest, LogEndResponse
from federation.ports import (
    Batch,
    DrainChanged,
    LeaderChanged,
    LinkChanged,
    OwnerChanged,
    ProxyDown,
    ProxyUp,
    RegistryEvent,
    Reloaded,
    SiteForgotten,
    TreeChosen,
)
from federation.site.acceptance import Acceptance
from federation.site.events import (
    Advanced,
    Announced,
    Covered,
    EndedAnnounced,
    InterestChanged,
    InterestWithdrawn,
    Interrupted,
    LogDamaged,
    NotificationArrived,
    OriginClosed,
    RegistrationsExpired,
    SeveranceAnnounced,
    StateReset,
    WantsChanged,
)
from federation.site.log_epochs import federation_of
from federation.site.state import SiteState, Snapshot
from handover.messages import HandoverOffer, MoveRequest, RelayDown, RelayEnd, RelayUp
from proxy.clients.dispatcher import ClientDispatcher
from proxy.clients.tokens import token_key
from proxy.core.cluster_view import ClusterView
from proxy.core.effects import Effect, SendPeer, ignore_result
from proxy.core.environment import Environment
from proxy.core.events import (
    AccessAltered,
    AccessHashed,
    ActivationRequested,
    CopyCheckRequested,
    DeletionRequested,
    DeliveryDue,
    EndsChanged,
    EngineEvent,
    FarRelayBegun,
    FarRelayEnded,
    FarRelayMessage,
    FetchRequested,
    LogEndFound,
    MoveRequested,
    NearRelayEndRequested,
    NearRelayRequested,
    NextEpochRequested,
    OwnerRead,
    ReceiverReturned,
    RelayRequested,
    RequestWithdrawn,
    SessionRequested,
    SessionServed,
    SessionUnavailable,
    SubscriptionAltered,
    SubscriptionEnded,
    TransferFailed,
)
from proxy.core.inputs import (
    Administered,
    ChangelogLost,
    ClientConnected,
    ClientDisconnected,
    ClientSent,
    CloseLog,
    DeletedByOperator,
    EffectCompleted,
    EngineInput,
    LeaseGranted,
    LeaseLost,
    LeaseRenewed,
    Leave,
    OperatorInput,
    PeerSent,
    Rebalance,
    RecordsRead,
    RegistryReported,
    SecretRead,
    StopHandovers,
    StoreAll,
    ToProxy,
)
from proxy.core.interest import Interest
from proxy.core.journal import Journal, writer_of
from proxy.core.lease import Lease
from proxy.core.output import Output
from proxy.core.registry_memory import RegistryMemory
from proxy.core.session_table import SessionTable
from proxy.core.settings import Settings
from proxy.core.step_time import StepTime
from proxy.core.store_port import Policed, Restored, SavedSession
from proxy.ownership.acquisitions import Acquisitions
from proxy.ownership.deleted_rows import DeletedRows
from proxy.ownership.rebalance import Move, plan
from proxy.ownership.row_checks import RowChecks
from proxy.ownership.served_sessions import ServedSessions
from proxy.ownership.session_moves import SessionMoves
from proxy.ownership.transfers import Transfers
from proxy.session import best_effort
from proxy.session.retention import Mark
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.stream.closing_markers import ClosingMarkers
from proxy.stream.coverage import Coverage
from proxy.stream.expiry import Expiry
from proxy.stream.interest_repair import InterestRepair
from proxy.stream.persister import Persister
from proxy.stream.promises import Promises
from proxy.stream.repairs import Repairs
from proxy.stream.stream import Stream
from proxy.stream.subscription_ends import SubscriptionEnds
from waypost.clock import NEVER
from waypost.facts import FactKind, GapCause
from waypost.frontier import join
from waypost.identity import NOTHING, Incarnation, Origin, Ownership, ProxyId, SessionId, site_of
from waypost.limits import MATCHES_AT_ONCE
from waypost.notification import read_body
from waypost.records import (
    Closed,
    Damaged,
    Forwarded,
    InterestRegistered,
    InterestsExpired,
    Published,
    Record,
)


class Timed(Protocol):
    """A part of the engine that does something by time alone; it reads the time of the step."""

    def tick(self) -> None:
        """Do what is due at the time of the step."""

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""


class Engine:
    """One proxy, as a :class:`waypost.machine.Machine`.

    Args:
        settings: the configuration; it does not change while the engine runs.
        rng: the only source of randomness, so that a seed repeats a run.
        incarnation: the name of this incarnation of the proxy, under which it takes its first lease.
        now_ms: by the clock of all later steps.
        unix_ms: Unix time at `now_ms`.
        restored: the content of the proxy's store; None: the disk is empty.
        first: the offset of the first record that the site log still has.
        known: a snapshot of the site's state, used where the log does not reach back to the store's position (handover
            rule 25); None: there is none.
        is_intact: whether the proxy may read on where its store ends; else its sessions catch up all origins (handover
            rule 27).
        log_epoch: the log epoch of the record at `first`, used where nothing is known of the records before it.
    """

    def __init__(
        self,
        settings: Settings,
        rng: random.Random,
        incarnation: Incarnation,
        *,
        now_ms: int,
        unix_ms: int,
        restored: Restored | None = None,
        first: int = 0,
        known: Snapshot | None = None,
        is_intact: bool = True,
        log_epoch: int = 1,
    ) -> None:
        state, seen = _state_at_start(settings, restored if is_intact else None, first, known, log_epoch)
        self.state = state
        taken_below = restored.position if restored is not None and is_intact else 0
        time = StepTime(now_ms, unix_ms)
        lease, cluster = Lease(time, settings.lease_margin_ms), ClusterView(settings.proxy, settings.site)
        self.output = Output(Journal(settings.proxy, settings.site, time))
        self.env = Environment(
            settings=settings,
            time=time,
            rng=rng,
            lease=lease,
            cluster=cluster,
            registry_memory=RegistryMemory(settings, time, cluster, self.output.counters),
            state=state,
            applied_below=taken_below,
        )
        self.sessions = SessionTable(lease, Interest(settings.proxy, lease, state, self.output))
        if restored is not None and not is_intact:
            seen = _missing_since(state, restored)
        self._begin_incarnation(incarnation)
        env, sessions, output = self.env, self.sessions, self.output
        self.persister = Persister(env, sessions, output)
        promises = Promises(env, sessions, output, self.persister)
        self.coverage = Coverage(env, sessions, output, promises, self.persister.store)
        self.expiry = Expiry(env, sessions, output)
        stream = Stream(self.persister, promises, self.coverage, self.expiry)
        self.subscription_ends = SubscriptionEnds(env, sessions, output, self.coverage)
        self.session_moves = SessionMoves(env, sessions, output)
        self._deleted_rows = DeletedRows(env, output)
        self._interest_repair = InterestRepair(env, sessions, self.coverage)
        self._closing_markers = ClosingMarkers(env, sessions, output)
        self.served_sessions = ServedSessions(env, sessions, output, stream)
        self.acquisitions = Acquisitions(env, sessions, output, self.persister, self.served_sessions)
        self.row_checks = RowChecks(env, sessions, output, self.persister, self.served_sessions)
        self.transfers = Transfers(env, sessions, output, stream, self.served_sessions)
        self.dispatcher = ClientDispatcher(env, sessions, output, stream)
        repairs = Repairs(env, output)
        attaching, relays = self.dispatcher.attach_handler, self.dispatcher.relays
        self._timed: tuple[Timed, ...] = (
            *(self.transfers, self.row_checks, self._deleted_rows, self.coverage, self.subscription_ends),
            *(attaching, relays, repairs, self.session_moves),
        )
        """What is due of these is done first, in this order, and what follows from it."""
        delivery, quenching = self.dispatcher.delivery, self.dispatcher.quenching
        end_replies = self.dispatcher.subscriptions.end_replies
        self._timed_last: tuple[Timed, ...] = (delivery, quenching, end_replies, self.expiry, self.persister)
        """These send and save what has come of all that."""
        self._had: Mapping[Origin, int] = {}
        """The frontier up to which the sessions of our store had read."""
        if restored is not None:
            live_from = dict(state.frontier)
            if is_intact:
                self._had = Acceptance.restore(state.site, restored.acceptance).frontier
                join(live_from, Acceptance.restore(state.site, restored.acceptance).frontier)
            for saved in restored.sessions:
                self._restore(saved, restored.policed.get(saved.id, Policed()), seen, live_from)

    # ------------------------------------------------------------ steps

    def step(self, input: EngineInput, now_ms: int, unix_ms: int | None = None) -> list[Effect]:
        """Apply one input, and return the effects.

        Args:
            input: what the proxy is told.
            now_ms: by the caller's clock, which never steps back.
            unix_ms: Unix time at `now_ms`; None: Unix time has not stepped since the last call.

        Returns:
            The effects, which the shell begins in this order (proxy/core/durability_law.py).

        Raises:
            WaypostError: the change of an :class:`Administered` is refused; nothing was changed.
        """
        self.env.time.set(now_ms, unix_ms)
        self._take(input)
        return self._drain()

    def tick(self, now_ms: int, unix_ms: int | None = None) -> list[Effect]:
        """Do what is due at `now_ms`: timeouts, retries, flushes, sweeps; return effects as :meth:`step` does.

        Args:
            now_ms: by the caller's clock, which never steps back.
            unix_ms: Unix time at `now_ms`; None: Unix time has not stepped since the last call.
        """
        self.env.time.set(now_ms, unix_ms)
        self._tick()
        return self._drain()

    def _drain(self) -> list[Effect]:
        self._dispatch()
        return self.dispatcher.relays.far.translated(self.output.drain_effects())

    def _take(self, input: EngineInput) -> None:
        match input:
            case RecordsRead(batch):
                self._apply(batch)
            case ClientSent(connection, message):
                self.dispatcher.message(connection, message)
                self._after()
            case EffectCompleted(on_done, result):
                on_done(result)
            case PeerSent(peer, message):
                self._peer_sent(peer, message)
            case ClientConnected(connection, address):
                self.dispatcher.connected(connection, address)
            case ClientDisconnected(connection):
                self.dispatcher.disconnected(connection)
            case RegistryReported(event):
                self._registry_reported(event)
            case LeaseGranted(incarnation, until_ms, ended):
                self._lease_granted(incarnation, until_ms, ended)
            case LeaseRenewed(until_ms):
                self.env.lease.granted(until_ms)
            case LeaseLost():
                self._lease_lost()
            case SecretRead(secret):
                self.env.cluster.secret_reported(federation_of(secret), token_key(secret))
            case _:
                self._operate(input)

    def _operate(self, input: OperatorInput) -> None:
        match input:
            case ChangelogLost():
                self.persister.changelog_lost()
            case DeletedByOperator(session, before, reason):
                frontier = dict(self.state.frontier)
                self.output.journal.attest(
                    FactKind.DELETED, session, epoch=before.epoch, frontier=frontier, reason=reason
                )
            case Rebalance():
                self._rebalance()
            case Administered(change, on_done):
                self.dispatcher.administration.make(change, on_done)
            case CloseLog(on_done):
                self._closing_markers.append(on_done)
            case StopHandovers():
                self.transfers.sources.leave()
                self._after()
            case Leave(on_done, marked):
                self._leave(on_done, marked=marked)
            case StoreAll(on_done):
                self.persister.store.save(on_done)
            case _:
                assert_never(input)

    def _begin_incarnation(self, incarnation: Incarnation) -> None:
        """Begin an incarnation, as a new writer of the journal. The present one again changes nothing."""
        if incarnation != self.env.lease.incarnation:
            self.env.lease.begin(incarnation)
            self.output.journal.begin(incarnation)

    def _dispatch(self) -> None:
        """Hand each event that a part reported to the parts that it concerns, until there are no more."""
        while (event := self.output.next_event()) is not None:
            self._handle(event)

    def _handle(self, event: EngineEvent) -> None:  # noqa: PLR0912 - a dispatch
        match event:
            case SessionServed(session):
                if self.sessions.get(session.id) is session:
                    self.acquisitions.end(session.id)
                    self.expiry.watch(session)
                    self.expiry.resume(session)
                    self._let_in(session)
                    self.subscription_ends.watch(session)
            case LogEndFound():
                self.subscription_ends.proceed()
            case SubscriptionEnded(session):
                self.subscription_ends.watch(session)
            case EndsChanged(session):
                self.dispatcher.subscriptions.end_replies.ends_changed(session)
            case SubscriptionAltered(session, subscription):
                self.dispatcher.broadcast_subscription(session, subscription)
            case AccessAltered(session):
                self.dispatcher.access_altered(session)
            case AccessHashed():
                self.dispatcher.access_hashed(event)
            case DeliveryDue(session):
                self.dispatcher.deliver(session)
            case NearRelayRequested(connection, attach, owner, departures):
                self.dispatcher.relay(connection, attach, owner, departures)
            case NearRelayEndRequested(connection):
                self.dispatcher.relays.near.leave(connection)
            case FarRelayBegun(connection, proxy, address, departures):
                self.dispatcher.connected(connection, address, proxy, departures)
            case FarRelayMessage(connection, message):
                self.dispatcher.message(connection, message)
            case FarRelayEnded(connection):
                self.dispatcher.disconnected(connection)
            case CopyCheckRequested(session, row):
                if self.sessions.get(session.id) is session:
                    self.acquisitions.compare(session, row)
            case NextEpochRequested(session, row):
                if self.sessions.get(session.id) is session:
                    self.acquisitions.activate_after(session, row)
            case SessionUnavailable(identity, reason):
                self.dispatcher.unavailable(identity, reason)
            case FetchRequested():
                self.transfers.fetch(event)
            case MoveRequested(identity, to):
                self.session_moves.request_move(identity, to)
            case RelayRequested(identity, at, key, departures):
                if self.acquisitions.end_relayed(key):
                    self.dispatcher.attach_handler.relay(identity, at, departures)
            case OwnerRead(identity, ownership):
                known = self.env.cluster.owners.get(identity)
                if ownership is not None and (known is None or ownership.epoch > known.epoch):
                    # Else a release would not know yet where the session went, or that it was deleted.
                    self.env.cluster.owned_by(identity, ownership)
                self._owner_changed(identity, ownership)
            case TransferFailed():
                self.acquisitions.not_handed_over(event)
            case ActivationRequested(identity):
                self._activate_now(identity)
            case SessionRequested(identity, request):
                self.acquisitions.acquire(identity, request)
            case RequestWithdrawn(identity):
                self.acquisitions.request_withdrawn(identity)
            case ReceiverReturned(identity):
                self.transfers.cancel(identity)
            case DeletionRequested(session, reason):
                self.served_sessions.delete(session, reason)
            case _:
                assert_never(event)

    def _let_in(self, session: Session) -> None:
        """Let in the clients that wait for the session, once the gaps that they are told of are on record."""
        if any(gap.cause is GapCause.LOST_WITH_PROCESS for gap in session.gaps):
            self.output.journal.once_attested(lambda: self._served(session))
        else:
            self._served(session)

    def _served(self, session: Session) -> None:
        if self.sessions.serving(session.id) is session:
            self.dispatcher.served(session)

    def _activate_now(self, identity: SessionId) -> None:
        copy = self.sessions.get(identity)
        if copy is not None and copy.role is Role.DORMANT:
            self.acquisitions.activate(copy, is_waited_for=True)

    def _restore(
        self, saved: SavedSession, policed: Policed, seen: Mapping[Origin, int], live_from: Mapping[Origin, int]
    ) -> None:
        """Restore a session of the store.

        Args:
            policed: the state of its retention policies.
            seen: the offset up to which it had read each origin that the log does not continue.
            live_from: the frontier from which on live matches come.
        """
        role = Role(saved.role)
        if role is Role.SHADOW:
            self.persister.drop(saved.id)
            return
        staged = role in (Role.STAGED, Role.ORPHAN)
        source = ProxyId(saved.source) if saved.source else None
        session = Session(saved.id, saved.epoch, Role.ORPHAN if staged else Role.DORMANT, source=source)
        assert saved.descriptor is not None
        session.describe(saved.descriptor)
        session.stored_after(saved.checkpointed)
        session.entries.restore(saved.first_number, saved.next_number)
        session.retention.restore(policed.matched, self._in_our_time(policed.marks))
        for origin, passed in saved.gates.items():
            session.gates.close(origin, passed, live_from.get(origin, NOTHING))
        for origin, offset in seen.items():
            if origin not in session.gates:
                session.gates.close(origin, offset, live_from.get(origin, NOTHING))
        best_effort.expire_unpersisted_copy(session, session.frontier(live_from))
        self.sessions.put(session)
        self.coverage.watch(session)

    def _in_our_time(self, marks: Iterable[Mark]) -> list[Mark]:
        """Convert marks in Unix time into marks of the engine's clock; none lies in the future."""
        now, unix = self.env.time.now_ms, self.env.time.unix_ms
        return [Mark(mark.below, now - max(0, unix - mark.at_ms)) for mark in marks]

    # ------------------------------------------------------------ the site log

    def evaluate(self, record: Record) -> Iterator[None]:
        """Evaluate the expressions that :class:`RecordsRead` will need for a record, one before each item yielded.

        It spares that step the time: the results of the latest record are kept. Nothing else changes.

        Args:
            record: the next one of the site log; for one that is no notification nothing is yielded.
        """
        if isinstance(record, Published | Forwarded):
            yield from self.sessions.matcher.evaluate(record.body)

    def _apply(self, batch: Batch) -> None:  # noqa: PLR0912 - a dispatch
        """Apply the next records of our own site's log, and deliver what they match.

        Past MATCHES_AT_ONCE matches it stops, so that other inputs have their turn.
        """
        matches = taken = 0
        touched: dict[SessionId, Session] = {}
        registered_here: dict[SessionId, Session] = {}
        covered: dict[str, None] = {}
        interests: dict[str, None] = {}
        for offset, record in batch:
            if matches > MATCHES_AT_ONCE:
                break
            taken += 1
            events = self.state.fold(offset, record)
            interests |= {event.expression: None for event in events if isinstance(event, InterestChanged)}
            if offset < self.env.applied_below:
                # Read once more only for what the log means: the sessions have it.
                if isinstance(record, Damaged):
                    self.coverage.damaged_before(self._had)
                continue
            for event in events:
                match event:
                    case NotificationArrived():
                        matches += self._arrived(event, touched)
                    case Covered():
                        covered[event.expression] = None
                    case Interrupted():
                        self.coverage.interrupted(event.expression, event.origin)
                    case OriginClosed():
                        self.coverage.ended(event)
                        if site_of(event.origin) == self.state.site:
                            self._interest_repair.log_end_lost()
                    case LogDamaged():
                        self.coverage.damaged(event)
                    case StateReset():
                        self._interest_repair.reset()
                    case RegistrationsExpired() if event.proxy == self.env.proxy:
                        self._interest_repair.expired(event)
                    case InterestWithdrawn() if event.proxy == self.env.proxy:
                        self._interest_repair.withdrawn(event)
                    case InterestChanged() | RegistrationsExpired() | InterestWithdrawn():
                        pass
                    case Advanced() | Announced() | EndedAnnounced() | SeveranceAnnounced() | WantsChanged():
                        # The ends of links look at these.
                        pass
                    case _:
                        assert_never(event)
            match record:
                case Closed():
                    self._closing_markers.read()
                case Damaged():
                    self.output.counters.damaged["log"] += 1
                case InterestRegistered() if record.proxy == self.env.proxy and record.session in self.sessions:
                    registered_here[record.session] = self.sessions[record.session]
                    if record.incarnation != self.env.lease.incarnation:
                        self._interest_repair.registered_by_earlier_incarnation(record.session)
        if taken:
            self.state.acceptance.read(*batch[taken - 1])
        for session in touched.values():
            self.dispatcher.deliver(session)
        self.dispatcher.quenching.changed(interests)
        if covered:
            self.coverage.covered(covered)
        for session in registered_here.values():
            self.coverage.interest_registered(session)
        self.subscription_ends.proceed()
        self.transfers.proceed()
        self._after()

    def _arrived(self, event: NotificationArrived, touched: dict[SessionId, Session]) -> int:
        """Store the notification in each session that wants it; return ten a session, and one a subscription."""
        attributes = read_body(event.record.body)
        record = event.record
        wanting = self.sessions.matcher.match(event.origin, event.offset, attributes, record.protection, record.body)
        if not wanting:
            return 0
        matches = 0
        stored = StoredNotification.of(event.origin, event.offset, event.record)
        for session, matched in wanting:
            matches += 10 + len(matched)
            if session.role is Role.FROZEN and event.origin not in session.gates:
                # The store has to know of the gate that closes now, before it knows that the record was read (F127).
                self.sessions.mark_changed(session.id)
            if session.arrive(stored, matched):
                touched[session.id] = session
                if session.has_policies:
                    self.sessions.mark_changed(session.id)
                else:
                    self.sessions.mark_extended(session.id)
                self.persister.store.count_unstored(stored, matched)
        return matches

    @property
    def undrained(self) -> int:
        """The number of sessions that were served at the last closing marker, and whose receivers have not had
        everything at one moment since then (:attr:`ClosingMarkers.undrained`).
        """
        return self._closing_markers.undrained

    @property
    def is_handing_over(self) -> bool:
        """Whether a transfer of a session from here to another proxy runs."""
        return bool(self.transfers.sources.running)

    def _leave(self, on_done: Callable[[None], None], *, marked: bool) -> None:
        self.persister.prepare_to_leave()
        if marked:
            self._closing_markers.append(ignore_result)
        self._lease_lost()
        self.persister.checkpoints.write_last(on_done)
        self.output.journal.attest(FactKind.CLOSED)

    # ------------------------------------------------------------ clients and peers

    def _peer_sent(self, peer: ProxyId, message: ToProxy) -> None:
        match message:
            case HandoverOffer():
                if self.session_moves.drain_row is None:
                    self.transfers.offered(peer, message)
            case MoveRequest():
                self.session_moves.on_move_request(peer, message)
                self.session_moves.tick()
            case RelayUp() | RelayDown() | RelayEnd():
                self.dispatcher.relays.peer_message(peer, message)
            case LogEndRequest() | LogEndResponse():
                self.subscription_ends.peer_message(peer, message)
            case _:
                self.transfers.peer_message(peer, message)
        self._after()

    # ------------------------------------------------------------ operators

    def planned_moves(self) -> list[Move]:
        """Return the moves that balance the sessions of each site; :class:`Rebalance` makes them."""
        return plan(self.env.cluster.owners, self.env.cluster.proxies.values(), self.env.cluster.drains)

    def _rebalance(self) -> None:
        for move in self.planned_moves():
            request = MoveRequest(move.session, move.owner.epoch, move.target)
            if move.owner.proxy == self.env.proxy:
                self.session_moves.on_move_request(self.env.proxy, request)
            else:
                self.output.emit(SendPeer(move.owner.proxy, request))
        self.session_moves.tick()

    # ------------------------------------------------------------ the registry

    def _lease_granted(self, incarnation: Incarnation, until_ms: int, ended: Sequence[Incarnation]) -> None:
        """Begin to serve: register interests, and activate dormant sessions."""
        self._begin_incarnation(incarnation)
        for earlier in ended:
            self.output.journal.attest(FactKind.ENDED, proxy=writer_of(self.env.proxy, earlier))
        self.env.lease.granted(until_ms)
        self._interest_repair.register_all()
        for session in list(self.sessions.values()):
            if session.role is Role.DORMANT:
                self.acquisitions.activate(session)
        self._after()

    def _lease_lost(self) -> None:
        """Stop serving at once: the lease has ended, or may have. Copies stay until the registry names their owners."""
        self.env.lease.lost()
        self.acquisitions.fence()
        self.served_sessions.fence()
        self.transfers.fence()
        self.dispatcher.fence()

    def _registry_reported(self, event: RegistryEvent) -> None:
        match event:
            case Reloaded():
                self._reloaded(event)
            case OwnerChanged():
                self.env.cluster.owner_changed(event.session, event.ownership)
                self._deleted_rows.watched(event.session, event.ownership)
                self._owner_changed(event.session, event.ownership)
            case ProxyUp():
                before = self.env.cluster.proxies.get(event.row.proxy)
                if before is not None and before.incarnation != event.row.incarnation:
                    self.dispatcher.relays.proxy_gone(event.row.proxy, before.incarnation)
                self.env.cluster.proxy_up(event.row)
            case ProxyDown():
                self._proxy_down(event)
            case DrainChanged():
                self.session_moves.drain_changed(event.proxy, event.row)
            case SiteForgotten():
                self.env.cluster.site_forgotten(event.site)
            case LeaderChanged() | LinkChanged() | TreeChosen():
                pass
            case _:
                assert_never(event)
        self._after()

    def _reloaded(self, event: Reloaded) -> None:
        for proxy, row in list(self.env.cluster.proxies.items()):
            now = event.proxies.get(proxy)
            if now is not None and now.incarnation != row.incarnation:
                self._end_incarnation(ProxyDown(row.proxy, row.incarnation))
        for session, known in self.env.cluster.owners.items():
            current = event.owners.get(session)
            if current is None or current.epoch < known.epoch:
                self.env.registry_memory.row_lost(session, known)
        self.env.cluster.reloaded(event.owners, event.proxies, event.changelogs, self.env.time.now_ms)
        self._end_forgotten_leases()
        self._deleted_rows.reloaded(event.owners)
        for proxy in {**self.env.cluster.drains, **event.drains}:
            self.session_moves.drain_changed(proxy, event.drains.get(proxy))
        for session, current in event.owners.items():
            self._owner_changed(session, current)
        self._drop_dead()
        self.row_checks.sweep()

    def _owner_changed(self, session: SessionId, current: Ownership | None) -> None:
        """Apply a session's row; a transfer of it that runs here takes it first, and may end by it."""
        self.transfers.owner_changed(session, current)
        self.row_checks.owner_changed(session, current)

    def _proxy_down(self, event: ProxyDown) -> None:
        self._end_incarnation(event)
        self._drop_dead()

    def _end_incarnation(self, event: ProxyDown) -> None:
        """Note that an incarnation has ended. What it had registered is dropped by :meth:`_drop_dead`, once it is known
        which others live.
        """
        if event.incarnation != self.env.lease.incarnation:
            self.output.journal.attest(FactKind.ENDED, proxy=writer_of(event.proxy, event.incarnation))
        if self.env.cluster.proxy_down(event.proxy, event.incarnation):
            self.transfers.proxy_down(event.proxy)
            self.dispatcher.relays.proxy_gone(event.proxy, event.incarnation)

    def _end_forgotten_leases(self) -> None:
        for row in self.env.cluster.ended_leases(self.env.time.now_ms):
            self._proxy_down(ProxyDown(row.proxy, row.incarnation))

    def _drop_dead(self) -> None:
        """Append to the site log which interests expired with a lease; any proxy of the site may, once is enough."""
        alive = {(row.proxy, row.incarnation) for row in self.env.cluster.proxies.values()}
        alive.add((self.env.proxy, self.env.lease.incarnation))
        registered = {(proxy, interest.incarnation) for (proxy, _), interest in self.state.registered.items()}
        for proxy, incarnation in sorted(registered - alive):
            if proxy != self.env.proxy:
                self.output.append(InterestsExpired(proxy, incarnation))

    # ------------------------------------------------------------ time

    def _tick(self) -> None:
        if self.env.lease.has_ended:
            self._lease_lost()
        self._end_forgotten_leases()
        self._follow_receivers()
        for part in self._timed:
            part.tick()
        self._after()
        for part in self._timed_last:
            part.tick()

    def next_deadline(self) -> int:
        """Return when :meth:`tick` is due, in ms of the engine's clock; NEVER: not without another input."""
        fence_at_ms = self.env.lease.fence_at_ms
        return min(
            self.env.cluster.next_deadline(),
            NEVER if fence_at_ms is None else fence_at_ms,
            self._closing_markers.next_deadline(),
            *(part.next_deadline() for part in self._timed),
            *(part.next_deadline() for part in self._timed_last),
        )

    def _follow_receivers(self) -> None:
        for identity in sorted(self.dispatcher.relays.far.sessions()):
            session = self.sessions.serving(SessionId(identity))
            if session is not None:
                self.session_moves.follow(session)

    def _after(self) -> None:
        """Do what follows from an input."""
        self._dispatch()
        if self.undrained:
            self._closing_markers.attest_drained()


def _state_at_start(
    settings: Settings, restored: Restored | None, first: int, known: Snapshot | None, log_epoch: int
) -> tuple[SiteState, dict[Origin, int]]:
    """Return the site's state, and the frontier up to which we had read, if the log does not go on from there."""
    if restored is None:
        state = SiteState(settings.site, settings.neighbours)
        state.begin(first, known, log_epoch)
        return state, {}
    state = SiteState.restore(settings.site, settings.neighbours, restored.site.state)
    state.resume_at(restored.site.position, restored.site.acceptance)
    if first <= state.position:
        return state, {}
    state.begin(first, known, log_epoch)
    return state, _missing_since(state, restored)


def _missing_since(state: SiteState, restored: Restored) -> dict[Origin, int]:
    """Return for each origin the offset above which notifications are missing, where the log begins behind the store.

    What has come since of an origin that the store does not know is missing as well.
    """
    seen = state.continued(Acceptance.restore(state.site, restored.acceptance).frontier)
    return seen | {origin: seen.get(origin, NOTHING) for origin in state.frontier}
