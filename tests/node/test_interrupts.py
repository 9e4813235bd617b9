"""Ctrl-C, once and several times: the first one ends a command in order and in time, the second one at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from node.cli import INTERRUPTED, TERMINATED
from node.cli.commands.interrupt import ORDERLY_END_S

WAYPOST = str(Path(sys.executable).with_name("waypost"))
WITHIN_S = 30.0
GAPS_S = [0.0, 0.01, 0.05, 0.2]
"""Between one Ctrl-C and the next; somewhere among them lies the farewell, and the end of Python itself."""


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    root = tmp_path_factory.mktemp("interrupts")
    with Cluster([ProxySpec("a", "A", {"no-discovery": ""})], [], root) as cluster:
        yield cluster.proxies["a"]


@contextmanager
def command(*words: str, stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [WAYPOST, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def subscriber(proxy: ProxyProcess, *words: str) -> Iterator[subprocess.Popen[str]]:
    with command("sub", "n > 0", "--proxy", proxy.url, *words) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("attached to ")
        yield process


def sessions(proxy: ProxyProcess) -> set[str]:
    return {row["session"] for row in proxy.request("/v1/sessions")["sessions"]}


def interrupted(
    process: subprocess.Popen[str], times: int = 1, gap_s: float = 0.0, number: int = signal.SIGINT
) -> tuple[int, str, float]:
    """Send a signal so often; return status, the rest of stderr, and after how many seconds the process had ended."""
    began = time.monotonic()
    for _ in range(times):
        process.send_signal(number)
        time.sleep(gap_s)
    status = process.wait(WITHIN_S)
    assert process.stderr is not None
    return status, process.stderr.read(), time.monotonic() - began


@pytest.mark.parametrize("times", [2, 4])
@pytest.mark.parametrize("gap_s", GAPS_S)
@pytest.mark.parametrize("words", [(), ("--session", "kept")], ids=["own session", "named session"])
def test_subscriber_ends_at_any_number_of_interrupts(
    proxy: ProxyProcess, times: int, gap_s: float, words: tuple[str, ...]
) -> None:
    with subscriber(proxy, *words) as process:
        assert interrupted(process, times, gap_s)[:2] == (INTERRUPTED, "")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, INTERRUPTED), (signal.SIGTERM, TERMINATED)])
def test_subscriber_that_is_interrupted_once_leaves_no_session_of_its_own(
    proxy: ProxyProcess, number: int, status: int
) -> None:
    before = sessions(proxy)
    with subscriber(proxy) as process:
        assert sessions(proxy) > before
        assert interrupted(process, number=number)[:2] == (status, "")
    assert sessions(proxy) == before


def test_subscriber_ends_at_once_when_it_is_terminated_twice(proxy: ProxyProcess) -> None:
    with subscriber(proxy) as process:
        proxy.process.pause()
        try:
            status, printed, took_s = interrupted(process, 2, 0.2, signal.SIGTERM)
        finally:
            proxy.process.resume()
    assert (status, printed) == (TERMINATED, "")
    assert took_s < 1.0


@pytest.mark.parametrize(("times", "within_s"), [(1, ORDERLY_END_S + 2), (2, 1.0)])
def test_subscriber_whose_proxy_stands_still_ends_in_time(proxy: ProxyProcess, times: int, within_s: float) -> None:
    with subscriber(proxy) as process:
        proxy.process.pause()
        try:
            status, printed, took_s = interrupted(process, times, 0.1)
        finally:
            proxy.process.resume()
    assert (status, printed) == (INTERRUPTED, "")
    assert took_s < within_s


def test_subscriber_whose_output_nobody_reads_ends(proxy: ProxyProcess) -> None:
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    while True:
        try:
            os.write(writing, b"x" * 65_536)
        except BlockingIOError:
            break
    os.set_blocking(writing, True)
    words = [WAYPOST, "sub", "n > 0", "--proxy", proxy.url, "--session", "unread"]
    process = subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        process.stderr.readline()
        with command("pub", "n=1", "--proxy", proxy.url) as publishing:
            assert publishing.wait(WITHIN_S) == 0
        assert interrupted(process, 2, 0.5)[0] == INTERRUPTED
    finally:
        process.kill()
        process.communicate()
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("first", ["", '{"n": 1}\n'], ids=["nothing", "one line"])
def test_producer_that_waits_for_a_line_ends_at_an_interrupt(proxy: ProxyProcess, times: int, first: str) -> None:
    with command("pub", "--lines", "--proxy", proxy.url, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(first)
        process.stdin.flush()
        if first:
            assert process.stdout.readline().startswith("A/0 ")
        else:
            _until_it_reads(process.pid)
        assert interrupted(process, times, 0.02)[:2] == (INTERRUPTED, "")


def test_producer_without_a_proxy_ends_at_the_second_interrupt(proxy: ProxyProcess) -> None:
    proxy.process.pause()
    try:
        with command("pub", "n=1", "--proxy", proxy.url) as process:
            _until_it_connects(process.pid)
            status, printed, took_s = interrupted(process, 2, 0.05)
    finally:
        proxy.process.resume()
    assert (status, printed) == (INTERRUPTED, "")
    assert took_s < 1.0


@pytest.mark.parametrize("gap_s", GAPS_S)
def test_proxy_ends_in_order_at_any_number_of_interrupts(tmp_path: Path, gap_s: float) -> None:
    with command("serve", "--data", str(tmp_path), "--no-discovery") as process:
        assert process.stderr is not None
        assert any("ready" in line for line in process.stderr)
        status, printed, _ = interrupted(process, 5, gap_s)
    assert status == 0
    assert "shut down" in printed.splitlines()[-1]
    assert "Traceback" not in printed


def _until_it_reads(pid: int) -> None:
    """Wait until the process does nothing but wait in a read of its stdin."""
    _until(lambda: Path(f"/proc/{pid}/syscall").read_text().startswith("0 0x0 "))


def _until_it_connects(pid: int) -> None:
    def sockets() -> bool:
        return any(
            "socket:" in os.readlink(descriptor)
            for descriptor in Path(f"/proc/{pid}/fd").iterdir()
            if descriptor.is_symlink()
        )

    _until(sockets)


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not _looked(true):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _looked(true: Callable[[], bool]) -> bool:
    try:
        return true()
    except OSError:
        return False


OTHER_THREAD = """
import asyncio, signal, sys, threading
from node.cli.commands.interrupt import blocking, run

async def read():
    # The system gives the signal to another thread, and the read of this one goes on.
    threading.Thread(target=threading.Event().wait, daemon=True).start()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    with blocking():
        print("reading", flush=True)
        sys.stdin.readline()

try:
    run(read())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_interrupt_that_breaks_off_no_call_by_itself_is_noticed_all_the_same() -> None:
    command = [sys.executable, "-c", OTHER_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "reading\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(WITHIN_S) == 0
            assert process.stdout.read() == "interrupted\n"
        finally:
            process.kill()


TWO_IN_ONE_CALL = """
import asyncio, hashlib, os, signal, threading, time
from node.cli.commands.interrupt import run

def interrupt():
    for _ in range(2):
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)

async def leave():
    try:
        threading.Thread(target=interrupt).start()
        # Python's handlers do not run before the call has ended.
        hashlib.pbkdf2_hmac("sha256", b"", b"", 2_000_000)
        await asyncio.sleep(30)
    finally:
        await asyncio.sleep(0.3)
        print("left", flush=True)

try:
    run(leave())
except KeyboardInterrupt:
    print("interrupted", flush=True)
time.sleep(0.5)  # so long as no signal comes that nobody handles any more
"""


def test_two_interrupts_that_python_handles_as_one_end_a_command_in_order() -> None:
    done = subprocess.run([sys.executable, "-c", TWO_IN_ONE_CALL], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"left\ninterrupted\n", b"")


def test_interrupt_while_the_command_line_is_loaded_ends_it_in_silence() -> None:
    program = """
import os, signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
signal.signal(signal.SIGINT, signal.default_int_handler)
from node.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_interrupt_that_a_library_has_made_an_error_of_its_own_counts_as_one() -> None:
    program = """
import node.cli.app as app
def interrupted(arguments):
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt as error:
        raise RuntimeError("Error calling __set_name__") from error
app._run = interrupted
app.main()
"""
    done = subprocess.run([sys.executable, "-c", program, "sessions"], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_command_whose_interrupts_are_ignored_goes_on_to_ignore_them() -> None:
    program = """
import os, signal
import node.cli.app as app
signal.signal(signal.SIGINT, signal.SIG_IGN)
app.main = lambda: (os.kill(os.getpid(), signal.SIGINT), print("goes on"))
from node.cli.entry import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"goes on\n", b"")
