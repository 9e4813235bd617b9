"""An installed wheel, far from the repository, audits a run on Kafka: what it needs for that comes by itself.

A user's own `spark.py` in the current folder concerns neither the audit nor Spark's Python workers.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import waypost
from chaos.cluster import ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from spark import connector
from tests.helpers.installed_wheel import Installation, install, run, write_modules_of_a_user
from waypost.errors import BadConfiguration, Unreachable


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("installed"))


def _audit(
    installed: Installation, kafka: KafkaServer, cache: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run an audit in a folder that has modules of the rooms' names, where Python looks first."""
    folder = cache.parent
    write_modules_of_a_user(folder)
    words = ("audit", f"kafka://A={kafka.bootstrap}/wheel", "--json")
    found_first = {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(cache)}
    return run(installed.waypost, *words, cwd=folder, **found_first, **variables)


async def test_an_installed_wheel_audits_a_run_on_kafka(
    installed: Installation, kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = {"etcd": etcd.endpoint, "kafka": kafka.bootstrap, "prefix": "wheel", "no-discovery": ""}
    proxy = ProxyProcess(ProxySpec("a", "A", flags), (), tmp_path / "run")
    try:
        proxy.start()
        async with waypost.attach("s/1", proxy=proxy.url) as session, waypost.produce("p", proxy=proxy.url) as producer:
            await session.subscribe("a == 1")
            await producer.publish({"a": 1})
            assert (await anext(session))["a"] == 1
    finally:
        proxy.stop()
    cache = tmp_path / "cache"
    done = _audit(installed, kafka, cache)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["verdict"] == "ok"
    assert done.stderr.splitlines()[0] == f"fetching Spark's Kafka connector into {cache}/waypost/spark-jars"
    assert "Traceback" not in done.stderr and done.stderr.splitlines()[-1].startswith("looking for anomalies in ")
    # Nothing is left beside the jars.
    assert [path.name for path in (cache / "waypost").iterdir()] == ["spark-jars"]


def test_without_maven_the_audit_says_so_in_one_line(
    installed: Installation, kafka: KafkaServer, tmp_path: Path
) -> None:
    done = _audit(installed, kafka, tmp_path / "cache", PATH=str(installed.waypost.parent))
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["message"].endswith("there is no Maven to fetch it")


# ---------------------------------------------------------------- where it is looked for


def test_the_connector_is_looked_for_where_waypost_parts_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_PARTS", str(tmp_path))
    assert connector.jars() == []
    jar = tmp_path / "spark-jars" / "spark-sql-kafka-0-10_2.13-4.0.0.jar"
    jar.parent.mkdir()
    jar.touch()
    assert connector.jars() == [str(jar)] == connector.require(lambda line: pytest.fail(line))


@pytest.mark.parametrize(("script", "error"), [("exit 1", Unreachable), ("", BadConfiguration)])
def test_a_connector_that_cannot_be_fetched_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, error: type[Exception]
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    if script:
        (tools / "mvn").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools))
    monkeypatch.setenv("WAYPOST_PARTS", str(tmp_path / "parts"))
    with pytest.raises(error):
        connector.require(lambda line: None)
    assert list((tmp_path / "parts").glob("*")) == []
