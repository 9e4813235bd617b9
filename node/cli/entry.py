"""The entry of the command line: quick to load, so that Ctrl-C ends the process in silence from its first moments."""

from __future__ import annotations

import os
import signal

from node.cli import INTERRUPTED


def main() -> None:
    """Run the command that the process's arguments name, and end the process with its exit status
    (:data:`node.cli.app.STATUSES`).
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # Who started this process has Ctrl-C ignored.
        from node.cli.app import main as run

        run()
        return
    # An interrupt in the middle of an import would be told by a traceback, in the words of whatever is being imported.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(INTERRUPTED))
    from node.cli.app import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()
