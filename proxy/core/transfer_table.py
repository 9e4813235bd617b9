"""The transfers that run here, by role and session."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from waypost.identity import SessionId


class RunningTransfers:
    """Which sessions are being handed over, from here or to here. The driver of a role alone changes what is of it."""

    def __init__(self) -> None:
        self._by_role: dict[str, dict[SessionId, Any]] = {}

    def of(self, role: str) -> Mapping[SessionId, Any]:
        """Return the transfers of a role by session: a view that shows later changes, and cannot be changed.

        Args:
            role: "source" or "target".
        """
        return MappingProxyType(self._by_role.setdefault(role, {}))

    def put(self, role: str, session: SessionId, transfer: Any) -> None:
        """Add a transfer of a session, in place of any other of it in this role.

        Args:
            role: "source" or "target".
            session: the session.
            transfer: an Outgoing at the source, an Incoming at the target.
        """
        self._by_role.setdefault(role, {})[session] = transfer

    def remove(self, role: str, session: SessionId) -> None:
        """Remove the transfer of a session; nothing is done if there is none."""
        self._by_role.setdefault(role, {}).pop(session, None)

    def __contains__(self, session: object) -> bool:
        return any(session in running for running in self._by_role.values())
