"""Memory that is free goes back to the system, also what was in use when the heap was last looked at."""

from __future__ import annotations

import subprocess
import sys

import pytest

from node.memory import resident_bytes

PIECES = 1_500
SCRIPT = f"""
import asyncio
from node.memory import give_back, resident_bytes

async def main():
    before = resident_bytes()
    giving = asyncio.create_task(give_back(0.05))
    await asyncio.sleep(0.2)
    # Of two neighbours one stays, so that the heap cannot simply end lower.
    pieces = [bytes([1]) * 60_000 for _ in range({PIECES})]
    await asyncio.sleep(0.5)
    print(resident_bytes() - before)
    kept = pieces[::10]
    pieces.clear()
    await asyncio.sleep(0.5)
    print(resident_bytes() - before)
    giving.cancel()

asyncio.run(main())
"""


@pytest.mark.skipif(not resident_bytes() or sys.platform != "linux", reason="the C library keeps what is free")
def test_what_becomes_free_after_a_look_goes_back_too() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True, timeout=60)
    in_use, left = map(int, run.stdout.split())
    assert in_use > 60_000 * PIECES * 0.9
    assert left < in_use / 3
