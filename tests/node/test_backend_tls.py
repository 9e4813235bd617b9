"""Kafka and etcd over TLS: both ask for a certificate, and a proxy asks both for theirs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import waypost
from chaos.cluster import ProxyProcess, ProxySpec
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer
from node.cli.commands.registry import registry_of
from node.configuration.config import NodeConfig
from node.health.dependency_health import Dependency
from node.security.tls import credentials_of
from node.startup.backends import changelog_locator, open_backends, open_changelog
from tests.helpers.papers import Papers
from tests.helpers.polling import until_seen
from tests.node.test_command_line import run
from waypost.errors import BadConfiguration, Unreachable
from waypost.identity import SessionId, new_incarnation
from waypost.notification import Notification

SESSION = "parts/session"
NO_CERTIFICATE = {"backend_cert": "", "backend_key": ""}


@pytest.fixture
def config(
    kafka_over_tls: KafkaServer, etcd_over_tls: EtcdServer, papers: Papers, topic_prefix: str, tmp_path: Path
) -> NodeConfig:
    return NodeConfig(
        data=tmp_path,
        prefix=topic_prefix,
        kafka=kafka_over_tls.bootstrap,
        etcd=etcd_over_tls.endpoint,
        backend_ca=str(papers.authority),
        backend_cert=str(papers.certificate),
        backend_key=str(papers.key),
    )


@pytest.fixture
def strangers(tmp_path: Path) -> Papers:
    """What another authority has certified."""
    folder = tmp_path / "strangers"
    folder.mkdir()
    return Papers(folder)


def changed(config: NodeConfig, change: dict[str, Any]) -> NodeConfig:
    return replace(config, **change)


def process(config: NodeConfig) -> ProxyProcess:
    names = ("prefix", "kafka", "etcd", "backend_ca", "backend_cert", "backend_key")
    flags = {name.replace("_", "-"): getattr(config, name) for name in names}
    return ProxyProcess(ProxySpec(config.name, config.site, {"no-discovery": "", **flags}), (), config.data)


async def test_a_session_survives_the_end_of_a_proxy_whose_kafka_and_etcd_are_behind_tls(config: NodeConfig) -> None:
    proxy, state = process(config), waypost.ReceiverState()
    try:
        await asyncio.to_thread(proxy.start)
        async with asyncio.timeout(60):
            async with waypost.attach(SESSION, proxy=proxy.url, state=state) as session:
                await session.wait_effective(await session.subscribe("number >= 0"), ["A/0"])
            async with waypost.produce("maker", proxy=proxy.url) as producer:
                await producer.publish(Notification({"number": 1}))
            await asyncio.to_thread(proxy.kill)
            await asyncio.to_thread(proxy.start)
            async with waypost.attach(SESSION, proxy=proxy.url, state=state) as session:
                assert (await anext(session))["number"] == 1
    finally:
        await asyncio.to_thread(proxy.stop)


async def test_a_proxy_that_does_not_believe_its_servers_names_each_once_and_still_ends_in_order(
    config: NodeConfig, strangers: Papers
) -> None:
    proxy = process(changed(config, {"backend_ca": str(strangers.authority)}))
    proxy.process.start()
    try:
        await until_seen(lambda: Dependency.LOG in proxy.request("/v1/status")["troubles"], "the log is named")
        assert not proxy.ready()
    finally:
        await asyncio.to_thread(proxy.stop)
    assert proxy.process.exit_status == 0
    lines = [line for line in proxy.process.log.read_text().splitlines() if "certificate verify failed" in line]
    assert [[part for part in Dependency if f"dependency={part} " in line] for line in lines] == [
        [Dependency.REGISTRY],
        [Dependency.LOG],
    ]


@pytest.mark.parametrize(("part", "without"), [(Dependency.LOG, "etcd"), (Dependency.REGISTRY, "kafka")])
async def test_a_part_that_is_not_believed_or_does_not_believe_us_is_named_in_one_line(
    part: Dependency, without: str, config: NodeConfig, strangers: Papers
) -> None:
    config = changed(config, {without: ""})
    elsewhere = {name: getattr(config, name).replace("127.0.0.1", "localhost") for name in ("kafka", "etcd")}
    for wrong, why in (
        ({"backend_ca": str(strangers.authority)}, "certificate verify failed: unable to get local issuer certificate"),
        (elsewhere, "certificate is not valid for 'localhost'"),
        (NO_CERTIFICATE, "does not answer"),
        ({"backend_cert": str(strangers.certificate), "backend_key": str(strangers.key)}, "does not answer"),
        ({"backend_ca": "", **NO_CERTIFICATE}, "does not answer"),
    ):
        with pytest.raises(ExceptionGroup) as refused:
            await open_backends(changed(config, wrong), new_incarnation())
        (error,) = refused.value.exceptions
        assert isinstance(error, Unreachable) and error.field == part
        assert why in str(error) and "\n" not in str(error)


async def test_the_changelog_of_another_site_is_read_over_tls_too(config: NodeConfig) -> None:
    own = await open_backends(config, new_incarnation())
    locator = changelog_locator(config)
    other = open_changelog(locator, credentials_of(config))
    try:
        await other.start()
        assert await other.latest(SessionId(SESSION)) == ()
        with pytest.raises(Unreachable):
            await open_changelog(locator, None).start()
    finally:
        await other.close()
        await own.close()


async def test_a_token_is_made_with_the_secret_of_an_etcd_behind_tls(
    config: NodeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with registry_of(config) as registry:
        await registry.secret()
    for name in ("etcd", "prefix", "backend_ca", "backend_cert", "backend_key"):
        monkeypatch.setenv(f"WAYPOST_{name.upper()}", getattr(config, name))
    done = run("token", "alice")
    assert (done.returncode, done.stderr) == (0, "")
    for name in NO_CERTIFICATE:
        monkeypatch.delenv(f"WAYPOST_{name.upper()}")
    done = run("token", "alice")
    assert done.returncode == 3
    assert [line.partition(":")[0] for line in done.stderr.splitlines()] == ["error", "hint"]


@pytest.mark.parametrize(
    ("field", "file"),
    [("backend_ca", "key"), ("backend_ca", "nothing"), ("backend_cert", "key"), ("backend_key", "nothing")],
)
def test_tls_file_of_the_wrong_kind_is_refused_by_name(field: str, file: str, papers: Papers) -> None:
    right = NodeConfig(
        etcd="etcd:2379",
        backend_ca=str(papers.authority),
        backend_cert=str(papers.certificate),
        backend_key=str(papers.key),
    )
    wrong = str(papers.key if file == "key" else papers.key.with_name(file))
    with pytest.raises(BadConfiguration, match=wrong) as refused:
        credentials_of(changed(right, {field: wrong}))
    assert refused.value.field == field
    assert "\n" not in str(refused.value)
