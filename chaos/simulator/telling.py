"""What happens in a world, in words: for its trace, and for people."""

from __future__ import annotations

from typing import Any

from waypost.records import Fact

TOLD_FACTS = {"owned", "released", "handover", "effective", "unsubscribed", "gap"}


def told(fact: Fact) -> str:
    what = {
        "owned": f"serves {fact.session} at epoch {fact.epoch} ({fact.reason})",
        "released": f"lets go of {fact.session} at epoch {fact.epoch}",
        "handover": f"is {fact.reason}",
        "effective": f"promises {fact.subscription} above {_where(fact.frontier)}",
        "unsubscribed": f"ends {fact.subscription} at {_where(fact.frontier)}",
        "gap": f"reports a gap {fact.offsets} of {fact.origin}",
    }
    return f"{fact.proxy} {what[fact.kind]}"


def _where(frontier: dict[str, int]) -> str:
    return " ".join(f"{origin}:{offset}" for origin, offset in sorted(frontier.items()))


def brief(record: Any) -> str:
    fields = ("link", "link_epoch", "origin", "offset", "upto", "above", "proxy", "session", "producer", "sequence")
    shown = [f"{name}={getattr(record, name)}" for name in fields if hasattr(record, name)]
    for name in ("expression", "expressions", "installation", "installations"):
        if hasattr(record, name):
            shown.append(f"{name}={getattr(record, name)}")
    return " ".join(shown)
