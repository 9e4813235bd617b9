"""A connection to etcd that renews a lease for another thread, and shares nothing with that of the node's loop.

Its calls block a thread, and are not those of gRPC's asyncio: that has one poller in a process, which wakes every
event loop that uses it for the answers to all others. Two loops would pay for each other's calls, and every handover
with them.
"""

from __future__ import annotations

import asyncio
import time

import grpc
from aetcd import rpc

from federation.credentials import Credentials
from federation.endpoints import Endpoints
from federation.etcd.connection import CHANNEL_OPTIONS, DEADLINE_S, Servers, channel_secret
from federation.etcd.registry import EtcdLease
from federation.etcd.rows import name_key
from federation.ports import Lease
from waypost.errors import Internal


class EtcdLeaseRenewer:
    """Renews leases over channels of its own: a :class:`federation.ports.LeaseRenewer`.

    Args:
        endpoints: host:port, several with commas between, or those that other handles share.
        prefix: of all keys.
        deadline_s: of every renewal, in seconds.
        credentials: for TLS; None: without TLS.
    """

    def __init__(
        self,
        endpoints: str | Endpoints,
        prefix: str = "/waypost/",
        *,
        deadline_s: float = DEADLINE_S,
        credentials: Credentials | None = None,
    ) -> None:
        self._servers = Servers(endpoints, deadline_s)
        self._prefix = prefix
        self._deadline_s = deadline_s
        self._credentials = credentials
        self._channels: dict[int, grpc.Channel] = {}
        """Index of an address -> the channel to it; gRPC dials at the first call."""

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease that was granted over another connection, if its proxy's name is still held under it
        (:meth:`federation.ports.LeaseRenewer.renew`).

        Returns:
            False: the lease has ended for good, or its proxy was announced again, and it is not renewed.

        Raises:
            Internal: it is a lease of another kind of registry.
            RegistryUnavailable: it is not known whether the lease was renewed.
        """
        if not isinstance(lease, EtcdLease):
            raise Internal(f"{type(lease).__name__} is no lease of this registry")
        try:
            with self._servers.translated_errors() as index:
                return await asyncio.to_thread(self._renew, self._channel(index), lease)
        except LookupError:
            return False

    async def close(self) -> None:
        """Close the channels; the leases that were renewed over them go on."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await asyncio.to_thread(channel.close)

    def _renew(self, channel: grpc.Channel, lease: EtcdLease) -> bool:
        name = name_key(self._prefix, lease.row.proxy)
        ends_at_s = time.monotonic() + self._deadline_s
        found = rpc.KVStub(channel).Range(rpc.RangeRequest(key=name), timeout=self._deadline_s)
        # A later incarnation has taken its place: this one is not renewed, and ends when its time is over.
        if not found.kvs or found.kvs[0].lease != lease.number:
            return False
        request = rpc.LeaseKeepAliveRequest(ID=lease.number)
        left_s = max(0.001, ends_at_s - time.monotonic())
        for reply in rpc.LeaseStub(channel).LeaseKeepAlive(iter([request]), timeout=left_s):
            return bool(reply.TTL > 0)
        raise ConnectionAbortedError("no answer to a renewal")

    def _channel(self, index: int) -> grpc.Channel:
        if index not in self._channels:
            host, port = self._servers.endpoints.addresses[index]
            options = tuple(CHANNEL_OPTIONS.items())
            if self._credentials is None:
                self._channels[index] = grpc.insecure_channel(f"{host}:{port}", options=options)
            else:
                secret = channel_secret(self._credentials)
                self._channels[index] = grpc.secure_channel(f"{host}:{port}", secret, options=options)
        return self._channels[index]
