"""The audit's own rule of security keys: whether the keys on two sides let a notification through.

`keys` are arrays of ``SCHEME SIDE HEX``, all public (:func:`waypost.keys.texts`). Those of a scheme meet if they have
one in common of every side that the scheme names; ``dual`` names both, any other one its own.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

ALGORITHMS = ("sha256", "sha1")
SIDES = {"producer": ("producer",), "consumer": ("consumer",), "dual": ("producer", "consumer")}


def let_through(keys: str, secure_only: str, other_keys: str, other_secure_only: str) -> Column:
    """Tell, as a boolean column, whether a notification may come from one side to the other: it is for everybody, or
    their keys meet.

    The two sides may change places. Each argument names a column.

    Args:
        keys: one side's keys, an array of ``SCHEME SIDE HEX``; null: none.
        secure_only: whether that side demands keys that meet; null: it does not.
        other_keys: the keys of the other side; null: none.
        other_secure_only: whether the other side demands keys that meet; null: it does not.
    """
    is_for_all = ~F.coalesce(secure_only, F.lit(False)) & ~F.coalesce(other_secure_only, F.lit(False))
    return is_for_all | F.coalesce(_meet(F.array_intersect(keys, other_keys)), F.lit(False))


def _meet(common: Column) -> Column:
    met = F.lit(False)
    for algorithm in ALGORITHMS:
        for scheme, sides in SIDES.items():
            met |= _all_of(common, [f"{algorithm}-{scheme} {side} " for side in sides])
    return met


def _all_of(common: Column, beginnings: list[str]) -> Column:
    every = F.lit(True)
    for beginning in beginnings:
        every &= _has(common, beginning)
    return every


def _has(common: Column, beginning: str) -> Column:
    return F.exists(common, lambda key: key.startswith(beginning))
