"""Two processes under one name: the second one with the same folder is refused, the first of two with others ends."""

from __future__ import annotations

from pathlib import Path

from chaos.cluster import Cluster, Place, ProxyProcess
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import Process

PATIENCE_S = 20.0
FLAGS = {"no-discovery": ""}


def _until_ended(process: Process) -> str:
    process.wait_until(lambda: process.said("error: "), timeout_s=PATIENCE_S, what="refused")
    return process.log.read_text()


def test_a_second_process_with_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Cluster([Place("a", "A", FLAGS)], [], tmp_path) as cluster:
        second = ProxyProcess(Place("a", "A", FLAGS), (), tmp_path)
        second.process.log = tmp_path / "second.log"
        second.process.start()
        try:
            assert "NAME_TAKEN" in _until_ended(second.process)
            assert cluster.proxies["a"].ready()
        finally:
            second.stop()


def test_of_two_processes_with_one_name_the_later_one_stays(
    etcd: EtcdServer, kafka: KafkaServer, tmp_path: Path
) -> None:
    flags = {**FLAGS, "etcd": etcd.endpoint, "kafka": kafka.bootstrap, "prefix": "same-name"}
    first = ProxyProcess(Place("a", "A", flags), (), tmp_path / "first")
    second = ProxyProcess(Place("a", "A", flags), (), tmp_path / "second")
    try:
        first.start()
        second.start()
        assert "NAME_TAKEN" in _until_ended(first.process)
        assert second.ready()
    finally:
        first.stop()
        second.stop()
