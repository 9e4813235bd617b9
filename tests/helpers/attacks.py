"""What one hostile client does to a proxy, alone in a process: `python -m tests.helpers.attacks NAME ws://HOST:PORT`.

None of them knows a secret or has a right that not everybody has. Each goes on until it is done or is ended; what the
proxy answers counts for nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

import msgspec
import websockets

from waypost.frames import encode_message
from waypost.identity import Origin, new_incarnation
from waypost.messages import VERSION, Attach, Hello, Publish, Subscribe
from waypost.notification import Notification

LARGE = 250_000
"""Characters of one attribute."""


class Hostile:
    """A connection that sends what it likes, in the order in which it likes. It reads only if told to."""

    def __init__(self, socket: websockets.ClientConnection) -> None:
        self._socket = socket
        self._reading: asyncio.Task[None] | None = None
        self._incarnation = new_incarnation()
        self._published = 0

    async def send(self, *messages: msgspec.Struct) -> None:
        for message in messages:
            await self._socket.send(encode_message(message))

    async def publish(self, **attributes: str | int) -> None:
        self._published += 1
        body = Notification(attributes).body
        await self.send(
            Publish(producer=f"hostile {os.getpid()}", secret=self._incarnation, first=self._published, bodies=[body])
        )

    async def publish_often(self, count: int, **attributes: str | int) -> None:
        """Publish the same so often, in one frame."""
        bodies = [Notification(attributes).body] * count
        await self.send(
            Publish(
                producer=f"hostile {os.getpid()}", secret=self._incarnation, first=self._published + 1, bodies=bodies
            )
        )
        self._published += count

    async def attach(self, session: str, receiver: str = "hostile") -> None:
        await self.send(
            Hello(VERSION, "hostile"),
            Attach(session=session, receiver=receiver, incarnation=self._incarnation, frontier={}),
        )
        # Until the session is there, it takes no subscription.
        await asyncio.sleep(1)

    async def begin(self, *, introduced: bool) -> None:
        """Say hello, or not: it proves nothing."""
        if introduced:
            await self.send(Hello(VERSION, "hostile"))
            await self._socket.recv()

    def read(self) -> None:
        """Read from now on, and forget it."""
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        with contextlib.suppress(websockets.ConnectionClosed):
            async for _ in self._socket:
                pass

    async def write(self, data: bytes) -> None:
        """Write bytes as they are, and wait until the kernel has most of them."""
        transport = self._socket.transport
        transport.write(data)
        while transport.get_write_buffer_size() > 1 << 20:
            if transport.is_closing():
                raise ConnectionError("closed")
            await asyncio.sleep(0.01)

    def abort(self) -> None:
        """Break the connection off, without a word; what was written may come all the same."""
        self._socket.transport.abort()

    def deaf(self) -> None:
        self._socket.transport.pause_reading()


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Hostile]:
    path = f"{url}/v1/client"
    async with websockets.connect(path, max_size=None, ping_interval=None, open_timeout=60, close_timeout=1) as socket:
        yield Hostile(socket)


def costly(number: int, size: int = 12_000) -> str:
    """Return an expression that looks for many texts in one attribute, of about so many bytes."""
    texts = [f'"{number:03d}{index:05d}"' for index in range(size // 12)]
    return f"contains(text, {', '.join(texts)})"


async def scanning(url: str) -> None:
    """51 subscriptions that search a whole text for a thousand others each, and one text of 250 KB."""
    async with connected(url) as hostile:
        hostile.read()
        await hostile.attach("scanning")
        for number in range(51):
            await hostile.send(Subscribe(subscription=f"s{number}", expression=costly(number)))
        await asyncio.sleep(10)
        for _ in range(3):
            await hostile.publish(text="x" * LARGE)
        await asyncio.sleep(20)


async def subscribing(url: str) -> None:
    """533 expressions of 14 KiB, one behind the other."""
    async with connected(url) as hostile:
        hostile.read()
        await hostile.attach("subscribing")
        for number in range(533):
            tests = " || ".join(f"a{number}x{index} == {index}" for index in range(14_000 // 19))
            await hostile.send(Subscribe(subscription=f"s{number}", expression=tests))
        await asyncio.sleep(20)


async def looking(url: str) -> None:
    """Alternatives that every one of many small notifications has to be compared with, a thousand to a frame."""
    async with connected(url) as hostile:
        hostile.read()
        await hostile.attach("looking")
        for number in range(16):
            tests = " || ".join(f"a + {index} == b + {index + number * 1_000}" for index in range(200))
            await hostile.send(Subscribe(subscription=f"s{number}", expression=tests))
        await asyncio.sleep(3)
        for _ in range(100):
            await hostile.publish_often(1_000, a=1, b=2)
        await asyncio.sleep(20)


async def many_subscriptions(url: str) -> None:
    """4,000 subscriptions of eight sessions."""
    async with asyncio.TaskGroup() as group:
        for session in range(8):
            group.create_task(_subscribe_often(url, session))


async def _subscribe_often(url: str, session: int) -> None:
    async with connected(url) as hostile:
        hostile.read()
        await hostile.attach(f"many{session}")
        for number in range(500):
            tests = " || ".join(f"a{session}x{number}x{index} == {index}" for index in range(14_000 // 22))
            await hostile.send(Subscribe(subscription=f"s{number}", expression=tests))
        await asyncio.sleep(30)


async def pinging(url: str, *, introduced: bool = False) -> None:
    """Pings whose answers are never read."""
    async with connected(url) as hostile:
        await hostile.begin(introduced=introduced)
        hostile.deaf()
        ping = struct.pack("!BBI", 0x89, 0x80 | 125, 0) + bytes(125)
        for _ in range(3_000):
            await hostile.write(ping * 1_000)


async def refused(url: str, *, introduced: bool = False) -> None:
    """Garbage, and requests that are refused, whose answers are never read."""
    async with connected(url) as hostile:
        await hostile.begin(introduced=introduced)
        hostile.deaf()
        frame = struct.pack("!BBI", 0x82, 0x80 | 5, 0) + b"\xc1\xc1\xc1\xc1\xc1"
        for _ in range(1_000):
            await hostile.write(frame * 1_000)


async def absent(url: str) -> None:
    """A receiver that went away, and notifications of 250 KB for it."""
    async with connected(url) as hostile:
        hostile.read()
        await hostile.attach("absent")
        await hostile.send(Subscribe(subscription="all", expression="require(absent)"))
        await asyncio.sleep(1)
    async with connected(url) as hostile:
        hostile.read()
        await hostile.send(Hello(VERSION, "hostile"))
        for _ in range(10_000):
            await hostile.publish(absent=1, text="x" * LARGE)


async def half_sent(url: str, *, introduced: bool = False) -> None:
    """60 frames of 32 MB of which the end never comes, before any hello."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(60):
            hostile = await stack.enter_async_context(connected(url))
            await hostile.begin(introduced=introduced)
            header = struct.pack("!BBQI", 0x82, 0x80 | 127, 32 << 20, 0)
            with contextlib.suppress(ConnectionError):
                await hostile.write(header + bytes(31 << 20))
        await asyncio.sleep(30)


async def fragments(url: str, *, introduced: bool = False) -> None:
    """Frames of one message that never ends, before any hello: no single one of them is large."""
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(60):
            hostile = await stack.enter_async_context(connected(url))
            await hostile.begin(introduced=introduced)
            piece = struct.pack("!BBHI", 0x00, 0x80 | 126, 60_000, 0) + bytes(60_000)
            with contextlib.suppress(ConnectionError):
                await hostile.write(b"\x02" + piece[1:])
                for _ in range(500):
                    await hostile.write(piece)
        await asyncio.sleep(30)


async def control_frames(url: str, *, introduced: bool = False) -> None:
    """A message of empty fragments without end on 40 connections, with pings between, and nothing is read."""
    ping, empty = struct.pack("!BBI", 0x89, 0x80 | 125, 0) + bytes(125), struct.pack("!BBI", 0x00, 0x80, 0)

    async def say() -> None:
        async with connected(url) as hostile:
            await hostile.begin(introduced=introduced)
            hostile.deaf()
            with contextlib.suppress(ConnectionError):
                await hostile.write(struct.pack("!BBI", 0x02, 0x80, 0))
                for _ in range(20_000):
                    await hostile.write((empty * 50 + ping) * 20)

    await asyncio.gather(*(say() for _ in range(40)))


async def registering(url: str) -> None:
    """Eight sessions that have a thousand receivers each, of long names, one after another."""

    async def register(session: str) -> None:
        async with connected(url) as hostile:
            hostile.read()
            await hostile.send(Hello(VERSION, "hostile"))
            for number in range(1_000):
                receiver = f"{number}".ljust(250, "z")
                await hostile.send(Attach(session=session, receiver=receiver, incarnation="i", frontier={}))

    await asyncio.gather(*(register(f"registering {number}") for number in range(8)))


async def pages(url: str) -> None:
    """Forty connections that request pages for operators in a row, and read no answer."""
    host, _, port = url.removeprefix("ws://").partition(":")

    async def request(page: str) -> None:
        for _ in range(100):
            _, writer = await asyncio.open_connection(host, int(port))
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            wanted = f"GET {page} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            with contextlib.suppress(ConnectionError, TimeoutError):
                for _ in range(2_000):
                    writer.write(wanted * 20)
                    await asyncio.wait_for(writer.drain(), 5)
            writer.close()

    names = ("/v1/openapi.json", "/metrics", "/v1/sessions", "/v1/status")
    await asyncio.gather(*(request(names[number % len(names)]) for number in range(40)))


async def wide(url: str) -> None:
    """Notifications of 600 attributes on 30 connections, as many in a frame as may be, and once more than that."""
    body = Notification({f"n{number}": number for number in range(600)}).body

    async def publish(name: str) -> None:
        async with connected(url) as hostile:
            hostile.read()
            await hostile.send(Hello(VERSION, "hostile"))
            for first in range(1, 80 * 10_000, 80):
                await hostile.send(
                    Publish(
                        producer=name,
                        secret=f"the secret of {name}",
                        first=first,
                        bodies=[body] * (1_000 if first == 1 else 80),
                    )
                )

    await asyncio.gather(*(publish(f"wide {number}") for number in range(30)))


async def deaf_crowd(url: str) -> None:
    """A hundred sessions, forty subscriptions each, with long names: all want what others publish, and nobody reads."""
    await asyncio.gather(*(_want_all(url, session) for session in range(100)))


async def _want_all(url: str, session: int) -> None:
    async with connected(url) as hostile:
        await hostile.attach(f"crowd {session}")
        for number in range(40):
            name = f"{'s' * 200}{number}"
            await hostile.send(Subscribe(subscription=name, expression=f"require(innocent) || y == {number}"))
        await asyncio.sleep(3_600)


async def staying(url: str) -> None:
    """200 connections that say one frame of 4 MB each, and stay: nothing of it is worth keeping."""
    body = Notification({f"n{number}": number for number in range(600)}).body

    async def say(name: str) -> None:
        async with connected(url) as hostile:
            hostile.read()
            await hostile.send(Hello(VERSION, "hostile"))
            await hostile.send(Publish(producer=name, secret=f"the secret of {name}", first=1, bodies=[body] * 1_000))
            await asyncio.sleep(60)

    await asyncio.gather(*(say(f"staying {number}") for number in range(200)))


async def coordinates(url: str) -> None:
    """Attaches that name two million coordinates one by one, on ten connections."""
    named = {Origin(f"A/{number}"): [2] * 2_400 for number in range(900)}

    async def attach(name: str) -> None:
        async with connected(url) as hostile:
            hostile.read()
            await hostile.send(Hello(VERSION, "hostile"))
            for _ in range(1_000):
                await hostile.send(
                    Attach(
                        session=name, receiver="hostile", incarnation=new_incarnation(), frontier={}, selective=named
                    )
                )

    await asyncio.gather(*(attach(f"coordinates {number}") for number in range(10)))


async def half_requested(url: str) -> None:
    """9,000 requests of 250 KB each of which the end does not come."""
    host, port = url.removeprefix("ws://").split(":")
    head = (
        f"POST /v1/sessions/delete HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {LARGE}\r\n\r\n"
    )
    writers = []
    for _ in range(9_000):
        with contextlib.suppress(ConnectionError):
            _, writer = await asyncio.open_connection(host, int(port))
            writers.append(writer)
            writer.write(head.encode() + b" " * (LARGE - 10))
            await asyncio.wait_for(writer.drain(), 5)
    await asyncio.sleep(30)


async def chunks(url: str) -> None:
    """Twenty connections with requests in chunks of one byte, of which the end does not come."""
    host, port = url.removeprefix("ws://").split(":")
    head = (
        f"POST /v1/sessions/access HTTP/1.1\r\nHost: {host}:{port}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    async def request() -> None:
        for _ in range(1_000):
            with contextlib.suppress(ConnectionError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(head.encode())
                while not writer.is_closing():
                    writer.write(b"1\r\n[\r\n" * 2_000)
                    await writer.drain()

    await asyncio.gather(*(request() for _ in range(20)))


async def reconnecting(url: str) -> None:
    """Twenty clients that connect, ask for 200 sessions, break the connection off, and begin again."""

    async def ask() -> None:
        for _ in range(1_000):
            with contextlib.suppress(websockets.WebSocketException, ConnectionError, TimeoutError):
                async with connected(url) as hostile:
                    await hostile.send(Hello(VERSION, "hostile"))
                    for number in range(200):
                        await hostile.send(
                            Attach(
                                session=f"reconnecting {number}",
                                receiver="hostile",
                                incarnation=new_incarnation(),
                                frontier={},
                            )
                        )
                    hostile.abort()

    await asyncio.gather(*(ask() for _ in range(20)))


ATTACKS: dict[str, Callable[[str], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        scanning,
        subscribing,
        looking,
        many_subscriptions,
        pinging,
        refused,
        absent,
        half_sent,
        fragments,
        control_frames,
        registering,
        pages,
        wide,
        deaf_crowd,
        staying,
        coordinates,
        half_requested,
        chunks,
        reconnecting,
    )
}


for _attack in (pinging, refused, half_sent, fragments, control_frames):
    ATTACKS[f"{_attack.__name__}_after_hello"] = partial(_attack, introduced=True)


async def _run(name: str, url: str) -> None:
    try:
        await ATTACKS[name](url)
    except (websockets.ConnectionClosed, ConnectionError, ExceptionGroup) as error:
        print(f"{name}: {error}", flush=True)


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], sys.argv[2]))
