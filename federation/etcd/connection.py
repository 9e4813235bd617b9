"""Connections to etcd: their options, TLS, the address of an endpoint, and the translation of errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aetcd
import grpc
from aetcd import rpc

from federation.credentials import Credentials
from federation.endpoints import Endpoints
from waypost import cancellation
from waypost.errors import BadConfiguration, RegistryUnavailable

DEADLINE_S = 2.0
NO_SPACE = "database space exceeded"
"""Part of the error of an etcd that is full."""
CHANNEL_OPTIONS = {
    "grpc.initial_reconnect_backoff_ms": 50,
    # Is also how long one attempt to connect may take.
    "grpc.min_reconnect_backoff_ms": 1000,
    "grpc.max_reconnect_backoff_ms": 500,
    "grpc.max_receive_message_length": -1,
    # A network that drops packets ends no connection: without pings, calls on it wait for TCP to send again, minutes
    # later. etcd allows a ping every 5 s, while there are calls.
    "grpc.keepalive_time_ms": 6_000,
    "grpc.keepalive_timeout_ms": 2_000,
    "grpc.http2.max_pings_without_data": 0,
}


class Servers:
    """The endpoints of etcd as one handle asks them, and what their errors mean.

    Args:
        endpoints: of which one is asked; after a failure the next one is. A text: as :func:`endpoints_of` reads it.
        deadline_s: of every call, in seconds.
    """

    def __init__(self, endpoints: str | Endpoints, deadline_s: float) -> None:
        self.endpoints = endpoints_of(endpoints) if isinstance(endpoints, str) else endpoints
        self.names = ",".join(f"{host}:{port}" for host, port in self.endpoints.addresses)
        self._deadline_s = deadline_s

    @contextmanager
    def translated_errors(self) -> Iterator[int]:
        """Return the context of a call, with the index of the endpoint to be asked.

        Raises:
            RegistryUnavailable: the endpoint did not answer, or refused; the next call goes to the next one.
            LookupError: the lease of the call is not there (any more); the endpoint stays.
        """
        index = self.endpoints.current
        try:
            # gRPC cancels the calls of a channel that is closed under them; our caller was not cancelled.
            with cancellation.translated(lambda _: ConnectionAbortedError("the call was broken off")):
                yield index
        except (aetcd.ClientError, rpc.RpcError, OSError, TimeoutError) as error:
            if "lease not found" in str(error):
                raise LookupError("lease") from error
            self.endpoints.failed(index)
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception) -> RegistryUnavailable:
        """Return the error that names these servers, says that they do not answer or that their space is exhausted, and
        what an operator does about it.

        Args:
            error: of a call to them: gRPC's, or a time-out, whose text may be empty.
        """
        # Of a call that blocks its thread, gRPC's own text has many lines.
        details = error.details() if isinstance(error, grpc.Call) else str(error)
        why = details or f"no answer within {self._deadline_s:g} s"
        if NO_SPACE in why:
            return RegistryUnavailable(
                f"etcd at {self.names} takes no changes: its space is exhausted",
                hint="compact and defragment it, raise --quota-backend-bytes if need be, then: etcdctl --endpoints "
                f"{self.names} alarm disarm",
            )
        return RegistryUnavailable(
            f"etcd at {self.names} does not answer: {why}",
            hint=f"is etcd running at {self.names}? Try: etcdctl --endpoints {self.names} endpoint health",
        )


class TlsClient(aetcd.Client):  # type: ignore[misc]  # aetcd has no types
    """aetcd's client over a TLS channel, which aetcd itself cannot open, with the stubs of those calls that are used
    here.

    Args:
        channel: an open secure channel of gRPC's asyncio interface.
    """

    channel: Any

    def __init__(self, host: str, port: int, deadline_s: float, credentials: Credentials) -> None:
        super().__init__(host, port, timeout=deadline_s, options=CHANNEL_OPTIONS)
        self._secret = channel_secret(credentials)

    async def connect(self) -> None:
        """Make the channel, which dials at the first call. Nothing happens if it is there."""
        if self.channel is None:
            target = f"{self._host}:{self._port}"
            self.channel = rpc.secure_channel(target, self._secret, options=tuple(CHANNEL_OPTIONS.items()))
            self.kvstub, self.leasestub = rpc.KVStub(self.channel), rpc.LeaseStub(self.channel)


def channel_secret(credentials: Credentials) -> grpc.ChannelCredentials:
    """Return the credentials as gRPC takes them for a channel."""
    return grpc.ssl_channel_credentials(credentials.authorities, credentials.key, credentials.certificate)


def endpoints_of(addresses: str) -> Endpoints:
    """Return the endpoints of etcd that an option of the command line names.

    Args:
        addresses: host:port, several with commas between; ``http://`` before one is dropped.

    Raises:
        BadConfiguration: one of them is no address.
    """
    return Endpoints([_address(address) for address in addresses.split(",")])


def _address(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.strip().removeprefix("http://").rpartition(":")
    if not host or "/" in host or not port.isdigit():
        raise BadConfiguration(f"not an address of etcd: {endpoint!r}", hint="write host:port")
    return host, int(port)
