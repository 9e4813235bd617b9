"""Ctrl-C: the first one ends a command in order, within a bound; the second one ends the process at once.

asyncio's own runner raises KeyboardInterrupt at the second one, wherever the loop stands just then: in the middle of an
orderly close, or of the end of the loop itself. The rest of either may wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn, TypeVar

from node.cli import INTERRUPTED

T = TypeVar("T")
ROUSE_S = 0.1
"""Pause before the main thread's call is broken off, and between two times."""
ORDERLY_END_S = 5.0
"""The most that the end may take after the first Ctrl-C."""


class _Interrupts:
    """The Ctrl-C's of a process that runs one coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.task: asyncio.Task[Any] | None = None
        self.count = 0
        self.is_blocking = False
        """The loop stands still in a call that only an exception ends."""

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle a Ctrl-C: the first one cancels the command or breaks off its blocking call, the second ends the
        process.
        """
        self.count += 1
        if self.count > 1:
            end_at_once()
        self._loop.call_soon_threadsafe(self._loop.call_later, ORDERLY_END_S, end_at_once)
        if self.is_blocking:
            raise KeyboardInterrupt
        if self.task is not None:
            self._loop.call_soon_threadsafe(self.task.cancel)


_INTERRUPTS: ContextVar[_Interrupts | None] = ContextVar("interrupts", default=None)


def end_at_once(*_: object) -> NoReturn:
    """End the process at once, with status INTERRUPTED; output that was flushed has been written, the rest is
    lost.
    """
    os._exit(INTERRUPTED)


@contextmanager
def blocking() -> Iterator[None]:
    """Return a context in which Ctrl-C interrupts what blocks the event loop: a read of stdin, a write to a full pipe.
    Outside of :func:`run` the context has no effect.

    Raises:
        KeyboardInterrupt: at Ctrl-C in the block, or before it.
    """
    interrupts = _INTERRUPTS.get()
    if interrupts is None:
        yield
        return
    interrupts.is_blocking = True
    try:
        if interrupts.count:
            # The task is to be cancelled, and would not be before it awaits something.
            raise KeyboardInterrupt
        yield
    finally:
        interrupts.is_blocking = False


@contextmanager
def _roused(interrupts: _Interrupts) -> Iterator[None]:
    """Have each Ctrl-C noticed where the main thread stands in a call that has begun just before, or that goes on.

    Python's handler runs in the main thread, between two of its steps. The system's handler writes to a pipe at once;
    a thread reads that, and breaks off the call of the main thread by another signal, which does nothing else.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    main = threading.get_ident()

    def rouse() -> None:
        sent = 0
        while numbers := os.read(reading, 64):
            sent += numbers.count(signal.SIGINT)
            while interrupts.count < sent:
                time.sleep(ROUSE_S)
                if interrupts.count < sent:
                    signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=rouse, name="interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        # The thread reads the end of the pipe, and ends.
        os.close(writing)
        thread.join(1.0)
        os.close(reading)
        signal.signal(signal.SIGUSR1, before)


def run(command: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in an event loop of its own, and return its result. Call it in the main thread, where
    no loop runs.

    Raises:
        KeyboardInterrupt: Ctrl-C has cancelled the coroutine, and it has ended in order.
        BaseException: as the coroutine raises it.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        interrupts = _Interrupts(loop)
        _INTERRUPTS.set(interrupts)
        interrupts.task = task = loop.create_task(command)
        before = signal.signal(signal.SIGINT, interrupts.on_signal)
        try:
            with _roused(interrupts):
                return loop.run_until_complete(task)
        except asyncio.CancelledError:
            if interrupts.count:
                raise KeyboardInterrupt from None
            raise
        finally:
            # After the first one the process ends; until it has, another may come.
            signal.signal(signal.SIGINT, end_at_once if interrupts.count else before)
