"""Identifiers. All are plain strings and integers, so that they sort, hash and travel as they are."""

from __future__ import annotations

import hashlib
import secrets
from typing import NamedTuple, NewType

SiteId = NewType("SiteId", str)
ProxyId = NewType("ProxyId", str)
SessionId = NewType("SessionId", str)
SubscriptionId = NewType("SubscriptionId", str)
ReceiverId = NewType("ReceiverId", str)
Incarnation = NewType("Incarnation", str)
"""A name of one life of a proxy or of a client's library. A proxy takes a new random one at its start and after each
lease that ended; a producer's is computed from its secret."""
Edge = tuple[SiteId, SiteId]
"""Two sites that forward to each other, or may, in the order of their names."""
NAME_PATTERN = r"\A[^\x00-\x1f\x7f-\x9f]*\Z"
"""What clients name has no control characters: it goes to logs, tables and terminals."""
Epoch = NewType("Epoch", int)
"""A session's ownership counter, from 1. Every start of serving takes the next one."""
Origin = NewType("Origin", str)
"""Where notifications are first appended: one partition of a site's log in one log epoch, written ``site/partition`` in
the first log epoch, ``site/partition.epoch`` in each later one."""

NO_PROXY = ProxyId("")
"""The owner of deleted sessions."""
GENERATION = 1_000_000_000
"""The least distance of the epochs of two sessions of one name, of which the first was deleted: what is left of it -
a checkpoint, a copy - is never taken for a part of the next one.
"""
NOTHING = -1
"""The offset before the first: the frontier of an origin of which nothing has been seen."""


class Coordinate(NamedTuple):
    """The place where a notification was first appended. Every notification has exactly one, whatever logs it passes
    later.

    Args:
        origin: the site log, and its log epoch.
        offset: in that log.
    """

    origin: Origin
    offset: int


class NotificationId(NamedTuple):
    """The id of a publish, chosen by the producer's library, by which a retry at another proxy is recognised."""

    producer: str
    incarnation: Incarnation
    sequence: int


class Ownership(NamedTuple):
    """The registry's row of a session. Of two rows of one session, that of the higher epoch is the later one.

    Args:
        proxy: the owner.
        epoch: of its ownership; each change of owner makes it greater.
    """

    proxy: ProxyId
    epoch: Epoch

    def next(self, proxy: ProxyId) -> Ownership:
        """Return the row with which this proxy takes the session: itself as the owner, at the epoch after this one."""
        return Ownership(proxy, Epoch(self.epoch + 1))

    def gone(self) -> Ownership:
        """Return the row of the deleted session: no owner, and the first epoch of the next generation."""
        return Ownership(NO_PROXY, Epoch((self.epoch // GENERATION + 1) * GENERATION))

    @property
    def deleted(self) -> bool:
        """Whether the session was deleted. A session created later takes the next epoch after this one."""
        return self.proxy == NO_PROXY

    @property
    def generation(self) -> int:
        """The number of the session among those of its name: a deletion begins the next one."""
        return self.epoch // GENERATION

    def is_later_generation_than(self, epoch: int) -> bool:
        """Tell whether a session of that epoch was deleted before this one of the same name was created."""
        return epoch // GENERATION < self.generation


def without_row(floor: int) -> Ownership | None:
    """Return the row that a session without a row counts as (handover rule 28).

    Args:
        floor: of the registry, a generation: every removed row was of an earlier one.

    Returns:
        A row deleted in that generation; None if `floor` is 0: no row was ever removed, so the session never existed.
    """
    return Ownership(NO_PROXY, Epoch(floor * GENERATION)) if floor else None


def origin_of(site: SiteId, partition: int = 0, log_epoch: int = 1) -> Origin:
    """Return the origin of a site's log in a log epoch: ``site/partition``, with ``.log_epoch`` from the second log
    epoch on.

    Args:
        site: of the log.
        partition: the number of the partition of the site's log.
        log_epoch: from 1.
    """
    return Origin(f"{site}/{partition}" if log_epoch == 1 else f"{site}/{partition}.{log_epoch}")


def log_epoch_of(origin: Origin) -> int:
    """Return the log epoch of an origin, from 1."""
    _, _, epoch = origin.rpartition("/")[2].partition(".")
    return int(epoch) if epoch else 1


def follows(later: Origin, earlier: Origin) -> bool:
    """Tell whether both are of one partition, and `later` is of a later log epoch."""
    return _partition(later) == _partition(earlier) and log_epoch_of(later) > log_epoch_of(earlier)


def _partition(origin: Origin) -> str:
    head, slash, tail = origin.rpartition("/")
    return head + slash + tail.partition(".")[0]


def site_of(origin: Origin) -> SiteId:
    """Return the site of an origin."""
    return SiteId(origin.rpartition("/")[0])


def edge(one: SiteId, other: SiteId) -> Edge:
    """Return the edge between two different sites, whichever is named first: the pair in the order of their names."""
    return (one, other) if one < other else (other, one)


def link_name(near: SiteId, far: SiteId) -> str:
    """Return the name of the link that forwards from the site `near` to the site `far`."""
    return f"{near}->{far}"


def new_secret() -> str:
    """Return a random secret for one incarnation of a producer (256 bits)."""
    return secrets.token_urlsafe(32)


def producer_incarnation(producer: str, secret: str) -> Incarnation:
    """Return the incarnation of a producer with this secret.

    Every proxy computes it from the secret alone. The incarnation in a notification or a log does not reveal the
    secret, so a reader of it cannot publish under that name.
    """
    stated = f"{len(producer)} {producer} {secret}".encode("utf-8", "surrogatepass")
    return Incarnation(hashlib.blake2b(stated, digest_size=16, person=b"waypost producer").hexdigest())


def new_incarnation() -> Incarnation:
    """Return a new random incarnation, unique and not guessable (64 bits)."""
    return Incarnation(secrets.token_hex(8))
