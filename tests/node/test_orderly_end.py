"""A process that ends in good order: what it has said last is durable before others may have its sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import waypost
from federation.memory import (
    MemoryChangelog,
    MemoryChangelogStorage,
    MemoryJournal,
    MemoryJournalStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
)
from node import service
from node.configuration.config import NodeConfig
from node.shell.node import Node
from node.startup.backends import Backends
from tests.helpers.memory_backends import memory_ports
from waypost.checkpoint import Checkpoint
from waypost.clock import SystemClock
from waypost.errors import Unreachable
from waypost.facts import Fact


async def test_last_checkpoints_are_durable_before_the_lease_is_given_back_though_the_journal_is_away(
    tmp_path: Path, monkeypatch: Any
) -> None:
    ending, happened = asyncio.Event(), list[str]()

    class LateChangelog(MemoryChangelog):
        async def put(self, checkpoint: Checkpoint) -> None:
            if ending.is_set():
                await asyncio.sleep(0.5)
            await super().put(checkpoint)
            happened.append("checkpoint")

    class JournalAwayAtTheEnd(MemoryJournal):
        async def attest(self, facts: Sequence[Fact]) -> None:
            if ending.is_set() and "journal away" not in happened:
                happened.append("journal away")
                raise Unreachable("the journal is away")
            await super().attest(facts)

    registry = MemoryRegistry(MemoryRegistryStorage(), SystemClock())
    announce = registry.announce

    async def announce_watched(*arguments: Any, **named: Any) -> Any:
        lease = await announce(*arguments, **named)
        revoke = lease.revoke

        async def revoke_watched() -> None:
            happened.append("revoked")
            await revoke()

        monkeypatch.setattr(lease, "revoke", revoke_watched)
        return lease

    monkeypatch.setattr(registry, "announce", announce_watched)

    async def open_backends() -> Backends:
        ports = memory_ports(tmp_path) | {"registry": registry}
        ports |= {"changelog": LateChangelog(MemoryChangelogStorage())}
        ports |= {"journal": JournalAwayAtTheEnd(MemoryJournalStorage())}
        return Backends(**ports)

    stop = asyncio.Event()
    monkeypatch.setattr(service, "Node", lambda *arguments: Node(arguments[0], open_backends, *arguments[2:]))
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    config = NodeConfig(name="a", site="A", data=tmp_path, discovery=False)
    serving = asyncio.create_task(service.serve(config, address.set_result, stop))
    url = await address
    async with waypost.attach("s", proxy=url) as receiver:
        await receiver.wait_effective(await receiver.subscribe("n > 0"), ["A/0"])
        async with waypost.produce("p", proxy=url) as producer:
            await producer.publish({"n": 1})
        await anext(aiter(receiver))
        receiver.acknowledge()
        await asyncio.sleep(0.3)
        happened.clear()
        ending.set()
        stop.set()
        await asyncio.wait_for(serving, 20)
    assert "journal away" in happened
    assert happened.index("checkpoint") < happened.index("revoked"), happened
