"""Certificates end: a proxy reads new ones as it runs, says when its own ends, and believes a client's no longer."""

from __future__ import annotations

import asyncio
import datetime
import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.configuration.config import NodeConfig
from node.health.dependency_health import ENDED_CERTIFICATE, DependencyHealth
from node.security.certificate_check import CERTIFICATE, CertificateCheck
from node.security.tls import CERTIFIED_MS, Certified, TlsFiles, tls_of, vouched
from proxy.clients.tokens import read
from tests.helpers.papers import Papers
from tests.helpers.polling import until_seen
from waypost.clock import SystemClock
from waypost.errors import BadConfiguration
from waypost.identity import Incarnation
from waypost.messages import VERSION, Attach, Credential, Hello

DAY = datetime.timedelta(days=1)
KEY = bytes(32)


class Authority:
    """Gives a proxy certificates that last so long."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        self.file, self._cert, self._key = folder / "ca.pem", folder / "proxy.pem", folder / "proxy.key"
        self._ca.cert_pem.write_to_path(str(self.file))
        self.flags = {
            "no-discovery": "",
            "tls-cert": str(self._cert),
            "tls-key": str(self._key),
            "tls-ca": str(self.file),
        }

    def certify(self, days: float) -> None:
        made = self._ca.issue_cert("127.0.0.1", not_after=datetime.datetime.now(datetime.UTC) + days * DAY)
        key = load_pem_private_key(made.private_key_pem.bytes(), password=None)
        self._key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        made.cert_chain_pems[0].write_to_path(str(self._cert))

    def config(self) -> NodeConfig:
        return NodeConfig(name="a", site="A", tls_cert=str(self._cert), tls_key=str(self._key), tls_ca=str(self.file))

    def spoil(self) -> None:
        self._cert.write_text("no certificate at all")

    def client(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.file))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    authority = Authority(tmp_path)
    authority.certify(days=5)
    return authority


@pytest.fixture
def cluster(authority: Authority, tmp_path: Path) -> Iterator[Cluster]:
    with Cluster([ProxySpec(name, "A", authority.flags) for name in ("a1", "a2")], [], tmp_path / "parts") as cluster:
        yield cluster


async def days_left(cluster: Cluster, authority: Authority) -> int:
    """Return for how many days the certificate lasts that a new connection sees."""
    parts = urlsplit(cluster.proxies["a1"].url)
    _, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=authority.client())
    ends = ssl.cert_time_to_seconds(writer.get_extra_info("peercert")["notAfter"])
    writer.close()
    return round((ends - datetime.datetime.now(datetime.UTC).timestamp()) / DAY.total_seconds())


def health(cluster: Cluster) -> dict[str, str]:
    found: dict[str, str] = cluster.proxies["a1"].request("/v1/status")["troubles"]
    return found


async def test_a_certificate_that_ends_soon_is_told_and_a_new_one_is_read_as_the_proxy_runs(
    cluster: Cluster, authority: Authority
) -> None:
    tls, url = authority.client(), cluster.proxies["a1"].url
    async with waypost.attach("certificates", proxy=url, tls=tls) as session:
        await session.subscribe("require(n)")
        await until_seen(lambda: "certificate" in health(cluster), "the end of the certificate is told", within_s=20)
        assert "ends in 4 days" in health(cluster)["certificate"]
        authority.spoil()
        await until_seen(lambda: "files of TLS" in health(cluster), "files that are no good are told", within_s=20)
        assert await days_left(cluster, authority) == 5
        authority.certify(days=100)
        await until_seen(lambda: not health(cluster), "all is well again", within_s=20)
        assert await days_left(cluster, authority) == 100
        async with waypost.produce("p", proxy=cluster.proxies["a2"].url, tls=tls) as producer:
            await producer.publish({"n": 1})
        assert (await asyncio.wait_for(anext(session), 10))["n"] == 1
        await session.delete()


def test_a_certificate_that_has_ended_is_refused_at_the_start(authority: Authority) -> None:
    assert tls_of(authority.config()) is not None
    authority.certify(days=-1)
    with pytest.raises(BadConfiguration, match=r"proxy\.pem: certificate has expired") as refused:
        tls_of(authority.config())
    assert refused.value.field == "tls_cert"


def test_an_encrypted_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    papers = Papers(tmp_path)
    key = load_pem_private_key(papers.key.read_bytes(), password=None)
    papers.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
    config = NodeConfig(tls_cert=str(papers.certificate), tls_key=str(papers.key), tls_ca=str(papers.authority))
    with pytest.raises(BadConfiguration, match=r"the key in .*proxy\.key is encrypted") as refused:
        tls_of(config)
    assert refused.value.field == "tls_key" and refused.value.hint


async def test_a_certificate_that_ends_as_the_proxy_runs_is_a_trouble_of_its_own(authority: Authority) -> None:
    """The one that it ends soon was told long ago."""
    authority.certify(days=3 / DAY.total_seconds())
    config, clock = authority.config(), SystemClock()
    tls = tls_of(config)
    assert tls is not None
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls.port)
    async with server:
        url = f"wss://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        health = DependencyHealth(random.Random(0), clock)
        check = CertificateCheck(TlsFiles(config, tls), tls, url, health)
        await check.check(clock.now_ms(), clock.unix_ms())
        assert "ends in 0 days" in health.now[CERTIFICATE] and ENDED_CERTIFICATE not in health.now
        for _ in range(200):
            if ENDED_CERTIFICATE in health.now:
                break
            await asyncio.sleep(0.1)
            await check.check(clock.now_ms(), clock.unix_ms())
        assert "certificate has expired; write another one" in health.now[ENDED_CERTIFICATE]
        assert CERTIFICATE not in health.now
        authority.certify(days=100)
        check.renew()
        await check.check(clock.now_ms(), clock.unix_ms())
        assert ENDED_CERTIFICATE not in health.now


@pytest.mark.parametrize("left_ms", [1_000, CERTIFIED_MS - 1, CERTIFIED_MS + 1])
def test_principal_proven_by_a_certificate_expires_with_the_certificate(left_ms: int) -> None:
    now_ms = 1_800_000_000_000
    by = Certified("eve", now_ms + left_ms)
    attach = Attach(session="s", receiver="r", incarnation=Incarnation("i"), frontier={}, credential=Credential("eve"))
    for message in (attach, Hello(VERSION, "c")):
        signed = vouched(message, by, KEY, now_ms)
        assert isinstance(signed, Attach | Hello)
        named = read(KEY, signed.credential.token, now_ms)
        assert named.principal == "eve"
        assert named.until_ms == (now_ms + min(left_ms, CERTIFIED_MS)) // 1_000 * 1_000
