"""How many files the process may open, which bounds how many clients it can serve."""

from __future__ import annotations

import resource

FILES_RESERVED = 160
"""Open files that are not clients: databases, backends, peers, pages for operators."""


def clients_within(files: int, wanted: int) -> int:
    """Return how many clients may be connected where so many files may be open. FILES_RESERVED files stay for others,
    but no more than three quarters of all.

    Args:
        files: that the process may open.
        wanted: the number of clients by configuration.
    """
    return min(wanted, max(files - FILES_RESERVED, files // 4))


def raise_limit() -> int:
    """Let the process open as many files as the system allows it; return how many these are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):
            return soft
    return hard
