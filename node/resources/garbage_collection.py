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
def without_collection(*, collects: bool = True) -> Iterator[None]:
    """Return a context in which no garbage is collected, for a block that makes many objects that stay.

    At its end they are exempt from every later collection; where the block raises, only the collector is switched on
    again.

    Args:
        collects: whether garbage is collected at the end of the block, before what is left is exempt (:func:`keep`).
            Imports leave next to none; but the collector would walk over all that was imported so far, again and again,
            for a fifth of the start of a node.
    """
    gc.disable()
    try:
        yield
        if collects:
            keep()
        else:
            gc.freeze()
    finally:
        gc.enable()
