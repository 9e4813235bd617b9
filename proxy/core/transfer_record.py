"""The record of a transfer, its phases and its outcome: for operators, the journal and the counters."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from handover import machine, target
from handover.messages import Aborted, DeclineReason, TransferDeclined, TransferRefused, Trigger
from waypost.facts import TransferEnd
from waypost.identity import Incarnation, ProxyId, SessionId


class Cause(StrEnum):
    """Why a transfer came to nothing."""

    NONE = ""
    """The transfer runs, or was committed."""
    TIMEOUT = "timeout"
    SUPERSEDED = "superseded"
    LEASE_LOST = "lease lost"
    SOURCE_ENDS = "source ends"
    RECEIVER_BACK = "receiver back"
    REFUSED = "refused"
    TARGET_GAVE_UP = "target gave up"
    PEER_GONE = "peer gone"
    OWNER_CHANGED = "owner changed"
    STORE_FAILED = "store failed"
    OTHERS_ATTACHED = DeclineReason.OTHERS_ATTACHED.value
    LONG_COPY = DeclineReason.LONG_COPY.value
    ACCESS = DeclineReason.ACCESS.value


class Ending(NamedTuple):
    """Why a transfer came to nothing.

    Args:
        cause: by which it is counted.
        why: for people.
    """

    cause: Cause
    why: str


NO_ENDING = Ending(Cause.NONE, "")
TIMEOUT = Ending(Cause.TIMEOUT, "timed out")
SUPERSEDED = Ending(Cause.SUPERSEDED, "another transfer of the session began")
LEASE_LOST = Ending(Cause.LEASE_LOST, "the lease of this proxy may have ended")
LEAVING = Ending(Cause.SOURCE_ENDS, "the source was asked to end")
RECEIVER_BACK = Ending(Cause.RECEIVER_BACK, "a receiver came back to the source")
_WHY_DECLINED = {
    DeclineReason.OTHERS_ATTACHED: "others are attached at the source",
    DeclineReason.LONG_COPY: "the session follows when it is copied",
    DeclineReason.ACCESS: "the source looks first whether the receiver may have it",
}
PRE_COPY, FINAL_COPY = "ahead", "rest"
"""Which part of a copy: while the session is served, and after the freeze."""


@dataclass(slots=True, kw_only=True)
class TransferRecord:
    """How a transfer has gone so far, for operators and metrics. Times are milliseconds of the engine's clock.

    Args:
        began_ms: when it began.
        bytes: the size of the notifications carried so far.
    """

    trigger: Trigger
    incarnation: Incarnation
    """This proxy's, under whose lease it began."""
    began_ms: int
    began_at_ms: int
    """The beginning in Unix time, in ms."""
    phase_since_ms: int
    """The time since which it is in its present phase."""
    spent_ms: dict[str, int] = field(default_factory=dict)
    """In each phase before."""
    entries: dict[str, int] = field(default_factory=lambda: {PRE_COPY: 0, FINAL_COPY: 0})
    """Notifications carried so far, repeats included."""
    bytes: dict[str, int] = field(default_factory=lambda: {PRE_COPY: 0, FINAL_COPY: 0})
    ending: Ending = NO_ENDING
    """Why the source, which is about to take the session back, does not wait any more."""

    def enter_phase(self, phase: str, now_ms: int) -> None:
        """Add the time since the last change of phase to the phase that is over; the time of the next phase, which is
        not named, begins now.

        Args:
            phase: the name of the phase that is over.
            now_ms: by the engine's clock.
        """
        self.spent_ms[phase] = self.spent_ms.get(phase, 0) + now_ms - self.phase_since_ms
        self.phase_since_ms = now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferView:
    """One transfer, as operators see it. Times are in milliseconds.

    Args:
        session: the session.
        transfer: the name of the transfer.
        role: of this proxy: source or target.
        peer: the other proxy.
        epoch: of the session at its source.
        trigger: why it was begun.
        phase: the state of its machine, in lower case.
        outcome: how it has ended; None: it runs.
        cause: that of its Ending.
        why: the `why` of its Ending.
        began_at_ms: when it began, in Unix time.
        age_ms: how long it runs, or ran.
        phase_ms: how long it is in its phase.
        phases_ms: how long it was in each phase before.
        entries: how many notifications of the copy were carried so far.
        bytes: their size.
        pre_copied: how many of them went before the freeze.
    """

    session: SessionId
    transfer: str
    role: str
    peer: ProxyId
    epoch: int
    trigger: Trigger
    phase: str
    outcome: TransferEnd | None
    cause: Cause
    why: str
    began_at_ms: int
    age_ms: int
    phase_ms: int
    phases_ms: dict[str, int]
    entries: int
    bytes: int
    pre_copied: int


def ending_of(input: object) -> Ending:
    """Return the reason by which an input of a transfer's machine may end the transfer; NO_ENDING: the input names no
    reason.

    A Deadline ends a transfer too, and gives NO_ENDING. Whether the transfer has ended, its machine says.

    Args:
        input: a message of the other proxy, or an input of `handover/`.
    """
    match input:
        case TransferRefused(reason=reason):
            return Ending(Cause.REFUSED, reason)
        case Aborted(reason=reason):
            return Ending(Cause.TARGET_GAVE_UP, reason)
        case TransferDeclined(reason=reason):
            return Ending(Cause(reason.value), _WHY_DECLINED[reason])
        case machine.PeerGone():
            return Ending(Cause.PEER_GONE, "the lease of the other proxy has ended")
        case machine.OwnedByOther() | machine.OwnedByUs():
            return Ending(Cause.OWNER_CHANGED, "the registry names another owner")
        case target.StoreFailed():
            return Ending(Cause.STORE_FAILED, "the store did not take the session")
        case _:
            return NO_ENDING
