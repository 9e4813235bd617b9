"""The ports through which a proxy sees its site log, its registry, the changelog and the journal.

Three adapters of each hold to one contract suite (tests/contracts): in memory, embedded (a file that the processes of
one machine share), and real (Kafka, etcd).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from waypost.checkpoint import Checkpoint, Rank
from waypost.facts import Fact
from waypost.identity import Incarnation, Origin, Ownership, ProxyId, SessionId, SiteId
from waypost.records import Record

Batch = list[tuple[int, Record]]
"""Records with their offsets, ascending."""
SECRET_BYTES = 32
WATCH_SIGN_S = 2.0


class SiteLog(Protocol):
    """The ordered, replayable event log of a site. Offsets ascend; Kafka may leave holes."""

    async def start(self) -> None:
        """Reach what it stands on; raises LogUnavailable within 5 s, naming the address."""
        ...

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Append in this order and return the offsets, once the records survive a crash.

        Nothing overtakes what failed: with it fails every append of this handle that was called before it failed.

        Raises:
            LogReplaced: the log gave them offsets that this handle had seen in use: it has lost its end.
            LogUnavailable: not known whether they were appended.
        """
        ...

    def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Yield every record from `offset` on, for ever: nothing missed, nothing twice, in order.

        It outlives the absences of a server.

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogReplaced: the log ends before `offset`, or what it had yielded last is another record now.
            LogUnavailable: this handle was closed, or its disk fails.
        """
        ...

    async def read(self, offset: int, limit: int) -> Batch:
        """Return up to `limit` records from `offset` on; raises as :meth:`tail`."""
        ...

    async def first_offset(self) -> int:
        """Return the first offset kept."""
        ...

    async def end_offset(self) -> int:
        """Return the offset that the next record will have, at least."""
        ...

    @property
    def seen_below(self) -> int:
        """Below this offset this handle has read every record, or had its append answered."""
        ...

    async def interrupted(self) -> None:
        """Wait until what keeps the log was out of reach: it may have lost its end since (handover rule 27).

        From then on this handle appends nothing and reads nothing further, until :meth:`go_on`.
        """
        ...

    def resume(self) -> None:
        """Append and read again: the log has all that was seen of it."""
        ...

    async def close(self) -> None: ...


class ProxyRow(BaseModel):
    """A live proxy, as the registry knows it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    proxy: ProxyId
    incarnation: Incarnation
    site: SiteId
    url: str
    """Where clients and peers connect: ws://host:port"""
    changelog: str = ""
    """Where the site's checkpoints can be read, for a proxy of another site."""
    instance: str = ""
    """Which proxy of that name it is: an id that its data folder keeps, the same in all its incarnations."""
    neighbours: tuple[SiteId, ...] | None = None
    """The sites with which it exchanges, as it is configured; None: it does not say."""
    lease_ttl_ms: int = 0
    """For how long its lease lasts without a renewal, as it is configured; 0: it does not say."""


class SiteLogRow(BaseModel):
    """Which log a site has, and how much of it was seen, as the registry knows it (handover rule 27).

    Args:
        identity: of the log, made once.
        log_epoch: the present one, from 1. It grows where the log turns out to be shorter than, or another than, what
            was read of it.
        seen: the highest offset of the present log epoch that the site's proxies have read, as of a moment ago.
        ended: origins of earlier log epochs -> the last offset that the log still has of it, and the highest that
            anybody is known to have seen.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    identity: str
    log_epoch: int = 1
    seen: int = -1
    ended: dict[Origin, tuple[int, int]] = {}


def encode_rank(rank: Rank) -> str:
    """Return the rank of a checkpoint as registries write it: EPOCH.SERIAL."""
    return f"{rank[0]}.{rank[1]}"


def decode_rank(text: str) -> Rank:
    epoch, _, serial = text.partition(".")
    return int(epoch), int(serial)


class DrainRow(BaseModel):
    """An operator wants a proxy emptied: its sessions go elsewhere, `rate` a second. It outlives the proxy's lives."""

    model_config = ConfigDict(frozen=True)

    rate: float = Field(gt=0)
    paused: bool = False


class OwnerRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    proxy: ProxyId
    epoch: int

    @property
    def ownership(self) -> Ownership:
        return Ownership(self.proxy, self.epoch)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a create or claim. `won`: this call's row is in force. `current`: the row now in force."""

    won: bool
    current: Ownership | None


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    session: SessionId
    ownership: Ownership | None


@dataclass(frozen=True, slots=True)
class ProxyUp:
    row: ProxyRow


@dataclass(frozen=True, slots=True)
class ProxyDown:
    """The lease of this life of the proxy has ended.

    A life whose place a restarted one has taken is not renewed any more; this comes when its time is over, and by
    then the proxy may be known under its later life.
    """

    proxy: ProxyId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class DrainChanged:
    proxy: ProxyId
    row: DrainRow | None


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    link: str
    proxy: ProxyId | None
    epoch: int


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The watch starts here, or starts again after a compaction: forget what earlier events said."""

    owners: dict[SessionId, Ownership]
    proxies: dict[ProxyId, ProxyRow]
    leaders: dict[str, tuple[ProxyId, int]]
    changelogs: dict[SiteId, str] = field(default_factory=dict)
    """Where the checkpoints of every site are that ever had a proxy: known without any of its proxies alive."""
    drains: dict[ProxyId, DrainRow] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchAlive:
    """The watch is at work, and nothing has changed. Comes at least every :data:`WATCH_SIGN_S` seconds of silence."""


RegistryEvent = Reloaded | OwnerChanged | ProxyUp | ProxyDown | LeaderChanged | DrainChanged


class Lease(Protocol):
    """A promise to be seen alive for `ttl_ms` after the last renewal began."""

    ttl_ms: int

    async def renew(self) -> bool:
        """Renew; False: it has ended for good. Raises RegistryUnavailable when nobody answers."""
        ...

    async def revoke(self) -> None:
        """End it now, with everything that hangs on it."""
        ...


class LeaseRenewer(Protocol):
    """A connection to the registry by which another event loop, of another thread, renews what was granted on ours."""

    def same_lease(self, lease: Lease) -> Lease: ...

    async def close(self) -> None: ...


class Registry(Protocol):
    """Who is a live proxy, who owns which session at which epoch, who leads which link.

    Every method raises RegistryUnavailable when the registry does not answer; a create or claim may have been
    applied all the same, and is settled by :meth:`owner`.
    """

    async def start(self) -> None:
        """Reach the registry; raises RegistryUnavailable within 5 s, naming the address."""
        ...

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        """Create the row of a session that never had one: one winner."""
        ...

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        """Compare and set: the only commit point of a handover.

        Only the call that made the change wins. The repeat of a claim that had been applied, its answer lost, does
        not: `current` is then `new`.
        """
        ...

    async def owner(self, session: SessionId) -> Ownership | None:
        """Return the session's row; for one without, what it counts as: :func:`waypost.identity.without_row`."""
        ...

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove these rows of deleted sessions, each if it is still so; first raise the floor to their generations.

        Without a row a session counts as one that was deleted in the generation of the floor, for :meth:`create` and
        :meth:`claim` too: epochs never begin anew, and nothing of a session that was deleted comes back. The watch
        tells of every row that is removed.
        """
        ...

    async def announce(
        self,
        row: ProxyRow,
        ttl_ms: int,
        *,
        earlier: Collection[Incarnation] | None = None,
        replace: bool = False,
    ) -> Lease:
        """Compare and set: make a proxy known for as long as its lease lasts, and its site's changelog for ever.

        A name has one holder (federation/names.py). An incarnation that is replaced is renewed no more.

        Args:
            earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
            replace: take the name from whoever has it.

        Raises:
            NameInUse: another instance, or an incarnation that is not among the earlier ones, has a lease that lasts.
        """
        ...

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Want the proxy emptied, or no more."""
        ...

    async def elect(self, link: str, proxy: ProxyId, lease: Lease) -> int | None:
        """Try to lead `link` under the lease. Return the leader's epoch, greater than all before, or None.

        Also than its own before: who leads already begins another term, in which nothing counts that is still under
        way from the last one.
        """
        ...

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        """Return what only those know who can read this registry: 32 random bytes, made by whoever asks first.

        One winner, for ever. The watch does not tell of it.

        Args:
            before: what it was; a registry that has lost everything takes it again.
            make: make it if there is none; else b"" says that there is none.
        """
        ...

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        """Return which log the site has; None: it never had one."""
        ...

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Compare and set: tell whether the row was as expected, and is `new` now. The watch does not tell of it."""
        ...

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Note up to which checkpoint of each session clients were answered; a lower one than is known changes nothing.

        Of a session without a row nothing is noted, and :meth:`forget` removes it. The watch does not tell of it.
        """
        ...

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        """Return what was noted of the session; None: nothing was."""
        ...

    def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        """Yield :class:`Reloaded`, then every change in order, never skipping one; signs of life in between.

        Of owners and of lives in one order: whoever is told of a row knows of every life that began before it was
        written (handover rule 26).
        """
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SiteSnapshot:
    """What a site log means up to `position`, the offset of the next record: `state` is SiteState.snapshot().

    Readers take the highest (log epoch, position): in a later log epoch positions begin lower.
    """

    position: int
    state: bytes
    log_epoch: int = 1

    @property
    def rank(self) -> tuple[int, int]:
        return self.log_epoch, self.position


class Changelog(Protocol):
    """What a proxy needs of others that are gone: checkpoints, enough to rebuild a session without its proxy, and the
    state of its site, enough to begin at a site log whose beginning is gone.
    """

    async def start(self) -> None:
        """Reach what it stands on; raises LogUnavailable within 5 s, naming the address."""
        ...

    async def put(self, checkpoint: Checkpoint) -> None:
        """Return once it survives a crash.

        Raises:
            CheckpointOutdated: there is one that counts more (handover rule 19), as far as this handle knows; it has
                read all that was there before its own first one, and before the first one of a session.
        """
        ...

    async def latest(self, session: SessionId) -> Checkpoint | None:
        """Return the checkpoint with the highest (epoch, serial)."""
        ...

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of sessions that were deleted, up to these epochs; return once that survives a crash.

        A late write of an old owner may bring one back. It means nothing: no row names that epoch any more.
        """
        ...

    async def lost(self) -> None:
        """Wait until something that had been written is not there any more: who has it writes it again."""
        ...

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Return once it survives a crash."""
        ...

    async def latest_site(self) -> SiteSnapshot | None:
        """Return the snapshot with the highest rank."""
        ...

    async def close(self) -> None: ...


class Journal(Protocol):
    """Facts for the audit. A relayed fact that comes twice has the same writer and number.

    A journal may be in parts (federation/journal_segments.py): each begins with a fact of the journal's own, which says
    what stood in those before. Nothing is removed through this port.
    """

    async def start(self) -> None:
        """Reach what it stands on; raises LogUnavailable within 5 s, naming the address."""
        ...

    async def attest(self, facts: Sequence[Fact]) -> None:
        """Return once the facts survive a crash of this process."""
        ...

    async def close(self) -> None: ...
