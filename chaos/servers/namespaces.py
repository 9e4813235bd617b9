"""Hosts on a network of their own: network namespaces, joined by virtual cables. Needs root, and Linux."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from waypost.errors import Unreachable

IP_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A network namespace with a loopback and one other interface.

    Args:
        name: of the namespace, unique on this machine.
        interface: the name of the interface.
        ipv4, ipv6: its addresses, without a prefix length; "": it has none.
    """

    name: str
    interface: str
    ipv4: str
    ipv6: str

    def command(self, *words: str) -> list[str]:
        """Return the command line that runs `words`, a program and its arguments, on this host."""
        return ["ip", "netns", "exec", self.name, *words]

    def configure(self) -> None:
        """Put the host's loopback and its other interface up, with the addresses; the namespace has to exist.

        Called again, this undoes :meth:`unplug`.

        Raises:
            Unreachable: the system refuses.
            subprocess.TimeoutExpired: a command took longer than IP_TIMEOUT_S seconds.
            FileNotFoundError: this machine has no program `ip`.
        """
        _ip("-n", self.name, "link", "set", "lo", "up")
        _ip("-n", self.name, "link", "set", self.interface, "up")
        if self.ipv4:
            _ip("-n", self.name, "addr", "replace", f"{self.ipv4}/24", "dev", self.interface)
        if self.ipv6:
            # Without a look for duplicates: the address is usable at once.
            _ip("-n", self.name, "addr", "replace", f"{self.ipv6}/64", "dev", self.interface, "nodad")

    def unplug(self) -> None:
        """Put the host's interface to the other host down, until :meth:`configure`.

        Raises:
            Unreachable: the system refuses.
            subprocess.TimeoutExpired: the command took longer than IP_TIMEOUT_S seconds.
            FileNotFoundError: this machine has no program `ip`.
        """
        _ip("-n", self.name, "link", "set", self.interface, "down")


class _Namespaces:
    """Network namespaces; as a context manager it makes and connects them, and removes them with all they have."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def __enter__(self) -> Self:
        try:
            for name in self._names:
                _ip("netns", "add", name)
            self._connect()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _connect(self) -> None:
        """Join the namespaces, which are there. Raises Unreachable: the system refuses."""
        raise NotImplementedError

    def _remove(self) -> None:
        for name in self._names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=IP_TIMEOUT_S)


class TwoHosts(_Namespaces):
    """Two hosts that are joined by a cable; as a context manager it makes them, and removes them with all they have.

    Args:
        ipv4: whether they have addresses of IPv4; they always have some of IPv6.
    """

    def __init__(self, *, ipv4: bool = True) -> None:
        mark = uuid.uuid4().hex[:6]
        addresses = ("10.77.0.1", "10.77.0.2") if ipv4 else ("", "")
        self.one = Host(name=f"waypost-{mark}-1", interface=f"wp{mark}-1", ipv4=addresses[0], ipv6="fd77::1")
        self.other = Host(name=f"waypost-{mark}-2", interface=f"wp{mark}-2", ipv4=addresses[1], ipv6="fd77::2")
        super().__init__([self.one.name, self.other.name])

    def _connect(self) -> None:
        ends = [(host.interface, "netns", host.name) for host in (self.one, self.other)]
        _ip("link", "add", *ends[0], "type", "veth", "peer", *ends[1])
        for host in (self.one, self.other):
            host.configure()


class Lan(_Namespaces):
    """Hosts with addresses of IPv4 at one switch; as a context manager it makes them, and removes them with all they
    have.

    Args:
        count: how many hosts.
    """

    def __init__(self, count: int) -> None:
        mark = uuid.uuid4().hex[:6]
        self._switch = f"waypost-{mark}-0"
        self.hosts = [
            Host(name=f"waypost-{mark}-{number}", interface=f"wp{mark}-{number}", ipv4=f"10.78.0.{number}", ipv6="")
            for number in range(1, count + 1)
        ]
        super().__init__([self._switch, *(host.name for host in self.hosts)])

    def part(self, one: Host, other: Host) -> None:
        """Have neither of two hosts reach the other from now on; both reach all others.

        Raises:
            Unreachable: the system refuses, as where they are parted already; one direction may be cut then.
            subprocess.TimeoutExpired: a command took longer than IP_TIMEOUT_S seconds.
            FileNotFoundError: this machine has no program `ip`.
        """
        for host, far in ((one, other), (other, one)):
            _ip("-n", host.name, "route", "add", "unreachable", f"{far.ipv4}/32")

    def join(self, one: Host, other: Host) -> None:
        """Undo :meth:`part`.

        Raises:
            Unreachable: the system refuses, as where the hosts are not parted.
            subprocess.TimeoutExpired: a command took longer than IP_TIMEOUT_S seconds.
            FileNotFoundError: this machine has no program `ip`.
        """
        for host, far in ((one, other), (other, one)):
            _ip("-n", host.name, "route", "del", "unreachable", f"{far.ipv4}/32")

    def _connect(self) -> None:
        _ip("-n", self._switch, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "switch", "up")
        for host in self.hosts:
            port = f"{host.interface}p"
            end = (host.interface, "netns", host.name)
            _ip("link", "add", *end, "type", "veth", "peer", port, "netns", self._switch)
            _ip("-n", self._switch, "link", "set", port, "master", "switch", "up")
            host.configure()


def can_make_hosts() -> bool:
    """Tell whether this process may make network namespaces, as far as is known: it is root."""
    return os.geteuid() == 0


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], check=False, capture_output=True, text=True, timeout=IP_TIMEOUT_S)
    if done.returncode != 0:
        raise Unreachable(f"ip {' '.join(words)}: {done.stderr.strip()}", hint="network namespaces need root")
