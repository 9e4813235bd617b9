"""One child process: its own group, its log in a file, every wait bounded, never left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from waypost.errors import Unreachable

LOOPBACK = "127.0.0.1"
LEASH = Path(__file__).with_name("leash.py")
POLL_S = 0.02
PAUSE_POLL_S = 0.001
TAIL_BYTES = 64 * 1024
COMPLAINT = re.compile(r"^\S.*(error|fatal|exception)", re.IGNORECASE)

STOPPED = "TtZX"  # stopped, traced, a zombie, dead: see proc(5)

# The kernel pulls a leash when the *thread* that started the child ends, not only its process. A child that a
# passing thread started would die with it, so one thread that lives as long as this process starts them all.
_starter = ThreadPoolExecutor(1, thread_name_prefix="starter")

_reserved_ports: set[int] = set()


class Process:
    """A command that can be started, killed and started again. It dies with this process.

    Args:
        name: for people, in errors.
        command: the program and its arguments.
        log: the file for its output, which is appended to.
        env: variables beside those of this process.
        cwd: the folder in which it runs; None: that of this process.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log = log
        self._env = env
        self._cwd = cwd
        self._child: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the process runs; a paused process does, too."""
        return self._child is not None and self._child.poll() is None

    @property
    def exit_status(self) -> int | None:
        """The process's exit status, or minus the number of the signal that killed it; None while it runs, or never
        started.
        """
        return None if self._child is None else self._child.poll()

    @property
    def pid(self) -> int:
        """The process's id, which is also the id of its group. Raises Unreachable: it was never started."""
        if self._child is None:
            raise Unreachable(f"{self.name} is not running")
        return self._child.pid

    def start(self) -> None:
        """Start the command as a process, if none runs; return at once: the process may not be ready yet.

        A program that cannot be run shows later, as a process that has ended, with the reason in the log.
        :meth:`has_logged`, :meth:`log_tail` and :meth:`complaints` look at the log from here on.

        Raises:
            OSError: the log cannot be opened, or the folder in which the command is to run is not there.
        """
        if self.running:
            return
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        self._child = _starter.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-IS", str(LEASH), str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=None if self._env is None else {**os.environ, **self._env},
                cwd=self._cwd,
                start_new_session=True,
            )

    def wait_until(self, ready: Callable[[], bool], *, timeout_s: float, what: str = "ready") -> None:
        """Block until `ready()` returns True.

        Args:
            ready: called every POLL_S seconds; what it raises is raised here.
            timeout_s: seconds after which the process is killed.
            what: the state to wait for, in words, for the error.

        Raises:
            Unreachable: the process has ended or was never started, or was killed at the deadline; the hint has the end
                of the log.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            # Asked before: what a process says last, it says before it ends.
            has_ended = not self.running
            if ready():
                return
            if has_ended:
                status = "never started" if self._child is None else f"status {self.exit_status}"
                raise self._failure(f"{self.name} ended before it was {what} ({status})")
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"{self.name} was not {what} after {timeout_s:g} s")
            time.sleep(POLL_S)

    def wait_for_port(self, port: int, *, timeout_s: float) -> None:
        """Block until a port of the loopback accepts connections: one at which the process is to listen.

        Raises:
            Unreachable: the process has ended or was never started, or was killed after `timeout_s` seconds; the hint
                has the end of the log.
        """
        self.wait_until(lambda: port_open(port), timeout_s=timeout_s, what=f"listening on port {port}")

    def _failure(self, message: str) -> Unreachable:
        return Unreachable(message, hint=f"{self.log} says:\n{self.complaints()}\n...\n{self.log_tail()}")

    def has_logged(self, text: str) -> bool:
        """Tell whether the process has written `text` to its log since the last start.

        Raises:
            FileNotFoundError: there is no log, for the process was never started.
        """
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return text.encode() in log.read()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last `lines` lines that the process has logged since the last start, or all if there are fewer; of
        a long log its last TAIL_BYTES are looked at.

        They are one string with newlines between; empty: there are none, or there is no log.
        """
        return "\n".join(self._log_end()[-lines:])

    def complaints(self, lines: int = 5) -> str:
        """Return the last `lines` lines about errors (COMPLAINT) that the process has logged since the last start, or
        all if there are fewer; of a long log its last TAIL_BYTES are looked at.

        They are one string with newlines between; empty: there are none, or there is no log. A server that fails may
        log much after the cause.
        """
        return "\n".join([line for line in self._log_end() if COMPLAINT.search(line)][-lines:])

    def _log_end(self) -> list[str]:
        if not self.log.exists():
            return []
        with self.log.open("rb") as log:
            log.seek(max(self._log_from, self.log.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()

    def kill(self) -> None:
        """Kill the process and its group (SIGKILL), if it runs; return when the process is gone."""
        self._signal(signal.SIGKILL)
        if self._child is not None:
            self._child.wait()

    def stop(self, grace_s: float = 10) -> None:
        """End the process and its group by SIGTERM, if it runs, and wait until the process has ended; if that takes
        longer than `grace_s` seconds, kill them.

        A child that outlives the process within `grace_s` is not killed.
        """
        self._signal(signal.SIGTERM)
        # A paused process would not hear the request.
        self._signal(signal.SIGCONT)
        if self._child is not None:
            try:
                self._child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self.kill()

    def pause(self, timeout_s: float = 10) -> None:
        """Freeze the process and its group (SIGSTOP), as a machine that is suspended; its connections stay open.

        Returns when no thread of the process runs; at once if there is no process. The kernel stops threads some time
        after the signal was sent, on busy processors more than 10 ms: enough for a server to answer one more request.

        Raises:
            Unreachable: after `timeout_s` seconds a thread of the process still runs.
        """
        self._signal(signal.SIGSTOP)
        deadline = time.monotonic() + timeout_s
        while self.running and not _is_stopped(self.pid):
            if time.monotonic() > deadline:
                raise self._failure(f"{self.name} still runs {timeout_s:g} s after SIGSTOP")
            time.sleep(PAUSE_POLL_S)

    def resume(self) -> None:
        """Let a paused process and its group go on (SIGCONT); one that is not paused is not changed."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        # Once reaped, the id may belong to somebody else; `running` reaps.
        if self.running:
            os.killpg(self.pid, number)


def _is_stopped(pid: int) -> bool:
    """Tell whether each thread of a process is stopped or gone; always so where there is no /proc."""
    return all(_thread_state(thread) in STOPPED for thread in Path("/proc").glob(f"{pid}/task/*"))


def _thread_state(thread: Path) -> str:
    try:
        # The name of the program, in brackets, may have any character; the state follows it.
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def port_open(port: int, host: str = LOOPBACK) -> bool:
    """Tell whether a port of a host accepts connections now; it is tried for a second at most."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0


def free_port() -> int:
    """Return a loopback port that nothing listens on; never the same twice in this process.

    It lies below the range from which the kernel takes the near ends of connections: a client that tries to
    reach a dead server on a port of that range can end up connected to itself, and the server cannot return.
    """
    top = _first_ephemeral_port()
    while True:
        port = random.SystemRandom().randrange(top // 2, top)
        if port not in _reserved_ports and _can_bind(port):
            _reserved_ports.add(port)
            return port


def free_ports(count: int) -> list[int]:
    """Return `count` loopback ports that nothing listens on, all different, as :func:`free_port` does."""
    return [free_port() for _ in range(count)]


def _first_ephemeral_port() -> int:
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(setting.read_text().split()[0]) if setting.exists() else 32_768
    return first if first >= 4096 else 32_768


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True
