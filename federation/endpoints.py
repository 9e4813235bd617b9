"""The servers of a backend that has several, and which of them is asked."""

from __future__ import annotations

from collections.abc import Sequence


class Endpoints:
    """Addresses, of which one is asked until it fails, and then the next one.

    The handles of one process share one, in whatever thread they are: what one of them has found silent, none of them
    asks first.

    Args:
        addresses: (host, port) of each server.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self.addresses = tuple(addresses)
        self.current = 0
        """The index of the address that is asked."""

    def failed(self, index: int) -> None:
        """Record that an address did not answer: the next one, in a circle, becomes :attr:`current`.

        It has no effect if another address is current by now, so calls that failed together count as one.

        Args:
            index: the index of the address that did not answer.
        """
        if self.current == index:
            self.current = (index + 1) % len(self.addresses)
