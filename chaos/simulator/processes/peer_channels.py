"""Connections between proxies as the node makes them: introduced, sealed, in order (node/peers/peers.py).

Only scenarios use them. Everywhere else messages of a handover get lost, come twice and overtake each other as on no
connection. Introduction, seal and codec are the node's own; time and the bytes under way are the world's.

Lost with a connection are the frames on it, and those that are sent before its caller notices its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.environment.environment import Environment, Process
from node.peers.peers import PeerHello, decode_introduction, decode_peer_message, encode_introduction
from node.security.seal import NONCE_BYTES, Introduction, Opener, Sealer
from proxy.core.inputs import PeerSent
from proxy.core.refusals import NOBODY_PROVEN
from waypost.errors import Refused

if TYPE_CHECKING:
    from proxy.engine import Engine

SECRET = b"what only proxies of this federation know"
GREETINGS = 3
"""The number of messages of an introduction, each of which takes the channel's time before the first frame."""


class PeerChannel:
    """The channel from one proxy to another.

    Attributes:
        ms: the time that every frame is under way.
        damages: of so many frames, the last has a byte changed on its way; 0: none.
        breaks: of so many frames, the last breaks the connection in its middle; 0: none.
        frames: the number of frames sent so far.
    """

    def __init__(self, world: Environment, near: Process, far: Process) -> None:
        self.world = world
        self.near = near
        self.far = far
        self.ms = 1
        self.damages = self.breaks = 0
        self.frames = 0
        self._connection: Connection | None = None
        self._introductions = 0

    def heal(self) -> None:
        """End all faults of the channel, and let every frame be under way for 1 ms."""
        self.ms, self.damages, self.breaks = 1, 0, 0

    def carry(self, data: bytes) -> None:
        """Send an encoded handover message to the far process, over a new connection if there is none.

        The message is lost if one of the processes is down, the introduction is refused, or the connection breaks
        before.
        """
        if self._connection is None or self._connection.is_over():
            self._connection = self._introduced()
        if self._connection is not None:
            self._connection.carry(data)

    def _introduced(self) -> Connection | None:
        """Return a connection, once both sides have proven who they are; None: they have not."""
        caller_engine, callee_engine = self.near.engine, self.far.engine
        if caller_engine is None or callee_engine is None:
            return None
        self._introductions += 1
        challenge, nonce = (number.to_bytes(NONCE_BYTES) for number in (self._introductions, 1 << 64))
        incarnation, callee = caller_engine.env.lease.incarnation, self.far.proxy
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
        return Connection(self, callee_engine, Sealer(caller.frame_key(SECRET)), Opener(introduction.frame_key(SECRET)))


class Connection:
    """One connection of a channel: from one process of the caller to one of the callee."""

    def __init__(self, channel: PeerChannel, far: Engine, sealer: Sealer, opener: Opener) -> None:
        self._channel = channel
        self._engines = (channel.near.engine, far)
        self._sealer = sealer
        self._opener = opener
        self._due = channel.world.clock.time_ms + (GREETINGS + 1) * channel.ms
        self._ended: int | None = None
        """The time at which it ended; its caller notices that after the channel's time."""

    def is_over(self) -> bool:
        """Tell whether the caller has noticed the end of the connection, or one of the two processes has ended."""
        channel = self._channel
        is_noticed = self._ended is not None and channel.world.clock.time_ms >= self._ended + channel.ms
        return is_noticed or self._engines != (channel.near.engine, channel.far.engine)

    def carry(self, data: bytes) -> None:
        """Seal an encoded handover message and send it, to arrive behind all earlier ones.

        By the faults of the channel the frame is damaged, which the far proxy refuses, or breaks the connection.
        Nothing arrives on a connection that has ended.
        """
        channel, clock = self._channel, self._channel.world.clock
        channel.frames += 1
        breaks = bool(channel.breaks) and channel.frames % channel.breaks == 0
        frame = self._sealer.seal(data)
        if channel.damages and channel.frames % channel.damages == 0:
            frame = _changed(frame, channel.frames)
        self._due = max(self._due, clock.time_ms + channel.ms)
        channel.world.later(self._due - clock.time_ms, lambda: self._arrive(frame, breaks=breaks))

    def _arrive(self, frame: bytes, *, breaks: bool) -> None:
        channel = self._channel
        if self._ended is not None or channel.far.engine is not self._engines[1]:
            return
        if breaks:
            channel.world.note(
                f"  the connection {channel.near.proxy} -> {channel.far.proxy} breaks in the middle of it", narrate=True
            )
            self._end()
            return
        try:
            message = decode_peer_message(self._opener.open(frame))
        except Refused as error:
            channel.far.refuse(channel.near.proxy, error, f"what {channel.near.proxy} says")
            self._end()
            return
        channel.far.step(PeerSent(channel.near.proxy, message))  # type: ignore[arg-type]

    def _end(self) -> None:
        self._ended = self._channel.world.clock.time_ms


def _changed(frame: bytes, number: int) -> bytes:
    """Return the frame with one byte changed, each time another one."""
    index = 7_919 * number % len(frame)
    return frame[:index] + bytes([frame[index] ^ 1]) + frame[index + 1 :]
