"""What an application holds of a session: the asyncio face of the client machine.

    async with waypost.attach("travellers/alice", proxy="ws://127.0.0.1:7311") as session:
        await session.subscribe('origin == "JFK" && dep_delay > 30')
        async for notification in session:
            print(notification["flight"])

A notification is acknowledged when the application asks for the next one, says :meth:`Session.acknowledge`, or leaves
the block in peace. What was not acknowledged - the one in hand when the block ends by an exception, what was not
asked for yet - comes again to the next attach with the same `state` or the same receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from waypost.access import LEVELS
from waypost.client.line import FAREWELL_S, Finder, Line
from waypost.client.machine import ClientMachine
from waypost.client.producing import Published
from waypost.client.received import Received
from waypost.client.receiving import ReceiverState
from waypost.client.told import Answered, Asked, Outcome, Refusal, Retry, Told
from waypost.errors import Internal, NoAnswer, NoProxy, Refused, Unreachable, WaypostError
from waypost.identity import Coordinate, NotificationId, Origin, SubscriptionId
from waypost.keys import NO_KEYS, Keys
from waypost.limits import MAX_COUNT, MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TTL_S
from waypost.messages import (
    Attached,
    BecameEffective,
    Deleted,
    Granted,
    Interest,
    SubscriptionChanged,
    Welcome,
)
from waypost.notification import Notification, Value

log = logging.getLogger("waypost")
NO_PROXY = "is a proxy running? name it with --proxy or WAYPOST_PROXY"


class Session:
    """A client's connection to the federation: a receiver of one session, a producer, or both.

    Made by :func:`attach` and :func:`produce`; use it as an asynchronous context manager. It reconnects with full
    jitter, follows a session that moves, and drops what comes twice.
    """

    def __init__(
        self,
        machine: ClientMachine,
        addresses: Sequence[str] | None,
        find: Finder | None,
        timeout_s: float,
        on_event: Callable[[object], None] | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._machine = machine
        self._timeout_s = timeout_s
        self._listener = on_event
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._line = Line(machine, addresses, find, self._hear, self._news, tls)
        self._told_to_wait = ""
        """Why, by the last proxy that said so."""
        self._room = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: WaypostError | None = None
        self._asked: dict[SubscriptionId, asyncio.Future[None]] = {}
        self._published: dict[int, asyncio.Future[Coordinate]] = {}
        self._effective: dict[SubscriptionId, dict[Origin, int]] = {}
        self._effective_changed = asyncio.Event()
        self._interest_changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._answers: dict[Asked, asyncio.Future[None]] = {}
        """Who waits for a change of the access, or for the deletion."""
        self.attached: Attached | None = None
        """What the proxy said at the last attach."""
        self.joined = False
        """This receiver was given a place, at this attach or an earlier one here: it had none, or had lost it."""

    # ------------------------------------------------------------ life

    async def __aenter__(self) -> Session:
        self._task = asyncio.create_task(self._line.run(), name=f"waypost {self._machine.name}")
        self._task.add_done_callback(self._ran)
        try:
            await self._within(self._ready.wait(), "no proxy let us in")
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._machine.give_back()
        await self.close()

    async def close(self, *, forget: bool = False) -> None:
        """Leave. With `forget` the receiver gives up its place, and the session keeps nothing for it.

        That is tried for two seconds, here or where the session has gone; if nobody answers, its place stays.
        """
        self._machine.settle()
        if forget and not self._line.over:
            with contextlib.suppress(WaypostError, TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._have(Asked.PLACE, self._machine.forget, "no answer about the receiver's place")
        await self._line.leave(self._machine.goodbye())
        await self._stop()

    async def delete(self) -> None:
        """Delete the session, with all that is stored for any receiver of it; they are told. This one has left then."""
        await self._have(Asked.DELETION, self._machine.delete, "the session was not deleted")
        await self.close()

    async def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        """Change who may do what with the session; returns once that is in force, and would survive its proxy.

        Who loses the right to read is told, and gets nothing from then on; who has another password now has to say it.
        This session keeps what it may do, and goes on under its own new password by itself.

            await session.set_access(password=secret)                                # one password, for everything
            await session.set_access({"alice": waypost.allow("owner", password=a),   # `attach(principal="alice")`
                                      "": waypost.allow("user", password="")})       # others only read, without one
            await session.set_access()                                               # open to everybody

        Args:
            grants: by principal; nobody else may do anything. Whoever asks must be among them, and administer.
            password: the one that everybody has to say who names no principal, and may do everything then.

        Raises:
            Forbidden: we may not change it.
            Refused: we could never change it again, or a principal has no password that it could keep.
        """
        if password is not None:
            grants = dict(grants or {}) | {"": allow("owner", password=password)}
        chosen = dict(grants or {})
        async with self._changing:
            await self._have(Asked.ACCESS, lambda: self._machine.set_access(chosen), "no answer about the access")

    async def _have(self, what: Asked, ask: Callable[[], None], otherwise: str) -> None:
        future = self._answers[what] = asyncio.get_running_loop().create_future()
        ask()
        self._line.wake()
        try:
            await self._within(asyncio.shield(future), otherwise)
        finally:
            if self._answers.get(what) is future:
                del self._answers[what]

    async def abandon(self) -> None:
        """Vanish without a word, as a client does that loses its network."""
        self._line.break_off()
        await self._stop()

    async def _stop(self) -> None:
        self._line.over = True
        self._machine.settle()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        gone = Unreachable("the session was closed before an answer came")
        for future in self._awaited():
            if not future.done():
                future.set_exception(gone)
                future.exception()
        self._news.set()

    def _awaited(self) -> list[asyncio.Future[Any]]:
        return [*self._asked.values(), *self._answers.values(), *self._published.values()]

    def _ran(self, task: asyncio.Task[None]) -> None:
        """By itself it ends only by a fault of ours, which everybody who waits is told."""
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._refused(Internal(f"{type(fault).__name__}: {fault}"))

    async def _within(self, what: Awaitable[Any], otherwise: str) -> Any:
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await what
        except TimeoutError:
            late = f"{otherwise} within {self._timeout_s:g} s"
            told = f": {self._told_to_wait}" if self._told_to_wait and self.attached is None else ""
            lost = NoProxy(f"{late}{self._line.trouble}", hint=NO_PROXY)
            why = NoAnswer(f"{late}{told}") if self._line.connected else lost
            raise self._failure or why from None
        if self._failure is not None:
            raise self._failure
        return result

    # ------------------------------------------------------------ the application's side: receiving

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        (received,) = await self.next_batch(1)
        return received

    async def batches(self) -> AsyncIterator[list[Received]]:
        """Yield what is there, a list at a time; a list is acknowledged when the next one is asked for."""
        while True:
            try:
                yield await self.next_batch()
            except StopAsyncIteration:
                return

    async def next_batch(self, most: int | None = None, *, by_hand: bool = False) -> list[Received]:
        """Return what is there, waiting for something; what was given before is acknowledged.

        Args:
            most: so many at most.
            by_hand: what was given before is not acknowledged, but by :meth:`acknowledge`: until then it comes again to
                the next attach. The proxy sends no more than the window of :func:`attach` ahead of that.

        Raises:
            StopAsyncIteration: the session was left.
        """
        while True:
            if self._failure is not None:
                raise self._failure
            taken = self._machine.take(most, by_hand=by_hand)
            self._line.wake()
            if taken:
                return [Received.of(each) for each in taken]
            if self._line.over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def acknowledge(self) -> None:
        """Say that the application has all that it was given so far; asking for the next one says it too."""
        self._machine.acknowledge()
        self._line.wake()

    def give_back(self) -> None:
        """Say that the application does not have what it was given since it last said so: that comes again."""
        self._machine.give_back()

    @property
    def state(self) -> ReceiverState:
        """The receiver's place; give it to a later :func:`attach`."""
        return self._machine.state

    @property
    def duplicates_dropped(self) -> int:
        return self._machine.duplicates_dropped

    # ------------------------------------------------------------ the application's side: subscribing

    async def subscribe(
        self,
        expression: str,
        *,
        id: str | None = None,
        ttl_s: int | None = None,
        max_count: int | None = None,
        keys: Keys = NO_KEYS,
        insecure: bool = True,
    ) -> SubscriptionId:
        """Add a subscription; return its id once it is durable. Under the id of one that is there, change its policy
        and its keys.

        From when on it is effective for notifications of other sites comes later: :meth:`effective`.

        Args:
            ttl_s: keep what it matches for so many seconds only; None: until all receivers have it.
            max_count: keep the newest so many only; None: all.
            keys: beside those of :meth:`set_keys`. They change exactly between two notifications of every origin.
            insecure: take also what comes where no keys meet.

        Raises:
            Refused: the expression or the id is not acceptable; `code` and `field` say why.
        """
        identity = SubscriptionId(id or _short(expression))
        checked(ttl_s, MAX_TTL_S, "ttl_s")
        checked(max_count, MAX_COUNT, "max_count")
        listed = keys.listed()
        await self._ask(
            identity,
            lambda: self._machine.subscribe(identity, expression, ttl_s, max_count, listed, insecure=insecure),
        )
        return identity

    async def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        """Change the keys that go with all that is done here; those said before go. See :class:`waypost.Keys`.

        Args:
            subscribing: with every subscription that this receiver made in the session, or makes; they stay with its
                place, wherever the session goes. Returns once that is in force, and would survive the proxy.
            publishing: with all that is published from here on.

        Raises:
            Forbidden: we may not subscribe.
        """
        if publishing is not None:
            self._machine.publish_with(publishing.listed())
            self._line.wake()
        if subscribing is not None:
            listed = subscribing.listed()
            async with self._changing:
                await self._have(Asked.KEYS, lambda: self._machine.set_keys(listed), "no answer about the keys")

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription; what matched before is still delivered."""
        identity = SubscriptionId(subscription)
        await self._ask(identity, lambda: self._machine.unsubscribe(identity))
        # The next one of this name is promised anew.
        self._effective.pop(identity, None)

    async def _ask(self, identity: SubscriptionId, ask: Callable[[], None]) -> None:
        future = self._asked.setdefault(identity, asyncio.get_running_loop().create_future())
        ask()
        self._line.wake()
        try:
            await self._within(asyncio.shield(future), f"no answer about subscription {identity}")
        finally:
            self._asked.pop(identity, None)

    def effective(self, subscription: str) -> Mapping[Origin, int]:
        """Return from above which offsets, by origin, the subscription is promised to be complete."""
        return self._effective.get(SubscriptionId(subscription), {})

    async def until_effective(self, subscription: str, origins: Sequence[str]) -> None:
        """Wait until the subscription is effective for these origins, such as ``B/0``."""

        async def wait() -> None:
            while not set(origins) <= set(self.effective(subscription)) and self._failure is None:
                self._effective_changed.clear()
                await self._effective_changed.wait()

        await self._within(wait(), f"{subscription} did not become effective for {', '.join(origins)}")

    # ------------------------------------------------------------ the application's side: publishing

    async def publish(
        self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True
    ) -> Coordinate:
        """Publish; return its coordinate once it is safe. Retried under the same id until it is.

        Args:
            keys: beside those of :meth:`set_keys`.
            insecure: it may go to who has no key that meets one of these, too.
        """
        future = await self.publish_soon(notification, keys=keys, insecure=insecure)
        return await future

    async def publish_soon(
        self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True
    ) -> asyncio.Future[Coordinate]:
        """Hand over a notification to be published and return its future coordinate.

        Waits only while too many are unanswered. Raises what the session ended with.
        """
        listed = keys.listed() if keys.keys else None
        body = (notification if isinstance(notification, Notification) else Notification(notification)).body
        while self._machine.publish_room <= 0:
            if self._failure is not None:
                raise self._failure
            self._room.clear()
            await self._room.wait()
        if self._failure is not None:
            raise self._failure
        sequence = self._machine.publish(body, listed, insecure=insecure)
        future: asyncio.Future[Coordinate] = asyncio.get_running_loop().create_future()
        self._published[sequence] = future
        self._line.wake()
        return future

    async def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        """Be told what anybody wants, anywhere, of what has these attributes, and of every change; returns when all was
        told that the proxy knows of. Without names: no more.

        Name all attributes that are going to be published, and then ask :meth:`wanted` of each notification. A new
        subscription is known here some milliseconds after it is effective, or when a proxy that stands still was given
        up: who must not miss the first notification for it, publishes all the same.

        Args:
            keys: those that will be published with, beside those of :meth:`set_keys`.
            insecure: what is going to be published may go where no keys meet.
        """
        listed = keys.listed()
        self._machine.quench(list(names), listed, insecure=insecure)
        self._line.wake()

        async def told() -> None:
            while not self._machine.quenching.level and self._failure is None:
                self._interest_changed.clear()
                await self._interest_changed.wait()

        await self._within(told(), "no answer about what is wanted")

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether anybody may want it, by what :meth:`quench` was told; where that does not say, somebody may."""
        return self._machine.quenching.wanted(notification)

    async def until_wanted(self, notification: Mapping[str, Value], timeout_s: float) -> bool:
        """Wait until :meth:`wanted` says so, for so long at most; tell whether it does."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.wanted(notification) and self._failure is None:
                    self._interest_changed.clear()
                    await self._interest_changed.wait()
        return self.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        """What is wanted, by what :meth:`quench` was told: alternatives of subscriptions, as expressions."""
        return frozenset(self._machine.quenching.terms)

    @property
    def next_id(self) -> NotificationId:
        """The id that the next notification to be published will have."""
        return self._machine.next_id

    @property
    def unacknowledged(self) -> int:
        """How many publishes have had no answer yet."""
        return len(self._published)

    async def until_attested(self, timeout_s: float = 5) -> bool:
        """Wait until a journal has all that the application was given; tell whether it has."""
        self._machine.settle()
        self._line.wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.state.unconfirmed:
                    await asyncio.sleep(0.01)
        return not self.state.unconfirmed

    # ------------------------------------------------------------ where it is served

    async def move(self, url: str) -> None:
        """Attach at another proxy from now on; the session follows."""
        self.attached = None
        self._ready.clear()
        await self._line.move(url)

    async def until_attached(self) -> Attached:
        """Wait until the session is served to us, wherever that is."""
        await self._within(self._ready.wait(), "the session could not be attached")
        assert self.attached is not None
        return self.attached

    def _on_event(self, event: object) -> None:
        """Tell the application; what it throws is its own affair."""
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                log.exception("on_event failed")

    def _hear(self, told: Told) -> None:
        match told:
            case Published():
                self._settle_publish(told)
                return
            case Outcome():
                future = self._asked.get(told.subscription)
                if future is not None and not future.done():
                    future.set_exception(told.error) if told.error else future.set_result(None)
            case Answered():
                self._answer(told.what, told.error)
            case Attached():
                self.attached = told
                self.joined = self.joined or told.joined
                # What is promised now is said next; a name may mean another subscription than when we were here last.
                self._effective.clear()
                self._ready.set()
            case SubscriptionChanged(settings=None):
                self._effective.pop(told.subscription, None)
            case BecameEffective():
                self._effective.setdefault(told.subscription, {}).update(told.above)
                self._effective_changed.set()
            case Interest():
                self._interest_changed.set()
            case Retry():
                self._told_to_wait = told.reason
            case Refusal():
                self._refused(told.error)
            case Deleted():
                self._line.over = True
                self._answer(Asked.DELETION, None)
                self._news.set()
            case Welcome() if self._machine.session is None:
                self._ready.set()
        self._on_event(told)

    def _answer(self, what: Asked, error: WaypostError | None) -> None:
        future = self._answers.get(what)
        if future is not None and not future.done():
            future.set_exception(error) if error else future.set_result(None)

    def _settle_publish(self, told: Published) -> None:
        self._room.set()
        future = self._published.pop(told.sequence, None)
        if future is None or future.done():
            return
        if told.error is not None:
            future.set_exception(told.error)
        elif told.coordinate is not None:
            future.set_result(told.coordinate)

    def _refused(self, error: WaypostError) -> None:
        """This session is over; what came is not acknowledged any more, and nobody attaches again."""
        self._failure = error
        self._line.over = True
        self._line.break_off()
        for wakened in (self._ready, self._news, self._effective_changed, self._interest_changed, self._room):
            wakened.set()
        for future in self._awaited():
            if not future.done():
                future.set_exception(error)
                future.exception()


def checked(value: int | None, most: int, name: str) -> None:
    """Raise Refused unless the value is None or from 1 to `most`."""
    if value is not None and not (isinstance(value, int) and 1 <= value <= most):
        raise Refused(f"{value!r}; it is a whole number from 1 to {most}", field=name)


def _short(expression: str) -> SubscriptionId:
    """Return the id of a subscription that was given none: its expression, or a digest of a long one."""
    if len(expression) <= MAX_ID_LENGTH:
        return SubscriptionId(expression)
    return SubscriptionId("sha256:" + hashlib.sha256(expression.encode()).hexdigest())


def allow(*rights: str, password: str | None = None, by_token: bool = False) -> Granted:
    """Return what a principal is allowed, for :meth:`Session.set_access`.

    Args:
        rights: ``read``, ``subscribe``, ``administer``; or a level: ``user`` reads, ``admin`` subscribes too, ``owner``
            may do everything.
        password: the one that proves the principal; "": its name is enough; None: the one that it has.
        by_token: no password proves the principal, only a token does.

    Raises:
        Refused: there is no such right.
    """
    unknown = [each for each in rights if each not in (*LEVELS, *LEVELS["owner"])]
    if unknown or not rights:
        known = ", ".join((*LEVELS["owner"], *LEVELS))
        raise Refused(f"{unknown[0] if unknown else 'nothing'} is no right; there are {known}", field="rights")
    if password is not None and len(password) > MAX_PASSWORD_LENGTH:
        raise Refused(f"{len(password)} characters; the limit is {MAX_PASSWORD_LENGTH}", field="password")
    wanted = {right for each in rights for right in LEVELS.get(each, (each,))}
    return Granted([right for right in LEVELS["owner"] if right in wanted], password, by_token)
