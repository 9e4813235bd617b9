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
        owed: how many deliveries were owed, once for each receiver.
        delivered: how many deliveries receivers attest, repeats and those that nobody was owed included.
        lost: how many findings of the classes L1 and L2: owed deliveries that are lost, and notifications that were
            acknowledged and no log has.
        pending: how many owed deliveries wait for receivers that are away.
        duplicated: how many deliveries came beside the first one of the same notification.
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
