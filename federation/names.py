"""Ownership of proxy names: one live instance has a name. Pure; the registries call it in their compare-and-set.

An *instance* is a proxy with its data folder, which keeps its id. Only a certain successor may replace a row that is
still under a lease: the same instance, which states its earlier incarnation, and that this one has ended. Every other
proxy waits until the lease ends. So a crash costs no time, a second proxy of that name cannot end the first, and two
supervisors that restart both again and again do not make the name alternate.
"""

from __future__ import annotations

from collections.abc import Collection

from federation.ports import ProxyRow
from waypost.errors import NameTaken
from waypost.identity import Incarnation

HINT = "give every proxy a name of its own; if this one is to take its place: waypost serve --replace"


class NameInUse(NameTaken):
    """Another proxy has the name under a lease; `holder` is its row."""

    def __init__(self, holder: ProxyRow) -> None:
        super().__init__(
            f"another process runs as proxy {holder.proxy}, at {holder.url}, and goes on", field="name", hint=HINT
        )
        self.holder = holder


def check_name(
    row: ProxyRow, holder: ProxyRow | None, *, earlier: Collection[Incarnation] | None, replace: bool
) -> None:
    """Check that the proxy of `row` may take its name from `holder`, the name's present row; None: nobody has the name.

    Args:
        row: the row of the proxy that announces itself.
        holder: the row under a lease that has the name and was not replaced.
        earlier: incarnations of this instance that have ended; None: all of them have.
        replace: allow the name to be taken from any holder.

    Raises:
        NameInUse: another instance, or an incarnation that is not among the earlier ones, has the name.
    """
    if holder is None or replace:
        return
    if holder.instance == row.instance and (earlier is None or holder.incarnation in earlier):
        return
    raise NameInUse(holder)
