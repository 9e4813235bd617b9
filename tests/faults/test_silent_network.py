"""A network that swallows packets without a word, as a pulled cable does: it is found again as soon as it is back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

BREAK_S = 33
WITHIN_S = 4.0
"""A call may have begun just before the end of the break, and takes its 2 s."""


def test_registry_answers_soon_after_a_network_that_swallowed_packets_is_back(tmp_path: Path) -> None:
    """Without pings on the connection, calls wait for TCP to send again: for 20 s here."""
    own_network = ["unshare", "--net", *(["--map-root-user"] if os.geteuid() else [])]
    helper = [sys.executable, "-m", "tests.helpers.silent_network", str(tmp_path / "etcd"), str(BREAK_S)]
    done = subprocess.run([*own_network, *helper], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < WITHIN_S
