"""A lease is renewed by a thread with an event loop and a connection of its own, which no client can starve.

It says no more than the truth: that this process lives and serves. So it looks at the heart of the node's loop, and
renews nothing when that has not beaten for too long: then others may have our name and our sessions. That nothing is
delivered without a lease that certainly holds, the engine sees to at every delivery.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from federation.ports import Lease, LeaseRenewer
from waypost.clock import Clock
from waypost.errors import WaypostError
from waypost.limits import HEARTBEAT_S


class Heart:
    """When the node's loop had its turn last. Written by the loop, read by the thread."""

    def __init__(self) -> None:
        self._beat_s = time.monotonic()

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S / 20)

    @property
    def beats(self) -> bool:
        return time.monotonic() - self._beat_s < HEARTBEAT_S


class LeaseRenewal:
    """Keeps one lease.

    Args:
        connect: returns a connection to the registry, to be used and closed in the thread.
        renewed: told on the node's loop until when the lease holds, by our clock.
        failed: told there of an error; it goes on.
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
        """Return when the lease has ended. What no port says, as a fault of ours, is raised and ends the node."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        stop = threading.Event()

        def tell(what: Callable[..., Any], *said: Any) -> None:
            with suppress(RuntimeError):  # the node's loop has ended before this thread
                loop.call_soon_threadsafe(what, *said)

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
        mine, pause_s = registry.same_lease(lease), lease.ttl_ms / 3000
        try:
            while not await asyncio.to_thread(stop.wait, pause_s):
                if not self._heart.beats:
                    continue
                began = self._clock.now_ms()
                try:
                    async with asyncio.timeout(lease.ttl_ms / 1000):
                        if not await mine.renew():
                            return
                except (WaypostError, TimeoutError) as error:
                    tell(self._failed, error)
                else:
                    tell(self._on_renewed, began + lease.ttl_ms)
        finally:
            await registry.close()
