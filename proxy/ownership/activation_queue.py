"""Sessions that the store says are ours take their next epochs in turn, a bounded number at a time.

A proxy may come back with a hundred thousand of them, and the registry does not take so many claims before the lease
must be renewed. So they stand in line; whoever is waited for goes first, be it for a client or for another proxy.
"""

from __future__ import annotations

from waypost.identity import SessionId


class ActivationQueue:
    """The line of dormant sessions that wait for their activation.

    Args:
        at_once: questions of activations, to changelog and registry, that may be under way at a time.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._waited_for: dict[SessionId, None] = {}
        self._others: dict[SessionId, None] = {}
        self._under_way = 0

    def __len__(self) -> int:
        """Return the number of sessions that wait for their turn."""
        return len(self._waited_for) + len(self._others)

    def join(self, session: SessionId, *, is_waited_for: bool) -> None:
        """Add a session to the line; one that is in it stays where it is, or moves to those that are waited for.

        Args:
            is_waited_for: a client or a proxy waits for the session: it goes before those that nobody waits for.
        """
        if is_waited_for:
            self._others.pop(session, None)
            self._waited_for[session] = None
        elif session not in self._waited_for:
            self._others[session] = None

    def leave(self, session: SessionId) -> None:
        """Remove a session from the line, if it is there."""
        self._waited_for.pop(session, None)
        self._others.pop(session, None)

    def next(self) -> SessionId | None:
        """Remove and return the next session; None: the line is empty, or `at_once` questions are under way.

        The caller counts the question that follows (:meth:`question_begins`).
        """
        line = self._waited_for or self._others
        if not line or self._under_way >= self._at_once:
            return None
        session = next(iter(line))
        del line[session]
        return session

    def question_begins(self) -> None:
        """Count a question that is under way from now on."""
        self._under_way += 1

    def question_ends(self) -> None:
        """Count a question that was answered, whatever the result."""
        self._under_way -= 1

    def fence(self) -> None:
        """Empty the line: our lease may have ended.

        Sessions join again under the next one; questions under way still count.
        """
        self._waited_for.clear()
        self._others.clear()
