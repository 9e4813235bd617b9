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
    """Become the command of the arguments from the second one on, which ends with the process of the first one, a pid.

    Returns only by an exit: status 1 where that process has ended already.
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
