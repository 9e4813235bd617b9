"""The process of a node: configuration in, a running proxy, an orderly end on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from types import FrameType
from typing import TYPE_CHECKING, TextIO, cast

import structlog
import uvloop
from structlog.typing import Processor

from node.configuration.config import NodeConfig, authority
from node.configuration.log_output import LogOutput
from node.health.repeated_lines import RepeatedLines
from node.health.supervision import endless
from node.http.server import Server, make_server
from node.resources import garbage_collection
from node.shell.node import Node
from node.startup.backends import Backends, open_backends
from node.startup.lock import claim_name
from node.startup.open_files import clients_within, raise_limit
from proxy.session.role import Role
from waypost import cancellation
from waypost.clock import full_jitter_ms
from waypost.errors import (
    BadConfiguration,
    HistoryTruncated,
    Internal,
    InUse,
    LogReplaced,
    StoreDamaged,
    Unreachable,
    WaypostError,
)
from waypost.identity import Incarnation, new_incarnation

if TYPE_CHECKING:
    from discovery.announce import Announcement

log = structlog.get_logger("waypost")
ANNOUNCE_AGAIN_S = 30.0
BACKLOG = 1024
"""Connections that the system keeps for the port until they are accepted."""
EVERY_ADDRESS = ("", "::")
"""Hosts that stand for all addresses of this machine, of IPv4 and of IPv6."""
STEADY_S = 30.0
"""Time after which a node that ended had begun well, in seconds."""
THREAD_TURN_S = 0.0005
"""Time for which the event loop keeps the interpreter while other threads want it, in seconds. SQLite gives it back for
each row, and a loop that has much to do would keep it for Python's usual 5 ms each time: 200 rows a second is no store.
"""


def set_up_logging(*, json: bool) -> None:
    """Have log lines of this process written to stderr, as JSON or for people; those of libraries too, at WARNING and
    above.
    """
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    # The proxy names an absent broker itself, once; aiokafka does so some hundred times a second.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    announcement: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    # Lines of libraries, of the web server and asyncio above all, come as our own do, with their time.
    output = cast(TextIO, LogOutput(sys.stderr))
    libraries = logging.StreamHandler(output)
    libraries.addFilter(RepeatedLines(time.monotonic))
    last: list[Processor] = [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer]
    libraries.setFormatter(structlog.stdlib.ProcessorFormatter(processors=last, foreign_pre_chain=announcement))
    logging.basicConfig(level=logging.WARNING, handlers=[libraries], force=True)
    structlog.configure(
        processors=[*announcement, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(output),
    )


def listen(config: NodeConfig) -> socket.socket:
    """Return the socket, which listens at `host` and `port` of the configuration.

    Raises:
        InUse: another process listens there.
        BadConfiguration: the address is not ours; `field` says which of the two settings is wrong.
    """
    try:
        if config.host in EVERY_ADDRESS and socket.has_dualstack_ipv6():
            return socket.create_server(("", config.port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        found = socket.getaddrinfo(config.host or None, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name that has addresses of both kinds listens at that of IPv4.
        family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        return socket.create_server(address, family=family, backlog=BACKLOG)
    except OSError as error:
        is_name = isinstance(error, socket.gaierror)
        is_port = error.errno in (errno.EADDRINUSE, errno.EACCES) and not is_name
        reason = error.strerror if is_name or error.errno is None else os.strerror(error.errno)
        kind = InUse if error.errno == errno.EADDRINUSE and not is_name else BadConfiguration
        raise kind(
            f"cannot listen on {authority(config.host, config.port)}: {reason}",
            field="port" if is_port else "host",
        ) from None


async def serve(
    config: NodeConfig, started: Callable[[str], None], stop: asyncio.Event, opened: Callable[[], None] = lambda: None
) -> None:
    """Run a node until `stop` is set, and then end it in order.

    A node whose site log was replaced, or has removed what was to be read next, or whose store is damaged, ends, and
    another one begins at the same address: all that it knew may be wrong now, or not be enough. After the second one
    that ends within STEADY_S seconds, each one waits longer before it begins, for 5 s at most.

    Args:
        started: called with the node's URL once its port listens, for the first node only.
        opened: called each time that a node's backends are open.

    Raises:
        WaypostError: the node, or its port, ended before `stop` was set; nothing of it runs any more.
    """
    ports: list[int] = []

    def listens(url: str, port: int) -> None:
        if not ports:
            started(url)
        ports.append(port)

    rng, short_lived = random.Random(), 0
    while True:
        began_s = time.monotonic()
        try:
            await _serve_once(config, listens, stop, opened)
            return
        except LogReplaced as error:
            log.warning("the site log is not what was read of it; the proxy begins anew", error=str(error))
        except HistoryTruncated as error:
            log.warning(
                "retention removed what was not read yet; the proxy begins where the log does", error=str(error)
            )
        except StoreDamaged as error:
            log.error("the store is not what was written; the proxy begins anew", error=str(error))
        # The clients come back to where they were.
        config = replace(config, port=ports[0])
        short_lived = short_lived + 1 if time.monotonic() < began_s + STEADY_S else 0
        if short_lived > 1:
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), full_jitter_ms(short_lived, rng) / 1000)


async def _serve_once(
    config: NodeConfig, started: Callable[[str, int], None], stop: asyncio.Event, opened: Callable[[], None]
) -> None:
    with listen(config) as listener:
        scheme = "wss" if config.tls_cert else "ws"
        url = config.advertise or f"{scheme}://{authority(config.host, listener.getsockname()[1])}"
        incarnation = new_incarnation()
        node = Node(config, partial(_open_backends, config, incarnation, opened), incarnation, lambda: url)
        server = make_server(node, config.host)
        log.info(
            "starting",
            proxy=config.name,
            site=config.site,
            url=url,
            incarnation=incarnation,
            version=version("waypost"),
            log=config.kafka or f"embedded in {config.data}",
            registry=config.etcd or f"embedded in {config.data}",
        )
        failures: list[Exception] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_serve_web(server, listener), name="web")
                started(url, listener.getsockname()[1])
                try:
                    await _serve_node(config, node, url, stop)
                except ExceptionGroup as failed:
                    failures.append(failed)
                # The port closes last: until the node has left, it has things to tell to those who are connected.
                server.should_exit = True
        except ExceptionGroup as failed:
            failures.append(failed)
    if failures:
        raise _failure(failures[0]) from failures[0]
    log.info("shut down")


async def _open_backends(config: NodeConfig, incarnation: Incarnation, opened: Callable[[], None]) -> Backends:
    backends = await open_backends(config, incarnation)
    opened()
    return backends


async def _serve_node(config: NodeConfig, node: Node, url: str, stop: asyncio.Event) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(node.run(), name="node")]
        if config.discovery:
            tasks.append(group.create_task(_announce(partial(_announcement, config, url, node)), name="announcement"))
        await stop.wait()
        log.info("shutting down", sessions=len(node.engine.sessions) if node.engine else 0)
        for task in tasks:
            task.cancel()


async def _serve_web(server: Server, listener: socket.socket) -> None:
    with cancellation.translated(lambda _: Internal("the port was closed, and nobody had asked for it")):
        await server.serve(sockets=[listener])
    if not server.should_exit:
        raise Internal("the port was closed, and nobody had asked for it")


async def _announce(announcement: Callable[[], Announcement]) -> None:
    """Announce the node, again and again. One that nobody finds by mDNS serves all the same."""
    from discovery.announce import announce

    was_logged = False
    while True:
        try:
            await endless("announcement", announce(announcement))
        except Unreachable as error:
            # The network may come back, or come for the first time; until then there is nothing new to say.
            if not was_logged:
                log.warning("no mDNS announcement; clients need the address", error=str(error))
            was_logged = True
        except Exception as error:
            log.warning("the mDNS announcement ended; it begins again", error=str(error), again_s=ANNOUNCE_AGAIN_S)
        await asyncio.sleep(ANNOUNCE_AGAIN_S)


def _announcement(config: NodeConfig, url: str, node: Node) -> Announcement:
    """Return what is announced of the node now."""
    from discovery.announce import Announcement

    if node.engine is None:
        return Announcement(config.name, config.site, url)
    served = sum(session.role is Role.SERVING for session in node.engine.sessions.values())
    return Announcement(config.name, config.site, url, served, node.engine.env.cluster.federation)


def _failure(failures: Exception) -> WaypostError:
    """Return the first failure as a WaypostError; any other exception is logged, and becomes Internal."""
    first = failures
    while isinstance(first, ExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, WaypostError):
        return first
    log.error("the proxy ends by a fault of its own", exc_info=first)
    return Internal(f"{type(first).__name__}: {first}")


async def _until_signal(config: NodeConfig, started: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal(number: int, frame: FrameType | None) -> None:
        # One that comes after the end of the loop has nothing to end any more.
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)

    # Not the loop's own: it takes them away when it closes, and the next signal would break into the end.
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, on_signal)
    await serve(config, started, stop, garbage_collection.keep)


def run(config: NodeConfig, started: Callable[[str], None]) -> None:
    """Run one node in this process until SIGTERM or SIGINT; further signals change nothing.

    Args:
        started: called with the node's URL once it listens.

    Raises:
        NameTaken: another process runs as this proxy with this folder.
        WaypostError: the node ended by itself.
    """
    sys.setswitchinterval(THREAD_TURN_S)
    files = raise_limit()
    clients = clients_within(files, config.max_connections)
    if clients < config.max_connections:
        log.warning(
            "this process may open few files; fewer clients are let in",
            files=files,
            max_connections=clients,
            asked=config.max_connections,
            hint="raise the limit (ulimit -n, LimitNOFILE=), or say a lower --max-connections",
        )
        config = replace(config, max_connections=clients)
    with claim_name(config):
        uvloop.run(_until_signal(config, started))
