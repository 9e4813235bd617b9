"""Run as a script: `leash.py PARENT COMMAND...` becomes COMMAND, and dies at once when PARENT does.

It is a script of its own, not a `preexec_fn`: that would run Python between fork and exec in a process that
may have gRPC threads, and can hang there.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command `sys.argv[2:]`, which dies as soon as the process `sys.argv[1]` ends.

    `sys.argv[1]` is the pid of the parent of this process; only on Linux does the command die with the parent. The
    function does not return: it exits with status 1 if the parent has ended already. Raises OSError: the command cannot
    be run.
    """
    parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            # The parent died before the leash was on, so nobody will ever pull it.
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
