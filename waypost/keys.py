"""Security keys, as in Elvin: a notification reaches only receivers that hold the key that goes with it.

A raw key is a secret; its public form is its hash. The scheme decides which side uses which of the two:

producer    the producer sends the raw key, the receiver the public one: it gets only what a holder of the secret sent
consumer    the receiver sends the raw key, the producer the public one: only a holder of the secret gets it
dual        both at once, and both must meet

So the side whose key it is proves that it knows the secret. Its proxy hashes the key on arrival (:func:`primed`): a raw
key is never stored, written or passed on, and the public forms of both sides can be compared. A subscription's keys
meet those of a notification if one scheme has all its sides in common
(Elvin client protocol 4.0, key schemes 1 to 3 with SHA-1, 7 to 9 with SHA-256).

Where no keys meet, a notification is delivered only if both its producer and the subscription allow that: `insecure`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from waypost.arguments import instance, listed, one_of, wrong_type
from waypost.errors import BadArgument, BadMessage, Refused
from waypost.limits import MAX_KEY_BYTES, MAX_KEYS

Algorithm = Literal["sha256", "sha1"]
ALGORITHMS: tuple[Algorithm, ...] = ("sha256", "sha1")
Scheme = Literal["sha256-producer", "sha256-consumer", "sha256-dual", "sha1-producer", "sha1-consumer", "sha1-dual"]
Side = Literal["producer", "consumer"]
PRODUCER: Side = "producer"
CONSUMER: Side = "consumer"
SIDES: dict[Scheme, frozenset[Side]] = {
    "sha256-producer": frozenset({PRODUCER}),
    "sha256-consumer": frozenset({CONSUMER}),
    "sha256-dual": frozenset({PRODUCER, CONSUMER}),
    "sha1-producer": frozenset({PRODUCER}),
    "sha1-consumer": frozenset({CONSUMER}),
    "sha1-dual": frozenset({PRODUCER, CONSUMER}),
}
"""The roles whose keys must meet, by scheme."""
DIGEST_BYTES = {"sha256": 32, "sha1": 20}
"""The size of a public key, by the algorithm that a scheme's name begins with."""
KEY_OVERHEAD = 32
"""Bytes that scheme, side and encoding of a key take, about."""


class Key(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One key: raw on the side whose key it is, until its proxy has it; public everywhere else."""

    scheme: Scheme
    side: Side
    value: Annotated[bytes, Meta(min_length=1, max_length=MAX_KEY_BYTES)]

    def __post_init__(self) -> None:
        if self.side not in SIDES[self.scheme]:
            raise ValueError(f"scheme {self.scheme} has no keys of the {self.side}")

    def __repr__(self) -> str:
        return f"Key({self.scheme!r}, {self.side!r})"

    @property
    def public(self) -> Key:
        """The public form of a raw key, its hash, which is compared with the keys of the other side. Of a public key it
        would be the hash of a hash.
        """
        return Key(self.scheme, self.side, public_key(self.value, algorithm_of(self.scheme)))


KeyList = Annotated[list[Key], Meta(max_length=MAX_KEYS)]


def algorithm_of(scheme: Scheme) -> Algorithm:
    """Return the hash algorithm of a scheme."""
    return "sha1" if scheme.startswith("sha1-") else "sha256"


def public_key(raw: bytes, algorithm: Algorithm = "sha256") -> bytes:
    """Return the public form of a raw key, which is handed to the other side.

    Args:
        raw: the secret, 1 to MAX_KEY_BYTES bytes.
        algorithm: ``sha256`` or ``sha1``.

    Raises:
        BadArgument: an argument is not valid.
    """
    one_of(algorithm, "algorithm", ALGORITHMS)
    raw_key(raw, "raw")
    return hashlib.new(algorithm, raw).digest()


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that are used together. ``|`` joins keys of several schemes; it suffices that those of one meet.

    secret = os.urandom(32)
    await weather.publish(report, keys=Keys.producer(secret))
    await session.subscribe("require(station)", keys=Keys.producer(public_key(secret)), insecure=False)
    """

    keys: frozenset[Key] = frozenset()

    def __post_init__(self) -> None:
        if not isinstance(self.keys, frozenset) or not all(isinstance(key, Key) for key in self.keys):
            raise wrong_type(self.keys, "keys", KEYS)

    @classmethod
    def producer(cls, *values: bytes, algorithm: Algorithm = "sha256") -> Keys:
        """Return keys of the producer scheme: `values` are raw for a publisher, public (:func:`public_key`) for a
        subscriber.

        Raises:
            BadArgument: a key is no bytes, empty or too long, or there is no such algorithm.
        """
        return cls.dual(producer=values, scheme="producer", algorithm=algorithm)

    @classmethod
    def consumer(cls, *values: bytes, algorithm: Algorithm = "sha256") -> Keys:
        """Return keys of the consumer scheme: `values` are raw for a subscriber, public (:func:`public_key`) for a
        publisher.

        Raises:
            BadArgument: a key is no bytes, empty or too long, or there is no such algorithm.
        """
        return cls.dual(consumer=values, scheme="consumer", algorithm=algorithm)

    @classmethod
    def dual(
        cls,
        producer: Iterable[bytes] = (),
        consumer: Iterable[bytes] = (),
        *,
        algorithm: Algorithm = "sha256",
        scheme: Literal["dual", "producer", "consumer"] = "dual",
    ) -> Keys:
        """Return keys of the dual scheme: each side gives its own keys raw, and those of the other side public.

        Args:
            producer: the producers' keys.
            consumer: the consumers' keys.
            algorithm: the hash of the public forms.
            scheme: for :meth:`producer` and :meth:`consumer`.

        Raises:
            BadArgument: a key is no bytes, empty or too long, `producer` or `consumer` is no list of keys, or there is
                no such algorithm.
            Refused: there is no such scheme.
        """
        one_of(algorithm, "algorithm", ALGORITHMS)
        whole: Scheme = f"{algorithm}-{scheme}"  # type: ignore[assignment]
        if whole not in SIDES:
            raise Refused(f"{whole} is no scheme; there are {', '.join(SIDES)}", field="keys")
        keys = [Key(whole, PRODUCER, raw_key(key, "keys")) for key in listed(producer, "producer", "a list of keys")]
        keys += [Key(whole, CONSUMER, raw_key(key, "keys")) for key in listed(consumer, "consumer", "a list of keys")]
        return cls(frozenset(keys))

    def __or__(self, other: Keys) -> Keys:
        instance(other, "keys", Keys, KEYS)
        return Keys(self.keys | other.keys)

    def listed(self, side: Side | None = None) -> list[Key]:
        """Return the keys in the order of the wire.

        Args:
            side: the one that sends them; None: they are not checked to be those that it may send.

        Raises:
            Refused: there are too many.
            BadMessage: one of the other side's is not public (:func:`check_public`).
        """
        if side is not None:
            check_public(side, self.keys)
        if len(self.keys) > MAX_KEYS:
            raise Refused(f"{len(self.keys)} keys; the limit is {MAX_KEYS}", field="keys")
        return sorted(self.keys)


KEYS = "waypost.Keys, such as Keys.consumer(secret)"
NO_KEYS = Keys()


def raw_key(value: bytes, field: str) -> bytes:
    """Return the value if it can be a key: 1 to MAX_KEY_BYTES bytes.

    Raises:
        BadArgument: the value is no such bytes; the error names the argument `field`, and does not show the value.
    """
    if not isinstance(value, bytes):
        # Not the value: it may be a secret.
        raise BadArgument(f"a key is bytes, and this is {type(value).__name__}; write os.urandom(32)", field=field)
    if not 0 < len(value) <= MAX_KEY_BYTES:
        raise BadArgument(f"{len(value)} bytes; a key has 1 to {MAX_KEY_BYTES}", field=field)
    return value


def check_keys(value: object, field: str = "keys") -> None:
    """Raise BadArgument, with this `field`, unless the value is a :class:`Keys`."""
    instance(value, field, Keys, KEYS)


class Protection(msgspec.Struct, frozen=True, array_like=True, order=True):
    """How a notification, or what a subscription gets, is protected. All keys are public.

    Without any, as :data:`OPEN` is, everybody may publish, and everybody gets it.
    """

    keys: tuple[Key, ...] = ()
    insecure: bool = True
    """Deliver also where no keys meet, if the other side allows it too."""

    @classmethod
    def of(cls, *keys: Iterable[Key], insecure: bool = True) -> Protection:
        """Return the protection by the public keys of several sources, such as a subscription's own and its owner's.

        Args:
            keys: public ones, from each source.
            insecure: whether a notification may be delivered where these keys do not meet those of the other side.
        """
        return cls(tuple(sorted({key for several in keys for key in several})), insecure)

    def meets(self, other: Protection) -> bool:
        """Tell whether the keys of the two sides meet, that is, all sides of one scheme; such a delivery is secure."""
        common = {(key.scheme, key.side) for key in {*self.keys}.intersection(other.keys)}
        return any(all((scheme, side) in common for side in SIDES[scheme]) for scheme, _ in common)

    def allows(self, other: Protection) -> bool:
        """Tell whether a notification of one side is delivered to the subscription of the other: their keys meet, or
        both sides are insecure.
        """
        return (self.insecure and other.insecure) or self.meets(other)


OPEN = Protection()


def primed(side: Side, keys: Iterable[Key]) -> tuple[Key, ...]:
    """Return the public forms of the keys that one side sent, sorted, each once: its own are raw and are hashed, the
    other side's are public already.

    Args:
        side: the one that sent the keys.
        keys: as it sent them.

    Raises:
        BadMessage: a public key is not as long as the hash of its scheme. Keys go with each notification, so their size
            is that of what is stored and sent.
    """
    keys = list(keys)
    check_public(side, keys)
    return tuple(sorted({key.public if key.side == side else key for key in keys}))


def check_public(side: Side, keys: Iterable[Key]) -> None:
    """Check the keys that one side sends: those of the other side have to be public.

    Raises:
        BadMessage: a public key is not as long as the hash of its scheme.
    """
    for key in keys:
        size = DIGEST_BYTES[key.scheme.partition("-")[0]]
        if key.side != side and len(key.value) != size:
            raise BadMessage(
                f"a public key of scheme {key.scheme} has {size} bytes, and not {len(key.value)}", field="keys"
            )


def bytes_of(keys: Iterable[Key]) -> int:
    """Return about how many bytes keys take in memory and in a message."""
    return sum(len(key.value) + KEY_OVERHEAD for key in keys)


def texts(keys: Sequence[Key]) -> list[str]:
    """Return public keys as texts, for the journal: scheme, side, and the hash in hexadecimal."""
    return [f"{key.scheme} {key.side} {key.value.hex()}" for key in keys]
