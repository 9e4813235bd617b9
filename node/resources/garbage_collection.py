"""Python's garbage collector, which walks over all objects while nobody is served.

Objects made when the process has opened its backends, and when it has loaded the sessions of its store, stay as long as
the process: no garbage among them is worth a walk of seconds, which a lease might not outlive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def keep() -> None:
    """Collect garbage now, and exempt all objects that are left from every later collection."""
    gc.collect()
    gc.freeze()


@contextmanager
def without_collection() -> Iterator[None]:
    """Return a context in which no garbage is collected, for a block that makes many objects that stay.

    At its end :func:`keep` exempts them; where the block raises, only the collector is switched on again.
    """
    gc.disable()
    try:
        yield
        keep()
    finally:
        gc.enable()


@contextmanager
def importing() -> Iterator[None]:
    """Return a context for imports, in which no garbage is collected: there is little of it.

    The collector would walk over all that was imported so far, again and again, for a fifth of the start of a node.

    At its end all objects are exempt from every later collection, unless the collector was off before.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()
