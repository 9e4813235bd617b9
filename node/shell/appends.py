"""The shell around the admission of appends: it estimates, appends, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, assert_never

from node.machines.append_admission import (
    AdmissionEffect,
    AdmissionInput,
    AppendAdmission,
    AppendCompleted,
    AppendPart,
    AppendRequested,
    EstimateCosts,
    Estimated,
    LogFolded,
    PartAppended,
)
from node.shell.effect_runner import EffectRunner
from node.shell.tasks import Tasks
from node.site_log.guarded_log import GuardedLog
from proxy.core import effects
from proxy.engine import Engine
from waypost.clock import Clock
from waypost.errors import LogReplaced, LogUnavailable


class Appends:
    """What a node appends to its site's log for its engine, when the admission (node/machines/append_admission.py)
    lets it.

    Args:
        engine: it foresees what it costs to match a notification.
        guarded_log: the site log, as long as it is the one that was read.
        runner: performs the append.
        tasks: in which appends wait for their answers.
        on_completed: called with the answer to each append.
    """

    def __init__(
        self,
        engine: Engine,
        guarded_log: GuardedLog,
        runner: EffectRunner,
        tasks: Tasks,
        *,
        clock: Clock,
        on_completed: Callable[[AppendCompleted], None],
    ) -> None:
        self._engine = engine
        self._guarded_log = guarded_log
        self._runner = runner
        self._tasks = tasks
        self._clock = clock
        self._on_completed = on_completed
        self._admission = AppendAdmission()

    @property
    def under_way(self) -> int:
        """The number of appends that are not answered yet."""
        return self._admission.under_way

    def has_room(self, connection: int) -> bool:
        """Tell whether the client on the connection of this number may publish more, as far as appends count."""
        return self._admission.has_room(connection)

    def request(self, append: effects.Append) -> None:
        """Append records when it is their turn; `on_completed` gets the answer."""
        self._step(AppendRequested(append))

    def folded(self, spent_s: float) -> None:
        """Note that the log was folded up to the engine's position, which took `spent_s` seconds."""
        self._step(LogFolded(self._engine.state.position, spent_s))

    def _step(self, input: AdmissionInput) -> None:
        for effect in self._admission.step(input, self._clock.now_ms()):
            self._perform(effect)

    def _perform(self, effect: AdmissionEffect) -> None:
        match effect:
            case EstimateCosts(is_first=True):
                self._estimate(effect)
            case EstimateCosts():
                asyncio.get_running_loop().call_soon(self._estimate, effect)
            case AppendPart():
                self._tasks.spawn(self._append(effect))
            case AppendCompleted():
                self._on_completed(effect)
            case _:
                assert_never(effect)

    def _estimate(self, effect: EstimateCosts) -> None:
        try:
            costs_ns = self._engine.sessions.matcher.foreseen_ns(effect.bodies)
        except Exception as error:
            # An estimate decides who waits, and not whether something is appended.
            self._tasks.log_failure("an estimate failed inside", error)
            costs_ns = [0] * len(effect.bodies)
        self._step(Estimated(effect.number, costs_ns))

    async def _append(self, part: AppendPart) -> None:
        try:
            answer = await self._appended(part)
        except Exception as error:
            # The waiting part gets the error: nothing else would ever be appended behind it.
            self._tasks.log_failure("an append failed inside", error)
            answer = LogUnavailable(f"{type(error).__name__}: {error}")
        self._step(PartAppended(part.number, answer))

    async def _appended(self, part: AppendPart) -> Any:
        try:
            async with self._guarded_log.guard_append():
                answer = await self._runner.answer(effects.Append(part.records, effects.ignore_result))
                if isinstance(answer, LogReplaced):
                    raise answer
        except (LogReplaced, LogUnavailable) as error:
            return error
        return answer
