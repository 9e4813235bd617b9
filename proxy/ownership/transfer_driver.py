"""The driver that both sides of a handover share: it feeds the machines of `handover/`, and asks the registry."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

from federation.ports import Claimed
from handover import machine
from handover.messages import StoredEntry, TransferMessage, Trigger
from proxy.core.counters import Handover
from proxy.core.effects import ReadRow, claim_row
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.refusals import Violation
from proxy.core.session_table import SessionTable
from proxy.core.transfer_record import (
    NO_ENDING,
    PRE_COPY,
    TIMEOUT,
    Ending,
    TransferRecord,
    TransferView,
    ending_of,
)
from proxy.ownership.stale_replies import refuse, why_stale
from waypost.clock import NEVER
from waypost.errors import UnexpectedInput, WaypostError
from waypost.facts import FactKind, TransferEnd
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL, TRANSFERS_REMEMBERED, TRANSFERS_SHOWN


class _Transfer(Protocol):
    """A machine of one transfer."""

    session: SessionId
    transfer: str
    owned: Ownership
    wanted: Ownership
    state: Any

    @property
    def over(self) -> bool: ...
    def step(self, input: Any, now_ms: int) -> Sequence[object]: ...
    def tick(self, now_ms: int) -> Sequence[object]: ...
    def next_deadline(self) -> int: ...


class _Running(Protocol):
    record: TransferRecord

    @property
    def machine(self) -> _Transfer: ...


PAUSED = ("frozen", "confirming", "reclaiming")
"""Phases in which nobody serves the session."""
Running = TypeVar("Running", bound=_Running)


class TransferDriver(ABC, Generic[Running]):
    """The running transfers in one role, one a session at most.

    A subclass names its `role`, and performs the effects that only this role has.
    """

    role: str

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self.running: Mapping[SessionId, Running] = self._sessions.transfers.of(self.role)
        self.recent_ids: dict[str, None] = {}
        """Transfers that ended or were superseded lately: a late message is nobody's fault, and begins none again."""
        self.recent_views: deque[TransferView] = deque(maxlen=TRANSFERS_SHOWN)

    @abstractmethod
    def peer(self, running: Running) -> ProxyId:
        """Return the proxy on the other side of the transfer."""

    @abstractmethod
    def act(self, running: Running, effect: Any) -> None:
        """Perform an effect of the transfer's machine that only this role has. Called by :meth:`perform`, which
        performs Claim and ReadOwner itself.

        Args:
            running: the transfer.
            effect: of handover/source.py or handover/target.py.
        """

    @abstractmethod
    def outcome(self, running: Running, effects: Sequence[object]) -> TransferEnd:
        """Return the outcome of a transfer that ends with these effects."""

    def record(self, trigger: Trigger) -> TransferRecord:
        """Return the record of a transfer that begins now."""
        now = self._env.time.now_ms
        return TransferRecord(
            trigger=trigger,
            incarnation=self._env.lease.incarnation,
            began_ms=now,
            began_at_ms=self._env.time.unix_ms,
            phase_since_ms=now,
        )

    def begin(self, running: Running) -> None:
        """Add a transfer to those that run, in place of any other of its session, and attest its phase."""
        self._sessions.transfers.put(self.role, running.machine.session, running)
        self._attest(running, running.machine.state.name.lower())

    def remove(self, running: Running) -> None:
        """Remove a transfer from those that run; nothing is done if none of its session runs."""
        self._sessions.transfers.remove(self.role, running.machine.session)

    def answered(self, running: Running, current: Ownership | None) -> None:
        """Feed the transfer's machine with the session's row, as it was read or reported.

        A row older than the one that is handed over is passed over, as long as its owner lives: the registry has lost
        rows, and the owner writes its row again.

        Args:
            current: the row; None: there is none.
        """
        owned = running.machine.owned
        if is_of_earlier_epoch(current, owned) and (
            owned.proxy == self._env.proxy or self._env.cluster.alive(owned.proxy)
        ):
            return
        self.feed(running, machine.owner_input(current, running.machine.owned, running.machine.wanted))

    def refuse(self, violation: Violation, sender: ProxyId, message: TransferMessage) -> None:
        """Count a refused message; one of a transfer that ended lately is only late, and is not counted.

        Args:
            violation: why it is refused.
        """
        if violation is Violation.UNKNOWN_TRANSFER and message.transfer in self.recent_ids:
            return
        detail = f"{type(message).__name__} of session {message.session}, transfer {message.transfer}"
        self._output.refused.note(violation, sender, f"{detail}, epoch {message.epoch}"[:REFUSAL_DETAIL])

    def violation(self, running: Running | None, sender: ProxyId, message: TransferMessage) -> Violation | None:
        """Return why a message does not belong to a transfer; None: it belongs to it.

        Args:
            running: the transfer of the message's session; None: none runs.
            sender: the proxy that sent the message.
        """
        if running is None or running.machine.transfer != message.transfer:
            return Violation.UNKNOWN_TRANSFER
        if self.peer(running) != sender:
            return Violation.WRONG_SENDER
        return Violation.WRONG_EPOCH if running.machine.owned.epoch != message.epoch else None

    def feed(self, running: Running, input: object, message: object = None) -> None:
        """Step the transfer's machine with an input, and perform the effects. An unexpected input is only counted as
        refused.

        Args:
            running: the transfer.
            input: of handover/source.py, handover/target.py or handover/machine.py, or a message that is one.
            message: the message that the input stands for, if that is not the input itself; only its name is counted.
        """
        before = running.machine.state
        try:
            effects = running.machine.step(input, self._env.time.now_ms)
        except UnexpectedInput:
            name = f"unexpected {type(message or input).__name__} in {running.machine.state.name}"
            transfer = running.machine
            detail = f"session {transfer.session}, transfer {transfer.transfer}, epoch {transfer.owned.epoch}"
            self._output.refused.note(name, self.peer(running), detail[:REFUSAL_DETAIL])
            return
        self.perform(running, before, effects, ending_of(input))

    def tick(self) -> None:
        """Step each machine with what is due: a retry, or a timeout."""
        for running in list(self.running.values()):
            before = running.machine.state
            self.perform(running, before, running.machine.tick(self._env.time.now_ms), TIMEOUT)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: no transfer runs."""
        if not self.running:
            return NEVER
        return min([running.machine.next_deadline() for running in self.running.values()])

    def perform(self, running: Running, before: Any, effects: Sequence[object], ending: Ending = NO_ENDING) -> None:
        """Perform the effects of a step, in order. If the step has changed the machine's state, the phase that is over
        is recorded, or the end of the transfer.

        Args:
            before: the machine's state before the step.
            effects: of the step.
            ending: why the transfer has ended, if it has by this step.
        """
        if running.machine.state is not before:
            self._enter_phase(running, before, effects, ending)
        for effect in effects:
            if isinstance(effect, machine.Claim):
                self._claim(running, effect)
            elif isinstance(effect, machine.ReadOwner):
                self._read(running)
            else:
                self.act(running, effect)

    def _enter_phase(self, running: Running, before: Any, effects: Sequence[object], ending: Ending) -> None:
        """Record the end of a phase, or of the transfer."""
        now = self._env.time.now_ms
        running.record.enter_phase(before.name.lower(), now)
        if running.machine.over:
            self._ended(
                running,
                self.outcome(running, effects),
                running.record.ending if running.record.ending.cause else ending,
            )
            return
        if any(isinstance(effect, machine.Claim | machine.FindLaterOwner) for effect in effects):
            running.record.ending = running.record.ending if running.record.ending.cause else ending
        self._attest(running, running.machine.state.name.lower())

    def carried(self, running: Running, part: str, entries: list[StoredEntry]) -> None:
        """Count a chunk that was sent or received, in the transfer's record and in the counters.

        Args:
            part: PRE_COPY or FINAL_COPY.
            entries: of the chunk.
        """
        size = sum(len(stored_entry.delivery) for stored_entry in entries)
        running.record.entries[part] += len(entries)
        running.record.bytes[part] += size
        self._output.counters.copied[self.role, part] += len(entries)
        self._output.counters.copied_bytes[self.role, part] += size

    def cut_short(self, running: Running, outcome: TransferEnd, ending: Ending) -> None:
        """Record that a transfer has ended without a step of its machine; the caller removes it from :attr:`running`.

        Args:
            outcome: how it ends.
            ending: why it has ended.
        """
        running.record.enter_phase(running.machine.state.name.lower(), self._env.time.now_ms)
        self._ended(running, outcome, ending)

    def _ended(self, running: Running, outcome: TransferEnd, ending: Ending) -> None:
        self.recent_ids[running.machine.transfer] = None
        if len(self.recent_ids) > TRANSFERS_REMEMBERED:
            del self.recent_ids[next(iter(self.recent_ids))]
        record, counters = running.record, self._output.counters
        if outcome == TransferEnd.COMMITTED:
            ending = NO_ENDING
        counters.handovers[Handover(self.role, record.trigger, outcome, ending.cause)] += 1
        for phase, spent_ms in record.spent_ms.items():
            counters.phases[self.role, phase].note(spent_ms)
        if "frozen" in record.spent_ms:
            counters.pauses[outcome].note(sum(record.spent_ms.get(phase, 0) for phase in PAUSED))
        why = ending.why[:REFUSAL_DETAIL]
        self._attest(running, outcome, why)
        self.recent_views.append(self._view(running, outcome, ending))

    def _attest(self, running: Running, phase: str, reason: str = "") -> None:
        transfer, record = running.machine, running.record
        self._output.journal.attest(
            FactKind.HANDOVER,
            transfer.session,
            role=self.role,
            phase=phase,
            reason=reason,
            transfer=transfer.transfer,
            epoch=transfer.owned.epoch,
            entries=sum(record.entries.values()),
            bytes=sum(record.bytes.values()),
        )

    def _view(self, running: Running, outcome: TransferEnd | None = None, ending: Ending = NO_ENDING) -> TransferView:
        transfer, record, now = running.machine, running.record, self._env.time.now_ms
        return TransferView(
            session=transfer.session,
            transfer=transfer.transfer,
            role=self.role,
            peer=self.peer(running),
            epoch=transfer.owned.epoch,
            trigger=record.trigger,
            phase="ended" if outcome else transfer.state.name.lower(),
            outcome=outcome,
            cause=ending.cause,
            why=ending.why,
            began_at_ms=record.began_at_ms,
            age_ms=now - record.began_ms,
            phase_ms=now - record.phase_since_ms,
            phases_ms=dict(record.spent_ms),
            entries=sum(record.entries.values()),
            bytes=sum(record.bytes.values()),
            pre_copied=record.entries[PRE_COPY],
        )

    def views(self) -> list[TransferView]:
        """Return the transfers that run, then those that ended lately, the latest first; for operators."""
        return [*(self._view(running) for running in self.running.values()), *reversed(self.recent_views)]

    def _is_stale(self, running: Running) -> bool:
        """Tell whether an answer comes for a transfer that is over, and count it then. A transfer ends with the lease
        under which it began.
        """
        is_running = self.running.get(running.machine.session) is running
        stale = why_stale(self._env.lease, running.record.incarnation, is_same_attempt=is_running)
        return refuse(self._output.counters, stale)

    def _claim(self, running: Running, claim: machine.Claim) -> None:
        self.claim_after(running, claim.expected, claim.new)

    def claim_after(self, running: Running, before: Ownership | None, wanted: Ownership) -> None:
        """Compare and set the session's row, and feed the answer to the transfer if it still runs.

        Args:
            before: the row that the registry must have; None: it must have none.
            wanted: the row that takes its place.
        """

        def on_done(answer: Claimed | WaypostError) -> None:
            if self._is_stale(running):
                return
            if isinstance(answer, WaypostError):
                self.feed(running, machine.ClaimUnknown())
            else:
                self.answered(running, answer.current)

        self._output.emit(claim_row(running.machine.session, before, wanted, on_done))

    def _read(self, running: Running) -> None:
        def on_done(answer: Ownership | WaypostError | None) -> None:
            if not self._is_stale(running) and not isinstance(answer, WaypostError):
                self.answered(running, answer)

        self._output.emit(ReadRow(running.machine.session, on_done))


def is_of_earlier_epoch(current: Ownership | None, owned: Ownership) -> bool:
    """Tell whether a row is of an earlier epoch than one that is known: the watch may be behind what was claimed or
    read.

    Args:
        current: the row as reported; None: there is none, which counts as older.
        owned: the row that is known.
    """
    return current is None or current.epoch < owned.epoch
