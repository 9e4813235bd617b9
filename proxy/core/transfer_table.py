"""The transfers that run here, by role and session."""

from __future__ import annotations

from typing import Any

from waypost.identity import SessionId


class RunningTransfers:
    """Which sessions are being handed over, from here or to here. The driver of a role alone changes what is of it."""

    def __init__(self) -> None:
        self._by_role: dict[str, dict[SessionId, Any]] = {}

    def of(self, role: str) -> dict[SessionId, Any]:
        """Return the transfers of a role by session: the live dict, which only the driver of that role changes.

        Args:
            role: "source" or "target".
        """
        return self._by_role.setdefault(role, {})

    def __contains__(self, session: object) -> bool:
        return any(session in running for running in self._by_role.values())
