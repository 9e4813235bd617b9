"""The two ways into the federation: a receiver of a session, and a producer without a session."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points

from waypost.arguments import (
    function,
    instance,
    listed,
    seconds,
    text,
)
from waypost.arguments import name as check_name
from waypost.client.address import check_address
from waypost.client.delivery_state import ReceiverState
from waypost.client.options import AttachOptions, ConnectOptions, Finder
from waypost.client.producer import Producer
from waypost.client.protocol import ClientProtocol, ProducerState
from waypost.client.receiver import Receiver
from waypost.client.roaming import Roaming
from waypost.errors import BadArgument, Refused
from waypost.identity import SessionId
from waypost.limits import MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TOKEN_LENGTH, RECEIVER_WINDOW
from waypost.messages import Credential
from waypost.queue import Order, Queue
from waypost.reliability import Reliability

SITE = "WAYPOST_SITE"
"""The variable with the name of the client's site."""
PROXY = "WAYPOST_PROXY"
"""The variable with the address of the proxy of clients that name none."""
ADDRESS = "the address of a proxy, such as ws://host:7301, or a list of them"


def attach(
    session: str,
    *,
    proxy: str | Sequence[str] | None = None,
    roaming: Roaming | None = None,
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
    """Return a receiver of a session; entering it attaches, and creates the session if there is none.

    Args:
        session: its id, unique in the federation, such as ``travellers/alice``.
        proxy: address(es) of proxies, ``ws://host:port``; None: that of WAYPOST_PROXY, else one found by mDNS.
        roaming: the policy by which the client goes to the nearest proxy, and on to a nearer one
            (:class:`waypost.Roaming`); None: it uses the proxies that it was given, in their order.
        receiver: the name of the receiver within the session; each has its own cursor. A new one begins with what the
            session still stores, which is what another receiver has not acknowledged, and gets all that follows.
        state: the receiver's position, from an earlier `Receiver.state`; it is advanced in place. Without it,
            notifications whose acknowledgement had not reached the proxy when the last connection ended are delivered
            again.
        name: of the client, for people and as the producer's name; None: ``session/receiver``.
        create: whether to create the session if there is none; False: entering raises NotFound then.
        session_expiry_s: the session is deleted when no receiver was attached for so many seconds; None: as it was.
        receiver_expiry_s: the registration of this receiver ends when it was not attached for so many seconds; nothing
            is stored for it any more. `Receiver.joined` tells it when it comes back. None: never;
            a best-effort connection always expires (BEST_EFFORT_EXPIRY_S).
        reliability: of this receiver (:mod:`waypost.reliability`); None: that of the session. Lost notifications are
            reported to `on_event`, as Gap.
        session_reliability: of the session from now on, the upper bound for all its receivers; None: as it was.
        queue: the bounds of what the session stores from now on, whichever subscription it is for
            (:mod:`waypost.queue`); None: as they were. The journal has each discarded notification, with the cause.
        order: which of the notifications that wait in this library is returned first; `window` of them at most, or 400:
            ``fifo``, the oldest; ``priority``, the one of the highest Priority; ``deadline``, the one of the soonest
            StopTime or Timeout; ``any``: as is easiest, which is the oldest.
        principal: of the session's access; "": the one without a name.
        password: proves the principal; an open session asks for none.
        token: proves the principal that it names, without a password, until it expires; to the session, and to a proxy
            that restricts publishing. A function is called at every attach, so that it can return a new token in time.
        window: the number of notifications that may be delivered and not acknowledged.
        timeout_s: how long a call waits for its answer, in seconds.
        on_event: called with each event (:data:`waypost.client.events.ClientEvent`): Retry, Redirected, Attached,
            SessionReplaced, BecameEffective, Gap, ...
        tls: the TLS context for ``wss://`` addresses; None: by WAYPOST_CA, WAYPOST_CERT and WAYPOST_KEY. A client
            certificate proves the principal that it names.

    Raises (on entering):
        NoAnswer, NoProxy: no proxy let the client in within `timeout_s`.
        WaypostError: the session was refused, NotFound without `create` among others; `code` says why.

    Raises:
        Refused: an argument is of the wrong type or out of its range, an address is not valid, or the state is that of
            another receiver; `field` names the argument.
    """
    connect = _connect_options(proxy, roaming, tls)
    _check_options(timeout_s, token, on_event)
    options = AttachOptions(
        create=create,
        window=window,
        session_expiry_s=session_expiry_s,
        receiver_expiry_s=receiver_expiry_s,
        reliability=reliability,
        session_reliability=session_reliability,
        queue=queue,
        order=order,
    )
    options.check()
    name = f"{session}/{receiver}"[:MAX_ID_LENGTH] if name is None else name
    for field, value, such_as in (
        ("session", session, "the id of a session, such as 'travellers/alice'"),
        ("receiver", receiver, "the name of a receiver, such as 'main'"),
        ("name", name, "a name, as text"),
    ):
        check_name(value, field, such_as=such_as)
    if state is not None:
        instance(state, "state", ReceiverState, "a waypost.ReceiverState")
        state.check()
        if state.receiver not in (None, (session, receiver)):
            of_session, of_receiver = state.receiver or ("", "")
            raise BadArgument(f"it is that of receiver {of_receiver} of session {of_session}", field="state")
    text(principal, "principal", 0, MAX_ID_LENGTH)
    text(password, "password", 0, MAX_PASSWORD_LENGTH)
    if state is not None:
        state.begin_incarnation()
    protocol = ClientProtocol(
        name,
        SessionId(session),
        receiver,
        state,
        options=options,
        credential=Credential(principal, password),
        token=token if callable(token) else lambda: token,
    )
    return Receiver(protocol, connect, timeout_s, on_event)


def produce(
    name: str,
    *,
    proxy: str | Sequence[str] | None = None,
    roaming: Roaming | None = None,
    token: str | Callable[[], str] = "",
    timeout_s: float = 30,
    on_event: Callable[[object], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Producer:
    """Return a producer without a session; entering it connects.

    Args:
        name: of the client, for people and as the producer's name in the ids of its notifications.
        proxy: address(es) of proxies, ``ws://host:port``; None: that of WAYPOST_PROXY, else one found by mDNS.
        roaming: the policy by which the client goes to the nearest proxy, and on to a nearer one
            (:class:`waypost.Roaming`); None: it uses the proxies that it was given, in their order.
        token: proves the principal that it names, to a proxy that restricts publishing. A function is called on every
            connection.
        timeout_s: how long a call waits for its answer, in seconds; :meth:`Producer.publish` waits without a limit.
        on_event: called with each event (:data:`waypost.client.events.ClientEvent`).
        tls: the TLS context for ``wss://`` addresses; None: by WAYPOST_CA, WAYPOST_CERT and WAYPOST_KEY.

    Raises (on entering):
        NoAnswer, NoProxy: no proxy let the client in within `timeout_s`.
        WaypostError: the proxy refused the client; `code` says why.

    Raises:
        Refused: an argument is of the wrong type or out of its range, or an address is not valid.
    """
    return producer_of(
        name, None, proxy=proxy, roaming=roaming, token=token, timeout_s=timeout_s, on_event=on_event, tls=tls
    )


def producer_of(
    name: str,
    incarnation: ProducerState | None,
    *,
    proxy: str | Sequence[str] | None = None,
    roaming: Roaming | None = None,
    token: str | Callable[[], str] = "",
    timeout_s: float = 30,
    on_event: Callable[[object], None] | None = None,
    tls: ssl.SSLContext | None = None,
) -> Producer:
    """Return a producer, as :func:`produce`, that may go on in the place of an earlier one; entering it connects.

    Args:
        name: of the client, and of the producer in the ids of its notifications.
        incarnation: the secret of the earlier producer's incarnation, and the federation in which that one has
            published; the sequence numbers then have to go on, too (:meth:`Client.publish_body`). None: a new
            incarnation.
        proxy, roaming, token, timeout_s, on_event, tls: as of :func:`produce`.

    Raises:
        Refused: an argument is of the wrong type or out of its range, or an address is not valid.
    """
    connect = _connect_options(proxy, roaming, tls)
    _check_options(timeout_s, token, on_event)
    check_name(name, "name", such_as="the name of a producer, such as 'weather'")
    protocol = ClientProtocol(name, None, token=token if callable(token) else lambda: token, incarnation=incarnation)
    return Producer(protocol, connect, timeout_s, on_event)


def _connect_options(
    proxy: str | Sequence[str] | None, roaming: Roaming | None, tls: ssl.SSLContext | None
) -> ConnectOptions:
    """Return how a client connects. Raises BadArgument: an option is of the wrong type, or an address is not valid."""
    addresses = _default_addresses() if proxy is None else _addresses(proxy)
    if roaming is not None:
        instance(roaming, "roaming", Roaming, "a waypost.Roaming")
        roaming.check()
        if roaming.site is None:
            roaming = replace(roaming, site=os.environ.get(SITE) or None)
    if tls is not None:
        instance(tls, "tls", ssl.SSLContext, "an ssl.SSLContext")
    return ConnectOptions(addresses=addresses, find=None if addresses else _finder(), tls=tls, roaming=roaming)


def _default_addresses() -> list[str]:
    """Return the address that the environment names, if there is one. Raises BadArgument: it is not valid."""
    address = os.environ.get(PROXY)
    try:
        return _addresses(address) if address else []
    except Refused as error:
        raise BadArgument(error.message, field=PROXY, hint=error.hint) from None


def _addresses(proxy: str | Sequence[str]) -> list[str]:
    """Return the addresses of proxies. Raises Refused: one is not valid."""
    addresses = [proxy] if isinstance(proxy, str) else listed(proxy, "proxy", ADDRESS)
    if not addresses:
        raise BadArgument(f"there is no address in it; write {ADDRESS}, or leave it out", field="proxy")
    return [check_address(address) for address in addresses]


def _check_options(timeout_s: object, token: object, on_event: object) -> None:
    """Raise BadArgument unless the options that all clients have are valid."""
    seconds(timeout_s)
    if not callable(token):
        text(token, "token", 0, MAX_TOKEN_LENGTH, such_as="a token as text, or a function that returns one")
    if on_event is not None:
        function(on_event, "on_event", "a function of one argument, the event")


def _finder() -> Finder | None:
    """Return the installed finder of proxies on the local network, if there is one."""
    for entry in entry_points(group="waypost.finder"):
        finder: Finder = entry.load()
        return finder
    return None
