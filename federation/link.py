"""One direction of forwarding between two sites, as the sending side sees it. Pure.

The far site's leader opens the link with its frontier F and its wants. The sender reads its own site log from
where everything beyond F lies, in order, and lets through what matches a filter of the far site.

What is read below the live position, when the link resumes, is filtered by the filters of today: nothing that they
let through is wrong, and whoever needs more of the past catches up. Beyond it the sender folds as it goes, so that
the filter in force is always that of the record's own position, and announcements go out between the very records
that they speak of. Both ways it passes over what the log's own fold passes over.

Where retention has removed what the far site does not have, the announcements of that opening begin only where the
log is now: the far sessions of their filters catch up from the origins, and are told what nobody has any more.

Silence is spoken: whenever the sender has nothing more to send, it says how far each origin is complete, if that is
more than its last record said (handover rule 14).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from federation.acceptance import Acceptance
from federation.messages import LinkRecord
from federation.site_events import Advanced, Announced, EndedAnnounced, NotificationArrived, SeveranceAnnounced
from federation.site_state import Filter, SiteState
from matching.index import Index
from waypost.identity import NOTHING, Origin, SiteId
from waypost.limits import MAX_HOPS
from waypost.notification import read_body
from waypost.records import Damaged, Effective, Forwarded, OriginEnded, Progress, Published, Record, Repaired, Severed
from waypost.subscription import parse

Announcement = TypeVar("Announcement", Effective, OriginEnded)
POSITION_EVERY = 1000
POSITIONS_KEPT = 10_000
"""Past it every second one goes, and they lie twice as far apart from then on."""
NO_FILTERS: Mapping[str, Filter] = {}


class LinkSender:
    """The sender of one opening of a link.

    Args:
        state: the site's state at `state.position`; the sender takes a copy and folds it further.
        neighbour: the far site.
        epoch: of the far site's leader; stamped on every record.
        far: the far site's frontier.
        start: where to begin to read, and what counted there.
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
        self._repeats = state.standing(neighbour)
        self._removed = start.gone and far.get(state.origin, NOTHING) < start.offset - 1
        """Something that the far site does not have may be gone, of any origin."""
        self._severed = far.get(state.origin, NOTHING) < state.severed_at
        """What the far site has may be without something of any origin, and what follows does not make up for it."""
        self._known_to_far_site = far.get(state.origin, NOTHING)
        self._severance_due = False
        """Something could not be read; the far site is told before anything that stands behind it."""
        self._removed |= self._severed
        if self._removed:
            # Whoever wants it asks its origin for it.
            self._repeats = [_from_here(repeat, state.frontier) for repeat in self._repeats]
            self._pass_over(start.offset)
        self._work_ns = 0
        self._filters: Mapping[str, Filter] = NO_FILTERS
        self._index: Index[set[str]] = Index()
        """The neighbour's filters as they were last looked at, and the texts of each expression among them."""

    @property
    def site(self) -> SiteId:
        return self._state.site

    def lags(self) -> dict[Origin, int]:
        """Return, for each origin that comes to the neighbour through us, how many offsets it was not told of yet."""
        ways = self._state.upstream
        return {
            origin: max(0, offset - self._announced.get(origin, NOTHING))
            for origin, offset in self._state.frontier.items()
            if ways.get(origin) != self._neighbour
        }

    def hello(self) -> list[LinkRecord]:
        """Return what is said again on every opening: announcements in force. They advance no frontier, but for the
        ends of origins: what of such an origin the far site does not have yet, its sessions catch up.
        """
        ends = [self._stamped(ended) for ended in self._state.ended_origins(self._neighbour)]
        severed = [self._severance()] if self._severed else []
        return [*ends, *severed, *(self._stamped(effective) for effective in self._repeats)]

    def step(self, offset: int, record: Record) -> list[LinkRecord]:
        """Take the next record of the log; return what goes over the link for it."""
        if offset < self._live_from:
            return self._after_damage(self._step_below(offset, record))
        out: list[LinkRecord] = []
        for event in self._state.fold(offset, record):
            if isinstance(event, Announced) and event.neighbour == self._neighbour:
                out.append(self._stamped(event.effective))
            elif isinstance(event, EndedAnnounced) and event.neighbour == self._neighbour:
                out.append(self._stamped(event.ended))
            elif isinstance(event, SeveranceAnnounced) and event.neighbour == self._neighbour:
                out += self._sever(event.path)
            elif isinstance(event, NotificationArrived | Advanced):
                out += self._pass_on(offset, record, self._state.origin)
        return self._after_damage(out)

    def goes_on_behind(self, offset: int, record: Record) -> bool:
        """Tell whether we can go on behind the record. Where we fold as we go, one that cannot be read may have been
        what the far site wants: only a new opening, for which that is said again, goes on behind it.
        """
        return offset < self._live_from or not isinstance(record, Damaged)

    def _step_below(self, offset: int, record: Record) -> list[LinkRecord]:
        moved = self._replay.advance(offset, record)
        sent = self._pass_on(offset, record, self._replay.origin) if moved else []
        self._severance_due |= isinstance(record, Damaged) and offset > self._known_to_far_site
        self._pass_over(offset + 1)
        return sent

    def _after_damage(self, out: list[LinkRecord]) -> list[LinkRecord]:
        if not out or not self._severance_due:
            return out
        self._severance_due = False
        return [*self._sever(()), *out]

    def _sever(self, path: tuple[SiteId, ...]) -> list[LinkRecord]:
        """Say that something may be lost, and what goes on to be covered, which it is from where we are."""
        standing = self._state.standing(self._neighbour)
        return [
            self._severance(path),
            *(self._stamped(_from_here(each, self._state.frontier)) for each in standing),
        ]

    def pause(self) -> list[LinkRecord]:
        """Return progress markers for what was passed over in silence; call when there is nothing to read."""
        silent, self._silent = self._silent, {}
        records: list[LinkRecord] = [
            Progress(self._state.site, self._epoch, origin, upto)
            for origin, upto in silent.items()
            if self._advance_announced(origin, upto)
        ]
        return self._after_damage(records)

    def _pass_over(self, offset: int) -> None:
        """Once all is read that there was at first, what was removed of it counts as passed over in silence."""
        if self._removed and offset >= self._live_from:
            ways, frontier = self._state.upstream, self._state.frontier
            self._silent |= {each: upto for each, upto in frontier.items() if ways.get(each) != self._neighbour}
            self._removed = False

    def _pass_on(self, offset: int, record: Record, own: Origin) -> list[LinkRecord]:
        """Return what goes over the link for a record that moved a frontier; `own` is our origin at that place."""
        if isinstance(record, Published):
            return self._forward(own, offset, (), record)
        if isinstance(record, Forwarded | Progress | Effective) and record.link == self._neighbour:
            return []
        if isinstance(record, Forwarded):
            return self._forward(record.origin, record.offset, record.path, record)
        if isinstance(record, Progress):
            self._silent[record.origin] = record.upto
        elif isinstance(record, Severed | Repaired | Damaged):
            self._silent[own] = offset
        elif isinstance(record, Effective):
            self._silent[record.origin] = self._state.frontier[record.origin]
        return []

    def _forward(
        self, origin: Origin, offset: int, path: tuple[SiteId, ...], record: Published | Forwarded
    ) -> list[LinkRecord]:
        if offset <= self._announced.get(origin, NOTHING):
            return []
        if self._neighbour in path or len(path) >= MAX_HOPS or not self._wanted(record.body):
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
        """How long the neighbour's filters take for the largest notification, by estimate."""
        self._follow()
        return self._work_ns

    def _wanted(self, body: bytes) -> bool:
        self._follow()
        return bool(self._filters and self._index.match(read_body(body)))

    def _follow(self) -> None:
        """Bring the index to what the neighbour asks for now: only what changed costs anything."""
        asks = self._state.neighbour_filters.get(self._neighbour)
        filters = asks.filters if asks else NO_FILTERS
        if filters is self._filters:
            return
        before, self._filters = self._filters, filters
        for text in before.keys() - filters.keys():
            expression = parse(text)
            texts = self._index.get(expression) or set()
            texts.discard(text)
            if not texts:
                self._index.remove(expression)
                self._work_ns -= expression.cost.work_ns
        for text in filters.keys() - before.keys():
            expression = parse(text)
            known = self._index.get(expression)
            if known is None:
                self._index.add(expression, {text})
                self._work_ns += expression.cost.work_ns
            else:
                known.add(text)

    def _advance_announced(self, origin: Origin, upto: int) -> bool:
        if upto <= self._announced.get(origin, NOTHING):
            return False
        self._announced[origin] = upto
        return True

    def _severance(self, path: tuple[SiteId, ...] = ()) -> Severed:
        return Severed(self._state.site, self._epoch, (*path, self._state.site))

    def _stamped(self, record: Announcement) -> Announcement:
        return msgspec.structs.replace(record, link_epoch=self._epoch)


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log: everything below `offset` is in `acceptance`; or `gone`, and nobody knows what it was."""

    offset: int
    acceptance: Acceptance
    gone: bool = False


class PositionIndex:
    """Every so many records of a log, a position: where to begin to read beyond a frontier."""

    def __init__(self, every: int = POSITION_EVERY) -> None:
        self._every = every
        self._positions: list[Position] = []

    def note(self, offset: int, acceptance: Acceptance) -> None:
        """Remember this position, if the last one is far enough behind."""
        if not self._positions or offset >= self._positions[-1].offset + self._every:
            self._positions.append(Position(offset, acceptance.copy()))
            if len(self._positions) > POSITIONS_KEPT:
                del self._positions[::2]
                self._every *= 2

    def forget(self, before: int) -> None:
        """The log begins at `before` only."""
        self._positions = [position for position in self._positions if position.offset >= before]

    def position_for(self, frontier: Mapping[Origin, int]) -> Position | None:
        """Return the last noted position below which nothing lies beyond `frontier`; None: read from the first."""
        covered = bisect_right(
            self._positions,
            False,
            key=lambda position: not _within(position.acceptance.frontier, frontier),
        )
        return self._positions[covered - 1] if covered else None


def _from_here(effective: Effective, frontier: Mapping[Origin, int]) -> Effective:
    """Return the announcement as if the filter had been installed only now."""
    above = max(effective.above, frontier.get(effective.origin, NOTHING))
    return msgspec.structs.replace(effective, above=above)


def _within(inner: Mapping[Origin, int], outer: Mapping[Origin, int]) -> bool:
    return all(offset <= outer.get(origin, NOTHING) for origin, offset in inner.items())
