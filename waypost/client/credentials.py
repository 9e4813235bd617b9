"""With which credential a client attaches. Pure.

A password that we changed ourselves may be in force before we are told so, or not be although we asked; therefore
several may be right, and are tried in turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from waypost.limits import PASSWORDS_TRIED
from waypost.messages import Credential, Granted


class Credentials:
    """The one that counts as right, and those that may be right in its place."""

    def __init__(self, first: Credential) -> None:
        self._known = [first]
        self._failures = 0
        """So many of them were wrong since the last attach that succeeded."""

    @property
    def current(self) -> Credential:
        """As whom we attach."""
        return self._known[0]

    def let_in(self) -> None:
        """It was right."""
        self._failures = 0

    def access_requested(self, grants: Mapping[str, Granted]) -> None:
        """We have asked for this access, which may be in force from now on."""
        following = self._following(grants)
        if following not in self._known:
            self._known[1:] = [following, *self._known[1:]][: PASSWORDS_TRIED - 1]

    def access_accepted(self, grants: Mapping[str, Granted]) -> None:
        """This access is in force."""
        self._known = [self._following(grants)]

    def _following(self, grants: Mapping[str, Granted]) -> Credential:
        """Return what is right for us under this access."""
        mine = grants.get(self.current.principal)
        if mine is None or mine.password is None:
            return self.current
        return Credential(self.current.principal, mine.password)

    def try_another(self) -> bool:
        """The current one is refused: take the next one. False: all are wrong."""
        self._failures += 1
        self._known.append(self._known.pop(0))
        if self._failures >= len(self._known):
            self._failures = 0
            return False
        return True
