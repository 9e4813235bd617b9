"""`python -m chaos.servers [FOLDER]`: a Kafka broker and an etcd on loopback, for trying Waypost by hand, until Ctrl-C.

What they store is in FOLDER, and there again at the next start; without one it is removed at the end.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from chaos.servers import parts
from chaos.servers.etcd import EtcdServer
from chaos.servers.kafka import KafkaServer


def main(words: list[str]) -> int:
    """Start both, print the options of `waypost serve` that name them, and stop them at SIGINT or SIGTERM.

    Parts that are missing are fetched and built first. Both signals stay blocked in the calling thread afterwards.

    Args:
        words: the folder; empty: a temporary one.

    Returns:
        The exit status: 0 after a signal, 2: there is more than one word, or an option.

    Raises:
        WaypostError: a part cannot be built, or a server does not become ready.
    """
    if len(words) > 1 or any(word.startswith("-") for word in words):
        print("usage: at most one argument, the folder in which they store; none: a temporary one", file=sys.stderr)
        return 2
    folder = Path(words[0]) if words else None
    ends = {signal.SIGINT, signal.SIGTERM}
    # The servers are in process groups of their own: only this process hears the terminal.
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    parts.install(["kafka", "etcd"])
    with KafkaServer(folder and folder / "kafka") as kafka, EtcdServer(folder and folder / "etcd") as etcd:
        print(f"--kafka {kafka.bootstrap} --etcd {etcd.endpoint}", flush=True)
        signal.sigwait(ends)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
