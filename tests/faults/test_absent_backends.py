"""A proxy that is started before its Kafka and its etcd says so within 5 s, and serves when they come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from chaos.cluster import ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from waypost.errors import Unreachable

SAY_SO_S = 15.0
"""5 s are promised; the interpreter takes its time on a busy machine."""
SERVE_S = 20.0


async def _until(true: Callable[[], bool], within_s: float) -> float:
    began = time.monotonic()
    while not await asyncio.to_thread(true):
        assert time.monotonic() < began + within_s, f"not within {within_s:g} s"
        await asyncio.sleep(0.05)
    return time.monotonic() - began


async def test_a_proxy_names_what_is_missing_and_serves_when_it_comes(tmp_path: Path) -> None:
    kafka, etcd = KafkaServer(tmp_path / "kafka"), EtcdServer(tmp_path / "etcd")
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "etcd": etcd.endpoint}
    proxy = ProxyProcess(ProxySpec("a1", "A", flags), (), tmp_path)
    proxy.process.start()
    try:
        await _until(lambda: proxy.process.has_logged("dependency is not there"), SAY_SO_S)
        await _until(lambda: {"log", "registry"} == set(_health(proxy)), SAY_SO_S)
        await asyncio.to_thread(kafka.start)
        await _until(lambda: {"registry"} == set(_health(proxy)), SERVE_S)
        await asyncio.to_thread(etcd.start)
        await _until(proxy.ready, SERVE_S)
        assert _health(proxy) == {}
    finally:
        for part in (proxy, etcd, kafka):
            await asyncio.to_thread(part.stop)


async def test_a_proxy_names_a_host_that_nobody_knows(tmp_path: Path) -> None:
    flags = {"no-discovery": "", "mixed-backends": "", "kafka": "broker.invalid:9092"}
    proxy = ProxyProcess(ProxySpec("a1", "A", flags), (), tmp_path)
    proxy.process.start()
    try:
        await _until(lambda: "the host broker.invalid has no address" in _health(proxy).get("log", ""), SAY_SO_S)
    finally:
        await asyncio.to_thread(proxy.stop)


def _health(proxy: ProxyProcess) -> dict[str, str]:
    """What /readyz answers while it is not ready is a 503, so the status says it."""
    try:
        return dict(proxy.request("/v1/status")["troubles"])
    except Unreachable:
        return {}
