"""A subscription as a session has it: an interval of every origin, and the policy of what it has stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from waypost.checkpoint import UNKNOWN_END, SubscriptionRow
from waypost.identity import NOTHING, Origin, SubscriptionId
from waypost.keys import Key, Protection
from waypost.messages import SubscriptionSettings
from waypost.subscription import Expression, parse

Matched = tuple[SubscriptionId, ...]
"""The ids of the subscriptions that match a notification."""


@dataclass(slots=True, kw_only=True)
class Subscription:
    """A subscription of a session, an interval (start, end] of offsets of each origin (handover rule 7).

    Args:
        id: unique in the session.
        expression: what it matches.
        start: per origin, the offset behind which it matches (L); never raised.
        promise_floor: per origin, an offset; promises are made above it alone.
        promised: per origin, the offset above which every match is owed (X0); a receiver is told of it once.
        end: per origin, the last offset that it matches (R); None: it has not ended.
        owner: the name of the receiver that made it.
        ttl_s: how long a match is kept, in seconds; None: for ever.
        max_count: how many of the newest matches are kept; None: all.
        expired_below: the lowest number of an entry that is kept under `ttl_s`; `displaced_below`: under `max_count`.
        generation, keys, replaced: as in :class:`waypost.checkpoint.SubscriptionRow`.
    """

    id: SubscriptionId
    expression: Expression
    start: dict[Origin, int]
    promise_floor: dict[Origin, int]
    promised: dict[Origin, int] = field(default_factory=dict)
    end: dict[Origin, int] | None = None
    owner: str = ""
    ttl_s: int | None = None
    max_count: int | None = None
    expired_below: int = 0
    displaced_below: int = 0
    generation: str = ""
    keys: tuple[Key, ...] = ()
    owner_keys: tuple[Key, ...] = ()
    insecure: bool = True
    replaced: bool = False
    protection: Protection = field(init=False)
    """The keys that decide about its notifications; the same for all of its generation."""
    unannounced: set[Origin] = field(default_factory=set)
    """Origins of which the promise is not kept yet, or could not be told."""
    limits: dict[Origin, int] = field(default_factory=dict)
    """By origin whose site has said how far its log went, where the subscription will end. It is not stored: the next
    owner asks again."""
    is_end_on_record: bool = True
    unconfirmed_ends: set[Origin] = field(default_factory=set)
    """Origins of which it ended without the word of their site how far its log went."""
    payer: str = ""
    """The client whose bounds it counts for (proxy/core/cost_budget.py); "": nobody's."""
    continued: bool = False
    """Whether it keeps a promise of its earlier generation that the journal does not have as its own yet."""

    _due_since: dict[Origin, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.protection = Protection.of(self.keys, self.owner_keys, insecure=self.insecure)

    @property
    def durable_promises(self) -> dict[Origin, int]:
        """The promises that are durable: origin -> the offset above which every match is owed.

        Receivers are told of these only; the other promises of :attr:`promised` are still being written.
        """
        return {origin: above for origin, above in self.promised.items() if origin not in self.unannounced}

    @property
    def has_unknown_end(self) -> bool:
        """Whether the subscription has ended and its end is not known yet in some origin: it still matches."""
        return self.end is not None and UNKNOWN_END in self.end.values()

    @property
    def unknown_ends(self) -> list[Origin]:
        """The origins in which the subscription's end is not known yet; empty if it has not ended."""
        return [origin for origin, last in (self.end or {}).items() if last == UNKNOWN_END]

    @property
    def known_end(self) -> dict[Origin, int]:
        """Origin -> the last offset that the subscription matches, where that is known; empty if it has not ended."""
        return {origin: last for origin, last in (self.end or {}).items() if last != UNKNOWN_END}

    @property
    def has_policy(self) -> bool:
        """Whether the subscription has a time to live or a maximum count."""
        return self.ttl_s is not None or self.max_count is not None

    @property
    def first_retained(self) -> int:
        """The lowest number of an entry that the subscription may still hold; policies have removed those below."""
        return max(self.expired_below, self.displaced_below)

    def set_policy(self, ttl_s: int | None, max_count: int | None) -> None:
        """Set the time to live, in seconds, and the maximum count of its entries; None: no bound."""
        self.ttl_s, self.max_count = ttl_s, max_count

    # ------------------------------------------------------------ promises

    def promise(self, promises: Mapping[Origin, int]) -> None:
        """Promise every match above these offsets, by origin. Receivers are not told before :meth:`announced`."""
        self.promised |= promises
        self.unannounced |= promises.keys()

    def due_since(self, origin: Origin, now_ms: int) -> int:
        """Return when the promise of an origin that waits was asked for first, in ms of the engine's clock.

        Args:
            now_ms: the time of this call, which counts if it is the first one.
        """
        return self._due_since.setdefault(origin, now_ms)

    def announced(self, promises: Iterable[Origin]) -> None:
        """Note that the promises for these origins are durable: receivers may be told."""
        self.unannounced.difference_update(promises)

    def unpromise(self, promises: Iterable[Origin]) -> None:
        """Withdraw the promises for these origins; no receiver may have been told of them."""
        for origin in promises:
            self.promised.pop(origin, None)
            self.unannounced.discard(origin)

    # ------------------------------------------------------------ its end

    def limit(self, limits: Mapping[Origin, int]) -> None:
        """Match nothing above these offsets any more, for a subscription that has ended: their sites have said how far
        their logs went (handover rule 7).

        The end stays unknown until the session has all up to there. In origins that are not named here the subscription
        goes on as before. Note that a call for an active subscription would end it everywhere else.

        Args:
            limits: origin -> the last offset that may still match.
        """
        self.limits |= limits
        self.end = dict.fromkeys(limits, UNKNOWN_END) | (self.end or {})

    def end_unconfirmed(self, origin: Origin) -> None:
        """Note that the end in an origin was set although its site did not say how far its log went."""
        self.unconfirmed_ends.add(origin)

    def end_attested(self, *, on_record: bool) -> None:
        """Note whether the journal has the subscription's end as it is now; until then the session keeps it."""
        self.is_end_on_record = on_record

    # ------------------------------------------------------------ what it is

    def settings(self) -> SubscriptionSettings:
        """Return the settings that receivers are shown; of the subscription's keys their number only."""
        held = len(self.protection.keys)
        return SubscriptionSettings(
            expression=self.expression.text,
            ttl_s=self.ttl_s,
            max_count=self.max_count,
            owner=self.owner,
            keys=held,
            insecure=self.insecure,
        )

    def wants(self, origin: Origin, offset: int) -> bool:
        """Tell whether a coordinate lies in the subscription's interval: above `start`, and not above its end or limit.

        Neither its expression nor its keys are looked at.
        """
        if offset <= self.start.get(origin, NOTHING):
            return False
        return self.end is None or offset <= min(self.end.get(origin, NOTHING), self.limits.get(origin, UNKNOWN_END))

    def row(self) -> SubscriptionRow:
        """Return the row that store and changelog keep of the subscription; a copy."""
        return SubscriptionRow(
            id=self.id,
            expression=self.expression.text,
            start=dict(self.start),
            promise_floor=dict(self.promise_floor),
            promised=dict(self.promised),
            end=None if self.end is None else dict(self.end),
            owner=self.owner,
            ttl_s=self.ttl_s,
            max_count=self.max_count,
            expired_below=self.expired_below,
            displaced_below=self.displaced_below,
            generation=self.generation,
            keys=self.keys,
            owner_keys=self.owner_keys,
            insecure=self.insecure,
            replaced=self.replaced,
            payer=self.payer,
        )

    @classmethod
    def of(cls, row: SubscriptionRow) -> Subscription:
        """Return the subscription of a row of store or changelog."""
        return cls(
            id=row.id,
            expression=parse(row.expression),
            start=dict(row.start),
            promise_floor=dict(row.promise_floor),
            promised=dict(row.promised),
            end=None if row.end is None else dict(row.end),
            owner=row.owner,
            ttl_s=row.ttl_s,
            max_count=row.max_count,
            expired_below=row.expired_below,
            displaced_below=row.displaced_below,
            generation=row.generation,
            keys=row.keys,
            owner_keys=row.owner_keys,
            insecure=row.insecure,
            replaced=row.replaced,
            payer=row.payer,
        )
