"""The time for which nobody has been attached: to a session, or as one receiver."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class IdleTime:
    """For how long nobody has been attached, and for how long that may be. Whoever owns the session counts it, once a
    grain; it travels as a number of ms, so clocks need not agree.
    """

    expiry_s: int | None = None
    """Session or registration ends after so many seconds; None: never."""
    ms: int = 0
    """Time for which nobody was attached, while the session was served and no transfer ran."""
    is_idle: bool = False
    """Whether nobody was attached when that was last counted."""

    def count(self, grain_ms: int, *, is_idle: bool) -> bool:
        """Count time, if nobody was attached at the last call and nobody is now; with somebody attached it begins anew.

        Args:
            grain_ms: the time to add; 0: none, and False is returned.
            is_idle: whether nobody is attached now.

        Returns:
            Whether the time was counted.
        """
        was_idle, self.is_idle = self.is_idle, is_idle
        if not is_idle:
            self.ms = 0
        if not (was_idle and is_idle and grain_ms):
            return False
        self.ms += grain_ms
        return True

    def reset(self) -> None:
        """Begin anew: somebody has attached."""
        self.ms = 0

    def expire(self) -> None:
        """Let the whole expiry count as passed."""
        self.ms, self.is_idle = (self.expiry_s or 0) * 1_000, True

    @property
    def has_expired(self) -> bool:
        """Whether the counted time has reached the expiry; False if there is none."""
        return self.expiry_s is not None and self.ms >= self.expiry_s * 1_000
