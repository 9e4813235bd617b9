"""A site log that is killed, or stands still: every proxy says so and is not ready within 5 s, idle or busy."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from tests.helpers.polling import until_seen
from waypost.errors import WaypostError

PROMISED_S = 5.0
LATE_S = 2.0
"""What a busy machine adds."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server


@pytest.fixture(scope="module")
def proxy(broker: KafkaServer, etcd: EtcdServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    flags = {"no-discovery": "", "kafka": broker.bootstrap, "etcd": etcd.endpoint, "prefix": "dead-log"}
    with Cluster([ProxySpec("a1", "A", flags)], [], tmp_path_factory.mktemp("proxy")) as cluster:
        yield cluster.proxies["a1"]


@contextlib.asynccontextmanager
async def publishing(proxy: ProxyProcess) -> AsyncIterator[None]:
    async def publish() -> None:
        async with waypost.produce("busy", proxy=proxy.url) as producer:
            while True:
                await producer.publish({"n": 1})

    first = asyncio.create_task(publish())
    try:
        yield
    finally:
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError, WaypostError):
            await first


@pytest.mark.parametrize("fault", ["killed", "paused"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_proxy_without_its_log_is_not_ready(
    fault: str, busy: bool, broker: KafkaServer, proxy: ProxyProcess
) -> None:
    await until_seen(proxy.ready, "the proxy is ready")
    async with publishing(proxy) if busy else contextlib.nullcontext():
        if busy:
            begins = proxy.request("/v1/status")["position"]
            await until_seen(lambda: proxy.request("/v1/status")["position"] > begins + 50, "it is busy")
        began = time.monotonic()
        await asyncio.to_thread(broker.kill if fault == "killed" else broker.pause)
        try:
            await until_seen(lambda: not proxy.request("/v1/status")["ready"], "it is not ready", PROMISED_S + LATE_S)
            took_s = time.monotonic() - began
            # A proxy that is busy notices it first by its appends, or its journal.
            await until_seen(
                lambda: "log" in proxy.request("/v1/status")["troubles"], "the log is a trouble", PROMISED_S
            )
            assert proxy.request("/v1/status")["why_not"] == "the log of its site does not answer"
        finally:
            await asyncio.to_thread(broker.start if fault == "killed" else broker.resume)
        await until_seen(proxy.ready, "it is ready again")
    print(f"{fault}, {'busy' if busy else 'idle'}: not ready after {took_s:.1f} s")
