"""A hierarchy of sites: which filters a large federation keeps, and what a change of interest costs it.

The states of the sites and the ends that request filters are the real ones; requests come at once, in rounds: a round
is one hop of every link. Sessions count by weight: each site has so many, and the interests of a session are drawn by
Zipf's law, so a site wants few expressions often and many once. Announcements are counted, not sent: a link carries one
for each filter and each origin behind it.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from unittest import mock

import msgspec

from federation.links.bounds import LinkBounds
from federation.links.filter_exchange import FilterRequester, request_of
from federation.site import requested_filters
from federation.site.state import SiteState
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId
from waypost.records import InterestRegistered
from waypost.subscription import parse

PROXY, INCARNATION = ProxyId("p"), Incarnation("1")
GROUP = 20
"""Topics of a group: `begins-with(topic, "g7/")` wants them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The sizes of a federation.

    Args:
        sites: in all.
        below: sites right below each one.
        sessions: of all sites together.
        topics: expressions are about.
        skew: the exponent of Zipf's law.
        seed: of all that is drawn.
    """

    sites: int = 1_000
    below: int = 10
    sessions: int = 1_000_000
    topics: int = 1_000
    skew: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of it.

    Args:
        expressions: distinct ones that are wanted anywhere.
        needed: filters that all sites need of their neighbours.
        installed: filters that all sites have of their neighbours, by site.
        announcements: of all links: one for each filter and each origin behind it.
        pairs: of an expression or a filter, and an origin: by site, how often it holds from where on that is covered.
        requests: records until everything was in force for the first time.
        request_bytes: of these.
        changes: of interest that were made after that.
        change_requests: records for all these changes.
        change_bytes: of these.
        rounds: hops until the slowest of these changes was in force everywhere.
    """

    expressions: int
    needed: int
    installed: tuple[int, ...]
    announcements: int
    pairs: tuple[int, ...]
    requests: int
    request_bytes: int
    changes: int
    change_requests: int
    change_bytes: int
    rounds: int


class Federation:
    """The sites of a hierarchy, with the ends of their links."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._names = [SiteId(f"s{number}") for number in range(hierarchy.sites)]
        self._below = hierarchy.below
        near: list[list[int]] = [[] for _ in self._names]
        for number in range(1, hierarchy.sites):
            parent = (number - 1) // hierarchy.below
            near[parent].append(number)
            near[number].append(parent)
        self.states = [
            SiteState(name, [self._names[other] for other in near[number]]) for number, name in enumerate(self._names)
        ]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._requesters: list[dict[SiteId, FilterRequester]] = []
        for state in self.states:
            ends = {neighbour: FilterRequester(state, neighbour, LinkBounds()) for neighbour in state.neighbours}
            for end in ends.values():
                end.open(1, 0, 0)
                end.answered(0, -1)
            self._requesters.append(ends)
        self._serial = 0
        self.requests = self.request_bytes = 0

    def register(self, site: int, expression: str, *, is_wanted: bool) -> None:
        """Begin or end the interest of a site in an expression; neighbours learn of it by :meth:`exchange`.

        Args:
            site: its number, from 0.
        """
        state = self.states[site]
        wanted = (expression,) if is_wanted else ()
        state.fold(state.position, InterestRegistered(PROXY, INCARNATION, SessionId(expression), wanted))

    def exchange(self, sites: Iterable[int]) -> int:
        """Exchange requests between neighbours until nothing is to be requested; return the number of rounds. The
        requests are counted in `requests` and `request_bytes`.

        From a single site, a round is one hop. From several, a site's requests take in what others sent to it earlier
        in the same round, so that a round may be several hops.

        Args:
            sites: the numbers of the sites whose interests have changed, in the order in which they make requests.
        """
        concerned, rounds = list(dict.fromkeys(sites)), 0
        while concerned:
            reached: set[int] = set()
            for number in concerned:
                for neighbour, end in self._requesters[number].items():
                    while self._exchange(neighbour, end):
                        reached.add(self._numbers[neighbour])
            rounds += bool(reached)
            concerned = sorted(reached, reverse=True)
        return rounds

    def _exchange(self, neighbour: SiteId, end: FilterRequester) -> bool:
        self._serial += 1
        request = end.next(self._serial)
        if request is None:
            return False
        self.requests += 1
        self.request_bytes += len(msgspec.msgpack.encode(request))
        far = self.states[self._numbers[neighbour]]
        far.fold(far.position, request_of(request))
        end.answered(self._serial, -1)
        return True

    def behind(self) -> dict[tuple[SiteId, SiteId], int]:
        """Return (site, neighbour) -> the number of sites whose notifications reach the neighbour over that link."""
        size = [1] * len(self.states)
        parents = {number: (number - 1) // self._below for number in range(1, len(self.states))}
        for number, parent in sorted(parents.items(), reverse=True):
            size[parent] += size[number]
        found = {}
        for number, parent in parents.items():
            found[self._names[number], self._names[parent]] = size[number]
            found[self._names[parent], self._names[number]] = len(self.states) - size[number]
        return found


class Interests:
    """What the sessions of each site want, by weight."""

    def __init__(self, hierarchy: Hierarchy) -> None:
        self._rng = random.Random(hierarchy.seed)
        self.expressions = _expressions(self._rng, hierarchy.topics)
        self._sums = list(accumulate(1 / rank**hierarchy.skew for rank in range(1, len(self.expressions) + 1)))
        each, more = divmod(hierarchy.sessions, hierarchy.sites)
        self.of_site = [
            Counter(self._drawn() for _ in range(each + (number < more))) for number in range(hierarchy.sites)
        ]
        self._populated = [number for number, wanted in enumerate(self.of_site) if wanted]
        self._kept = [parse(expression) for expression in self.expressions]

    def _drawn(self) -> str:
        return self.expressions[bisect(self._sums, self._rng.random() * self._sums[-1])]

    def change(self) -> tuple[int, str, str]:
        """Have one session want another expression: a session of a site, both drawn, that wants it by the expression's
        weight.

        A count in `of_site` may become 0; the caller removes it.

        Returns:
            The site's number, the expression that the session wanted, and the one that it wants now, which may be the
                same.

        Raises:
            IndexError: the drawn site has no sessions, as where there are fewer sessions than sites.
        """
        site = self._populated[self._rng.randrange(len(self._populated))]
        counts = self.of_site[site]
        (old,) = self._rng.choices(list(counts), list(counts.values()))
        new = self._drawn()
        counts[old] -= 1
        counts[new] += 1
        return site, old, new


def _expressions(rng: random.Random, topics: int) -> list[str]:
    """Return expressions in a random order of preference: of one topic, of one above a level, of a group."""
    names = [f"g{number // GROUP}/t{number % GROUP}" for number in range(topics)]
    single = [f'topic == "{name}"' for name in names]
    above = [f'topic == "{name}" && level > {rng.randrange(5)}' for name in names[::4]]
    groups = [f'begins-with(topic, "g{number}/")' for number in range(0, topics // GROUP, 2)]
    found = single + above + groups
    rng.shuffle(found)
    return found


def measure(hierarchy: Hierarchy, changes: int, report: Callable[[str], None]) -> Measured:
    """Build a federation, and return what is measured of it: once all filters are in force, and for changes after that.

    Args:
        hierarchy: its sizes; each site has sessions // sites sessions, the rest is left out.
        changes: the number of changes of interest, made one after the other, once everything is in force.
        report: called with a line before and after each step that takes its time.

    Raises:
        IndexError: there are fewer sessions than sites.
    """
    report(f"{hierarchy.sites:,} sites, {hierarchy.sessions:,} sessions")
    interests, federation = Interests(hierarchy), Federation(hierarchy)
    for site, counts in enumerate(interests.of_site):
        for expression in counts:
            federation.register(site, expression, is_wanted=True)
    report("interests are registered")
    # From the leaves up and down again: what a site requests is then complete when it requests it.
    federation.exchange(range(hierarchy.sites - 1, -1, -1))
    requests, request_bytes = federation.requests, federation.request_bytes
    report("all filters are in force")
    rounds = 0
    for _ in range(changes):
        site, old, new = interests.change()
        counts = interests.of_site[site]
        if counts[new] == 1:
            federation.register(site, new, is_wanted=True)
        if counts[old] == 0:
            del counts[old]
            federation.register(site, old, is_wanted=False)
        rounds = max(rounds, federation.exchange([site]))
    return _measured(interests, federation, requests, request_bytes, changes, rounds)


def _measured(
    interests: Interests, federation: Federation, requests: int, request_bytes: int, changes: int, rounds: int
) -> Measured:
    behind = federation.behind()
    needed = sum(len(known.needed) for state in federation.states for known in state.requests.values())
    installed, announced, pairs = [], [], []
    for state in federation.states:
        filters = {neighbour: len(known.filters) for neighbour, known in state.neighbour_filters.items()}
        installed.append(sum(filters.values()))
        announced.append(sum(count * behind[state.site, neighbour] for neighbour, count in filters.items()))
        covered = sum(len(known.needed) * behind[other, state.site] for other, known in state.requests.items())
        pairs.append(announced[-1] + covered)
    return Measured(
        expressions=len({expression for counts in interests.of_site for expression in counts}),
        needed=needed,
        installed=tuple(installed),
        announcements=sum(announced),
        pairs=tuple(pairs),
        requests=requests,
        request_bytes=request_bytes,
        changes=changes,
        change_requests=federation.requests - requests,
        change_bytes=federation.request_bytes - request_bytes,
        rounds=rounds,
    )


@contextmanager
def nothing_covers() -> Iterator[None]:
    """Return a context in which every expression is requested: none is short enough to be compared with others."""
    with mock.patch.object(requested_filters, "MAX_COMPARED_CHARACTERS", -1):
        yield


def quantiles(values: Sequence[int]) -> tuple[int, int]:
    """Return the median, the upper one of two, and the largest of some values, of which there is one at least."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[-1]
