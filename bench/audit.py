"""What an audit costs, in CPU seconds of all its processes: Python, the JVM, and Spark's Python workers.

A run is written by the service's own records: one site, one producer, sessions with one receiver each, and as many
distinct expressions as are asked for, spread over the sessions. Each notification is wanted by one session or a few.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measurement import Row
from waypost.facts import Fact, FactKind, OwnedCause, encode_fact
from waypost.identity import Incarnation, Origin, SiteId, origin_of
from waypost.notification import Notification
from waypost.records import SITE_LOG_DDL, Closed, Published, encode_record

PR_SET_CHILD_SUBREAPER = 36
SITE, ORIGIN = "A", str(origin_of(SiteId("A")))
BATCH = 1000
SHARE_OF_THE_BUSIEST = 0.5


@dataclass(frozen=True, slots=True)
class Size:
    """What a run has.

    Args:
        skewed: whether half of all notifications are wanted by the first session.
    """

    notifications: int
    sessions: int
    expressions: int
    skewed: bool = False

    def __str__(self) -> str:
        skew = ", half of all to one session" if self.skewed else ""
        return (
            f"{self.notifications:,} notifications, {self.sessions:,} sessions, {self.expressions:,} expressions{skew}"
        )


CASES = {
    Size(20_000, 100, 100): "",
    Size(1_000_000, 1_000, 1_000): "<= 240",
    Size(1_000_000, 1_000, 10_000): "<= 600",
    Size(1_000_000, 1_000, 1_000, skewed=True): "",
}


def run() -> list[Row]:
    """Return one row for each size: CPU seconds of the audit."""
    return [Row(f"audit of {size}", "CPU s", (_measured(size)[0],), bound) for size, bound in CASES.items()]


def main(arguments: list[str]) -> None:
    """Measure one size: NOTIFICATIONS SESSIONS EXPRESSIONS [skewed], numbers and then the word."""
    notifications, sessions, expressions = (int(argument) for argument in arguments[:3])
    size = Size(notifications, sessions, expressions, skewed="skewed" in arguments[3:])
    cpu_s, wall_s, verdict = _measured(size)
    print(f"{size}: {cpu_s:.0f} CPU s, {wall_s:.0f} s, {json.dumps(verdict)}")


def _measured(size: Size) -> tuple[float, float, dict[str, object]]:
    with TemporaryDirectory(prefix="waypost-audit-") as folder:
        write(size, Path(folder))
        began, before = time.monotonic(), _cpu_s()
        # Spark's workers outlive the process that started them by a moment; only who waits for them is told their time.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
        command = [str(Path(sys.executable).with_name("waypost")), "audit", folder, "--json"]
        found = subprocess.run(command, stdout=subprocess.PIPE, check=False)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                break
        verdict = json.loads(found.stdout)
        totals = {"verdict": verdict["verdict"], **verdict["totals"]}
        return _cpu_s() - before, time.monotonic() - began, totals


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---------------------------------------------------------------- a run


def write(size: Size, root: Path) -> None:
    """Write a run in order to a folder."""
    drawn = random.Random(1)
    journal = root / "sites" / SITE / "journal"
    journal.mkdir(parents=True)
    given: dict[int, list[tuple[int, int]]] = defaultdict(list)
    with closing(sqlite3.connect(root / "sites" / SITE / "log.db")) as log, log:
        log.execute(SITE_LOG_DDL)
        log.executemany("INSERT INTO log VALUES (?, ?, 0)", _records(size, drawn, given))
        closed = encode_record(Closed("test", 0, {Origin(ORIGIN): size.notifications}))
        log.execute("INSERT INTO log VALUES (?, ?, 0)", (size.notifications, closed))
    with (journal / "all.jsonl").open("wb") as lines:
        lines.writelines(encode_fact(fact) + b"\n" for fact in _facts(size, given))


def _records(size: Size, drawn: random.Random, given: dict[int, list[tuple[int, int]]]) -> Iterator[tuple[int, bytes]]:
    for offset in range(size.notifications):
        is_busiest = size.skewed and drawn.random() < SHARE_OF_THE_BUSIEST
        topic = 0 if is_busiest else drawn.randrange(size.expressions)
        body = Notification({"topic": f"t{topic}", "size": drawn.randrange(100), "text": "x" * 50}).body
        given[topic % size.sessions].append((offset, zlib.crc32(body)))
        yield (
            offset,
            encode_record(
                Published(producer="p", incarnation=Incarnation("life"), sequence=offset + 1, at_ms=0, body=body)
            ),
        )


def _facts(size: Size, given: dict[int, list[tuple[int, int]]]) -> Iterator[Fact]:
    for number, fields in enumerate(_attested_by_proxy(size, given), start=1):
        yield Fact(writer="proxies", number=number, at_ms=0, **fields)
    for session, deliveries in given.items():
        for number, start in enumerate(range(0, len(deliveries), BATCH), start=1):
            offsets, digests = zip(*deliveries[start : start + BATCH], strict=True)
            yield Fact(
                writer=f"s{session}/r",
                number=number,
                at_ms=0,
                kind=FactKind.RECEIVED,
                session=f"s{session}",
                receiver="r",
                epoch=1,
                proxy="a",
                origin=ORIGIN,
                offsets=list(offsets),
                digests=list(digests),
            )


def _attested_by_proxy(size: Size, given: dict[int, list[tuple[int, int]]]) -> Iterator[dict[str, Any]]:
    """Yield the fields of the proxy's facts, in their order."""
    for topic in range(size.expressions):
        session = {"session": f"s{topic % size.sessions}", "epoch": 1}
        if topic < size.sessions:
            yield {"kind": FactKind.OWNED, "proxy": "a", "cause": OwnedCause.CREATE, **session}
        about = {"subscription": f"u{topic}", **session}
        yield {"kind": FactKind.SUBSCRIBED, "expression": f"topic == 't{topic}' && size >= 0", **about}
        yield {"kind": FactKind.EFFECTIVE, "frontier": {ORIGIN: -1}, **about}
    end = {ORIGIN: size.notifications - 1}
    for session_number in given:
        yield {
            "kind": FactKind.DRAINED,
            "session": f"s{session_number}",
            "receiver": "r",
            "epoch": 1,
            "frontier": end,
        }
    yield {"kind": FactKind.CLOSED}


if __name__ == "__main__":
    main(sys.argv[1:])
