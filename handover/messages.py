"""What proxies say to each other of a session: the two sides of a handover, and those of a relay.

In a handover every message carries the session, the transfer's id and the epoch that is being handed over; it is
idempotent, and refused where it belongs to another transfer. T -> S: Prepare, ChunkStored, Ready, Aborted. S -> T:
Prepared, Chunk, Frozen, TransferRefused, TransferDeclined. Where the session stays, its receiver is relayed: then its
messages carry the relay's name and are numbered, each way.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from enum import Enum, StrEnum

import msgspec

from waypost.checkpoint import Descriptor
from waypost.identity import Epoch, Origin, ProxyId, SessionId, SubscriptionId
from waypost.keys import Key


class Trigger(StrEnum):
    """Why a handover begins."""

    ATTACH = "attach"
    """A client attached at the target."""
    FOLLOW = "follow"
    """The session follows a receiver that is attached elsewhere."""
    DRAIN = "drain"
    """An operator empties the source."""
    REBALANCE = "rebalance"
    """An operator evens out the load of the site."""


class TransferMessage(msgspec.Struct, frozen=True):
    """The common fields of all messages of one transfer.

    Args:
        session: the session that is handed over.
        transfer: the name of the transfer, which the target has chosen; no two transfers have one.
        epoch: the epoch at which the source serves the session.
    """

    session: SessionId
    transfer: str
    epoch: Epoch


class Prepare(TransferMessage, tag="prepare", frozen=True, kw_only=True):
    """Target to source: a request to hand over the session, answered with Prepared, TransferRefused or
    TransferDeclined.

    Args:
        trigger: why.
        receiver: that attached at the target, if that is the reason.
        incarnation: of that receiver.
        copy: the name of a copy of which an earlier transfer has brought a part; "": none.
        has: the target has all entries of that copy up to this number; they need not come again.
    """

    trigger: Trigger = Trigger.ATTACH
    receiver: str = ""
    incarnation: str = ""
    copy: str = ""
    has: int = 0


class Prepared(TransferMessage, tag="prepared", frozen=True, kw_only=True):
    """Source to target: the source agrees, and goes on serving the session. Chunks of what is stored follow.

    Args:
        descriptor: the session as it is now, without its entries.
        stored: the number of the last entry that the chunks will bring; 0: there is none.
        copy: names what the chunks are taken from: in two transfers that name the same, equal numbers are equal
            entries. If Prepare named it too, chunks begin behind what it has.
    """

    descriptor: Descriptor
    stored: int
    copy: str = ""


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One stored notification, as a chunk has it.

    Args:
        number: in the session.
        matched: the subscriptions that it matched.
        origin: where it was published.
        offset: in the log of its origin.
        delivery: the encoded :class:`waypost.messages.Delivery`.
        keys: those that it was published with.
    """

    number: int
    matched: tuple[SubscriptionId, ...]
    origin: Origin
    offset: int
    delivery: bytes
    keys: tuple[Key, ...] = ()


class Age(msgspec.Struct, frozen=True, array_like=True):
    """All entries numbered below `below` were taken so many milliseconds ago, or more. No deadline ever travels."""

    below: int
    age_ms: int


def checksum(entries: Sequence[StoredEntry], ages: Sequence[Age] = ()) -> int:
    """Return the CRC-32 of the entries and ages of a chunk, as they are encoded: the field `checksum` of
    :class:`Chunk`.
    """
    return zlib.crc32(msgspec.msgpack.encode((entries, ages)))


class Chunk(TransferMessage, tag="chunk", frozen=True, kw_only=True):
    """Source to target: stored notifications, in order, before the freeze, and what is left after it; answered with
    ChunkStored. A chunk that does not join on to the one before it is no part of the same copy.

    Args:
        number: 1, 2, 3, ... in a transfer.
        after: the number of the entry where the chunk before it ended, or behind which the copy begins.
        upto: it spans the entries up to this number; those that all receivers have are left out.
        entries: the others.
        checksum: as :func:`checksum` returns it of `entries` and `ages`.
        ages: of the entries that it spans, where a time to live needs them.
    """

    number: int
    after: int | None
    upto: int
    entries: list[StoredEntry]
    checksum: int
    ages: tuple[Age, ...] = ()


class ChunkStored(TransferMessage, tag="chunk-stored", frozen=True):
    """Target to source: all chunks up to a number have come.

    Args:
        number: of that chunk; chunks are numbered from 1, and 0 means that none has come.
    """

    number: int


class Ready(TransferMessage, tag="ready", frozen=True):
    """Target to source: the target has what was stored, and sees what comes.

    Args:
        coverage: by origin, the offset above which the target sees all notifications that match; null: it does not know
            yet.
    """

    coverage: dict[Origin, int | None]


class Frozen(TransferMessage, tag="frozen", frozen=True, kw_only=True):
    """Source to target: the session is still.

    Args:
        descriptor: the session as it is at the cut.
        cut: its frontier: by origin, the last offset that the source has taken.
        chunks: how many chunks went before.
        oldest: entries with a lower number went to all receivers meanwhile.
        next_number: the number that the next entry gets.
    """

    descriptor: Descriptor
    cut: dict[Origin, int]
    chunks: int
    oldest: int
    next_number: int


class TransferRefused(TransferMessage, tag="refused", frozen=True):
    """Source to target: the source does not hand over. A staged copy waits for the registry, never for this message.

    Args:
        reason: for people.
        lost: the source owns the session and has it no more, and neither has any changelog; `reason` says how the
            source knows.
    """

    reason: str
    lost: bool = False


class DeclineReason(Enum):
    """Why a session stays for now, although a receiver of it has attached elsewhere."""

    OTHERS_ATTACHED = "others attached"
    """At its owner; it goes where most of its deliveries go."""
    LONG_COPY = "long copy"
    """The receiver would wait for it; the session follows, served at its owner until all but the rest is copied."""
    ACCESS = "access"
    """Its owner must look first whether the receiver may have it."""


class TransferDeclined(TransferMessage, tag="transfer-declined", frozen=True):
    """Source to target: the source does not hand over now; the target is to relay its receiver to the source.

    Args:
        reason: why not now.
        departures: how many receivers had left for good at the source by then; the relays that follow name it.
    """

    reason: DeclineReason
    departures: int = 0


class Aborted(TransferMessage, tag="aborted", frozen=True):
    """Either side to the other: the sender has no such transfer, or has it no more.

    Args:
        reason: for people.
    """

    reason: str


class HandoverOffer(msgspec.Struct, frozen=True, tag="handover-offer"):
    """Source to a proxy, before any transfer: the owner serves this session, and that proxy may ask for it by Prepare.
    It obliges neither side to anything.

    Args:
        session: the session.
        epoch: at which it is served.
        trigger: why the target is to have it.
    """

    session: SessionId
    epoch: Epoch
    trigger: Trigger


class MoveRequest(msgspec.Struct, frozen=True, tag="move-request"):
    """A proxy that rebalances to the owner: a request to hand the session over to another proxy. There is no answer;
    the registry shows what came of it.

    Args:
        session: the session.
        epoch: at which the owner serves it; else the request has no effect.
        target: the proxy that is to have it.
    """

    session: SessionId
    epoch: Epoch
    target: ProxyId


ToSource = Prepare | ChunkStored | Ready | Aborted
ToTarget = Prepared | Chunk | Frozen | TransferRefused | TransferDeclined


# ---------------------------------------------------------------- a receiver that is attached elsewhere


class RelayUp(msgspec.Struct, frozen=True, tag="relay-up"):
    """Near proxy to owner: the next message of a client that is relayed.

    Args:
        relay: the name of the relay; no two ever have one, as the near proxy makes it of its incarnation and a number.
        number: of this message, from 1.
        frame: the encoded message of the client.
        address: the network address of the client; "": not known.
        departures: as of the TransferDeclined after which the relay began. What a receiver sent before it left for good
            may be on its way longer than that, and does not register it again.
    """

    relay: str
    number: int
    frame: bytes
    address: str = ""
    departures: int = 0


class RelayDown(msgspec.Struct, frozen=True, tag="relay-down"):
    """Owner to near proxy: the next message for a client that is relayed.

    Args:
        relay: the name of the relay.
        number: of this message, from 1.
        frame: the encoded message for the client; empty: a sign of life.
        received: all messages of the near proxy up to this number have come.
    """

    relay: str
    number: int
    frame: bytes
    received: int


class RelayEnd(msgspec.Struct, frozen=True, tag="relay-end"):
    """Near proxy to owner, or owner to near proxy: a relay is over.

    Args:
        relay: the name of the relay.
    """

    relay: str
    by_owner: bool
    """Said by the owner."""


RelayMessage = RelayUp | RelayDown | RelayEnd
