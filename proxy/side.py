"""What both sides of a handover share here: feeding the machines of `handover/`, and asking the registry for them."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from federation.ports import Claimed
from handover import machine
from proxy.context import Context
from proxy.effects import ClaimRow, ReadRow
from waypost.errors import UnexpectedInput, WaypostError
from waypost.identity import Ownership, SessionId


class _Transfer(Protocol):
    """A machine of one transfer."""

    session: SessionId
    transfer: str
    owned: Ownership
    wanted: Ownership
    state: Any

    def step(self, given: object, now_ms: int) -> list[object]: ...
    def tick(self, now_ms: int) -> list[object]: ...
    def next_deadline(self) -> int | None: ...


class _Running(Protocol):
    @property
    def machine(self) -> _Transfer: ...


Running = TypeVar("Running", bound=_Running)


class Side(Generic[Running]):
    """The running transfers in one role, one a session at most."""

    role: str

    def __init__(self, context: Context) -> None:
        self._context = context
        self.running: dict[SessionId, Running] = {}
        self.refused_inputs = 0

    def act(self, one: Running, effect: object) -> None:
        """Perform an effect that only this role has."""
        raise NotImplementedError

    def answered(self, one: Running, current: Ownership | None) -> None:
        """Take what the registry's row says."""
        self.feed(one, machine.owner_input(current, one.machine.owned, one.machine.wanted))

    def feed(self, one: Running, given: object) -> None:
        """Give the machine an input. One that its table does not list is counted, and changes nothing."""
        before = one.machine.state
        try:
            effects = one.machine.step(given, self._context.clock.now_ms())
        except UnexpectedInput:
            self.refused_inputs += 1
            return
        self.perform(one, before, effects)

    def tick(self) -> None:
        for one in list(self.running.values()):
            before = one.machine.state
            self.perform(one, before, one.machine.tick(self._context.clock.now_ms()))

    def next_deadline(self) -> int | None:
        deadlines = [one.machine.next_deadline() for one in self.running.values()]
        return min((each for each in deadlines if each is not None), default=None)

    def perform(self, one: Running, before: object, effects: list[object]) -> None:
        if one.machine.state is not before:
            self._attest(one)
        for effect in effects:
            if isinstance(effect, machine.Claim):
                self._claim(one, effect)
            elif isinstance(effect, machine.ReadOwner):
                self._read(one)
            else:
                self.act(one, effect)

    def _attest(self, one: Running) -> None:
        transfer = one.machine
        self._context.attest(
            "handover",
            reason=f"{self.role} {transfer.state.name.lower()}",
            transfer=transfer.transfer,
            epoch=transfer.owned.epoch,
        )

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
