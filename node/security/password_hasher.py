"""Passwords, verified and hashed by Argon2id in threads of their own, off the event loop (docs/adr/0007)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from secrets import token_urlsafe

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError

from waypost.errors import BadRecord, Internal

VERIFIERS = 2
"""Passwords verified at one time; each takes 64 MiB, and a core for some tens of milliseconds."""


class Passwords:
    """Verifies and hashes passwords. Hashing has a thread of its own: changes of access do not delay attaches."""

    def __init__(self) -> None:
        self._hasher = PasswordHasher()
        self._verifying = ThreadPoolExecutor(VERIFIERS, thread_name_prefix="verify")
        self._hashing = ThreadPoolExecutor(1, thread_name_prefix="hash")
        # Made before any password is verified, so that the first one for an unknown name does not take twice as long.
        self._decoy = self._verifying.submit(self._hasher.hash, token_urlsafe())

    async def verify(self, password: str, hashed: str) -> bool:
        """Tell whether the password has this hash. The hash "" stands for an unknown name: False, after as long a time.

        Args:
            password: as the client sent it.
            hashed: in Argon2's own notation, as :meth:`hash` returns it.

        Raises:
            BadRecord: the hash is damaged, or of another kind than Argon2.
            Internal: the library failed.
        """
        return await asyncio.get_running_loop().run_in_executor(self._verifying, self._verify, password, hashed)

    async def hash(self, passwords: Sequence[str]) -> list[str]:
        """Return a hash of each password, in the same order, in Argon2's own notation, which has its parameters and its
        salt.
        """
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
        """Cancel the calls that wait for a thread; a call that a thread has begun ends by itself."""
        for pool in (self._verifying, self._hashing):
            pool.shutdown(wait=False, cancel_futures=True)
