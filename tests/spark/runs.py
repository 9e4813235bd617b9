"""Builds small runs by the service's own records: logs and journals as they would be left on disk."""

from __future__ import annotations

import sqlite3
import zlib
from collections import defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec import structs

from waypost.facts import Fact, FactKind, OwnedCause, encode_fact
from waypost.identity import Coordinate, Incarnation, Origin, SiteId, origin_of
from waypost.keys import OPEN, Protection, texts
from waypost.notification import Notification, Value
from waypost.records import SITE_LOG_DDL, Closed, Forwarded, LogBegun, Published, Record, encode_record


def origin(site: str) -> str:
    return origin_of(SiteId(site))


class Run:
    """A run in the making. Logs and journals may be tampered with before they are written."""

    def __init__(self) -> None:
        self.logs: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.journals: dict[str, list[Fact | bytes]] = defaultdict(list)
        self.records: dict[Coordinate, Published] = {}
        self.sequences: dict[str, int] = defaultdict(int)
        self.epochs: dict[str, int] = defaultdict(lambda: 1)
        self.owned: set[tuple[str, int]] = set()

    def origin(self, site: str) -> str:
        """Return where notifications are first appended at a site now."""
        return origin_of(SiteId(site), log_epoch=self.epochs[site])

    def append(self, site: str, record: Record | bytes) -> int:
        log = self.logs[site]
        offset = max(log, default=-1) + 1
        log[offset] = record if isinstance(record, bytes) else encode_record(record)
        return offset

    def publish(
        self,
        site: str,
        producer: str = "p",
        sequence: int | None = None,
        protection: Protection = OPEN,
        **attributes: Value,
    ) -> Coordinate:
        """Append a notification to a site's log; the producer counts by itself unless told."""
        self.sequences[producer] = self.sequences[producer] + 1 if sequence is None else sequence
        body = Notification(attributes).body
        record = Published(
            producer=producer,
            incarnation=Incarnation("life"),
            sequence=self.sequences[producer],
            at_ms=0,
            body=body,
            protection=protection,
        )
        coordinate = Coordinate(Origin(self.origin(site)), self.append(site, record))
        self.records[coordinate] = record
        return coordinate

    def lose_end(self, site: str, lost: int, ended: dict[str, tuple[int, int]] | None = None) -> None:
        """Let a site's log lose its last records, and say so."""
        log, before = self.logs[site], self.origin(site)
        seen = max(log, default=-1)
        for offset in range(seen - lost + 1, seen + 1):
            del log[offset]
        self.begin_epoch(site, (ended or {}) | {before: (seen - lost, seen)})

    def begin_epoch(self, site: str, ended: dict[str, tuple[int, int]], *, again: bool = False) -> int:
        """Let a site's log say that it is in its next log epoch, or, `again`, in which it is."""
        self.epochs[site] += not again
        ends = {Origin(origin): span for origin, span in ended.items()}
        log_begun = LogBegun(federation="f", identity="i", log_epoch=self.epochs[site], ended=ends, again=again)
        return self.append(site, log_begun)

    def forward(
        self, site: str, coordinate: Coordinate, body: bytes | None = None, protection: Protection | None = None
    ) -> None:
        """Append a copy of a notification to another site's log, as a link would."""
        record = self.records.get(coordinate) or Published(
            producer="nobody", incarnation=Incarnation("life"), sequence=1, at_ms=0, body=b"\x80"
        )
        site_id = SiteId(coordinate.origin.rpartition("/")[0])
        copy = Forwarded(
            link=site_id,
            link_epoch=1,
            origin=coordinate.origin,
            offset=coordinate.offset,
            path=(site_id,),
            producer=record.producer,
            incarnation=record.incarnation,
            sequence=record.sequence,
            protection=record.protection if protection is None else protection,
            at_ms=0,
            body=record.body if body is None else body,
        )
        self.append(site, copy)

    def fact(self, writer: str, kind: str, **fields: Any) -> Fact:
        journal = self.journals[writer]
        last = journal[-1] if journal else None
        number = last.number + 1 if isinstance(last, Fact) else len(journal) + 1
        fact = Fact(writer=writer, number=number, at_ms=fields.pop("at_ms", 0), kind=FactKind(kind), **fields)
        journal.append(fact)
        return fact

    def attest(self, kind: str, session: str, **fields: Any) -> Fact:
        """Let the one proxy's journal say something about a session."""
        return self.fact("proxies", kind, session=session, **fields)

    def subscribe(
        self,
        session: str,
        expression: str,
        above: dict[str, int],
        *,
        subscription: str = "s1",
        epoch: int = 1,
        generation: str = "",
        protection: Protection = OPEN,
    ) -> None:
        about: dict[str, Any] = {"subscription": subscription, "epoch": epoch, "subscription_generation": generation}
        asked = {"keys": texts(protection.keys), "secure_only": not protection.insecure}
        self.attest("subscribed", session, expression=expression, **asked, **about)
        self.attest("effective", session, frontier=above, **about)

    def own(self, session: str, proxy: str, epoch: int, cause: str = OwnedCause.CREATE) -> None:
        self.owned.add((session, epoch))
        self.attest("owned", session, proxy=proxy, epoch=epoch, cause=cause)

    def receive(
        self,
        session: str,
        *coordinates: Coordinate,
        receiver: str = "r",
        epoch: int = 1,
        proxy: str = "a",
        digest: int | None = None,
        generation: str = "",
        order: str = "any",
    ) -> None:
        """Let a receiver say that it got these in this order, in as many facts as their origins need.

        The proxy owns the session at the epoch, unless an owner is known already.
        """
        if (session, epoch) not in self.owned:
            self.own(session, proxy, epoch, OwnedCause.RESTART)
        batch: list[Coordinate] = []
        for coordinate in [*coordinates, None]:
            if batch and (coordinate is None or coordinate.origin != batch[0].origin):
                digests = [self._digest(each) if digest is None else digest for each in batch]
                offsets = [coordinate.offset for coordinate in batch]
                about: dict[str, Any] = {"session": session, "receiver": receiver, "epoch": epoch, "proxy": proxy}
                about |= {"origin": batch[0].origin, "offsets": offsets, "digests": digests, "order": order}
                self.fact(f"{session}/{receiver}{generation}", "received", **about)
                batch = []
            if coordinate is not None:
                batch.append(coordinate)

    def _digest(self, coordinate: Coordinate) -> int:
        record = self.records.get(coordinate)
        return zlib.crc32(record.body) if record else 0

    def drain(self, session: str, frontier: dict[str, int], receiver: str = "r", epoch: int = 1) -> None:
        self.attest("drained", session, receiver=receiver, frontier=frontier, epoch=epoch)

    def end(self, sites: tuple[str, ...] | None = None, exclude: tuple[str, ...] = ()) -> None:
        """Close every log and every journal, `but` those; what receivers' libraries write is never closed.

        A frontier that is higher than its log stands for the end of the log.
        """
        for site in sites or tuple(self.logs):
            if site not in exclude:
                last = max(self.logs[site], default=-1)
                origins = {
                    origin_of(SiteId(site), log_epoch=log_epoch + 1): last for log_epoch in range(self.epochs[site])
                }
                self.append(site, Closed("test", 0, origins))
        self._bound_frontiers()
        for writer in list(self.journals):
            kinds = [fact.kind for fact in self.journals[writer] if isinstance(fact, Fact)]
            if writer not in exclude and set(kinds) != {"received"}:
                self.fact(writer, "closed")

    def _bound_frontiers(self) -> None:
        ends = {site: max(log, default=-1) for site, log in self.logs.items()}
        for journal in self.journals.values():
            for number, fact in enumerate(journal):
                if isinstance(fact, Fact) and fact.frontier:
                    frontier = {
                        origin: min(upto, ends.get(origin.rpartition("/")[0], upto))
                        for origin, upto in fact.frontier.items()
                    }
                    journal[number] = structs.replace(fact, frontier=frontier)

    def something_else(self, site: str) -> Coordinate:
        """Append a record that is no notification; return where one would stand."""
        return Coordinate(Origin(self.origin(site)), self.append(site, Closed("somebody", 0, {})))

    def lines(self) -> list[bytes]:
        facts = (fact for journal in self.journals.values() for fact in journal)
        return [fact if isinstance(fact, bytes) else encode_fact(fact) for fact in facts]

    def write(self, root: Path) -> Path:
        for site, log in self.logs.items():
            folder = root / "sites" / site
            (folder / "journal").mkdir(parents=True)
            with closing(sqlite3.connect(folder / "log.db")) as database, database:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(SITE_LOG_DDL)
                database.executemany("INSERT INTO log VALUES (?, ?, 0)", log.items())
        first = root / "sites" / min(self.logs) / "journal"
        lines = self.lines()
        half = len(lines) // 2
        (first / "one [1].jsonl").write_bytes(b"".join(line + b"\n" for line in lines[:half]))
        (first / "two.jsonl").write_bytes(b"".join(line + b"\n" for line in lines[half:]))
        return root
