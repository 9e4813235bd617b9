"""How a site has a neighbour forward what it wants: changes of the filters there, or all of them in parts. Pure.

One request is under way at a time: the next one follows once it is answered, so each states what the one before has
left in force. A change names the digest of what it changes; where that is not in force, all is stated again. No request
is larger than a record of a log may be, however many filters there are.

What is new goes before what is removed: an expression that was covered may be requested because the one that covered it
ends, or the other way round, and no match may be missed in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nsmallest

from federation.links.bounds import LinkBounds
from federation.links.effects import AppendRecords
from federation.links.output import LinkOutput, RequestAnswered
from federation.messages import LinkOpen, LinkWants
from federation.site.neighbour_filters import NeighbourFilters, Wanted, digest_of, rank_of
from federation.site.state import SiteState
from waypost.errors import WaypostError
from waypost.identity import SiteId
from waypost.keys import OPEN
from waypost.records import FiltersRequested, RequestPart

ENTRY_BYTES = 64
"""The size of a filter in a request beside its text and its keys, at most."""
KEY_BYTES = 64
"""The size of a key there."""


class FilterRequester:
    """The requesting end: what the neighbour has in force, as far as it has said, and the request under way.

    Args:
        state: our site's state, as this proxy folds it.
        neighbour: the site that forwards.
        bounds: of one request.
    """

    def __init__(self, state: SiteState, neighbour: SiteId, bounds: LinkBounds) -> None:
        self._state = state
        self._neighbour = neighbour
        self._bounds = bounds
        self._epoch = self._tree_epoch = 0
        self._digest = 0
        self._in_force: dict[str, Wanted] = {}
        """The filters that are in force there once the request under way is."""
        self._changed: set[str] = set()
        """Expressions whose want may be another one than the neighbour was told."""
        self._unwanted: set[str] = set()
        """Expressions that are in force there and are to be removed, once all others are stated."""
        self._unstated: list[str] | None = None
        """Expressions that are to be stated in the next parts; None: all was stated."""
        self._is_begun = False
        """Whether the first part was sent."""
        self.under_way: LinkWants | None = None
        """The request without an answer."""

    def open(self, epoch: int, serial: int, tree_epoch: int) -> int:
        """Begin to request filters of a proxy of the neighbour; what was requested of another one before does not
        count.

        The caller sends the opening, which itself is the first request: :attr:`under_way` until :meth:`answered`.

        Args:
            epoch: of this site's leader of the link.
            serial: of the opening.
            tree_epoch: of the dispatching tree in this site's log.

        Returns:
            The digest of all filters that this site requests of the neighbour, for the opening.
        """
        self._epoch, self._tree_epoch = epoch, tree_epoch
        self._changed = self._state.follow_wants(self._neighbour)
        self._unwanted = set()
        self._in_force, self._digest, self._unstated = {}, 0, None
        for expression in self._state.requested(self._neighbour):
            self._want(expression)
        self.under_way = self._request(serial, RequestPart.CHANGE, self._digest)
        return self._digest

    def close(self) -> None:
        """Stop requesting until :meth:`open`; the request under way is forgotten, and wants are not followed any more.
        Do not call :meth:`next` or :meth:`probe` until then.
        """
        self._state.follow_wants_no_more(self._neighbour)
        self._changed, self._unwanted, self.under_way, self._unstated = set(), set(), None, None

    def answered(self, applied_serial: int, refused_serial: int) -> None:
        """Handle the serials in a message of the neighbour: an answer to the request under way ends it, an earlier one
        changes nothing.

        After a refusal :meth:`next` states all filters again.

        Args:
            applied_serial: of the last request that is in force at the neighbour.
            refused_serial: of the last request that is not, because it does not fit the filters in force there.
        """
        if self.under_way is None:
            return
        if applied_serial >= self.under_way.serial:
            self.under_way = None
        elif refused_serial >= self.under_way.serial:
            self.under_way = None
            self._changed.clear()
            self._unwanted.clear()
            self._in_force, self._digest, self._is_begun = {}, 0, False
            self._unstated = sorted(self._state.requested(self._neighbour), reverse=True)

    def next(self, serial: int) -> LinkWants | None:
        """Return the next request, which the caller sends; it is :attr:`under_way` until :meth:`answered`. None:
        another one is under way, or the neighbour has all that is wanted.

        Args:
            serial: the number of the request, higher than that of all before.
        """
        if self.under_way is not None:
            return None
        if self._unstated is not None:
            self.under_way = self._part(serial, self._unstated)
        elif self._changed or self._unwanted:
            self.under_way = self._change(serial)
        return self.under_way

    def probe(self, serial: int) -> LinkWants:
        """Return a request that changes nothing, which the caller sends, and which finds out whether the filters in
        force at the neighbour are those that this site requests; it is :attr:`under_way` until :meth:`answered`.

        Call it only while no request is under way.

        Args:
            serial: the number of the request, higher than that of all before.
        """
        self.under_way = self._request(serial, RequestPart.CHANGE, self._digest)
        return self.under_way

    def _part(self, serial: int, unstated: list[str]) -> LinkWants:
        # The last part removes what was not stated; so what has come to be wanted meanwhile goes before it.
        for expression in sorted(self._changed):
            if self._state.wanted(self._neighbour, expression) is not None:
                unstated.append(expression)
                self._unwanted.discard(expression)
            elif expression in self._in_force:
                self._unwanted.add(expression)
        self._changed.clear()
        expressions = self._taken(unstated)
        for expression in expressions:
            self._want(expression)
        first, self._is_begun = not self._is_begun, True
        if not unstated:
            self._unstated = None
            part = RequestPart.ALL if first else RequestPart.LAST
        else:
            part = RequestPart.FIRST if first else RequestPart.NEXT
        return self._request(serial, part, 0, expressions)

    def _change(self, serial: int) -> LinkWants | None:
        base, stated, removed = self._digest, list[str](), list[str]()
        most = self._bounds.request_filters
        # Sorted once: what many of them change may be nothing, and each round takes but some.
        waiting = sorted(self._changed, reverse=True)
        while waiting and not stated:
            for expression in self._taken(waiting[-most:]):
                waiting.pop()
                self._changed.discard(expression)
                self._unwanted.discard(expression)
                known, wanted = self._in_force.get(expression), self._state.wanted(self._neighbour, expression)
                if wanted is None and known is not None:
                    self._unwanted.add(expression)
                elif wanted != known:
                    stated.append(expression)
                    self._want(expression)
        if not self._changed:
            removed = self._taken(nsmallest(most - len(stated), self._unwanted)[::-1]) if len(stated) < most else []
            self._unwanted.difference_update(removed)
            for expression in removed:
                self._want(expression)
        if not stated and not removed:
            return None
        return self._request(serial, RequestPart.CHANGE, base, stated, tuple(removed))

    def _taken(self, waiting: list[str]) -> list[str]:
        """Take as many expressions from the end of a list as fit in one request, one at least."""
        taken: list[str] = []
        size = 0
        while (
            waiting and len(taken) < self._bounds.request_filters and (not taken or size < self._bounds.request_bytes)
        ):
            expression = waiting.pop()
            wanted = self._state.wanted(self._neighbour, expression)
            keys = sum(len(protection.keys) for protection in wanted[1]) if wanted is not None else 0
            size += ENTRY_BYTES + len(expression.encode()) + KEY_BYTES * keys
            taken.append(expression)
        return taken

    def _want(self, expression: str) -> None:
        """Count the present want of an expression as in force."""
        known = self._in_force.pop(expression, None)
        if known is not None:
            self._digest ^= digest_of(expression, known)
        wanted = self._state.wanted(self._neighbour, expression)
        if wanted is not None:
            self._in_force[expression] = wanted
            self._digest ^= digest_of(expression, wanted)

    def _request(
        self, serial: int, part: RequestPart, base: int, stated: Iterable[str] = (), removed: tuple[str, ...] = ()
    ) -> LinkWants:
        wanted = {expression: self._in_force[expression] for expression in stated if expression in self._in_force}
        return LinkWants(
            site=self._state.site,
            epoch=self._epoch,
            serial=serial,
            installations={expression: installation for expression, (installation, _) in wanted.items()},
            protections={expression: keys for expression, (_, keys) in wanted.items() if keys != (OPEN,)},
            removed=removed,
            part=part,
            base=base,
            tree_epoch=self._tree_epoch,
        )


class FilterInstaller:
    """The forwarding end: has a neighbour's requests come to our log, one at a time, and answers by what becomes of
    them there. After an append that failed the neighbour sends its request again.

    Args:
        neighbour: the site that requests.
        state: our site's state, as this proxy folds it.
        output: takes the appends, and RequestAnswered; a request that a later one has overtaken has no answer.
    """

    def __init__(self, neighbour: SiteId, state: SiteState, output: LinkOutput) -> None:
        self._neighbour = neighbour
        self._state = state
        self._output = output
        self._under_way: FiltersRequested | None = None
        self._offset: int | None = None
        """The offset of the request under way; None: the log has not answered yet."""
        self._next: tuple[FiltersRequested, bool] | None = None
        """The request that is taken next, and whether it is a probe."""

    @property
    def in_force(self) -> NeighbourFilters:
        """The neighbour's filters, as far as the log was read."""
        return self._state.filters_of(self._neighbour)

    def take(self, request: FiltersRequested, *, is_probe: bool = False) -> None:
        """Take a request of the neighbour: emit its append to the log, or report a :class:`RequestAnswered` if its
        answer is known already.

        While another request is under way, only the latest of those that come waits. One that is earlier than the last
        is ignored.

        Args:
            request: of a leader than whom no later one is known.
            is_probe: whether the request changes nothing; then it is only answered, and nothing is appended.
        """
        known = self.in_force
        if rank_of(request) <= known.rank:
            if rank_of(request) == known.rank:
                self._answer(request, True)
        elif self._under_way is not None:
            if rank_of(request) > rank_of(self._next[0] if self._next else self._under_way):
                self._next = (request, is_probe)
        elif is_probe or not known.fits(request):
            self._answer(request, known.fits(request))
        else:
            self._under_way, self._offset = request, None
            self._output.emit(AppendRecords([request], self._appended))

    def _appended(self, answer: list[int] | WaypostError, now_ms: int) -> None:
        if isinstance(answer, WaypostError):
            self._take_next()
        else:
            self._offset = answer[0]
            self.folded()

    def folded(self) -> None:
        """Handle that the site's state was folded further: report what became of the request under way
        (:class:`RequestAnswered`), if the log was read behind it, and take the request that waits.
        """
        if self._under_way is None or self._offset is None or self._state.position <= self._offset:
            return
        request, rank = self._under_way, self.in_force.rank
        if rank_of(request) >= rank:
            self._answer(request, rank_of(request) == rank)
        self._take_next()

    def _answer(self, request: FiltersRequested, is_applied: bool) -> None:
        self._output.report(RequestAnswered(request, is_applied))

    def _take_next(self) -> None:
        following, self._under_way, self._next = self._next, None, None
        if following is not None:
            request, is_probe = following
            self.take(request, is_probe=is_probe)


def request_of(message: LinkOpen | LinkWants) -> FiltersRequested:
    """Return the request of filters in a message, as a record for the log.

    That of an opening changes nothing: it is in force if the digest of the filters in force is the opening's.
    """
    if isinstance(message, LinkOpen):
        return FiltersRequested(
            message.site,
            message.epoch,
            message.serial,
            {},
            part=RequestPart.CHANGE,
            base=message.digest,
            tree_epoch=message.tree_epoch,
        )
    return FiltersRequested(
        message.site,
        message.epoch,
        message.serial,
        message.installations,
        message.protections,
        removed=message.removed,
        part=message.part,
        base=message.base,
        tree_epoch=message.tree_epoch,
    )
