"""A client of the federation: what a receiver and a producer have in common, with asyncio around the pure machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from waypost.arguments import flag, seconds, text
from waypost.client.events import ClientEvent, Refusal, Retry
from waypost.client.machine import ClientMachine
from waypost.client.publish_buffer import Published
from waypost.client.transport import Finder, Transport, check_address
from waypost.errors import BadArgument, Internal, NoAnswer, NoProxy, Refused, Unreachable, WaypostError
from waypost.identity import Coordinate, NotificationId
from waypost.keys import NO_KEYS, Keys, check_keys
from waypost.limits import MAX_ID_LENGTH, MAX_QUENCH_NAMES
from waypost.messages import Interest, Welcome
from waypost.notification import Notification, Value

log = logging.getLogger("waypost")
NO_PROXY = "is a proxy running? name it with --proxy or WAYPOST_PROXY"
_Self = TypeVar("_Self", bound="Client")


class Client:
    """A connection to the federation that publishes. Use it as an asynchronous context manager.

    It reconnects with full jitter, and sends again what was not acknowledged, under the same ids.

    Args:
        machine: the pure state of the client.
        addresses: of proxies, ``ws://host:port``; None: `find` finds one.
        find: finds proxies on the local network.
        timeout_s: for each answer that is waited for.
        on_event: called with each event of the machine (:data:`waypost.client.events.ClientEvent`).
        tls: how ``wss://`` addresses are spoken to; None: as the environment says.
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
        self._transport = Transport(machine, addresses, find, self._received, self._news, tls)
        self._wait_reason = ""
        """Why the client waits, by the last proxy that said so."""
        self._room = asyncio.Event()
        self._ready = asyncio.Event()
        self._failure: WaypostError | None = None
        self._published: dict[int, asyncio.Future[Coordinate]] = {}
        self._interest_changed = asyncio.Event()

    # ------------------------------------------------------------ life

    async def __aenter__(self: _Self) -> _Self:
        self._task = asyncio.create_task(self._transport.run(), name=f"waypost {self._machine.name}")
        self._task.add_done_callback(self._ran)
        try:
            await self._within(self._ready.wait, "no proxy let us in")
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave in order: the proxy is told."""
        await self._transport.leave(self._machine.detach())
        await self._stop()

    async def abandon(self) -> None:
        """Vanish without a word, as a client does that loses its network."""
        self._transport.break_off()
        await self._stop()

    async def _stop(self) -> None:
        self._transport.stop()
        self._machine.flush_acks()
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
        """Return the answers that somebody waits for."""
        return [*self._published.values()]

    def _ran(self, task: asyncio.Task[None]) -> None:
        """By itself it ends only by a fault of ours, which everybody who waits is told."""
        fault = None if task.cancelled() else task.exception()
        while isinstance(fault, BaseExceptionGroup):
            fault = fault.exceptions[0]
        if fault is not None:
            self._refused(Internal(f"{type(fault).__name__}: {fault}"))

    def _check_entered(self) -> None:
        """Raises Refused: nothing was begun that could answer."""
        if self._task is None:
            raise Refused("it was not entered", hint="write `async with ...:`, or `with ...:` where nothing is awaited")

    async def _within(self, what: Callable[[], Awaitable[Any]], otherwise: str) -> Any:
        self._check_entered()
        try:
            async with asyncio.timeout(self._timeout_s):
                result = await what()
        except TimeoutError:
            late = f"{otherwise} within {self._timeout_s:g} s"
            waiting = f": {self._wait_reason}" if self._wait_reason and not self._ready.is_set() else ""
            lost = NoProxy(f"{late}{self._transport.trouble}", hint=NO_PROXY)
            why = NoAnswer(f"{late}{waiting}") if self._transport.connected else lost
            raise self._failure or why from None
        if self._failure is not None:
            raise self._failure
        return result

    # ------------------------------------------------------------ publishing

    async def publish(
        self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True
    ) -> Coordinate:
        """Publish; return its coordinate once it is safe. Retried under the same id until it is, however long it takes.

        Args:
            keys: beside those of :meth:`publish_with`.
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
        check_keys(keys)
        flag(insecure, "insecure")
        listed = keys.listed() if keys.keys else None
        body = (notification if isinstance(notification, Notification) else Notification(notification)).body
        self._check_entered()
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
        self._transport.flush_soon()
        return future

    async def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        """Be told what anybody wants, anywhere, of what has these attributes, and of every change; returns when all was
        told that the proxy knows of. Without names: no more.

        Name all attributes that are going to be published, and then ask :meth:`wanted` of each notification. A new
        subscription is known here some milliseconds after it is effective, or when a proxy that stands still was given
        up: who must not miss the first notification for it, publishes all the same.

        Args:
            keys: those that will be published with, beside those of :meth:`publish_with`.
            insecure: what is going to be published may go where no keys meet.
        """
        check_keys(keys)
        flag(insecure, "insecure")
        if len(names) > MAX_QUENCH_NAMES:
            raise BadArgument(f"{len(names)} names; {MAX_QUENCH_NAMES} are the most", field="names")
        for name in names:
            text(name, "names", 1, MAX_ID_LENGTH, such_as="names of attributes, each a text")
        listed = keys.listed()
        self._check_entered()
        self._machine.quench(list(names), listed, insecure=insecure)
        self._transport.flush_soon()

        async def known() -> None:
            while not self._machine.quench_view.caught_up and self._failure is None:
                self._interest_changed.clear()
                await self._interest_changed.wait()

        await self._within(known, "no answer about what is wanted")

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether anybody may want it, by what :meth:`quench` was told; where that does not say, somebody may."""
        if not isinstance(notification, Notification):
            notification = Notification(notification)
        return self._machine.quench_view.wanted(notification)

    async def wait_wanted(self, notification: Mapping[str, Value], timeout_s: float) -> bool:
        """Wait until :meth:`wanted` says so, for so long at most; tell whether it does."""
        seconds(timeout_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not self.wanted(notification) and self._failure is None:
                    self._interest_changed.clear()
                    await self._interest_changed.wait()
        return self.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        """What is wanted, by what :meth:`quench` was told: alternatives of subscriptions, as expressions."""
        return frozenset(self._machine.quench_view.terms)

    @property
    def next_id(self) -> NotificationId:
        """The id that the next notification to be published will have."""
        return self._machine.next_id

    @property
    def unacknowledged(self) -> int:
        """How many publishes have had no answer yet."""
        return len(self._published)

    async def publish_with(self, keys: Keys) -> None:
        """Change the keys that go with all that is published from here on. See :class:`waypost.Keys`."""
        check_keys(keys)
        self._machine.publish_with(keys.listed())
        self._transport.flush_soon()

    # ------------------------------------------------------------ where it is connected

    async def move(self, url: str) -> None:
        """Connect to another proxy from now on. Raises Refused: that is no address."""
        check_address(url)
        self._ready.clear()
        self._transport.move(url)

    def _on_event(self, event: object) -> None:
        """Tell the application; what it throws is its own affair."""
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
                self._wait_reason = event.reason
            case Refusal():
                self._refused(event.error)
            case Welcome() if self._machine.session is None:
                self._ready.set()
            case _:
                self._received_of_session(event)
        self._on_event(event)

    def _received_of_session(self, event: ClientEvent) -> None:
        """Take what only a receiver is told."""

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
        """This client is over; what came is not acknowledged any more, and nobody attaches again."""
        self._failure = error
        self._transport.stop()
        self._transport.break_off()
        for wakened in (self._ready, self._news, self._interest_changed, self._room):
            wakened.set()
        for future in self._awaited():
            if not future.done():
                future.set_exception(error)
                future.exception()
