"""The port to a proxy's own disk: stored notifications, one copy each, with the position they belong to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Protocol

from proxy.session.retention import Mark, Window
from proxy.session.stored_notification import Entry
from proxy.session.subscription import Matched
from waypost.checkpoint import Descriptor, Rank
from waypost.identity import Epoch, Origin, SessionId

NOWHERE: Mapping[Origin, int] = MappingProxyType({})
"""A frontier that has seen nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSession:
    """A session as it is stored, without its entries.

    Args:
        id: its name.
        epoch: of the copy.
        role: the name of a :class:`proxy.session.session.Role`.
        descriptor: None: it is as the store has it, which has the session.
        first_number: that of the first entry that is kept.
        next_number: that of the next entry.
        gates: origin -> last offset seen, where that does not follow from the position in the log: gated, or seen
            further than the log has brought here; None: not known.
        source: of a staged copy, the proxy that handed it over; "": it is none.
        checkpointed: the rank of the last checkpoint that was written of the copy before it was stored; of serial 0:
            none was, and what it holds is of that epoch.
    """

    id: SessionId
    epoch: Epoch
    role: str
    descriptor: Descriptor | None
    first_number: int
    next_number: int
    gates: dict[Origin, int | None]
    checkpointed: Rank
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """The changes of a session since the last write. `replaces`: an earlier copy is to go first, with its entries.

    `marks`: new ones, in Unix time; `removed` and `discarded`: what is to go by policy, and by number. Afterwards there
    is no entry that lies in them, new ones included, none below `saved.first_number`, and no mark that speaks of those
    alone.
    """

    saved: SavedSession
    entries: Sequence[Entry]
    replaces: bool = False
    marks: Sequence[Mark] = ()
    removed: Sequence[Window] = ()
    discarded: Sequence[int] = ()


class Outdated(NamedTuple):
    """One stored entry that is kept for nobody any more.

    Args:
        number: of the entry, in its session.
        matched: the subscriptions that it matched.
        origin: where it was published.
        offset: in the log of its origin.
    """

    number: int
    matched: Matched
    origin: Origin
    offset: int


@dataclass(frozen=True, slots=True)
class Swept:
    """The answer to FindOutdated: the first stored entries that lie in its windows.

    Args:
        outdated: these entries, in order of number; fewer than its limit: there are no others.
        lowest: the lowest number of an entry that the store keeps once they are removed; None: it keeps none.
    """

    outdated: Sequence[Outdated]
    lowest: int | None


@dataclass(frozen=True, slots=True)
class Policed:
    """What the policies of a session that was restored from the store have to know of its entries.

    Args:
        marks: when entries were taken, in Unix time (ms), where a time to live needs it.
        matched: by number of the entry, the subscriptions that it matched, where a maximum count needs it.
    """

    marks: Sequence[Mark] = ()
    matched: Sequence[tuple[int, Matched]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBatch:
    """All changes at a proxy up to one position of the site log. Applied whole or not at all.

    `acceptance` is what counted up to there, `site_state` the rest of the log's meaning; None: it is as the store has
    it, or, if that is `behind`, it has changed, and the store goes on to have what was meant at an earlier position.
    Sessions are dropped first: one that is in `changes` too begins anew.
    """

    position: int
    acceptance: bytes
    site_state: bytes | None
    changes: Sequence[SessionChange]
    deleted: Sequence[SessionId]
    behind: bool = False


class SiteCheckpoint(NamedTuple):
    """The site's state at a position of its log, at or before the position of the sessions."""

    position: int
    acceptance: bytes
    state: bytes


@dataclass(frozen=True, slots=True)
class Restored:
    """The content of a proxy's disk at its start. Entries stay there until they are read.

    Args:
        position: the offset in the site log below which the sessions have taken all records.
        acceptance: which records of the log counted up to `position`, encoded (federation/site/acceptance.py).
        site: the site's state, at or before `position`.
        sessions: those that were stored.
    """

    position: int
    acceptance: bytes
    site: SiteCheckpoint
    sessions: list[SavedSession] = field(default_factory=list)
    policed: dict[SessionId, Policed] = field(default_factory=dict)
    """The policies of sessions that have a time to live or a maximum count."""


class SessionStore(Protocol):
    """All or nothing over a crash; bounded memory. Every call raises StoreDamaged where it comes upon damage."""

    async def apply(self, batch: StoreBatch) -> None:
        """Apply the batch as one durable transaction, whole or not at all.

        Raises:
            StoreFailed: the disk did not take the batch; nothing has changed.
            StoreDamaged: the content of the disk is not what was written.
        """
        ...

    async def load(self) -> Restored | None:
        """Return the content of the disk, entries left out; None: nothing was stored yet.

        Raises:
            StoreDamaged: the content is not what was written.
            StoreFailed: the disk cannot be read, or an earlier build wrote the store.
        """
        ...

    async def entries(
        self, session: SessionId, after: int, limit: int, passing: Mapping[Origin, int] = NOWHERE
    ) -> list[Entry]:
        """Return up to `limit` stored entries numbered above `after`, in order; none: there are no others.

        Args:
            passing: entries at or below this frontier need not be among them. One read looks at a bounded number of
                entries, and the last of these is among them, so fewer than `limit` do not mean that no others follow.

        Raises:
            StoreDamaged: the content of the disk is not what was written.
            StoreFailed: the disk cannot be read.
        """
        ...

    async def outdated(self, session: SessionId, windows: Sequence[Window], limit: int) -> Swept:
        """Return the first stored entries of a session that lie in the windows; they are not removed.

        Args:
            windows: by matched subscriptions and numbers, the entries that are kept for nobody any more.
            limit: the most entries to return; if there are fewer, no others lie in the windows.

        Raises:
            StoreDamaged: the content of the disk is not what was written.
            StoreFailed: the disk cannot be read.
        """
        ...

    async def set_aside(self) -> str:
        """Move the damaged content elsewhere, and begin with an empty store; return the new place, for operators.

        Raises:
            OSError: the content cannot be moved.
        """
        ...

    async def close(self) -> None:
        """Release files and threads; the store takes no call afterwards. All batches that were applied are durable."""
