"""The time of the step that an engine takes: it stands still within the step."""

from __future__ import annotations


class StepTime:
    """What an engine was last told of time. Only the engine sets it; its parts read it.

    Attributes:
        now_ms: of the caller's clock, which never steps: for decisions.
        unix_ms: Unix time, which may step: for people, and for what another process or a client has to understand.
    """

    def __init__(self, now_ms: int, unix_ms: int) -> None:
        self.now_ms = now_ms
        self.unix_ms = unix_ms

    def set(self, now_ms: int, unix_ms: int | None) -> None:
        """Set the time of the next step, in ms.

        Args:
            now_ms: by the engine's clock.
            unix_ms: in Unix time; None: Unix time has moved on by as much as the engine's clock.
        """
        self.unix_ms = self.unix_ms + now_ms - self.now_ms if unix_ms is None else unix_ms
        self.now_ms = now_ms
