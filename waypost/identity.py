"""Names of things. All are plain strings and integers, so that they sort, hash and travel as they are."""

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
"""A random name of one life of a process; a restart takes a new one."""
Epoch = NewType("Epoch", int)
"""A session's ownership counter, from 1. Every start of serving takes the next one."""
Origin = NewType("Origin", str)
"""Where notifications are first appended: one partition of a site's log in one log epoch, written ``site/partition`` in
the first log epoch, ``site/partition.epoch`` in each later one."""

NO_PROXY = ProxyId("")
"""Owns the sessions that were deleted."""
GENERATION = 1_000_000_000
"""Epochs of sessions of one name that were deleted and created again lie so far apart at least, so that what is left of
an earlier one - a checkpoint, a copy - is never taken for a part of the next one."""
NOTHING = -1
"""The offset before the first: the frontier of an origin of which nothing has been seen."""


class Coordinate(NamedTuple):
    """Where a notification was first appended. Every notification has exactly one."""

    origin: Origin
    offset: int


class NotificationId(NamedTuple):
    """Chosen by the producer's library, so that a publish retried at another proxy is recognised."""

    producer: str
    incarnation: Incarnation
    sequence: int


class Ownership(NamedTuple):
    """One row of the registry: who owns a session, at which epoch."""

    proxy: ProxyId
    epoch: Epoch

    def next(self, proxy: ProxyId) -> Ownership:
        """Return the row of the proxy that takes the next epoch."""
        return Ownership(proxy, Epoch(self.epoch + 1))

    def gone(self) -> Ownership:
        """Return the row that says that the session is deleted: nobody's, and the first of the next generation."""
        return Ownership(NO_PROXY, Epoch((self.epoch // GENERATION + 1) * GENERATION))

    @property
    def deleted(self) -> bool:
        """The session was deleted: who creates it anew takes the next epoch after this one."""
        return self.proxy == NO_PROXY

    @property
    def generation(self) -> int:
        """Which session of that name it is: a deleted one and the next have epochs of different generations."""
        return self.epoch // GENERATION

    def outlives(self, epoch: int) -> bool:
        """Tell whether a session of that epoch was deleted before this one of the same name was created."""
        return epoch // GENERATION < self.generation


def without_row(floor: int) -> Ownership | None:
    """Return what a session without a row counts as (handover rule 28): deleted in the generation of the registry's
    floor; None: no row was ever removed, so it never was.
    """
    return Ownership(NO_PROXY, Epoch(floor * GENERATION)) if floor else None


def origin_of(site: SiteId, partition: int = 0, log_epoch: int = 1) -> Origin:
    """Return the origin of a site's log in that log epoch; the first one is not named."""
    return Origin(f"{site}/{partition}" if log_epoch == 1 else f"{site}/{partition}.{log_epoch}")


def log_epoch_of(origin: Origin) -> int:
    """Return the log epoch in which notifications are first appended at this origin, from 1."""
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


def new_secret() -> str:
    """Return what only this life of a producer knows (256 bits)."""
    return secrets.token_urlsafe(32)


def producer_incarnation(producer: str, secret: str) -> Incarnation:
    """Return the incarnation of a producer whose life has this secret.

    Every proxy finds it out from the secret, and shares nothing with the others for it. Whoever reads the name, in a
    notification or a log, does not learn the secret from it, and so cannot publish under that name.
    """
    stated = f"{len(producer)} {producer} {secret}".encode("utf-8", "surrogatepass")
    return Incarnation(hashlib.blake2b(stated, digest_size=16, person=b"waypost producer").hexdigest())


def new_incarnation() -> Incarnation:
    """Return a name that nobody else has or can guess (64 bits)."""
    return Incarnation(secrets.token_hex(8))
