"""A session without its notifications: its descriptor, as it is stored and handed over, and its checkpoint.

Fields may be added; a reader of an older version ignores those that it does not know.
"""

from __future__ import annotations

import msgspec

from waypost.access import Grant
from waypost.checksum import sealed, unsealed
from waypost.errors import BadRecord, CheckpointOutdated
from waypost.facts import GapCause
from waypost.identity import Epoch, Origin, ReceiverId, SessionId, SubscriptionId
from waypost.keys import Key
from waypost.queue import UNBOUNDED, Order, Queue
from waypost.reliability import PERSISTENT, Reliability

UNKNOWN_END = 1 << 62
"""The end of a subscription in an origin, while it is not known yet (proxy/stream/subscription_ends.py finds it)."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription, an interval of every origin.

    Args:
        id: its id, which the client chose.
        expression: as it was requested.
        start: by origin, the offset above which it matches.
        promise_floor: by origin, an offset; promises are made above it alone.
        promised: by origin, the offset above which every match is owed.
        end: by origin, the last offset that it matches; it may be UNKNOWN_END (handover rule 7). None: it is active.
        owner: the receiver that made it.
        ttl_s: the time to live of its entries, in seconds; None: no bound.
        max_count: how many of its newest entries are kept; None: all.
        expired_below: of its entries numbered below this, the time to live has ended.
        displaced_below: its entries numbered below this were displaced by newer ones.
        generation: tells it from others of the same id in the session, before and after: ``EPOCH/NUMBER``, the epoch in
            which it was created, and its number in that epoch.
        keys: its own, public (waypost/keys.py).
        owner_keys: its owner's, public.
        insecure: whether it also takes what is published as insecure.
        replaced: it ended because its keys changed: it continues as the next one of its id, which has its policy.
        payer: the client whose bounds it counts for, wherever the session is (proxy/core/cost_budget.py).
    """

    id: SubscriptionId
    expression: str
    start: dict[Origin, int]
    promise_floor: dict[Origin, int]
    promised: dict[Origin, int]
    end: dict[Origin, int] | None = None
    owner: str = ""
    ttl_s: int | None = None
    max_count: int | None = None
    expired_below: int = 0
    displaced_below: int = 0
    generation: str = ""
    keys: tuple[Key, ...] = ()
    owner_keys: tuple[Key, ...] = ()
    insecure: bool = True
    replaced: bool = False
    payer: str = ""


class ReceiverRow(msgspec.Struct, frozen=True, kw_only=True):
    """A receiver's cursor: the number of the last entry that it acknowledged, and its frontier.

    `keys`: those that go with every subscription of this receiver, public. The registration ends when the receiver was
    not attached for `expiry_s` seconds (None: never); `idle_ms`: for how long it has not been, as far as counted.
    `is_new`: it was registered, and has not been told so yet. `reliability` and `order`: those in force at the last
    attach. `selective`: coordinates above the frontier that it has.
    """

    acknowledged: int
    frontier: dict[Origin, int]
    keys: tuple[Key, ...] = ()
    expiry_s: int | None = None
    idle_ms: int = 0
    is_new: bool = False
    reliability: Reliability = PERSISTENT
    order: Order = "any"
    selective: dict[Origin, list[int]] = {}


class GapRow(msgspec.Struct, frozen=True):
    """Offsets `first` to `last` of an origin are lost; the receivers in `unconfirmed` have not confirmed the report."""

    origin: Origin
    first: int
    last: int
    cause: GapCause
    unconfirmed: list[ReceiverId]


class ReceiverTombstone(msgspec.Struct, frozen=True):
    """The mark of a receiver that unregistered: its incarnation, and the number of its last attach. An earlier
    attach of it may still be on its way, over a connection that has ended.
    """

    incarnation: str
    attach_seq: int


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """All of a session that is not a stored notification.

    `created_at`: the frontier at its creation, which is that of a receiver that never acknowledged. The session ends
    when no receiver was attached for `expiry_s` seconds (None: never); `idle_ms`: for how long none has been, as far as
    counted. `access`: the rights by principal (waypost/access.py); without any grant it is open to everybody.
    `unregistered`: the frontiers of receivers whose registration has ended, and `tombstones` the marks of those that
    ended it themselves. `reliability`: that of the session, the upper bound for its receivers; `queue`: its bounds
    (waypost/queue.py).
    """

    created_at: dict[Origin, int] = {}
    subscriptions: list[SubscriptionRow] = []
    receivers: dict[ReceiverId, ReceiverRow] = {}
    expiry_s: int | None = None
    idle_ms: int = 0
    gaps: list[GapRow] = []
    access: dict[str, Grant] = {}
    unregistered: dict[ReceiverId, dict[Origin, int]] = {}
    reliability: Reliability = PERSISTENT
    queue: Queue = UNBOUNDED
    tombstones: dict[ReceiverId, ReceiverTombstone] = {}

    def has_all_of(self, other: Descriptor) -> bool:
        """Tell whether this descriptor lacks no change of the session that the other one has, if none was made after
        both: they differ at most in how far receivers, times and policies have come, and this one may have more gaps.
        """
        gaps, others = ({(gap.origin, gap.first, gap.last, gap.cause) for gap in each.gaps} for each in (self, other))
        return self._definition() == other._definition() and others <= gaps

    def _definition(self) -> Descriptor:
        subscriptions = [msgspec.structs.replace(row, expired_below=0, displaced_below=0) for row in self.subscriptions]
        receivers = {
            identity: msgspec.structs.replace(row, acknowledged=0, frontier={}, selective={}, idle_ms=0)
            for identity, row in self.receivers.items()
        }
        return msgspec.structs.replace(
            self,
            idle_ms=0,
            gaps=[],
            subscriptions=sorted(subscriptions, key=lambda row: (row.id, row.generation)),
            receivers=receivers,
        )


Rank = tuple[int, int]
"""The (epoch, serial) of a checkpoint: of two of a session the higher one counts (handover rule 19)."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The data from which another proxy rebuilds a session; it has no payloads, which are in the site logs.

    Readers take the highest (epoch, serial), never the last one written (handover rule 19).

    Args:
        session: the session.
        epoch: at which it was written.
        serial: its number in that epoch, from 0.
        descriptor: the session, without its entries.
        acknowledged: by origin, the offset up to which all receivers have what they are owed.
    """

    session: SessionId
    epoch: Epoch
    serial: int
    descriptor: Descriptor
    acknowledged: dict[Origin, int]

    @property
    def rank(self) -> Rank:
        """The (epoch, serial) of the checkpoint: of two checkpoints of a session the one of the higher rank counts
        (handover rule 19).
        """
        return (self.epoch, self.serial)

    @property
    def is_first(self) -> bool:
        """Whether the checkpoint was written before its session existed, by a proxy that tried to create it."""
        return self.serial == 0

    def check_above(self, highest: Rank, *, is_damaged: bool = False) -> None:
        """Raise CheckpointOutdated unless this checkpoint may be written beside the highest one that the changelog has
        of the session (handover rule 19): its rank has to be higher, or, of a first checkpoint, at least as high.

        Args:
            highest: the rank of the checkpoint in the changelog.
            is_damaged: whether the checkpoint in the changelog cannot be read; `by_owner` of the error is False then.

        Raises:
            CheckpointOutdated: the checkpoint in the changelog counts more.
        """
        epoch, serial = highest
        if highest > self.rank or (highest == self.rank and not self.is_first):
            why = f"there is a checkpoint of session {self.session} at epoch {epoch}"
            raise CheckpointOutdated(why, epoch, by_owner=serial > 0 and not is_damaged)


_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint as it is written to a changelog: JSON, followed by its checksum."""
    return sealed(msgspec.json.encode(checkpoint))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Return the checkpoint of bytes that :func:`encode_checkpoint` made. Raises BadRecord: they are damaged, or no
    checkpoint.
    """
    whole = unsealed(data)
    if whole is None:
        raise BadRecord("a checkpoint is damaged: its checksum is wrong")
    try:
        return _decoder.decode(whole)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"a checkpoint cannot be read: {error}") from None
