"""The bounds of the ends of a link."""

from __future__ import annotations

from dataclasses import dataclass

from federation.links.forwarding_filter import POSITION_EVERY
from waypost.limits import (
    LINK_BATCH,
    LINK_BYTES,
    LINK_LEASE_MS,
    LINK_LIVE,
    LINK_QUEUE,
    LINK_REQUEST_BYTES,
    LINK_REQUEST_FILTERS,
    LINK_WINDOW,
    LINK_WINDOW_BYTES,
    LOG_BATCH,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBounds:
    """The bounds of both ends of a link. The defaults are those of waypost/limits.py, which describes each; a simulator
    has smaller ones.
    """

    batch: int = LINK_BATCH
    batch_bytes: int = LINK_BYTES
    window: int = LINK_WINDOW
    window_bytes: int = LINK_WINDOW_BYTES
    live: int = LINK_LIVE
    read: int = LOG_BATCH
    queue: int = LINK_QUEUE
    position_every: int = POSITION_EVERY
    lease_ms: int = LINK_LEASE_MS
    request_bytes: int = LINK_REQUEST_BYTES
    request_filters: int = LINK_REQUEST_FILTERS
