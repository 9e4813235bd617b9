"""What is remembered of the checks of one principal's password."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class AuthFailures:
    """The failed and running checks of the password of one principal of a session.

    Kept in memory only (proxy/clients/authorization.py).
    """

    failures: int = 0
    """Wrong passwords since the last right one."""
    next_ms: int = 0
    """The time before which no password is checked."""
    under_way: int = 0
    known: bytes = b""
    """A digest of the password that was right, by a key that never leaves this process."""
