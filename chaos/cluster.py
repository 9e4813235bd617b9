"""A federation of real processes on this machine: proxies and their backends. Started here, and ended here by pid."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from chaos.servers.process import LOOPBACK, Process, free_port, port_open
from waypost.errors import Unreachable

START_S = 60
ANSWER_BYTES = 2_000
"""How much of a refusal an error repeats."""


@dataclass(frozen=True, slots=True)
class ProxySpec:
    """One proxy of a federation. `flags` go to `waypost serve`: name without dashes -> value; "" makes it a switch."""

    name: str
    site: str
    flags: Mapping[str, str] = field(default_factory=dict)


class ProxyProcess:
    """One `waypost serve`, which can be killed and started again on the same port with the same data.

    Args:
        neighbours: sites.
        root: the folder of the data and the log.
    """

    def __init__(self, spec: ProxySpec, neighbours: tuple[str, ...], root: Path) -> None:
        self.name, self.site = spec.name, spec.site
        self.port = int(spec.flags.get("port", 0)) or free_port()
        authorities = spec.flags.get("tls-ca")
        self._tls = ssl.create_default_context(cafile=authorities) if authorities else None
        flags = {
            "name": spec.name,
            "site": spec.site,
            "data": str(root),
            **({"neighbours": ",".join(neighbours)} if neighbours else {}),
            **spec.flags,
            "port": str(self.port),
        }
        words = [f"--{key}" if value == "" else f"--{key}={value}" for key, value in flags.items()]
        self.command = [str(Path(sys.executable).with_name("waypost")), "serve", *words]
        self.process = Process(spec.name, self.command, log=root / f"{spec.name}.log")

    @property
    def url(self) -> str:
        """The address of the proxy for clients, ws:// or wss://."""
        return f"{'wss' if self._tls else 'ws'}://{LOOPBACK}:{self.port}"

    @property
    def line(self) -> str:
        """The command line, to start the proxy by hand."""
        return shlex.join(self.command)

    def start(self) -> None:
        """Start the process, if it does not run, and block until the proxy is ready.

        Raises:
            Unreachable: the process ended, or was not ready after START_S seconds and was killed.
        """
        self.process.start()
        self.process.wait_until(self.ready, timeout_s=START_S, what="ready")

    def ready(self) -> bool:
        """Tell whether the proxy says that it is ready; False, too, where it does not answer or refuses.

        Raises:
            http.client.HTTPException: the answer breaks off, or is no HTTP.
        """
        try:
            return bool(self.request("/readyz")["ready"])
        except Unreachable:
            return False

    def request(self, path: str, body: object | None = None, *, post: bool = False) -> Any:
        """Send an HTTP request to the proxy, block until it answers, and return the answer's JSON, decoded. Each wait
        for the proxy lasts 5 s at most.

        Args:
            path: of the page, with its query, such as /v1/sessions.
            body: to be sent as JSON, by a POST; None: there is none.
            post: whether it is a POST although it has no body.

        Raises:
            Unreachable: the proxy does not answer, or refuses; the message has the status and the answer.
            http.client.HTTPException: the answer breaks off, as where the proxy is killed meanwhile, or is no HTTP.
        """
        data = None if body is None else json.dumps(body).encode()
        method = "POST" if post or data else "GET"
        address = f"{'https' if self._tls else 'http'}://{LOOPBACK}:{self.port}{path}"
        headers = {} if data is None else {"Content-Type": "application/json"}
        request = urllib.request.Request(address, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=5, context=self._tls) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refusal:
            text = refusal.read(ANSWER_BYTES).decode(errors="replace")
            raise Unreachable(f"{self.name} at port {self.port}: {refusal}: {text}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise Unreachable(f"{self.name} at port {self.port}: {error}") from None

    def shown(self, session: str) -> dict[str, Any] | None:
        """Return the row of a session on the page /v1/sessions of this proxy; None: there is no such session.

        Raises:
            Unreachable: the proxy does not answer.
        """
        rows = self.request("/v1/sessions")["sessions"]
        return next((row for row in rows if row["session"] == session), None)

    def stored(self, session: str) -> int:
        """Return the number of notifications that this proxy stores for a session; 0, too, if another proxy owns it, or
        there is no such session.

        Raises:
            Unreachable: the proxy does not answer.
        """
        row = self.shown(session)
        return (row["stored"] or 0) if row else 0

    def owner(self, session: str) -> tuple[str, int] | None:
        """Return the name of a session's owner and the epoch, as this proxy knows them; None: there is no such session.

        Raises:
            Unreachable: the proxy does not answer.
        """
        row = self.shown(session)
        return (row["owner"], row["epoch"]) if row else None

    def phases(self, session: str) -> list[str]:
        """Return the role and phase of each transfer of a session at this proxy, such as "target committing"; empty:
        none.

        Transfers that ended lately are listed too. Raises Unreachable: the proxy does not answer.
        """
        rows = self.request("/v1/handovers")["handovers"]
        return [f"{row['role']} {row['phase']}" for row in rows if row["session"] == session]

    @property
    def listening(self) -> bool:
        """Whether a process serves the proxy's port, started here or by hand."""
        return port_open(self.port)

    def kill(self) -> None:
        """Kill the proxy's process and its process group (SIGKILL), and wait until it is gone; nothing happens if it
        does not run.
        """
        self.process.kill()

    def stop(self) -> None:
        """End the proxy in good order (SIGTERM), if it runs, and wait; after 10 s kill it."""
        self.process.stop()


class Cluster:
    """A federation. As a context manager, of either sort, it starts everything, waits until all is ready, and ends all
    that it started, also where a start fails.

    Entering raises Unreachable: a proxy or a server has ended, or was not ready in time. With `real` it installs the
    servers that are missing, over the network, or raises a WaypostError.

    Args:
        specs: the proxies.
        links: pairs of sites that are neighbours.
        root: the folder for data and logs.
        real: whether Kafka, one broker a site, and etcd take the place of the embedded backends.
    """

    def __init__(
        self,
        specs: list[ProxySpec],
        links: list[tuple[str, str]],
        root: Path,
        *,
        real: bool = False,
    ) -> None:
        self._stack = ExitStack()
        self._specs = specs
        self._links = links
        self._real = real
        self.root = root
        self.proxies: dict[str, ProxyProcess] = {}
        self.brokers: dict[str, str] = {}
        """Kafka's address, by site."""

    @property
    def audit_input(self) -> str:
        """The argument INPUT of `waypost audit` for the logs of this cluster, once the cluster was started."""
        if not self._real:
            return str(self.root)
        sites = ",".join(f"{site}={address}" for site, address in self.brokers.items())
        return f"kafka://{sites}/waypost"

    def __enter__(self) -> Self:
        try:
            shared = self._start_parts() if self._real else {}
            for spec in self._specs:
                self._add_proxy(spec, shared)
            for proxy in self.proxies.values():
                proxy.process.start()
            for proxy in self.proxies.values():
                proxy.start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _start_parts(self) -> dict[str, str]:
        from chaos.servers import parts
        from chaos.servers.etcd import EtcdServer
        from chaos.servers.kafka import KafkaServer

        parts.install(["kafka", "etcd", "spark-jars"])
        for site in sorted({spec.site for spec in self._specs}):
            broker = self._stack.enter_context(KafkaServer(self.root / f"kafka-{site}"))
            self.brokers[site] = broker.bootstrap
        etcd = self._stack.enter_context(EtcdServer(self.root / "etcd"))
        return {"etcd": etcd.endpoint}

    def _add_proxy(self, spec: ProxySpec, shared: dict[str, str]) -> None:
        flags = dict(shared)
        if spec.site in self.brokers:
            flags["kafka"] = self.brokers[spec.site]
        neighbours = tuple(site for link in self._links if spec.site in link for site in link if site != spec.site)
        proxy = ProxyProcess(ProxySpec(spec.name, spec.site, flags | dict(spec.flags)), neighbours, self.root)
        self.proxies[spec.name] = proxy
        self._stack.callback(proxy.stop)

    def of_site(self, site: str) -> list[ProxyProcess]:
        """Return the proxies of a site, started or ended; empty: there is no such site, or the cluster was never
        started.
        """
        return [proxy for proxy in self.proxies.values() if proxy.site == site]

    @property
    def urls(self) -> dict[str, list[str]]:
        """Site -> the addresses of its proxies, for clients; none of them before the cluster was started."""
        return {site: [proxy.url for proxy in self.of_site(site)] for site in sorted({p.site for p in self._specs})}

    def stop_proxies(self) -> None:
        """End the proxies in good order, and wait; their backends run on, for the audit."""
        for proxy in self.proxies.values():
            proxy.stop()


def died(proxy: ProxyProcess) -> str:
    """Return in words how a proxy's process ended; "runs" if it runs, or was never started."""
    status = proxy.process.exit_status
    if status is None:
        return "runs"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
