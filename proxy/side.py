"""What both sides of a handover share here: feeding the machines of `handover/`, and asking the registry for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, Protocol, TypeVar

from federation.ports import Claimed
from handover import machine
from handover.messages import TRIGGERS, StoredEntry, TransferMessage
from proxy.context import Context
from proxy.course import AHEAD, COMMITTED, NO_ENDING, TIMEOUT, Course, Ending, Shown, ending_of
from proxy.effects import ClaimRow, ReadRow
from proxy.tally import Handover
from waypost.clock import NEVER
from waypost.errors import UnexpectedInput, WaypostError
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL, TRANSFERS_REMEMBERED, TRANSFERS_SHOWN
from waypost.records import FactKind


class _Transfer(Protocol):
    """A machine of one transfer."""

    session: SessionId
    transfer: str
    owned: Ownership
    wanted: Ownership
    state: Any

    @property
    def over(self) -> bool: ...
    def step(self, given: object, now_ms: int) -> list[object]: ...
    def tick(self, now_ms: int) -> list[object]: ...
    def next_deadline(self) -> int: ...


class _Running(Protocol):
    course: Course

    @property
    def machine(self) -> _Transfer: ...


UNKNOWN = "unknown transfer"
Running = TypeVar("Running", bound=_Running)


class Side(ABC, Generic[Running]):
    """The running transfers in one role, one a session at most."""

    role: str

    def __init__(self, context: Context) -> None:
        self._context = context
        self.running: dict[SessionId, Running] = {}
        self.over: dict[str, None] = {}
        """Transfers that ended or were superseded lately: a late message is nobody's fault, and begins none again."""
        self.ended: deque[Shown] = deque(maxlen=TRANSFERS_SHOWN)

    @abstractmethod
    def peer(self, one: Running) -> ProxyId:
        """Return who is on the other side."""

    @abstractmethod
    def act(self, one: Running, effect: object) -> None:
        """Perform an effect that only this role has."""

    @abstractmethod
    def outcome(self, one: Running, effects: list[object]) -> str:
        """Return what has become of a transfer that ends with these effects."""

    def course(self, trigger: str) -> Course:
        """Return the course of a transfer that begins now."""
        now = self._context.clock.now_ms()
        return Course(trigger if trigger in TRIGGERS else "other", now, self._context.clock.unix_ms(), now)

    def begin(self, one: Running) -> None:
        """The transfer is under way."""
        self.running[one.machine.session] = one
        self._attest(one, one.machine.state.name.lower())

    def answered(self, one: Running, current: Ownership | None) -> None:
        """Take what the registry's row says."""
        self.feed(one, machine.owner_input(current, one.machine.owned, one.machine.wanted))

    def refuse(self, name: str, sender: ProxyId, message: TransferMessage) -> None:
        """Count a message that is wrong, by the name of what is wrong with it; one that is only late is not."""
        if name == UNKNOWN and message.transfer in self.over:
            return
        detail = f"{type(message).__name__} of session {message.session}, transfer {message.transfer}"
        self._context.refused.note(name, sender, f"{detail}, epoch {message.epoch}"[:REFUSAL_DETAIL])

    def wrong(self, one: Running | None, sender: ProxyId, message: TransferMessage) -> str:
        """Return why the message is not one of this transfer, by name; empty: it is one."""
        if one is None or one.machine.transfer != message.transfer:
            return UNKNOWN
        if self.peer(one) != sender:
            return "wrong sender"
        return "wrong epoch" if one.machine.owned.epoch != message.epoch else ""

    def feed(self, one: Running, given: object, said: object = None) -> None:
        """Give the machine an input. One that its table does not list is counted, and changes nothing.

        Args:
            said: the message that the input stands for, if it is another one.
        """
        before = one.machine.state
        try:
            effects = one.machine.step(given, self._context.clock.now_ms())
        except UnexpectedInput:
            name = f"unexpected {type(said or given).__name__} in {one.machine.state.name}"
            transfer = one.machine
            detail = f"session {transfer.session}, transfer {transfer.transfer}, epoch {transfer.owned.epoch}"
            self._context.refused.note(name, self.peer(one), detail[:REFUSAL_DETAIL])
            return
        self.perform(one, before, effects, ending_of(given))

    def tick(self) -> None:
        for one in list(self.running.values()):
            before = one.machine.state
            self.perform(one, before, one.machine.tick(self._context.clock.now_ms()), TIMEOUT)

    def next_deadline(self) -> int:
        if not self.running:
            return NEVER
        return min([one.machine.next_deadline() for one in self.running.values()])

    def perform(self, one: Running, before: Any, effects: list[object], ending: Ending = NO_ENDING) -> None:
        if one.machine.state is not before:
            self._turned(one, before, effects, ending)
        for effect in effects:
            if isinstance(effect, machine.Claim):
                self._claim(one, effect)
            elif isinstance(effect, machine.ReadOwner):
                self._read(one)
            else:
                self.act(one, effect)

    def _turned(self, one: Running, before: Any, effects: list[object], ending: Ending) -> None:
        """A phase is over, or the transfer is."""
        now = self._context.clock.now_ms()
        one.course.turn(before.name.lower(), now)
        if one.machine.over:
            self._ended(one, self.outcome(one, effects), one.course.ending if one.course.ending.cause else ending)
            return
        if machine.Claim in map(type, effects):
            one.course.ending = ending
        self._attest(one, one.machine.state.name.lower())

    def carried(self, one: Running, part: str, entries: list[StoredEntry]) -> None:
        """A chunk went over."""
        size = sum(len(each.delivery) for each in entries)
        one.course.entries[part] += len(entries)
        one.course.bytes[part] += size
        self._context.tally.copied[self.role, part] += len(entries)
        self._context.tally.copied_bytes[self.role, part] += size

    def cut_short(self, one: Running, outcome: str, ending: Ending) -> None:
        """The transfer is over, and its machine was not asked."""
        one.course.turn(one.machine.state.name.lower(), self._context.clock.now_ms())
        self._ended(one, outcome, ending)

    def _ended(self, one: Running, outcome: str, ending: Ending) -> None:
        self.over[one.machine.transfer] = None
        if len(self.over) > TRANSFERS_REMEMBERED:
            del self.over[next(iter(self.over))]
        course, tally = one.course, self._context.tally
        if outcome == COMMITTED:
            ending = NO_ENDING
        tally.handovers[Handover(self.role, course.trigger, outcome, ending.cause)] += 1
        for phase, spent_ms in course.spent_ms.items():
            tally.phases[self.role, phase].note(spent_ms)
        if "frozen" in course.spent_ms:
            tally.pauses[outcome].note(course.spent_ms["frozen"] + course.spent_ms.get("reclaiming", 0))
        why = f": {ending.why}"[:REFUSAL_DETAIL] if ending.why else ""
        self._attest(one, f"{outcome}{why}")
        self.ended.append(self._shown(one, outcome, ending))

    def _attest(self, one: Running, phase: str) -> None:
        transfer, course = one.machine, one.course
        self._context.attest(
            FactKind.HANDOVER,
            transfer.session,
            reason=f"{self.role} {phase}",
            transfer=transfer.transfer,
            epoch=transfer.owned.epoch,
            entries=sum(course.entries.values()),
            bytes=sum(course.bytes.values()),
        )

    def _shown(self, one: Running, outcome: str = "", ending: Ending = NO_ENDING) -> Shown:
        transfer, course, now = one.machine, one.course, self._context.clock.now_ms()
        return Shown(
            transfer.session,
            transfer.transfer,
            self.role,
            self.peer(one),
            transfer.owned.epoch,
            course.trigger,
            "ended" if outcome else transfer.state.name.lower(),
            outcome,
            ending.cause,
            ending.why,
            course.began_at_ms,
            now - course.began_ms,
            now - course.turned_ms,
            dict(course.spent_ms),
            sum(course.entries.values()),
            sum(course.bytes.values()),
            course.entries[AHEAD],
        )

    def shown(self) -> list[Shown]:
        """Return the transfers that run, and those that ended lately, the latest first; for operators."""
        return [*(self._shown(one) for one in self.running.values()), *reversed(self.ended)]

    def _is_running(self, one: Running) -> bool:
        return self.running.get(one.machine.session) is one

    def _claim(self, one: Running, claim: machine.Claim) -> None:
        def then(answer: Claimed | WaypostError) -> None:
            if not self._is_running(one):
                return
            if isinstance(answer, WaypostError):
                self.feed(one, machine.ClaimUnknown())
            else:
                self.answered(one, answer.current)

        self._context.emit(ClaimRow(one.machine.session, claim.expected, claim.new, then))

    def _read(self, one: Running) -> None:
        def then(answer: Ownership | WaypostError | None) -> None:
            if self._is_running(one) and not isinstance(answer, WaypostError):
                self.answered(one, answer)

        self._context.emit(ReadRow(one.machine.session, then))


def older(current: Ownership | None, owned: Ownership) -> bool:
    """Tell whether this is old news: the watch may be behind what was claimed and read."""
    return current is None or current.epoch < owned.epoch
