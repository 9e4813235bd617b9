"""The role of a session's copy at a proxy: what the copy has to do with who owns the session."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """What this copy of the session is. Only a SERVING one delivers or accepts changes."""

    SHADOW = "shadow"
    """A target's: all origins gated, the cut not known yet."""
    STAGED = "staged"
    """A target's, merged and stored, waiting for the registry."""
    DORMANT = "dormant"
    """Ours by the store; the epoch of this start of serving is not taken yet."""
    SERVING = "serving"
    FROZEN = "frozen"
    """A source's, still at its cut; the registry decides what becomes of it."""
    ORPHAN = "orphan"
    """A staged copy whose transfer ended with our lease or with the process: ours if the row has its very epoch, or if
    the row has the epoch before and the copy commits after all."""


CHANGES = {
    (Role.SHADOW, Role.STAGED): "merge",
    (Role.STAGED, Role.SERVING): "commit",
    (Role.STAGED, Role.ORPHAN): "the transfer is gone",
    (Role.ORPHAN, Role.DORMANT): "the row has its epoch, or was given it",
    (Role.DORMANT, Role.SERVING): "a new epoch was taken",
    (Role.SERVING, Role.FROZEN): "freeze",
    (Role.SERVING, Role.DORMANT): "the lease has ended",
    (Role.FROZEN, Role.SERVING): "thaw",
    (Role.FROZEN, Role.DORMANT): "the lease has ended",
}
"""All changes of a copy's role; there are no others."""
