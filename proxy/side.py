"""What both sides of a handover share here: feeding the machines of `handover/`, and asking the registry for them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from federation.ports import Claimed
from handover import machine
from handover.messages import Aborted, Refused, TransferMessage
from proxy.context import Context
from proxy.effects import ClaimRow, ReadRow
from waypost.clock import NEVER
from waypost.errors import UnexpectedInput, WaypostError
from waypost.identity import Ownership, ProxyId, SessionId
from waypost.limits import REFUSAL_DETAIL, TRANSFERS_SHOWN


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
    began_ms: int
    entries: int
    bytes: int

    @property
    def machine(self) -> _Transfer: ...


class Shown(NamedTuple):
    """One transfer, as operators see it: of how many entries and bytes, in which phase, for how long, why it ended."""

    session: SessionId
    transfer: str
    role: str
    peer: ProxyId
    epoch: int
    phase: str
    why: str
    began_ms: int
    age_ms: int
    entries: int
    bytes: int


Running = TypeVar("Running", bound=_Running)


class Side(ABC, Generic[Running]):
    """The running transfers in one role, one a session at most."""

    role: str

    def __init__(self, context: Context) -> None:
        self._context = context
        self.running: dict[SessionId, Running] = {}
        self.ended: deque[Shown] = deque(maxlen=TRANSFERS_SHOWN)

    @abstractmethod
    def peer(self, one: Running) -> ProxyId:
        """Return who is on the other side."""

    @abstractmethod
    def act(self, one: Running, effect: object) -> None:
        """Perform an effect that only this role has."""

    def answered(self, one: Running, current: Ownership | None) -> None:
        """Take what the registry's row says."""
        self.feed(one, machine.owner_input(current, one.machine.owned, one.machine.wanted))

    def refuse(self, name: str, sender: ProxyId, message: TransferMessage) -> None:
        """Count a message that is wrong, by the name of what is wrong with it; it has changed nothing."""
        detail = f"{type(message).__name__} of session {message.session}, transfer {message.transfer}"
        self._context.refused.note(name, sender, f"{detail}, epoch {message.epoch}"[:REFUSAL_DETAIL])

    def wrong(self, one: Running | None, sender: ProxyId, message: TransferMessage) -> str:
        """Return why the message is not one of this transfer, by name; empty: it is one."""
        if one is None or one.machine.transfer != message.transfer:
            return "unknown transfer"
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
        self.perform(one, before, effects, _why(given))

    def tick(self) -> None:
        for one in list(self.running.values()):
            before = one.machine.state
            self.perform(one, before, one.machine.tick(self._context.clock.now_ms()), "patience was at an end")

    def next_deadline(self) -> int:
        if not self.running:
            return NEVER
        return min([one.machine.next_deadline() for one in self.running.values()])

    def perform(self, one: Running, before: object, effects: list[object], why: str = "") -> None:
        if one.machine.state is not before:
            self._attest(one, why)
        for effect in effects:
            if isinstance(effect, machine.Claim):
                self._claim(one, effect)
            elif isinstance(effect, machine.ReadOwner):
                self._read(one)
            else:
                self.act(one, effect)

    def _attest(self, one: Running, why: str) -> None:
        transfer = one.machine
        phase = transfer.state.name.lower()
        self._context.attest(
            "handover",
            transfer.session,
            reason=f"{self.role} {phase}",
            transfer=transfer.transfer,
            epoch=transfer.owned.epoch,
        )
        if transfer.over:
            self.ended.append(self._shown(one, why))

    def _shown(self, one: Running, why: str = "") -> Shown:
        transfer, now = one.machine, self._context.clock.now_ms()
        return Shown(
            transfer.session,
            transfer.transfer,
            self.role,
            self.peer(one),
            transfer.owned.epoch,
            transfer.state.name.lower(),
            why,
            one.began_ms,
            now - one.began_ms,
            one.entries,
            one.bytes,
        )

    def shown(self) -> list[Shown]:
        """Return the transfers that run and those that ended lately, for operators."""
        return [*(self._shown(one) for one in self.running.values()), *self.ended]

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


def _why(given: object) -> str:
    """Return in words what may have ended a transfer."""
    match given:
        case Refused(reason=reason) | Aborted(reason=reason):
            return reason
        case machine.PeerGone():
            return "the lease of the other proxy has ended"
        case machine.OwnedByOther():
            return "the registry names another owner"
        case machine.OwnedByUs():
            return "the registry names us"
        case _:
            return ""


def older(current: Ownership | None, owned: Ownership) -> bool:
    """Tell whether this is old news: the watch may be behind what was claimed and read."""
    return current is None or current.epoch < owned.epoch
