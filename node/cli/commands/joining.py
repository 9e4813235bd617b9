"""Entering a client for a command: a user is told soon why that takes long."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

import waypost

AnyClient = TypeVar("AnyClient", waypost.Producer, waypost.Receiver)
NOTICE_AFTER_S = 1.0
"""Time after which a line on stderr says what the client waits for."""


@asynccontextmanager
async def entered(client: AnyClient, timeout_s: float) -> AsyncIterator[AnyClient]:
    """Enter a client for the length of the block, and yield it. If no proxy has let it in after NOTICE_AFTER_S, a line
    on stderr says why, and for how long the command tries on.

    Args:
        client: made by :func:`waypost.attach` or :func:`waypost.produce`, and not entered yet.
        timeout_s: the time-out that the client was made with.

    Raises:
        WaypostError: as entering the client raises it.
    """
    notice = asyncio.get_running_loop().call_later(NOTICE_AFTER_S, _print_notice, client, timeout_s)
    try:
        async with client:
            notice.cancel()
            yield client
    finally:
        notice.cancel()


def _print_notice(client: waypost.Producer | waypost.Receiver, timeout_s: float) -> None:
    left_s = max(0, timeout_s - NOTICE_AFTER_S)
    print(f"no proxy has let us in yet{client.trouble}; trying on for {left_s:.0f} s", file=sys.stderr)
