"""Avahi, the implementation of DNS-SD that most Linux machines have, with its tools: on a host of its own."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos.servers import parts
from chaos.servers.namespaces import Host
from chaos.servers.process import Process
from waypost.errors import Unreachable

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type><listen>unix:path={socket}</listen><auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/><allow user="*"/>
  </policy>
</busconfig>
"""
CONFIGURATION = """[server]
host-name={host}
use-ipv4=yes
use-ipv6=yes
[wide-area]
enable-wide-area=no
[publish]
publish-hinfo=no
publish-workstation=no
"""
START_S = 20
USER = "avahi"
AS_USER = 'mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/group && shift 2 && exec "$@"'
TOOL_S = 15


class Avahi:
    """The daemon and its bus, on one host; as a context manager it starts both, waits until they answer, START_S
    seconds each at most, and ends both. Entering raises Unreachable: one of them did not answer.

    Args:
        host: on which they run.
        folder: for their files.
    """

    def __init__(self, host: Host, folder: Path) -> None:
        self._host = host
        self._folder = folder
        self._stack = ExitStack()
        self._root = parts.path("avahi")

    def __enter__(self) -> Self:
        bus = self._folder / "bus"
        (self._folder / "bus.conf").write_text(BUS.format(socket=bus))
        (self._folder / "avahi.conf").write_text(CONFIGURATION.format(host=self._host.interface))
        settings = str(self._folder / "avahi.conf")
        self._add_user()
        with ExitStack() as starting:
            config = f"--config-file={self._folder / 'bus.conf'}"
            starting.enter_context(self._process("dbus-daemon", config, "--nofork", "--nopidfile")).wait_until(
                bus.exists, timeout_s=START_S
            )
            as_root = ("--no-drop-root", "--no-chroot", "--no-rlimits")
            daemon = starting.enter_context(self._process("avahi-daemon", "-f", settings, *as_root))
            daemon.wait_until(lambda: daemon.has_logged("Server startup complete"), timeout_s=START_S)
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def browse(self, service: str) -> list[str]:
        """Block until Avahi's browser has looked for the services of a type; return the lines that it prints.

        Each line is a record of ``avahi-browse -rpt``, with ``;`` between its fields; one that begins with ``=`` is of
        a resolved service. Empty: there are none. The daemon has to run: call this while the context of the object is
        entered.

        Args:
            service: the DNS-SD type, such as ``_http._tcp``.

        Raises:
            Unreachable: the browser failed.
            subprocess.TimeoutExpired: the browser took longer than TOOL_S seconds.
        """
        done = subprocess.run(
            self._command("avahi-browse", "-rpt", service),
            check=False,
            capture_output=True,
            text=True,
            timeout=TOOL_S,
            env={**os.environ, **self._variables()},
        )
        if done.returncode != 0:
            raise Unreachable(f"avahi-browse: {done.stderr.strip()}")
        return done.stdout.splitlines()

    def publish(self, name: str, service: str, port: int, properties: dict[str, str]) -> Process:
        """Return a process, not started, that announces a service as long as it runs; the caller starts and ends it.

        The daemon has to run then: start the process while the context of the object is entered.

        Args:
            name: of the service's instance.
            service: the DNS-SD type, such as ``_http._tcp``.
            port: at which the service listens.
            properties: of its TXT record.
        """
        pairs = [f"{key}={value}" for key, value in properties.items()]
        return self._process("avahi-publish", "-s", name, service, str(port), *pairs)

    def _add_user(self) -> None:
        """Write the files that stand for those of the system with the daemon's user and group: it looks for both, also
        where it runs as root.
        """
        for name, line in (("passwd", f"{USER}:x:0:0::/:/bin/false\n"), ("group", f"{USER}:x:0:\n")):
            (self._folder / name).write_text(Path("/etc", name).read_text() + line)

    def _process(self, program: str, *words: str) -> Process:
        log = self._folder / f"{program}.log"
        return Process(program, self._command(program, *words), log=log, env=self._variables())

    def _command(self, program: str, *words: str) -> list[str]:
        path = str(next((self._root / "usr").glob(f"*bin/{program}")))
        # On the host each command has mounts of its own.
        files = [str(self._folder / name) for name in ("passwd", "group")]
        return self._host.command("sh", "-c", AS_USER, "sh", *files, path, *words)

    def _variables(self) -> dict[str, str]:
        libraries = ":".join(str(path) for path in self._root.glob("**/lib/*-linux-gnu"))
        return {"LD_LIBRARY_PATH": libraries, "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={self._folder / 'bus'}"}
