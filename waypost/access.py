"""The access of a session: rights by principal, each proven by a password, by a token, or by nothing.

A session without any grant is open: every client has all rights. Every other form is the same list. One password is one
grant to the principal without a name; levels are grants to principals that share a password and are named after their
rights; an access-control list has a principal for each person.

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
"""Change the access, delete the session, and set its expiry, queue and reliability."""

LEVELS: dict[str, tuple[Right, ...]] = {
    "user": (READ,),
    "admin": (READ, SUBSCRIBE),
    "owner": (READ, SUBSCRIBE, ADMINISTER),
}
"""Names of sets of rights."""
EVERYTHING = LEVELS["owner"]


BY_TOKEN = "*"
"""The hash of a principal without a password; no password has it."""


class Grant(msgspec.Struct, frozen=True):
    """The rights of a principal. `hash`: of its password; empty: its name is enough; BY_TOKEN: no password proves
    it. A token does in any case.
    """

    rights: tuple[Right, ...]
    hash: str = ""


_OPEN = Grant(EVERYTHING)
Access = Mapping[str, Grant]


def grant_of(access: Access, principal: str) -> Grant | None:
    """Return the grant of a principal; whether the caller is that principal is not checked here. None: the principal
    has no rights.

    Args:
        access: the grants by principal; empty: everybody has all rights.
        principal: its name; "": that of clients that name none.
    """
    return access.get(principal) if access else _OPEN


def described(access: Access) -> str:
    """Return the access as a text for the journal, without passwords and hashes."""
    return "; ".join(f"{name or 'anybody'}: {' '.join(grant.rights)}" for name, grant in sorted(access.items()))
