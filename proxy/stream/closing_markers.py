"""Closing markers: up to there the site log is complete, and it is attested which receivers have all below."""

from __future__ import annotations

from collections.abc import Callable

from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.incremental_scan import IncrementalScan
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.facts import FactKind
from waypost.identity import Origin, SessionId
from waypost.limits import DRAINED_AT_ONCE
from waypost.records import Closed

LOOK_MS = 100
"""Pause between two looks at some of many sessions, in ms."""


class ClosingMarkers:
    """Appends closing markers, each a statement in the site log that its proxy has read the log up to there, and
    attests of the receivers of a session that they have all that was owed at the last marker.

    Call :meth:`read` for each marker of any proxy that is read from the log, and :meth:`attest_drained` after every
    step.
    """

    def __init__(self, env: Environment, sessions: SessionTable, output: Output) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._scan = IncrementalScan[SessionId](DRAINED_AT_ONCE)
        self._next_look_ms = NEVER
        self._undrained: dict[SessionId, dict[Origin, int]] = {}
        """The frontiers at the last marker of the sessions that :attr:`undrained` counts."""

    @property
    def undrained(self) -> int:
        """The number of sessions that were served at the last marker, and whose receivers have not had everything at
        one moment since then (:meth:`attest_drained`).
        """
        return len(self._undrained)

    def append(self, on_done: Callable[[int | WaypostError], None]) -> None:
        """Append a closing marker to the site log: what this proxy has read of the log is complete up to here.

        Args:
            on_done: called with the marker's offset once log and journal have it, or with the error of the append.
        """
        closed = Closed(self._output.journal.writer, self._env.time.unix_ms, dict(self._env.state.frontier))

        def appended(answer: list[int] | WaypostError) -> None:
            if isinstance(answer, WaypostError):
                on_done(answer)
                return
            self._output.journal.attest(FactKind.MARKED)
            self._output.journal.once_attested(lambda: on_done(answer[0]))

        self._output.append(closed, appended)

    def read(self) -> None:
        """Note that a closing marker was read from the log: from now on :attr:`undrained` counts the served sessions
        whose receivers lack something up to the sessions' frontiers of this moment.
        """
        for session in self._sessions.values():
            if session.role is Role.SERVING:
                self._undrained[session.id] = self._env.frontier(session)

    def attest_drained(self) -> None:
        """Attest, of each session that was served at the last marker, that its receivers have everything up to its
        frontier then. A session that is not served here now is left out, and not counted in :attr:`undrained` any more.

        It is attested once all receivers of a session without gates have acknowledged the newest entry that is stored,
        which may be above the marker: while notifications keep coming faster than they are acknowledged, it is not.

        Of many sessions each call looks at some, DRAINED_AT_ONCE, one after the other.
        """
        self._next_look_ms = self._env.time.now_ms + LOOK_MS if len(self._undrained) > DRAINED_AT_ONCE else NEVER
        for identity in self._scan.next_batch(self._undrained):
            if identity not in self._undrained:
                continue
            session = self._sessions.serving(identity)
            if session is None:
                del self._undrained[identity]
            elif not session.gates:
                self._attest_receivers(session)

    def next_deadline(self) -> int:
        """Return when the next call of :meth:`attest_drained` is due, also without an input, in ms of the engine's
        clock; NEVER: it looks at all sessions with each call.
        """
        return self._next_look_ms

    def _attest_receivers(self, session: Session) -> None:
        frontier = self._undrained[session.id]
        if any(receiver.acknowledged < session.entries.last_number for receiver in session.receivers.values()):
            return
        del self._undrained[session.id]
        for receiver in session.receivers.values():
            self._output.journal.attest(FactKind.DRAINED, session, receiver=receiver.id, frontier=dict(frontier))
