"""Two processes under one name: the one that has it keeps it, however often the other one comes."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from chaos.servers.process import Process

pytestmark = pytest.mark.alone

TIMEOUT_S = 20.0
FLAGS = {"no-discovery": ""}


def _until_ended(process: Process) -> str:
    process.wait_until(lambda: process.has_logged("error: "), timeout_s=TIMEOUT_S, what="refused")
    return process.log.read_text()


def test_a_second_process_with_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Cluster([ProxySpec("a", "A", FLAGS)], [], tmp_path) as cluster:
        second = ProxyProcess(ProxySpec("a", "A", FLAGS), (), tmp_path)
        second.process.log = tmp_path / "second.log"
        second.process.start()
        try:
            assert "NAME_TAKEN" in _until_ended(second.process)
            assert cluster.proxies["a"].ready()
        finally:
            second.stop()


@pytest.fixture
def flags(etcd: EtcdServer, kafka: KafkaServer, topic_prefix: str) -> dict[str, str]:
    return {**FLAGS, "etcd": etcd.endpoint, "kafka": kafka.bootstrap, "prefix": topic_prefix.rstrip(".-")}


@pytest.fixture
def started(tmp_path: Path, flags: dict[str, str]) -> Iterator[Callable[..., ProxyProcess]]:
    """Start a process as proxy a, with a folder of its own below the test's."""
    processes: list[ProxyProcess] = []

    def start(folder: str, *, is_ready: bool = True, **more: str) -> ProxyProcess:
        (tmp_path / folder).mkdir(exist_ok=True)
        process = ProxyProcess(ProxySpec("a", "A", {**flags, **more}), (), tmp_path / folder)
        process.process.log = tmp_path / f"{folder}-{len(processes)}.log"
        processes.append(process)
        if is_ready:
            process.start()
        else:
            process.process.start()
        return process

    yield start
    for process in processes:
        process.stop()


def _undisturbed(process: ProxyProcess) -> bool:
    """Tell whether it is ready, and has been all the time."""
    return process.ready() and "lease" not in process.process.log.read_text()


def test_a_second_process_with_another_folder_waits_a_lease_and_is_refused(
    started: Callable[..., ProxyProcess],
) -> None:
    first = started("first")
    second = started("second", is_ready=False)
    log = _until_ended(second.process)
    assert "NAME_TAKEN: name: another process runs as proxy a, at " in log
    assert _undisturbed(first)


def test_a_second_process_serves_when_the_first_one_has_died_for_good(started: Callable[..., ProxyProcess]) -> None:
    first = started("first")
    first.kill()
    assert started("second").ready()


def test_a_process_that_was_killed_has_its_name_back_at_once(
    started: Callable[..., ProxyProcess],
) -> None:
    first = started("first", **{"lease-ttl-ms": "60000"})
    first.kill()
    # Long before its lease has ended.
    assert started("first", **{"lease-ttl-ms": "60000"}).ready()


def test_of_two_live_copies_of_one_folder_the_second_is_refused(
    started: Callable[..., ProxyProcess], tmp_path: Path
) -> None:
    first = started("first")
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    assert "NAME_TAKEN" in _until_ended(started("copy", is_ready=False).process)
    assert _undisturbed(first)


def test_a_process_that_is_to_replace_another_one_does_so_at_once(started: Callable[..., ProxyProcess]) -> None:
    first = started("first", **{"lease-ttl-ms": "60000"})
    second = started("second", replace="")
    assert "NAME_TAKEN: name: another process took the name of proxy a, at " in _until_ended(first.process)
    assert second.ready()


def test_two_supervisors_do_not_make_the_name_go_to_and_fro(started: Callable[..., ProxyProcess]) -> None:
    """Both start their process again whenever it ends; the one that has the name is killed now and then."""
    # Longer than a process takes to start again: else the other one may rightly take a name that nobody renews.
    lease = {"lease-ttl-ms": "8000"}
    first = started("first", **lease)
    second = started("second", is_ready=False, **lease)
    for _ in range(2):
        _until_ended(second.process)
        assert _undisturbed(first)
        second = started("second", is_ready=False, **lease)
        first.kill()
        first = started("first", **lease)
    assert not second.ready()
