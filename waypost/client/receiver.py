"""A receiver of a session, as an application has it.

    async with waypost.attach("travellers/alice", proxy="ws://127.0.0.1:7311") as receiver:
        await receiver.subscribe('origin == "JFK" && dep_delay > 30')
        async for notification in receiver:
            print(notification["flight"])

A notification is acknowledged when the application asks for the next one, says :meth:`Receiver.acknowledge`, or leaves
the block in peace. What was not acknowledged - the one in hand when the block ends by an exception, what was not
asked for yet - comes again to the next attach with the same `state` or the same receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from waypost.access import LEVELS
from waypost.arguments import flag, instance, listed, mapping, seconds, shown, text, whole_or_none
from waypost.client.client import Client, log
from waypost.client.delivery_state import ReceiverState
from waypost.client.events import ClientEvent, Outcome, RequestKind, RequestResult
from waypost.client.machine import ClientMachine
from waypost.client.received_notification import Received
from waypost.client.transport import FAREWELL_S, Finder, check_address
from waypost.errors import BadArgument, WaypostError
from waypost.identity import Origin, SubscriptionId
from waypost.keys import NO_KEYS, Keys, check_keys
from waypost.limits import MAX_COUNT, MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TTL_S
from waypost.messages import Attached, BecameEffective, Deleted, Granted, SubscriptionChanged
from waypost.subscription.expression import EXPRESSION

MAX_ITEMS = 1 << 31
"""More than a window ever has."""


class Receiver(Client):
    """One receiver of a session, made by :func:`attach`; it may publish, too.

    It follows a session that moves, and drops what comes twice. Arguments as of :class:`Client`.
    """

    def __init__(
        self,
        machine: ClientMachine,
        addresses: Sequence[str] | None,
        find: Finder | None,
        timeout_s: float,
        on_event: Callable[[object], None] | None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(machine, addresses, find, timeout_s, on_event, tls)
        self._pending: dict[SubscriptionId, asyncio.Future[None]] = {}
        self._effective: dict[SubscriptionId, dict[Origin, int]] = {}
        self._effective_changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._pending_requests: dict[RequestKind, asyncio.Future[None]] = {}
        """Who waits for a change of the access, or for the deletion."""
        self.attached: Attached | None = None
        """What the proxy said at the last attach."""
        self._began_at = dict(self._machine.state.frontier)
        """What the application had when this began."""
        self.joined = False
        """This receiver was given a place, at this attach or an earlier one here: it had none, or had lost it."""

    # ------------------------------------------------------------ life

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._machine.nack()
        await self.close()

    async def close(self, *, forget: bool = False) -> None:
        """Leave. With `forget` the receiver gives up its place, and the session keeps nothing for it.

        Each is tried for two seconds, here or where the session has gone; if nobody answers, the place stays. Where no
        proxy that serves the session hears that we leave, none knows what we had last either: a warning says so, and
        `state` has it.
        """
        flag(forget, "forget")
        self._machine.flush_acks()
        if forget and not self._transport.over:
            with contextlib.suppress(WaypostError, TimeoutError):
                async with asyncio.timeout(FAREWELL_S):
                    await self._request(
                        RequestKind.REGISTRATION, self._machine.forget, "no answer about the receiver's place"
                    )
        if not await self._leave():
            log.warning(
                "no proxy has heard that session %s was left%s; the next attach may be given again what it had last, "
                "unless it has this one's `state`",
                self._machine.session,
                self._transport.trouble,
            )
        await self._stop()

    async def _leave(self) -> bool:
        """Say what we have and that we leave; False: no proxy heard it, and there was something to say.

        A session that changes hands at this moment is served again soon, and whoever serves it then is told.
        """
        if self._transport.over or dict(self.state.frontier) == self._began_at:
            await self._transport.leave(self._machine.detach())
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_S):
                while not self._transport.over:
                    self._ready.clear()
                    if await self._transport.leave(self._machine.detach()):
                        return True
                    await self._ready.wait()
        return self._transport.over

    async def delete(self) -> None:
        """Delete the session, with all that is stored for any receiver of it; they are told. This one has left then."""
        await self._request(RequestKind.DELETION, self._machine.delete, "the session was not deleted")
        await self.close()

    async def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        """Change who may do what with the session; returns once that is in force, and would survive its proxy.

        Who loses the right to read is told, and gets nothing from then on; who has another password now has to say it.
        This session keeps what it may do, and goes on under its own new password by itself.

            await receiver.set_access(password=secret)                                # one password, for everything
            await receiver.set_access({"alice": waypost.grant("owner", password=a),   # `attach(principal="alice")`
                                      "": waypost.grant("user", password="")})       # others only read, without one
            await receiver.set_access()                                               # open to everybody

        Args:
            grants: by principal; nobody else may do anything. Whoever asks must be among them, and administer.
            password: the one that everybody has to say who names no principal, and may do everything then.

        Raises:
            Forbidden: we may not change it.
            Refused: we could never change it again, or a principal has no password that it could keep.
        """
        chosen = dict(_checked_grants({} if grants is None else grants))
        if password is not None:
            chosen[""] = grant("owner", password=password)
        async with self._changing:
            await self._request(
                RequestKind.ACCESS, lambda: self._machine.set_access(chosen), "no answer about the access"
            )

    async def _request(self, what: RequestKind, ask: Callable[[], None], otherwise: str) -> None:
        future = self._pending_requests[what] = asyncio.get_running_loop().create_future()
        ask()
        self._transport.flush_soon()
        try:
            await self._within(lambda: asyncio.shield(future), otherwise)
        finally:
            if self._pending_requests.get(what) is future:
                del self._pending_requests[what]

    def _awaited(self) -> list[asyncio.Future[Any]]:
        return [*super()._awaited(), *self._pending.values(), *self._pending_requests.values()]

    # ------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        (received,) = await self.next_batch(1)
        return received

    async def batches(self) -> AsyncIterator[list[Received]]:
        """Yield what is there, a list at a time; a list is acknowledged when the next one is asked for."""
        while True:
            try:
                yield await self.next_batch()
            except StopAsyncIteration:
                return

    async def next_batch(self, max_items: int | None = None, *, manual_ack: bool = False) -> list[Received]:
        """Return what is there, waiting for something; what was given before is acknowledged.

        Args:
            max_items: so many at most.
            manual_ack: what was given before is not acknowledged, but by :meth:`acknowledge`: until then it comes
                again to the next attach. The proxy sends no more than the window of :func:`attach` ahead of that.

        Raises:
            StopAsyncIteration: the session was left.
        """
        whole_or_none(max_items, "max_items", 1, MAX_ITEMS)
        flag(manual_ack, "manual_ack")
        self._check_entered()
        while True:
            if self._failure is not None:
                raise self._failure
            taken = self._machine.next_items(max_items, manual_ack=manual_ack)
            self._transport.flush_soon()
            if taken:
                return [Received.of(each) for each in taken]
            if self._transport.over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def acknowledge(self) -> None:
        """Say that the application has all that it was given so far; asking for the next one says it too."""
        self._machine.acknowledge()
        self._transport.flush_soon()

    def nack(self) -> None:
        """Say that the application does not have what it was given since it last said so: that comes again."""
        self._machine.nack()

    @property
    def state(self) -> ReceiverState:
        """The receiver's place; give it to a later :func:`attach`."""
        return self._machine.state

    @property
    def duplicates_dropped(self) -> int:
        """So many notifications came again and were dropped."""
        return self._machine.duplicates_dropped

    async def wait_attested(self, timeout_s: float = 5) -> bool:
        """Wait until a journal has all that the application was given; tell whether it has."""
        seconds(timeout_s)
        self._machine.flush_acks()
        self._transport.flush_soon()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.state.unconfirmed:
                    await asyncio.sleep(0.01)
        return not self.state.unconfirmed

    # ------------------------------------------------------------ subscribing

    async def subscribe(
        self,
        expression: str,
        *,
        id: str | None = None,
        ttl_s: int | None = None,
        max_count: int | None = None,
        keys: Keys = NO_KEYS,
        insecure: bool = True,
    ) -> SubscriptionId:
        """Add a subscription; return its id once it is durable. Under the id of one that is there, change its policy
        and its keys.

        From when on it is effective for notifications of other sites comes later: :meth:`effective`.

        Args:
            ttl_s: keep what it matches for so many seconds only; None: until all receivers have it.
            max_count: keep the newest so many only; None: all.
            keys: beside those of :meth:`set_keys`. They change exactly between two notifications of every origin.
            insecure: take also what comes where no keys meet.

        Raises:
            Refused: the expression or the id is not acceptable; `code` and `field` say why.
            LogUnavailable, StoreFailed: it could not be written. It may be in force all the same, until somebody who
                reads what was written serves the session: ask for it again under its id, or end it.
            Unreachable: nobody has answered in time; it may be in force.
        """
        text(expression, "expression", such_as=EXPRESSION)
        identity = SubscriptionId(_short(expression) if id is None else _checked_id(id, "id"))
        whole_or_none(ttl_s, "ttl_s", 1, MAX_TTL_S)
        whole_or_none(max_count, "max_count", 1, MAX_COUNT)
        check_keys(keys)
        flag(insecure, "insecure")
        said = keys.listed()
        await self._ask(
            identity,
            lambda: self._machine.subscribe(identity, expression, ttl_s, max_count, said, insecure=insecure),
        )
        return identity

    async def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        """Change the keys that go with all that is done here; those said before go. See :class:`waypost.Keys`.

        Args:
            subscribing: with every subscription that this receiver made in the session, or makes; they stay with its
                place, wherever the session goes. Returns once that is in force, and would survive the proxy.
            publishing: with all that is published from here on.

        Raises:
            Forbidden: we may not subscribe.
        """
        for field, keys in (("subscribing", subscribing), ("publishing", publishing)):
            if keys is not None:
                check_keys(keys, field)
        if publishing is not None:
            await self.publish_with(publishing)
        if subscribing is not None:
            said = subscribing.listed()
            async with self._changing:
                await self._request(RequestKind.KEYS, lambda: self._machine.set_keys(said), "no answer about the keys")

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription.

        All that matches it and was acknowledged to its producer before is still delivered, after this returns too. So
        may be what is published after this, until the session's owner has learnt how far the logs went: some
        milliseconds as a rule. Where the owner is paused or dies just then, that is until it or another one serves the
        session again: a lease and some seconds. Of a site that the owner cannot reach for 5 s, only what has come from
        there is delivered.

        Args:
            subscription: its id.

        Raises:
            Refused: the id is none, or the receiver may not change subscriptions.
            LogUnavailable, StoreFailed: it could not be written that it has ended; it may have.
            Unreachable: nobody has answered in time; it may have ended.
        """
        identity = SubscriptionId(_checked_id(subscription, "subscription"))
        await self._ask(identity, lambda: self._machine.unsubscribe(identity))
        # The next one of this name is promised anew.
        self._effective.pop(identity, None)

    async def _ask(self, identity: SubscriptionId, ask: Callable[[], None]) -> None:
        future = self._pending.setdefault(identity, asyncio.get_running_loop().create_future())
        ask()
        self._transport.flush_soon()
        try:
            await self._within(lambda: asyncio.shield(future), f"no answer about subscription {identity}")
        finally:
            self._pending.pop(identity, None)

    def effective(self, subscription: str) -> Mapping[Origin, int]:
        """Return from above which offsets, by origin, the subscription is promised to be complete."""
        return self._effective.get(SubscriptionId(_checked_id(subscription, "subscription")), {})

    async def wait_effective(self, subscription: str, origins: Sequence[str]) -> None:
        """Wait until the subscription is effective for these origins, such as ``B/0``."""
        _checked_id(subscription, "subscription")
        origins = listed(origins, "origins", "a list of origins, such as ['A/0']")
        for origin in origins:
            text(origin, "origins", 1, such_as="origins, each a text such as 'A/0'")

        async def wait() -> None:
            while not set(origins) <= set(self.effective(subscription)) and self._failure is None:
                self._effective_changed.clear()
                await self._effective_changed.wait()

        await self._within(wait, f"{subscription} did not become effective for {', '.join(origins)}")

    # ------------------------------------------------------------ where it is served

    async def move(self, url: str) -> None:
        """Attach at another proxy from now on; the session follows."""
        check_address(url)
        self.attached = None
        await super().move(url)

    async def wait_attached(self) -> Attached:
        """Wait until the session is served to us, wherever that is."""
        await self._within(self._ready.wait, "the session could not be attached")
        assert self.attached is not None
        return self.attached

    def _received_of_session(self, event: ClientEvent) -> None:
        match event:
            case Outcome():
                future = self._pending.get(event.subscription)
                if future is not None and not future.done():
                    future.set_exception(event.error) if event.error else future.set_result(None)
            case RequestResult():
                self._resolve(event.kind, event.error)
            case Attached():
                self.attached = event
                self.joined = self.joined or event.joined
                # What is promised now is said next; a name may mean another subscription than when we were here last.
                self._effective.clear()
                self._ready.set()
            case SubscriptionChanged(settings=None):
                self._effective.pop(event.subscription, None)
            case BecameEffective():
                self._effective.setdefault(event.subscription, {}).update(event.above)
                self._effective_changed.set()
            case Deleted():
                self._transport.stop()
                self._resolve(RequestKind.DELETION, None)
                self._news.set()
            case _:
                pass

    def _resolve(self, what: RequestKind, error: WaypostError | None) -> None:
        future = self._pending_requests.get(what)
        if future is not None and not future.done():
            future.set_exception(error) if error else future.set_result(None)

    def _refused(self, error: WaypostError) -> None:
        super()._refused(error)
        self._effective_changed.set()


def _checked_id(identity: object, field: str) -> str:
    """Return the id of a subscription. Raises BadArgument: it is none."""
    return text(identity, field, 1, MAX_ID_LENGTH, such_as="the id of a subscription, a text")


def _checked_grants(grants: object) -> Mapping[str, Granted]:
    """Return the grants. Raises BadArgument: they are none."""
    instead = "a dict of principals, such as {'alice': waypost.grant('owner')}"
    found = mapping(grants, "grants", instead)
    for principal, granted in found.items():
        text(principal, "grants", 0, MAX_ID_LENGTH, such_as="principals, each a text")
        instance(granted, "grants", Granted, "what waypost.grant(...) returns")
    return found


def _short(expression: str) -> SubscriptionId:
    """Return the id of a subscription that was given none: its expression, or a digest of a long one."""
    if len(expression) <= MAX_ID_LENGTH:
        return SubscriptionId(expression)
    return SubscriptionId("sha256:" + hashlib.sha256(expression.encode()).hexdigest())


def grant(*rights: str, password: str | None = None, by_token: bool = False) -> Granted:
    """Return what a principal is allowed, for :meth:`Receiver.set_access`.

    Args:
        rights: ``read``, ``subscribe``, ``administer``; or a level: ``user`` reads, ``admin`` subscribes too, ``owner``
            may do everything.
        password: the one that proves the principal; "": its name is enough; None: the one that it has.
        by_token: no password proves the principal, only a token does.

    Raises:
        Refused: there is no such right.
    """
    known = (*LEVELS["owner"], *LEVELS)
    unknown = [each for each in rights if not isinstance(each, str) or each not in known]
    if unknown or not rights:
        what = shown(unknown[0]) if unknown else "nothing"
        raise BadArgument(f"{what} is no right; there are {', '.join(known)}", field="rights")
    if password is not None:
        text(password, "password", 0, MAX_PASSWORD_LENGTH)
    flag(by_token, "by_token")
    wanted = {right for each in rights for right in LEVELS.get(each, (each,))}
    return Granted([right for right in LEVELS["owner"] if right in wanted], password, by_token)
