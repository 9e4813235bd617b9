"""One proxy with 100,000 idle sessions and 1,000,000 stored notifications: how it starts, and what it takes.

Every session has a subscription of its own, a receiver that is away, and ten notifications that nobody has had. The
state is written as a proxy that was stopped leaves it, by the proxy's own store, log and registry; then the process is
started on it with an ordinary lease. Goals: ready within 30 s, and 2 GiB of memory.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.request import urlopen

import waypost
from bench.backlog import resident_mb
from bench.measurement import Row
from chaos.cluster import ProxyProcess, ProxySpec
from chaos.servers.process import LOOPBACK
from federation.embedded.registry import EmbeddedRegistry
from federation.embedded.site_log import EmbeddedSiteLog
from federation.site.state import SiteState
from node.session_store.sqlite import SqliteSessionStore
from proxy.core.store_port import SavedSession, SessionChange, StoreBatch
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Subscription
from waypost.checkpoint import Descriptor, ReceiverRow
from waypost.checksum import checksum
from waypost.identity import (
    NOTHING,
    Epoch,
    Incarnation,
    Ownership,
    ProxyId,
    ReceiverId,
    SessionId,
    SiteId,
    SubscriptionId,
    origin_of,
)
from waypost.notification import Notification
from waypost.records import InterestRegistered, Published, Record
from waypost.subscription import parse

SESSIONS, STORED_EACH = 100_000, 10
SITE, PROXY, INCARNATION = SiteId("A"), ProxyId("a1"), Incarnation("before")
ORIGIN = origin_of(SITE)
AT_ONCE = 5_000
BODY = 150
SERVING = re.compile(r'^waypost_sessions\{role="serving"\} (\S+)', re.MULTILINE)
TIMEOUT_S = 300.0
IDLE_S = 10.0
POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Found:
    """What the start of a proxy with many sessions took.

    Args:
        ready_s: seconds from the start of the process until the proxy was ready.
        read_s: seconds until a client in the middle had what is stored for it.
        serving_s: seconds until all sessions were served.
        resident_mb: the process's resident memory then, in MiB.
    """

    ready_s: float
    read_s: float
    serving_s: float
    resident_mb: float
    idle: float
    """Share of a core."""


def run() -> list[Row]:
    """Start a proxy on a written state of SESSIONS sessions; return the rows of times, memory and processor."""
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(_leave(Path(root), SESSIONS))
        proxy = ProxyProcess(ProxySpec(PROXY, SITE, {"no-discovery": ""}), (), Path(root))
        with proxy.process:
            found = asyncio.run(_watch(proxy, SESSIONS))
    name = f"{SESSIONS:,} sessions, {SESSIONS * STORED_EACH:,} stored"
    return [
        Row(f"{name}: ready", "s", (found.ready_s,), "< 30"),
        Row(f"{name}: a client in the middle has what is stored", "s", (found.read_s,)),
        Row(f"{name}: all of them served", "s", (found.serving_s,)),
        Row(f"{name}: memory then", "MiB", (found.resident_mb,), "< 2,048"),
        Row(f"{name}: processor, idle", "% of a core", (100 * found.idle,)),
    ]


# ---------------------------------------------------------------- what was left


def session_of(number: int) -> SessionId:
    """Return the id of the session of this number, from 0."""
    return SessionId(f"scale/{number}")


def _expression(number: int) -> str:
    return f'station == "S{number}"'


def _descriptor(number: int) -> Descriptor:
    everything = {ORIGIN: NOTHING}
    wanted = Subscription(
        id=SubscriptionId("s"),
        expression=parse(_expression(number)),
        start=everything,
        promise_floor=everything,
        promised=everything,
    )
    wanted.owner, wanted.generation = "main", "1/1"
    return Descriptor(
        created_at=everything,
        subscriptions=[wanted.row()],
        receivers={ReceiverId("main"): ReceiverRow(acknowledged=0, frontier={})},
    )


def _record(number: int, count: int) -> Published:
    body = Notification({"station": f"S{number}", "text": "x" * BODY, "n": count}).body
    return Published(
        producer="bench",
        incarnation=INCARNATION,
        sequence=count * SESSIONS + number,
        at_ms=int(time.time() * 1000),
        body=body,
        check=checksum(body),
    )


def _records(sessions: int) -> Iterator[Record]:
    for number in range(sessions):
        yield InterestRegistered(PROXY, INCARNATION, session_of(number), (parse(_expression(number)).canonical,))
    for count in range(STORED_EACH):
        for number in range(sessions):
            yield _record(number, count)


async def _leave(root: Path, sessions: int) -> None:
    """Write what a proxy with so many sessions leaves behind when it is stopped."""
    state = SiteState(SITE)
    log = EmbeddedSiteLog(root / "sites" / SITE / "log.db", durable=False)
    await log.start()
    records = _records(sessions)
    while batch := list(islice(records, AT_ONCE)):
        for record in batch:
            state.fold(state.position, record)
        await log.append(batch)
    await log.close()
    registry = EmbeddedRegistry(root / "registry.db", durable=False)
    await registry.start()
    for begin in range(0, sessions, AT_ONCE):
        part = (session_of(number) for number in range(begin, min(begin + AT_ONCE, sessions)))
        await asyncio.gather(*(registry.create(session, Ownership(PROXY, Epoch(1))) for session in part))
    await registry.close()
    (root / "proxies" / PROXY).mkdir(parents=True)
    store = SqliteSessionStore(root / "proxies" / PROXY / "store.db")
    for begin in range(0, sessions, AT_ONCE):
        changes = [_change(number, sessions) for number in range(begin, min(begin + AT_ONCE, sessions))]
        await store.apply(
            StoreBatch(
                position=state.position,
                acceptance=state.acceptance.snapshot(),
                site_state=state.snapshot(),
                changes=changes,
                deleted=(),
            )
        )
    await store.close()


def _change(number: int, sessions: int) -> SessionChange:
    saved = SavedSession(
        id=session_of(number),
        epoch=Epoch(1),
        checkpointed=(Epoch(1), 0),
        role="serving",
        descriptor=_descriptor(number),
        first_number=1,
        next_number=STORED_EACH + 1,
        gates={},
    )
    entries = [
        (
            count + 1,
            StoredNotification.of(ORIGIN, (count + 1) * sessions + number, _record(number, count)),
            (SubscriptionId("s"),),
        )
        for count in range(STORED_EACH)
    ]
    return SessionChange(saved=saved, entries=entries)


# ---------------------------------------------------------------- how it starts


async def _watch(proxy: ProxyProcess, sessions: int) -> Found:
    """Look at a process that was started just now."""
    began = time.monotonic()
    reading = asyncio.create_task(_read_one(proxy, session_of(sessions // 2)))
    ready_s = read_s = serving_s = None
    look_at = 0.0
    async with asyncio.timeout(TIMEOUT_S):
        while serving_s is None:
            await asyncio.sleep(0.25)
            now = time.monotonic() - began
            if ready_s is None and await asyncio.to_thread(proxy.ready):
                ready_s = now
            if read_s is None and reading.done():
                read_s = now
            if ready_s is not None and now >= look_at:
                # A look walks over all sessions: not too often.
                look_at = now + POLL_S
                serving_s = now if await asyncio.to_thread(_serving, proxy) >= sessions else None
    await reading
    resident, before = resident_mb(proxy), _cpu_s(proxy)
    await asyncio.sleep(IDLE_S)
    return Found(ready_s or 0, read_s or serving_s, serving_s, resident, (_cpu_s(proxy) - before) / IDLE_S)


async def _read_one(proxy: ProxyProcess, session: SessionId) -> None:
    """Be served what is stored for one session, as soon as that can be."""
    while not proxy.listening:
        await asyncio.sleep(0.1)
    async with waypost.attach(session, proxy=proxy.url, create=False, timeout_s=TIMEOUT_S) as place:
        for _ in range(STORED_EACH):
            await anext(place)


def _serving(proxy: ProxyProcess) -> int:
    with urlopen(f"http://{LOOPBACK}:{proxy.port}/metrics", timeout=60) as answer:
        return int(float(SERVING.findall(answer.read().decode())[0]))


def _cpu_s(proxy: ProxyProcess) -> float:
    fields = Path(f"/proc/{proxy.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100
