"""The proof of two proxies that they know the federation's secret, and the seal of frames after that.

One connection carries frames one way, from its caller to its callee. No I/O here.

    callee -> caller    a fresh nonce
    caller -> callee    its name, the callee's name, a fresh nonce of its own, and its proof
    callee -> caller    its proof
    caller -> callee    sealed frames: 8 bytes of number, from 0; the frame; 16 bytes of tag

A proof is an HMAC-SHA256 under the secret over all that was said, each side's with a label of its own, so that none
can be sent back as the other's. The key of the frames is made the same way with a third label: both nonces are in
it, so a frame of another connection has a wrong tag, whoever its ends were; the number refuses a repeat, an omission
and a change of order within this one. What is lost with a message: nothing, the connection ends and another begins.

The attacks that it keeps out, and those that it does not: docs/adr/0005-peers-prove-themselves.md
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass

from waypost.errors import Unproven
from waypost.identity import Incarnation, ProxyId

NONCE_BYTES = 16
NUMBER_BYTES = 8
TAG_BYTES = 16
OVERHEAD_BYTES = NUMBER_BYTES + TAG_BYTES

WRONG_PROOF, WRONG_TAG, WRONG_NUMBER = "wrong proof", "wrong tag", "frame out of sequence"


def new_nonce() -> bytes:
    """Return NONCE_BYTES random bytes."""
    return secrets.token_bytes(NONCE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Introduction:
    """The fields that both ends of a connection prove. The proofs agree only where both ends have the same."""

    challenge: bytes
    """The callee's nonce."""
    nonce: bytes
    """The caller's."""
    version: int
    caller: ProxyId
    incarnation: Incarnation
    callee: ProxyId

    def callers_proof(self, secret: bytes) -> bytes:
        """Return the caller's proof of this introduction under the federation's `secret`, 32 bytes."""
        return self._digest(secret, b"waypost peer: caller")

    def callees_proof(self, secret: bytes) -> bytes:
        """Return the callee's proof of this introduction under the federation's `secret`, 32 bytes."""
        return self._digest(secret, b"waypost peer: callee")

    def frame_key(self, secret: bytes) -> bytes:
        """Return the key of this connection's frames, for :class:`Sealer` and :class:`Opener`: 32 bytes, made with the
        federation's `secret`.
        """
        return self._digest(secret, b"waypost peer: frames from caller to callee")

    def _digest(self, secret: bytes, label: bytes) -> bytes:
        names = (str(self.version), self.caller, self.incarnation, self.callee)
        parts = (label, self.challenge, self.nonce, *(name.encode() for name in names))
        # With its length before each part, no two introductions read the same.
        message = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hmac.digest(secret, message, "sha256")


def check_proof(expected: bytes, proof: bytes) -> None:
    """Compare two proofs in constant time. Raises Unproven: they differ, so `proof` was made with another secret, or
    for another connection.
    """
    if not hmac.compare_digest(expected, proof):
        raise Unproven(WRONG_PROOF)


class Sealer:
    """The caller's end: seals frames, which must be sent in this order.

    Args:
        key: :meth:`Introduction.frame_key`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, frame: bytes) -> bytes:
        """Return the frame, numbered and sealed: OVERHEAD_BYTES longer. Sealed frames must be sent in the order of the
        calls.
        """
        numbered = self._number.to_bytes(NUMBER_BYTES) + frame
        self._number += 1
        return numbered + _tag(self._key, numbered)


class Opener:
    """The callee's end: opens each frame once, in the order in which it was sealed.

    Args:
        key: :meth:`Introduction.frame_key`.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def open(self, sealed: bytes) -> bytes:
        """Return the frame that was sealed, without number and tag; call it once for each frame, in the order of
        arrival.

        Raises:
            Unproven: the tag is wrong, or the frame is not the next one; the connection must not be used any more.
        """
        numbered, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        if len(sealed) < OVERHEAD_BYTES or not hmac.compare_digest(_tag(self._key, numbered), tag):
            raise Unproven(WRONG_TAG)
        if int.from_bytes(numbered[:NUMBER_BYTES]) != self._number:
            raise Unproven(WRONG_NUMBER)
        self._number += 1
        return numbered[NUMBER_BYTES:]


def _tag(key: bytes, numbered: bytes) -> bytes:
    return hmac.digest(key, numbered, "sha256")[:TAG_BYTES]
