"""How an application comes to a session: as a receiver of it, or as a producer without one."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from waypost.arguments import (
    flag,
    function,
    instance,
    listed,
    one_of,
    seconds,
    text,
    whole,
    whole_or_none,
)
from waypost.client.delivery_state import ReceiverState
from waypost.client.machine import ClientMachine
from waypost.client.producer import Producer
from waypost.client.receiver import Receiver
from waypost.client.transport import Finder, check_address
from waypost.errors import BadArgument
from waypost.identity import SessionId
from waypost.limits import MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TOKEN_LENGTH, MAX_TTL_S, RECEIVER_WINDOW
from waypost.messages import Credential
from waypost.queue import ORDERS, Order, Queue
from waypost.reliability import Reliability

ADDRESS = "the address of a proxy, such as ws://host:7301, or a list of them"


def attach(
    session: str,
    *,
    proxy: str | Sequence[str] | None = None,
    receiver: str = "main",
    state: ReceiverState | None = None,
    name: str | None = None,
    create: bool = True,
    session_expiry_s: int | None = None,
    receiver_expiry_s: int | None = None,
    reliability: Reliability | None = None,
    session_reliability: Reliability | None = None,
    queue: Queue | None = None,
    order: Order = "any",
    principal: str = "",
    password: str = "",
    token: str | Callable[[], str] = "",
    window: int = RECEIVER_WINDOW,
    timeout_s: float = 30,
    on_event: Callable[[object], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Receiver:
    """Attach to a session, and create it if there is none.

    Args:
        session: its id, unique in the federation, such as ``travellers/alice``.
        proxy: address(es) of proxies, ``ws://host:port``; without one, a proxy is found by mDNS.
        receiver: which of the session's receivers this is; each has its own cursor.
        state: where this receiver is, from an earlier `Receiver.state`. Without it what the proxy was not told of
            before the connection ended is given again.
        name: of the client, for people and as the producer's name.
        create: False: refuse if there is no such session.
        session_expiry_s: from now on the session is deleted when nobody was attached for so many seconds.
        receiver_expiry_s: this receiver's place is given up when it was not attached for so many seconds: nothing
            is stored for
            it any more. When it comes back, `Receiver.joined` says that it was.
        reliability: of this receiver (:mod:`waypost.reliability`); None: as the session has it. What cannot be had any
            more is told to `on_event`, as Gap.
        session_reliability: of the session from now on: no receiver that attaches may exceed it.
        queue: how much the session stores at most from now on, whoever wants it (:mod:`waypost.queue`). What is
            discarded is in the journal, with the reason.
        order: what is given first of what waits here, at most `window`, or 400 of them: ``fifo``, the oldest;
            ``priority``, that of the highest Priority; ``deadline``, that of the soonest StopTime or Timeout; ``any``:
            as is easiest.
        principal: as whom, if the session's access names principals.
        password: the one that proves it; a session that is open asks for none.
        token: proves the principal that it names, without a password, until it ends; to the session, and to a proxy
            where not everybody may publish. A function is asked at every attach, so that it can return a new one in
            time.
        window: notifications that may be under way unacknowledged.
        timeout_s: for every single thing that is waited for.
        on_event: called with what happens: Retry, Redirected, Attached, SessionReplaced,
            BecameEffective, Gap, ...
        tls: how ``wss://`` addresses are spoken to; None: as WAYPOST_CA, WAYPOST_CERT and WAYPOST_KEY say. One of our
            own proves the principal that it names.

    Raises (on entering):
        NoProxy: nobody let us in in time.
        WaypostError: the session was refused; `code` says why.

    Raises:
        Refused: a name is too long, or empty; an address is none; the state is another receiver's.
    """
    addresses = _addresses(proxy)
    _check_options(timeout_s, token, on_event, tls)
    for field, given, kind in (
        ("state", state, ReceiverState),
        ("reliability", reliability, Reliability),
        ("session_reliability", session_reliability, Reliability),
        ("queue", queue, Queue),
    ):
        if given is not None:
            instance(given, field, kind, f"a waypost.{kind.__name__}")
    name = f"{session}/{receiver}"[:MAX_ID_LENGTH] if name is None else name
    for field, said, such_as in (
        ("session", session, "the id of a session, such as 'travellers/alice'"),
        ("receiver", receiver, "the name of a receiver, such as 'main'"),
        ("name", name, "a name, as text"),
    ):
        text(said, field, 1, MAX_ID_LENGTH, such_as=such_as)
    if state is not None:
        state.check()
        if state.receiver not in (None, (session, receiver)):
            whose, which = state.receiver or ("", "")
            raise BadArgument(f"it is that of receiver {which} of session {whose}", field="state")
    text(principal, "principal", 0, MAX_ID_LENGTH)
    text(password, "password", 0, MAX_PASSWORD_LENGTH)
    flag(create, "create")
    whole(window, "window", 1, RECEIVER_WINDOW)
    one_of(order, "order", ORDERS)
    whole_or_none(session_expiry_s, "session_expiry_s", 1, MAX_TTL_S)
    whole_or_none(receiver_expiry_s, "receiver_expiry_s", 1, MAX_TTL_S)
    machine = ClientMachine(
        name,
        SessionId(session),
        receiver,
        state,
        create=create,
        window=window,
        session_expiry_s=session_expiry_s,
        receiver_expiry_s=receiver_expiry_s,
        credential=Credential(principal, password),
        token=token if callable(token) else lambda: token,
        reliability=reliability,
        session_reliability=session_reliability,
        queue=queue,
        order=order,
    )
    return Receiver(machine, addresses, None if addresses else _finder(), timeout_s, on_event, tls)


def produce(
    name: str,
    *,
    proxy: str | Sequence[str] | None = None,
    token: str | Callable[[], str] = "",
    timeout_s: float = 30,
    on_event: Callable[[object], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Producer:
    """Connect as a producer without a session.

    Args:
        token: proves who publishes, where not everybody may. A function is asked on every connection.
    """
    addresses = _addresses(proxy)
    _check_options(timeout_s, token, on_event, tls)
    text(name, "name", 1, MAX_ID_LENGTH, such_as="the name of a producer, such as 'weather'")
    machine = ClientMachine(name, None, token=token if callable(token) else lambda: token)
    return Producer(machine, addresses, None if addresses else _finder(), timeout_s, on_event, tls)


def _addresses(proxy: str | Sequence[str] | None) -> list[str] | None:
    """Return addresses of proxies; None: they are to be found. Raises Refused: one is none."""
    if proxy is None:
        return None
    given = [proxy] if isinstance(proxy, str) else listed(proxy, "proxy", ADDRESS)
    if not given:
        raise BadArgument(f"there is no address in it; write {ADDRESS}, or leave it out", field="proxy")
    return [check_address(each) for each in given]


def _check_options(timeout_s: object, token: object, on_event: object, tls: object) -> None:
    """Raise BadArgument unless these are what every client may be told."""
    seconds(timeout_s)
    if not callable(token):
        text(token, "token", 0, MAX_TOKEN_LENGTH, such_as="a token as text, or a function that returns one")
    if on_event is not None:
        function(on_event, "on_event", "a function of one argument, the event")
    if tls is not None:
        instance(tls, "tls", ssl.SSLContext, "an ssl.SSLContext")


def _finder() -> Finder | None:
    """Return the installed way to find proxies on the local network, if there is one."""
    for entry in entry_points(group="waypost.finder"):
        finder: Finder = entry.load()
        return finder
    return None
