"""What the engine asks of the world. An effect with `on_done` is answered by calling it once, with result or error.

Effects are performed in the order in which they come out. Those of one kind take effect in that order; answers may come
in any order and at any later time, or never, if the process dies. A continuation belongs to the part that asked, and
looks at the session again (docs/adr/0026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from federation.messages import CatchUp
from federation.ports import Claimed, SiteSnapshot
from proxy.core.store_port import StoreBatch, Swept
from proxy.session.retention import Window
from proxy.session.stored_notification import Entry
from waypost.checkpoint import Checkpoint, Rank
from waypost.errors import WaypostError
from waypost.facts import Fact
from waypost.identity import Origin, Ownership, ProxyId, SessionId, SiteId
from waypost.records import Forwarded, Record

OnDone = Callable[[Any], None]


def ignore_result(_: object) -> None:
    """Ignore the result of an effect: what failed is done again anyway."""


class Send(msgspec.Struct, frozen=True):
    """Effect, without an answer: send a message to a client, behind all that was sent to it before. A connection that
    is gone swallows it.

    Args:
        connection: the number of the client's connection; that of a relayed client is below 0.
    """

    connection: int
    message: msgspec.Struct | msgspec.Raw
    """Raw: encoded already."""


class Hangup(msgspec.Struct, frozen=True):
    """Effect, without an answer: close a client's connection, after what was sent before.

    Args:
        connection: its number.
        reason: for the client and for operators.
    """

    connection: int
    reason: str


class SendPeer(msgspec.Struct, frozen=True):
    """Effect, without an answer: send a message to a proxy; it may be lost.

    Args:
        proxy: the proxy that is to get it.
        message: one of handover.messages or federation.messages.
    """

    proxy: ProxyId
    message: msgspec.Struct


class Append(msgspec.Struct, frozen=True):
    """Effect: append to the site log, in the order of the records.

    Args:
        records: one or more records.
        on_done: takes the offsets that the records have, or the error, after which some may have been appended.
        connection: by which the notifications came, all of them `Published`; 0: they are the proxy's own records.
        is_wanted: tells whether somebody still waits for what is not appended yet.
    """

    records: Sequence[Record]
    on_done: Callable[[list[int] | WaypostError], None]
    connection: int = 0
    is_wanted: Callable[[], bool] = lambda: True


class CreateRow(msgspec.Struct, frozen=True):
    """Effect: set the row of a session that never had one in the registry.

    Args:
        session: the session.
        ownership: the row to set.
        on_done: takes the row that there is then, or the error, after which the row may have been set or not.
    """

    session: SessionId
    ownership: Ownership
    on_done: Callable[[Claimed | WaypostError], None]


class ClaimRow(msgspec.Struct, frozen=True):
    """Effect: compare and set a session's row in the registry.

    Args:
        session: the session.
        expected: the row that must be in force.
        new: the row to put in its place.
        on_done: takes the row that there is then, or the error, after which the row may have been set or not.
    """

    session: SessionId
    expected: Ownership
    new: Ownership
    on_done: Callable[[Claimed | WaypostError], None]


def claim_row(
    session: SessionId, expected: Ownership | None, new: Ownership, on_done: Callable[[Claimed | WaypostError], None]
) -> ClaimRow | CreateRow:
    """Return the effect that sets a session's row by compare-and-set.

    Args:
        expected: the row that the registry must have; None: it must have none, and never have had one.
        new: the row that takes its place.
        on_done: called with the row that there is then and whether this claim won, or with an error, after which the
            claim may have been applied or not.
    """
    if expected is None:
        return CreateRow(session, new, on_done)
    return ClaimRow(session, expected, new, on_done)


class ReadRow(msgspec.Struct, frozen=True):
    """Effect: read a session's row in the registry.

    Args:
        session: the session.
        on_done: takes the row, that of a deleted session too, or the error. The row of a session whose row was removed
            is one of the floor (:func:`waypost.identity.without_row`); None: there was never one.
    """

    session: SessionId
    on_done: Callable[[Ownership | WaypostError | None], None]


class ForgetRows(msgspec.Struct, frozen=True):
    """Effect: remove rows of deleted sessions from the registry.

    Args:
        rows: by session, the row to remove; one that has changed since stays.
        on_done: takes None once it is done, or the error.
    """

    rows: Mapping[SessionId, Ownership]
    on_done: Callable[[WaypostError | None], None]


class ForgetCheckpoints(msgspec.Struct, frozen=True):
    """Effect: remove what our site's changelog has of sessions that were deleted.

    Args:
        deleted: by session, the last epoch whose checkpoints are removed.
        on_done: takes None once it is done, or the error.
    """

    deleted: Mapping[SessionId, int]
    on_done: Callable[[WaypostError | None], None]


class Save(msgspec.Struct, frozen=True):
    """Effect: apply changes to this proxy's store, all or none.

    Args:
        batch: the changes.
        on_done: takes None once they are durable, or the error.
    """

    batch: StoreBatch
    on_done: Callable[[WaypostError | None], None]


class LoadEntries(msgspec.Struct, frozen=True):
    """Effect: read entries of a session from the store, in the order of their numbers.

    Args:
        session: the session.
        after: only entries of a higher number.
        limit: how many entries to read at most.
        on_done: takes the entries, or the error.
        passing: a frontier; entries at or below it may be left out.
    """

    session: SessionId
    after: int
    limit: int
    on_done: Callable[[list[Entry] | WaypostError], None]
    passing: Mapping[Origin, int] = {}


class FindOutdated(msgspec.Struct, frozen=True):
    """Effect: find stored entries of a session that are kept for nobody any more.

    Args:
        session: the session.
        windows: an entry in any of them is kept for nobody.
        limit: how many entries to look at, at most.
        on_done: takes what was found, and how far the search went, or the error.
    """

    session: SessionId
    windows: Sequence[Window]
    limit: int
    on_done: Callable[[Swept | WaypostError], None]


class PutCheckpoint(msgspec.Struct, frozen=True):
    """Effect: write a checkpoint of a session to our site's changelog.

    Args:
        checkpoint: the checkpoint.
        on_done: takes None once it is durable, or the error.
    """

    checkpoint: Checkpoint
    on_done: Callable[[WaypostError | None], None]


class NoteCheckpoints(msgspec.Struct, frozen=True):
    """Effect: note in the registry up to which checkpoint of each session clients were answered, so that a changelog
    that was set back is recognised.

    Args:
        ranks: by session, the epoch and serial of that checkpoint.
        on_done: takes None once it is noted, or the error.
    """

    ranks: dict[SessionId, Rank]
    on_done: Callable[[WaypostError | None], None]


class PutSite(msgspec.Struct, frozen=True):
    """Effect: write the state of the site to its changelog: what the site log means up to a position.

    Args:
        snapshot: the state, with that position.
        on_done: takes None once it is durable, or the error.
    """

    snapshot: SiteSnapshot
    on_done: Callable[[WaypostError | None], None]


class FoundCheckpoint(msgspec.Struct, frozen=True):
    """What changelogs have of a session.

    A first checkpoint, of serial 0, was written before its session's row: whoever made the session has written it, or
    one who tried to. Where it is of a later epoch than the row, nobody has made that session.

    Args:
        checkpoints: of each changelog the last one of an owner, and a first one above it.
        complete: the changelogs of all sites that are known have answered.
        damaged: what one of them has of the session cannot be read, in words.
        noted: up to which one of its checkpoints clients were answered, by the registry; None: it does not say.
    """

    checkpoints: tuple[Checkpoint, ...]
    complete: bool
    damaged: str = ""
    noted: Rank | None = None

    @property
    def last(self) -> Checkpoint | None:
        """The checkpoint of the highest rank, first ones included; None: no changelog that answered has one."""
        return _last(self.checkpoints)

    @property
    def last_of_owner(self) -> Checkpoint | None:
        """The checkpoint of the highest rank that an owner has written, first ones left out; None: there is none."""
        return _last(checkpoint for checkpoint in self.checkpoints if checkpoint.serial)

    def last_under(self, row: Ownership) -> Checkpoint | None:
        """Return the last checkpoint that counts for the session of this row; None: no changelog that answered has any.

        First checkpoints of a later epoch than the row, and checkpoints of an earlier generation than the row's, count
        only where there is nothing else: then :attr:`last` is returned (handover rules 19 and 22).

        Args:
            row: the session's row in the registry.
        """
        of_row = (
            checkpoint
            for checkpoint in self.checkpoints
            if (checkpoint.serial or checkpoint.epoch <= row.epoch)
            and not row.is_later_generation_than(checkpoint.epoch)
        )
        return _last(of_row) or self.last


def _last(checkpoints: Iterable[Checkpoint]) -> Checkpoint | None:
    return max(checkpoints, key=lambda checkpoint: checkpoint.rank, default=None)


LOOK_MS = 1_000
"""Time for a changelog to answer before a session is made, a copy activated or a frozen session taken back, in ms;
another site's, asked for the first time, has longer."""


class FindCheckpoint(msgspec.Struct, frozen=True):
    """Effect: find the session's last checkpoint in changelogs.

    Args:
        session: the session.
        on_done: takes what was found, or the error.
        within_ms: a changelog that has not answered by then counts as away; None: wait for all.
        own_site: look in this site's changelog alone.
    """

    session: SessionId
    on_done: Callable[[FoundCheckpoint | WaypostError], None]
    within_ms: int | None = None
    own_site: bool = False


class History(msgspec.Struct, frozen=True):
    """Records of one origin, in order; all that matches up to `through` is there from `first_kept` on.

    `lost_above`: what lies above it was lost with the end of the origin's log; None: nothing was. `damaged`: from the
    first to the last, what cannot be read any more.
    """

    records: Sequence[Forwarded]
    through: int
    first_kept: int
    lost_above: int | None = None
    damaged: Sequence[tuple[int, int]] = ()


class FetchHistory(msgspec.Struct, frozen=True):
    """Effect: fetch a part of an origin's own log, from a proxy of that site, or from our own log.

    Args:
        site: that of the origin.
        wanted: the request, as it is sent to a proxy of that site.
        on_done: takes what was found, or the error.
    """

    site: SiteId
    wanted: CatchUp
    on_done: Callable[[History | WaypostError], None]


class FindLogEnd(msgspec.Struct, frozen=True):
    """Effect: find out how far our site log goes.

    Args:
        on_done: takes the offset of the next record, or the error.
    """

    on_done: Callable[[int | WaypostError], None]


class Verify(msgspec.Struct, frozen=True):
    """Effect: find out whether a password is the one behind a hash. It takes tens of milliseconds: not in the event
    loop.

    Args:
        password: as the client has sent it.
        hash: as :class:`Hash` made it; "": it is the password of nobody, which takes just as long to find out.
        on_done: takes whether it is, or the error.
    """

    password: str
    hash: str
    on_done: Callable[[bool | WaypostError], None]

    def __repr__(self) -> str:
        return "Verify()"


class Hash(msgspec.Struct, frozen=True):
    """Effect: make a salted, memory-hard hash of each password; as slow as that, and it must not hold up a `Verify`.

    Args:
        passwords: in clear.
        on_done: takes the hashes, in the same order, or the error.
    """

    passwords: Sequence[str]
    on_done: Callable[[list[str] | WaypostError], None]

    def __repr__(self) -> str:
        return "Hash()"


class Attest(msgspec.Struct, frozen=True):
    """Effect: write facts to the journal, after all that came before them.

    Args:
        facts: in their order.
        on_done: takes None once the journal has them; there is no error, because what fails is written again.
    """

    facts: Sequence[Fact]
    on_done: Callable[[None], None]


PortCall = (
    Append
    | CreateRow
    | ClaimRow
    | ReadRow
    | ForgetRows
    | ForgetCheckpoints
    | Save
    | LoadEntries
    | FindOutdated
    | PutCheckpoint
    | NoteCheckpoints
    | PutSite
    | FindCheckpoint
    | FetchHistory
    | FindLogEnd
    | Verify
    | Hash
)
"""Effects that a port carries out, each answered with what comes of it."""
Effect = PortCall | Send | Hangup | SendPeer | Attest
