"""The audit on a cluster: a standalone master, and two workers on hosts of their own; one is killed in the middle."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest

from chaos.servers.namespaces import Host, Lan, can_make_hosts
from chaos.servers.process import Process
from tests.spark.runs import Run

BIN = Path(pyspark.__file__).parent / "bin"
PORT = 7077
START_S = 120
AUDIT_S = 600


@dataclass(frozen=True)
class SparkCluster:
    """A standalone cluster, with the driver on the master's host."""

    master: Host
    url: str
    workers: tuple[Process, Process]
    settings: Path


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    with ExitStack() as stack:
        lan = stack.enter_context(Lan(3))
        settings = tmp_path / "conf"
        settings.mkdir()
        driver = lan.hosts[0]
        lines = {"spark.driver.host": driver.ipv4, "spark.executor.memory": "768m", "spark.ui.enabled": "false"}
        (settings / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))

        def start(host: Host, name: str, *words: str) -> Process:
            command = [str(BIN / "spark-class"), f"org.apache.spark.deploy.{name.lower()}.{name}", "--host", host.ipv4]
            environment = {"SPARK_LOCAL_IP": host.ipv4, "SPARK_CONF_DIR": str(settings)}
            log = tmp_path / f"{host.name}.log"
            process = Process(name, host.command(*command, "--webui-port", "0", *words), log=log, env=environment)
            return stack.enter_context(process)

        master = start(driver, "Master", "--port", str(PORT))
        master.wait_until(lambda: master.has_logged("I have been elected leader"), timeout_s=START_S)
        url = f"spark://{driver.ipv4}:{PORT}"
        one, other = (
            start(host, "Worker", "--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / host.name), url)
            for host in lan.hosts[1:]
        )
        for worker in (one, other):
            worker.wait_until(lambda: worker.has_logged("Successfully registered"), timeout_s=START_S)  # noqa: B023
        yield SparkCluster(driver, url, (one, other), settings)


def run_with_a_repeat() -> Run:
    """Ten sessions that have all, one of them one notification twice."""
    run = Run()
    sent = [run.publish("A", topic="x", n=n) for n in range(20)]
    for number in range(10):
        session = f"s{number}"
        run.subscribe(session, "topic == 'x'", {"A/0": -1})
        run.receive(session, *sent)
        if number == 7:
            run.receive(session, sent[3])
        run.drain(session, {"A/0": 10_000})
    run.end()
    return run


@pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root")
def test_audit_ends_well_though_a_worker_is_killed(cluster: SparkCluster, tmp_path: Path) -> None:
    run = run_with_a_repeat()
    waypost = Path(sys.executable).with_name("waypost")
    command = [str(waypost), "audit", str(run.write(tmp_path / "run")), "--master", cluster.url]
    report = tmp_path / "report"
    environment = {"SPARK_LOCAL_IP": cluster.master.ipv4, "SPARK_CONF_DIR": str(cluster.settings)}
    audit = Process(
        "audit", cluster.master.command(*command, "--report", str(report)), log=tmp_path / "audit.log", env=environment
    )
    with audit:
        audit.wait_until(lambda: audit.has_logged("looking for anomalies"), timeout_s=AUDIT_S)
        cluster.workers[0].kill()
        audit.wait_until(lambda: not audit.running, timeout_s=AUDIT_S, what="at its end")
    found = json.loads((report / "audit.json").read_text())["findings"]
    assert [(finding["code"], finding["session"], finding["offset"]) for finding in found] == [("D1", "s7", 3)]
