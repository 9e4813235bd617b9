"""An installed wheel, far from the repository, audits a run on Kafka: what it needs for that comes by itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Place, ProxyProcess
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from spark import connector
from waypost.errors import BadConfiguration, Unreachable

ROOT = Path(__file__).parents[2]
AUDIT_S = 300


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command `waypost` of a virtual environment with the wheel; its libraries are those of this one."""
    root = tmp_path_factory.mktemp("installed")
    _run(str(Path(sys.executable).with_name("uv")), "build", "--wheel", "--quiet", "--out-dir", str(root), str(ROOT))
    _run(sys.executable, "-m", "venv", "--without-pip", str(root / "venv"))
    (packages,) = (root / "venv").glob("lib/python3*/site-packages")
    (wheel,) = root.glob("*.whl")
    _run(sys.executable, "-m", "zipfile", "-e", str(wheel), str(packages))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    command = root / "venv/bin/waypost"
    command.write_text(f"#!{root}/venv/bin/python\nfrom node.cli.app import main\nmain()\n")
    command.chmod(0o755)
    return command


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=AUDIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _audit(command: Path, kafka: KafkaServer, cache: Path, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("WAYPOST_PARTS", "PYTHONPATH")}
    words = [str(command), "audit", f"kafka://A={kafka.bootstrap}/wheel", "--json"]
    variables = {**kept, "XDG_CACHE_HOME": str(cache), **env}
    return subprocess.run(
        words, cwd=cache.parent, env=variables, capture_output=True, text=True, timeout=AUDIT_S, check=False
    )


async def test_an_installed_wheel_audits_a_run_on_kafka(
    installed: Path, kafka: KafkaServer, etcd: EtcdServer, tmp_path: Path
) -> None:
    flags = {"etcd": etcd.endpoint, "kafka": kafka.bootstrap, "prefix": "wheel", "no-discovery": ""}
    proxy = ProxyProcess(Place("a", "A", flags), (), tmp_path / "run")
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
    assert done.stderr == f"fetching Spark's Kafka connector into {cache}/waypost/spark-jars\n"
    # Nothing is left beside the jars.
    assert [path.name for path in (cache / "waypost").iterdir()] == ["spark-jars"]


def test_without_maven_the_audit_says_so_in_one_line(installed: Path, kafka: KafkaServer, tmp_path: Path) -> None:
    done = _audit(installed, kafka, tmp_path / "cache", PATH=str(installed.parent))
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
