"""Several sessions of one client as one stream: a notification that several of them have comes once, tagged with all.

    async with waypost.join(["team/red", "team/blue"], receiver="me") as joined:
        await joined["team/red"].subscribe("goal > 0")
        async for received in joined:
            print(received.matched)         # {"team/red": ("goal > 0",), "team/blue": ("who == 7",)}

Theory
------
Every session is attached to by itself, wherever it is served, and keeps a place of its own for us. Each gives its next
notification, its *head*, and no further one before that was taken. Of one origin every session has its notifications in
order, so the head of the lowest offset is given first, together with all heads of that coordinate: they are one copy. A
head that is not there yet is waited for a moment, for copies of one notification are on their way together where the
sessions have one home. Where they do not, and it comes later still, it is dropped as a repeat, and its tag is missing.
Between what only one session has and what only another has, there is no order. A session whose proxy was away for so
long that more ids came by the others than are remembered (RECENT_IDS) gives again what they had.

What the application has, all sessions are told that gave it, each by itself. The ids of what it has are remembered for
all of them together: what comes later by another session, after a move, a crash, or by another origin, is a repeat.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from waypost.arguments import instance, listed, shown, text
from waypost.client.delivery_state import ReceiverState
from waypost.client.entry import attach
from waypost.client.received_notification import Received
from waypost.client.receiver import Receiver
from waypost.errors import BadArgument, NotFound
from waypost.frontier import RecentIds
from waypost.identity import NotificationId, SessionId, SubscriptionId
from waypost.limits import MAX_ID_LENGTH
from waypost.queue import goes_by_attributes

MOMENT_S = 0.005
"""How long a head is waited for that may have the same notification as the others."""


class Matched(Received):
    """A notification, and in `matched` which subscriptions of which sessions it matched.

    `subscriptions` are the ids of all of them, and `secure` those of which it met the keys.
    """

    __slots__ = ("matched",)

    matched: dict[SessionId, tuple[SubscriptionId, ...]]

    @classmethod
    def of_all(cls, copies: Mapping[SessionId, Received]) -> Matched:
        """Return the one notification of which these sessions got a copy each."""
        first = next(iter(copies.values()))
        made = cls.__new__(cls)
        made._body, made._attributes = first.body, None
        made.coordinate, made.id, made.at_ms = first.coordinate, first.id, first.at_ms
        made.matched = {session: copy.subscriptions for session, copy in copies.items()}
        made.subscriptions = tuple(
            dict.fromkeys(subscription for copy in copies.values() for subscription in copy.subscriptions)
        )
        made.secure = tuple(dict.fromkeys(each for copy in copies.values() for each in copy.secure))
        return made


@dataclass(slots=True)
class JoinedState:
    """What an application has of several sessions by its word; keep it, and nothing is given twice or passed over."""

    states: dict[SessionId, ReceiverState] = field(default_factory=dict)
    recent: RecentIds = field(default_factory=RecentIds)


class Joined:
    """One client's sessions. Made by :func:`join`; a mapping from session id to what :func:`waypost.attach` gives."""

    def __init__(self, sessions: dict[SessionId, Receiver], state: JoinedState) -> None:
        self.state = state
        """Our place in all of them; give it to a later :func:`join`."""
        self._sessions = sessions
        self._stack = AsyncExitStack()
        self._current: NotificationId | None = None
        """What the application was given last."""
        self._over: set[SessionId] = set()
        self._heads: dict[SessionId, Received] = {}
        self._coming: dict[SessionId, asyncio.Task[list[Received]]] = {}
        """Sessions whose head is waited for."""

    def __getitem__(self, session: str) -> Receiver:
        found = self._sessions.get(SessionId(text(session, "session", such_as="the id of one of these sessions")))
        if found is None:
            raise NotFound(f"{shown(session)} is none of {', '.join(self._sessions)}", field="session")
        return found

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Joined:
        try:
            for session in self._sessions.values():
                await self._stack.enter_async_context(session)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *problem: Any) -> None:
        if problem[0] is None:
            self._acknowledge_last()
        came = [*self._heads, *(identity for identity, task in self._coming.items() if task.done())]
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)
        for identity in came:
            # A head that was not taken comes again; nothing else of its session is with the application.
            self._sessions[identity].nack()
        await self._stack.__aexit__(*problem)

    def _acknowledge_last(self) -> None:
        """The application has what it was given last."""
        if self._current is not None:
            self.state.recent.add(self._current)
            self._current = None

    # ------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[Matched]:
        return self

    async def __anext__(self) -> Matched:
        """Return the next notification; the one before is acknowledged, in all sessions that it came by."""
        self._acknowledge_last()
        while True:
            await self._until_heads()
            matched = self._take()
            if matched.id not in self.state.recent:
                self._current = matched.id
                return matched

    async def _until_heads(self) -> None:
        """Wait for a head. Where others came with it, they are there already, or within a moment."""
        self._ask()
        # Whoever has something waiting gives it at once.
        await asyncio.sleep(0)
        self._receive_heads()
        if self._heads:
            return
        while not self._heads:
            if not self._coming:
                raise StopAsyncIteration
            await asyncio.wait(self._coming.values(), return_when=asyncio.FIRST_COMPLETED)
            self._receive_heads()
        if self._coming:
            await asyncio.wait(self._coming.values(), timeout=MOMENT_S)
            self._receive_heads()

    def _ask(self) -> None:
        """Have every session that has no head give one; that acknowledges the one before."""
        for identity, session in self._sessions.items():
            if identity not in self._heads and identity not in self._coming and identity not in self._over:
                self._coming[identity] = asyncio.ensure_future(session.next_batch(1))

    def _receive_heads(self) -> None:
        """Take the heads that have come. Raises what ended a session."""
        for identity, task in [item for item in self._coming.items() if item[1].done()]:
            del self._coming[identity]
            try:
                (self._heads[identity],) = task.result()
            except StopAsyncIteration:
                self._over.add(identity)

    def _take(self) -> Matched:
        heads = self._heads
        chosen = next(iter(heads.values()))
        for head in heads.values():
            if head.coordinate.origin == chosen.coordinate.origin and head.coordinate.offset < chosen.coordinate.offset:
                chosen = head
        copies = {identity: head for identity, head in heads.items() if head.id == chosen.id}
        for identity in copies:
            del heads[identity]
        return Matched.of_all(copies)


def join(sessions: Iterable[str], *, state: JoinedState | None = None, **options: Any) -> Joined:
    """Attach to several sessions, each created if there is none, and be given one copy of what any of them has.

    Args:
        sessions: their ids.
        state: our place in them, from an earlier :attr:`Joined.state`.
        options: of :func:`waypost.attach`, the same for all.

    Raises:
        Refused: there is none, or one twice; or they are to be given in another order than theirs.
    """
    instead = "a list of sessions, such as ['team/red', 'team/blue']"
    named = [
        SessionId(text(each, "sessions", 1, MAX_ID_LENGTH, such_as=instead))
        for each in listed(sessions, "sessions", instead)
    ]
    if not named or len({*named}) != len(named):
        raise BadArgument("one session or several, each once", field="sessions")
    if state is not None:
        instance(state, "state", JoinedState, "an earlier Joined.state")
    if goes_by_attributes(options.get("order", "any")):
        raise BadArgument("joined sessions are given in the order in which their notifications came", field="order")
    place = state or JoinedState()
    for identity in named:
        place.states.setdefault(identity, ReceiverState())
    return Joined({each: attach(each, state=place.states[each], **options) for each in named}, place)
