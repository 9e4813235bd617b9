"""A rendezvous as notifications: the request of one client to another that may be away, and the answer. Pure.

Theory
------
A rendezvous is a conversation between two sessions. That of the owner of resources subscribes to requests, that of the
requester subscribes to answers. Both are sessions like any other: a request waits for the owner at its proxy, an answer
waits for the requester at its own, and both follow their clients from proxy to proxy, without a loss, through failures.
The three messages of P2P-DIET are three steps of that:

arrange-rendezvous    the requester publishes a request
rendezvous-request    the owner's proxy delivers it: when the owner is back, if it is away
rendezvous-resource   the owner publishes the resource in parts, which are delivered to the requester: when it is back

Each answer to a request is an *attempt* of its own, so that the parts of two of them are never taken for one resource.
Frontiers and duplicates are as of any receiver: waypost/client/delivery_state.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from waypost.arguments import instance, text, whole
from waypost.errors import BadNotification, LimitExceeded
from waypost.identity import SessionId
from waypost.keys import CONSUMER, Key
from waypost.limits import MAX_ID_LENGTH, MAX_KEY_BYTES, MAX_PATH_LENGTH, MAX_RESOURCE_BYTES, RESOURCE_CHUNK_BYTES
from waypost.notification import Notification, Value
from waypost.subscription.lexis import write_name, write_string

KIND = "Rendezvous"
"""The attribute that every notification of a rendezvous has: REQUEST, or RESOURCE for a part of one."""
REQUEST, RESOURCE = "request", "resource"
ID, OWNER, REQUESTER, PATH = "Rendezvous-Id", "Rendezvous-Owner", "Rendezvous-Requester", "Rendezvous-Path"
MAX_NUMBER, SCHEME, KEY = "Rendezvous-Most", "Rendezvous-Scheme", "Rendezvous-Key"
ATTEMPT, PART, PARTS = "Rendezvous-Attempt", "Rendezvous-Part", "Rendezvous-Parts"
BYTES, DIGEST, DATA, ERROR = "Rendezvous-Bytes", "Rendezvous-SHA256", "Rendezvous-Data", "Rendezvous-Error"
MAX_NAME_LENGTH = MAX_ID_LENGTH - len("rendezvous/owner/")
"""Characters of the name of an owner or a requester; the prefix of the session id takes the rest."""
MOST_PARTS = -(-MAX_RESOURCE_BYTES // RESOURCE_CHUNK_BYTES)


def check_name(name: str, field_: str) -> None:
    """Raise unless this can be the name of an owner or a requester, 1 to MAX_NAME_LENGTH characters. Control characters
    are not refused here, but by :func:`waypost.attach`.

    Args:
        name: to be checked.
        field_: the name of the argument, which the error names.

    Raises:
        BadArgument: the name is no text, or no valid Unicode.
        LimitExceeded: the name is empty or too long.
    """
    text(name, field_, such_as="a name, as text")
    if not 0 < len(name) <= MAX_NAME_LENGTH:
        raise LimitExceeded(f"a name has 1 to {MAX_NAME_LENGTH} characters", field=field_)


def session_of_owner(name: str) -> SessionId:
    """Return the session in which requests wait for the owner of this name; the name is not checked."""
    return SessionId(f"rendezvous/owner/{name}")


def session_of_requester(name: str) -> SessionId:
    """Return the session in which answers wait for the requester of this name; the name is not checked."""
    return SessionId(f"rendezvous/requester/{name}")


def requests_to(owner: str) -> str:
    """Return the expression, in the subscription language, that matches requests to the owner of this name."""
    return _both(REQUEST, OWNER, owner)


def answers_to(requester: str) -> str:
    """Return the expression, in the subscription language, that matches answers to the requester of this name."""
    return _both(RESOURCE, REQUESTER, requester)


def _both(kind: str, attribute: str, name: str) -> str:
    return f"{write_name(KIND)} == {write_string(kind)} && {write_name(attribute)} == {write_string(name)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of `requester` to `owner` for the resource at `path`, of at most `max_bytes`.

    `key`: only a holder of the raw one gets the answer; it is the public form of a consumer's key. None: not protected.
    """

    id: str
    owner: str
    requester: str
    path: str
    max_bytes: int = MAX_RESOURCE_BYTES
    key: Key | None = None

    def notification(self) -> Notification:
        """Return the notification to be published for this request.

        Raises:
            BadArgument, LimitExceeded, BadNotification: a field of the request is not valid; the error names the field.
        """
        for field_, name in (("id", self.id), ("owner", self.owner), ("requester", self.requester)):
            check_name(name, field_)
        text(self.path, "path", such_as="a path, as text")
        if not 0 < len(self.path) <= MAX_PATH_LENGTH:
            raise LimitExceeded(f"{len(self.path)} characters; a path has 1 to {MAX_PATH_LENGTH}", field="path")
        whole(self.max_bytes, "max_bytes", 1, MAX_RESOURCE_BYTES)
        if self.key is not None:
            instance(self.key, "key", Key, "the public form of a consumer's key, a waypost.keys.Key")
        attributes: dict[str, Value] = {
            KIND: REQUEST,
            ID: self.id,
            OWNER: self.owner,
            REQUESTER: self.requester,
            PATH: self.path,
            MAX_NUMBER: self.max_bytes,
        }
        if self.key is not None:
            attributes |= {SCHEME: self.key.scheme, KEY: self.key.value}
        return Notification(attributes)

    @classmethod
    def of(cls, notification: Mapping[str, Value]) -> Request:
        """Return the request that a notification states; any client may have published it. That it is a request at all
        (KIND) is not checked, and its names may be longer than :func:`check_name` allows.

        Raises:
            BadNotification: an attribute of a request is missing or not valid; `field` names the attribute.
        """
        key = None
        if KEY in notification:
            scheme, value = _text(notification, SCHEME, MAX_ID_LENGTH), _data(notification, KEY, MAX_KEY_BYTES)
            if not value:
                raise BadNotification("an empty key; leave it out", field=KEY)
            try:
                key = Key(scheme, CONSUMER, value)  # type: ignore[arg-type]
            except (KeyError, ValueError):
                raise BadNotification(f"scheme {scheme} has no keys of the consumer", field=SCHEME) from None
        return cls(
            id=_text(notification, ID, MAX_ID_LENGTH),
            owner=_text(notification, OWNER, MAX_ID_LENGTH),
            requester=_text(notification, REQUESTER, MAX_ID_LENGTH),
            path=_text(notification, PATH, MAX_PATH_LENGTH),
            max_bytes=_number(notification, MAX_NUMBER, 1, MAX_RESOURCE_BYTES),
            key=key,
        )

    def answer(self, attempt: str, data: bytes) -> Iterator[Notification]:
        """Yield the notifications of the answer, to be published in this order: the parts, or one refusal if the
        resource is larger than the request allows.

        Args:
            attempt: an id that no other answer to this request has.
            data: the resource; it may be empty.

        Raises:
            BadArgument: `data` is no bytes; raised when the first notification is asked for.
        """
        data = bytes(instance(data, "data", bytes | bytearray | memoryview, "the bytes of the resource"))  # type: ignore[arg-type]
        if len(data) > self.max_bytes:
            yield self.refusal(attempt, f"{len(data)} bytes; {self.requester} takes {self.max_bytes}")
            return
        begins = range(0, len(data), RESOURCE_CHUNK_BYTES) or range(1)
        whole: dict[str, Value] = {BYTES: len(data), DIGEST: hashlib.sha256(data).digest(), PARTS: len(begins)}
        for number, begin in enumerate(begins):
            part = data[begin : begin + RESOURCE_CHUNK_BYTES]
            yield Notification({**self._answer(attempt), **whole, PART: number, DATA: part})

    def refusal(self, attempt: str, why: str) -> Notification:
        """Return the notification that refuses this request.

        Args:
            attempt: an id that no other answer to this request has.
            why: the reason, for people; it is cut to MAX_PATH_LENGTH characters.

        Raises:
            BadArgument: `why` is no text.
        """
        text(why, "why", such_as="the reason, as text")
        return Notification({**self._answer(attempt), ERROR: why[:MAX_PATH_LENGTH]})

    def _answer(self, attempt: str) -> dict[str, Value]:
        return {
            KIND: RESOURCE,
            ID: self.id,
            OWNER: self.owner,
            REQUESTER: self.requester,
            PATH: self.path,
            ATTEMPT: attempt,
        }


@dataclass(frozen=True, slots=True)
class Resource:
    """The result of a rendezvous: the data, whose checksum was right; or in `error` the reason why there is none."""

    id: str
    owner: str
    path: str
    data: bytes = b""
    error: str = ""


@dataclass(slots=True, kw_only=True)
class _Attempt:
    """The parts of one answer that have arrived."""

    owner: str
    path: str
    parts: int
    size: int
    digest: bytes
    touched_ms: int
    came: dict[int, bytes] = field(default_factory=dict)


class Assembly:
    """Assembles resources from their parts, which may arrive in any order; one resource for each rendezvous."""

    def __init__(self) -> None:
        self._attempts: dict[tuple[str, str], _Attempt] = {}
        self._whole: dict[str, None] = {}
        """Rendezvous that are over: parts of another attempt may still arrive."""

    @property
    def holding(self) -> int:
        """The number of answers of which some parts have arrived; two answers to one request count as two."""
        return len(self._attempts)

    def add(self, notification: Mapping[str, Value], now_ms: int) -> Resource | None:
        """Add a part of an answer; return the resource if it is complete now, or was refused, or its checksum is wrong.

        Args:
            notification: of an answer.
            now_ms: of the caller's clock, the same as for :meth:`expire`.

        Returns:
            None: parts are missing, or the rendezvous is over already. `error` of the resource says why there is no
            data.

        Raises:
            BadNotification: the notification is no part, or of another resource than the parts of the same attempt
                before it.
        """
        identity, attempt = _text(notification, ID, MAX_ID_LENGTH), _text(notification, ATTEMPT, MAX_ID_LENGTH)
        owner, path = _text(notification, OWNER, MAX_ID_LENGTH), _text(notification, PATH, MAX_PATH_LENGTH)
        if identity in self._whole:
            return None
        if ERROR in notification:
            return self._over(Resource(identity, owner, path, error=_text(notification, ERROR, MAX_PATH_LENGTH)))
        parts = _number(notification, PARTS, 1, MOST_PARTS)
        part = _number(notification, PART, 0, parts - 1)
        size = _number(notification, BYTES, 0, parts * RESOURCE_CHUNK_BYTES)
        data, digest = _data(notification, DATA, RESOURCE_CHUNK_BYTES), _data(notification, DIGEST, 32)
        incomplete = self._attempts.setdefault(
            (identity, attempt),
            _Attempt(owner=owner, path=path, parts=parts, size=size, digest=digest, touched_ms=now_ms),
        )
        if (incomplete.parts, incomplete.size, incomplete.digest) != (parts, size, digest):
            raise BadNotification("it is another resource than the part before it", field=PART)
        incomplete.touched_ms = now_ms
        incomplete.came[part] = data
        if len(incomplete.came) < parts:
            return None
        del self._attempts[identity, attempt]
        whole = b"".join(incomplete.came[index] for index in range(parts))
        if len(whole) != size or hashlib.sha256(whole).digest() != digest:
            return self._over(Resource(identity, owner, path, error="its checksum is wrong"))
        return self._over(Resource(identity, owner, path, whole))

    def _over(self, resource: Resource) -> Resource:
        self._whole[resource.id] = None
        if len(self._whole) > REMEMBERED:
            del self._whole[next(iter(self._whole))]
        for key in [key for key in self._attempts if key[0] == resource.id]:
            del self._attempts[key]
        return resource

    def expire(self, before_ms: int) -> None:
        """Drop the incomplete answers of which no part was added since `before_ms`, in ms of the caller's clock; their
        owner answers anew, if it can.
        """
        for key in [key for key, attempt in self._attempts.items() if attempt.touched_ms < before_ms]:
            del self._attempts[key]

    def evict_oldest(self) -> Resource | None:
        """Give up the incomplete answer of which no part was added for longest; return its :class:`Resource` with an
        error. None: no answer is incomplete.
        """
        oldest = min(self._attempts, key=lambda key: self._attempts[key].touched_ms, default=None)
        if oldest is None:
            return None
        given_up = self._attempts[oldest]
        why = "too many resources come at one time; ask again"
        return self._over(Resource(oldest[0], given_up.owner, given_up.path, error=why))


REMEMBERED = 10_000
"""Rendezvous of which it is remembered that they are over; the oldest go first."""


def _text(notification: Mapping[str, Value], name: str, most: int) -> str:
    value = notification.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise BadNotification(f"a text of 1 to {most} characters, please", field=name)
    return value


def _number(notification: Mapping[str, Value], name: str, least: int, most: int) -> int:
    value = notification.get(name)
    if not isinstance(value, int) or not least <= value <= most:
        raise BadNotification(f"a number from {least} to {most}, please", field=name)
    return int(value)


def _data(notification: Mapping[str, Value], name: str, most: int) -> bytes:
    value = notification.get(name)
    if not isinstance(value, bytes) or len(value) > most:
        raise BadNotification(f"{most} bytes at most, please", field=name)
    return value
