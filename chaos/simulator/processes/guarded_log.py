"""The site log of a process behind its guard: performs what node/machines/log_guard.py asks, as a node does.

The counterpart on real parts is node/site_log/guarded_log.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, assert_never

from chaos.simulator.processes.witnesses import Witnesses
from node.machines.log_guard import (
    AppendRecord,
    AskWitnesses,
    ClaimLogRow,
    FindEnd,
    FindFirst,
    FindSeen,
    LogGuard,
    Procedure,
    Question,
    ReadLogRow,
    ReadRecords,
    Wait,
    Witnessed,
)
from node.machines.procedure import resume
from waypost.errors import HistoryTruncated, LogReplaced, RegistryUnavailable, Unreachable

if TYPE_CHECKING:
    from chaos.simulator.environment.environment import Process

AGAIN_MS = 10


class GuardedLog:
    """Runs the procedures of one process's guard, until the process is gone.

    Answers come at once, until a log of the world has lost its end: from then on each takes its time, and answers of
    the registry may be lost.
    """

    def __init__(self, node: Process, guard: LogGuard) -> None:
        self.guard = guard
        self._node = node
        self._log = node.world.logs[node.site]
        self._witnesses = Witnesses(node)
        self._compared = self._log.interruptions
        """The number of times that the log had been out of reach when it was last compared with what was read of it."""
        self._is_checking = False
        self._is_comparing = False
        self._waiting: list[Callable[[], None]] = []
        """Appends that wait."""

    @property
    def is_interrupted(self) -> bool:
        """Whether the log was out of reach, and was not compared yet with what was read of it."""
        return self._compared != self._log.interruptions

    @property
    def has_to_wait(self) -> bool:
        """Whether an append has to wait: the log was not compared, or the guard does not allow it yet."""
        return self.is_interrupted or not self.guard.may_append

    def add_waiting(self, append: Callable[[], None]) -> None:
        """Keep an append, behind those that are kept already, for :meth:`release`."""
        self._waiting.append(append)

    def release(self) -> None:
        """Perform the kept appends, in order, until one has to wait again (:attr:`has_to_wait`)."""
        while self._waiting and not self.has_to_wait:
            self._waiting.pop(0)()

    # ------------------------------------------------------------ procedures

    def identify(self, on_done: Callable[[], None]) -> None:
        """Append the identity of the log, unless the log states it, and perform the kept appends once that was read.

        Args:
            on_done: called when the log states its identity; never if the process ends, or restarts on a new log,
                before.
        """

        def done(error: Unreachable | None) -> None:
            if error is not None:
                self._node.schedule(AGAIN_MS, lambda: self.identify(on_done))
                return
            on_done()
            self._release_once_read()

        self._run(self.guard.identify(), done)

    def _release_once_read(self) -> None:
        if self.guard.is_read:
            self.release()
        else:
            self._node.schedule(1, self._release_once_read)

    def confirm(self, on_done: Callable[[], None]) -> None:
        """Compare the log, once, with what other processes have seen of it, and perform the kept appends.

        Args:
            on_done: called then; never if the process ends, or restarts on a new log, before.
        """

        def done(error: Unreachable | None) -> None:
            on_done()
            self.release()

        self._run(self.guard.confirm(), done)

    def check(self, *, reports: bool) -> None:
        """Check whether the log is still the one that was read, and has what others saw; else the process restarts.

        Nothing happens while such a check is under way. A comparison after an interruption may be: questions of both
        come in any order then, as on the real parts.

        Args:
            reports: whether this process reports to the registry how far its site has read the log.
        """
        if self._is_checking:
            return
        self._is_checking = True

        def done(error: Unreachable | None) -> None:
            self._is_checking = False

        self._run(self.guard.check(len(self._log), read_below=self.guard.position, reports=reports), done)

    def compare(self) -> None:
        """Compare the log, which was out of reach, with all that anybody has seen of it; then perform the kept appends.

        A log that has lost its end restarts the process. Nothing happens while a comparison is under way.
        """
        if self._is_comparing:
            return
        self._is_comparing, interruptions = True, self._log.interruptions

        def done(error: Unreachable | None) -> None:
            self._is_comparing, self._compared = False, interruptions
            if self.is_interrupted:
                self.compare()
                return
            self._node.log_grew()
            self.release()

        self._run(self.guard.compare(), done)

    def enter_next_epoch(self, end: int | None, on_done: Callable[[], None]) -> None:
        """Have the registry enter the next log epoch, since the log is not what was read of it (handover rule 27).

        Args:
            end: the offset from which on the log was another one when that was noticed; None: where the log ends now.
            on_done: called when the registry has done so, or does not answer; never if the process ends before.
        """
        self._run(self.guard.enter_next_epoch(end, self.guard.log_epoch), lambda error: on_done())

    def _run(self, procedure: Procedure, done: Callable[[Unreachable | None], None]) -> None:
        """Run a procedure; `done` follows, with the error of a part that did not answer."""

        def schedule(answer: Any) -> None:
            try:
                question = resume(procedure, answer)
            except StopIteration:
                done(None)
            except LogReplaced as replaced:
                self._node.restart_on_new_log(replaced.message, replaced.end)
            except Unreachable as failed:
                done(failed)
            else:
                self._perform(question, schedule)

        schedule(None)

    def _perform(self, question: Question, schedule: Callable[[Any], None]) -> None:
        world = self._node.world
        is_late = any(log.interruptions for log in world.logs.values())
        wait = question.for_ms if isinstance(question, Wait) else world.delay() if is_late else 0

        def perform() -> None:
            if is_late and isinstance(question, AskWitnesses):
                self._witnesses.ask(question, schedule)
                return
            try:
                answer = self._answer(question)
                if is_late and isinstance(question, ReadLogRow | ClaimLogRow) and world.chances(world.faults.answers):
                    raise RegistryUnavailable("no answer")
            except (Unreachable, HistoryTruncated) as error:
                answer = error
            # The answer is on its way back: what it says may not be so any more.
            self._after(wait - wait // 2, lambda: schedule(answer))

        self._after(wait // 2, perform)

    def _after(self, wait_ms: int, action: Callable[[], None]) -> None:
        if wait_ms:
            self._node.schedule(wait_ms, action)
        else:
            action()

    def _answer(self, question: Question) -> Any:
        """Raises Unreachable, HistoryTruncated."""
        world, site, registry = self._node.world, self._node.site, self._node.world.registry
        match question:
            case FindFirst():
                world.check_log(site)
                return self._log.first
            case FindEnd():
                world.check_log(site)
                return len(self._log)
            case ReadRecords(offset=offset, limit=limit):
                world.check_log(site)
                return self._log.read(offset, offset + limit)
            case FindSeen():
                return self._node.read_below
            case AppendRecord(record=record):
                world.check_log(site)
                (offset,) = world.appended(site, [record])
                self._node.advance_seen(offset + 1)
                return [offset]
            case ReadLogRow():
                self._check_registry()
                return registry.site_logs.get(site)
            case ClaimLogRow(expected=expected, new=new):
                self._check_registry()
                return registry.claim_site_log(site, expected, new)
            case AskWitnesses():
                # No log has lost anything yet.
                return Witnessed()
            case Wait():
                return None
            case _:
                assert_never(question)

    def _check_registry(self) -> None:
        world = self._node.world
        if world.clock.time_ms < self._node.deaf_until or not world.registry_answers():
            raise RegistryUnavailable("no answer")
