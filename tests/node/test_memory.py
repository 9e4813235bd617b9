"""Memory that is free goes back to the system, whatever was in use at any look at the heap before."""

from __future__ import annotations

import subprocess
import sys

import pytest

PIECES = 1_500
SCRIPT = f"""
import asyncio
import psutil
from node.resources.free_memory import trim_memory

def resident_bytes():
    return psutil.Process().memory_info().rss

def allocated():
    return [bytes([1]) * 60_000 for _ in range({PIECES})]

async def main():
    before = resident_bytes()
    if BEGINS_WITH_MUCH:
        pieces = allocated()
    giving = asyncio.create_task(trim_memory(0.05))
    await asyncio.sleep(0)
    if not BEGINS_WITH_MUCH:
        await asyncio.sleep(0.2)
        pieces = allocated()
        await asyncio.sleep(0.5)
    print(resident_bytes() - before)
    # Of two neighbours one stays, so that the heap cannot simply end lower.
    kept = pieces[::10]
    pieces.clear()
    await asyncio.sleep(0.5)
    print(resident_bytes() - before)
    giving.cancel()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library keeps what is free")
@pytest.mark.parametrize("begins_with_much", [False, True])
def test_freed_memory_returns_to_the_system_whatever_the_heap_held_before(begins_with_much: bool) -> None:
    script = f"BEGINS_WITH_MUCH = {begins_with_much}\n{SCRIPT}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    in_use, left = map(int, run.stdout.split())
    assert in_use > 60_000 * PIECES * 0.9
    assert left < in_use / 3
