"""The filter of one direction of a link, on the sending side. Pure.

The far site's leader opens the link with its frontier F and its filters. The sender reads its own site log from the
first record that may be beyond F, in order, and forwards what matches a filter of the far site.

Records below the live position, when the link resumes, are filtered by the present filters: nothing that they forward
is wrong, and a session that needs more of the past catches up. Beyond it the sender folds each record that it reads, so
that the filter in force is always that of the record's own position, and announcements are sent between the records
that they are about. In both parts it ignores the records that the log's own fold ignores.

If retention has removed records that the far site does not have, the announcements of that opening begin only at the
present position: the far sessions of their filters catch up from the origins, which report what is lost. So do those of
single origins of other sites whose removed records the far site may lack, as the log's first record of each shows.

Silence is reported: whenever the sender has nothing more to send, it states how far each origin is complete, if that is
beyond its last record (handover rule 14).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from federation.messages import LinkRecord
from federation.site.acceptance import Acceptance
from federation.site.events import (
    Advanced,
    Announced,
    EndedAnnounced,
    InterestChanged,
    NotificationArrived,
    SeveranceAnnounced,
)
from federation.site.neighbour_filters import Filter
from federation.site.state import SiteState
from matching.index import Index
from waypost.identity import NOTHING, Origin, SiteId
from waypost.limits import MAX_SITES_PASSED
from waypost.notification import read_body
from waypost.records import (
    Damaged,
    Effective,
    Forwarded,
    OriginEnded,
    Progress,
    Published,
    Record,
    Repaired,
    Severed,
    TreeEntered,
)
from waypost.subscription import SubscriptionError, parse

Announcement = TypeVar("Announcement", Effective, OriginEnded)
POSITION_EVERY = 1000
POSITIONS_KEPT = 10_000
"""Past it every second position is removed, and the distance between them doubles."""


class ForwardingFilter:
    """The sender of one opening of a link.

    Args:
        state: the site's state at `state.position`; the sender takes a copy and folds it further.
        neighbour: the far site.
        epoch: of the far site's leader; every record carries it.
        far: the far site's frontier.
        start: the position to read from, with the acceptance there.
    """

    def __init__(
        self,
        state: SiteState,
        neighbour: SiteId,
        epoch: int,
        far: Mapping[Origin, int],
        start: Position,
    ) -> None:
        self.start = start.offset
        self._replay = start.acceptance.copy()
        self._state = state.copy()
        self._live_from = state.position
        self._neighbour = neighbour
        self._epoch = epoch
        self._announced: dict[Origin, int] = dict(far)
        self._silent: dict[Origin, int] = {}
        self._repeats = state.announcements_in_force(neighbour)
        self._removed = start.gone and far.get(state.origin, NOTHING) < start.offset - 1
        """Whether records that the far site does not have may have been removed or damaged, of any origin."""
        self._severed = far.get(state.origin, NOTHING) < max(state.severed_at, state.left_at.get(neighbour, NOTHING))
        """Whether the far site may lack notifications of any origin that later records do not make up for."""
        self._moved = tuple(
            origin
            for origin, at in state.moved_at.items()
            if not self._severed and far.get(state.origin, NOTHING) < at and state.upstream.get(origin) != neighbour
        )
        """Origins of which the far site may lack some, because they arrive here over another link than before."""
        self._known_to_far_site = far.get(state.origin, NOTHING)
        self._severance_due = False
        """Whether a record could not be read; the far site is told before any record behind it."""
        self._removed |= self._severed
        self._far = dict(far)
        self._unsure = {
            origin
            for origin, offset in state.frontier.items()
            if start.gone
            and not self._removed
            and origin != state.origin
            and state.upstream.get(origin) != neighbour
            and far.get(origin, NOTHING) < offset
        }
        """Origins of which the log had, below its beginning, records that the far site may lack; none was read yet."""
        self._doubtful = set(state.frontier) - {state.origin} if start.gone else set()
        """Origins of which nobody knows over which link they counted below the live position: the log has lost its
        beginning, and with it what says that. They are told as severed once."""
        self._holes: set[Origin] = set()
        """Those of them that it does lack, perhaps; the far site is told before any record behind it."""
        if self._removed:
            # Sessions that want the removed records catch up from the origins.
            self._repeats = [_from_here(repeat, state.frontier) for repeat in self._repeats]
        self._pass_over(start.offset)
        self._work_ns = 0
        self._index: Index[set[str]] = Index()
        """The neighbour's filters as they were at the last look, with the texts of each expression."""
        self._unreadable: set[str] = set()
        """Filters of a later version's language, which this one cannot read: each may want everything."""
        self._indexed: set[str] = set()
        """The texts in it."""
        self._stale = set(self._filters)
        """Texts that may be in the index and are no filters any more, or the other way round."""

    @property
    def site(self) -> SiteId:
        """The site whose log is sent."""
        return self._state.site

    def lags(self) -> dict[Origin, int]:
        """Return, by origin that reaches the neighbour through this site, the number of offsets that the neighbour was
        not told of yet.
        """
        upstream = self._state.upstream
        return {
            origin: max(0, offset - self._announced.get(origin, NOTHING))
            for origin, offset in self._state.frontier.items()
            if upstream.get(origin) != self._neighbour
        }

    def hello(self) -> list[LinkRecord]:
        """Return the records that begin every opening: the announcements in force when this sender was made (handover
        rule 12). Send them once, before those of :meth:`step`; nothing changes here.

        These records advance no frontier, except at the ends of origins: the far site's sessions catch up on those.
        """
        ends = [self._stamped(ended) for ended in self._state.ended_origins(self._neighbour)]
        severed = [self._severance()] if self._severed else []
        severed += [self._severance((), self._moved)] if self._moved else []
        return [*ends, *severed, *(self._stamped(effective) for effective in self._repeats)]

    def step(self, offset: int, record: Record) -> list[LinkRecord]:
        """Apply the next record of the log, at `offset`, to this sender's own copy of the site's state; return the
        records to be sent for it, in order; empty: none.

        Call it for each record from the offset :attr:`start` on, in the order of the log, after :meth:`goes_on_behind`
        has returned True for it.
        """
        if offset < self._live_from:
            return self._after_damage(self._step_below(offset, record))
        records: list[LinkRecord] = []
        for event in self._state.fold(offset, record):
            if isinstance(event, InterestChanged):
                self._stale.add(event.expression)
            elif isinstance(event, Announced) and event.neighbour == self._neighbour:
                records += [*self._silence_of(event.effective.origin), self._stamped(event.effective)]
            elif isinstance(event, EndedAnnounced) and event.neighbour == self._neighbour:
                records.append(self._stamped(event.ended))
            elif isinstance(event, SeveranceAnnounced) and event.neighbour == self._neighbour:
                records += self._sever(event.path, event.origins)
            elif isinstance(event, NotificationArrived | Advanced):
                records += self._pass_on(offset, record, self._state.origin)
        return self._after_damage(records)

    def goes_on_behind(self, offset: int, record: Record) -> bool:
        """Tell whether this sender can continue behind the record at `offset`; ask before :meth:`step`. If not, the
        caller ends the sending.

        The sender cannot continue behind an unreadable record beyond the live position, which may have been a request
        of the far site: only a new opening, which states the requests again, continues there.
        """
        return offset < self._live_from or not isinstance(record, Damaged)

    def _step_below(self, offset: int, record: Record) -> list[LinkRecord]:
        moved = self._replay.advance(offset, record)
        if isinstance(record, Forwarded | Progress):
            upto = record.offset if isinstance(record, Forwarded) else record.upto
            self._look_for_hole(record.origin, upto)
            self._look_for_another_link(record, upto)
        sent = self._pass_on(offset, record, self._replay.origin) if moved else []
        if isinstance(record, Damaged) and offset > self._known_to_far_site:
            # It may have been of any origin, and was whole when it was folded.
            self._severance_due = self._removed = True
        self._pass_over(offset + 1)
        return sent

    def _look_for_hole(self, origin: Origin, offset: int) -> None:
        """Take the first record of an origin that the log has: all that it had of it before has lower offsets."""
        if origin in self._unsure:
            self._unsure.remove(origin)
            if offset > self._far.get(origin, NOTHING):
                self._holes.add(origin)

    def _look_for_another_link(self, record: Forwarded | Progress, upto: int) -> None:
        """Take a record of an origin that came over another link than the one that counts now. Without the log's
        beginning nobody knows until when that link counted, and what came over either may be passed over here.
        """
        origin, upstream = record.origin, self._state.upstream.get(record.origin)
        is_another = upstream not in (None, record.link, self._neighbour)
        if origin in self._doubtful and is_another and upto > self._far.get(origin, NOTHING):
            self._doubtful.remove(origin)
            self._holes.add(origin)

    def _after_damage(self, records: list[LinkRecord]) -> list[LinkRecord]:
        if not records or not (self._severance_due or self._holes):
            return records
        origins = () if self._severance_due else tuple(sorted(self._holes))
        self._severance_due, self._holes = False, set()
        return [*self._sever((), origins), *records]

    def _sever(self, path: tuple[SiteId, ...], origins: tuple[Origin, ...] = ()) -> list[LinkRecord]:
        """Return a severance, and the announcements in force, which are effective from the present position on."""
        standing = self._state.announcements_in_force(self._neighbour)
        return [
            self._severance(path, origins),
            *(
                self._stamped(_from_here(effective, self._state.frontier))
                for effective in standing
                if not origins or effective.origin in origins
            ),
        ]

    def progress_markers(self) -> list[LinkRecord]:
        """Return progress markers for the records that were not forwarded since the last ones, which then count as
        announced; call it when there is nothing to read, or to break a long silence.

        Before the markers come a severance, and the announcements in force, if a record that could not be read was
        passed over and the far site was not informed yet. Empty: nothing is to be sent.
        """
        return self._after_damage([record for origin in list(self._silent) for record in self._silence_of(origin)])

    def _silence_of(self, origin: Origin) -> list[LinkRecord]:
        """Return the progress marker of an origin, if one is due. It goes before an announcement: one above the far
        site's frontier says that this log lacks what is between.
        """
        # Where the log has lost its beginning, a record may count below that did not when it was folded.
        upto = min(self._silent.pop(origin, NOTHING), self._state.frontier.get(origin, NOTHING))
        return [Progress(self._state.site, self._epoch, origin, upto)] if self._advance_announced(origin, upto) else []

    def _pass_over(self, offset: int) -> None:
        """Count removed records as not forwarded, once the sender has read up to the live position."""
        if offset < self._live_from:
            return
        upstream, frontier = self._state.upstream, self._state.frontier
        if self._unsure:
            self._silent |= {origin: frontier[origin] for origin in self._unsure}
            self._holes |= self._unsure
            self._unsure = set()
        if self._removed:
            self._silent |= {
                origin: upto for origin, upto in frontier.items() if upstream.get(origin) != self._neighbour
            }
            self._removed = False

    def _pass_on(self, offset: int, record: Record, own: Origin) -> list[LinkRecord]:
        """Return the records to be sent for one that advanced a frontier; `own` is this site's origin at its
        position.
        """
        if isinstance(record, Published):
            return self._forward(own, offset, (), record)
        if isinstance(record, Forwarded | Progress | Effective) and record.link == self._neighbour:
            return []
        if isinstance(record, Forwarded):
            return self._forward(record.origin, record.offset, record.path, record)
        if isinstance(record, Progress):
            self._silent[record.origin] = record.upto
        elif isinstance(record, Severed | Repaired | Damaged | TreeEntered | OriginEnded):
            self._silent[own] = offset
        elif isinstance(record, Effective):
            self._silent[record.origin] = self._state.frontier[record.origin]
        return []

    def _forward(
        self, origin: Origin, offset: int, path: tuple[SiteId, ...], record: Published | Forwarded
    ) -> list[LinkRecord]:
        if offset <= self._announced.get(origin, NOTHING):
            return []
        if self._neighbour in path or len(path) >= MAX_SITES_PASSED or not self._wanted(record.body):
            self._silent[origin] = offset
            return []
        self._silent.pop(origin, None)
        self._announced[origin] = offset
        return [
            Forwarded(
                link=self._state.site,
                link_epoch=self._epoch,
                origin=origin,
                offset=offset,
                path=(*path, self._state.site),
                producer=record.producer,
                incarnation=record.incarnation,
                sequence=record.sequence,
                at_ms=record.at_ms,
                body=record.body,
                protection=record.protection,
                check=record.check,
            )
        ]

    @property
    def work_ns(self) -> int:
        """The time that all filters of the neighbour need for the largest notification, by estimate, in nanoseconds.

        Reading this property first updates the index completely, as :meth:`follow` does.
        """
        self.follow()
        return self._work_ns

    def _wanted(self, body: bytes) -> bool:
        self.follow()
        return bool(self._unreadable or (self._indexed and self._index.match(read_body(body))))

    @property
    def _filters(self) -> Mapping[str, Filter]:
        return self._state.filters_of(self._neighbour).filters

    def follow(self, most: int | None = None) -> bool:
        """Update the index, by which the neighbour's filters are tested, to the present filters; return whether it is
        up to date now.

        Args:
            most: the number of filters to update in this call; None: all. Each takes some tenths of a millisecond.
        """
        if not self._stale:
            return True
        filters = self._filters
        while self._stale and most != 0:
            text = self._stale.pop()
            if (text in filters) != (text in self._indexed):
                self._toggle(text)
                most = None if most is None else most - 1
        return not self._stale

    def _toggle(self, text: str) -> None:
        try:
            expression = parse(text)
        except SubscriptionError:
            self._unreadable ^= {text}
            self._indexed ^= {text}
            return
        texts = self._index.get(expression)
        if text in self._indexed:
            self._indexed.remove(text)
            if texts is not None and texts != {text}:
                texts.remove(text)
            else:
                self._index.remove(expression)
                self._work_ns -= expression.cost.work_ns
            return
        self._indexed.add(text)
        if texts is None:
            self._index.add(expression, {text})
            self._work_ns += expression.cost.work_ns
        else:
            texts.add(text)

    def _advance_announced(self, origin: Origin, upto: int) -> bool:
        if upto <= self._announced.get(origin, NOTHING):
            return False
        self._announced[origin] = upto
        return True

    def _severance(self, path: tuple[SiteId, ...] = (), origins: tuple[Origin, ...] = ()) -> Severed:
        return Severed(self._state.site, self._epoch, (*path, self._state.site), origins)

    def _stamped(self, record: Announcement) -> Announcement:
        return msgspec.structs.replace(record, link_epoch=self._epoch)


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a log: `acceptance` covers everything below `offset`; or `gone`: those records are lost."""

    offset: int
    acceptance: Acceptance
    gone: bool = False


class PositionIndex:
    """Positions of a log, from which the first record beyond a frontier is found.

    Args:
        every: the distance of two positions, in offsets.
    """

    def __init__(self, every: int = POSITION_EVERY) -> None:
        self._every = every
        self._positions: list[Position] = []

    def note(self, offset: int, acceptance: Acceptance) -> None:
        """Remember this position, if the last one is far enough behind.

        Args:
            offset: of the next record to be folded; calls come with ascending ones.
            acceptance: covers all records below `offset`; it is copied.
        """
        if not self._positions or offset >= self._positions[-1].offset + self._every:
            self._positions.append(Position(offset, acceptance.copy()))
            if len(self._positions) > POSITIONS_KEPT:
                del self._positions[::2]
                self._every *= 2

    def forget(self, before: int) -> None:
        """Remove the positions below the offset `before`, where the log begins now."""
        self._positions = [position for position in self._positions if position.offset >= before]

    def position_for(self, frontier: Mapping[Origin, int]) -> Position | None:
        """Return the last position below which the log has no record beyond `frontier`; None: read from its first
        record.

        Args:
            frontier: by origin, the last offset that a neighbour has.
        """
        covered = bisect_right(
            self._positions,
            False,
            key=lambda position: not _within(position.acceptance.frontier, frontier),
        )
        return self._positions[covered - 1] if covered else None


def _from_here(effective: Effective, frontier: Mapping[Origin, int]) -> Effective:
    """Return the announcement as if the filter had been installed just now."""
    above = max(effective.above, frontier.get(effective.origin, NOTHING))
    return msgspec.structs.replace(effective, above=above)


def _within(inner: Mapping[Origin, int], outer: Mapping[Origin, int]) -> bool:
    return all(offset <= outer.get(origin, NOTHING) for origin, offset in inner.items())
