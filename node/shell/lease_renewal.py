"""A lease is renewed by a thread with an event loop and a connection of its own, which no client can starve.

A renewal says that this process lives and serves. So the thread looks at the heart of the node's loop, and renews
nothing when that has not beaten for HEARTBEAT_S seconds: then others may have our name and our sessions. The engine
checks at every delivery that the lease certainly holds.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from federation.ports import Lease, LeaseRenewer
from node.machines.lease_keeper import LeaseKeeper
from waypost.clock import Clock
from waypost.errors import WaypostError
from waypost.limits import HEARTBEAT_S


class Heart:
    """The time of the last turn of the node's loop. Written by the loop, read by the thread."""

    def __init__(self) -> None:
        self._beat_s = time.monotonic()

    async def beat(self) -> None:
        """Note the time at each turn of the event loop, for ever; to be run as a task of the node's loop."""
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S / 20)

    @property
    def beats(self) -> bool:
        """Whether the loop had its turn within the last HEARTBEAT_S seconds."""
        return time.monotonic() - self._beat_s < HEARTBEAT_S


class Renewals:
    """The renewal of a lease and the clock, joined to the machine that says when it is due
    (`node/machines/lease_keeper.py`).

    Args:
        renew: renews the lease once, as :meth:`federation.ports.Lease.renew` does.
        ttl_ms: of the lease, in ms.
        clock: by which a lease holds.
    """

    def __init__(self, renew: Callable[[], Awaitable[bool]], ttl_ms: int, clock: Clock) -> None:
        self._renew = renew
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._keeper = LeaseKeeper(ttl_ms, clock.now_ms())

    def pause_s(self) -> float:
        """Return how long to wait for the next renewal, in seconds."""
        return max(0, self._keeper.next_deadline() - self._clock.now_ms()) / 1000

    def postpone(self) -> None:
        """Renew nothing this time; :meth:`pause_s` is then a third of the lease's time to live."""
        self._keeper.postponed(self._clock.now_ms())

    async def renew(self) -> int | None:
        """Renew the lease; return until when it holds, in ms of the clock, or None: the lease has ended for good.

        Raises:
            TimeoutError, WaypostError: the registry did not answer; try again after :meth:`pause_s`.
        """
        began = self._clock.now_ms()
        try:
            async with asyncio.timeout(self._ttl_ms / 1000):
                is_held = await self._renew()
        except (WaypostError, TimeoutError):
            self._keeper.failed(self._clock.now_ms())
            raise
        return self._keeper.renewed(began) if is_held else None


class LeaseRenewal:
    """Renews one lease until it has ended.

    Args:
        connect: returns a connection to the registry, to be used and closed in the thread.
        clock: the one by which `on_renewed` counts.
        heart: of the node's loop.
        on_renewed: called on the node's loop with the time until which the lease holds, in ms of `clock`.
        failed: called on the node's loop with the error of a renewal.
    """

    def __init__(
        self,
        connect: Callable[[], LeaseRenewer],
        clock: Clock,
        heart: Heart,
        on_renewed: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._heart = heart
        self._on_renewed = on_renewed
        self._failed = failed

    async def keep(self, lease: Lease) -> None:
        """Renew the lease in a thread of its own, again and again; return when the lease has ended for good.

        When this call is cancelled, the thread ends too; the lease is not given back.

        Raises:
            Exception: the connection could not be made, or a renewal failed by a fault that no port documents.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stop = threading.Event()

        def tell(callback: Callable[..., Any], *arguments: Any) -> None:
            with suppress(RuntimeError):  # the node's loop has ended before this thread
                loop.call_soon_threadsafe(callback, *arguments)

        def finish(error: Exception | None) -> None:
            if not ended.done():
                ended.set_result(None) if error is None else ended.set_exception(error)

        def run() -> None:
            try:
                asyncio.run(self._run(lease, stop, tell))
            except Exception as error:
                tell(finish, error)
            else:
                tell(finish, None)

        thread = threading.Thread(target=run, name="lease", daemon=True)
        thread.start()
        try:
            await ended
        finally:
            stop.set()
            await asyncio.to_thread(thread.join, lease.ttl_ms / 1000)

    async def _run(self, lease: Lease, stop: threading.Event, tell: Callable[..., None]) -> None:
        registry = self._connect()
        renewals = Renewals(partial(registry.renew, lease), lease.ttl_ms, self._clock)
        try:
            while not await asyncio.to_thread(stop.wait, renewals.pause_s()):
                if not self._heart.beats:
                    renewals.postpone()
                    continue
                try:
                    until_ms = await renewals.renew()
                except (WaypostError, TimeoutError) as error:
                    tell(self._failed, error)
                else:
                    if until_ms is None:
                        return
                    tell(self._on_renewed, until_ms)
        finally:
            await registry.close()
