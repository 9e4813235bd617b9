"""What proxies say to each other over connections as the node makes them: introduced, sealed, in order (node/peers.py).

Only scenarios ask for them. Everywhere else messages of a handover get lost, come twice and overtake each other as on
no connection. Introduction, seal and codec are the node's own; time and the bytes on their way are the world's.

What is lost with a connection: what is on it, and what is said before its caller hears of its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from node.peers import PeerHello, decode_introduction, decode_peer_message, encode_introduction
from node.seal import NONCE_BYTES, Introduction, Opener, Sealer
from proxy.core.refusals import NOBODY_PROVEN
from waypost.errors import Refused

if TYPE_CHECKING:
    from chaos.simulator.node import Node
    from chaos.simulator.world import World
    from proxy.engine import Engine

SECRET = b"what only proxies of this federation know"
GREETINGS = 3
"""So often an introduction crosses the way before the first frame does."""


class PeerChannel:
    """From one proxy to another.

    `ms`: so long everything is under way. Of the frames every so many, `damages`, has a byte changed on its way, and in
    the middle of every so many, `breaks`, the connection breaks; 0: none.
    """

    def __init__(self, world: World, near: Node, far: Node) -> None:
        self.world = world
        self.near = near
        self.far = far
        self.ms = 1
        self.damages = self.breaks = 0
        self.frames = 0
        self._connection: Connection | None = None
        self._introductions = 0

    def heal(self) -> None:
        self.ms, self.damages, self.breaks = 1, 0, 0

    def carry(self, data: bytes) -> None:
        """Send a message; it may be lost."""
        if self._connection is None or self._connection.is_over():
            self._connection = self._introduced()
        if self._connection is not None:
            self._connection.carry(data)

    def _introduced(self) -> Connection | None:
        """Prove to each other who both are; None: it came to nothing."""
        near, far = self.near.engine, self.far.engine
        if near is None or far is None:
            return None
        self._introductions += 1
        challenge, nonce = (number.to_bytes(NONCE_BYTES) for number in (self._introductions, 1 << 64))
        incarnation, callee = near.context.lease.incarnation, self.far.proxy
        caller = Introduction(
            challenge=challenge,
            nonce=nonce,
            version=self.near.version,
            caller=self.near.proxy,
            incarnation=incarnation,
            callee=callee,
        )
        try:
            hello = decode_introduction(encode_introduction(PeerHello.of(caller, SECRET)))
            assert isinstance(hello, PeerHello)
            introduction = hello.proven(challenge, callee, SECRET, self.far.version)
        except Refused as error:
            self.far.refuse(NOBODY_PROVEN, error, f"what {self.near.proxy} says")
            return None
        return Connection(self, far, Sealer(caller.frame_key(SECRET)), Opener(introduction.frame_key(SECRET)))


class Connection:
    """One connection of a way: from one life of a process to one of the other."""

    def __init__(self, channel: PeerChannel, far: Engine, sealer: Sealer, opener: Opener) -> None:
        self._channel = channel
        self._engines = (channel.near.engine, far)
        self._sealer = sealer
        self._opener = opener
        self._due = channel.world.clock.time_ms + (GREETINGS + 1) * channel.ms
        self._ended: int | None = None
        """When it ended; its caller hears of that as late as of everything else."""

    def is_over(self) -> bool:
        way = self._channel
        is_noticed = self._ended is not None and way.world.clock.time_ms >= self._ended + way.ms
        return is_noticed or self._engines != (way.near.engine, way.far.engine)

    def carry(self, data: bytes) -> None:
        way, clock = self._channel, self._channel.world.clock
        way.frames += 1
        breaks = bool(way.breaks) and way.frames % way.breaks == 0
        frame = self._sealer.seal(data)
        if way.damages and way.frames % way.damages == 0:
            frame = _changed(frame, way.frames)
        self._due = max(self._due, clock.time_ms + way.ms)
        way.world.later(self._due - clock.time_ms, lambda: self._arrive(frame, breaks=breaks))

    def _arrive(self, frame: bytes, *, breaks: bool) -> None:
        way = self._channel
        if self._ended is not None or way.far.engine is not self._engines[1]:
            return
        if breaks:
            way.world.note(
                f"  the connection {way.near.proxy} -> {way.far.proxy} breaks in the middle of it", narrate=True
            )
            self._end()
            return
        try:
            message = decode_peer_message(self._opener.open(frame))
        except Refused as error:
            way.far.refuse(way.near.proxy, error, f"what {way.near.proxy} says")
            self._end()
            return
        way.far._in(lambda engine: engine.peer_message(way.near.proxy, message))  # type: ignore[arg-type]

    def _end(self) -> None:
        self._ended = self._channel.world.clock.time_ms


def _changed(frame: bytes, number: int) -> bytes:
    """Return the frame with one byte changed, each time another one."""
    place = 7_919 * number % len(frame)
    return frame[:place] + bytes([frame[place] ^ 1]) + frame[place + 1 :]
