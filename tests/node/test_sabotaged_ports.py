"""A real node on fakes whose calls fail as a library's do: by any exception, by a cancellation of its own, by silence.

Whatever happens at whichever await, the node goes on by itself, or ends with an error, or says that it is not ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import waypost
from federation.memory import (
    MemoryLogStorage,
    MemorySiteLog,
)
from node import service
from node.configuration.config import NodeConfig
from node.health.dependency_health import DependencyHealth
from node.shell import node as node_module
from node.shell.node import Node
from node.startup.backends import Backends
from tests.helpers.memory_backends import memory_ports
from waypost.errors import Internal, StoreFailed, WaypostError
from waypost.identity import Incarnation

SOON_MS = 700
"""What stands still is seen after so long here."""
TIMEOUT_S = 30.0
CALLS = {
    "log": ("append", "tail", "read", "first", "end"),
    "registry": ("create", "owner", "announce", "secret", "watch", "site_log"),
    "lease": ("renew",),
    "changelog": ("put", "latest", "put_site", "latest_site"),
    "journal": ("attest",),
    "store": ("apply", "load", "entries", "outdated"),
}
"""The awaits of each port that a node with one session comes to."""
STREAMS = ("tail", "watch")


async def _raise() -> None:
    raise RuntimeError("a library's own error")


async def _cancel() -> None:
    raise asyncio.CancelledError


async def _never() -> None:
    await asyncio.get_running_loop().create_future()


KINDS: dict[str, Callable[[], Awaitable[None]]] = {"exception": _raise, "cancellation": _cancel, "silence": _never}


@dataclass
class Sabotage:
    """At the nth call of one method, once, something happens in place of an answer."""

    port: str
    method: str
    act: Callable[[], Awaitable[None]]
    at: int
    calls: int = 0
    struck: bool = False

    async def strike(self) -> None:
        self.calls += 1
        if self.armed and not self.struck:
            self.struck = True
            await self.act()

    @property
    def armed(self) -> bool:
        return self.calls >= self.at


class Sabotaged:
    """A port, one method of which is sabotaged."""

    def __init__(self, port: Any, sabotage: Sabotage) -> None:
        self._port = port
        self._sabotage = sabotage

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._port, name)
        if name != self._sabotage.method:
            return partial(self._announce, method) if name == "announce" else method
        return partial(self._stream if name in STREAMS else self._call, method)

    async def _announce(self, method: Any, *arguments: Any, **named: Any) -> Any:
        return Sabotaged(await method(*arguments, **named), self._sabotage)

    async def _call(self, method: Any, *arguments: Any, **named: Any) -> Any:
        await self._sabotage.strike()
        return await method(*arguments, **named)

    async def _stream(self, method: Any, *arguments: Any) -> AsyncIterator[Any]:
        async for item in method(*arguments):
            await self._sabotage.strike()
            yield item


@dataclass
class Stage:
    """One node in this process, on fakes."""

    sabotage: Sabotage
    folder: Path
    log: MemoryLogStorage = field(default_factory=MemoryLogStorage)
    nodes: list[Node] = field(default_factory=list)
    address: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def open_backends(self) -> Backends:
        ports = memory_ports(self.folder) | {"log": MemorySiteLog(self.log)}
        port = "registry" if self.sabotage.port == "lease" else self.sabotage.port
        ports[port] = Sabotaged(ports[port], self.sabotage)
        return Backends(**ports)

    async def serve(self) -> None:
        config = NodeConfig(name="a", site="A", data=self.folder, discovery=False, lease_ttl_ms=1_500, sweep_s=1)
        await service.serve(config, self.address.set_result, self.stop)

    @property
    def reports_fault(self) -> bool:
        """Whether the node tells operators that something stands still."""
        return any(bool(node.why_not_ready) and bool(node.health.now or node.engine is None) for node in self.nodes)


async def is_alive(url: str) -> None:
    """Attach, subscribe, publish and receive: the whole way of a notification, again and again."""
    for number in range(4):
        async with waypost.attach(f"s{number}", proxy=url, timeout_s=TIMEOUT_S) as session:
            try:
                subscription = await session.subscribe("n > 0", max_count=3)
            except StoreFailed:
                # Said at once, and not silence: who asked asks again.
                subscription = await session.subscribe("n > 0", max_count=3)
            await session.wait_effective(subscription, ["A/0"])
            async with waypost.produce("p", proxy=url, timeout_s=TIMEOUT_S) as producer:
                await producer.publish({"n": number + 1})
            async with asyncio.timeout(TIMEOUT_S):
                await anext(aiter(session))
        await asyncio.sleep(0.3)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAIL_STALL_MS", "WATCH_STALL_MS", "JOURNAL_STALL_MS", "TIMER_STALL_MS", "EFFECT_STALL_MS"):
        monkeypatch.setattr(node_module, name, SOON_MS if name != "WATCH_STALL_MS" else 4 * SOON_MS)
    monkeypatch.setattr(node_module, "POLL_S", 0.1)
    monkeypatch.setattr(DependencyHealth.retry, "__defaults__", (1.0,))
    monkeypatch.setattr(node_module, "LOG_END_S", 1.0)
    monkeypatch.setattr(node_module, "WATCHDOG_INTERVAL_S", 0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("port", "method"), [(port, method) for port, methods in CALLS.items() for method in methods])
async def test_no_await_ends_a_node_in_silence(
    port: str, method: str, kind: str, tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first_only = method in ("first", "secret", "announce", "load", "latest_site", "create")
    stage = Stage(Sabotage(port, method, KINDS[kind], at=1 if first_only else 2), tmp_path)

    def make(*arguments: Any) -> Node:
        stage.nodes.append(Node(arguments[0], stage.open_backends, *arguments[2:]))
        return stage.nodes[-1]

    monkeypatch.setattr(service, "Node", make)
    serving = asyncio.create_task(stage.serve())
    client = asyncio.create_task(is_alive(await stage.address))

    async def until_seen() -> None:
        while not (stage.sabotage.struck and stage.reports_fault):
            await asyncio.sleep(0.05)

    seen = asyncio.create_task(until_seen())
    done, _ = await asyncio.wait({serving, client, seen}, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    assert done, f"the node neither goes on, nor ends, nor says anything; troubles: {stage.nodes[0].health.now}"
    if serving in done:
        assert isinstance(serving.exception(), WaypostError)
        assert stage.sabotage.struck
    elif client in done:
        client.result()
    client.cancel()
    seen.cancel()
    stage.stop.set()
    await asyncio.wait({serving}, timeout=15)
    serving.cancel()
    await asyncio.gather(serving, client, seen, return_exceptions=True)


async def test_a_comparison_of_the_log_that_never_comes_to_an_end_is_named(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "GUARD_STALL_MS", SOON_MS)
    node = Node(
        NodeConfig(name="a", site="A", data=tmp_path, discovery=False, lease_ttl_ms=1_500),
        Stage(Sabotage("log", "", _never, at=1), tmp_path).open_backends,
        Incarnation("life"),
        lambda: "ws://127.0.0.1:1",
    )
    running = asyncio.create_task(node.run())
    async with asyncio.timeout(TIMEOUT_S):
        while node.why_not_ready:
            await asyncio.sleep(0.05)
        monkeypatch.setattr(node.backends.registry, "site_log", lambda site: _never())
        while "progress of log guard" not in node.health.now:
            assert not node.why_not_ready
            await asyncio.sleep(0.05)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_loop_that_ends_by_itself_is_an_error() -> None:
    from node.health.supervision import endless

    with pytest.raises(Internal, match="'tail' has ended"):
        await endless("tail", asyncio.sleep(0))
    with pytest.raises(Internal, match="'tail' was cancelled"):
        await endless("tail", _cancel())
