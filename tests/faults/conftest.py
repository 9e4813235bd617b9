"""Three proxies at two sites, on Kafka and etcd, with a toxiproxy on the ways of each; once for a module that asks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from chaos.cluster import Cluster
from chaos.fronted import Fronted, fronted
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.toxiproxy import ToxiproxyServer

SITES = {"A": ("a1", "a2"), "B": ("b1",)}


@pytest.fixture(autouse=True)
def nothing_left_open() -> Iterator[None]:
    """What a test leaves open, such as a connection, is this test's fault and not that of one that comes later."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def proxies(
    request: pytest.FixtureRequest, kafka: KafkaServer, etcd: EtcdServer, toxiproxy: ToxiproxyServer
) -> Iterator[dict[str, Fronted]]:
    """The proxies' places, by name. The module says for how long their leases hold: `LEASE_MS`."""
    prefix, lease_ms = request.module.__name__.rpartition("test_")[2], request.module.LEASE_MS
    flags = {"no-discovery": "", "kafka": kafka.bootstrap, "prefix": prefix, "lease-ttl-ms": str(lease_ms)}
    ways = fronted(toxiproxy, SITES, etcd.endpoint, flags)
    yield ways
    for way in ways.values():
        way.remove()


@pytest.fixture(scope="module")
def cluster(proxies: dict[str, Fronted], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    places = [way.spec for way in proxies.values()]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("fronted")) as cluster:
        yield cluster


@pytest.fixture
def healed(cluster: Cluster, toxiproxy: ToxiproxyServer) -> Iterator[None]:
    """One test that fails leaves no fault to the next."""
    yield
    toxiproxy.client.reset()
    for proxy in cluster.proxies.values():
        proxy.process.resume()
        proxy.start()
