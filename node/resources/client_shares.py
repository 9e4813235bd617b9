"""What all clients of a node share: turns of the loop, bytes that are not sent yet, changes of addresses."""

from __future__ import annotations

from typing import Any

from node.resources.fair_share import BufferedBytes, FairQueue
from node.resources.loop_turns import TurnBudget
from node.resources.rate_limit import AddressRates
from waypost.limits import UNSENT_SHARE


class ClientShares:
    """Each of them is fair among clients: whoever costs much waits, and nobody else.

    Args:
        memory: of the node, in bytes.
        address_change_rate: see :class:`node.resources.rate_limit.AddressRates`.
    """

    def __init__(self, memory: int, address_change_rate: float) -> None:
        self.address_rates = AddressRates(address_change_rate)
        self.requests = FairQueue()
        """In which clients wait whose requests cost much."""
        self.pages = FairQueue()
        """In which pages for operators wait."""
        self.writes = FairQueue()
        """In which large frames to clients wait."""
        self.changes = TurnBudget()
        """What requests of all clients may take in one turn of the loop."""
        self.unsent: BufferedBytes[Any] = BufferedBytes(memory // UNSENT_SHARE)
        """What is queued for clients."""
