"""A network that drops packets and says nothing: `unshare --net python -m tests.helpers.silent_network FOLDER SECONDS`.

It starts an etcd in a network of its own, lets that swallow every packet for so many seconds, and prints after how many
seconds a registry that has a connection answers again.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from chaos.servers.etcd import EtcdServer
from federation.etcd import EtcdRegistry
from waypost.errors import RegistryUnavailable
from waypost.identity import SessionId

SWALLOW = ("root", "blackhole")
"""A queue that drops every packet."""
POLL_S = 0.1


def network(*arguments: str) -> None:
    subprocess.run(arguments, check=True)


async def answers_again_after_s(registry: EtcdRegistry, break_s: float) -> float:
    """Return the seconds from the end of a break until the registry answers; it is asked all the time."""
    ended: float | None = None
    network("tc", "qdisc", "add", "dev", "lo", *SWALLOW)
    began = time.monotonic()
    while True:
        if ended is None and time.monotonic() >= began + break_s:
            network("tc", "qdisc", "del", "dev", "lo", "root")
            ended = time.monotonic()
        with suppress(RegistryUnavailable):
            await registry.owner(SessionId("s"))
            if ended is not None:
                return time.monotonic() - ended
        await asyncio.sleep(POLL_S)


async def main(folder: Path, break_s: float) -> None:
    network("ip", "link", "set", "lo", "up")
    server = EtcdServer(folder)
    server.start()
    try:
        registry = EtcdRegistry(server.endpoint, "w")
        await registry.start()
        await registry.owner(SessionId("s"))
        print(await answers_again_after_s(registry, break_s))
        await registry.close()
    finally:
        server.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2])))
