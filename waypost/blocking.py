"""The blocking facade: the same session, for code without an event loop.

    with waypost.blocking.attach("travellers/alice") as session:
        session.subscribe('origin == "JFK"')
        for notification in session:
            ...

One background thread runs one event loop per session; it ends with the session.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from waypost.client import attaching
from waypost.client import session as asynchronous
from waypost.client.received import Received
from waypost.client.receiving import ReceiverState
from waypost.errors import Unreachable
from waypost.identity import Coordinate, SubscriptionId
from waypost.keys import NO_KEYS, Keys
from waypost.messages import Granted
from waypost.notification import Value

_T = TypeVar("_T")
TOLD_S = 1.0
"""How long those who still wait for an answer have to hear that there is none."""


class SessionClosed(Unreachable):
    """Something was asked of a session after its end."""

    code = "SESSION_CLOSED"
    definite = True


class Session:
    """A session for blocking code. All methods may be called from any thread."""

    def __init__(self, make: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._ending = threading.Lock()
        """Held by who ends the session: the second one finds nothing left to do."""
        self._handing = threading.Lock()
        """Held while something is handed to the loop, and while the loop closes: what it took, it also does."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="waypost", daemon=True)
        self._thread.start()
        try:
            self._session: asynchronous.Session = self._call(_make(make, arguments, options))
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

    def __enter__(self) -> Session:
        try:
            self._call(self._session.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *problem: Any) -> None:
        with self._ending:
            if not self._loop.is_closed():
                try:
                    self._call(self._session.__aexit__(*problem))
                finally:
                    self._end()

    def __iter__(self) -> Iterator[Received]:
        while True:
            received = self.next()
            if received is None:
                return
            yield received

    def next(self, timeout_s: float | None = None) -> Received | None:
        """Return the next notification; None when the session was closed. Raises TimeoutError: none came so soon."""

        async def step() -> Received | None:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._session.__anext__()
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
        return self._call(
            self._session.subscribe(expression, id=id, ttl_s=ttl_s, max_count=max_count, keys=keys, insecure=insecure)
        )

    def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        self._call(self._session.set_keys(subscribing=subscribing, publishing=publishing))

    def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        self._call(self._session.quench(*names, keys=keys, insecure=insecure))

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        return self._session.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        return self._session.terms

    def unsubscribe(self, subscription: str) -> None:
        self._call(self._session.unsubscribe(subscription))

    def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        self._call(self._session.set_access(grants, password=password))

    def delete(self) -> None:
        """Delete the session, for all its receivers."""
        with self._ending:
            try:
                self._call(self._session.delete())
            finally:
                if not self._loop.is_closed():
                    self._end()

    def publish(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> Coordinate:
        return self._call(self._session.publish(notification, keys=keys, insecure=insecure))

    @property
    def state(self) -> ReceiverState:
        return self._session.state

    def acknowledge(self) -> None:
        self._call(_done(self._session.acknowledge))

    def close(self, *, forget: bool = False) -> None:
        with self._ending:
            if not self._loop.is_closed():
                try:
                    self._call(self._session.close(forget=forget))
                finally:
                    self._end()

    def _end(self) -> None:
        """End the thread, and tell whoever still waits for something."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        with self._handing:
            self._loop.run_until_complete(_everybody_told())
            self._loop.close()


async def _everybody_told() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    if others:
        _, late = await asyncio.wait(others, timeout=TOLD_S)
        for task in late:
            task.cancel()


async def _done(act: Callable[[], None]) -> None:
    act()


async def _make(make: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> asynchronous.Session:
    session: asynchronous.Session = make(*arguments, **options)
    return session


def attach(session: str, **options: Any) -> Session:
    """As :func:`waypost.attach`, blocking."""
    return Session(attaching.attach, (session,), options)


def produce(name: str, **options: Any) -> Session:
    """As :func:`waypost.produce`, blocking."""
    return Session(attaching.produce, (name,), options)
