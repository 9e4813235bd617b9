"""Deliveries to receivers: batches, encoded once for all, as far as each window allows, and under a lease only."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.clients.connection import Connection
from proxy.core.effects import LoadEntries, Send
from proxy.core.environment import Environment
from proxy.core.output import Output
from proxy.core.session_table import SessionTable
from proxy.session.receivers import Receiver
from proxy.session.session import Session
from proxy.session.stored_notification import Entry
from proxy.stream.expiry import Expiry
from waypost.clock import NEVER
from waypost.errors import WaypostError
from waypost.identity import SessionId
from waypost.limits import READ_AHEAD


class DeliveryHandler:
    """Delivers stored entries; those that are not in memory are read from the store first."""

    def __init__(
        self,
        env: Environment,
        sessions: SessionTable,
        output: Output,
        expiry: Expiry,
        connections: Mapping[int, Connection],
    ) -> None:
        self._env = env
        self._sessions = sessions
        self._output = output
        self._expiry = expiry
        self._connections = connections
        self._again: dict[SessionId, Session] = {}
        """Sessions of which something is to be read once more."""
        self._again_at = 0

    def tick(self) -> None:
        """Deliver again in sessions whose entries could not be read from the store, when `retry_ms` are over."""
        if self._again and self._env.time.now_ms >= self._again_at:
            again, self._again = self._again, {}
            for session in again.values():
                self.to_all(session)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return self._again_at if self._again else NEVER

    def to_all(self, session: Session) -> None:
        """Deliver to every attached receiver as far as its window allows, then apply maximum counts and queue bounds.

        Nothing is done if the session is not served now. Entries that are not in memory are read first, and sent later.
        """
        if self._sessions.serving(session.id) is not session:
            return
        self._expiry.expire(session)
        for receiver in session.receivers.values():
            if receiver.connection is not None:
                self._pump(session, receiver)
        self._expiry.bound(session)

    def to(self, session: Session, receiver: Receiver) -> None:
        """Deliver to one receiver as far as its window allows; nothing is done if the session is not served now.

        Entries that are not in memory are read first, and sent later.
        """
        if self._sessions.serving(session.id) is session:
            self._expiry.expire(session)
            self._pump(session, receiver)

    def _pump(self, session: Session, receiver: Receiver) -> None:
        while receiver.window.sent < session.entries.last_number and not receiver.window.is_waiting:
            limit = receiver.room()
            if limit <= 0:
                return
            entries = session.entries.after(receiver.window.sent, limit)
            if entries is None:
                self._load(session, receiver, min(READ_AHEAD, receiver.window.free))
                return
            # Where there are none, the last ones went by policy.
            self._send(session, receiver, entries, 0 if entries else session.entries.last_number)

    def _send(self, session: Session, receiver: Receiver, entries: list[Entry], upto: int = 0) -> None:
        gone = receiver.unrecorded(entries, session.retention)
        if gone:
            self._record(session, receiver, gone)
            entries, upto = [entry for entry in entries if entry[0] < gone[0][0]], 0
            if not entries:
                return
        message = session.next_delivery(receiver, entries, upto)
        if message is not None and receiver.connection is not None:
            connection = self._connections.get(receiver.connection)
            at = (connection.relayed_by if connection is not None else None) or self._env.proxy
            count = len(message.entries)
            session.delivery_count.add(at, count)
            self._output.counters.delivery_sizes.note(count)
            self._output.emit(Send(receiver.connection, message))
        elif message is None:
            self._sessions.mark_changed(session.id)

    def _send_all(self, session: Session, receiver: Receiver, entries: list[Entry], upto: int) -> None:
        """Send what was read. Fewer than asked for may be all that was looked at; none: there are none up to `upto`."""
        if not entries:
            self._send(session, receiver, [], upto)
        while entries and (room := receiver.room()) > 0:
            batch, entries = entries[:room], entries[room:]
            self._send(session, receiver, batch)
            if receiver.window.is_waiting or receiver.window.sent < batch[-1][0]:
                # Not all of it went: the rest is read again, or waits for the journal.
                return

    def _record(self, session: Session, receiver: Receiver, gone: list[Entry]) -> None:
        """Put on record what the receiver is not to have; it gets past that no sooner (handover rule 21)."""
        receiver.window.begin_wait()
        connection = receiver.connection
        removed_by = session.retention.removed_by
        self._expiry.note(
            session, [(stored.origin, stored.offset, removed_by(number, matched)) for number, stored, matched in gone]
        )

        def on_done() -> None:
            if receiver.connection == connection and session.receivers.get(receiver.id) is receiver:
                receiver.window.end_wait()
                receiver.window.removals_recorded(number for number, _, _ in gone)
                self.to(session, receiver)
                self._expiry.bound(session)

        self._output.journal.once_attested(on_done)

    def _load(self, session: Session, receiver: Receiver, limit: int) -> None:
        receiver.window.begin_wait()
        connection, after, upto = receiver.connection, receiver.window.sent, session.entries.unloaded_number

        def on_done(answer: list[Entry] | WaypostError) -> None:
            if receiver.connection != connection or receiver.window.sent != after:
                return
            receiver.window.end_wait()
            if self._sessions.serving(session.id) is not session:
                return
            if isinstance(answer, WaypostError):
                self._again[session.id] = session
                self._again_at = self._env.time.now_ms + self._env.settings.retry_ms
                return
            self._expiry.expire(session)
            self._send_all(session, receiver, answer, upto)
            self._pump(session, receiver)
            self._expiry.bound(session)

        first = max(after, session.entries.first_number - 1)
        self._output.emit(LoadEntries(session.id, first, limit, on_done, passing=receiver.known))
