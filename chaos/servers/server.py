"""The base of all launchers of servers: a folder, a process, its start and its end."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

from chaos.servers.process import Process


class ServerTls(NamedTuple):
    """PEM files with which a server speaks TLS; it asks its clients for a certificate of the same authority."""

    authority: Path
    certificate: Path
    key: Path
    """In PKCS #8: Java knows no other."""


class Server(ABC):
    """A real server on loopback. Its ports are chosen once, so that clients find it again after a restart. As a context
    manager it starts and stops; entering raises what :meth:`start` raises.

    Args:
        data: the folder of its data, which is kept; None: a temporary one that goes with this object.
    """

    name: ClassVar[str]
    start_timeout_s: ClassVar[float] = 60

    def __init__(self, data: Path | None = None) -> None:
        if data is None:
            data = Path(tempfile.mkdtemp(prefix=f"waypost-{self.name}-"))
            weakref.finalize(self, shutil.rmtree, data, ignore_errors=True)
        self.data = data
        self.process: Process | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def log(self) -> Path:
        """The file to which the server's output goes."""
        return self.data / "server.log"

    @property
    def running(self) -> bool:
        """Whether the server's process runs; it may not answer yet, or be paused."""
        return self.process is not None and self.process.running

    def start(self) -> None:
        """Start the server, if it does not run, and block until it can be used. A server that runs is not waited for,
        also if it is not ready yet.

        A server that fails to become ready is killed.

        Raises:
            Unreachable: the server ended, or was not ready after `start_timeout_s` seconds; the hint has the end of its
                log. Or its program is not on this machine.
            Exception: what :meth:`prepare`, :meth:`command` and :meth:`ready` raise.
        """
        if self.running:
            return
        self.data.mkdir(parents=True, exist_ok=True)
        self.prepare()
        self.process = Process(self.name, self.command(), log=self.log)
        try:
            self.process.start()
            self.process.wait_until(self.ready, timeout_s=self.start_timeout_s)
        except BaseException:
            self.process.kill()
            raise

    def stop(self) -> None:
        """End the server by SIGTERM, if it runs, and wait; after 10 s kill it.

        Its data stays, and :meth:`start` brings it back.
        """
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """Kill the server (SIGKILL), if it runs, and wait until it is gone; its data stays, and :meth:`start` brings it
        back.
        """
        if self.process is not None:
            self.process.kill()

    def pause(self) -> None:
        """Freeze the server (SIGSTOP), if it runs; return when no thread of it runs. Its connections stay open.

        Raises Unreachable: after 10 s a thread of the server still runs.
        """
        if self.process is not None:
            self.process.pause()

    def resume(self) -> None:
        """Let the server go on after :meth:`pause`; one that is not paused is not changed."""
        if self.process is not None:
            self.process.resume()

    def prepare(self) -> None:  # noqa: B027 - most servers need nothing
        """Write the files that must be in the folder `data` before the start; :meth:`start` calls this."""

    @abstractmethod
    def command(self) -> list[str]:
        """Return the command line that starts the server in the foreground."""

    @abstractmethod
    def ready(self) -> bool:
        """Tell whether the server can be used; :meth:`start` calls this again and again until True.

        An error that this raises comes out of :meth:`start`, which kills the server then.
        """
