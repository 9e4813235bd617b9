"""A federation that speaks TLS: everything that a client, a proxy and an operator do, and what is kept out."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trustme
import websockets
from websockets.asyncio.client import connect

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.peers.peers import PeerChallenge, decode_introduction
from tests.helpers.papers import Papers
from tests.node.test_command_line import run
from waypost.errors import BadConfiguration, Forbidden, NoProxy
from waypost.notification import Notification

SESSION = "tls/session"


@pytest.fixture(scope="module")
def cluster(papers: Papers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    places = [ProxySpec(name, "A", papers.flags) for name in ("a1", "a2")]
    with Cluster(places, [], tmp_path_factory.mktemp("tls")) as cluster:
        yield cluster


async def publish(url: str, tls: ssl.SSLContext, *numbers: int) -> None:
    async with waypost.produce("maker", proxy=url, tls=tls) as producer:
        for number in numbers:
            await producer.publish(Notification({"to": SESSION, "number": number}))


async def test_a_session_moves_between_proxies_that_speak_tls_with_each_other(cluster: Cluster, papers: Papers) -> None:
    tls, state = papers.client(), waypost.ReceiverState()
    urls = [cluster.proxies[name].url for name in ("a1", "a2")]
    assert all(url.startswith("wss://") for url in urls)
    async with asyncio.timeout(60):
        async with waypost.attach(SESSION, proxy=urls[0], state=state, tls=tls) as session:
            await session.wait_effective(await session.subscribe(f'to == "{SESSION}"'), ["A/0"])
        for number in range(4):
            await publish(urls[0], tls, number)
            async with waypost.attach(SESSION, proxy=urls[(number + 1) % 2], state=state, tls=tls) as session:
                assert (await anext(session))["number"] == number
                assert session.attached is not None and session.attached.epoch == number + 2


def test_the_command_line_speaks_tls_as_the_environment_says(
    cluster: Cluster, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = cluster.proxies["a1"].url
    done = run("pub", "n=1", "--proxy", url)
    assert done.returncode == 2
    wrong = f"error: BAD_CONFIGURATION: WAYPOST_CA: {url}: the proxy's certificate is not accepted"
    assert wrong in done.stderr
    assert "WAYPOST_CA names the file of the authority" in done.stderr
    monkeypatch.setenv("WAYPOST_CA", str(papers.authority))
    done = run("pub", "n=1", "--proxy", url)
    assert (done.returncode, done.stderr) == (0, "")
    done = run("sessions", "ls", "--proxy", url)
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.setenv("WAYPOST_CA", "/nowhere")
    for command in (("sessions", "ls"), ("pub", "n=1"), ("sub", "n > 0", "--session", SESSION)):
        done = run(*command, "--proxy", url)
        assert done.returncode == 2 and "error: BAD_CONFIGURATION: WAYPOST_CA: /nowhere: " in done.stderr


async def test_client_without_the_authority_or_tls_does_not_attach(cluster: Cluster) -> None:
    url = cluster.proxies["a1"].url
    with pytest.raises(BadConfiguration, match="certificate is not accepted"):
        async with waypost.attach(SESSION, proxy=url):
            pass
    with pytest.raises(BadConfiguration, match="what listens there speaks TLS"):
        async with waypost.attach(SESSION, proxy=url.replace("wss:", "ws:")):
            pass


async def test_client_at_a_port_without_tls_is_told_so_at_once(papers: Papers) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as plain:
        port = plain.sockets[0].getsockname()[1]
        with pytest.raises(BadConfiguration, match="what listens there does not speak TLS"):
            async with waypost.attach(SESSION, proxy=f"wss://127.0.0.1:{port}", tls=papers.client()):
                pass


async def test_client_with_a_certificate_of_another_authority_is_asked_about_it(
    cluster: Cluster, papers: Papers
) -> None:
    context = papers.client()
    trustme.CA().issue_cert("eve@example.org", common_name="eve").configure_cert(context)
    with pytest.raises(NoProxy, match="does it accept the client's certificate"):
        async with waypost.attach(SESSION, proxy=cluster.proxies["a1"].url, tls=context, timeout_s=2):
            pass


async def test_peer_without_a_certificate_is_refused(cluster: Cluster, papers: Papers) -> None:
    proxy = cluster.proxies["a1"]
    async with connect(f"{proxy.url}/v1/peer", ssl=papers.client()) as stranger:
        with pytest.raises(websockets.ConnectionClosed) as closed:
            await stranger.recv()
    assert closed.value.rcvd is not None and closed.value.rcvd.reason == "UNPROVEN: no certificate"
    assert proxy.request("/v1/status")["refused"]["no certificate"] == 1
    async with connect(f"{proxy.url}/v1/peer", ssl=papers.client("somebody")) as certified:
        assert isinstance(decode_introduction(await certified.recv()), PeerChallenge)


async def test_another_authoritys_certificate_is_none(cluster: Cluster, papers: Papers) -> None:
    url = f"{cluster.proxies['a1'].url}/v1/client"
    async with connect(url, ssl=papers.client("somebody")):
        pass
    context = papers.client()
    trustme.CA().issue_cert("eve@example.org", common_name="eve").configure_cert(context)
    with pytest.raises((OSError, websockets.WebSocketException)):
        async with connect(url, ssl=context) as socket:
            await socket.send(msgspec.msgpack.encode("hello"))
            await socket.recv()


async def test_a_certificate_proves_the_principal_that_it_names_wherever_the_session_goes(
    cluster: Cluster, papers: Papers
) -> None:
    name, nobody, eve = "tls/eves", papers.client(), papers.client("eve")
    urls = [cluster.proxies[proxy].url for proxy in ("a1", "a2")]
    async with waypost.attach(name, proxy=urls[0], tls=nobody) as owner:
        await owner.set_access(
            {"": waypost.grant("owner", password="secret"), "eve": waypost.grant("admin", by_token=True)}
        )
    for url in (*urls, urls[0]):
        async with waypost.attach(name, proxy=url, receiver="eve", principal="eve", tls=eve) as session:
            assert (await session.wait_attached()).session == name
    for tls, principal in ((nobody, "eve"), (papers.client("bob"), "eve"), (eve, "bob"), (eve, "")):
        with pytest.raises(Forbidden):
            async with waypost.attach(name, proxy=urls[1], receiver="eve", principal=principal, tls=tls):
                pass


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tls-key": ""}, "tls_key: it is missing"),
        ({"tls-ca": "/nowhere"}, "tls_ca: /nowhere is no file"),
        ({"tls-ca": ""}, "tls_ca: it is missing"),
        ({"tls-key": "tls-ca"}, "tls_key: "),
        ({"tls-ca": "tls-key"}, "tls_ca: "),
        (
            {"advertise": "ws://127.0.0.1:1"},
            "advertise: ws://127.0.0.1:1: a proxy with a certificate is reached at wss://",
        ),
    ],
    ids=["no key", "no authority", "no authority named", "no key in it", "no authority in it", "plain address"],
)
def test_invalid_tls_setting_is_named_before_the_start(
    change: dict[str, str], problem: str, papers: Papers, tmp_path: Path
) -> None:
    flags = papers.flags | {key: papers.flags.get(value, value) for key, value in change.items()}
    words = [
        f"--{key}={value}" if value else f"--{key}" for key, value in flags.items() if value or key == "no-discovery"
    ]
    done = run("serve", "--data", str(tmp_path), *words)
    assert done.returncode == 2
    assert f"error: BAD_CONFIGURATION: {problem}" in done.stderr
    assert "_ssl.c" not in done.stderr
