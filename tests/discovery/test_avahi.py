"""Discovery between two hosts, beside Avahi, which is on the network of most of its users. The hosts are namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.servers import parts
from chaos.servers.avahi import Avahi
from chaos.servers.namespaces import Host, TwoHosts, can_make_hosts
from chaos.servers.process import Process

SERVICE = "_waypost._tcp"
WAYPOST = str(Path(sys.executable).with_name("waypost"))
BROWSE = (
    "import asyncio, json; from discovery.browse import find; "
    "print(json.dumps([[p.proxy, p.site, p.url, p.load, p.federation] for p in asyncio.run(find())]))"
)
pytestmark = pytest.mark.skipif(not can_make_hosts(), reason="network namespaces need root")


@pytest.fixture(scope="module", params=["both", "ipv6"])
def hosts(request: pytest.FixtureRequest) -> Iterator[TwoHosts]:
    with TwoHosts(ipv4=request.param == "both") as hosts:
        yield hosts


@pytest.fixture(scope="module")
def avahi(hosts: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Avahi]:
    parts.install(["avahi"])
    with Avahi(hosts.other, tmp_path_factory.mktemp("avahi")) as avahi:
        yield avahi


@pytest.fixture(scope="module")
def proxy(hosts: TwoHosts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    host = hosts.one.ipv4 or hosts.one.ipv6
    with serving(hosts.one, "n1", tmp_path_factory.mktemp("proxy"), f"--host={host}", "--port=7301") as process:
        yield process


@contextmanager
def serving(host: Host, name: str, root: Path, *flags: str) -> Iterator[Process]:
    words = (WAYPOST, "serve", f"--name={name}", "--site=A", "--insecure", f"--data={root}", *flags)
    with Process(name, host.command(*words), log=root / f"{name}.log") as process:
        process.wait_until(lambda: process.has_logged("ready"), timeout_s=30)
        yield process


def found_from(host: Host) -> list[list[object]]:
    """Our own browser's answer on a host: name, site, address, load and federation of each proxy."""
    done = subprocess.run(
        host.command(sys.executable, "-c", BROWSE), check=True, capture_output=True, text=True, timeout=30
    )
    found: list[list[object]] = json.loads(done.stdout)
    return found


def resolved(avahi: Avahi) -> list[list[str]]:
    """The fields of what Avahi's browser has resolved, of IPv4 and of IPv6."""
    return [line.split(";") for line in avahi.browse(SERVICE) if line.startswith("=")]


def test_avahi_finds_a_proxy_with_all_that_it_announces(hosts: TwoHosts, avahi: Avahi, proxy: Process) -> None:
    url = f"ws://{hosts.one.ipv4}:7301" if hosts.one.ipv4 else f"ws://[{hosts.one.ipv6}]:7301"
    deadline = time.monotonic() + 20
    while not (lines := resolved(avahi)) or any('"federation="' in line[9] for line in lines):
        assert time.monotonic() < deadline, lines
    for line in lines:
        assert line[3:6] == ["n1", SERVICE, "local"]
        assert line[7:9] == [hosts.one.ipv4 or hosts.one.ipv6, "7301"]
        properties = dict(pair.strip('"').split("=", 1) for pair in line[9].split('" "'))
        assert {"proxy": "n1", "site": "A", "url": url, "load": "0"}.items() <= properties.items()
    assert {line[2] for line in lines} == ({"IPv4", "IPv6"} if hosts.one.ipv4 else {"IPv6"})


def test_a_service_that_avahi_announces_is_found(hosts: TwoHosts, avahi: Avahi) -> None:
    announced = {"proxy": "n2", "site": "B", "url": f"ws://[{hosts.other.ipv6}]:7302", "load": "3", "federation": "2b"}
    with avahi.publish("n2", SERVICE, 7302, announced) as publishing:
        publishing.wait_until(lambda: publishing.has_logged("Established"), timeout_s=20)
        deadline = time.monotonic() + 20
        while ["n2", "B", announced["url"], 3, "2b"] not in found_from(hosts.one):
            assert time.monotonic() < deadline


def test_a_client_on_another_host_needs_no_address(hosts: TwoHosts, proxy: Process) -> None:
    subscribing = subprocess.Popen(
        hosts.other.command(WAYPOST, "sub", "-C", "1", "-W", "30", "n == 1"),
        stdout=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while subscribing.poll() is None and time.monotonic() < deadline:
        subprocess.run(hosts.other.command(WAYPOST, "pub", "n=1"), check=True, capture_output=True, timeout=30)
    output, _ = subscribing.communicate(timeout=30)
    assert (subscribing.returncode, "n=1" in output.replace(" ", "")) == (0, True), output


def test_a_proxy_that_ended_in_order_is_found_no_more(hosts: TwoHosts, avahi: Avahi, proxy: Process) -> None:
    assert resolved(avahi)
    proxy.stop()
    try:
        # A goodbye counts after a second (RFC 6762, section 10.1); without one it would be an hour.
        deadline = time.monotonic() + 10
        while resolved(avahi):
            assert time.monotonic() < deadline
        assert found_from(hosts.other) == []
    finally:
        proxy.start()
        proxy.wait_until(lambda: proxy.has_logged("ready"), timeout_s=30)


def test_a_proxy_that_started_without_a_network_is_found_when_there_is_one(
    hosts: TwoHosts, avahi: Avahi, tmp_path: Path
) -> None:
    hosts.one.unplug()
    try:
        url = f"ws://[{hosts.one.ipv6}]:7303"
        with serving(hosts.one, "n3", tmp_path, "--host=::", "--port=7303", f"--advertise={url}"):
            assert not [line for line in resolved(avahi) if line[3] == "n3"]
            hosts.one.configure()
            deadline = time.monotonic() + 30
            while not [line for line in resolved(avahi) if line[3] == "n3"]:
                assert time.monotonic() < deadline
    finally:
        hosts.one.configure()
