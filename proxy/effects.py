"""What the engine asks of the world. An effect with `then` is answered by calling it once, with result or error.

Effects are performed in the order in which they come out. Those of one kind take effect in that order; answers may come
in any order and at any later time, or never, if the process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from federation.messages import CatchUp
from federation.ports import Claimed
from proxy.ports import StoreBatch, Swept
from proxy.retention import Window
from proxy.session import Entry
from waypost.checkpoint import Checkpoint
from waypost.errors import WaypostError
from waypost.identity import Ownership, ProxyId, SessionId, SiteId
from waypost.records import Fact, Forwarded, Record

Then = Callable[[Any], None]


def nobody_waits(_: object) -> None:
    """Take an answer that changes nothing: what failed is done again anyway."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a client. A connection that is gone swallows it."""

    connection: int
    message: msgspec.Struct | msgspec.Raw
    """Raw: encoded already."""


@dataclass(frozen=True, slots=True)
class Hangup:
    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class SendPeer:
    """Send a message to a proxy; it may be lost."""

    proxy: ProxyId
    message: msgspec.Struct


@dataclass(frozen=True, slots=True)
class Append:
    """Append to the site log; answered with the offsets."""

    records: Sequence[Record]
    then: Callable[[list[int] | WaypostError], None]


@dataclass(frozen=True, slots=True)
class CreateRow:
    session: SessionId
    ownership: Ownership
    then: Callable[[Claimed | WaypostError], None]


@dataclass(frozen=True, slots=True)
class ClaimRow:
    session: SessionId
    expected: Ownership
    new: Ownership
    then: Callable[[Claimed | WaypostError], None]


@dataclass(frozen=True, slots=True)
class ReadRow:
    session: SessionId
    then: Callable[[Ownership | WaypostError | None], None]


@dataclass(frozen=True, slots=True)
class Save:
    """Apply to the store; answered with None once durable."""

    batch: StoreBatch
    then: Callable[[WaypostError | None], None]


@dataclass(frozen=True, slots=True)
class LoadEntries:
    session: SessionId
    after: int
    limit: int
    then: Callable[[list[Entry] | WaypostError], None]


@dataclass(frozen=True, slots=True)
class FindOutdated:
    """Find entries that nobody holds any more."""

    session: SessionId
    windows: Sequence[Window]
    limit: int
    then: Callable[[Swept | WaypostError], None]


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    checkpoint: Checkpoint
    then: Callable[[WaypostError | None], None]


@dataclass(frozen=True, slots=True)
class FoundCheckpoint:
    """`complete`: the changelogs of all sites that are known were read."""

    checkpoint: Checkpoint | None
    complete: bool


@dataclass(frozen=True, slots=True)
class FindCheckpoint:
    session: SessionId
    then: Callable[[FoundCheckpoint | WaypostError], None]


@dataclass(frozen=True, slots=True)
class History:
    """Records of one origin, in order; all that matches up to `through` is there from `first_kept` on."""

    records: Sequence[Forwarded]
    through: int
    first_kept: int


@dataclass(frozen=True, slots=True)
class FetchHistory:
    """Fetch a part of an origin's own log, from a proxy of that site, or from our own log."""

    site: SiteId
    wanted: CatchUp
    then: Callable[[History | WaypostError], None]


@dataclass(frozen=True, slots=True)
class Attest:
    facts: Sequence[Fact]
    then: Callable[[WaypostError | None], None]


Effect = (
    Send
    | Hangup
    | SendPeer
    | Append
    | CreateRow
    | ClaimRow
    | ReadRow
    | Save
    | LoadEntries
    | FindOutdated
    | PutCheckpoint
    | FindCheckpoint
    | FetchHistory
    | Attest
)
