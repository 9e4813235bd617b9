"""The stream of changes from etcd, with signs of life.

aetcd's own watch says nothing when a stream falls silent or ends in peace, and waits for ever on some refusals. This
one is made of the same stubs, and asks for signs of life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import aetcd
from aetcd import rpc

PROGRESS_NOTIFY_S = 1.0
"""A watch asks for a sign of life so often; the stream is given up when none comes for DEADLINE_S more."""


async def changes(client: aetcd.Client, prefix: bytes, revision: int, deadline_s: float) -> AsyncGenerator[Any, None]:
    """Yield every change below `prefix` from `revision` on, as an event of etcd (mvccpb.Event); None: an answer without
    a change, such as a sign of life.

    Args:
        client: connected; its channel is used.
        prefix: of the keys.
        revision: the first one that is wanted.
        deadline_s: how long the first write may take, and how long a sign of life may be late, in seconds.

    Raises:
        ConnectionError: the stream has ended, or etcd has compacted the revision.
        TimeoutError: the stream was not opened within `deadline_s` seconds, or was silent for PROGRESS_NOTIFY_S +
            `deadline_s` seconds.
        aetcd.rpc.RpcError: gRPC reports that the call failed. A channel that is closed meanwhile raises CancelledError.
    """
    call = rpc.WatchStub(client.channel).Watch()
    create = rpc.WatchCreateRequest(key=prefix, range_end=aetcd.utils.prefix_range_end(prefix), start_revision=revision)
    asking: asyncio.Task[None] | None = None
    try:
        async with asyncio.timeout(deadline_s):
            await call.write(rpc.WatchRequest(create_request=create))
        asking = asyncio.create_task(_ask_for_signs(call))
        while True:
            async with asyncio.timeout(PROGRESS_NOTIFY_S + deadline_s):
                answer = await call.read()
            # At the stream's end gRPC gives a token of its own in place of an answer.
            if not isinstance(answer, rpc.WatchResponse) or answer.canceled:
                raise ConnectionError(f"the watch has ended: {getattr(answer, 'cancel_reason', '')}")
            for change in answer.events or (None,):
                yield change
    finally:
        if asking is not None:
            asking.cancel()
        call.cancel()


async def _ask_for_signs(call: Any) -> None:
    request = rpc.WatchRequest(progress_request=rpc.WatchProgressRequest())
    with suppress(rpc.RpcError, asyncio.InvalidStateError):
        while True:
            await asyncio.sleep(PROGRESS_NOTIFY_S)
            await call.write(request)
