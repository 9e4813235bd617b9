"""Whatever a client sends, led by coverage of the proxy's code: it is taken or refused by name, and costs nobody else.

``python -m tests.fuzzing.dispatcher -runs=100000``, or with any other option of libFuzzer. An input is frames of one
client, each behind its length; beside it another client publishes, and is answered.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import atheris

from proxy.core.inputs import ClientConnected, ClientSent

with atheris.instrument_imports(include=["waypost", "proxy", "handover", "federation", "matching"]):
    import msgspec

    from proxy.queue_lengths import of_engine
    from tests.helpers.engine_harness import EngineHarness
    from tests.properties.test_frames import FROM_CLIENT
    from waypost.errors import BadMessage, LimitExceeded
    from waypost.frames import decode_client_message
    from waypost.messages import VERSION, Acknowledged, Hello, Publish
    from waypost.notification import Notification

STRANGER, OTHER = 7, 8
"""Connections: of whoever sends anything, and of a producer who does nothing wrong."""
LONGEST = 4_096
"""Bytes of one input."""


def frames_of(data: bytes) -> Iterator[bytes]:
    """Cut an input into frames: two bytes of length, and so many bytes."""
    position = 0
    while position + 2 <= len(data):
        length = int.from_bytes(data[position : position + 2], "big")
        yield data[position + 2 : position + 2 + length]
        position += 2 + length


def input_of(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(2, "big") + frame for frame in frames)


def look_at(data: bytes) -> None:
    """Let a proxy have these frames. Raises what it must not raise, or AssertionError."""
    harness = EngineHarness()
    harness.serve()
    harness.step(ClientConnected(STRANGER))
    for frame in frames_of(data):
        try:
            message = decode_client_message(frame)
        except (BadMessage, LimitExceeded):
            continue
        harness.step(ClientSent(STRANGER, message))
        harness.run_effects()
        harness.complete_writes()
    harness.read_log()
    harness.pass_time(1_100)
    harness.send(OTHER, Publish(producer="other", secret="life", first=0, bodies=[Notification({"n": 1}).body]))
    harness.read_log()
    harness.complete_writes()
    assert any(isinstance(message, Acknowledged) for message in harness.received(OTHER)), (
        "the other one was not answered"
    )
    assert all(waiting <= most for _, waiting, most in of_engine(harness.engine)), "something grows"


def seeds() -> Iterator[bytes]:
    """Yield inputs to begin with: every message of a client, behind a greeting, alone and all together."""
    hello = msgspec.msgpack.encode(Hello(VERSION, "stranger"))
    whole = [msgspec.msgpack.encode(message) for message in FROM_CLIENT]
    for frame in whole:
        yield input_of(hello, frame)
    attach = next(
        frame for frame, message in zip(whole, FROM_CLIENT, strict=True) if type(message).__name__ == "Attach"
    )
    yield input_of(hello, attach, *whole)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number, seed in enumerate(seeds()):
            Path(folder, str(number)).write_bytes(seed)
        atheris.Setup([*sys.argv, f"-max_len={LONGEST}", "-timeout=20", "-rss_limit_mb=2048", folder], look_at)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
