"""Passwords, looked at and hashed where they hold up nobody: Argon2id, in threads of its own (docs/adr/0007)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_urlsafe

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from waypost.errors import BadRecord, Internal

VERIFIERS = 2
"""Passwords looked at in one moment; each takes 64 MiB and a core for some tens of milliseconds."""


class Passwords:
    """Verifies and hashes passwords. To hash has a thread of its own: changes of access do not hold up who attaches."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._verifying = ThreadPoolExecutor(VERIFIERS, thread_name_prefix="verify")
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="hash")
        # Made before any password is looked at, so that the first one of nobody does not take twice as long.
        self._decoy = self._verifying.submit(self._hasher.hash, token_urlsafe())

    async def verify(self, password: str, hashed: str) -> bool:
        """Tell whether this is the password. The hash "" is nobody's: that it is not takes as long to find out.

        Raises:
            BadRecord: the hash is none that is known here.
        """
        return await asyncio.get_running_loop().run_in_executor(self._verifying, self._verify, password, hashed)

    async def hash(self, passwords: Sequence[str]) -> list[str]:
        """Return a hash of each, in Argon2's own notation, which says how it was made."""
        return await asyncio.get_running_loop().run_in_executor(self._hashing, self._hash, passwords)

    def _verify(self, password: str, hashed: str) -> bool:
        try:
            return self._hasher.verify(hashed or self._decoy.result(), password) and bool(hashed)
        except VerifyMismatchError:
            return False
        except InvalidHashError:
            raise BadRecord("the hash of a password cannot be read: it is damaged, or of another kind") from None
        except VerificationError as error:
            raise Internal(f"a password could not be looked at: {error}") from None

    def _hash(self, passwords: Sequence[str]) -> list[str]:
        return [self._hasher.hash(password) for password in passwords]

    def close(self) -> None:
        for pool in (self._verifying, self._hashing):
            pool.shutdown(wait=False, cancel_futures=True)
