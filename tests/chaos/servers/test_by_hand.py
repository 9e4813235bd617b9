"""`python -m chaos.servers`: a broker and an etcd for trials by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from chaos.servers.process import port_open

TIMEOUT_S = 60


def test_servers_for_trials_by_hand_print_their_options_and_end_with_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "chaos.servers", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as servers:
        assert servers.stdout is not None
        kafka, broker, etcd, member = servers.stdout.readline().split()
        assert (kafka, etcd) == ("--kafka", "--etcd")
        ports = [int(address.rpartition(":")[2]) for address in (broker, member)]
        assert all(map(port_open, ports))
        servers.terminate()
        assert servers.wait(TIMEOUT_S) == 0
    assert not any(map(port_open, ports))


@pytest.mark.parametrize("words", [["one", "another"], ["--help"]])
def test_what_is_no_single_folder_is_refused(words: list[str]) -> None:
    command = [sys.executable, "-m", "chaos.servers", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: at most one argument")
