"""Subscriptions and notifications for :mod:`bench.matching`, of four kinds, as published work on matching uses them.

A notification has 20 attributes: four strings ``k0`` to ``k3`` of 1,000 values each, by Zipf's law (exponent 1), and
sixteen integers ``n0`` to ``n15``, uniform in [0, 10,000). A subscription of

W1  is an equality, a range and a bound: `k == "v" && n >= low && n < high && m > bound`, the value by the same law.
    Range and bound let a third through together, so that one subscription in a hundred wants a notification
W2  is the same, with bounds of 16 values only, which many share
W3  has no equality: two ranges of a tenth each, one in a hundred again
W4  is of the whole language: of ten, four are as in W1; the others are an alternative of two equalities with a bound,
    a negated comparison beside an equality, a beginning and a bound, a `require` and a narrow range, a sum of two
    attributes beside an equality, and a negated alternative
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import accumulate

from waypost.notification import Notification

VALUES, NUMBERS, TEXTS, RANGE = 1000, 16, 4, 10_000
_WEIGHTS = list(accumulate(1 / rank for rank in range(1, VALUES + 1)))
_STEP = RANGE // 16

Make = Callable[[random.Random], str]


def bodies(count: int, seed: int = 1) -> list[bytes]:
    """Return the encoded bodies of `count` random notifications of twenty attributes; the same for the same seed."""
    rng = random.Random(seed)
    return [_notification(rng).body for _ in range(count)]


def subscriptions(workload: str, count: int, seed: int = 2) -> list[str]:
    """Return `count` different random expressions of a workload; the same for the same seed.

    Args:
        workload: "W1" to "W4", as the module describes them.
        count: of expressions.
        seed: of the random numbers.

    Raises:
        KeyError: there is no such workload.
    """
    rng, make = random.Random(seed), _MAKERS[workload]
    found: dict[str, None] = {}
    while len(found) < count:
        found[make(rng)] = None
    return list(found)


def _notification(rng: random.Random) -> Notification:
    texts = {f"k{index}": _value(rng) for index in range(TEXTS)}
    return Notification({**texts, **{f"n{index}": rng.randrange(RANGE) for index in range(NUMBERS)}})


def _value(rng: random.Random) -> str:
    return f"value-{rng.choices(range(VALUES), cum_weights=_WEIGHTS)[0]}"


def _two(rng: random.Random) -> list[str]:
    return [f"n{index}" for index in rng.sample(range(NUMBERS), 2)]


def _equality(rng: random.Random) -> str:
    return f'k{rng.randrange(TEXTS)} == "{_value(rng)}"'


def _range(rng: random.Random, name: str, share: float, step: int = 1) -> str:
    width = int(share * RANGE)
    low = rng.randrange(-(width // 2), RANGE - width // 2) // step * step
    return f"{name} >= {low} && {name} < {low + width}"


def _w1(rng: random.Random, step: int = 1) -> str:
    name, other = _two(rng)
    bound = rng.randrange(RANGE) // step * step
    return f"{_equality(rng)} && {_range(rng, name, 0.8, step)} && {other} > {bound}"


def _w2(rng: random.Random) -> str:
    return _w1(rng, _STEP)


def _w3(rng: random.Random) -> str:
    name, other = _two(rng)
    return f"{_range(rng, name, 0.1)} && {_range(rng, other, 0.1)}"


def _w4(rng: random.Random) -> str:
    name, other = _two(rng)
    bound = rng.randrange(RANGE)
    key = f"k{rng.randrange(TEXTS)}"
    return rng.choice(
        [
            *[_w1(rng)] * 4,
            f"({_equality(rng)} || {_equality(rng)}) && {name} > {bound}",
            f"!({name} < {bound}) && {_equality(rng)}",
            f'begins-with({key}, "{_value(rng)}") && {name} < {bound}',
            f"require({key}) && {_range(rng, name, 0.01)}",
            f"{_equality(rng)} && {name} + {other} > {2 * bound}",
            f"!({key} != '{_value(rng)}' || {name} <= {bound})",
        ]
    )


_MAKERS: dict[str, Make] = {"W1": _w1, "W2": _w2, "W3": _w3, "W4": _w4}
