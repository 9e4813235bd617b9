"""The law of the order: what must be durable before it is told (persist before send).

Effects are performed in the order in which they come out, and each is answered when it is done. Whatever a client or
the registry is told as done must survive this process, and where the table says so its disk: the
effect that makes it durable has been answered before the effect that tells it comes out. etcd raft states the same
law at its Ready: entries are in stable storage before messages are sent.

:data:`LAW` is the whole of it. Who keeps it: `proxy/clients/durable_reply.py` for answers to clients,
`proxy/stream/promises.py` for promises, `proxy/stream/coverage.py` for gaps, `proxy/core/journal.py` for both,
`handover/acquisition.py` and `handover/target.py` for rows. The simulator looks at every step whether it is kept
(`chaos/simulator/checks/durability.py`).

What a client may be told at once is in :data:`NOT_HELD`, with why. Nor is anything held back of what another proxy is
told in a handover: a chunk that is acknowledged (`ChunkStored`) need not be on a disk, because the source has
everything until the registry names the target, and before that row the target has stored it (`ClaimRow`). What a proxy
passes on to a receiver of another proxy's session is held back by that proxy.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from proxy.core.effects import ClaimRow, CreateRow
from waypost.messages import (
    AccessChanged,
    Acknowledged,
    Attached,
    Attested,
    BecameEffective,
    Deleted,
    Deliver,
    Forgotten,
    Gap,
    Interest,
    KeysChanged,
    Left,
    Moved,
    Problem,
    Proxies,
    Subscribed,
    SubscriptionChanged,
    Unsubscribed,
    Wait,
    Welcome,
)


class Durable(Enum):
    """Where something is that survives the process."""

    STORE = "the store: the proxy's own disk"
    CHANGELOG = "the site's changelog: survives the disk"
    STORE_OR_CHANGELOG = "one of them at least, from which the session was raised"
    JOURNAL = "the journal: what the audit reads"
    SITE_LOG = "the site log"


_BOTH = frozenset((Durable.STORE, Durable.CHANGELOG))

LAW: Mapping[type, frozenset[Durable]] = {
    # The change that a client asked for (handover rule 6).
    Subscribed: _BOTH,
    Unsubscribed: _BOTH,
    KeysChanged: _BOTH,
    AccessChanged: _BOTH,
    Forgotten: _BOTH,
    # The registration of the receiver: a failover must keep for it what others have.
    Attached: frozenset((Durable.STORE_OR_CHANGELOG,)),
    # A promise: a restart and a failover must know of it, and the audit, before anybody relies on it.
    BecameEffective: frozenset((Durable.STORE_OR_CHANGELOG, Durable.JOURNAL)),
    # A gap: whoever gets past it has it on record (handover rule 21).
    Gap: frozenset((Durable.JOURNAL,)),
    # A receiver's attestation: its library forgets one that a journal has.
    Attested: frozenset((Durable.JOURNAL,)),
    # A notification that its producer need not keep any more.
    Acknowledged: frozenset((Durable.SITE_LOG,)),
    # A row that is made: without its first checkpoint it would mean that the session was lost.
    CreateRow: frozenset((Durable.CHANGELOG,)),
    # A row that a staged copy commits: whatever dies next, the owner that the row names has the session.
    ClaimRow: frozenset((Durable.STORE,)),
}
"""What is told -> where it must be durable before."""

NOT_HELD: Mapping[type, str] = {
    Welcome: "it is the proxy's own state",
    Proxies: "it is what the registry's watch has reported",
    Wait: "it is the proxy's own state",
    Moved: "it is the proxy's own state, or the registry's row",
    Interest: "it is the proxy's own state, and is told anew on every connection",
    Deliver: "the site log has it",
    Deleted: "the registry's row says so: whoever has the session deleted writes that first",
    Left: "what the receiver has is told by Attested; the registration stays",
    SubscriptionChanged: "it says how the subscription is now; whoever asked for the change is told by what is held",
    Problem: "a refusal promises nothing",
}
"""What a client may be told at once -> why."""
