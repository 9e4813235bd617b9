"""An etcd that is restored from a copy that was made a while ago: what happened since, it does not know."""

from __future__ import annotations

import asyncio
import shutil

from chaos.servers.etcd import EtcdServer


class OlderRegistry:
    """Copies what an etcd has; later kills it, and starts it with the copy.

    Args:
        etcd: a cluster of one.
        down_s: how long it is away.
    """

    def __init__(self, etcd: EtcdServer, down_s: float) -> None:
        self._etcd = etcd
        self._down_s = down_s
        self._store = etcd.data / "store"
        self._copy = etcd.data / "copy"

    async def copy(self) -> None:
        """Copy etcd's store, for :meth:`inject`; etcd is killed for the copy to be whole, and ready again on return.

        Raises:
            FileExistsError: there is a copy already, and etcd stays down.
            Unreachable: etcd does not become ready.
        """
        await asyncio.to_thread(self._etcd.kill)
        await asyncio.to_thread(shutil.copytree, self._store, self._copy)
        await asyncio.to_thread(self._etcd.start)

    async def inject(self) -> None:
        """Kill etcd, put its store back to the copy, and wait for the `down_s` seconds of the constructor.

        Call :meth:`copy` before: without a copy the store is lost. Etcd stays down until :meth:`heal`.

        Raises:
            FileNotFoundError: there is no copy; the store is removed by then, and etcd is down.
        """
        await asyncio.to_thread(self._etcd.kill)
        await asyncio.to_thread(shutil.rmtree, self._store)
        await asyncio.to_thread(shutil.copytree, self._copy, self._store)
        await asyncio.sleep(self._down_s)

    async def heal(self) -> None:
        """Start etcd again; return once it is ready. Raises Unreachable: it does not become ready."""
        await asyncio.to_thread(self._etcd.start)
