"""How an application comes to a session: as a receiver of it, or as a producer without one."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points

from waypost.client.connector import Finder, check_address
from waypost.client.delivery_state import ReceiverState
from waypost.client.machine import ClientMachine
from waypost.client.producer import Producer
from waypost.client.receiver import Receiver, checked
from waypost.errors import Refused
from waypost.frames import check_client_message
from waypost.identity import SessionId
from waypost.limits import MAX_ID_LENGTH, MAX_PASSWORD_LENGTH, MAX_TTL_S, RECEIVER_WINDOW
from waypost.messages import Attach, Credential
from waypost.queue import Order, Queue
from waypost.reliability import Reliability


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
        on_event: called with what happens: Retry, Redirected, Attached, BecameEffective, Gap, ...
        tls: how ``wss://`` addresses are spoken to; None: as WAYPOST_CA, WAYPOST_CERT and WAYPOST_KEY say. One of our
            own proves the principal that it names.

    Raises (on entering):
        NoProxy: nobody let us in in time.
        WaypostError: the session was refused; `code` says why.

    Raises:
        Refused: a name is too long, or empty; an address is none; the state is another receiver's.
    """
    addresses = _addresses(proxy)
    for field, given, kind in (
        ("state", state, ReceiverState),
        ("reliability", reliability, Reliability),
        ("session_reliability", session_reliability, Reliability),
        ("queue", queue, Queue),
    ):
        if given is not None and not isinstance(given, kind):
            raise Refused(f"a waypost.{kind.__name__}, please", field=field)
    for field, text in (("session", session), ("receiver", receiver), ("name", name or session)):
        _check_text(text, 1, MAX_ID_LENGTH, field)
    if state is not None and state.receiver not in (None, (session, receiver)):
        whose, which = state.receiver or ("", "")
        raise Refused(f"it is that of receiver {which} of session {whose}", field="state")
    _check_text(principal, 0, MAX_ID_LENGTH, "principal")
    _check_text(password, 0, MAX_PASSWORD_LENGTH, "password")
    wished = Attach(
        session=session,
        receiver=receiver,
        incarnation="life",
        frontier={},
        window=window,
        credential=Credential(principal, password),
        reliability=reliability,
        session_reliability=session_reliability,
        queue=queue,
        order=order,
    )
    check_client_message(wished)
    checked(session_expiry_s, MAX_TTL_S, "session_expiry_s")
    checked(receiver_expiry_s, MAX_TTL_S, "receiver_expiry_s")
    machine = ClientMachine(
        name or f"{session}/{receiver}"[:MAX_ID_LENGTH],
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
    _check_text(name, 1, MAX_ID_LENGTH, "name")
    machine = ClientMachine(name, None, token=token if callable(token) else lambda: token)
    return Producer(machine, addresses, None if addresses else _finder(), timeout_s, on_event, tls)


def _addresses(proxy: str | Sequence[str] | None) -> list[str] | None:
    """Return addresses of proxies; None: they are to be found. Raises Refused: one is none."""
    if proxy is None:
        return None
    given = [proxy] if isinstance(proxy, str) else proxy
    if isinstance(given, bytes) or not isinstance(given, Sequence) or not given:
        raise Refused(f"{proxy!r:.40} is no address and no list of them, such as ws://host:7301", field="proxy")
    return [check_address(each) for each in given]


def _check_text(text: object, least: int, most: int, field: str) -> None:
    if not isinstance(text, str):
        raise Refused(f"{text!r:.40} is no text", field=field)
    if not least <= len(text) <= most:
        raise Refused(f"{len(text)} characters; it has {least} to {most}", field=field)


def _finder() -> Finder | None:
    """Return the installed way to find proxies on the local network, if there is one."""
    for entry in entry_points(group="waypost.finder"):
        finder: Finder = entry.load()
        return finder
    return None
