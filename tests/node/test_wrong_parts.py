"""A proxy at another registry, or at another log, than its site's: refused in one line, whatever else it is told."""

from __future__ import annotations

import time
from pathlib import Path

from chaos.cluster import Place, ProxyProcess
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer

FLAGS = {"no-discovery": "", "mixed-parts": ""}
PATIENCE_S = 30.0
REPORTED_S = 4.5
"""A proxy tells the registry every 2 s how far it has read."""


def _refused(first: ProxyProcess, second: ProxyProcess) -> str:
    """Return the line by which the second one ends, while the first one serves."""
    try:
        first.start()
        first.process.wait_until(
            lambda: first.ask("/v1/status")["position"] > 0, timeout_s=PATIENCE_S, what="reading its log"
        )
        time.sleep(REPORTED_S)
        second.process.start()
        second.process.wait_until(lambda: second.process.said("error: "), timeout_s=PATIENCE_S, what="refused")
        assert first.ready()
        (line,) = [line for line in second.process.log.read_text().splitlines() if line.startswith("error: ")]
        return line
    finally:
        first.stop()
        second.stop()


def test_a_proxy_with_the_sites_log_and_another_registry_is_refused(
    kafka: KafkaServer, tmp_path: Path, topic_prefix: str
) -> None:
    flags = {**FLAGS, "kafka": kafka.bootstrap, "prefix": topic_prefix.rstrip("-")}
    first = ProxyProcess(Place("a1", "A", flags), (), tmp_path / "first")
    second = ProxyProcess(Place("a2", "A", flags), (), tmp_path / "second")
    line = _refused(first, second)
    assert line.startswith("error: BAD_CONFIGURATION: log: the log of site A belongs to federation ")
    assert "and this registry to " in line


def test_a_proxy_with_the_federations_registry_and_another_log_is_refused(
    etcd: EtcdServer, tmp_path: Path, topic_prefix: str
) -> None:
    flags = {**FLAGS, "etcd": etcd.endpoint, "prefix": topic_prefix.rstrip("-")}
    first = ProxyProcess(Place("b1", "B", flags), (), tmp_path / "first")
    second = ProxyProcess(Place("b2", "B", flags), (), tmp_path / "second")
    line = _refused(first, second)
    assert line == "error: BAD_CONFIGURATION: log: the log of site B is another one than was read: it is empty"
