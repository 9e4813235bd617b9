"""The blocking facade: receivers, producers and outboxes for code without an event loop.

    with waypost.blocking.attach("travellers/alice") as receiver:
        receiver.subscribe('origin == "JFK"')
        for notification in receiver:
            ...

Each of them has a background thread with an event loop, which ends with the block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from waypost.arguments import flag, seconds
from waypost.client import entry
from waypost.client import outbox as asynchronous_outbox
from waypost.client import producer as asynchronous_producer
from waypost.client import receiver as asynchronous_receiver
from waypost.client.client import MAKE_ANOTHER, Client
from waypost.client.delivery_state import ReceiverState
from waypost.client.outbox_file import RefusedNotification
from waypost.client.received_notification import Received
from waypost.errors import Refused, Unreachable
from waypost.identity import Coordinate, Origin, SubscriptionId
from waypost.keys import NO_KEYS, Keys
from waypost.messages import Granted
from waypost.notification import Value

_T = TypeVar("_T")
_C = TypeVar("_C", bound="Client | asynchronous_outbox.Outbox")
_P = TypeVar("_P", bound=Client)
_Self = TypeVar("_Self", bound="_Blocking[Any]")
SHUTDOWN_GRACE_S = 1.0
"""How long pending calls have to receive their error when the client ends, in seconds; then they are cancelled."""


class SessionClosed(Unreachable):
    """A method was called after the client was closed."""

    code = "SESSION_CLOSED"
    definite = True


class _Blocking(Generic[_C]):
    """A client with a thread and an event loop of its own. All methods may be called from any thread."""

    def __init__(self, make: Callable[..., _C], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._ending = threading.Lock()
        """Held by the thread that ends the client; a second one finds the loop closed."""
        self._handing = threading.Lock()
        """Held while a coroutine is handed to the loop, and when the last one was: what it accepted is also run."""
        self._has_ended = False
        self._was_entered = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="waypost", daemon=True)
        self._thread.start()
        try:
            self._client: _C = self._call(_make(make, arguments, options))
        except BaseException:
            self._end()
            raise

    def _call(self, coroutine: Coroutine[Any, Any, _T], timeout_s: float | None = None) -> _T:
        with self._handing:
            if self._has_ended:
                coroutine.close()
                raise SessionClosed("the session was closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def __enter__(self: _Self) -> _Self:
        if self._was_entered:
            # The client that is open goes on.
            raise Refused("it was entered before", hint=MAKE_ANOTHER)
        self._was_entered = True
        try:
            self._call(self._client.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *problem: Any) -> None:
        self._leave(lambda: self._client.__aexit__(*problem))

    def close(self) -> None:
        """Disconnect in order, as `close` of the asynchronous client does, and end the background thread; block until
        that is done.

        Calls that still wait in other threads fail with Unreachable. A second call has no effect.
        """
        self._leave(self._client.close)

    def _leave(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the last coroutine and end the thread; a second thread that leaves finds nothing left to do."""
        with self._ending:
            if not self._has_ended:
                try:
                    self._call(last())
                finally:
                    self._end()

    def _end(self) -> None:
        """End the thread, and fail every pending call."""
        with self._handing:
            self._has_ended = True
        # In its own thread: another loop may run in this one, as in a notebook.
        asyncio.run_coroutine_threadsafe(_wait_for_waiters(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Publishing(_Blocking[_P]):
    """A client that publishes."""

    def quench(self, *names: str, keys: Keys = NO_KEYS, insecure: bool = True) -> None:
        """Ask for interest in these attributes, as :meth:`waypost.Producer.quench`; return when the proxy has sent all
        that it knows.

        Args:
            names: of all attributes that are going to be published; none: interest is not asked for any more.
            keys: the security keys that will be published with, beside those of :meth:`publish_with`.
            insecure: the value of `insecure` that will be published with.

        Raises:
            Refused: a name or the keys are not valid.
            Unreachable: the interest was not known within `timeout_s`, or the client is closed.
        """
        self._call(self._client.quench(*names, keys=keys, insecure=insecure))

    def wanted(self, notification: Mapping[str, Value]) -> bool:
        """Tell whether a subscription may match the notification, as :meth:`waypost.Producer.wanted`.

        False: no subscription known by :meth:`quench` matches it. True without quench, before all interest is known,
        and for an attribute that was not named. Raises BadNotification: an attribute or the size is not allowed.
        """
        return self._client.wanted(notification)

    @property
    def terms(self) -> frozenset[str]:
        """The interest known by :meth:`quench`, as expressions: alternatives of subscriptions; empty without quench."""
        return self._client.terms

    def publish(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> Coordinate:
        """Publish a notification; return its coordinate once it is durable, as :meth:`waypost.Producer.publish`,
        without a time limit.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification, beside those of :meth:`publish_with`.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            Refused: an argument is not valid, the client was not entered, or the proxy refused the notification.
            Unreachable: the client was closed, maybe before an answer came; then the notification may be durable.
        """
        return self._call(self._client.publish(notification, keys=keys, insecure=insecure))

    def publish_with(self, keys: Keys) -> None:
        """Set the keys that go with every later notification, in place of those set before
        (:meth:`waypost.Producer.publish_with`).

        Raises:
            Refused: these are no keys, or too many.
            SessionClosed: the client was closed.
        """
        self._call(self._client.publish_with(keys))


class Receiver(_Publishing[asynchronous_receiver.Receiver]):
    """A blocking :class:`waypost.Receiver`. Its methods may be called from any thread."""

    def __iter__(self) -> Iterator[Received]:
        while True:
            received = self.next()
            if received is None:
                return
            yield received

    def next(self, timeout_s: float | None = None) -> Received | None:
        """Return the next notification, and acknowledge the one before; None: this receiver was closed.

        Args:
            timeout_s: the longest wait, in seconds; None: without a limit.

        Raises:
            BadArgument: `timeout_s` is no time.
            Refused: the receiver was not entered.
            TimeoutError: no notification came within `timeout_s`.
            WaypostError: the error that ended the session.
        """
        if timeout_s is not None:
            seconds(timeout_s)

        async def step() -> Received | None:
            try:
                async with asyncio.timeout(timeout_s):
                    return await self._client.__anext__()
            except StopAsyncIteration:
                return None
            except TimeoutError:
                if timeout_s is None:
                    raise
                raise TimeoutError(f"nothing came within {timeout_s:g} s") from None

        with contextlib.suppress(SessionClosed):
            return self._call(step())
        return None

    def subscribe(
        self,
        expression: str,
        *,
        id: str | None = None,
        ttl_s: int | None = None,
        max_count: int | None = None,
        keys: Keys = NO_KEYS,
        insecure: bool = True,
    ) -> SubscriptionId:
        """Add a subscription; return its id once it is durable, as :meth:`waypost.Receiver.subscribe`. For an id that
        exists, change its policy and its keys.

        Args:
            expression: in the subscription language (docs of :mod:`waypost.subscription`).
            id: of the subscription within the session; None: the expression itself, or a digest of a long one.
            ttl_s: keep a matching notification for so many seconds only; None: until all receivers have it.
            max_count: keep only so many of the newest matching notifications; None: all.
            keys: security keys, beside those of :meth:`set_keys`.
            insecure: accept also notifications whose keys do not meet these, if their producers allow that.

        Raises:
            Refused: the subscription is not acceptable; `code` and `field` say why.
            LogUnavailable, StoreFailed: it could not be written; it may be in force all the same.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; it may be in force.
        """
        return self._call(
            self._client.subscribe(expression, id=id, ttl_s=ttl_s, max_count=max_count, keys=keys, insecure=insecure)
        )

    def effective(self, subscription: str) -> Mapping[Origin, int]:
        """Return the offsets, by origin, above which the subscription of this id is complete
        (:meth:`waypost.Receiver.effective`). A missing origin has no promise yet; an unknown subscription has none.

        Note that the mapping is live: the background thread changes it. Copy it before iterating over it.

        Raises:
            BadArgument: the id is no id.
        """
        return self._client.effective(subscription)

    def wait_effective(self, subscription: str, origins: Sequence[str]) -> None:
        """Wait until the subscription of this id is effective for these origins, as
        :meth:`waypost.Receiver.wait_effective`.

        Args:
            subscription: its id.
            origins: such as ``B/0``: the site and the number of its log's partition.

        Raises:
            BadArgument: the id is no id, the origins are no list of texts, or one of them has no slash.
            Refused: the receiver was not entered.
            Unreachable: the subscription did not become effective within `timeout_s`, or the receiver was closed.
            WaypostError: the error that ended the session.
        """
        self._call(self._client.wait_effective(subscription, origins))

    def set_keys(self, *, subscribing: Keys | None = None, publishing: Keys | None = None) -> None:
        """Replace the keys of this receiver; return once they are in force, as :meth:`waypost.Receiver.set_keys`.

        Args:
            subscribing: with every subscription of this receiver in the session, present and future. None: unchanged.
            publishing: with every later notification that this client publishes. None: unchanged. They are replaced
                first, and stay so if `subscribing` is refused.

        Raises:
            Refused: these are no keys, there are too many, the receiver was not entered, or it may not subscribe; the
                keys of subscriptions are unchanged.
            LogUnavailable, StoreFailed: the change could not be written; the keys may be in force.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; the keys may be changed, also
                later.
        """
        self._call(self._client.set_keys(subscribing=subscribing, publishing=publishing))

    def unsubscribe(self, subscription: str) -> None:
        """End a subscription, and return once it is known where it ends, as :meth:`waypost.Receiver.unsubscribe`.

        Every matching notification that was acknowledged to its producer before the call is still delivered.

        Args:
            subscription: its id. One that the session does not know has ended already, and nothing is changed.

        Raises:
            Refused: the id is not valid, or the receiver may not change subscriptions.
            LogUnavailable, StoreFailed: the end could not be written; the subscription may have ended.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; the subscription may have ended.
        """
        self._call(self._client.unsubscribe(subscription))

    def set_access(self, grants: Mapping[str, Granted] | None = None, *, password: str | None = None) -> None:
        """Replace the session's access; return once it is in force and durable, as :meth:`waypost.Receiver.set_access`.

        Args:
            grants: by principal, made by :func:`waypost.grant`; no other principal may do anything. Where there are
                none, and no `password` either, everybody may do everything.
            password: of the empty principal, that is, of clients that name none; it then has every right.

        Raises:
            Refused: the grants are not valid, or the caller may not administer the session, or could not do so again.
            LogUnavailable, StoreFailed: the change could not be written; the access may be in force.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; the access may be changed.
        """
        self._call(self._client.set_access(grants, password=password))

    def delete(self) -> None:
        """Delete the session, for all its receivers, as :meth:`waypost.Receiver.delete`; end this receiver, also after
        an error.

        Raises:
            Refused: the receiver was not entered, or (Forbidden) the access does not allow it.
            Unreachable: no answer came within `timeout_s`, or the receiver was closed; the session may be deleted.
            WaypostError: the error that ended the session.
        """
        with self._ending:
            try:
                self._call(self._client.delete())
            finally:
                if not self._has_ended:
                    self._end()

    @property
    def state(self) -> ReceiverState:
        """The receiver's position in its session, for a later :func:`attach`. The object changes in place until the
        receiver is closed.
        """
        return self._client.state

    @property
    def joined(self) -> bool:
        """Whether an attach of this object registered the receiver in the session: it was unknown there, or had
        expired.
        """
        return self._client.joined

    def acknowledge(self) -> None:
        """Acknowledge every notification returned so far, without a wait for the proxy's answer. :meth:`next` does
        that, too. Raises SessionClosed: the receiver was closed.
        """
        self._call(_done(self._client.acknowledge))

    def close(self, *, forget: bool = False) -> None:
        """Acknowledge every notification returned so far, leave the session in order, as
        :meth:`waypost.Receiver.close`, and end the thread; block until that is done. A second call has no effect.

        Args:
            forget: unregister the receiver, too: the session stores nothing for it any more.

        Raises:
            BadArgument: `forget` is no bool.
        """
        flag(forget, "forget")
        self._leave(lambda: self._client.close(forget=forget))


class Producer(_Publishing[asynchronous_producer.Producer]):
    """A blocking :class:`waypost.Producer`. Its methods may be called from any thread."""


async def _wait_for_waiters() -> None:
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    if pending:
        _, late = await asyncio.wait(pending, timeout=SHUTDOWN_GRACE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


async def _done(act: Callable[[], None]) -> None:
    act()


async def _make(make: Callable[..., _C], arguments: tuple[Any, ...], options: dict[str, Any]) -> _C:
    return make(*arguments, **options)


class Outbox(_Blocking[asynchronous_outbox.Outbox]):
    """A blocking :class:`waypost.Outbox`. Its methods may be called from any thread."""

    def post(self, notification: Mapping[str, Value], *, keys: Keys = NO_KEYS, insecure: bool = True) -> int:
        """Post a notification; return its sequence number once it is on the disk, as :meth:`waypost.Outbox.post`.

        Args:
            notification: the attributes by name.
            keys: security keys of this notification; they wait in the file with it.
            insecure: deliver it also to subscriptions whose keys do not meet these, if they accept that.

        Raises:
            Refused: an argument is not valid, more would wait than the outbox may hold, or the outbox was not entered.
            StoreDamaged, StoreFailed: the disk does not take it.
            Unreachable: the outbox was closed.
        """
        return self._call(self._client.post(notification, keys=keys, insecure=insecure))

    @property
    def waiting(self) -> int:
        """The number of notifications in the file that no site log is known to have. Raises Refused: the outbox was not
        entered; WaypostError: it was closed, or its disk has failed.
        """
        return self._client.waiting

    def wait_sent(self, timeout_s: float) -> None:
        """Wait until no post waits any more, as :meth:`waypost.Outbox.wait_sent`: a site log has it, or it was refused
        for good.

        Args:
            timeout_s: the longest wait, in seconds.

        Raises:
            Refused: `timeout_s` is no time, or the outbox was not entered.
            Unreachable: after `timeout_s` seconds some still wait; the message says what hinders the sending. Or the
                outbox was closed.
            StoreDamaged, StoreFailed: the disk has failed.
        """
        self._call(self._client.wait_sent(timeout_s))

    def refused(self) -> list[RefusedNotification]:
        """Return notifications that were refused for good, the first 1,000, as :meth:`waypost.Outbox.refused`; they
        stay in the file until :meth:`forget_refused`.

        Raises:
            Refused: the outbox was not entered.
            WaypostError: the outbox was closed, or its disk has failed.
        """
        return self._call(self._client.refused())

    def forget_refused(self, *numbers: int) -> None:
        """Remove refused notifications from the file, as :meth:`waypost.Outbox.forget_refused`.

        Args:
            numbers: their sequence numbers; a number of no refused notification has no effect.

        Raises:
            Refused: the outbox was not entered.
            WaypostError: the outbox was closed, or its disk has failed.
        """
        self._call(self._client.forget_refused(*numbers))


def open_outbox(path: str | Path, producer: str | None = None, **options: Any) -> Outbox:
    """Return a blocking outbox; entering it opens the file, or makes it.

    Args:
        path: of the file. One outbox has it open at a time, in whichever process.
        producer: the name of the producer, in the ids of its notifications; None: that of the file, which has to be
            there.
        options: `max_bytes`, `on_event`, `proxy`, `token`, `tls`, as of :func:`waypost.open_outbox`, whose errors are
            raised. `on_event` is called in the background thread: a blocking method of the outbox that is called there
            never returns.
    """
    return Outbox(asynchronous_outbox.open_outbox, (path, producer), options)


def attach(session: str, **options: Any) -> Receiver:
    """Return a blocking receiver of a session; entering it attaches, and creates the session if there is none.

    Args:
        session: its id, unique in the federation.
        options: `proxy`, `receiver`, `state`, ...: all of :func:`waypost.attach`, whose errors are raised. `on_event`,
            and `token` if it is a function, are called in the background thread; there no blocking method of the
            receiver may be called, for it would never return.
    """
    return Receiver(entry.attach, (session,), options)


def produce(name: str, **options: Any) -> Producer:
    """Return a blocking producer without a session; entering it connects.

    Args:
        name: of the client, and of the producer in the ids of its notifications.
        options: `proxy`, `roaming`, `token`, `timeout_s`, `on_event`, `tls`, as of :func:`waypost.produce`, whose
            errors are raised. `on_event`, and `token` if it is a function, are called in the background thread: a
            blocking method of the producer that is called there never returns.
    """
    return Producer(entry.produce, (name,), options)
