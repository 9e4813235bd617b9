"""The ports of a proxy to its site log, the registry, the changelog and the journal.

Three adapters of each pass one contract suite (tests/contracts): in memory, embedded (a file that the processes of one
machine share), and real (Kafka, etcd).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field

from waypost.checkpoint import Checkpoint, Rank
from waypost.facts import Fact
from waypost.identity import Edge, Incarnation, Origin, Ownership, ProxyId, SessionId, SiteId
from waypost.records import Record

Batch = list[tuple[int, Record]]
"""Records with their offsets, ascending."""
SECRET_BYTES = 32
WATCH_SIGN_S = 2.0


class SiteLog(Protocol):
    """The ordered, replayable event log of a site. Offsets ascend by 1; an adapter gives MISSING where it has no
    record.
    """

    async def start(self) -> None:
        """Connect to the storage, before any other call; a handle whose start failed is not used again.

        Raises:
            LogUnavailable: no answer within 5 s; the error names the address.
            BadConfiguration: the storage is there, in a form that cannot be used.
        """
        ...

    async def append(self, records: Sequence[Record]) -> list[int]:
        """Append records in this order; return their offsets, in the same order, once the records survive a crash.
        Without records the result is empty.

        No append overtakes one that failed: every append of this handle that was called before the failure fails with
        it. An append waits while the handle is interrupted (:meth:`interrupted`); an adapter may end that wait after
        its deadline, with LogUnavailable.

        Raises:
            LogReplaced: the log assigned offsets that this handle had seen in use, so the log has lost its end; the
                records are in it.
            LogUnavailable: it is not known whether the records were appended; or this handle is closed.
        """
        ...

    def tail(self, offset: int) -> AsyncIterator[Batch]:
        """Yield every record from `offset` on, for ever, in batches that are not empty: none missed, none twice, in
        order. What is damaged or missing in the log comes as :class:`waypost.records.Damaged`, at its offset.

        The iteration continues after an outage of the server, and yields nothing while the handle is interrupted
        (:meth:`interrupted`). Note that :attr:`seen_below` rises to `offset` when it begins.

        Args:
            offset: of the first record; the caller has everything below it.

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogReplaced: the log ends before `offset`, or the record yielded last is another one now.
            LogUnavailable: this handle was closed, or its disk fails.
        """
        ...

    async def read(self, offset: int, limit: int) -> Batch:
        """Return up to `limit` records from `offset` on, with their offsets, ascending, also while the handle is
        interrupted; empty: the log has none yet.

        What is damaged or missing in the log comes as :class:`waypost.records.Damaged`, at its offset. There may be
        fewer than `limit` although the log has more; read on behind the last one.

        Raises:
            HistoryTruncated: `offset` is older than the first record kept.
            LogUnavailable: the storage does not answer, or this handle is closed.
        """
        ...

    async def first_offset(self) -> int:
        """Return the offset of the first record kept; if none is, that of the next one. Raises LogUnavailable."""
        ...

    async def end_offset(self) -> int:
        """Return the end of the log: the next record will have this offset or a higher one. Raises LogUnavailable."""
        ...

    @property
    def seen_below(self) -> int:
        """The offset below which every record was yielded by a tail of this handle, lies below the offset at which one
        of its tails began, or had its append answered here.

        Always 0 where the storage cannot lose its end.
        """
        ...

    async def interrupted(self) -> None:
        """Wait until an interruption of this handle is to be reported, and return: the storage was out of reach, and
        the log may have lost its end meanwhile (handover rule 27).

        Each interruption is reported once, when the storage can be asked again. From its beginning until the caller's
        :meth:`resume`, appends of this handle wait, and its tails yield nothing; single reads go on.
        """
        ...

    def resume(self) -> None:
        """End an interruption: appends and tails go on. It has no effect if another interruption has begun.

        Call it after :meth:`interrupted`, once the log is known to have everything that was read of it (handover rule
        27).
        """
        ...

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise LogUnavailable. The log stays."""
        ...


class ProxyRow(BaseModel):
    """The registry's row of a live proxy, which ends with the proxy's lease.

    Args:
        proxy: its name.
        incarnation: of this start of it, and of this lease.
        site: the site where it runs.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    proxy: ProxyId
    incarnation: Incarnation
    site: SiteId
    url: str
    """The address for clients and peers, ``ws://host:port``."""
    changelog: str = ""
    """The address of the site's checkpoints, for a proxy of another site."""
    instance: str = ""
    """The id of the data folder, the same in all incarnations; it tells two proxies of one name apart."""
    lease_ttl_ms: int = 0
    """How long its lease lasts without a renewal, by its configuration; 0: not stated."""


class SiteLogRow(BaseModel):
    """The registry's row of a site's log: its identity, and how far it was read (handover rule 27).

    Args:
        identity: of the log, made once.
        log_epoch: the present one, from 1. It grows when the log turns out to be shorter than it was, or to differ from
            what was read of it.
        seen: the highest offset of the present log epoch that the site's proxies have read, as of a moment ago.
        ended: origins of earlier log epochs -> the last offset that the log still has of it, and the highest that was
            seen anywhere, as far as known.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    identity: str
    log_epoch: int = 1
    seen: int = -1
    ended: dict[Origin, tuple[int, int]] = {}


def encode_rank(rank: Rank) -> str:
    """Return the rank of a checkpoint as registries store it: EPOCH.SERIAL, in decimal."""
    return f"{rank[0]}.{rank[1]}"


def decode_rank(text: str) -> Rank:
    """Return the rank that :func:`encode_rank` wrote as `text`. Raises ValueError: `text` is no such text."""
    epoch, _, serial = text.partition(".")
    return int(epoch), int(serial)


class LinkRow(BaseModel):
    """The registry's row of a link between two sites: both forward to each other, or stand by.

    Args:
        sites: the two, in the order of their names.
        removed: an operator has removed it; a configuration that names it does not bring it back.
        leaves: those of the two that pass nothing on: each is a leaf of every dispatching tree.
    """

    model_config = ConfigDict(frozen=True)

    sites: Edge
    removed: bool = False
    leaves: tuple[SiteId, ...] = ()

    @property
    def key(self) -> str:
        """The part of a registry's key that names this link: SITE,SITE, each percent-encoded."""
        return ",".join(quote(site, safe="") for site in self.sites)


class TreeRow(BaseModel):
    """The registry's row of the dispatching tree: the links over which everything is forwarded.

    Args:
        epoch: grows with each change; 0: none was chosen yet.
        links: of the tree.
    """

    model_config = ConfigDict(frozen=True)

    epoch: int = 0
    links: tuple[Edge, ...] = ()


NO_TREE_ROW = TreeRow()


class DrainRow(BaseModel):
    """An operator's order to drain a proxy at `rate` sessions a second. It outlives the proxy's incarnations."""

    model_config = ConfigDict(frozen=True)

    rate: float = Field(gt=0)
    paused: bool = False


class OwnerRow(BaseModel):
    """The registry's row of a session.

    Args:
        proxy: the owner.
        epoch: of its ownership; each change of owner makes it greater.
    """

    model_config = ConfigDict(frozen=True)

    proxy: ProxyId
    epoch: int

    @property
    def ownership(self) -> Ownership:
        """The owner and the epoch of this row as an :class:`waypost.identity.Ownership`."""
        return Ownership(self.proxy, self.epoch)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a create or claim.

    Args:
        won: the row of this call is in force.
        current: the row in force; of a session whose row was removed, that of the floor (:meth:`Registry.owner`). None:
            the session never had one.
    """

    won: bool
    current: Ownership | None


@dataclass(frozen=True, slots=True)
class OwnerChanged:
    """Event of the registry's watch: the row of a session changed.

    Args:
        session: the session.
        ownership: its row as it is now; None: it was removed.
    """

    session: SessionId
    ownership: Ownership | None


@dataclass(frozen=True, slots=True)
class ProxyUp:
    """Event of the registry's watch: a proxy was announced under a new lease.

    Args:
        row: the proxy's row.
    """

    row: ProxyRow


@dataclass(frozen=True, slots=True)
class ProxyDown:
    """The lease of this incarnation of the proxy has ended.

    An incarnation that was replaced is not renewed any more; this event comes when its lease has run out, and by then a
    later incarnation of the proxy may be known.
    """

    proxy: ProxyId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class DrainChanged:
    """Event of the registry's watch: an operator ordered a drain of a proxy, changed it, or took it back.

    Args:
        proxy: the proxy that is to hand its sessions over.
        row: the order; None: it was taken back.
    """

    proxy: ProxyId
    row: DrainRow | None


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Event of the registry's watch: a link has another leader.

    Args:
        link: the name of the link.
        proxy: the leader; None: the link has none.
        epoch: that of the leader; a later leader's is higher.
    """

    link: str
    proxy: ProxyId | None
    epoch: int


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """Event of the registry's watch: a link between two sites was added or removed.

    Args:
        row: the link's row as it is now, which says whether it was removed.
    """

    row: LinkRow


@dataclass(frozen=True, slots=True)
class TreeChosen:
    """Event of the registry's watch: another dispatching tree was chosen.

    Args:
        row: the row of the tree that is in force.
    """

    row: TreeRow


@dataclass(frozen=True, slots=True)
class SiteForgotten:
    """A site does not come back: nobody looks for checkpoints there any more, until it has a proxy again."""

    site: SiteId


@dataclass(frozen=True, slots=True)
class Reloaded:
    """Event of the registry's watch: it starts here, or starts again after a compaction. It replaces everything known
    by earlier events.

    Args:
        owners: the rows of all sessions.
        proxies: the rows of the live proxies.
        leaders: by name of the link, its leader and that leader's epoch.
        drains: by proxy, the order to drain it.
        links: by pair of sites, the row of their link.
        tree: the row of the dispatching tree.
    """

    owners: dict[SessionId, Ownership]
    proxies: dict[ProxyId, ProxyRow]
    leaders: dict[str, tuple[ProxyId, int]]
    changelogs: dict[SiteId, str] = field(default_factory=dict)
    """The address of the checkpoints of every site that ever had a proxy and is not forgotten, also if none is
    alive.
    """
    drains: dict[ProxyId, DrainRow] = field(default_factory=dict)
    links: dict[Edge, LinkRow] = field(default_factory=dict, kw_only=True)
    tree: TreeRow = field(default=NO_TREE_ROW, kw_only=True)


@dataclass(frozen=True, slots=True)
class WatchAlive:
    """The watch works, and nothing has changed. It comes at least every :data:`WATCH_SIGN_S` seconds of silence."""


RegistryEvent = (
    Reloaded
    | OwnerChanged
    | ProxyUp
    | ProxyDown
    | LeaderChanged
    | DrainChanged
    | LinkChanged
    | TreeChosen
    | SiteForgotten
)


class Lease(Protocol):
    """A lease: its holder counts as alive for `ttl_ms` after the beginning of the last renewal."""

    ttl_ms: int

    async def renew(self) -> bool:
        """Renew the lease: it lasts `ttl_ms` milliseconds from the beginning of this call.

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        ...

    async def revoke(self) -> None:
        """End the lease now, with all rows under it; one that has ended is no error. Raises RegistryUnavailable."""
        ...


class LeaseRenewer(Protocol):
    """A connection to the registry for another event loop, of another thread, which renews a lease granted on the
    first.
    """

    async def renew(self, lease: Lease) -> bool:
        """Renew the lease as its own :meth:`Lease.renew` does, over this connection.

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            Internal: `lease` is of another kind of registry.
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        ...

    async def close(self) -> None:
        """Close this connection; the leases that were renewed over it go on."""
        ...


class Registry(Protocol):
    """The registry: live proxies, the owner and epoch of every session, the leader of every link.

    Every method raises RegistryUnavailable when the registry does not answer. A create or claim may have been applied
    all the same; :meth:`owner` tells.
    """

    async def start(self) -> None:
        """Connect to the registry, before any other call; a handle whose start failed is not used again.

        Raises:
            RegistryUnavailable: no answer within 5 s; the error names the address.
        """
        ...

    async def create(self, session: SessionId, ownership: Ownership) -> Claimed:
        """Create the row of a session that never had one; of concurrent calls one wins.

        Args:
            session: whose row it is.
            ownership: the first owner, and the epoch.

        Returns:
            Whether this call won, and the row in force. A deleted session has a row, or counts as having one
            (:meth:`owner`), so it is created again by :meth:`claim`.

        Raises:
            RegistryUnavailable: the row may have been created all the same; :meth:`owner` tells.
        """
        ...

    async def claim(self, session: SessionId, expected: Ownership, new: Ownership) -> Claimed:
        """Compare and set the row of a session: the only commit point of a handover.

        Args:
            session: whose row it is.
            expected: the row that is to be replaced, as :meth:`owner` returns it.
            new: the row in its place.

        Returns:
            Whether this call made the change, and the row in force. A repetition after a lost answer does not win:
            `current` is then `new`.

        Raises:
            RegistryUnavailable: the change may have been made all the same; :meth:`owner` tells.
        """
        ...

    async def owner(self, session: SessionId) -> Ownership | None:
        """Return the session's row; for one without, what it counts as (:func:`waypost.identity.without_row`).

        Returns:
            None: the session never existed.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """
        ...

    async def forget(self, deleted: Mapping[SessionId, Ownership]) -> None:
        """Remove rows of deleted sessions, after the floor was raised to their generations (handover rule 28). A row
        that has changed stays.

        Without a row a session counts as one that was deleted in the generation of the floor, for :meth:`create` and
        :meth:`claim` too: epochs never start again, and nothing of a deleted session comes back. The watch reports
        every removal. The rank that :meth:`note_checkpoints` recorded for the session is removed too.

        Args:
            deleted: the rows as they are expected to be; one that is not of a deleted session stays. The floor is
                raised to the highest generation of all of them, also of those that stay.

        Raises:
            RegistryUnavailable: any of the rows may have been removed; a repetition does no harm.
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
        """Take the name of a proxy by compare-and-set of its row, and return the lease under which the row stands: the
        row ends with it. The address of the site's checkpoints stays.

        A name has one holder (federation/names.py). An incarnation that is replaced is not renewed any more. The watch
        reports the proxy.

        Args:
            row: the row of the proxy, whose `proxy` is the name.
            ttl_ms: how long the lease lasts without a renewal, at least, in milliseconds.
            earlier: incarnations of this instance that have ended, and may be replaced; None: all of them have.
            replace: take the name from any holder.

        Raises:
            NameInUse: another instance, or an incarnation that is not among the earlier ones, has the name under a
                lease.
            RegistryUnavailable: the row may have been set all the same, under a lease that nobody renews.
        """
        ...

    async def drain(self, proxy: ProxyId, row: DrainRow | None) -> None:
        """Set the order to drain a proxy, alive or not; None: take the order back, if there is one.

        The watch reports it, and the order outlives the proxy's incarnations. Where there is no order to take back, the
        watch may report that all the same. Raises RegistryUnavailable: the order may have been changed.
        """
        ...

    async def elect(self, link: str, proxy: ProxyId, lease: Lease) -> int | None:
        """Try to make the proxy the leader of `link` under the lease.

        A proxy that leads under this lease already begins another term: everything still under way from its last one is
        void. The watch reports the new leader.

        Args:
            link: its name (:func:`waypost.identity.link_name`).
            proxy: the proxy that is to lead.
            lease: of that proxy, granted by this registry; the leadership ends with it.

        Returns:
            The leader's epoch, greater than all before; None: another lease leads, or this one has ended.

        Raises:
            Internal: the lease is of another kind of registry.
            RegistryUnavailable: the proxy may have been elected all the same; a repetition begins another term.
        """
        ...

    async def resign(self, link: str, lease: Lease) -> None:
        """Give the leadership of `link` back; no effect if it is not held under the lease. The watch reports that the
        link has no leader.

        Args:
            link: its name (:func:`waypost.identity.link_name`).
            lease: that was passed to :meth:`elect`, granted by this registry.

        Raises:
            Internal: the lease is of another kind of registry; the registry in memory does nothing instead.
            RegistryUnavailable: the leadership may have been given back all the same; a repetition does no harm.
        """
        ...

    async def set_link(self, row: LinkRow, *, seed: bool) -> None:
        """Write the row of a link, which the watch reports. Raises RegistryUnavailable.

        Args:
            row: the row to be written.
            seed: write it only if the link has no row; the row of a removed link counts as one.
        """
        ...

    async def claim_tree(self, expected: TreeRow, new: TreeRow) -> bool:
        """Compare and set the row of the dispatching tree; return whether `expected` was in force, and `new` is now.

        Args:
            expected: the row to be replaced; of epoch 0: there is none.
            new: the row in its place.

        Raises:
            RegistryUnavailable: the row may have been set all the same; the watch reports it then.
        """
        ...

    async def forget_site(self, site: SiteId) -> bool:
        """Remove the address of a site's checkpoints: nobody looks for any there from now on.

        A proxy of the site that announces itself makes the site known again. The row of the site's log stays, so that
        the site cannot come back with another log.

        Returns:
            True: there is no address now, also if there was none. False, and nothing was removed here: a proxy of the
                site has a lease, or announces itself at this time, or another call removes the address at this time.

        Raises:
            RegistryUnavailable: the address may have been removed all the same.
        """
        ...

    async def secret(self, before: bytes = b"", *, make: bool = True) -> bytes:
        """Return the secret of the federation, which only readers of this registry know: 32 random bytes, made by the
        first call.

        Of concurrent calls one wins, for ever. The watch does not report it. Raises RegistryUnavailable.

        Args:
            before: the secret so far, which a registry that has lost everything accepts again; empty: none is known.
            make: make a secret if there is none; False: return b"" instead.
        """
        ...

    async def site_log(self, site: SiteId) -> SiteLogRow | None:
        """Return the row of the site's log; None: it has none. Raises RegistryUnavailable."""
        ...

    async def claim_site_log(self, site: SiteId, expected: SiteLogRow | None, new: SiteLogRow) -> bool:
        """Compare and set the row of the site's log; return whether `expected` was in force, and `new` is now.

        The watch does not report it.

        Args:
            site: whose log it is.
            expected: the row to be replaced; None: there is none.
            new: the row in its place.

        Raises:
            RegistryUnavailable: the row may have been set all the same.
        """
        ...

    async def note_checkpoints(self, ranks: Mapping[SessionId, Rank]) -> None:
        """Record the rank of the checkpoint of each session up to which clients were answered (handover rule 19).

        A rank that is not above the recorded one changes nothing. A session without a row is skipped, and
        :meth:`forget` removes the rank. The watch does not report it. Raises RegistryUnavailable: any of the ranks may
        have been recorded.
        """
        ...

    async def noted_checkpoint(self, session: SessionId) -> Rank | None:
        """Return the highest rank that :meth:`note_checkpoints` recorded for the session; None: there is none, or
        :meth:`forget` has removed it.

        Raises:
            RegistryUnavailable: the registry does not answer.
        """
        ...

    def watch(self) -> AsyncIterator[RegistryEvent | WatchAlive]:
        """Yield :class:`Reloaded`, then every change in order, none skipped; and :class:`WatchAlive` in silence.

        Owners and incarnations are in one order: every incarnation that began before a row was written is reported
        before that row (handover rule 26). After an outage of the server the watch goes on with a `Reloaded`. It ends,
        or raises RegistryUnavailable, once this handle is closed or its disk fails.
        """
        ...

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise RegistryUnavailable. Leases are not ended."""
        ...


@dataclass(frozen=True, slots=True)
class SiteSnapshot:
    """The state of a site at `position`, the offset of the next record of its log: `state` is SiteState.snapshot().

    Readers take the highest (log epoch, position): in a later log epoch positions begin lower.
    """

    position: int
    state: bytes
    log_epoch: int = 1

    @property
    def rank(self) -> tuple[int, int]:
        """The (log epoch, position) of this snapshot: of two of a site the higher one counts."""
        return self.log_epoch, self.position


class Changelog(Protocol):
    """The store of what outlives a proxy: checkpoints, from which another proxy rebuilds a session, and the state of
    a site, with which a proxy begins at a site log whose beginning is gone.
    """

    async def start(self) -> None:
        """Connect to the storage, before any other call; a handle whose start failed is not used again.

        Raises:
            LogUnavailable: no answer within 5 s; the error names the address.
            BadConfiguration: the storage is there, in a form that cannot be used.
        """
        ...

    async def put(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; return once it survives a crash. A first checkpoint (`is_first`) whose rank is there
        already is not written again, and is no error.

        Raises:
            CheckpointOutdated: there is one that counts more, or an owner's of the same rank (handover rule 19), as far
                as this handle knows; nothing was written. This handle knows all that was there before its first `put`,
                and, for a first checkpoint, all that was there before the call. A first checkpoint never counts more
                than an owner's.
            LogUnavailable: it is not known whether the checkpoint was written.
        """
        ...

    async def latest(self, session: SessionId) -> tuple[Checkpoint, ...]:
        """Return the checkpoints of the session that count, two at most, the lower one first (handover rule 19).

        Returns:
            The highest one by rank that an owner wrote, if there is one; behind it a first one (`is_first`), if it is
            higher: the proxy that made the session has written it, or tried to make the session. Empty: there is no
            checkpoint of the session.

        Raises:
            BadRecord: one that counts is damaged.
            LogUnavailable: the storage does not answer.
        """
        ...

    async def forget(self, deleted: Mapping[SessionId, int]) -> None:
        """Remove the checkpoints of deleted sessions; return once that survives a crash. Raises LogUnavailable.

        A late write of an old owner may bring one back. It has no effect: no row names that epoch any more.

        Args:
            deleted: by session, the epoch up to which its checkpoints are removed, inclusive.
        """
        ...

    async def lost(self) -> None:
        """Wait until this handle finds that a part of what was written is not there any more, and return; proxies then
        write the checkpoints that they have again.

        Each loss is reported once. A storage that cannot lose a part of itself waits for ever.
        """
        ...

    async def put_site(self, snapshot: SiteSnapshot) -> None:
        """Write the snapshot of the site's state; return once it survives a crash. Raises LogUnavailable.

        A snapshot that is not of a higher rank than the one there changes nothing.
        """
        ...

    async def latest_site(self) -> SiteSnapshot | None:
        """Return the snapshot of the site's state with the highest rank, of those that are complete and can be read;
        None: there is none. Raises LogUnavailable.
        """
        ...

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise LogUnavailable. What was written stays."""
        ...


class Journal(Protocol):
    """The store of facts for the audit. A relayed fact that comes twice has the same writer and number.

    A journal may be in parts (federation/journal_segments.py): each begins with a fact of the journal's own, which
    states what the parts before had. Nothing is removed through this port.
    """

    async def start(self) -> None:
        """Connect to the storage, before any other call; a handle whose start failed is not used again.

        Raises:
            LogUnavailable: no answer within 5 s; the error names the address.
            BadConfiguration: the storage is there, in a form that cannot be used.
        """
        ...

    async def attest(self, facts: Sequence[Fact]) -> None:
        """Write facts in this order; return once they survive a crash of this process.

        Raises:
            LogUnavailable: it is not known whether they were written; the audit removes a fact that is written twice.
        """
        ...

    async def close(self) -> None:
        """Close this handle; a call under way, or a later one, may raise LogUnavailable. What was written stays."""
        ...
