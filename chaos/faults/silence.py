"""Silence: what is said one way through a toxiproxy does not arrive; the connections stay open until it heals."""

from __future__ import annotations

import asyncio
from typing import Any

ANSWERS, QUESTIONS = "downstream", "upstream"


class Silence:
    """Silences one front, as `ToxiproxyServer.front` gives it.

    Args:
        what: ANSWERS: what is asked arrives, and has its effect; the answer is lost. QUESTIONS: nothing arrives.
    """

    def __init__(self, front: Any, what: str) -> None:
        self._front, self._what = front, what

    async def inject(self) -> None:
        """Let nothing pass any more in the direction that the constructor was told; connections stay open.

        Call :meth:`heal` before it is injected again.
        """
        # Without a time-out the toxic swallows what comes, for ever; the connections break when it is removed.
        await asyncio.to_thread(
            self._front.add_toxic, type="timeout", name="silence", stream=self._what, attributes={"timeout": 0}
        )

    async def heal(self) -> None:
        """Let all pass again; connections that were silenced break."""
        await asyncio.to_thread(self._front.destroy_toxic, "silence")
