"""What entries matched, once for all entries of the same: the names of subscriptions, as text, and its digest."""

from __future__ import annotations

import json
from hashlib import blake2b

from proxy.session.subscription import Matched
from waypost.errors import StoreDamaged
from waypost.identity import SubscriptionId

DIGEST_BYTES = 16


def matching_text(matched: Matched) -> str:
    """Return the names of subscriptions as JSON text, as the column `matched` has them."""
    return json.dumps(matched)


def digest_of(text: str) -> bytes:
    """Return the digest of a text of :func:`matching_text`, DIGEST_BYTES long: the key in the store, and the text's
    checksum.
    """
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


class Matchings:
    """Texts that were read, each compared with its digest once."""

    def __init__(self) -> None:
        self._known: dict[bytes, Matched] = {}

    def of(self, digest: bytes, text: str) -> Matched:
        """Return the subscriptions that a text of :func:`matching_text` names.

        Args:
            digest: of the text, as the store has it.

        Raises:
            StoreDamaged: the digest is of another text.
        """
        known = self._known.get(digest)
        if known is None:
            if digest_of(text) != digest:
                raise StoreDamaged("the names of subscriptions that an entry matched are not what was written")
            known = self._known[digest] = tuple(SubscriptionId(subscription) for subscription in json.loads(text))
        return known
