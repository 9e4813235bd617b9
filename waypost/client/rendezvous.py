"""Rendezvous: resources of a client that may be away, for one that may be away when it answers.

    async with waypost.offer("bob", provide) as offering:       # provide(request) returns bytes
        await offering.serve()

    async with waypost.connect_rendezvous("alice") as meeting:
        await meeting.arrange("bob", "photos/1.jpg")
        async for resource in meeting:
            ...

Why nothing is lost of it: waypost/rendezvous.py. Both sides say what they wait for before anybody speaks to them: an
owner's subscription to requests stays while it is away, and an answer is not published before it is known, at the
owner's proxy, that it is wanted: else it could be ahead of the subscription that it is for.
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
from waypost.errors import BadNotification, NotFound, WaypostError
from waypost.identity import SubscriptionId
from waypost.keys import CONSUMER, NO_KEYS, Key, Keys, raw_key
from waypost.limits import MAX_RESOURCE_BYTES, MAX_TTL_S, MEETING_BYTES
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
"""The id of the one subscription in a session of a rendezvous."""
KEPT_S = 30 * 86_400
"""So long what was asked waits for its owner, and what was answered for who asked, if nothing else is said."""
KNOWN_S = 2.0
"""How long who asks waits to hear of an owner of that name."""
ANSWERED_AT_ONCE = 8
"""Requests that one owner answers at one time, if they came from several; each has its resource in memory."""
WANTED_S = 5.0
"""How long an owner waits until its proxy knows where its answer is to go: longer than a question is ahead of that."""
STALLED_MS = 10 * 60_000
"""A resource of which nothing more came for so long was broken off; its owner begins anew when it is back."""


class _Party:
    """One side of rendezvous: a session with one subscription, by which what is meant for it waits while it is away."""

    def __init__(self, session: Receiver, expression: str, key: bytes | None, kept_s: int) -> None:
        self.session = session
        """To move it, to ask where it is, and so on."""
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

    async def _ask_who_wants(self, names: Iterable[str], keys: Keys) -> None:
        """Be told of everybody who waits for what has these attributes and keys."""
        await self.session.quench(*names, keys=keys, insecure=not keys.keys)


class Offering(_Party):
    """The owner of resources, back and ready to answer. Made by :func:`offer`."""

    def __init__(self, session: Receiver, name: str, provide: Provide, key: bytes | None, kept_s: int) -> None:
        super().__init__(session, requests_to(name), key, kept_s)
        self._provide = provide
        self.answered = 0
        """How many requests were answered so that it is safe."""
        self._answering = False

    async def __aenter__(self) -> Offering:
        await self._enter()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        if self._answering:
            # We are interrupted in it: the request comes again.
            self.session.nack()
        await super().__aexit__(*problem)

    async def serve(self) -> None:
        """Answer what was asked, and what will be, some at one time, until cancelled. Raises what ends the session.

        A request counts as had when its answer is safe, and those of all that were answered with it: if we do not live
        to see that, they come again.
        """
        while True:
            try:
                came = await self.session.next_batch(ANSWERED_AT_ONCE)
            except StopAsyncIteration:
                return
            self._answering = True
            by_key: dict[Key | None, list[Request]] = {}
            for request in filter(None, map(_understood, came)):
                by_key.setdefault(request.key, []).append(request)
            for key, requests in by_key.items():
                await self._answer(requests, NO_KEYS if key is None else Keys(frozenset({key})))
            self._answering = False
            self.answered += len(came)

    async def withdraw(self) -> None:
        """Offer nothing any more: requests do not wait here from now on, and those that do are gone."""
        await self.session.delete()

    async def _answer(self, requests: list[Request], keys: Keys) -> None:
        """Answer these, whose answers go by the same keys: all who asked at one time, each of them in turn."""
        answers = await asyncio.gather(*map(self._parts, requests))
        await self._ask_who_wants({name for parts in answers for name in parts[0]}, keys)
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
    """Who asks for resources, and is given what came; also of what was asked before, by an earlier life.

    A resource counts as had when the next one is asked for, or when the block is left in peace, if no other one is on
    its way just then; else it may come again to a later life of ours, under the same id.
    """

    def __init__(self, session: Receiver, name: str, key: bytes | None, kept_s: int) -> None:
        super().__init__(session, answers_to(name), key, kept_s)
        self._name = name
        self._public = None if key is None else Key("sha256-consumer", CONSUMER, key).public
        self._assembly = Assembly()
        self._came: deque[Resource] = deque()
        self._unsettled = 0
        """Bytes given to us and not acknowledged."""
        self.known = False
        """An owner was heard of to whom the last request went. If not: the request waits for an owner only if it
        offers already, at a proxy that cannot be asked at the moment."""

    async def __aenter__(self) -> RendezvousConsumer:
        await self._enter()
        return self

    async def __aexit__(self, *problem: Any) -> None:
        if problem[0] is None and not self._finish():
            # What we have in part, or were not asked for, comes again.
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
        """Ask that a resource of `owner`, known by its path, be sent to us when it is back; return the rendezvous' id
        once the request is safe. :attr:`known` says whether an owner of that name was heard of.

        Args:
            id: of the rendezvous; asked again under the same id, it is answered once.
            max_bytes: what is larger is refused by its owner.
            key: the owner's public one, by which nobody else can read what is asked.

        Raises:
            Refused: the path or a name is too long.
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
        await self._ask_who_wants(notification, keys)
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
            if self._unsettled >= MEETING_BYTES:
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
        """Say that we have all that was given to us, if we do; tell whether we do."""
        if self._came or self._assembly.holding:
            return False
        self.session.acknowledge()
        self._unsettled = 0
        return True

    def _make_room(self) -> None:
        """Nothing more comes before something is acknowledged: give up one that holds it up."""
        given_up = self._assembly.evict_oldest()
        if given_up is not None:
            self._came.append(given_up)


def offer(name: str, provide: Provide, *, key: bytes | None = None, kept_s: int = KEPT_S, **options: Any) -> Offering:
    """Answer what is asked of the owner `name`: enter it, then :meth:`Offering.serve`.

    From the first time on, what is asked of that owner waits for it while it is away.

    Args:
        provide: given a :class:`Request`, returns the resource at its path, or raises Refused with what the requester
            is told; a function, or a coroutine function. Whether the requester may have it, is its to decide: who knows
            the `key` of a request gets the answer, whoever calls himself so.
        key: a raw one; requests are read then only if they are protected by its public form.
        kept_s: so long a request waits.
        options: of :func:`waypost.attach`.

    Raises:
        Refused: the name is too long.
    """
    function(provide, "provide", "a function that is given a waypost.Request and returns bytes")
    _check_party(name, key, kept_s)
    return Offering(attach(session_of_owner(name), **options), name, provide, key, kept_s)


def connect_rendezvous(
    name: str, *, key: bytes | None = None, kept_s: int = KEPT_S, **options: Any
) -> RendezvousConsumer:
    """Ask for resources as `name`, and be given what came since we were here.

    Args:
        key: a raw one: only who knows it, and so nobody but us, can read what is answered.
        kept_s: so long an answer waits.
        options: of :func:`waypost.attach`.

    Raises:
        Refused: the name is too long.
    """
    _check_party(name, key, kept_s)
    return RendezvousConsumer(attach(session_of_requester(name), **options), name, key, kept_s)


def _check_party(name: str, key: bytes | None, kept_s: int) -> None:
    """Raise BadArgument or LimitExceeded: one of these is not what it should be."""
    whole(kept_s, "kept_s", 1, MAX_TTL_S)
    check_name(name, "name")
    if key is not None:
        raw_key(key, "key")


async def ask(
    requester: str, owner: str, path: str, *, owner_key: bytes | None = None, **options: Any
) -> tuple[str, bool]:
    """Ask as :meth:`RendezvousConsumer.arrange` does, also beside a :class:`RendezvousConsumer` of that name that goes
    on; return the rendezvous' id, and whether an owner of that name was heard of.

    Args:
        owner_key: the owner's public key.
        options: of :func:`connect_rendezvous`.
    """
    check_name(requester, "requester")
    key, attaching = options.pop("key", None), {each: options[each] for each in options.keys() - {"kept_s"}}
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
