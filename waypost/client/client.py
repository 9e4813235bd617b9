"""A client of the federation: the part that a receiver and a producer share. It runs the protocol on asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from waypost.arguments import flag, seconds, text
from waypost.client.address import check_address
from waypost.client.events import ClientEvent, NearerProxy, Redirected, Refusal, Retry, WrongFederation
from waypost.client.options import ConnectOptions
from waypost.client.protocol import ClientProtocol
from waypost.client.publish_buffer import Published
from waypost.client.transport import Transport
from waypost.errors import BadArgument, Internal, NoAnswer, NoProxy, Refused, Unreachable, WaypostError
from waypost.identity import Coordinate, NotificationId
from waypost.keys import NO_KEYS, PRODUCER, Key, Keys, check_keys
from waypost.limits import MAX_ID_LENGTH, MAX_QUENCH_NAMES
from waypost.messages import Interest, Welcome
from waypost.notification import Notification, Value

log = logging.getLogger("waypost")
MAKE_ANOTHER = "each is entered once: make another one, with waypost.attach or waypost.produce"
NO_PROXY = "is a proxy running? name its address: proxy=..., --proxy or WAYPOST_PROXY"
_Self = TypeVar("_Self", bound="Client")


class Client:
    """A connection to the federation that publishes. Use it as an asynchronous context manager.

    It reconnects with full jitter, and sends unacknowledged notifications again, under the same ids.

    Args:
        protocol: the pure state of the client.
        options: where and how to connect.
        timeout_s: how long a call waits for its answer, in seconds.
        on_event: called with each event of the protocol (:data:`waypost.client.events.ClientEvent`).
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        options: ConnectOptions,
        timeout_s: float,
        on_event: Callable[[object], None] | None,
    ) -> None:
        self._protocol = protocol
        self._timeout_s = timeout_s
        self._listener = on_event
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._transport = Transport(protocol, options, self._received, self._news)
        self._wait_reason = ""
        """The reason of the last Retry: a proxy named it, or the connection was lost."""
        self._room = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: WaypostError | None = None
        self._is_closed = False
        self._published: dict[int, asyncio.Future[Coordinate]] = {}
        self._interest_changed = asyncio.Event()

    def __repr__(self) -> str:
        if self._failure is not None:
            state = f"ended: {self._failure}"
        elif self._is_closed or self._task is None:
            state = "closed" if self._is_closed else "not entered"
        else:
            state = f"connecting{self.trouble}" if self.trouble or not self._ready.is_set() else "connected"
        return f"<{type(self).__name__} {self._protocol.name!r}: {state}>"

    @property
    def _kind(self) -> str:
        return type(self).__name__.lower()

    # ------------------------------------------------------------ life cycle

    def begin(self) -> None:
        """Start the connection in a task of the running event loop, and return at once. Entering the client does so,
        too.

        Raises:
            Refused: the client was begun, entered or closed before.
        """
        if self._task is not None:
            raise Refused(f"this {self._kind} was entered before", hint=MAKE_ANOTHER)
        if self._is_closed:
            raise Refused(f"this {self._kind} was closed before", hint=MAKE_ANOTHER)
        self._task = asyncio.create_task(self._transport.run(), name=f"waypost {self._protocol.name}")
        self._task.add_done_callback(self._ran)

    async def __aenter__(self: _Self) -> _Self:
        self.begin()
        try:
            await self._within(self._ready.wait, "no proxy let us in")
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave in order: tell the proxy, for two seconds (DETACH_S) at most, and disconnect.

        Publishes without an answer fail with Unreachable; their notifications may be durable. A second call has no
        effect.
        """
        await self._transport.leave(self._protocol.detach())
        await self._stop()

    async def abandon(self) -> None:
        """Break the connection off without a word to the proxy, as a client does that loses its network, and end this
        client.

        Requests without an answer fail with Unreachable.
        """
        self._transport.break_off()
        await self._stop()

    async def _stop(self) -> None:
        self._transport.stop()
        self._protocol.flush_acks()
        if self._task is not None:
            self._task.cancel()
            # Not awaited itself: its cancellation is not that of the caller.
            await asyncio.wait({self._task})
        self._is_closed = True
        error = Unreachable("the session was closed before an answer came")
        for future in self._awaited():
            if not future.done():
                future.set_exception(error)
                future.exception()
        for event in self._events():
            event.set()

    def _events(self) -> list[asyncio.Event]:
        """Return the events that calls wait for; all are set when the client ends."""
        return [self._ready, self._news, self._interest_changed, self._room]

    @property
    def _has_ended(self) -> bool:
        return self._is_closed or self._failure is not None

    def _awaited(self) -> list[asyncio.Future[Any]]:
        """Return the futures of all requests without an answer."""
        return [*self._published.values()]

    def _ran(self, task: asyncio.Task[None]) -> None:
        """Fail every pending request if the transport's task ended by an exception: it does so only by a defect."""
        fault = None if task.cancelled() else task.exception()
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        if fault is not None:
            error = Internal(f"{type(fault).__name__}: {fault}")
            self._refused(error)
            self._on_event(Refusal(error))

    def _check_entered(self) -> None:
        """Raise Refused unless the client was entered: before that, no task runs that could bring an answer."""
        if self._task is None:
            raise Refused(
                f"this {self._kind} was not entered",
                hint="write `async with ...:`, or `with ...:` where nothing is awaited",
            )

    def _check_open(self) -> None:
        """Raise Refused unless the client was entered, Unreachable if it was closed, or the error that ended it."""
        self._check_entered()
        if self._failure is not None:
            raise self._failure
        if self._is_closed:
            raise Unreachable(f"this {self._kind} was closed", hint=MAKE_ANOTHER)

    async def _within(self, wait: Callable[[], Awaitable[Any]], otherwise: str | Callable[[], str]) -> Any:
        """Wait for at most `timeout_s` of the client, and return the result.

        Raises:
            NoAnswer: the time is over, and there is a connection; `otherwise`, or what it returns then, says what did
                not happen.
            NoProxy: the time is over, and there is no connection.
            WaypostError: the client failed meanwhile.
        """
        self._check_open()
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await wait()
        except TimeoutError:
            late = f"{otherwise if isinstance(otherwise, str) else otherwise()} within {self._timeout_s:g} s"
            waiting = f": {self._wait_reason}" if self._wait_reason and not self._ready.is_set() else ""
            no_proxy = NoProxy(f"{late}{self._transport.trouble}", hint=NO_PROXY)
            error = NoAnswer(f"{late}{waiting}") if self._transport.connected else no_proxy
            raise self._failure or error from None
        if self._failure is not None:
            raise self._failure
        return result

    @property
    def failure(self) -> WaypostError | None:
        """The error that has ended the client for good; None: there is none."""
        return self._failure

    @property
    def trouble(self) -> str:
        """The reason why there is no connection, as a suffix of an error message (": ..."); "": there is one, or none
        was tried in vain yet.
        """
        return self._transport.trouble

    # ------------------------------------------------------------ publishing

    async def publish(
        self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True
    ) -> Coordinate:
        """Publish a notification; return its coordinate once it is durable in the log of its origin.

        The notification is sent again under the same id until it is acknowledged, however long that takes: `timeout_s`
        does not apply. A call that is cancelled does not take the notification back.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification, beside those of :meth:`publish_with`.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            BadArgument: an argument is of the wrong type.
            BadNotification: an attribute or the size is not allowed.
            Refused: the client was not entered, there are too many keys, or the proxy refused the notification.
            Unreachable: the client was closed before the call, or before an answer came; then the notification may be
                durable.
            WaypostError: the error that ended the client.
        """
        future = await self.publish_soon(notification, keys=keys, insecure=insecure)
        return await future

    async def publish_soon(
        self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True
    ) -> asyncio.Future[Coordinate]:
        """Queue a notification; return a future of its coordinate, which is done once the notification is durable.

        The call waits only while PUBLISH_WINDOW notifications are unacknowledged. The future fails with Refused if the
        proxy refuses the notification, with Unreachable if the client is closed before an answer came, or with the
        error that ended the client.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification, beside those of :meth:`publish_with`.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            BadArgument: an argument is of the wrong type.
            BadNotification: an attribute or the size is not allowed.
            Refused: the client was not entered, or there are too many keys.
            Unreachable: the client was closed.
            WaypostError: the error that ended the client.
        """
        check_keys(keys)
        flag(insecure, "insecure")
        listed = keys.listed(PRODUCER) if keys.keys else None
        body = (notification if isinstance(notification, Notification) else Notification(notification)).body
        return await self.publish_body(body, listed, insecure=insecure)

    async def publish_body(
        self, body: bytes, keys: list[Key] | None, *, insecure: bool, sequence: int | None = None
    ) -> asyncio.Future[Coordinate]:
        """Queue an encoded notification, which is not checked here; return a future, as :meth:`publish_soon` does.

        Args:
            body: the encoded notification (:attr:`Notification.body`).
            keys: security keys that go with this notification; None: none.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.
            sequence: the sequence number of its id, above those of all before it; None: the next one.

        Raises:
            BadMessage: no proxy would accept the keys.
            Refused: the client was not entered.
            Unreachable: the client was closed.
            WaypostError: the error that ended the client.
        """
        self._check_open()
        while self._protocol.publish_room <= 0:
            self._room.clear()
            await self._room.wait()
            self._check_open()
        number = self._protocol.publish(body, keys, insecure=insecure, sequence=sequence)
        future: asyncio.Future[Coordinate] = asyncio.get_running_loop().create_future()
        self._published[number] = future
        self._transport.flush_soon()
        return future

    async def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        """Ask the proxy for interest, as it is and as it changes: which subscriptions anywhere concern these
        attributes.

        Returns when the proxy has sent all that it knows. Each call replaces the one before; without names, interest is
        not asked for any more, and the call returns at once. A call that fails with NoAnswer or NoProxy stays
        requested: later connections ask again.

        Name all attributes that are going to be published, and ask :meth:`wanted` about each notification. A new
        subscription is known here some milliseconds after it is effective, or when a silent proxy was given up: a
        producer that must not miss the first notification for it publishes without asking.

        Args:
            names: of attributes, MAX_QUENCH_NAMES at most.
            keys: the security keys that will be published with, beside those of :meth:`publish_with`.
            insecure: the value of `insecure` that will be published with.

        Raises:
            BadArgument: a name is no text, too long or empty, there are too many names, or `keys` or `insecure` is of
                the wrong type.
            Refused: the client was not entered, or there are too many keys.
            BadMessage: no proxy would accept the keys.
            NoAnswer, NoProxy: the interest was not known within `timeout_s` of the client.
            Unreachable: the client is closed.
            WaypostError: the error that ended the client.
        """
        check_keys(keys)
        flag(insecure, "insecure")
        if len(names) > MAX_QUENCH_NAMES:
            raise BadArgument(f"{len(names)} names; {MAX_QUENCH_NAMES} are the most", field="names")
        for name in names:
            text(name, "names", 1, MAX_ID_LENGTH, such_as="names of attributes, each a text")
        listed = keys.listed(PRODUCER)
        self._check_open()
        self._protocol.quench(list(names), listed, insecure=insecure)
        self._transport.flush_soon()
        if not names:
            # Any notification is wanted from here on; no answer says more.
            return

        async def known() -> None:
            while not self._protocol.quench_view.caught_up and not self._has_ended:
                self._interest_changed.clear()
                await self._interest_changed.wait()

        await self._within(known, "no answer about what is wanted")
        self._check_open()

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether a subscription may match the notification, by the interest that :meth:`quench` asked for.

        False: no subscription that is known here matches it. True may be a false alarm: so it is before :meth:`quench`
        has returned, after it was called without names, while a new connection has not brought all interest, and for a
        notification with an attribute that was not named.

        Args:
            notification: with all its attributes.

        Raises:
            BadNotification: an attribute or the size is not allowed.
        """
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return self._protocol.quench_view.wanted(notification)

    async def wait_wanted(self, notification: Mapping[str, Value], timeout_s: float) -> bool:
        """Wait until a subscription may match the notification (:meth:`wanted`), for at most `timeout_s` seconds.

        Returns:
            The value of :meth:`wanted` then; False: the time is over, or the client has ended, and no known
            subscription matches.

        Raises:
            BadArgument: `timeout_s` is no time.
            BadNotification: an attribute or the size is not allowed.
        """
        seconds(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.wanted(notification) and not self._has_ended:
                    self._interest_changed.clear()
                    await self._interest_changed.wait()
        return self.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        """The interest known by :meth:`quench`, as expressions: alternatives of subscriptions; empty without quench."""
        return frozenset(self._protocol.quench_view.terms)

    @property
    def next_id(self) -> NotificationId:
        """The id of the next notification to be published."""
        return self._protocol.next_id

    @property
    def unacknowledged(self) -> int:
        """The number of publishes without an answer."""
        return len(self._published)

    async def publish_with(self, keys: Keys) -> None:
        """Set the keys that go with every later notification; they replace those set before. See :class:`waypost.Keys`.

        Raises:
            BadArgument: these are no keys.
            Refused: there are too many.
        """
        check_keys(keys)
        self._protocol.publish_with(keys.listed(PRODUCER))
        self._transport.flush_soon()

    # ------------------------------------------------------------ where it is connected

    async def move(self, url: str) -> None:
        """Connect to the proxy at `url` from now on.

        It returns at once. Where that proxy cannot be reached, or is of another federation, the client goes on at the
        other addresses that it knows.

        Raises:
            Refused: `url` is no ``ws://`` or ``wss://`` address, or the client was not entered.
            Unreachable: this client is closed.
            WaypostError: the error that ended the client.
        """
        check_address(url)
        self._check_open()
        self._ready.clear()
        self._transport.move(url)

    def _on_event(self, event: object) -> None:
        """Call the application's listener. An exception of it is logged, and does not end the client."""
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception:
                log.exception("on_event failed")

    def _received(self, event: ClientEvent) -> None:
        match event:
            case Published():
                self._published_answered(event)
                return
            case Interest():
                self._interest_changed.set()
            case Retry():
                self._ready.clear()
                self._wait_reason = event.reason
            case Redirected() | NearerProxy():
                self._ready.clear()
            case WrongFederation():
                self._ready.clear()
                log.warning("%s", event.reason)
            case Refusal():
                self._refused(event.error)
            case Welcome() if self._protocol.session is None:
                self._ready.set()
            case _:
                self._received_of_session(event)
        self._on_event(event)

    def _received_of_session(self, event: ClientEvent) -> None:
        """Handle an event that only a receiver gets."""

    def _published_answered(self, event: Published) -> None:
        self._room.set()
        future = self._published.pop(event.sequence, None)
        if future is None or future.done():
            return
        if event.error is not None:
            future.set_exception(event.error)
        elif event.coordinate is not None:
            future.set_result(event.coordinate)

    def _refused(self, error: WaypostError) -> None:
        """End this client by an error: nothing more is acknowledged, and it does not attach again."""
        self._failure = error
        self._transport.stop()
        self._transport.break_off()
        for event in self._events():
            event.set()
        for future in self._awaited():
            if not future.done():
                future.set_exception(error)
                future.exception()
