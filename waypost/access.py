"""Who may do what with a session: rights by principal, each proven by a password, by a token, or by nothing.

A session without any grant is open: whoever reaches it may do everything. Every other form is the same list. One
password is one grant to the principal without a name; levels are grants to principals that share a password and are
called after what they may do; an access-control list has a principal for each person.

Of a password only a salted, memory-hard hash is kept; the hash travels with the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Right = Literal["read", "subscribe", "administer"]
READ: Right = "read"
SUBSCRIBE: Right = "subscribe"
ADMINISTER: Right = "administer"
"""Change the access, delete the session, and say for how long it lasts, how much it stores and how reliably."""

LEVELS: dict[str, tuple[Right, ...]] = {
    "user": (READ,),
    "admin": (READ, SUBSCRIBE),
    "owner": (READ, SUBSCRIBE, ADMINISTER),
}
"""Rights that go together, by name."""
EVERYTHING = LEVELS["owner"]


BY_TOKEN = "*"
"""In the place of a hash, and the hash of nothing."""


class Grant(msgspec.Struct, frozen=True):
    """What a principal may do. `hash`: of its password; empty: whoever says its name is believed; BY_TOKEN: no password
    proves it. A token does in any case.
    """

    rights: tuple[Right, ...]
    hash: str = ""


_OPEN = Grant(EVERYTHING)
Access = Mapping[str, Grant]


def grant_of(access: Access, principal: str) -> Grant | None:
    """Return what this principal may do, whose name is not proven by that; None: nothing, nobody knows it."""
    return access.get(principal) if access else _OPEN


def described(access: Access) -> str:
    """Return what the journal has of it: no passwords, nor their hashes."""
    return "; ".join(f"{name or 'anybody'}: {' '.join(grant.rights)}" for name, grant in sorted(access.items()))
