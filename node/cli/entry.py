"""The entry of the command line: quick to load, so that Ctrl-C ends the process in silence from its first moments."""

from __future__ import annotations

import os
import signal

from node.cli import INTERRUPTED


def main() -> None:
    """Run the command that the process's arguments name, and end the process with its exit status
    (:data:`node.cli.app.STATUSES`).
    """
    # The parent of this process may have had Ctrl-C ignored: then it stays so.
    is_heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_heeded:
        # In the middle of an import it would be told by a traceback, in the words of whatever is being imported.
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from node.resources.garbage_collection import without_collection

    with without_collection(collects=False):
        from node.cli.app import main as run

    if is_heeded:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
