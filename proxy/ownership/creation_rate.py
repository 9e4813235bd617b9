"""The rate at which one proxy makes sessions."""

from __future__ import annotations

from proxy.core.environment import Environment
from waypost.limits import CREATIONS_AT_ONCE


class CreationRate:
    """A virtual schedule (the Generic Cell Rate Algorithm): after a while without, some may be made at once."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._until_ms = 0.0
        """The time at which all sessions so far would be made, at the highest permitted rate."""

    def take(self) -> bool:
        """Tell whether a session may be made now within `Settings.creations_per_s`; if so, it is counted as made."""
        now, rate = self._env.time.now_ms, self._env.settings.creations_per_s
        if not rate:
            return True
        due = max(self._until_ms, now) + 1_000 / rate
        if due > now + CREATIONS_AT_ONCE * 1_000 / rate:
            return False
        self._until_ms = due
        return True
