"""What happens to the etcd adapter when etcd goes, falls silent, forgets, and comes back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from contextlib import aclosing
from typing import Any, TypeVar

import pytest
from aetcd import rpc

from chaos.servers.etcd import EtcdServer
from chaos.servers.process import free_port
from federation.etcd import EtcdRegistry
from federation.etcd import registry as registry_module
from federation.etcd.rows import LOG, TREE
from federation.ports import OwnerChanged, ProxyRow, Reloaded, SiteLogRow, TreeRow
from tests.helpers.polling import until as comes_true
from tests.helpers.watch import changes
from waypost.errors import BadConfiguration, RegistryUnavailable
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId

TIMEOUT_S = 40
S = SessionId("s")
T = TypeVar("T")


def owned(epoch: int) -> Ownership:
    return Ownership(ProxyId("p"), Epoch(epoch))


async def until(events: Any, wanted: object) -> list[object]:
    seen: list[object] = []
    async with asyncio.timeout(TIMEOUT_S):
        while wanted not in seen:
            seen.append(await anext(events))
    return seen


async def settled(registry: EtcdRegistry, expected: Ownership, new: Ownership) -> None:
    """Claim until it is known to have happened."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                await registry.claim(S, expected, new)
                if await registry.owner(S) == new:
                    return
            except RegistryUnavailable:
                await asyncio.sleep(0.1)


async def test_an_absent_server_is_named_within_5_s() -> None:
    address = f"127.0.0.1:{free_port()}"
    registry = EtcdRegistry(address)
    started = time.monotonic()
    with pytest.raises(RegistryUnavailable, match=address) as error:
        await registry.start()
    assert time.monotonic() - started < 5
    assert error.value.hint is not None


def test_an_endpoint_that_is_none_is_refused() -> None:
    with pytest.raises(BadConfiguration, match="nonsense"):
        EtcdRegistry("nonsense")


async def test_of_several_endpoints_one_that_answers_is_found(etcd: EtcdServer, key_prefix: str) -> None:
    registry = EtcdRegistry(f"127.0.0.1:{free_port()},{etcd.endpoint}", key_prefix)
    await registry.start()
    assert (await registry.create(S, owned(1))).won
    await registry.close()


def test_an_etcd_without_space_is_said_to_be_full() -> None:
    registry = EtcdRegistry("h:1")
    error = registry._servers.unavailable(OSError("etcdserver: mvcc: database space exceeded"))
    assert error.message == "etcd at h:1 takes no changes: its space is exhausted"
    assert error.hint is not None and "alarm disarm" in error.hint


async def test_a_silent_server_costs_one_deadline_and_the_watch_loads_anew_when_it_speaks(
    etcd: EtcdServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    await registry.create(S, owned(1))
    real_load, loads = registry._load, list[None]()

    async def load_and_count(client: Any) -> tuple[list[Any], int]:
        loads.append(None)
        return await real_load(client)

    monkeypatch.setattr(registry, "_load", load_and_count)
    events: Any = changes(registry)
    async with aclosing(events):
        await until(events, Reloaded({S: owned(1)}, {}, {}))
        etcd.pause()
        try:
            started = time.monotonic()
            with pytest.raises(RegistryUnavailable, match=etcd.endpoint):
                await registry.claim(S, owned(1), owned(2))
            assert time.monotonic() - started < 3
            next_event = asyncio.create_task(anext(events))
            await comes_true(lambda: len(loads) > 1, "the watch gives its silent stream up", TIMEOUT_S)
            assert not next_event.done()
        finally:
            etcd.resume()
        await settled(registry, owned(1), owned(2))
        async with asyncio.timeout(TIMEOUT_S):
            event = await next_event
        assert isinstance(event, Reloaded)
        if event != Reloaded({S: owned(2)}, {}, {}):
            await until(events, OwnerChanged(S, owned(2)))
    await registry.close()


async def test_everything_goes_on_after_etcd_was_killed(etcd: EtcdServer, key_prefix: str) -> None:
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    await registry.create(S, owned(1))
    row = ProxyRow(proxy=ProxyId("p"), incarnation=Incarnation("1"), site=SiteId("north"), url="")
    lease = await registry.announce(row, 60_000)
    epoch = await registry.elect("link", row.proxy, lease)
    events: Any = changes(registry)
    before = Reloaded({S: owned(1)}, {row.proxy: row}, {"link": (row.proxy, epoch)}, {row.site: ""})  # type: ignore[dict-item]
    async with aclosing(events):
        await until(events, before)
        try:
            await asyncio.to_thread(etcd.kill)
            with pytest.raises(RegistryUnavailable):
                await lease.renew()
        finally:
            await asyncio.to_thread(etcd.start)
        await until(events, before)
        assert await lease.renew()
        await settled(registry, owned(1), owned(2))
        await until(events, OwnerChanged(S, owned(2)))
    await registry.close()


async def test_nothing_is_claimed_between_the_break_of_the_watch_and_all_rows(
    etcd: EtcdServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An etcd that was put back to an older copy meanwhile would let a proxy take what is another's."""
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    await registry.create(S, owned(1))
    real_load, may_load = registry._load, asyncio.Event()
    may_load.set()

    async def load_late(client: Any) -> tuple[list[Any], int]:
        await may_load.wait()
        return await real_load(client)

    monkeypatch.setattr(registry, "_load", load_late)
    events: Any = changes(registry)
    async with aclosing(events):
        await until(events, Reloaded({S: owned(1)}, {}, {}))
        next_event = asyncio.create_task(anext(events))
        await asyncio.sleep(0.1)
        may_load.clear()
        await asyncio.to_thread(etcd.kill)
        await asyncio.to_thread(etcd.start)
        async with asyncio.timeout(TIMEOUT_S):
            while await registry_answer(registry.owner(S)) != owned(1):
                await asyncio.sleep(0.05)
        with pytest.raises(RegistryUnavailable, match="begins anew"):
            await registry.claim(S, owned(1), owned(2))
        may_load.set()
        async with asyncio.timeout(TIMEOUT_S):
            assert await next_event == Reloaded({S: owned(1)}, {}, {})
        assert (await registry.claim(S, owned(1), owned(2))).won
    await registry.close()


async def registry_answer(asking: Awaitable[T]) -> T | None:
    try:
        return await asking
    except RegistryUnavailable:
        return None


async def test_a_watch_whose_past_was_compacted_loads_anew(
    etcd: EtcdServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, other = EtcdRegistry(etcd.endpoint, key_prefix), EtcdRegistry(etcd.endpoint, key_prefix)
    await registry.create(S, owned(1))
    real_load = registry._load
    compacted: list[None] = []

    async def load_and_then_compact(client: Any) -> tuple[list[Any], int]:
        """Between the load and the stream, changes are made and forgotten, once."""
        rows, revision = await real_load(client)
        if not compacted:
            await other.claim(S, owned(1), owned(2))
            await other.claim(S, owned(2), owned(3))
            compacted.append(await client.compact(revision + 2))
        return rows, revision

    monkeypatch.setattr(registry, "_load", load_and_then_compact)
    events: Any = changes(registry)
    async with aclosing(events):
        seen = await until(events, Reloaded({S: owned(3)}, {}, {}))
        assert seen == [Reloaded({S: owned(1)}, {}, {}), Reloaded({S: owned(3)}, {}, {})]
        await registry.claim(S, owned(3), owned(4))
        assert await until(events, OwnerChanged(S, owned(4))) == [OwnerChanged(S, owned(4))]
    await registry.close()
    await other.close()


async def test_row_that_another_version_has_written_can_be_claimed(etcd: EtcdServer, key_prefix: str) -> None:
    """It has a field that this version does not know; every claim that expects the row would fail for ever."""
    registry = EtcdRegistry(etcd.endpoint, prefix=key_prefix)
    await registry.start()
    site, row = SiteId("A"), SiteLogRow(identity="log", seen=3)
    assert await registry.claim_site_log(site, None, row)
    assert await registry.claim_tree(TreeRow(), TreeRow(epoch=1))
    client = await registry._client()
    for kind, name in ((LOG, site), (TREE, "")):
        key = registry._key(kind, name)
        written = json.loads((await client.get(key)).value)
        await client.put(key, json.dumps({**written, "of a later version": 1}).encode())
    assert not await registry.claim_site_log(site, row.model_copy(update={"seen": 4}), row)
    assert await registry.claim_site_log(site, row, row.model_copy(update={"seen": 5}))
    found = await registry.site_log(site)
    assert found is not None and found.seen == 5
    assert not await registry.claim_tree(TreeRow(epoch=2), TreeRow(epoch=3))
    assert await registry.claim_tree(TreeRow(epoch=1), TreeRow(epoch=2))
    await registry.close()


async def test_old_revisions_of_rows_are_compacted(etcd: EtcdServer, key_prefix: str) -> None:
    """Rows that change for ever would fill etcd, which keeps all that they were."""
    registries = [EtcdRegistry(etcd.endpoint, key_prefix, compact_s=0.5) for _ in range(2)]
    await registries[0].create(S, owned(1))
    client = await registries[0]._client()
    first = (await client.get(registries[0]._key("owner/", S))).mod_revision
    watches: list[Any] = [changes(registry) for registry in registries]

    async def past_is_gone() -> bool:
        request = rpc.RangeRequest(key=b"x", revision=first)
        try:
            await client.kvstub.Range(request, timeout=2)
        except rpc.RpcError as error:
            assert "compacted" in str(error)
            return True
        return False

    async with aclosing(watches[0]), aclosing(watches[1]), asyncio.timeout(TIMEOUT_S):
        for events in watches:
            await until(events, Reloaded({S: owned(1)}, {}, {}))
        epoch = 1
        while not await past_is_gone():
            await registries[1].claim(S, owned(epoch), owned(epoch + 1))
            epoch += 1
            for events in watches:
                # Nothing is skipped, and nothing is loaded anew, by who keeps up.
                assert await until(events, OwnerChanged(S, owned(epoch))) == [OwnerChanged(S, owned(epoch))]
            await asyncio.sleep(0.1)
        assert await registries[0].owner(S) == owned(epoch)
    for registry in registries:
        await registry.close()


async def test_more_rows_than_fit_in_one_read_are_loaded(
    etcd: EtcdServer, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "REGISTRY_ROWS", 7)
    registry = EtcdRegistry(etcd.endpoint, key_prefix)
    sessions = [SessionId(f"s{number}") for number in range(30)]
    await asyncio.gather(*(registry.create(session, owned(1)) for session in sessions))
    events: Any = changes(registry)
    async with asyncio.timeout(TIMEOUT_S), aclosing(events):
        assert await anext(events) == Reloaded(dict.fromkeys(sessions, owned(1)), {}, {})
    await registry.close()
