"""A child is started, awaited and ended within bounds, and never outlives its parent."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from chaos.servers.process import Process, free_port, free_ports, port_open
from waypost.errors import Unreachable

SLEEP = ["sleep", "60"]
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
STUBBORN = [sys.executable, "-c", DEAF]


def eventually(what: Callable[[], bool], within_s: float = 5) -> bool:
    deadline = time.monotonic() + within_s
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_process_leads_its_own_group_and_logs_to_its_file(tmp_path: Path) -> None:
    with Process("echo", ["sh", "-c", "echo hello; exec sleep 60"], log=tmp_path / "log") as child:
        child.wait_until(lambda: child.has_logged("hello"), timeout_s=5)
        assert os.getpgid(child.pid) == child.pid != os.getpgid(0)
    assert not child.running


def test_output_of_an_earlier_run_does_not_count_as_logged(tmp_path: Path) -> None:
    child = Process("echo", ["sh", "-c", "echo $$; exec sleep 60"], log=tmp_path / "log")
    with child:
        first = str(child.pid)
        child.wait_until(lambda: child.has_logged(first), timeout_s=5)
    with child:
        child.wait_until(lambda: child.has_logged(str(child.pid)), timeout_s=5)
        assert not child.has_logged(first)


def test_a_child_that_ends_too_early_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    child = Process("broken", ["sh", "-c", "echo no such luck; exit 7"], log=tmp_path / "log")
    child.start()
    with pytest.raises(Unreachable, match=r"broken ended before it was ready \(status 7\)") as caught:
        child.wait_until(lambda: False, timeout_s=5)
    assert "no such luck" in (caught.value.hint or "")


def test_a_child_that_is_never_ready_is_killed_at_the_deadline(tmp_path: Path) -> None:
    child = Process("idle", SLEEP, log=tmp_path / "log")
    child.start()
    with pytest.raises(Unreachable, match="not listening on port"):
        child.wait_for_port(free_port(), timeout_s=0.2)
    assert not child.running


def test_a_command_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    child = Process("ghost", ["/nowhere/ghost"], log=tmp_path / "log")
    child.start()
    with pytest.raises(Unreachable) as caught:
        child.wait_until(lambda: False, timeout_s=5)
    assert "No such file" in (caught.value.hint or "")


def test_stop_kills_a_process_that_ignores_the_signal(tmp_path: Path) -> None:
    child = Process("stubborn", STUBBORN, log=tmp_path / "log")
    child.start()
    child.wait_until(lambda: child.has_logged("up"), timeout_s=5)
    child.stop(grace_s=0.2)
    assert not child.running


def test_kill_takes_the_grandchildren_along(tmp_path: Path) -> None:
    child = Process("family", ["sh", "-c", "sleep 61 & echo $!; wait"], log=tmp_path / "log")
    child.start()
    child.wait_until(lambda: child.has_logged("\n"), timeout_s=5)
    grandchild = int(child.log_tail())
    child.kill()
    assert eventually(lambda: not alive(grandchild))


def test_a_paused_child_is_still_stopped(tmp_path: Path) -> None:
    child = Process("sleeper", SLEEP, log=tmp_path / "log")
    child.start()
    child.pause()
    assert psutil.Process(child.pid).status() == psutil.STATUS_STOPPED
    child.stop(grace_s=5)
    assert not child.running


COUNTS_IN_THREADS = """
import sys, threading
def count(name):
    with open(name, "w") as file:
        while True:
            file.write("x"); file.flush()
for name in sys.argv[1:]:
    threading.Thread(target=count, args=(name,)).start()
"""


def test_no_thread_of_a_paused_child_does_anything_more(tmp_path: Path) -> None:
    files = [tmp_path / f"thread-{number}" for number in range(4)]
    command = [sys.executable, "-c", COUNTS_IN_THREADS, *map(str, files)]
    with Process("threads", command, log=tmp_path / "log") as child:
        child.wait_until(lambda: all(file.exists() and file.stat().st_size for file in files), timeout_s=10)
        for _ in range(20):
            child.pause()
            sizes = [file.stat().st_size for file in files]
            time.sleep(0.01)
            assert [file.stat().st_size for file in files] == sizes
            child.resume()


def test_a_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    child = Process("sleeper", SLEEP, log=tmp_path / "log")
    thread = threading.Thread(target=child.start)
    thread.start()
    thread.join()
    time.sleep(0.3)
    assert child.running
    child.kill()


PARENT = """
import sys, time
from pathlib import Path
from chaos.servers.process import Process
child = Process("sleeper", ["sh", "-c", "echo up; exec sleep 60"], log=Path(sys.argv[1]))
child.start()
child.wait_until(lambda: child.has_logged("up"), timeout_s=10)
print(child.pid, flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.mark.parametrize("end", ["killed", "returns"])
def test_no_child_outlives_its_parent(tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "log"), "60" if end == "killed" else "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        if end == "killed":
            assert alive(child)
            parent.kill()
    assert eventually(lambda: not alive(child))


def test_free_ports_are_distinct_closed_and_below_those_of_clients() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert not any(port_open(port) for port in ports)
    assert max(ports) < 32_768


def alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
