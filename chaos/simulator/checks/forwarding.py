"""What site logs have of each other: no notification that the site never wanted, and none again without a cause."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from waypost.notification import read_body
from waypost.records import FiltersRequested, Forwarded, InterestRegistered, LinkLed, Severed, TreeEntered
from waypost.subscription import parse

if TYPE_CHECKING:
    from chaos.simulator.environment.environment import Environment
    from chaos.simulator.environment.fake_backends import PlainLog

CAUSES = (LinkLed, Severed, TreeEntered)
"""What begins a link anew, so that the records that were under way may come once more."""


def check_forwarding(world: Environment) -> list[str]:
    """Return the violations in the forwarded records of all site logs; empty: there are none.

    FLOOD: a notification that its site never wanted. REPEAT: one that came more often than links began anew.

    A log that has lost records is left out: with them the requests may be gone by which others came.
    """
    whole = {site: log for site, log in world.logs.items() if not log.first and not log.losses and not log.was_damaged}
    return [f"{what} in the log of {site}" for site, log in whole.items() for what in _wrong(log)]


def _wrong(log: PlainLog) -> list[str]:
    wanted: set[str] = set()
    times: Counter[tuple[str, int]] = Counter()
    causes, found = 0, []
    for offset, record in log.everything():
        match record:
            case InterestRegistered():
                wanted.update(record.expressions)
            case FiltersRequested():
                wanted.update(record.installations)
            case Forwarded():
                times[record.origin, record.offset] += 1
                attributes = read_body(record.body)
                if not any(parse(text).matches(attributes) for text in wanted):
                    found.append(f"FLOOD {record.origin}:{record.offset} at {offset}, which nobody there ever wanted,")
            case _:
                causes += isinstance(record, CAUSES)
    found += [f"REPEAT {coordinate} is {n} times" for coordinate, n in times.items() if n > 1 + causes]
    return found
