"""Events of a world in words, for its trace and for people."""

from __future__ import annotations

from functools import cache

from waypost.facts import Fact, FactKind
from waypost.records import Record

NARRATED_FACTS = {
    FactKind.OWNED,
    FactKind.RELEASED,
    FactKind.HANDOVER,
    FactKind.EFFECTIVE,
    FactKind.UNSUBSCRIBED,
    FactKind.GAP,
    FactKind.REMOVED,
    FactKind.ACCESS,
}


def line_of(fact: Fact) -> str:
    """Return a line for the narrative about a fact of a proxy. Raises KeyError: its kind is not in NARRATED_FACTS."""
    phrases = {
        FactKind.OWNED: f"serves {fact.session} at epoch {fact.epoch} ({fact.cause})",
        FactKind.RELEASED: f"lets go of {fact.session} at epoch {fact.epoch}",
        FactKind.HANDOVER: f"is {fact.role} {fact.phase}" + (f": {fact.reason}" if fact.reason else ""),
        FactKind.EFFECTIVE: f"promises {fact.subscription} above {_where(fact.frontier)}",
        FactKind.UNSUBSCRIBED: f"ends {fact.subscription}" + (f" at {_where(fact.frontier)}" if fact.frontier else ""),
        FactKind.GAP: f"reports a gap {fact.offsets} of {fact.origin}",
        FactKind.ACCESS: f"changes who may do what with {fact.session}: {fact.reason}",
        FactKind.REMOVED: f"removes {fact.offsets} of {fact.origin} ({' and '.join(fact.policies)})",
    }
    return f"{fact.proxy} {phrases[fact.kind]}"


def _where(frontier: dict[str, int]) -> str:
    return " ".join(f"{origin}:{offset}" for origin, offset in sorted(frontier.items()))


def brief(record: Record) -> str:
    """Return the fields that identify a record, as name=value with blanks between them; empty: it has no such field."""
    return " ".join([f"{name}={getattr(record, name)}" for name in _shown(type(record))])


@cache
def _shown(kind: type[Record]) -> list[str]:
    fields = ("link", "link_epoch", "origin", "offset", "upto", "above", "proxy", "session", "producer", "sequence")
    wants = ("expression", "expressions", "installation", "installations")
    return [name for name in fields + wants if name in kind.__struct_fields__]
