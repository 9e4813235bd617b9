"""The connections of clients, by the numbers under which the engine knows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec


class Connection:
    """A client's connection, as the engine's effects reach it.

    `send` never waits; `unsent` tells how many bytes do, `is_lost` that the client has gone, whatever it said before.
    """

    def __init__(
        self,
        address: str,
        send: Callable[[msgspec.Struct | msgspec.Raw], None],
        hang_up: Callable[[str], None],
        unsent: Callable[[], int],
        is_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        self.address = address
        self.is_lost = is_lost
        self.send = send
        self.hang_up = hang_up
        self.unsent = unsent


class ClientConnections:
    """The connections of clients to this node, by number. Numbers ascend from 1, and none is reused.

    Args:
        bound: the most connections at a time; :meth:`refusal` applies it, :meth:`add` does not.
        bound_per_address: the most connections from one address; 0: no bound.
    """

    def __init__(self, bound: int, bound_per_address: int) -> None:
        self._bound = bound
        self._bound_per_address = bound_per_address
        self._connections: dict[int, Connection] = {}
        self._addresses: Counter[str] = Counter()
        """From where they come."""
        self._last_number = 0

    def refusal(self, address: str) -> str:
        """Return why no other client may connect from this IP address, in words; "": one may."""
        if len(self._connections) >= self._bound:
            return "too many clients"
        is_full = self._bound_per_address and self._addresses[address] >= self._bound_per_address
        return "too many clients from this address" if is_full else ""

    def add(self, connection: Connection) -> int:
        """Add a connection; return its number, by which the engine knows it. The bounds are not applied."""
        self._last_number += 1
        self._connections[self._last_number] = connection
        self._addresses[connection.address] += 1
        return self._last_number

    def remove(self, number: int) -> None:
        """Remove a connection by its number, if it is there."""
        if gone := self._connections.pop(number, None):
            self._addresses[gone.address] -= 1
            if not self._addresses[gone.address]:
                del self._addresses[gone.address]

    def get(self, number: int) -> Connection | None:
        """Return the connection of this number; None: it has gone."""
        return self._connections.get(number)

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._connections.values()))
