"""One engine alone, its effects in a list, answered by hand."""

from __future__ import annotations

import random
from typing import Any, TypeVar

import msgspec

from federation.ports import Claimed, ProxyRow, Reloaded
from proxy.core import effects
from proxy.core.inputs import (
    ClientConnected,
    ClientSent,
    EffectCompleted,
    EngineInput,
    LeaseGranted,
    RecordsRead,
    RegistryReported,
)
from proxy.core.settings import Settings
from proxy.core.store_port import Restored
from proxy.engine import Engine
from waypost.clock import ManualClock
from waypost.facts import Fact
from waypost.identity import Epoch, Incarnation, Ownership, ProxyId, SessionId, SiteId
from waypost.messages import VERSION, Attach, ClientMessage, Hello
from waypost.records import Record

Kind = TypeVar("Kind")
ME, SESSION = ProxyId("me"), SessionId("s")


def owner(proxy: str, epoch: int) -> Ownership:
    return Ownership(ProxyId(proxy), Epoch(epoch))


def row(proxy: str, site: str = "A") -> ProxyRow:
    return ProxyRow(
        proxy=ProxyId(proxy), incarnation=Incarnation(f"{proxy}#1"), site=SiteId(site), url=proxy, changelog=site
    )


class EngineHarness:
    """The engine of proxy `me` at site A, with a lease for ever unless it is said otherwise."""

    def __init__(
        self,
        restored: Restored | None = None,
        *,
        lease: bool = True,
        watch: bool = True,
        neighbours: tuple[str, ...] = (),
        creations_per_s: int = 0,
    ) -> None:
        self.clock = ManualClock(1_000)
        settings = Settings(
            proxy=ME, site=SiteId("A"), neighbours=tuple(map(SiteId, neighbours)), creations_per_s=creations_per_s
        )
        self.engine = Engine(
            settings, random.Random(0), Incarnation("me#1"), now_ms=1_000, unix_ms=1_000, restored=restored
        )
        self._wanted: list[effects.Effect] = []
        """Effects that nobody has looked at."""
        self.pending: list[effects.Effect] = []
        self.sent: list[tuple[int, msgspec.Struct | msgspec.Raw]] = []
        self.log: list[Record] = []
        self.facts: list[Fact] = []
        self.journal_waits = self.changelog_waits = False
        """Facts are not written before somebody answers."""
        if watch:
            self.reload()
        if lease:
            self.lease()

    def lease(self) -> None:
        self.step(LeaseGranted(Incarnation("me#1"), 1 << 40))
        self.run_effects()

    def reload(self, owners: dict[SessionId, Ownership] | None = None, *others: str) -> None:
        proxies = {row(name).proxy: row(name) for name in ("me", *others)}
        changelogs = {row.site: row.changelog for row in proxies.values()}
        self.step(RegistryReported(Reloaded(owners or {}, proxies, {}, changelogs)))
        self.run_effects()

    def step(self, input: EngineInput) -> None:
        """Step the engine; its effects wait for :meth:`run_effects`, or for :meth:`take_effects`."""
        self._wanted += self.engine.step(input, self.clock.now_ms(), self.clock.unix_ms())

    def tick(self) -> None:
        self._wanted += self.engine.tick(self.clock.now_ms(), self.clock.unix_ms())

    def finish(self, effect: Any, result: object) -> None:
        """Answer an effect."""
        self.step(EffectCompleted(effect.on_done, result))

    def take_effects(self) -> list[effects.Effect]:
        """Take the effects that nobody has looked at, those of a part that a test has called included."""
        self.step(EffectCompleted(effects.ignore_result, None))
        wanted, self._wanted = self._wanted, []
        return wanted

    def run_effects(self) -> None:
        """Take what came out; the log and the journal answer at once, and the changelog before a session is made."""
        while wanted := self.take_effects():
            for effect in wanted:
                match effect:
                    case effects.Send():
                        self.sent.append((effect.connection, effect.message))
                    case effects.Append():
                        offsets = [*range(len(self.log), len(self.log) + len(effect.records))]
                        self.log += effect.records
                        self.finish(effect, offsets)
                    case effects.FindLogEnd():
                        self.finish(effect, len(self.log))
                    case effects.Attest() if not self.journal_waits:
                        self.facts += effect.facts
                        self.finish(effect, None)
                    case effects.FindCheckpoint() if effect.within_ms is not None and not self.changelog_waits:
                        self.finish(effect, effects.FoundCheckpoint((), complete=True))
                    case effects.PutCheckpoint() if not effect.checkpoint.serial and not self.changelog_waits:
                        self.finish(effect, None)
                    case _:
                        self.pending.append(effect)

    def next(self, kind: type[Kind]) -> Kind:
        """Take the first effect of this kind out of those that wait."""
        for effect in self.pending:
            if isinstance(effect, kind):
                self.pending.remove(effect)
                return effect
        raise AssertionError(f"no {kind.__name__} among {[type(effect).__name__ for effect in self.pending]}")

    def complete(self, kind: type[Any], answer: object) -> None:
        """Answer the first effect of this kind that waits."""
        self.finish(self.next(kind), answer)
        self.run_effects()

    def complete_all(self, kind: type[Any], answer: object) -> None:
        for effect in [effect for effect in self.pending if isinstance(effect, kind)]:
            self.pending.remove(effect)
            self.finish(effect, answer)
        self.run_effects()

    def read_log(self) -> None:
        """Let the engine read its log up to the end."""
        start = self.engine.state.position
        self.step(RecordsRead(list(enumerate(self.log))[start:]))
        self.run_effects()

    def pass_time(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)
        self.tick()
        self.run_effects()

    # ------------------------------------------------------------ clients

    def send(self, connection: int, message: ClientMessage) -> None:
        if connection not in self.engine.dispatcher.connections:
            self.step(ClientConnected(connection))
            self.step(ClientSent(connection, Hello(VERSION, f"client {connection}")))
        self.step(ClientSent(connection, message))
        self.run_effects()

    def received(self, connection: int = 1) -> list[Any]:
        """Return what the connection was told since the last time."""
        messages = [message for recipient, message in self.sent if recipient == connection]
        self.sent = [sending for sending in self.sent if sending[0] != connection]
        return messages

    def attach(self, connection: int = 1, receiver: str = "r", frontier: dict[Any, int] | None = None) -> None:
        self.send(
            connection,
            Attach(session=SESSION, receiver=receiver, incarnation=f"i{connection}", frontier=frontier or {}),
        )
        if SESSION in self.engine.sessions:
            self.complete_writes()

    def serve(self, session_expiry_s: int | None = None) -> None:
        """Create the session and let receiver r of connection 1 in."""
        self.send(
            1, Attach(session=SESSION, receiver="r", incarnation="i1", frontier={}, session_expiry_s=session_expiry_s)
        )
        self.complete(effects.ReadRow, None)
        self.complete(effects.CreateRow, Claimed(True, owner("me", 1)))
        self.complete_writes()
        self.received()

    def complete_writes(self) -> None:
        """The store and the changelog take what they were given."""
        while any(isinstance(effect, effects.Save | effects.PutCheckpoint) for effect in self.pending):
            self.complete_all(effects.Save, None)
            self.complete_all(effects.PutCheckpoint, None)
