"""Several sessions of one client as one stream: a notification of several sessions comes once, tagged with all of them.

    async with waypost.join(["team/red", "team/blue"], receiver="me") as joined:
        await joined["team/red"].subscribe("goal > 0")
        async for received in joined:
            print(received.matched)         # {"team/red": ("goal > 0",), "team/blue": ("who == 7",)}

Theory
------
Each session is attached separately, wherever it is served, and registers the receiver for itself. Each yields its next
notification, its *head*, and no further one before that was returned. A session yields the notifications of one origin
in order, so the head of the lowest offset is returned first, merged with all heads of that coordinate. A head that has
not arrived is waited for a moment (MOMENT_S), for copies of one notification arrive together if one proxy owns the
sessions. Otherwise a copy may arrive later still: then it is dropped as a duplicate, and its tag is missing. There is
no order between notifications of different sessions that only one of them has. A session whose proxy was away for so
long that more ids came by the others than are remembered (RECENT_IDS) yields duplicates of those.

A notification is acknowledged in all sessions that yielded it. The ids of what the application has are remembered for
all of them together: a copy that another session yields later, after a move, a crash, or by another origin, is dropped.
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
"""How long a head that has not arrived is waited for, once another one has, in seconds."""


class Matched(Received):
    """A notification, with `matched`: the ids of the subscriptions that it matched, by session.

    `subscriptions` are the ids of all of them, and `secure` those of which it met the keys.
    """

    __slots__ = ("matched",)

    matched: dict[SessionId, tuple[SubscriptionId, ...]]

    @classmethod
    def of_all(cls, copies: Mapping[SessionId, Received]) -> Matched:
        """Merge the copies of one notification, by the session that yielded each; at least one."""
        first = next(iter(copies.values()))
        made = cls.__new__(cls)
        made._body, made._attributes = first.body, None
        made.coordinate, made.id, made.at_ms = first.coordinate, first.id, first.at_ms
        made.matched = {session: copy.subscriptions for session, copy in copies.items()}
        made.subscriptions = tuple(
            dict.fromkeys(subscription for copy in copies.values() for subscription in copy.subscriptions)
        )
        made.secure = tuple(dict.fromkeys(subscription for copy in copies.values() for subscription in copy.secure))
        return made


@dataclass(slots=True)
class JoinedState:
    """The application's position in several sessions, to be kept and given again: with it, nothing is delivered twice
    or passed over.

    Args:
        states: by session, the state of the receiver there.
        recent: the ids of notifications that were given lately, so that what another session gives again is recognised.
    """

    states: dict[SessionId, ReceiverState] = field(default_factory=dict)
    recent: RecentIds = field(default_factory=RecentIds)


class Joined:
    """The joined sessions of one client, made by :func:`join`; ``joined[session]`` is the receiver of one of them."""

    def __init__(self, sessions: dict[SessionId, Receiver], state: JoinedState) -> None:
        self.state = state
        """The position in all sessions; give it to a later :func:`join`."""
        self._sessions = sessions
        self._stack = AsyncExitStack()
        self._current: NotificationId | None = None
        """The id of the notification returned last, which is not acknowledged yet."""
        self._over: set[SessionId] = set()
        self._heads: dict[SessionId, Received] = {}
        self._coming: dict[SessionId, asyncio.Task[list[Received]]] = {}
        """The sessions whose head is waited for."""

    def __getitem__(self, session: str) -> Receiver:
        found = self._sessions.get(SessionId(text(session, "session", such_as="the id of one of these sessions")))
        if found is None:
            raise NotFound(f"{shown(session)} is none of {', '.join(self._sessions)}", field="session")
        return found

    # ------------------------------------------------------------ life cycle

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
        unreturned = [*self._heads, *(identity for identity, task in self._coming.items() if task.done())]
        for task in self._coming.values():
            task.cancel()
        await asyncio.gather(*self._coming.values(), return_exceptions=True)
        for identity in unreturned:
            # A head that was not returned comes again; the application has nothing else unacknowledged of its session.
            self._sessions[identity].nack()
        await self._stack.__aexit__(*problem)

    def _acknowledge_last(self) -> None:
        """Record that the application has the notification returned last."""
        if self._current is not None:
            self.state.recent.add(self._current)
            self._current = None

    # ------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[Matched]:
        return self

    async def __anext__(self) -> Matched:
        """Return the next notification; acknowledge the one before, in all sessions that yielded it."""
        self._acknowledge_last()
        while True:
            await self._until_heads()
            matched = self._take()
            if matched.id not in self.state.recent:
                self._current = matched.id
                return matched

    async def _until_heads(self) -> None:
        """Wait for a head, and for a moment longer for the others."""
        self._ask()
        # A session that has a notification waiting yields it at once.
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
        """Ask every session without a head for its next one, which acknowledges the one before."""
        for identity, session in self._sessions.items():
            if identity not in self._heads and identity not in self._coming and identity not in self._over:
                self._coming[identity] = asyncio.ensure_future(session.next_batch(1))

    def _receive_heads(self) -> None:
        """Collect the heads that have arrived. Raises the error that ended a session."""
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
    """Return several sessions as one stream; entering it attaches to each, and creates it if there is none.

    Args:
        sessions: their ids, at least one, each once.
        state: the position in them, from an earlier :attr:`Joined.state`; it is changed in place. None: a new position.
        options: of :func:`waypost.attach` but `state`, the same for all. `order` may not be ``priority`` or
            ``deadline``.

    Raises:
        Refused: there is no session, or one twice; the order is not supported; or an option is not valid.
    """
    instead = "a list of sessions, such as ['team/red', 'team/blue']"
    named = [
        SessionId(text(session, "sessions", 1, MAX_ID_LENGTH, such_as=instead))
        for session in listed(sessions, "sessions", instead)
    ]
    if not named or len({*named}) != len(named):
        raise BadArgument("one session or several, each once", field="sessions")
    if state is not None:
        instance(state, "state", JoinedState, "an earlier Joined.state")
    if goes_by_attributes(options.get("order", "any")):
        raise BadArgument("joined sessions are given in the order in which their notifications came", field="order")
    joined_state = state or JoinedState()
    for identity in named:
        joined_state.states.setdefault(identity, ReceiverState())
    return Joined(
        {identity: attach(identity, state=joined_state.states[identity], **options) for identity in named}, joined_state
    )
