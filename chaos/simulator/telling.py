"""What happens in a world, in words: for its trace, and for people."""

from __future__ import annotations

from functools import cache

from waypost.records import Fact, Record

TOLD_FACTS = {"owned", "released", "handover", "effective", "unsubscribed", "gap", "removed", "access"}


def told(fact: Fact) -> str:
    what = {
        "owned": f"serves {fact.session} at epoch {fact.epoch} ({fact.reason})",
        "released": f"lets go of {fact.session} at epoch {fact.epoch}",
        "handover": f"is {fact.reason}",
        "effective": f"promises {fact.subscription} above {_where(fact.frontier)}",
        "unsubscribed": f"ends {fact.subscription} at {_where(fact.frontier)}",
        "gap": f"reports a gap {fact.offsets} of {fact.origin}",
        "access": f"changes who may do what with {fact.session}: {fact.reason}",
        "removed": f"removes {fact.offsets} of {fact.origin} ({fact.reason})",
    }
    return f"{fact.proxy} {what[fact.kind]}"


def _where(frontier: dict[str, int]) -> str:
    return " ".join(f"{origin}:{offset}" for origin, offset in sorted(frontier.items()))


def brief(record: Record) -> str:
    return " ".join([f"{name}={getattr(record, name)}" for name in _shown(type(record))])


@cache
def _shown(kind: type[Record]) -> list[str]:
    fields = ("link", "link_epoch", "origin", "offset", "upto", "above", "proxy", "session", "producer", "sequence")
    wants = ("expression", "expressions", "installation", "installations")
    return [name for name in fields + wants if name in kind.__struct_fields__]
