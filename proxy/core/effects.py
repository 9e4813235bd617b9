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
    """Send a message to a client. A connection that is gone swallows it."""

    connection: int
    message: msgspec.Struct | msgspec.Raw
    """Raw: encoded already."""


class Hangup(msgspec.Struct, frozen=True):
    """Close a client's connection, after what was sent before. `reason`: for the client and for operators."""

    connection: int
    reason: str


class SendPeer(msgspec.Struct, frozen=True):
    """Send a message to a proxy; it may be lost."""

    proxy: ProxyId
    message: msgspec.Struct


class Append(msgspec.Struct, frozen=True):
    """Append to the site log; answered with the offsets.

    `connection`: by which the notifications came, all of them `Published`; 0: they are the proxy's own records.
    `is_wanted`: tells whether somebody still waits for what is not appended yet.
    """

    records: Sequence[Record]
    on_done: Callable[[list[int] | WaypostError], None]
    connection: int = 0
    is_wanted: Callable[[], bool] = lambda: True


class CreateRow(msgspec.Struct, frozen=True):
    """Set the row of a session that has none in the registry; answered with the row that there is then."""

    session: SessionId
    ownership: Ownership
    on_done: Callable[[Claimed | WaypostError], None]


class ClaimRow(msgspec.Struct, frozen=True):
    """Set a session's row to `new` if it is `expected`; answered with the row that there is then."""

    session: SessionId
    expected: Ownership
    new: Ownership
    on_done: Callable[[Claimed | WaypostError], None]


def claim_row(
    session: SessionId, expected: Ownership | None, new: Ownership, on_done: Callable[[Claimed | WaypostError], None]
) -> ClaimRow | CreateRow:
    """Return the effect that sets a session's row by compare-and-set.

    Args:
        expected: the row that the registry must have; None: it must have none.
        new: the row that takes its place.
        on_done: called with the row that there is then and whether this claim won, or with an error, after which the
            claim may have been applied or not.
    """
    if expected is None:
        return CreateRow(session, new, on_done)
    return ClaimRow(session, expected, new, on_done)


class ReadRow(msgspec.Struct, frozen=True):
    """Read a session's row in the registry; answered with it, or None where there is none."""

    session: SessionId
    on_done: Callable[[Ownership | WaypostError | None], None]


class ForgetRows(msgspec.Struct, frozen=True):
    """Remove these rows of deleted sessions; answered with None once it is done."""

    rows: Mapping[SessionId, Ownership]
    on_done: Callable[[WaypostError | None], None]


class ForgetCheckpoints(msgspec.Struct, frozen=True):
    """Remove what our site's changelog has of sessions that were deleted, up to these epochs; answered with None."""

    deleted: Mapping[SessionId, int]
    on_done: Callable[[WaypostError | None], None]


class Save(msgspec.Struct, frozen=True):
    """Apply to the store; answered with None once durable."""

    batch: StoreBatch
    on_done: Callable[[WaypostError | None], None]


class LoadEntries(msgspec.Struct, frozen=True):
    """Read from the store; it may pass over what lies at or below the frontier `passing`."""

    session: SessionId
    after: int
    limit: int
    on_done: Callable[[list[Entry] | WaypostError], None]
    passing: Mapping[Origin, int] = {}


class FindOutdated(msgspec.Struct, frozen=True):
    """Find entries that are kept for nobody any more."""

    session: SessionId
    windows: Sequence[Window]
    limit: int
    on_done: Callable[[Swept | WaypostError], None]


class PutCheckpoint(msgspec.Struct, frozen=True):
    """Write a checkpoint to our site's changelog; answered with None once it is durable."""

    checkpoint: Checkpoint
    on_done: Callable[[WaypostError | None], None]


class NoteCheckpoints(msgspec.Struct, frozen=True):
    """Note in the registry up to which checkpoint of each session clients were answered."""

    ranks: dict[SessionId, Rank]
    on_done: Callable[[WaypostError | None], None]


class PutSite(msgspec.Struct, frozen=True):
    """Write what the site log means up to a position to the changelog."""

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
    """Find the session's last checkpoint. `within_ms`: what has not answered by then counts as away; None: wait.

    `own_site`: look in this site's changelog alone.
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
    """Fetch a part of an origin's own log, from a proxy of that site, or from our own log."""

    site: SiteId
    wanted: CatchUp
    on_done: Callable[[History | WaypostError], None]


class FindLogEnd(msgspec.Struct, frozen=True):
    """Find out how far our site log goes; answered with the offset of the next record."""

    on_done: Callable[[int | WaypostError], None]


class Verify(msgspec.Struct, frozen=True):
    """Find out whether this is the password behind the hash. Takes tens of milliseconds: not in the event loop.

    `hash` "": it is the password of nobody. To find that out takes just as long.
    """

    password: str
    hash: str
    on_done: Callable[[bool | WaypostError], None]

    def __repr__(self) -> str:
        return "Verify()"


class Hash(msgspec.Struct, frozen=True):
    """Make a salted, memory-hard hash of each password; as slow as that, and it must not hold up a `Verify`."""

    passwords: Sequence[str]
    on_done: Callable[[list[str] | WaypostError], None]

    def __repr__(self) -> str:
        return "Hash()"


class Attest(msgspec.Struct, frozen=True):
    """Write facts to the journal, after all before them; answered with None once it has them."""

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
