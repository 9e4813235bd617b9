"""The process of a node: configuration in, a running proxy, an orderly end on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial

import structlog
import uvloop

from discovery.announce import Announcement, Announcer
from node.config import NodeConfig
from node.lock import take_name
from node.node import Node
from node.parts import open_parts
from node.web import Server, make_server
from waypost.errors import BadConfiguration
from waypost.identity import new_incarnation

log = structlog.get_logger("waypost")


def set_up_logging(*, json: bool) -> None:
    """Write log lines to stderr, as JSON or for people."""
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    # What is not there we say ourselves, once; aiokafka says it some hundred times a second.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def listen(config: NodeConfig) -> socket.socket:
    """Return the listening socket. Raises BadConfiguration: the address is taken or not ours."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((config.host, config.port))
    except OSError as error:
        listener.close()
        raise BadConfiguration(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}", field="port"
        ) from None
    listener.listen(1024)
    return listener


async def serve(config: NodeConfig, started: Callable[[str], None], stop: asyncio.Event) -> None:
    """Run one node until `stop` is set; `started` is called with its address once it listens."""
    listener = listen(config)
    port = listener.getsockname()[1]
    url = config.advertise or f"ws://{config.host}:{port}"
    life = new_incarnation()
    node = Node(config, partial(open_parts, config, life), life, lambda: url)
    server = make_server(node, config.host)
    announcer = Announcer(Announcement(config.name, config.site, config.host, port))
    web = asyncio.create_task(server.serve(sockets=[listener]), name="web")
    running = asyncio.create_task(node.run(), name="node")
    ending = asyncio.create_task(stop.wait(), name="stop")
    started(url)
    if config.discovery:
        await _announce(announcer)
    try:
        await asyncio.wait({web, running, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await _end(server, web, running, ending, announcer)
    if not running.cancelled() and (error := running.exception()) is not None:
        raise error


async def _announce(announcer: Announcer) -> None:
    try:
        await announcer.start()
    except OSError as error:
        log.warning("no mDNS announcement; clients need the address", error=str(error))


async def _end(
    server: Server,
    web: asyncio.Task[None],
    running: asyncio.Task[None],
    ending: asyncio.Task[bool],
    announcer: Announcer,
) -> None:
    ending.cancel()
    await announcer.stop()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await running
    server.should_exit = True
    await asyncio.gather(web, return_exceptions=True)


async def _until_signal(config: NodeConfig, started: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await serve(config, started, stop)


def run(config: NodeConfig, started: Callable[[str], None]) -> None:
    """Run one node in this process until SIGTERM or SIGINT."""
    with take_name(config):
        uvloop.run(_until_signal(config, started))
