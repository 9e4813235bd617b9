"""The output of a command whose reader may go away in the middle of it."""

from __future__ import annotations

import os
import sys


def print_no_more() -> None:
    """Let everything that is still to be written to stdout vanish; Python would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # type: ignore[union-attr]


def print_done(what: object) -> None:
    """Print what was done. A reader of stdout that has gone wants no more of it, and the work goes on."""
    try:
        print(what, flush=True)
    except BrokenPipeError:
        print_no_more()
