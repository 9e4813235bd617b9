"""The life of a proxy's process, from its start to its orderly end. Pure: a table, and what the table needs to know.

A process that starts reads its site log up to where it ends, has the log say which log epoch it is in, learns the
federation's secret, and announces itself under an incarnation of its own, by a lease which it renews. It compares the
log with what other proxies have seen of it, and serves from then on, until the lease has ended; then nothing is served,
and the next incarnation is announced. Whatever is told to registry, engine and links of a lease, is told from here, in
this order: nobody serves before the lease holds, and links say nothing for a lease that has ended.

A process that ends in good order leaves in this order: no session stays frozen for a handover, as far as the registry
answers; the last words are said, and durable, before the lease is given back, for whoever takes a session over reads
the changelog; then it ends. What does not answer is waited for no longer than its time.

The shell (node/shell/node.py) and the simulator perform the effects; both decide nothing of this.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from waypost.identity import Incarnation
from waypost.table_machine import Deadline, Table, TimedMachine, render

TAKE_BACK_MS = 2_000
"""Time that a proxy which ends waits for the registry's answer about sessions that are frozen for a handover, in ms."""
FINAL_WRITES_MS = 5_000
"""Time that it waits in all until its last writes are durable, in ms."""
REVOKE_MS = 2_000
"""Time that it waits until the lease is revoked, in ms; then the lease runs out by itself."""


class LifecycleState(Enum):
    """What a process waits for."""

    STARTING = auto()
    READING = auto()
    IDENTIFYING = auto()
    LEARNING = auto()
    ANNOUNCING = auto()
    CONFIRMING = auto()
    SERVING = auto()
    HANDING_BACK = auto()
    WRITING_FINALLY = auto()
    REVOKING = auto()
    ENDED = auto()


# ---------------------------------------------------------------- inputs


@dataclass(frozen=True, slots=True)
class Start:
    """Input, the first one: the process begins."""


@dataclass(frozen=True, slots=True)
class LogEndFound:
    """Input, the answer to FindLogEnd.

    Args:
        end: an offset of the site log; every record that the log had then has a smaller one.
    """

    end: int


@dataclass(frozen=True, slots=True)
class LogRead:
    """Input, the answer to AwaitLog: the log is read up to where it ended."""


@dataclass(frozen=True, slots=True)
class LogIdentified:
    """Input, the answer to IdentifyLog: the log says which log epoch it is in, and the registry says the same."""


@dataclass(frozen=True, slots=True)
class SecretLearnt:
    """Input, the answer to LearnSecret: the registry has told the federation's secret."""


@dataclass(frozen=True, slots=True)
class Announced:
    """Input, the answer to Announce: the registry knows this incarnation, under a lease.

    Args:
        until_ms: when the lease ends, by our clock in milliseconds.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class LogConfirmed:
    """Input, the answer to ConfirmLog: the log has all that other proxies have seen of it."""


@dataclass(frozen=True, slots=True)
class Renewed:
    """Input, an answer to KeepLease: the lease was renewed.

    Args:
        until_ms: when it ends now, by our clock in milliseconds.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """Input, the last answer to KeepLease: the lease has ended for good.

    Args:
        following: the incarnation under which the process goes on.
    """

    following: Incarnation


@dataclass(frozen=True, slots=True)
class Leave:
    """Input: the process is to end in good order.

    Args:
        marked: say in the site log up to where it is complete; not where that log has been replaced.
    """

    marked: bool


@dataclass(frozen=True, slots=True)
class HandedBack:
    """Input, the answer to HandBack: no session is frozen for a handover any more."""


@dataclass(frozen=True, slots=True)
class FinalWritesDone:
    """Input, the answer to WriteFinally: store, journal and changelog have all."""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Input, the answer to RevokeLease: the registry has the lease back."""


# ---------------------------------------------------------------- effects


@dataclass(frozen=True, slots=True)
class FindLogEnd:
    """Effect: find out where the site log ends; answered with LogEndFound."""


@dataclass(frozen=True, slots=True)
class AwaitLog:
    """Effect: wait until this process has read the site log; answered with LogRead.

    Args:
        end: every record of a smaller offset is to be read.
    """

    end: int


@dataclass(frozen=True, slots=True)
class IdentifyLog:
    """Effect: have the log say of itself what the registry says; answered with LogIdentified."""


@dataclass(frozen=True, slots=True)
class LearnSecret:
    """Effect: read the federation's secret in the registry; answered with SecretLearnt."""


@dataclass(frozen=True, slots=True)
class Announce:
    """Effect: announce an incarnation, and wait for a holder of the name to end; answered with Announced.

    Args:
        incarnation: ours from now on.
    """

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ConfirmLog:
    """Effect: compare the log with what other proxies have seen of it, unless this process has done so; answered with
    LogConfirmed.
    """


@dataclass(frozen=True, slots=True)
class GrantLease:
    """Effect, without an answer: inform engine and links that the lease holds.

    Args:
        incarnation: whose lease it is.
        until_ms: when it ends, by our clock in milliseconds.
    """

    incarnation: Incarnation
    until_ms: int


@dataclass(frozen=True, slots=True)
class KeepLease:
    """Effect: renew the lease again and again; answered with Renewed each time, and at last with LeaseEnded.

    Args:
        incarnation: whose lease it is.
    """

    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ProlongLease:
    """Effect, without an answer: inform the engine that the lease holds for longer.

    Args:
        until_ms: when it ends now, by our clock in milliseconds.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class LoseLease:
    """Effect, without an answer: inform links and engine, in this order, that the lease has ended."""


@dataclass(frozen=True, slots=True)
class HandBack:
    """Effect: take back what is frozen for a handover, or let it go; answered with HandedBack."""


@dataclass(frozen=True, slots=True)
class WriteFinally:
    """Effect: write closing marker, last checkpoints, store and journal; answered with FinalWritesDone.

    Args:
        marked: whether to write the closing marker.
    """

    marked: bool


@dataclass(frozen=True, slots=True)
class RevokeLease:
    """Effect: give the lease back, if there is one; answered with Revoked."""


@dataclass(frozen=True, slots=True)
class End:
    """Effect, the last one: close all, and be gone."""


LifecycleInput = (
    Start
    | LogEndFound
    | LogRead
    | LogIdentified
    | SecretLearnt
    | Announced
    | LogConfirmed
    | Renewed
    | LeaseEnded
    | Leave
    | HandedBack
    | FinalWritesDone
    | Revoked
)
LeaseEffect = GrantLease | ProlongLease | LoseLease
LeavingEffect = HandBack | WriteFinally | RevokeLease | End
StartEffect = FindLogEnd | AwaitLog | IdentifyLog | LearnSecret | Announce | ConfirmLog
LifecycleEffect = StartEffect | KeepLease | LeaseEffect | LeavingEffect

_S = LifecycleState
_LIVING = (_S.STARTING, _S.READING, _S.IDENTIFYING, _S.LEARNING, _S.ANNOUNCING, _S.CONFIRMING, _S.SERVING)

TABLE: Table = {
    (_S.STARTING, Start): ((FindLogEnd,), _S.STARTING),
    (_S.STARTING, LogEndFound): ((AwaitLog,), _S.READING),
    (_S.READING, LogRead): ((IdentifyLog,), _S.IDENTIFYING),
    (_S.IDENTIFYING, LogIdentified): ((LearnSecret,), _S.LEARNING),
    (_S.LEARNING, SecretLearnt): ((Announce,), _S.ANNOUNCING),
    (_S.ANNOUNCING, Announced): ((ConfirmLog, KeepLease), _S.CONFIRMING),
    (_S.CONFIRMING, LogConfirmed): ((GrantLease,), _S.SERVING),
    (_S.CONFIRMING, Renewed): ((), _S.CONFIRMING),
    (_S.CONFIRMING, LeaseEnded): ((LoseLease, LearnSecret), _S.LEARNING),
    (_S.SERVING, Renewed): ((ProlongLease,), _S.SERVING),
    (_S.SERVING, LeaseEnded): ((LoseLease, LearnSecret), _S.LEARNING),
    **{(state, Leave): ((HandBack,), _S.HANDING_BACK) for state in _LIVING},
    (_S.HANDING_BACK, HandedBack): ((WriteFinally,), _S.WRITING_FINALLY),
    (_S.HANDING_BACK, Deadline): ((WriteFinally,), _S.WRITING_FINALLY),
    (_S.WRITING_FINALLY, FinalWritesDone): ((RevokeLease,), _S.REVOKING),
    (_S.WRITING_FINALLY, Deadline): ((RevokeLease,), _S.REVOKING),
    (_S.REVOKING, Revoked): ((End,), _S.ENDED),
    (_S.REVOKING, Deadline): ((End,), _S.ENDED),
}
_TIMEOUTS_MS: Mapping[Enum, int] = {
    _S.HANDING_BACK: TAKE_BACK_MS,
    _S.WRITING_FINALLY: FINAL_WRITES_MS,
    _S.REVOKING: REVOKE_MS,
}


class Lifecycle(TimedMachine[LifecycleInput, LifecycleEffect]):
    """One process of a proxy.

    Args:
        incarnation: the first one.
    """

    table = TABLE
    ended = LifecycleState.ENDED

    def __init__(self, incarnation: Incarnation) -> None:
        super().__init__(LifecycleState.STARTING, 0)
        self.incarnation = incarnation
        self._log_end = 0
        self._until_ms = 0
        self._marked = True

    @property
    def is_leaving(self) -> bool:
        """Whether the process has begun its orderly end (:class:`Leave`), or has ended."""
        return self.state in (*_TIMEOUTS_MS, LifecycleState.ENDED)

    def timeout_ms(self) -> int | None:
        """Return how long the present state may last, in ms; only states of the orderly end are bounded; None: for
        ever.
        """
        return _TIMEOUTS_MS.get(self.state)

    def step(self, input: LifecycleInput | Deadline, now_ms: int) -> list[LifecycleEffect]:
        """Take one input at `now_ms`, in ms of the caller's clock; return the effects, to be performed in order.

        While the process is leaving (:attr:`is_leaving`), an input for which the table has no row is dropped, without
        effects.

        Raises:
            UnexpectedInput: the table has no row for the input in this state, and the process is not leaving; nothing
                was changed.
        """
        if self.is_leaving and (self.state, type(input)) not in self.table:
            return []
        return super().step(input, now_ms)

    def remember(self, input: LifecycleInput | Deadline) -> None:
        """Keep what later effects need of an accepted input: log end, lease end, next incarnation, closing marker. For
        :meth:`step` only.
        """
        match input:
            case LogEndFound(end=end):
                self._log_end = end
            case Announced(until_ms=until_ms) | Renewed(until_ms=until_ms):
                self._until_ms = until_ms
            case LeaseEnded(following=following):
                self.incarnation = following
            case Leave(marked=marked):
                self._marked = marked
            case _:
                pass

    def effect(self, kind: type[Any], input: LifecycleInput | Deadline) -> LifecycleEffect:
        """Return the effect of that kind, with its fields filled in from earlier inputs. For :meth:`step` only."""
        if kind is AwaitLog:
            return AwaitLog(self._log_end)
        if kind is Announce or kind is KeepLease:
            made: Announce | KeepLease = kind(self.incarnation)
            return made
        if kind is GrantLease:
            return GrantLease(self.incarnation, self._until_ms)
        if kind is ProlongLease:
            return ProlongLease(self._until_ms)
        if kind is WriteFinally:
            return WriteFinally(self._marked)
        return super().effect(kind, input)


if __name__ == "__main__":
    print(render(TABLE))
