"""Python's collector of garbage, which walks over all that is there while nobody is served.

What is there when the process has opened its parts, and when it has taken up the sessions of its store, stays as long
as it does: there is no garbage among it worth a walk of seconds, which a lease might not outlive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def keep() -> None:
    """Look for garbage now, and at nothing of what is left ever again."""
    gc.collect()
    gc.freeze()


@contextmanager
def growing() -> Iterator[None]:
    """Do not look for garbage while much is made that stays."""
    gc.disable()
    try:
        yield
        keep()
    finally:
        gc.enable()
