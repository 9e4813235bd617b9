"""A log that loses its end: two proxies of a site, their log, and the registry's row of it (handover rule 27).

The decisions are the code's own: `judge`, `raised`, `as_lost` and `log_confirms` of federation/site/log_epochs.py, and
what a log means of federation/site/state.py. Each proxy has one receiver, which wants everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from federation.ports import SiteLogRow
from federation.site.log_epochs import LogSeen, after_loss, as_lost, judge, log_confirms, record_of, row_as_read
from federation.site.state import SiteState
from waypost.identity import NOTHING, Incarnation, Origin, SiteId, log_epoch_of
from waypost.records import LogBegun, Published, Record, checksum_of

LOST = "P1 what was acknowledged is given, or told to be lost"
TWICE = "P2 nothing is given twice"
ORDER = "P3 what comes behind is not given before"
RECOVERS = "P1 the site's log comes to rest again"
SITE, FEDERATION, IDENTITY = SiteId("A"), "federation", "log"

Ended = tuple[tuple[Origin, tuple[int, int]], ...]


class EpochStart(NamedTuple):
    """In the log: a log epoch begins."""

    log_epoch: int
    ended: Ended


class Row(NamedTuple):
    """The registry's."""

    log_epoch: int = 1
    seen: int = NOTHING
    ended: Ended = ()


Entry = int | EpochStart
"""An entry of a log: a notification, by its number, or the beginning of a log epoch."""
Log = tuple[Entry, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxy:
    """One proxy of the site, and its one receiver.

    Args:
        phase: running; held: the log was out of reach; said: the same, and the registry knows what was seen; lost: the
            log is another one, and the row is to be raised; down; beginning.
        read: the entries that it has read, as they were then.
        below: the offset below which everything was read, or its append was answered.
        row: the registry's row when it began.
        began: whether the log, as far as it was read, confirms that row.
        end: where the log ended when the loss was found; None: none was found.
        frontier: of the receiver, by origin.
        delivered: the numbers that the receiver got, in order.
        reported: (origin, offset) of the gaps that the receiver was told of.
    """

    phase: str
    read: Log
    below: int
    row: Row
    began: bool = True
    end: int | None = None
    frontier: tuple[tuple[Origin, int], ...] = ()
    delivered: tuple[int, ...] = ()
    reported: frozenset[tuple[Origin, int]] = frozenset()

    @property
    def state(self) -> SiteState:
        """The site's state as the log means it, as far as the proxy has read that. It is shared: do not change it."""
        return meaning(self.read)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state of the world: the log, the registry's row and the proxies."""

    log: Log
    row: Row
    proxies: tuple[Proxy, Proxy]
    published: int = 0
    acknowledged: frozenset[tuple[int, Origin, int]] = frozenset()
    losses: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class LogEpochs:
    """The model of a site log that loses its end (handover rule 27), for :class:`chaos.model.explore.Explorer`.

    Args:
        publishes: how many notifications are published.
        losses: the most losses of the log's end in one run.
        crashes: the most crashes of a proxy in one run.
        without: names of the rules that are switched off.
    """

    publishes: int = 3
    losses: int = 1
    crashes: int = 0
    without: frozenset[str] = frozenset()
    lost: str = field(default=LOST, init=False)
    liveness: str = field(default=RECOVERS, init=False)

    def initial(self) -> State:
        """Return the state in which every run begins: both proxies run, and nothing was published."""
        log: Log = (EpochStart(1, ()),)
        proxy = Proxy(phase="running", read=log, below=1, row=Row())
        return State(log=log, row=Row(), proxies=(proxy, proxy))

    def broken(self, state: State) -> str:
        """Return the invariant that does not hold in a state, in words; "": all hold."""
        for proxy in state.proxies:
            if len(set(proxy.delivered)) < len(proxy.delivered):
                return TWICE
            if list(proxy.delivered) != sorted(proxy.delivered):
                return ORDER
        return ""

    def is_quiescent(self, state: State) -> bool:
        """Tell whether nothing is under way: all is published, both proxies have read the whole log, and every
        acknowledged number was delivered or reported as a gap.
        """
        if state.published < self.publishes:
            return False
        if any(proxy.phase != "running" or proxy.read != state.log for proxy in state.proxies):
            return False
        return all(
            number in proxy.delivered or (origin, offset) in proxy.reported
            for proxy in state.proxies
            for number, origin, offset in state.acknowledged
        )

    def steps(self, state: State) -> Iterator[tuple[str, State, str]]:
        """Yield what can happen in a state: a label, the state after it, and the sort of fault, "loss" or "crash"; "":
        none.
        """
        for index in (0, 1):
            for label, after, fault in self._steps_of(state, index):
                yield f"{'ab'[index]}: {label}", after, fault
        if state.losses < self.losses:
            for end in range(max(1, len(state.log) - 3), len(state.log)):
                yield f"the log loses all from {end} on", self._lose(state, end), "loss"

    def _lose(self, state: State, end: int) -> State:
        a, b = (self._out_of_reach(proxy) for proxy in state.proxies)
        return replace(state, log=state.log[:end], proxies=(a, b), losses=state.losses + 1)

    def _out_of_reach(self, proxy: Proxy) -> Proxy:
        if "LOOK" in self.without or proxy.phase not in ("running", "said", "beginning"):
            return proxy
        return replace(proxy, phase="held")

    def _steps_of(self, state: State, index: int) -> Iterator[tuple[str, State, str]]:
        proxy = state.proxies[index]
        if proxy.phase == "running" and state.published < self.publishes:
            yield f"appends {state.published + 1}", self._append(state, index), ""
        if proxy.phase in ("running", "beginning"):
            if len(proxy.read) < len(state.log):
                yield f"reads {state.log[len(proxy.read)]}", self._read(state, index), ""
            elif len(proxy.read) > len(state.log):
                yield "finds the log shorter", _changed(state, index, phase="lost", end=len(state.log)), ""
            elif proxy.phase == "beginning":
                yield "has read all", self._begin(state, index), ""
        if proxy.phase == "held":
            yield "says how far it has read", self._announce(state, index), ""
        # It takes longer until the server is there again than until the other one has noticed.
        others_said = "WAIT" in self.without or state.proxies[1 - index].phase != "held"
        if proxy.phase == "said" and others_said:
            yield "looks at the log", self._check(state, index), ""
        if proxy.phase == "lost":
            yield "says what is lost", self._raise(state, index), ""
        if proxy.phase == "down" and others_said:
            yield "begins", self._judge(state, index), ""
        if proxy.phase != "down" and state.crashes < self.crashes and proxy.below <= self._known(state, index):
            dead = _changed(state, index, phase="down", end=None)
            yield "crashes", replace(dead, crashes=state.crashes + 1), "crash"

    def _known(self, state: State, index: int) -> int:
        """Return below which place others know all that this proxy does. What only a process knows that dies together
        with the server, nobody knows (rule 27).
        """
        proxy, other, row = state.proxies[index], state.proxies[1 - index], state.row
        known = row.seen + 1 if row.log_epoch == proxy.row.log_epoch else 0
        lives = other.phase != "down" and other.began and other.row.log_epoch == proxy.row.log_epoch
        return max(known, other.below) if lives else known

    def _append(self, state: State, index: int) -> State:
        proxy, offset, number = state.proxies[index], len(state.log), state.published + 1
        after = replace(state, log=(*state.log, number), published=number)
        if offset < proxy.below:
            return _changed(after, index, phase="lost", end=offset)
        origin = meaning(after.log).origin
        known = after.acknowledged | {(number, origin, offset)}
        return _changed(replace(after, acknowledged=known), index, below=offset + 1)

    def _read(self, state: State, index: int) -> State:
        proxy = state.proxies[index]
        offset = len(proxy.read)
        read = state.log[: offset + 1] if proxy.read == state.log[:offset] else (*proxy.read, state.log[offset])
        proxy = replace(proxy, read=read, below=max(proxy.below, offset + 1))
        entry, known = read[offset], proxy.state
        if isinstance(entry, int):
            proxy = self._deliver(proxy, known.origin, offset, entry)
        elif "TELL" not in self.without:
            for origin in sorted(known.ended, key=log_epoch_of):
                proxy = self._catch_up(proxy, known, origin)
        return _put(state, index, proxy)

    def _deliver(self, proxy: Proxy, origin: Origin, offset: int, number: int) -> Proxy:
        if offset <= dict(proxy.frontier).get(origin, NOTHING):
            return proxy
        return replace(proxy, frontier=_with(proxy.frontier, origin, offset), delivered=(*proxy.delivered, number))

    def _catch_up(self, proxy: Proxy, known: SiteState, origin: Origin) -> Proxy:
        """What of an origin that has ended the receiver has not, it is given, and told of what is lost."""
        ended, had = known.ended[origin], dict(proxy.frontier).get(origin, NOTHING)
        begins = max(
            (ended_origin.begins for ended_origin in known.ended.values() if ended_origin.following == origin),
            default=0,
        )
        for offset in range(max(had + 1, begins), ended.end + 1):
            if isinstance(entry := proxy.read[offset], int):
                proxy = self._deliver(proxy, origin, offset, entry)
        lost = {(origin, offset) for offset in range(max(had, ended.end) + 1, ended.seen + 1)}
        frontier = _with(proxy.frontier, origin, max(had, ended.seen))
        return replace(proxy, reported=proxy.reported | lost, frontier=frontier)

    def _announce(self, state: State, index: int) -> State:
        proxy, row = state.proxies[index], state.row
        if proxy.row.log_epoch != row.log_epoch:
            return _changed(state, index, phase="lost")
        seen = max(row.seen, max(proxy.below, len(proxy.read)) - 1 if proxy.began else NOTHING)
        return _changed(replace(state, row=row._replace(seen=seen)), index, phase="said")

    def _check(self, state: State, index: int) -> State:
        proxy, row, end = state.proxies[index], state.row, len(state.log)
        if proxy.row.log_epoch != row.log_epoch:
            return _changed(state, index, phase="lost")
        if row.seen >= end:
            row = _row(after_loss(SITE, _site_log_row(row), row.seen, end, is_same=_states_identity(state.log)))
            return _changed(replace(state, row=row), index, phase="lost", end=end)
        if len(proxy.read) > end:
            return _changed(state, index, phase="lost", end=end)
        if proxy.read and proxy.read[-1] != state.log[len(proxy.read) - 1]:
            return _changed(state, index, phase="lost", end=len(proxy.read) - 1)
        return _changed(state, index, phase="running" if proxy.began else "beginning")

    def _raise(self, state: State, index: int) -> State:
        proxy, end = state.proxies[index], len(state.log)
        end = min(end, proxy.end) if proxy.end is not None else end
        log_epoch = log_epoch_of(proxy.state.origin)
        is_same = _states_identity(state.log)
        row = as_lost(SITE, _site_log_row(state.row), log_epoch, len(proxy.read) - 1, end, is_same=is_same)
        return _changed(replace(state, row=_row(row)), index, phase="down", end=None)

    def _judge(self, state: State, index: int) -> State:
        proxy = state.proxies[index]
        mark = proxy.state.acceptance.mark
        intact = None
        if 0 <= mark.offset < len(state.log):
            intact = checksum_of(_record(state.log[mark.offset], mark.offset)) == mark.checksum
        log_begun = next((_record(each, 0) for each in state.log if isinstance(each, EpochStart)), None)
        if intact:
            log_begun = LogBegun(federation=FEDERATION, identity=IDENTITY, log_epoch=mark.log_epoch)
        assert log_begun is None or isinstance(log_begun, LogBegun)
        known = row_as_read(SITE, mark, proxy.state.ended)
        seen = LogSeen(first=0, end=len(state.log), begun=log_begun, mark=mark, intact=intact, known=known)
        judgement = judge(SITE, FEDERATION, _site_log_row(state.row), seen, IDENTITY)
        row = _row(judgement.row)
        read = proxy.read if judgement.is_intact else ()
        after = replace(proxy, phase="beginning", began=False, read=read, below=len(read), row=row, end=None)
        return _put(replace(state, row=row), index, after)

    def _begin(self, state: State, index: int) -> State:
        proxy = state.proxies[index]
        row = _site_log_row(proxy.row)
        if log_confirms(proxy.state, FEDERATION, row) or "EPOCH" in self.without:
            return _changed(state, index, phase="running", began=True)
        begun = record_of(SITE, FEDERATION, row)
        entry = EpochStart(begun.log_epoch, _ended(begun.ended))
        return _changed(
            replace(state, log=(*state.log, entry)), index, phase="running", began=True, below=len(state.log) + 1
        )


@lru_cache(maxsize=1 << 16)
def meaning(log: Log) -> SiteState:
    """Return the site's state as a log means it; the object is shared, so it must not be changed."""
    if not log:
        return SiteState(SITE)
    state = meaning(log[:-1]).copy()
    offset = len(log) - 1
    state.fold(offset, _record(log[-1], offset))
    state.acceptance.read(offset, _record(log[-1], offset))
    return state


def _states_identity(log: Log) -> bool:
    return any(isinstance(entry, EpochStart) for entry in log)


def _record(entry: Entry, offset: int) -> Record:
    if isinstance(entry, int):
        return Published(producer="p", incarnation=Incarnation("i"), sequence=entry, at_ms=0, body=b"\x80")
    ended = dict(entry.ended)
    return LogBegun(federation=FEDERATION, identity=IDENTITY, log_epoch=entry.log_epoch, ended=ended)


def _site_log_row(row: Row) -> SiteLogRow:
    return SiteLogRow(identity=IDENTITY, log_epoch=row.log_epoch, seen=row.seen, ended=dict(row.ended))


def _row(row: SiteLogRow) -> Row:
    return Row(row.log_epoch, row.seen, _ended(row.ended))


def _ended(ended: dict[Origin, tuple[int, int]]) -> Ended:
    return tuple(sorted((origin, (end, seen)) for origin, (end, seen) in ended.items()))


def _with(frontier: tuple[tuple[Origin, int], ...], origin: Origin, offset: int) -> tuple[tuple[Origin, int], ...]:
    return tuple(sorted((dict(frontier) | {origin: offset}).items()))


def _put(state: State, index: int, proxy: Proxy) -> State:
    a, b = state.proxies
    return replace(state, proxies=(proxy, b) if index == 0 else (a, proxy))


def _changed(state: State, index: int, **changes: object) -> State:
    return _put(state, index, replace(state.proxies[index], **changes))  # type: ignore[arg-type]
