"""A session without its notifications: its descriptor, as it is stored and handed over, and its checkpoint.

Fields may be added; a reader of an older version passes over what it does not know.
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
"""The end of a subscription in an origin of which it is not known yet: proxy/stream/subscription_ends.py finds out."""


class SubscriptionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A subscription, an interval of every origin; `end`, if it has ended, may be UNKNOWN_END (handover rule 7).

    `life` tells it from others of the same name in the session, before and after: ``EPOCH/NUMBER``, the epoch in which
    it was made, and its number in that epoch.

    `owner`: the receiver that made it. Of its entries numbered below `expired_below` the time to live (`ttl_s`,
    seconds) has ended; below `displaced_below` newer ones took their place (`max_count`).

    `keys`: its own, and `owner_keys`: its owner's, all public (waypost/keys.py). One that was `replaced` ended because
    other keys took their place: it goes on as the next one of its name, which has its policy. `payer`: the client whose
    bounds it counts for, wherever the session is (proxy/core/cost_budget.py).
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

    `keys`: those that go with every subscription that it makes, public. It gives up its place when it was not attached
    for `expiry_s` seconds (None: never); `idle_ms`: so long it has not been, as far as counted. `fresh`: it was given
    its place, and was not told so yet. `reliability` and `order`: what was in force when it attached last. `selective`:
    what it has above its frontier.
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
    """Offsets `first` to `last` of an origin could not be had any more; these receivers are to be told."""

    origin: Origin
    first: int
    last: int
    cause: GapCause
    unconfirmed: list[ReceiverId]


class ReceiverTombstone(msgspec.Struct, frozen=True):
    """A receiver left for good, by its own word: which life of it, and how often that had asked for the session. What
    it had asked before may still be on its way, over a connection that has ended.
    """

    incarnation: str
    attach_seq: int


class Descriptor(msgspec.Struct, frozen=True, kw_only=True):
    """All of a session that is not a stored notification.

    `created_at`: the frontier at which it was made, which is what a receiver has that never acknowledged. The session
    ends when nobody was attached for `expiry_s` seconds (None: never); `idle_ms`: so long nobody has been, as far as
    counted. `access`: who may do what (waypost/access.py); without any grant it is open to everybody. `unregistered`:
    what receivers had that have no place any more, and `tombstones` those of them that left for good. `reliability`:
    that of the session, which its receivers' may not exceed; `queue`: how much it stores at most (waypost/queue.py).
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


Rank = tuple[int, int]
"""The (epoch, serial) of a checkpoint: of two of a session the higher one counts (handover rule 19)."""


class Checkpoint(msgspec.Struct, frozen=True):
    """A session as another proxy can rebuild it from: no payloads, those are in the site logs.

    Readers take the highest (epoch, serial), never the last one written (handover rule 19).
    """

    session: SessionId
    epoch: Epoch
    serial: int
    descriptor: Descriptor
    acknowledged: dict[Origin, int]

    @property
    def rank(self) -> Rank:
        """The greater one counts: by epoch, then by serial (handover rule 19)."""
        return (self.epoch, self.serial)

    @property
    def is_first(self) -> bool:
        """Tell whether it was written before its session was there, by whoever tried to create it."""
        return self.serial == 0

    def check_above(self, highest: Rank, *, is_damaged: bool = False) -> None:
        """Compare it with the highest one that a changelog has (rule 19). A session's owner writes them in order.

        Raises:
            CheckpointOutdated: that one counts more.
        """
        epoch, serial = highest
        if highest > self.rank or (highest == self.rank and not self.is_first):
            why = f"there is a checkpoint of session {self.session} at epoch {epoch}"
            raise CheckpointOutdated(why, epoch, by_owner=serial > 0 and not is_damaged)


_decoder = msgspec.json.Decoder(Checkpoint)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Return the checkpoint as it stands in a changelog, sealed."""
    return sealed(msgspec.json.encode(checkpoint))


def decode_checkpoint(data: bytes) -> Checkpoint:
    """Decode a checkpoint. Raises BadRecord."""
    whole = unsealed(data)
    if whole is None:
        raise BadRecord("a checkpoint is damaged: its checksum is wrong")
    try:
        return _decoder.decode(whole)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRecord(f"a checkpoint cannot be read: {error}") from None
