"""Who may have a proxy's name: one live instance. Pure; the registries ask it inside of their compare-and-set.

An *instance* is a proxy with its data folder: its id is made once, and is kept there. What may replace a row that is
still under a lease is only what certainly comes after it: the same instance, which says which incarnation it was before
and that this one has ended. Everybody else waits until the lease ends. So a crash costs no time, a second proxy of that
name cannot end the first, and two supervisors that start both again and again do not make the name go to and fro.
"""

from __future__ import annotations

from collections.abc import Collection

from federation.ports import ProxyRow
from waypost.errors import NameTaken
from waypost.identity import Incarnation

HINT = "give every proxy a name of its own; if this one is to take its place: waypost serve --replace"


class NameInUse(NameTaken):
    """A proxy whose lease lasts has the name. `holder` is its row."""

    def __init__(self, holder: ProxyRow) -> None:
        super().__init__(
            f"another process runs as proxy {holder.proxy}, at {holder.url}, and goes on", field="name", hint=HINT
        )
        self.holder = holder


def check_name(
    row: ProxyRow, holder: ProxyRow | None, *, earlier: Collection[Incarnation] | None, replace: bool
) -> None:
    """Raises NameInUse: `row` may not take its name from `holder`; the arguments are those of Registry.announce."""
    if holder is None or replace:
        return
    if holder.instance == row.instance and (earlier is None or holder.incarnation in earlier):
        return
    raise NameInUse(holder)
