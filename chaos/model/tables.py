"""The transition tables and the changes of role of the code itself, by the names of what is in them."""

from __future__ import annotations

from collections.abc import Mapping

from handover import source, target
from proxy.session.role import CHANGES
from waypost.table_machine import Table

Named = Mapping[tuple[str, str], tuple[tuple[str, ...], str]]


def _named(table: Table) -> Named:
    return {
        (state.name, given.__name__): (tuple(effect.__name__ for effect in effects), after.name)
        for (state, given), (effects, after) in table.items()
    }


SOURCE: Named = _named(source.TABLE)
TARGET: Named = _named(target.TABLE)
ROLES = frozenset((before.name, after.name) for before, after in CHANGES)
