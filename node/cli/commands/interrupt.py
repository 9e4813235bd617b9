"""Ctrl-C and SIGTERM: the first one ends a command in order, within a bound; the second one ends the process at once.

asyncio's own runner raises KeyboardInterrupt at the second one, wherever the loop stands just then: in the middle of an
orderly close, or of the end of the loop itself. The rest of either may wait for ever.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NoReturn, TypeVar

from node.cli import TERMINATED

T = TypeVar("T")
ROUSE_S = 0.1
"""Pause before the main thread's call is broken off, and between two times."""
ORDERLY_END_S = 5.0
"""The most that the end may take after the first of them."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Ctrl-C, and the request of a service manager or of ``kill``."""


class _Interrupts:
    """The interrupts, Ctrl-C or SIGTERM, of a process that runs one coroutine."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.task: asyncio.Task[Any] | None = None
        self.count = 0
        self.first = 0
        """The number of the first signal."""
        self.is_blocking = False
        """The loop stands still in a call that only an exception ends."""

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Handle an interrupt: the first one cancels the command or breaks off its blocking call, the second ends the
        process.
        """
        self.count += 1
        if self.count > 1:
            end_at_once(number)
        self.first = number
        self._loop.call_soon_threadsafe(self._loop.call_later, ORDERLY_END_S, end_at_once, number)
        if self.is_blocking:
            raise KeyboardInterrupt
        if self.task is not None:
            self._loop.call_soon_threadsafe(self.task.cancel)


_INTERRUPTS: ContextVar[_Interrupts | None] = ContextVar("interrupts", default=None)


def end_at_once(number: int, *_: object) -> NoReturn:
    """End the process at once; output that was flushed has been written, the rest is lost.

    Args:
        number: of the signal that ends it; the exit status is 128 more.
    """
    os._exit(128 + number)


@contextmanager
def blocking() -> Iterator[None]:
    """Return a context in which Ctrl-C or SIGTERM interrupts what blocks the event loop: a read of stdin, a write to a
    full pipe. Outside of :func:`run` the context has no effect.

    Raises:
        KeyboardInterrupt: at a signal in the block, or before it.
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
    """Have each signal noticed where the main thread stands in a call that has begun just before, or that goes on.

    Python's handler runs in the main thread, between two of its steps. The system's handler writes to a pipe at once;
    a thread reads that, and breaks off the call of the main thread by another signal, which does nothing else.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    main = threading.get_ident()
    is_roused, has_ended = threading.Event(), threading.Event()

    def rouse() -> None:
        while numbers := os.read(reading, 64):
            if not any(number in numbers for number in SIGNALS):
                continue
            # Two signals may be one call of Python's handler. That of SIGUSR1 runs in the same step or a later one.
            is_roused.clear()
            while not is_roused.is_set() and not has_ended.wait(ROUSE_S):
                signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda number, frame: is_roused.set())
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    thread = threading.Thread(target=rouse, name="interrupts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        # The thread reads the end of the pipe, and ends.
        has_ended.set()
        os.close(writing)
        thread.join()
        os.close(reading)
        # A SIGUSR1 of the thread's last moment is discarded; by its default it would end the process.
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, before)


def run(command: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine in an event loop of its own, and return its result. Call it in the main thread, where
    no loop runs.

    The first Ctrl-C or SIGTERM cancels the coroutine, or breaks off what it blocks in (:func:`blocking`). A second one
    ends the process at once (:func:`end_at_once`), also when this function has returned; and so does the loop,
    ORDERLY_END_S seconds after the first one. While this function runs, it uses SIGUSR1 and the wake-up descriptor of
    signals.

    Raises:
        KeyboardInterrupt: Ctrl-C has cancelled the coroutine, and it has ended in order.
        SystemExit: so has SIGTERM; the status is TERMINATED.
        BaseException: as the coroutine raises it.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        interrupts = _Interrupts(loop)
        _INTERRUPTS.set(interrupts)
        interrupts.task = task = loop.create_task(command)
        before = {number: signal.signal(number, interrupts.on_signal) for number in SIGNALS}
        try:
            with _roused(interrupts):
                return loop.run_until_complete(task)
        except (asyncio.CancelledError, KeyboardInterrupt):
            if interrupts.first == signal.SIGTERM:
                raise SystemExit(TERMINATED) from None
            if interrupts.count:
                raise KeyboardInterrupt from None
            raise
        finally:
            # After the first one the process ends; until it has, another may come.
            for number, handler in before.items():
                signal.signal(number, end_at_once if interrupts.count else handler)
