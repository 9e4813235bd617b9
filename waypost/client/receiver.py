"""A receiver of a session, the application's view.

    async with waypost.attach("travellers/alice", proxy="ws://127.0.0.1:7311") as receiver:
        await receiver.subscribe('origin == "JFK" && dep_delay > 30')
        async for notification in receiver:
            print(notification["flight"])

A notification is acknowledged when the application asks for the next one, calls :meth:`Receiver.acknowledge`, or leaves
the block without an exception. Unacknowledged notifications - the current one when the block ends by an exception, and
those that the application has not asked for - come again after the next attach with the same `state` or as the same
receiver.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from waypost.access import LEVELS
from waypost.arguments import flag, instance, listed, mapping, seconds, shown, text, whole_or_none
from waypost.client.client import Client, log
from waypost.client.delivery_state import ReceiverState
from waypost.client.events import ClientEvent, RequestKind, RequestResult, SubscriptionResult
from waypost.client.options import ConnectOptions
from waypost.client.protocol import ClientProtocol
from waypost.client.received_notification import Received
from waypost.client.transport import DETACH_S
from waypost.errors import BadArgument, Refused, WaypostError
from waypost.identity import Origin, SubscriptionId
from waypost.keys import CONSUMER, NO_KEYS, Keys, check_keys
from waypost.limits import MAX_COUNT, MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TTL_S
from waypost.messages import Attached, BecameEffective, Deleted, Granted, SubscriptionChanged
from waypost.subscription.errors import NUMBERS
from waypost.subscription.expression import EXPRESSION, parse

MAX_ITEMS = 1 << 31
"""The bound of `max_items`: more than a window ever holds."""


class Receiver(Client):
    """One receiver of a session, made by :func:`waypost.attach`; it may publish, too.

    It follows a session that moves, and drops duplicates. Arguments as of :class:`Client`.
    """

    def __init__(
        self,
        protocol: ClientProtocol,
        options: ConnectOptions,
        timeout_s: float,
        on_event: Callable[[object], None] | None,
    ) -> None:
        super().__init__(protocol, options, timeout_s, on_event)
        self._pending: dict[SubscriptionId, list[asyncio.Future[None]]] = {}
        self._effective: dict[SubscriptionId, dict[Origin, int]] = {}
        self._effective_changed = asyncio.Event()
        self._changing = asyncio.Lock()
        self._pending_requests: dict[RequestKind, asyncio.Future[None]] = {}
        """Requests about the session as a whole that wait for an answer."""
        self.attached: Attached | None = None
        """The proxy's answer to the last attach; None: no attach was answered yet, or none since :meth:`move`."""
        self._began_at = dict(self._protocol.state.frontier)
        """The frontier that the application had when this receiver was made."""
        self.joined = False
        """Whether an attach of this object registered the receiver: it was unknown, or had expired."""

    # ------------------------------------------------------------ life cycle

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._protocol.nack()
        await self.close()

    async def close(self, *, forget: bool = False) -> None:
        """Leave the session: send the owner what the application has, and close the connection. Everything returned so
        far counts as acknowledged.

        Unregistering and leaving have two seconds (DETACH_S) each, at this proxy or at the one that the session has
        moved to. If no proxy answers, the registration stays. If the owner cannot be told what the application has, a
        warning is logged; `state` knows it.

        Args:
            forget: unregister the receiver, too: the session stores nothing for it any more.

        Raises:
            BadArgument: `forget` is no bool.
        """
        flag(forget, "forget")
        self._protocol.flush_acks()
        if forget and not self._transport.over:
            with contextlib.suppress(WaypostError, TimeoutError):
                async with asyncio.timeout(DETACH_S):
                    await self._request(
                        RequestKind.REGISTRATION, self._protocol.forget, "no answer about the receiver's registration"
                    )
        if not await self._leave():
            log.warning(
                "no proxy has heard that session %s was left%s; the next attach may be given again what it had last, "
                "unless it has this one's `state`",
                self._protocol.session,
                self._transport.trouble,
            )
        await self._stop()

    async def _leave(self) -> bool:
        """Send the frontier and the Detach; return False if no owner confirmed them, and there was something to report.

        A session that is handed over just now is served again soon: then its next owner gets them.
        """
        if self._transport.over or dict(self.state.frontier) == self._began_at:
            await self._transport.leave(self._protocol.detach())
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DETACH_S):
                while not self._transport.over:
                    self._ready.clear()
                    if await self._transport.leave(self._protocol.detach()):
                        return True
                    await self._ready.wait()
        return self._transport.over

    async def delete(self) -> None:
        """Delete the session, with all that is stored for any of its receivers, which are told; then close this
        receiver. After an error this receiver stays open.

        A request without an answer stays: it is sent again at each later attach of this receiver, until it is answered.

        Raises:
            Forbidden: the access does not allow it.
            NoAnswer, NoProxy: no answer came within `timeout_s`; the session may be deleted, now or later.
            Refused, Unreachable: the receiver was not entered, or was closed.
            WaypostError: the error that ended the session.
        """
        await self._request(RequestKind.DELETION, self._protocol.delete, "the session was not deleted")
        await self.close()

    async def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        """Replace the session's access: which principals may do what. Returns once it is in force and durable.

        A receiver that loses the right to read is told, and gets nothing from then on. It stays registered: what is
        stored meanwhile comes once it has the right again, unless it is unregistered. One whose password changed has
        to attach with the new one. This receiver keeps its own rights, and uses its own new password by itself.

            await receiver.set_access(password=secret)                                # one password, for everything
            await receiver.set_access({"alice": waypost.grant("owner", password=a),   # `attach(principal="alice")`
                                      "": waypost.grant("user", password="")})       # others only read, without one
            await receiver.set_access()                                               # open to everybody

        Args:
            grants: by principal, made by :func:`grant`; no other principal may do anything. The caller's own principal
                must be among them, with the right to administer. None or empty, without `password`: everybody may do
                everything.
            password: of the empty principal, that is, of clients that name none; it then has every right.

        Raises:
            BadArgument: the grants are of the wrong type.
            Forbidden: the caller may not administer the session.
            Refused: the caller could never change the access again, a principal has no password to keep, another change
                was asked for since, or the receiver was not entered.
            LogUnavailable, StoreFailed: the change could not be written; the access may be in force.
            NoAnswer, NoProxy: no answer came within `timeout_s`; the access may be changed.
            Unreachable: the receiver was closed; the access may be changed.
        """
        chosen = dict(_checked_grants({} if grants is None else grants))
        if password is not None:
            chosen[""] = grant("owner", password=password)
        async with self._changing:
            await self._request(
                RequestKind.ACCESS, lambda: self._protocol.set_access(chosen), "no answer about the access"
            )

    async def _request(self, kind: RequestKind, ask: Callable[[], None], otherwise: str) -> None:
        self._check_open()
        future = self._pending_requests[kind] = asyncio.get_running_loop().create_future()
        ask()
        self._transport.flush_soon()
        try:
            await self._within(lambda: asyncio.shield(future), otherwise)
        finally:
            if self._pending_requests.get(kind) is future:
                del self._pending_requests[kind]

    def _awaited(self) -> list[asyncio.Future[Any]]:
        subscribing = [future for waiting in self._pending.values() for future in waiting]
        return [*super()._awaited(), *subscribing, *self._pending_requests.values()]

    # ------------------------------------------------------------ receiving

    def __aiter__(self) -> AsyncIterator[Received]:
        return self

    async def __anext__(self) -> Received:
        (received,) = await self.next_batch(1)
        return received

    async def batches(self) -> AsyncIterator[list[Received]]:
        """Yield batches of the notifications that have arrived; asking for the next batch acknowledges the one before.

        A batch has one notification or more; the iteration waits for it. It ends when this receiver was closed.

        Raises:
            Refused: the receiver was not entered.
            WaypostError: the error that ended the session.
        """
        while True:
            try:
                yield await self.next_batch()
            except StopAsyncIteration:
                return

    async def next_batch(self, max_items: int | None = None, *, manual_ack: bool = False) -> list[Received]:
        """Wait for notifications, and return those that have arrived, one or more; acknowledge those returned before.

        Args:
            max_items: the most notifications to return, from 1; None: no bound.
            manual_ack: do not acknowledge those returned before. What acknowledges them is :meth:`acknowledge`,
                `wait_attested`, `close`, the end of the block without an exception, or a later call without
                `manual_ack`. What is not acknowledged comes again after the next attach, and the proxy sends no more
                than the window beyond the last acknowledgement.

        Raises:
            BadArgument: an argument is of the wrong type or out of range.
            Refused: the receiver was not entered.
            StopAsyncIteration: this receiver was closed, or has deleted the session, and nothing that has arrived is
                left.
            WaypostError: the error that ended the session.
        """
        whole_or_none(max_items, "max_items", 1, MAX_ITEMS)
        flag(manual_ack, "manual_ack")
        self._check_entered()
        while True:
            if self._failure is not None:
                raise self._failure
            items = self._protocol.next_items(max_items, manual_ack=manual_ack)
            self._transport.flush_soon()
            if items:
                return [Received.of(item) for item in items]
            if self._transport.over:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()

    def acknowledge(self) -> None:
        """Acknowledge every notification returned so far, and do not wait for an answer. Asking for the next one does
        that, too, unless with `manual_ack`.
        """
        self._protocol.acknowledge()
        self._transport.flush_soon()

    def nack(self) -> None:
        """Give back the notifications returned since the last acknowledgement: :meth:`next_batch` returns them again.

        Nothing is sent to the proxy. Those acknowledged before stay acknowledged.
        """
        self._protocol.nack()

    @property
    def state(self) -> ReceiverState:
        """The receiver's position in its session, for a later :func:`waypost.attach`. The object changes in place until
        the receiver is closed.
        """
        return self._protocol.state

    @property
    def duplicates_dropped(self) -> int:
        """The number of notifications that came again and were dropped."""
        return self._protocol.duplicates_dropped

    async def wait_attested(self, timeout_s: float = 5) -> bool:
        """Acknowledge everything returned so far, and wait until a journal has the receiver's report (attestation) of
        all of it.

        Args:
            timeout_s: the longest wait, in seconds.

        Returns:
            Whether the journal has all attestations; False: the time is over.

        Raises:
            BadArgument: `timeout_s` is no time.
        """
        seconds(timeout_s)
        self.acknowledge()
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
        """Add a subscription; return its id once it is durable. For an id that exists, change its policy and its keys.

        For notifications of other sites the subscription becomes effective later: see :meth:`effective` and
        :meth:`wait_effective`. Have one call of :meth:`subscribe` or :meth:`unsubscribe` under way for an id at a time:
        a second one replaces the request of the first, and both return the outcome of the second. A request without an
        answer is sent again at each later attach of this receiver, until it is answered.

        Args:
            expression: in the subscription language (docs of :mod:`waypost.subscription`).
            id: of the subscription within the session; None: the expression itself, or a digest of a long one.
            ttl_s: keep a matching notification for so many seconds only; None: until all receivers have it.
            max_count: keep only so many of the newest matching notifications; None: all.
            keys: security keys, beside those of :meth:`set_keys`. A change of them takes effect between two
                notifications of every origin.
            insecure: accept also notifications whose keys do not meet these, if their producers allow that.

        Raises:
            SubscriptionError: the expression is not valid; `offset` says where.
            Refused: an argument is not acceptable, the session has another expression under this id, a limit or the
                access does not allow it, or the receiver was not entered; `code` and `field` say why.
            LogUnavailable, StoreFailed: the subscription could not be written. It may be in force all the same, until a
                proxy that reads the written state serves the session: subscribe again under its id, or unsubscribe.
            Unreachable: no answer came within the `timeout_s` of :func:`waypost.attach`, or before the receiver was
                closed; the subscription may be in force, now or later.
            WaypostError: the error that ended the session.
        """
        text(expression, "expression", 1, such_as=EXPRESSION)
        identity = SubscriptionId(_short(expression) if id is None else _checked_id(id, "id"))
        whole_or_none(ttl_s, "ttl_s", 1, MAX_TTL_S)
        whole_or_none(max_count, "max_count", 1, MAX_COUNT)
        check_keys(keys)
        flag(insecure, "insecure")
        key_list = keys.listed(CONSUMER)
        try:
            await self._ask(
                identity,
                lambda: self._protocol.subscribe(identity, expression, ttl_s, max_count, key_list, insecure=insecure),
            )
        except Refused as error:
            if error.code in NUMBERS:
                # The proxy says what is wrong, and not where.
                parse(expression)
            raise
        return identity

    async def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        """Replace the keys that go with everything this receiver does. See :class:`waypost.Keys`.

        Args:
            subscribing: with every subscription of this receiver in the session, present and future; they belong to its
                registration, wherever the session goes. Returns once they are in force and durable. None: unchanged.
            publishing: with every later notification that this client publishes. None: unchanged. They are replaced
                first, and stay so if `subscribing` is refused.

        Raises:
            BadArgument: these are no keys; nothing is changed.
            Refused: there are too many keys, the session would have too many subscriptions or too large ones
                (LimitExceeded), or was deleted (SessionDeleted), or the receiver was not entered, which only
                `subscribing` needs. The keys of subscriptions are unchanged.
            Forbidden: the receiver may not subscribe.
            LogUnavailable, StoreFailed: the change could not be written; the keys may be in force.
            NoAnswer, NoProxy: no answer came within `timeout_s`; the keys may be changed, now or later, as the request
                is sent again at each later attach.
            Unreachable: the receiver was closed; the keys may be changed.
            WaypostError: the error that ended the session.
        """
        for field, keys in (("subscribing", subscribing), ("publishing", publishing)):
            if keys is not None:
                check_keys(keys, field)
        if publishing is not None:
            await self.publish_with(publishing)
        if subscribing is not None:
            key_list = subscribing.listed(CONSUMER)
            async with self._changing:
                await self._request(
                    RequestKind.KEYS, lambda: self._protocol.set_keys(key_list), "no answer about the keys"
                )

    async def unsubscribe(self, subscription: str) -> None:
        """End a subscription, and return once it is known where it ends.

        Every matching notification that was acknowledged to its producer before the call is still delivered, also after
        the call has returned. What is published after that is not. The call waits 5 s at most for a site to say how far
        its log goes. Of a site that did not say so in time, what has arrived by then is delivered; while the session's
        owner is catching up with that site, so is what is published there later. Have one call of :meth:`subscribe` or
        :meth:`unsubscribe` under way for an id at a time: both get the outcome of the later one.

        Args:
            subscription: its id. One that the session does not know has ended already, and nothing is changed: so the
                same may be asked twice.

        Raises:
            Refused: the id is not valid, the receiver may not change subscriptions, or it was not entered.
            LogUnavailable, StoreFailed: the end could not be written; the subscription may have ended.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; the subscription may have ended,
                or ends later, as the request is sent again at each later attach.
            WaypostError: the error that ended the session.
        """
        identity = SubscriptionId(_checked_id(subscription, "subscription"))
        await self._ask(identity, lambda: self._protocol.unsubscribe(identity))
        # A later subscription of this id has promises of its own.
        self._effective.pop(identity, None)

    async def _ask(self, identity: SubscriptionId, ask: Callable[[], None]) -> None:
        self._check_open()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._pending.setdefault(identity, [])
        waiting.append(future)
        ask()
        self._transport.flush_soon()
        try:
            await self._within(lambda: asyncio.shield(future), f"no answer about subscription {identity}")
        finally:
            waiting.remove(future)
            if not waiting:
                del self._pending[identity]

    def effective(self, subscription: str) -> Mapping[Origin, int]:
        """Return the offsets, by origin, above which the subscription is promised to be complete.

        An origin that is missing has no promise yet. After each attach all are missing until the proxy has stated its
        promises again. Note that the mapping is live until the next attach: copy it to keep it.

        Args:
            subscription: its id; an unknown one has no promises.

        Raises:
            BadArgument: the id is no id.
        """
        return self._effective.get(SubscriptionId(_checked_id(subscription, "subscription")), {})

    async def wait_effective(self, subscription: str, origins: Sequence[str]) -> None:
        """Wait until the subscription is effective for all these origins.

        Args:
            subscription: its id; one that nobody has subscribed is waited for too, as another receiver may do so.
            origins: such as ``B/0``: the site and the number of its log's partition.

        Raises:
            BadArgument: the id is no id, the origins are no list of texts, or one of them has no slash.
            NoAnswer, NoProxy: it did not become effective within the `timeout_s` of :func:`waypost.attach`.
            Refused: the receiver was not entered.
            Unreachable: the receiver is closed.
            WaypostError: the error that ended the session.
        """
        _checked_id(subscription, "subscription")
        origins = listed(origins, "origins", "a list of origins, such as ['A/0']")
        for origin in origins:
            text(origin, "origins", 1, such_as="origins, each a text such as 'A/0'")
            if "/" not in origin:
                raise BadArgument(f"{origin!r} is no origin; that of site {origin} is '{origin}/0'", field="origins")

        async def wait() -> None:
            while not set(origins) <= set(self.effective(subscription)) and not self._has_ended:
                self._effective_changed.clear()
                await self._effective_changed.wait()

        def late() -> str:
            missing = [origin for origin in origins if origin not in self.effective(subscription)]
            where = ", ".join(missing)
            return f"subscription {subscription} of this session, if there is one, did not become effective for {where}"

        await self._within(wait, late)
        self._check_open()

    # ------------------------------------------------------------ where it is served

    async def move(self, url: str) -> None:
        """Attach at the proxy at `url` from now on; the session is handed over to it.

        It returns at once. Where that proxy cannot be reached, or is of another federation, the client goes on at the
        other addresses that it knows: :meth:`wait_attached` says which proxy it came to. :attr:`attached` is None until
        then.

        Raises:
            Refused: `url` is no ``ws://`` or ``wss://`` address, or the receiver was not entered.
            Unreachable: this client is closed.
            WaypostError: the error that ended the session.
        """
        await super().move(url)
        self.attached = None

    async def wait_attached(self) -> Attached:
        """Wait until a proxy serves the session to this receiver; return its answer to the attach. At once, if it is
        attached.

        Raises:
            NoAnswer, NoProxy: that took longer than the `timeout_s` of :func:`waypost.attach`.
            Refused: the receiver was not entered.
            Unreachable: this receiver is closed.
            WaypostError: the error that ended the session.
        """
        await self._within(self._ready.wait, "the session could not be attached")
        self._check_open()
        assert self.attached is not None
        return self.attached

    def _received_of_session(self, event: ClientEvent) -> None:
        match event:
            case SubscriptionResult():
                for future in self._pending.get(event.subscription, ()):
                    if not future.done():
                        future.set_exception(event.error) if event.error else future.set_result(None)
            case RequestResult():
                self._resolve(event.kind, event.error)
            case Attached():
                self.attached = event
                self.joined = self.joined or event.joined
                # The proxy states its promises next; an id may mean another subscription than at the last attach.
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

    def _resolve(self, kind: RequestKind, error: WaypostError | None) -> None:
        future = self._pending_requests.get(kind)
        if future is not None and not future.done():
            future.set_exception(error) if error else future.set_result(None)

    def _events(self) -> list[asyncio.Event]:
        return [*super()._events(), self._effective_changed]


def _checked_id(identity: object, field: str) -> str:
    """Return the id of a subscription. Raises BadArgument: it is not valid."""
    return text(identity, field, 1, MAX_ID_LENGTH, such_as="the id of a subscription, a text")


def _checked_grants(grants: object) -> Mapping[str, Granted]:
    """Return the grants. Raises BadArgument: they are no mapping from principals to Granted."""
    instead = "a dict of principals, such as {'alice': waypost.grant('owner')}"
    found = mapping(grants, "grants", instead)
    for principal, granted in found.items():
        text(principal, "grants", 0, MAX_ID_LENGTH, such_as="principals, each a text")
        instance(granted, "grants", Granted, "what waypost.grant(...) returns")
    return found


def _short(expression: str) -> SubscriptionId:
    """Return the default id of a subscription: its expression, or a digest of a long one."""
    if len(expression) <= MAX_ID_LENGTH:
        return SubscriptionId(expression)
    return SubscriptionId("sha256:" + hashlib.sha256(expression.encode()).hexdigest())


def grant(*rights: str, password: str | None = None, by_token: bool = False) -> Granted:
    """Return the rights of one principal, for :meth:`Receiver.set_access`.

    Args:
        rights: ``read``, ``subscribe``, ``administer``; or a level: ``user`` reads, ``admin`` subscribes too, ``owner``
            may do everything. At least one.
        password: proves the principal; "": the name alone is enough; None: the principal's present password stays.
        by_token: only a token proves the principal, no password does.

    Raises:
        BadArgument: a right is unknown, none is named, or `password` or `by_token` is of the wrong type.
    """
    known = (*LEVELS["owner"], *LEVELS)
    unknown = [right for right in rights if not isinstance(right, str) or right not in known]
    if unknown or not rights:
        subject = shown(unknown[0]) if unknown else "nothing"
        raise BadArgument(f"{subject} is no right; there are {', '.join(known)}", field="rights")
    if password is not None:
        text(password, "password", 0, MAX_PASSWORD_LENGTH)
    flag(by_token, "by_token")
    wanted = {right for name in rights for right in LEVELS.get(name, (name,))}
    return Granted([right for right in LEVELS["owner"] if right in wanted], password, by_token)
