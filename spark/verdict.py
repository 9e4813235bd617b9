"""The verdict of the audit on a run: plain values, without Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

MAX_EXAMPLES = 1000
"""Findings of one class that are listed; the counts are of all."""

Finding = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The verdict on a run.

    Args:
        verdict: "ok", "violated" or "unknown".
        counts: code -> number of findings; codes without any are left out.
        published: how many notifications were published.
        owed: how many deliveries were owed, once for each receiver; so count the next four.
        delivered: how many of the owed were delivered.
        lost: how many are lost.
        pending: how many are owed to receivers that are away.
        duplicated: how many were delivered more than once.
        examples: up to MAX_EXAMPLES findings a code, as :data:`spark.schemas.FINDING` has them, nulls left out, the
            worst classes first.
    """

    verdict: str
    counts: dict[str, int]
    published: int
    owed: int
    delivered: int
    lost: int
    pending: int
    duplicated: int
    examples: list[Finding] = field(default_factory=list, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the examples, by the names of the attributes, as values that JSON can have."""
        plain = asdict(self)
        del plain["examples"]
        return plain
