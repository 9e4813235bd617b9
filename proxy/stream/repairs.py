"""Repairs of a damaged site log: once it is read up, all proxies are requested to repeat what could not be read."""

from __future__ import annotations

from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.records import Repaired


class Repairs:
    """Requests repairs as long as the site's state is broken (handover rule 29)."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._next_ms = 0
        """The time from which the next repair may be requested."""

    def tick(self) -> None:
        """Request, every `repair_ms`, that all proxies repeat the records that could not be read (handover rule 29)."""
        env = self._env
        if self._is_wanted() and not env.rereading and env.time.now_ms >= self._next_ms:
            self._next_ms = env.time.now_ms + env.settings.repair_ms
            self._output.append(Repaired(env.state.damaged))

    def next_deadline(self) -> int:
        """Return when the next request is due, in ms of the engine's clock; NEVER: nothing is to be repaired, there is
        no lease, or the log is read again after a start.
        """
        return self._next_ms if self._is_wanted() and not self._env.rereading else NEVER

    def _is_wanted(self) -> bool:
        return self._env.state.is_broken and self._env.lease.may_serve()
