"""A lease is renewed by a thread with an event loop and a connection of its own, which no client can starve.

A renewal says that this process lives and serves. So the thread looks at the heart of the node's loop, and renews
nothing when that has not beaten for HEARTBEAT_S seconds: then others may have our name and our sessions. The engine
checks at every delivery that the lease certainly holds.
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
    """The time of the last turn of the node's loop. Written by the loop, read by the thread."""

    def __init__(self) -> None:
        self._beat_s = time.monotonic()

    async def beat(self) -> None:
        """Beat for ever."""
        while True:
            self._beat_s = time.monotonic()
            await asyncio.sleep(HEARTBEAT_S / 20)

    @property
    def beats(self) -> bool:
        """Whether the loop had its turn within the last HEARTBEAT_S seconds."""
        return time.monotonic() - self._beat_s < HEARTBEAT_S


class LeaseRenewal:
    """Renews one lease, every third of its time to live; after a failure it tries again ten times as soon.

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
        """Renew the lease; return when it has ended.

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
        renewed_lease = registry.same_lease(lease)
        pause_s = regular_s = lease.ttl_ms / 3_000
        try:
            while not await asyncio.to_thread(stop.wait, pause_s):
                if not self._heart.beats:
                    continue
                began = self._clock.now_ms()
                try:
                    async with asyncio.timeout(lease.ttl_ms / 1000):
                        if not await renewed_lease.renew():
                            return
                except (WaypostError, TimeoutError) as error:
                    # Another member of the registry may answer while the lease lasts.
                    pause_s = regular_s / 10
                    tell(self._failed, error)
                else:
                    pause_s = regular_s
                    tell(self._on_renewed, began + lease.ttl_ms)
        finally:
            await registry.close()
