"""The law of the order says of everything that a client may be told whether it is held back."""

from __future__ import annotations

from typing import get_args

from proxy.core.durability_law import LAW, NOT_HELD
from proxy.core.effects import ClaimRow, CreateRow
from waypost.messages import ProxyMessage


def test_each_message_to_a_client_is_held_or_it_is_said_why_not() -> None:
    assert set(LAW) - {CreateRow, ClaimRow} | set(NOT_HELD) == set(get_args(ProxyMessage))
    assert not set(LAW) & set(NOT_HELD)
