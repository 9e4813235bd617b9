"""Tokens: who has one is its principal, until it ends. Signed with a key that every proxy of the federation has.

A token is a JSON Web Token (RFC 7519), so that people can look into it: `sub` the principal, `exp` when it ends, `aud`
"waypost". One algorithm, HMAC-SHA256, under a key made of the federation's secret (docs/adr/0009).
"""

from __future__ import annotations

import hmac
from typing import NamedTuple

import jwt

from waypost.errors import Forbidden

ALGORITHM, AUDIENCE = "HS256", "waypost"


class Named(NamedTuple):
    """The content of a token that was verified.

    Args:
        principal: whom it names.
        until_ms: when it ends, in Unix time (ms).
    """

    principal: str
    until_ms: int


def token_key(secret: bytes) -> bytes:
    """Return the key that signs tokens, derived from the federation's secret; the secret cannot be found from it."""
    return hmac.digest(secret, b"waypost token", "sha256")


def issue(key: bytes, named: Named) -> str:
    """Return a token that proves the principal until `named.until_ms`, rounded down to whole seconds, signed with the
    key.

    Args:
        key: as :func:`token_key` returns it; not empty, which the caller checks.
        named: the principal, and when the token ends.
    """
    return jwt.encode({"sub": named.principal, "exp": named.until_ms // 1000, "aud": AUDIENCE}, key, ALGORITHM)


def read(key: bytes, token: str, now_ms: int) -> Named:
    """Return the content of a valid token.

    Args:
        key: the key by which the token must be signed (:func:`token_key`); not empty, which the caller checks.
        token: as the client has sent it.
        now_ms: in Unix time.

    Raises:
        Forbidden: the token has ended, is malformed, or is not signed with the key.
    """
    rules = {"require": ["sub", "exp", "aud"], "verify_exp": False}
    try:
        # The time is ours to look at: the simulator and the tests own the clock.
        claims = jwt.decode(token, key, [ALGORITHM], rules, audience=AUDIENCE)  # type: ignore[arg-type]
        named = Named(str(claims["sub"]), int(claims["exp"]) * 1000)
    except (jwt.PyJWTError, TypeError, ValueError, OverflowError):
        raise Forbidden("this is no token of this federation; ask its operator for one", field="credential") from None
    if named.until_ms <= now_ms:
        raise Forbidden(
            f"the token of principal {named.principal} has ended; attach with a new one", field="credential"
        )
    return named
