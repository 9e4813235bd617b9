"""What the parts of the engine share: who we are, what the site log and the registry say, and the effects so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from federation.ports import DrainRow, ProxyRow
from federation.site_state import SiteState
from handover.machine import Timing
from proxy.effects import Append, Attest, Effect, nobody_waits
from proxy.matching import Matcher
from proxy.quarrels import Quarrels
from proxy.refusals import Refusals
from proxy.session import Role, Session
from proxy.tally import Tally
from waypost.batches import batches
from waypost.clock import Clock
from waypost.errors import WaypostError
from waypost.identity import Incarnation, Origin, Ownership, ProxyId, SessionId, SiteId
from waypost.limits import (
    CHUNK_ENTRIES,
    CHUNK_WINDOW,
    COPY_AT_ATTACH,
    COPY_UNSAVED,
    FORGET_AFTER_MS,
    LOG_BATCH,
    LOG_BATCH_BYTES,
    MATCH_MS_PROXY,
    MEMORY_BYTES,
    QUEUE_IN_MEMORY,
    QUEUED_PART,
    STATE_MS_A_HOLD,
    SUBSCRIPTION_BYTES,
    SUBSCRIPTIONS_PART,
    SWEEP_BATCH,
    WAKES_AT_ONCE,
)
from waypost.queue import UNBOUNDED, Queue
from waypost.records import Fact, FactKind, Held, Record
from waypost.reliability import PERSISTENT, Reliability


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds that come to bear only on large sessions, so that a simulator can have small ones: waypost/limits.py."""

    queue_in_memory: int = QUEUE_IN_MEMORY
    chunk_entries: int = CHUNK_ENTRIES
    chunk_window: int = CHUNK_WINDOW
    copy_at_attach: int = COPY_AT_ATTACH
    copy_unsaved: int = COPY_UNSAVED
    sweep_batch: int = SWEEP_BATCH
    wakes_at_once: int = WAKES_AT_ONCE
    state_ms_a_hold: int = STATE_MS_A_HOLD


@dataclass(frozen=True, slots=True)
class Settings:
    """What the engine is told of its place. Times in milliseconds."""

    proxy: ProxyId
    site: SiteId
    neighbours: tuple[SiteId, ...] = ()
    timing: Timing = field(default_factory=Timing)
    lease_margin_ms: int = 500
    """The proxy fences itself so long before its lease can end."""
    flush_ms: int = 200
    checkpoint_ms: int = 1_000
    snapshot_ms: int = 60_000
    """So often the site's state goes to the changelog. A site log must keep its records for longer than that."""
    sweep_ms: int = 2_000
    expiry_ms: int = 60_000
    """So often what nobody holds any more is removed from the store."""
    forget_ms: int = FORGET_AFTER_MS
    """The row of a deleted session stays in the registry for so long."""
    retry_ms: int = 250
    repair_ms: int = 2_000
    """So often a proxy says that it could not read a record, until the log says so."""
    dwell_ms: int = 30_000
    """A session stays so long at its home at least before it follows its busiest receiver."""
    bounds: Bounds = field(default_factory=Bounds)
    match_ms: int = MATCH_MS_PROXY
    """How long the largest notification may take, by estimate, to be held against all expressions that this proxy has
    before it takes no other one of a client; 0: no bound."""
    queued_bytes: int = MEMORY_BYTES // QUEUED_PART
    """Bytes of stored notifications that all sessions together keep in memory."""
    max_subscriptions: int = MEMORY_BYTES // SUBSCRIPTIONS_PART // SUBSCRIPTION_BYTES
    """Active subscriptions that this proxy has before it takes no other one of a client."""
    max_sessions: int = 1 << 60
    """Sessions that this proxy may own before it makes no other one."""
    creations_a_s: int = 0
    """Sessions that this proxy makes in a second; 0: no bound."""
    queue: Queue = UNBOUNDED
    """How much each session here stores at most, whatever it says itself."""
    reliability: Reliability = PERSISTENT
    """What sessions and receivers here may not exceed."""
    publishers: frozenset[str] = frozenset()
    """Principals that may publish; none: everybody may."""


class Context:
    """Shared by the engine's parts. Nothing in here does I/O."""

    def __init__(self, settings: Settings, clock: Clock, chance: random.Random, state: SiteState) -> None:
        self.settings = settings
        self.proxy = settings.proxy
        self.clock = clock
        self.chance = chance
        self.state = state
        self.incarnation = Incarnation("")
        self.writer = ""
        """The name under which this life writes facts and closing markers."""
        self.token_key = b""
        """What tokens are signed with; empty: the registry has not told the federation's secret yet."""
        self.fence_at_ms: int | None = None
        """When we must have stopped serving: before our lease can end; None: we have none."""
        self.taken_below = 0
        """Of the records of the log below this, the sessions of our store have what they wanted."""
        self.sessions: dict[SessionId, Session] = {}
        self.matcher = Matcher()
        self.proxies: dict[ProxyId, ProxyRow] = {}
        """The live proxies, as the registry's watch says."""
        self.changelogs: dict[SiteId, str] = {}
        """Where the checkpoints of every site are that ever had a proxy."""
        self.drains: dict[ProxyId, DrainRow] = {}
        """Proxies that are to be emptied."""
        self.owners: dict[SessionId, Ownership] = {}
        """Who owns the sessions, as the registry's watch says, or as we claimed or read since."""
        self._unseen: set[SessionId] = set()
        """Those of them of which the watch has not told yet what we claimed or read."""
        self.refused = Refusals()
        """What other proxies said and was refused."""
        self.tally = Tally()
        self.quarrels = Quarrels()
        self.watching = False
        self.dirty: set[SessionId] = set()
        """Sessions that changed since the last flush."""
        self._said: dict[SessionId, Held] = {}
        """What we last told the site log of each session in this life."""
        self._effects: list[Effect] = []
        self._facts: list[Fact] = []
        self._attested: list[Callable[[], None]] = []
        self._fact_number = 0

    # ------------------------------------------------------------ the lease

    def leased(self, until_ms: int) -> None:
        """We have a lease until then, on our clock."""
        self.fence_at_ms = until_ms - self.settings.lease_margin_ms

    def may_serve(self) -> bool:
        """Tell whether our lease certainly holds: nobody else may act as if we were gone."""
        fence_at_ms = self.fence_at_ms
        return fence_at_ms is not None and self.clock.now_ms() < fence_at_ms

    @property
    def rereading(self) -> bool:
        """What we know of the site is older than what our sessions have: the log is read again up to there first."""
        return self.state.position < self.taken_below

    def alive(self, proxy: ProxyId) -> bool:
        return proxy in self.proxies

    def owned_by(self, session: SessionId, current: Ownership) -> None:
        """Take what we claimed or read ourselves; the watch may tell of it later."""
        if self.owners.get(session) != current:
            self.owners[session] = current
            self._unseen.add(session)

    def watched(self, session: SessionId, current: Ownership | None) -> None:
        """Take what the registry's watch says; None: there is no such row."""
        self._unseen.discard(session)
        if current is None:
            self.owners.pop(session, None)
        else:
            self.owners[session] = current

    def reloaded(self, owners: Mapping[SessionId, Ownership]) -> None:
        """Take all the rows that there are: the watch begins anew."""
        self._unseen.clear()
        self.owners = dict(owners)

    def has_seen(self, session: SessionId, current: Ownership) -> bool:
        """Tell whether the watch has told of this row, and so of every lease that was granted before it was written."""
        return self.owners.get(session) == current and session not in self._unseen

    def is_first(self, proxies: Iterable[ProxyId]) -> bool:
        """Tell whether ours is the first name of these: what one of them has to do, that one does."""
        return self.proxy == min(proxies, default=None)

    def at_site(self) -> list[ProxyId]:
        """Return the live proxies of our site."""
        return [row.proxy for row in self.proxies.values() if row.site == self.settings.site]

    def serving(self, session: SessionId) -> Session | None:
        """Return the session if it is served here, now."""
        found = self.sessions.get(session)
        if found is None or found.role is not Role.SERVING or not self.may_serve():
            return None
        return found

    # ------------------------------------------------------------ effects

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """Return the effects so far, facts last, and begin anew."""
        if self._facts:
            facts, self._facts = self._facts, []
            waiting, self._attested = self._attested, []

            def then(error: WaypostError | None) -> None:
                for each in waiting:
                    each()

            self.emit(Attest(facts, then if waiting else nobody_waits))
        effects, self._effects = self._effects, []
        return effects

    def append(self, record: Record, then: Callable[[list[int] | WaypostError], None] | None = None) -> None:
        self.emit(Append([record], then or nobody_waits))

    def hold(self, session: Session) -> None:
        """Tell the site what this proxy needs for the session, if that was not the last thing we said."""
        self._say([self._need(session)])

    def hold_all(self, sessions: Iterable[Session]) -> None:
        """The same for all of these, in few appends."""
        held = [self._need(each) for each in sessions]
        for batch in batches(held, _size, most=LOG_BATCH, most_bytes=LOG_BATCH_BYTES):
            self._say(batch)

    def let_go(self, session: SessionId) -> None:
        """Tell the site that this proxy needs nothing for the session."""
        self._say([Held(self.proxy, self.incarnation, session, ())])

    def _need(self, session: Session) -> Held:
        return Held(self.proxy, self.incarnation, session.id, session.held_expressions(), session.held_protections())

    def _say(self, wanted: Iterable[Held]) -> None:
        news = [each for each in wanted if self._said.get(each.session) != each]
        if not news:
            return
        self._said.update({each.session: each for each in news})

        def then(answer: list[int] | WaypostError) -> None:
            for said in news:
                if isinstance(answer, WaypostError) or (not said.expressions and self._said.get(said.session) is said):
                    self.unsay(said.session)

        self.emit(Append(news, then))

    def unsay(self, session: SessionId) -> None:
        """What we said of the session may not be in force: the next word counts again."""
        self._said.pop(session, None)

    def holds(self, session: Session) -> bool:
        """Tell whether the site log has, up to here, all that the session needs."""
        hold = self.state.holds.get((self.proxy, session.id))
        if hold is None:
            return False
        needed = session.held_expressions()
        return needed == hold.expressions or set(needed) <= set(hold.expressions)

    def is_told(self, session: Session) -> bool:
        """Tell whether the site log has, up to here, what the session needs, by its keys, and nothing else of it."""
        hold = self.state.holds.get((self.proxy, session.id))
        needed, by = session.held_expressions(), session.held_protections()
        return not needed if hold is None else (hold.expressions, hold.protections) == (needed, by)

    # ------------------------------------------------------------ the journal

    def attest(self, kind: FactKind, session: Session | SessionId | None = None, **fields: object) -> None:
        """Note a fact of our own; facts of one step go to the journal together."""
        fields = {"proxy": self.proxy, "site": self.settings.site} | fields
        if isinstance(session, Session):
            fields = {"session": session.id, "epoch": session.epoch} | fields
        elif session is not None:
            fields = {"session": session} | fields
        self._fact_number += 1
        self._facts.append(
            Fact(
                writer=self.writer,
                number=self._fact_number,
                at_ms=self.clock.unix_ms(),
                kind=kind,
                **fields,  # type: ignore[arg-type]
            )
        )

    def once_attested(self, then: Callable[[], None]) -> None:
        """Call `then` when the journal has the facts noted so far: what is promised must be on record first."""
        self._attested.append(then)

    def new_life(self, incarnation: Incarnation) -> None:
        """Begin a life under this name: a new writer of the journal. The same name again changes nothing."""
        if incarnation == self.incarnation:
            return
        if self.incarnation:
            self.attest(FactKind.CLOSED)
        self.incarnation = incarnation
        self.writer = writer_of(self.proxy, incarnation)
        self._fact_number = 0
        self.attest(FactKind.OPENED)

    def frontier(self, session: Session) -> dict[Origin, int]:
        return session.frontier(self.state.frontier)


def _size(held: Held) -> int:
    return 200 + sum(map(len, held.expressions))


def writer_of(proxy: ProxyId, life: Incarnation) -> str:
    """Return the name under which that life of a proxy writes facts and closing markers."""
    return f"proxy/{proxy}/{life}"
