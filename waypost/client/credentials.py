"""The credential with which a client attaches. Pure.

A password that this client changed may be in force before its answer comes, or not be in force although it was
requested; therefore several credentials may be right, and are tried in turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from waypost.limits import PASSWORDS_TRIED
from waypost.messages import Credential, Granted


class Credentials:
    """The credential that counts as right, and the others that may be right instead.

    Args:
        first: the one that the application gave.
    """

    def __init__(self, first: Credential) -> None:
        self._known = [first]
        self._failures = 0
        """Credentials refused since the last attach that succeeded."""

    @property
    def current(self) -> Credential:
        """The credential to attach with."""
        return self._known[0]

    def let_in(self) -> None:
        """Record that an attach with the current credential succeeded: the count of refused ones begins at 0 again."""
        self._failures = 0

    def access_requested(self, grants: Mapping[str, Granted]) -> None:
        """Record a requested change of the access, which may be in force from now on: the credential that follows from
        it is the next one that :meth:`try_another` takes, unless it is known already; then the order stays as it was.
        At most PASSWORDS_TRIED credentials are kept, the current one among them; the oldest of the others is forgotten.
        `grants`: by principal.
        """
        following = self._following(grants)
        if following not in self._known:
            self._known[1:] = [following, *self._known[1:]][: PASSWORDS_TRIED - 1]

    def access_accepted(self, grants: Mapping[str, Granted]) -> None:
        """Record that this access is in force: the credential that follows from it is :attr:`current`, and all others
        are forgotten. `grants`: by principal.
        """
        self._known = [self._following(grants)]

    def _following(self, grants: Mapping[str, Granted]) -> Credential:
        """Return the client's credential under this access."""
        granted = grants.get(self.current.principal)
        if granted is None or granted.password is None:
            return self.current
        return Credential(self.current.principal, granted.password)

    def try_another(self) -> bool:
        """Make the next credential :attr:`current`, after an attach with the current one was refused.

        Returns:
            True: attach again, with the new one. False: all were refused in turn since the last attach that succeeded;
            the count of refused ones begins at 0 again.
        """
        self._failures += 1
        self._known.append(self._known.pop(0))
        if self._failures >= len(self._known):
            self._failures = 0
            return False
        return True
