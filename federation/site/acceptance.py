"""The acceptance of records: which ones count, and how far each origin has come. The fold of a site log begins with it.

After a record of a newer leader's epoch, a link's older records are ignored; a record at or below the frontier is a
duplicate. An origin is accepted over the link on the tree's way to its site; where the tree does not tell, over the one
that brought it first. An origin that has ended is complete up to the highest offset seen anywhere (handover rule 27).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from federation.site.dispatching_tree import NO_TREE, UNKNOWN_TREE, Tree
from waypost.identity import NOTHING, Origin, SiteId, origin_of, site_of
from waypost.records import (
    Damaged,
    Effective,
    Forwarded,
    LinkLed,
    LogBegun,
    OriginEnded,
    Progress,
    Published,
    Record,
    Repaired,
    Severed,
    TreeEntered,
    checksum_of,
)


class EndedOrigin(msgspec.Struct, frozen=True):
    """An origin of an earlier log epoch: its log has it up to `end`, and it was seen up to `seen` at most.

    `following`: the origin of the next log epoch; `begins`: the offset below which that has nothing.
    """

    end: int
    seen: int
    following: Origin
    begins: int


class LogMark(msgspec.Struct, frozen=True):
    """The identity of the log that was read, and the last record read of it, by which another or a shorter log is
    noticed.

    `offset` and `checksum` are of that record; -1: none was read; checksum 0: it cannot be compared.
    """

    federation: str = ""
    identity: str = ""
    log_epoch: int = 1
    offset: int = NOTHING
    checksum: int = 0

    @property
    def is_comparable(self) -> bool:
        """Whether the mark is of a record with a checksum, which can be compared with the log's."""
        return self.offset >= 0 and self.checksum != 0

    def is_confirmed_by(self, offset: int, record: Record) -> bool:
        """Tell whether the record that the log has at `offset` now is the one that was read last.

        A damaged record at the mark's offset counts as the one: damage at rest is no other log.
        """
        return offset == self.offset and (isinstance(record, Damaged) or checksum_of(record) == self.checksum)


class Acceptance:
    """The records that count: how far each origin has come, over which link, under which leader's epoch.

    Args:
        site: whose log it is.
        frontier: by origin, the last offset accepted; None: nothing was.
        link_epochs: the highest leader's epoch of each link.
        upstream: the link over which each origin is accepted.
        mark: the identity of the log, and the last record that was read.
        ended: origins of earlier log epochs, of this site and of others.
        repaired: the offset up to which unreadable records were repaired.
        tree: the dispatching tree.
    """

    __slots__ = (
        "_next_hops",
        "ended",
        "frontier",
        "link_epochs",
        "mark",
        "origin",
        "repaired",
        "site",
        "tree",
        "upstream",
    )

    def __init__(
        self,
        site: SiteId,
        frontier: Mapping[Origin, int] | None = None,
        *,
        link_epochs: Mapping[SiteId, int] | None = None,
        upstream: Mapping[Origin, SiteId] | None = None,
        mark: LogMark | None = None,
        ended: Mapping[Origin, EndedOrigin] | None = None,
        repaired: int = NOTHING,
        tree: Tree = NO_TREE,
    ) -> None:
        self.site = site
        self._set_tree(tree)
        self.repaired = repaired
        self.mark = mark or LogMark()
        self.origin = origin_of(site, log_epoch=self.mark.log_epoch)
        self.frontier: dict[Origin, int] = dict(frontier or {self.origin: NOTHING})
        self.link_epochs: dict[SiteId, int] = dict(link_epochs or {})
        self.upstream: dict[Origin, SiteId] = dict(upstream or {})
        self.ended: dict[Origin, EndedOrigin] = dict(ended or {})

    def copy(self) -> Acceptance:
        """Return an independent copy of this acceptance."""
        return self._of(self.site, self._row())

    def snapshot(self) -> bytes:
        """Return this acceptance as bytes, for :meth:`restore`."""
        return msgspec.msgpack.encode(self._row())

    def _row(self) -> _AcceptanceRow:
        return _AcceptanceRow(
            frontier=self.frontier,
            link_epochs=self.link_epochs,
            upstream=self.upstream,
            mark=self.mark,
            ended=self.ended,
            repaired=self.repaired,
            tree=self.tree,
        )

    @classmethod
    def restore(cls, site: SiteId, data: bytes) -> Acceptance:
        """Return the acceptance that :meth:`snapshot` encoded, of the log of `site`. Raises msgspec.DecodeError: `data`
        is no such snapshot.
        """
        return cls._of(site, msgspec.msgpack.decode(data, type=_AcceptanceRow))

    @classmethod
    def _of(cls, site: SiteId, row: _AcceptanceRow) -> Acceptance:
        return cls(
            site,
            row.frontier,
            link_epochs=row.link_epochs,
            upstream=row.upstream,
            mark=row.mark,
            ended=row.ended,
            repaired=row.repaired,
            tree=row.tree,
        )

    def accept(self, record: Forwarded | Progress | Effective | OriginEnded) -> bool:
        """Decide whether a link's record of another site's origin counts: no later leader of the link is known, the
        dispatching tree does not reach the origin over another link, and the origin is accepted over no other link.

        The call changes this acceptance: the leader's epoch is recorded unless a later one is known, and the link of
        the origin if the record counts. No frontier is advanced.

        Returns:
            Whether the record counts.
        """
        site = site_of(record.origin)
        if not self.accept_link_epoch(record) or site == self.site:
            return False
        if self._next_hops.get(site, record.link) != record.link:
            return False
        return self.upstream.setdefault(record.origin, record.link) == record.link

    def reaches(self, site: SiteId) -> bool:
        """Tell whether the dispatching tree reaches a site from here; True also as long as no tree is known that has
        links of this site.
        """
        return site == self.site or not self._next_hops or site in self._next_hops

    def accept_link_epoch(self, record: Forwarded | Progress | Effective | OriginEnded | Severed | LinkLed) -> bool:
        """Record the epoch of the leader that sent a link's record, unless a record of a later leader was read; tell
        whether the record counts by its leader's epoch.
        """
        if record.link_epoch < self.link_epochs.get(record.link, 0):
            return False
        self.link_epochs[record.link] = record.link_epoch
        return True

    def advance(self, offset: int, record: Record) -> bool:
        """Apply the next record of the log, at `offset`; tell whether it advanced a frontier. The `mark` stays at its
        offset: :meth:`read` moves it.

        Returns:
            Whether a frontier advanced. False also for a record that begins a log epoch, and for the end of an origin
                that is not the sending neighbour's own, though these may raise frontiers, and for records that have
                none (:class:`waypost.records.LinkLed`, interests, filters).
        """
        match record:
            case Published():
                self.frontier[self.origin] = offset
                return True
            case Forwarded():
                return self.accept(record) and self._arrive(record.origin, record.offset)
            case Progress():
                return self.accept(record) and self._arrive(record.origin, record.upto)
            case LogBegun():
                self.begin_log(offset, record)
                return False
            case OriginEnded():
                return self.end_origin(record) and is_own_loss(record) and self._raise(self.origin, offset)
            case Severed():
                return self.accept_link_epoch(record) and self._raise(self.origin, offset)
            case LinkLed():
                self.accept_link_epoch(record)
                return False
            case TreeEntered():
                return self.enter_tree(offset, record) is not None
            case Damaged():
                return self._raise(self.origin, offset)
            case Repaired():
                if record.upto > self.repaired:
                    # Origins are taken from the link over which they first come from here on.
                    self.repaired = record.upto
                    self.upstream.clear()
                    self._set_tree(UNKNOWN_TREE)
                return self._raise(self.origin, offset)
            case _:
                return False

    def begin_log(self, offset: int, record: LogBegun) -> list[Origin]:
        """Enter the log epoch of this record, at `offset`; one of an earlier log epoch changes nothing (handover rule
        27).

        Returns:
            The origins that have ended by it, or have lost more than was known.
        """
        if record.log_epoch < self.mark.log_epoch:
            return []
        following = origin_of(self.site, log_epoch=record.log_epoch)
        # Where the epoch has begun this reader knows by its first record. One that began within it knows where the
        # epoch before has ended.
        begins = max((end for end, _ in record.ended.values()), default=NOTHING) if record.again else offset
        changed = []
        for origin, (end, seen) in record.ended.items():
            known = self.ended.get(origin)
            if known is None:
                # The log may have lost more since the registry recorded it; of an origin whose beginning it has lost it
                # has nothing.
                last = min(end, offset - 1) if origin == self.origin else NOTHING
                now = EndedOrigin(last, max(last, seen), following, begins)
                # Neighbours count the following origin as seen up to here, also where this reader began in it.
                self._raise(following, begins if following == self.origin else offset)
            else:
                now = msgspec.structs.replace(known, end=min(known.end, end), seen=max(known.seen, seen))
            if now == known:
                continue
            self.ended[origin] = now
            self._raise(origin, now.seen)
            changed.append(origin)
        self.mark = LogMark(record.federation, record.identity, record.log_epoch, self.mark.offset, self.mark.checksum)
        if following != self.origin:
            self.origin = following
            self.frontier.setdefault(following, offset)
        return changed

    def end_origin(self, record: OriginEnded) -> bool:
        """Record that another site's origin has ended (handover rule 27). What this site has seen of it beyond what
        the record names was seen too.

        Returns:
            Whether that, or a part of the loss, is new; False also if the record does not count (:meth:`accept`).
        """
        if not self.accept(record):
            return False
        known = self.ended.get(record.origin)
        seen = max(record.seen, self.frontier.get(record.origin, NOTHING))
        now = EndedOrigin(record.end, seen, record.following, record.begins)
        if known is not None:
            # Only what is lost grows: the neighbour may know less of where the following origin has begun.
            now = msgspec.structs.replace(known, end=min(record.end, known.end), seen=max(seen, known.seen))
            if now == known:
                return False
        self.ended[record.origin] = now
        self._raise(record.origin, now.seen)
        self.upstream.setdefault(now.following, record.link)
        self._raise(now.following, now.begins)
        return True

    def enter_tree(self, offset: int, record: TreeEntered) -> list[Origin] | None:
        """Forward over the tree of this record, at `offset` of the log, from here on.

        Returns:
            The origins, not ended, that arrived over another link before: some of their notifications may have passed
                this site by. None: the tree is not a later one, and nothing has changed.
        """
        if record.tree_epoch <= self.tree.epoch:
            return None
        self._set_tree(Tree(record.tree_epoch, record.edges))
        moved = [origin for origin, link in self.upstream.items() if self._next_hops.get(site_of(origin)) != link]
        for origin in moved:
            del self.upstream[origin]
        self._raise(self.origin, offset)
        # One that has ended is complete; only who is to be told of its end has changed.
        return [origin for origin in moved if origin not in self.ended]

    def _set_tree(self, tree: Tree) -> None:
        self.tree = tree
        self._next_hops = tree.next_hops(self.site)

    def read(self, offset: int, record: Record) -> None:
        """Note the record at `offset` as the last one that was read of the log: it becomes the `mark`."""
        self.mark = msgspec.structs.replace(self.mark, offset=offset, checksum=checksum_of(record))

    def _arrive(self, origin: Origin, offset: int) -> bool:
        """Raise a frontier by what a link brings. An origin that has ended was seen that far, then: of that, too, is
        lost what has not arrived (handover rule 27).
        """
        ended = self.ended.get(origin)
        if ended is not None and offset > ended.seen:
            self.ended[origin] = msgspec.structs.replace(ended, seen=offset)
        return self._raise(origin, offset)

    def _raise(self, origin: Origin, offset: int) -> bool:
        if offset <= self.frontier.get(origin, NOTHING):
            return False
        self.frontier[origin] = offset
        return True


def is_own_loss(record: OriginEnded) -> bool:
    """Tell whether the origin that ended is of the very neighbour that sent the record, whose log has lost its end.

    Such a neighbour may have lost this site's requests too, so matches of other origins may have passed it by since.
    """
    return site_of(record.origin) == record.link


class _AcceptanceRow(msgspec.Struct, frozen=True, kw_only=True):
    frontier: dict[Origin, int]
    link_epochs: dict[SiteId, int]
    upstream: dict[Origin, SiteId]
    mark: LogMark
    ended: dict[Origin, EndedOrigin]
    repaired: int = NOTHING
    tree: Tree = Tree()
