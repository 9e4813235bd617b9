"""Rendezvous: a client fetches resources of another one; each of them may be away while the other acts.

    async with waypost.offer("bob", provide) as offering:       # provide(request) returns bytes
        await offering.serve()

    async with waypost.connect_rendezvous("alice") as meeting:
        await meeting.arrange("bob", "photos/1.jpg")
        async for resource in meeting:
            ...

Why no request or resource is lost: waypost/rendezvous.py. Both sides subscribe before any message is sent to them: an
owner's subscription to requests stays while it is away, and an answer is not published before the owner's proxy knows
of the requester's subscription: else the answer could be ahead of the subscription that it is for.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any
from uuid import uuid4

from waypost.arguments import function, whole
from waypost.client.entry import attach
from waypost.client.received_notification import Received
from waypost.client.receiver import Receiver
from waypost.errors import BadArgument, BadNotification, NotFound, WaypostError
from waypost.identity import SubscriptionId
from waypost.keys import CONSUMER, NO_KEYS, Key, Keys, raw_key
from waypost.limits import MAX_RESOURCE_BYTES, MAX_TTL_S, RENDEZVOUS_BUFFER_BYTES
from waypost.notification import Notification
from waypost.reliability import BEST_EFFORT
from waypost.rendezvous import (
    Assembly,
    Request,
    Resource,
    answers_to,
    check_name,
    requests_to,
    session_of_owner,
    session_of_requester,
)

log = logging.getLogger("waypost")
Provide = Callable[[Request], bytes | Awaitable[bytes]]
WAITING = SubscriptionId("rendezvous")
"""The id of the only subscription in a session of a rendezvous."""
KEPT_S = 30 * 86_400
"""How long a request waits for its owner, and an answer for its requester, by default; in seconds."""
KNOWN_S = 2.0
"""How long a requester waits for the interest of an owner of that name, in seconds."""
ANSWERED_AT_ONCE = 8
"""Requests that one owner answers concurrently, if several requesters sent them; each has its resource in memory."""
WANTED_S = 5.0
"""How long an owner waits for the interest of the requester: longer than a request can be ahead of it, in seconds."""
STALLED_MS = 10 * 60_000
"""A resource of which no part came for so long was interrupted; its owner begins again when it is back."""


class _Party:
    """One side of rendezvous: a session with one subscription, by which messages wait for it while it is away."""

    def __init__(self, session: Receiver, expression: str, key: bytes | None, kept_s: int) -> None:
        self.session = session
        """The receiver of that session: to move it, to see where it is served, and so on."""
        self._expression = expression
        self._key = key
        self._kept_s = kept_s

    async def _enter(self) -> None:
        await self.session.__aenter__()
        try:
            keys = NO_KEYS if self._key is None else Keys.consumer(self._key)
            await self.session.subscribe(
                self._expression, id=WAITING, ttl_s=self._kept_s, keys=keys, insecure=self._key is None
            )
        except BaseException:
            await self.session.close()
            raise

    async def __aexit__(self, *problem: Any) -> None:
        await self.session.__aexit__(*problem)

    async def _request_interest(self, names: Iterable[str], keys: Keys) -> None:
        """Ask for the interest of everybody that waits for notifications with these attributes and keys."""
        await self.session.quench(*names, keys=keys, insecure=not keys.keys)


class Offering(_Party):
    """An owner of resources that is back, and ready to answer requests. Made by :func:`offer`."""

    def __init__(self, session: Receiver, name: str, provide: Provide, key: bytes | None, kept_s: int) -> None:
        super().__init__(session, requests_to(name), key, kept_s)
        self._provide = provide
        self.answered = 0
        """The number of requests whose answers are durable."""
        self._answering = False

    async def __aenter__(self) -> Offering:
        await self._enter()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        if self._answering:
            # Interrupted while it answers: the requests come again.
            self.session.nack()
        await super().__aexit__(*problem)

    async def serve(self) -> None:
        """Answer the requests that wait, and those to come, some at a time, until cancelled or until the session was
        closed.

        A request is acknowledged when the answers of all requests of its batch are durable. Until then, and so after an
        error, it comes again to the next owner of this name. Each call replaces what the session was asked for by
        :meth:`waypost.Receiver.quench`.

        Raises:
            Refused: the session was not entered, or a proxy has refused an answer.
            NoAnswer, NoProxy: the interest of the requesters was not known within the `timeout_s` of
                :func:`waypost.attach`; call it again.
            Unreachable: the session was closed while it answered.
            WaypostError: the error that ended the session.
        """
        if self._answering:
            # An error has ended an earlier call: what it has not answered is not acknowledged by the next batch.
            self.session.nack()
            self._answering = False
        while True:
            try:
                batch = await self.session.next_batch(ANSWERED_AT_ONCE)
            except StopAsyncIteration:
                return
            self._answering = True
            by_key: dict[Key | None, list[Request]] = {}
            for request in filter(None, map(_understood, batch)):
                by_key.setdefault(request.key, []).append(request)
            for key, requests in by_key.items():
                await self._answer(requests, NO_KEYS if key is None else Keys(frozenset({key})))
            self._answering = False
            self.answered += len(batch)

    async def withdraw(self) -> None:
        """Stop offering: delete the owner's session, with the requests that wait in it, and close it. Later requests do
        not wait for the owner. After an error the session stays open.

        Raises:
            Forbidden: the access does not allow it.
            NoAnswer, NoProxy: no answer came within `timeout_s`; the session may be deleted.
            WaypostError: as :meth:`waypost.Receiver.delete` raises it.
        """
        await self.session.delete()

    async def _answer(self, requests: list[Request], keys: Keys) -> None:
        """Answer requests whose answers have the same keys: requesters concurrently, each one's in order."""
        answers = await asyncio.gather(*map(self._parts, requests))
        await self._request_interest({name for parts in answers for name in parts[0]}, keys)
        by_requester: dict[str, list[list[Notification]]] = {}
        for request, parts in zip(requests, answers, strict=True):
            by_requester.setdefault(request.requester, []).append(parts)
        try:
            async with asyncio.TaskGroup() as group:
                for requester, resources in by_requester.items():
                    group.create_task(self._send(requester, resources, keys))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _send(self, requester: str, resources: list[list[Notification]], keys: Keys) -> None:
        for parts in resources:
            if not await self.session.wait_wanted(parts[0], WANTED_S):
                log.info("nobody is known to wait for what %s asked; it is sent all the same", requester)
            safe = [await self.session.publish_soon(part, keys=keys, insecure=not keys.keys) for part in parts]
            await asyncio.gather(*safe)

    async def _parts(self, request: Request) -> list[Notification]:
        attempt = uuid4().hex
        try:
            provided = self._provide(request)
            data = await provided if isawaitable(provided) else provided
            return list(request.answer(attempt, data))
        except WaypostError as error:
            return [request.refusal(attempt, str(error))]
        except Exception:
            log.exception("a resource could not be provided")
            return [request.refusal(attempt, "its owner could not provide it")]


class RendezvousConsumer(_Party):
    """A requester of resources, and a stream of those that came, also by requests of an earlier process of its name.

    A resource is acknowledged when the next one is asked for, or when the block ends without an exception, if no other
    one has arrived in part by then; else it may come again to a later process, under the same id.
    """

    def __init__(self, session: Receiver, name: str, key: bytes | None, kept_s: int) -> None:
        super().__init__(session, answers_to(name), key, kept_s)
        self._name = name
        self._public = None if key is None else Key("sha256-consumer", CONSUMER, key).public
        self._assembly = Assembly()
        self._came: deque[Resource] = deque()
        self._unsettled = 0
        """Bytes received and not acknowledged."""
        self.known = False
        """Whether the interest of an owner of that name was known when the last request was sent. If not, the request
        waits only for an owner that offers already, at a proxy that cannot be reached just now.
        """

    async def __aenter__(self) -> RendezvousConsumer:
        await self._enter()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        if problem[0] is None and not self._finish():
            # A file that has arrived in part, or was not asked for by the application, comes again.
            self.session.nack()
        await super().__aexit__(*problem)

    async def arrange(
        self,
        owner: str,
        path: str,
        *,
        id: str | None = None,
        max_bytes: int = MAX_RESOURCE_BYTES,
        key: bytes | None = None,
    ) -> str:
        """Request a resource; return the id of the rendezvous once the request is durable.

        The owner sends the resource when it is back; iterating over this consumer returns it. :attr:`known` tells
        whether interest of an owner of that name was known. The call waits for the proxy's interest, up to the
        `timeout_s` of :func:`waypost.attach`; then up to KNOWN_S seconds for that of the owner; and then as long as the
        publish takes. It replaces what the session was asked for by :meth:`waypost.Receiver.quench`.

        Args:
            owner: the name of its :func:`offer`.
            path: of the resource, as its owner understands it.
            id: of the rendezvous; None: a new one. The owner answers each request, also one that is repeated under its
                id; this consumer returns one of the answers.
            max_bytes: in bytes, from 1 to MAX_RESOURCE_BYTES; the owner refuses to send a larger resource.
            key: the public form of the owner's key: nobody else can read the request. None: the request is not
                protected.

        Raises:
            Refused: the path or a name is too long, the key is no key, the consumer was not entered, or a proxy has
                refused the request.
            BadArgument: an argument is of a wrong type, or `max_bytes` out of its bounds.
            NoAnswer, NoProxy: interest was not known in time; the request was not sent.
            Unreachable: the client is closed.
            WaypostError: the error that ended the session.
        """
        request = Request(
            id=uuid4().hex if id is None else id,
            owner=owner,
            requester=self._name,
            path=path,
            max_bytes=max_bytes,
            key=self._public,
        )
        keys = NO_KEYS if key is None else Keys.consumer(raw_key(key, "key"))
        notification = request.notification()
        await self._request_interest(notification, keys)
        self.known = await self.session.wait_wanted(notification, KNOWN_S)
        await self.session.publish(notification, keys=keys, insecure=key is None)
        return request.id

    # ------------------------------------------------------------ what came

    def __aiter__(self) -> AsyncIterator[Resource]:
        return self

    async def __anext__(self) -> Resource:
        while not self._came:
            self._assembly.expire(_now_ms() - STALLED_MS)
            self._finish()
            batch: list[Received] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STALLED_MS / 1_000):
                    batch = await self.session.next_batch(manual_ack=True)
            for received in batch:
                self._take(received)
            self._unsettled += sum(len(received.body) for received in batch)
            if self._unsettled >= RENDEZVOUS_BUFFER_BYTES:
                self._make_room()
        return self._came.popleft()

    def _take(self, received: Received) -> None:
        try:
            resource = self._assembly.add(received, _now_ms())
        except BadNotification as error:
            log.info("a part of a resource was not understood: %s", error)
            return
        if resource is not None:
            self._came.append(resource)

    def _finish(self) -> bool:
        """Acknowledge everything received, if the application has it all; return whether it has."""
        if self._came or self._assembly.holding:
            return False
        self.session.acknowledge()
        self._unsettled = 0
        return True

    def _make_room(self) -> None:
        """Give up the resource that holds up the others: nothing more comes until something is acknowledged."""
        given_up = self._assembly.evict_oldest()
        if given_up is not None:
            self._came.append(given_up)


def offer(name: str, provide: Provide, *, key: bytes | None = None, kept_s: int = KEPT_S, **options: Any) -> Offering:
    """Return the owner `name` of resources: enter it, then call :meth:`Offering.serve`.

    From its first start on, requests to that owner wait for it while it is away.

    Args:
        name: of the owner.
        provide: called with a :class:`Request`, returns the bytes of the resource at its path, or raises Refused with a
            message for the requester; a function, or a coroutine function. It decides who may have the resource:
            whoever holds the `key` of a request can read the answer, whatever name the request gives.
        key: a raw key: only requests protected by its public form are delivered. None: all.
        kept_s: how long a request waits, in seconds.
        options: of :func:`waypost.attach`.

    Raises:
        Refused: the name is too long, or another argument is not valid.
    """
    function(provide, "provide", "a function that is given a waypost.Request and returns bytes")
    _check_party(name, key, kept_s)
    return Offering(attach(session_of_owner(name), **options), name, provide, key, kept_s)


def connect_rendezvous(
    name: str, *, key: bytes | None = None, kept_s: int = KEPT_S, **options: Any
) -> RendezvousConsumer:
    """Return a requester of resources: enter it, then call :meth:`RendezvousConsumer.arrange`, and iterate.

    Args:
        name: of the requester; answers wait for it while it is away.
        key: a raw key: only its holder can read the answers. None: they are not protected.
        kept_s: how long an answer waits, in seconds.
        options: of :func:`waypost.attach`.

    Raises:
        Refused: the name is too long, or another argument is not valid.
    """
    _check_party(name, key, kept_s)
    return RendezvousConsumer(attach(session_of_requester(name), **options), name, key, kept_s)


def _check_party(name: str, key: bytes | None, kept_s: int) -> None:
    """Raise BadArgument or LimitExceeded unless these are valid."""
    whole(kept_s, "kept_s", 1, MAX_TTL_S)
    check_name(name, "name")
    if key is not None:
        raw_key(key, "key")


async def request(
    requester: str, owner: str, path: str, *, owner_key: bytes | None = None, **options: Any
) -> tuple[str, bool]:
    """Send one request for a resource, wait until it is durable, and leave. A :class:`RendezvousConsumer` of the same
    name receives the answer: one that is running, which goes on, or a later one. Where there is no session of that
    requester yet, it is made, and stays for the answer.

    Args:
        requester: the name for which the answer waits (:func:`connect_rendezvous`).
        owner: the name of its :func:`offer`.
        path: of the resource, as its owner understands it.
        owner_key: the public form of the owner's key; None: the request is not protected.
        options: of :func:`connect_rendezvous`, but not `receiver`, `reliability`, `create` or `state`.

    Returns:
        The id of the rendezvous, and whether interest of an owner of that name was known
            (:attr:`RendezvousConsumer.known`).

    Raises:
        BadArgument: an option that a request chooses was given.
        Refused: the path or a name is too long, a key is no key, or the session or the request was refused.
        NoAnswer, NoProxy: no proxy let the client in, or interest was not known in time.
    """
    check_name(requester, "requester")
    for chosen in ("receiver", "reliability", "create", "state"):
        if chosen in options:
            raise BadArgument("a request chooses it; leave it out", field=chosen)
    key, attaching = options.pop("key", None), {name: options[name] for name in options.keys() - {"kept_s"}}
    visitor = attach(
        session_of_requester(requester),
        receiver=f"asking/{uuid4().hex}",
        reliability=BEST_EFFORT,
        create=False,
        **attaching,
    )
    with contextlib.suppress(NotFound):
        async with visitor:
            if WAITING in (await visitor.wait_attached()).subscriptions:
                beside = RendezvousConsumer(visitor, requester, key, KEPT_S)
                identity = await beside.arrange(owner, path, key=owner_key)
                await visitor.close(forget=True)
                return identity, beside.known
    async with connect_rendezvous(requester, key=key, **options) as meeting:
        return await meeting.arrange(owner, path, key=owner_key), meeting.known


def _understood(received: Received) -> Request | None:
    try:
        return Request.of(received)
    except BadNotification as error:
        log.info("a request for a resource was not understood: %s", error)
        return None


def _now_ms() -> int:
    return round(time.monotonic() * 1_000)
