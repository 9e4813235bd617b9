"""What the world knows of who may read a session: as clients asked for it, and as they were answered. Plain, and apart
from proxy/clients/authorization.py, which is to be checked by it.
"""

from __future__ import annotations

from collections.abc import Mapping

from waypost.access import READ
from waypost.messages import Credential, Granted

Grants = Mapping[str, Granted]


class Rights:
    """Of every session, the access that was confirmed last, and those asked for since then: either may be in force."""

    def __init__(self) -> None:
        self._may_be: dict[str, list[Grants]] = {}

    def access_requested(self, session: str, grants: Grants) -> None:
        """Note that a client has requested this access: it may be in force from now on, beside those noted before.

        Args:
            session: whose access it is.
            grants: principal -> its rights; empty: the session is open to everybody.

        Raises:
            AssertionError: a password is None; "" is one without which a name is enough.
        """
        assert all(granted.password is not None for granted in grants.values()), (
            "name every password: it is compared here"
        )
        self._may_be.setdefault(session, [{}]).append(grants)

    def confirmed(self, session: str, grants: Grants) -> None:
        """Note that the access `grants` of the session is in force, and no other that was noted before this call.

        An access that another client requested meanwhile is forgotten too, although it may be in force: only one client
        of a session may have a request under way.
        """
        self._may_be[session] = [grants]

    def forget(self, session: str) -> None:
        """Forget what was noted of a session, if anything was: it was deleted, and the next one of its name is open."""
        self._may_be.pop(session, None)

    def surely_reads(self, session: str, credential: Credential) -> bool:
        """Tell whether the credential may read the session under every access that may be in force.

        A session of which no access was noted is open.
        """
        return all(_lets_read(grants, credential) for grants in self._may_be.get(session, [{}]))

    def may_read(self, session: str, credential: Credential) -> bool:
        """Tell whether the credential may read the session under at least one access that may be in force.

        A session of which no access was noted is open.
        """
        return any(_lets_read(grants, credential) for grants in self._may_be.get(session, [{}]))


def _lets_read(grants: Grants, credential: Credential) -> bool:
    if not grants:
        return True
    granted = grants.get(credential.principal)
    return granted is not None and READ in granted.rights and granted.password in ("", credential.password)
