"""The baseline of `bench.delivery`: websockets, msgspec and SQLite, batched, without sessions, matching or handover.

A publish frame is a list of notifications; it is stored in one transaction, acknowledged, and sent to all listeners,
encoded once. It promises nothing else on purpose: the ratio to it is the cost of the promises.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

BATCH = 200
WINDOW = 20
FILL = "x" * 130


@contextmanager
def serving(path: Path) -> Iterator[str]:
    """Run the sketch in a process of its own for the length of the block; yield its address, ``ws://127.0.0.1:port``.

    Args:
        path: of the SQLite file, which must not exist yet.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, str(path)), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve(pipe: Connection, path: str) -> None:
    uvloop.run(_Sketch(path).run(pipe))


class _Sketch:
    def __init__(self, path: str) -> None:
        self._log = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._log.execute("PRAGMA journal_mode = WAL")
        self._log.execute("PRAGMA synchronous = FULL")
        self._log.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, body BLOB)")
        self._listeners: set[ServerConnection] = set()

    async def run(self, pipe: Connection) -> None:
        async with serve(self._client, "127.0.0.1", 0, compression=None, max_size=None) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            pipe.send(f"ws://127.0.0.1:{port}")
            await asyncio.Future()

    async def _client(self, socket: ServerConnection) -> None:
        async for frame in socket:
            if frame == b"listen":
                self._listeners.add(socket)
                await socket.send(b"ready")
            elif isinstance(frame, bytes) and frame != b"ack":
                await asyncio.to_thread(self._append, msgspec.msgpack.decode(frame))
                await socket.send(b"safe")
                for listener in self._listeners:
                    await listener.send(frame)
        self._listeners.discard(socket)

    def _append(self, bodies: list[bytes]) -> None:
        self._log.execute("BEGIN IMMEDIATE")
        self._log.executemany("INSERT INTO log (body) VALUES (?)", [(body,) for body in bodies])
        self._log.execute("COMMIT")


def publish(pipe: Connection, url: str, count: int, rate: int) -> None:
    """Publish to the sketch, as :func:`bench.delivery.publish` does to a proxy: send ("began", Unix time of the first)
    when all notifications are durable.

    Args:
        pipe: to the process that measures.
        url: of the sketch.
        count: notifications.
        rate: notifications a second; 0: as fast as possible, in batches.
    """
    uvloop.run(_publishing(pipe, url, count, rate))


async def _publishing(pipe: Connection, url: str, count: int, rate: int) -> None:
    window = asyncio.Semaphore(WINDOW)
    async with connect(url, compression=None) as socket:
        safe = asyncio.create_task(_release(socket, window))
        began, size = time.time(), 1 if rate else BATCH
        for first in range(0, count, size):
            if rate:
                await asyncio.sleep(max(0.0, began + first / rate - time.time()))
            await window.acquire()
            bodies = [_body(number) for number in range(first, min(count, first + size))]
            await socket.send(msgspec.msgpack.encode(bodies))
        for _ in range(WINDOW):
            await window.acquire()
        pipe.send(("began", began))
        safe.cancel()


async def _release(socket: Any, window: asyncio.Semaphore) -> None:
    async for _ in socket:
        window.release()


def _body(number: int) -> bytes:
    return msgspec.msgpack.encode({"n": number, "at": time.time(), "fill": FILL})


def receive(pipe: Connection, url: str, _: bool, count: int) -> None:
    """Receive from the sketch, as :func:`bench.delivery.receive` does from a proxy, with ten listeners: send ("ready",
    None), and ("done", (Unix time, deliveries, delays in ms)) when each has all.

    Args:
        pipe: to the process that measures.
        url: of the sketch.
        count: the notifications that each receives.
    """
    uvloop.run(_receiving(pipe, url, count))


async def _receiving(pipe: Connection, url: str, count: int) -> None:
    sockets = [await connect(url, compression=None, max_size=None) for _ in range(10)]
    for socket in sockets:
        await socket.send(b"listen")
        await socket.recv()
    pipe.send(("ready", None))
    delays = await asyncio.gather(*(_take(socket, count) for socket in sockets))
    pipe.send(("done", (time.time(), 10 * count, [delay for of_socket in delays for delay in of_socket])))
    for socket in sockets:
        await socket.close()


async def _take(socket: Any, count: int) -> list[float]:
    got, delays = 0, list[float]()
    while got < count:
        bodies = msgspec.msgpack.decode(await socket.recv())
        await socket.send(b"ack")
        got += len(bodies)
        delays.append((time.time() - msgspec.msgpack.decode(bodies[-1])["at"]) * 1000)
    return delays
