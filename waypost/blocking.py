"""The blocking facade: receivers and producers for code without an event loop.

    with waypost.blocking.attach("travellers/alice") as receiver:
        receiver.subscribe('origin == "JFK"')
        for notification in receiver:
            ...

One background thread runs one event loop for each of them; it ends with the block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Generic, TypeVar

from waypost.arguments import flag, seconds
from waypost.client import entry
from waypost.client import producer as asynchronous_producer
from waypost.client import receiver as asynchronous_receiver
from waypost.client.client import Client
from waypost.client.delivery_state import ReceiverState
from waypost.client.received_notification import Received
from waypost.errors import Unreachable
from waypost.identity import Coordinate, SubscriptionId
from waypost.keys import NO_KEYS, Keys
from waypost.messages import Granted
from waypost.notification import Value

_T = TypeVar("_T")
_C = TypeVar("_C", bound=Client)
_Self = TypeVar("_Self", bound="_Blocking[Any]")
SHUTDOWN_GRACE_S = 1.0
"""How long those who still wait for an answer have to hear that there is none."""


class SessionClosed(Unreachable):
    """Something was asked of a session after its end."""

    code = "SESSION_CLOSED"
    definite = True


class _Blocking(Generic[_C]):
    """A client with a thread and an event loop of its own. All methods may be called from any thread."""

    def __init__(self, make: Callable[..., _C], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._ending = threading.Lock()
        """Held by who ends the client: the second one finds nothing left to do."""
        self._handing = threading.Lock()
        """Held while something is handed to the loop, and while the loop closes: what it took, it also does."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="waypost", daemon=True)
        self._thread.start()
        try:
            self._client: _C = self._call(_make(make, arguments, options))
        except BaseException:
            self._end()
            raise

    def _call(self, coroutine: Coroutine[Any, Any, _T], timeout_s: float | None = None) -> _T:
        with self._handing:
            if self._loop.is_closed():
                coroutine.close()
                raise SessionClosed("the session was closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def __enter__(self: _Self) -> _Self:
        try:
            self._call(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *problem: Any) -> None:
        self._leave(lambda: self._client.__aexit__(*problem))

    def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        self._call(self._client.quench(*names, keys=keys, insecure=insecure))

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        return self._client.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        return self._client.terms

    def publish(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> Coordinate:
        return self._call(self._client.publish(notification, keys=keys, insecure=insecure))

    def publish_with(self, keys: Keys) -> None:
        """As :meth:`waypost.Producer.publish_with`."""
        self._call(self._client.publish_with(keys))

    def close(self) -> None:
        """Leave in order."""
        self._leave(self._client.close)

    def _leave(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the last thing and end; whoever leaves second finds nothing left to do."""
        with self._ending:
            if not self._loop.is_closed():
                try:
                    self._call(last())
                finally:
                    self._end()

    def _end(self) -> None:
        """End the thread, and tell whoever still waits for something."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with self._handing:
            self._loop.run_until_complete(_wait_for_waiters())
            self._loop.close()


class Receiver(_Blocking[asynchronous_receiver.Receiver]):
    """As :class:`waypost.Receiver`, for blocking code."""

    def __iter__(self) -> Iterator[Received]:
        while True:
            received = self.next()
            if received is None:
                return
            yield received

    def next(self, timeout_s: float | None = None) -> Received | None:
        """Return the next notification; None when the session was closed. Raises TimeoutError: none came so soon."""
        if timeout_s is not None:
            seconds(timeout_s)

        async def step() -> Received | None:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._client.__anext__()
            except StopAsyncIteration:
                return None
            except TimeoutError:
                if timeout_s is None:
                    raise
                raise TimeoutError(f"nothing came within {timeout_s:g} s") from None

        with contextlib.suppress(SessionClosed):
            return self._call(step())
        return None

    def subscribe(
        self,
        expression: str,
        *,
        id: str | None = None,
        ttl_s: int | None = None,
        max_count: int | None = None,
        keys: Keys = NO_KEYS,
        insecure: bool = True,
    ) -> SubscriptionId:
        """Subscribe, as :meth:`waypost.Receiver.subscribe` does; return the subscription's id when the proxy has it."""
        return self._call(
            self._client.subscribe(expression, id=id, ttl_s=ttl_s, max_count=max_count, keys=keys, insecure=insecure)
        )

    def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        """Set keys, as :meth:`waypost.Receiver.set_keys` does."""
        self._call(self._client.set_keys(subscribing=subscribing, publishing=publishing))

    def unsubscribe(self, subscription: str) -> None:
        """End the subscription. Raises NotFound: the session has none of that id."""
        self._call(self._client.unsubscribe(subscription))

    def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        """Set who may do what, as :meth:`waypost.Receiver.set_access` does."""
        self._call(self._client.set_access(grants, password=password))

    def delete(self) -> None:
        """Delete the session, for all its receivers."""
        with self._ending:
            try:
                self._call(self._client.delete())
            finally:
                if not self._loop.is_closed():
                    self._end()

    @property
    def state(self) -> ReceiverState:
        """What this receiver has; hand it to the next :func:`attach` of this receiver."""
        return self._client.state

    def acknowledge(self) -> None:
        """Count everything that was returned so far as had."""
        self._call(_done(self._client.acknowledge))

    def close(self, *, forget: bool = False) -> None:
        """Leave in peace; `forget`: for good, and nothing is stored for this receiver any more."""
        flag(forget, "forget")
        self._leave(lambda: self._client.close(forget=forget))


class Producer(_Blocking[asynchronous_producer.Producer]):
    """As :class:`waypost.Producer`, for blocking code."""


async def _wait_for_waiters() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=SHUTDOWN_GRACE_S)
        for task in late:
            task.cancel()


async def _done(act: Callable[[], None]) -> None:
    act()


async def _make(make: Callable[..., _C], arguments: tuple[Any, ...], options: dict[str, Any]) -> _C:
    return make(*arguments, **options)


def attach(session: str, **options: Any) -> Receiver:
    """As :func:`waypost.attach`, blocking."""
    return Receiver(entry.attach, (session,), options)


def produce(name: str, **options: Any) -> Producer:
    """As :func:`waypost.produce`, blocking."""
    return Producer(entry.produce, (name,), options)
