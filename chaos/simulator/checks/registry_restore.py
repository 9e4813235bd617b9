"""A registry that is put back to an older copy: when that may be, and what is promised then (F70).

Proxies run, and know better: whoever serves a session writes its row again. A session that was made since the copy, and
that nobody serves, goes on from its checkpoint; where no changelog that can be read has one, it may be made anew, and
is another one then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.environment.environment import Environment
from proxy.session.session import Role
from waypost.identity import Ownership, ProxyId, SessionId, SiteId

if TYPE_CHECKING:
    from chaos.simulator.environment.fake_backends import PlainChangelog, PlainRegistry
    from federation.ports import OwnerChanged
    from waypost.checkpoint import Checkpoint


class RegistryRestores:
    """What is still to be corrected in a registry that was put back."""

    def __init__(self, world: Environment) -> None:
        self._world = world
        self._lost: set[SessionId] = set()
        """Sessions that it knows nothing of since, and that may be made anew."""
        self._known: dict[SessionId, Ownership] = {}
        """What it had of sessions before, until it has that again or something later."""
        self._disturbed: dict[SessionId, str] = {}
        """Sessions whose row perhaps nobody corrects."""

    def may_put_back(self, copy: PlainRegistry) -> bool:
        """Tell whether anything is promised: a session that was deleted since may be there again, and a row of one
        whose owner does not run is corrected by nobody.
        """
        if not all(self._knows_its_log(site) for site in self._world.logs):
            return False
        if not all(node.is_watch_current for node in self._world.nodes.values()):
            return False
        rows, floor = self._world.registry.owners, self._world.registry.generation_floor
        if floor != copy.generation_floor:
            return False
        for session in rows.keys() | copy.owners.keys():
            here, there = rows.get(session), copy.owners.get(session)
            if here is None or here.deleted or (there is not None and there.generation != here.generation):
                return False
            owner = self._known.get(session, here)
            if _has_row(copy, session) and not self._world.nodes[owner.proxy].could_act_for(0):
                return False
        return True

    def _knows_its_log(self, site: SiteId) -> bool:
        """Tell whether a proxy of the site can tell the registry again how far its log was seen."""
        here = [node for node in self._world.nodes.values() if node.site == site and node.engine is not None]
        return any(node.could_act_for(0) for node in here) and not any(node.appends_wait for node in here)

    def put_back(self, copy: PlainRegistry) -> None:
        """The registry has what the copy has."""
        rows = self._world.registry.owners | self._known
        self._lost |= {session for session in rows if not _has_row(copy, session)}
        self._known = {session: row for session, row in rows.items() if copy.owners.get(session) != row}

    def row_changed(self, event: OwnerChanged) -> None:
        """Compare a session's row with what the registry had before it went back."""
        known, now = self._known.get(event.session), event.ownership
        if known is not None and now is not None and (now == known or now.epoch > known.epoch):
            del self._known[event.session]
            if now.generation == known.generation and self._has_copy(now.proxy, event.session):
                # Else it may be made anew at that very epoch.
                self._lost.discard(event.session)

    def _has_copy(self, proxy: ProxyId, session: SessionId) -> bool:
        node = self._world.nodes.get(proxy)
        return node is not None and node.engine is not None and session in node.engine.sessions

    def disturbed(self, what: str) -> None:
        """Before all is corrected no proxy is to end, nor to begin with what it had (docs/operating.md), nor to lose
        touch with the registry.
        """
        for session in self._known:
            self._disturbed[session] = f"{what} before the row of {session} was corrected"
            if session not in self._lost:
                self._world.void = self._disturbed[session]

    def names(self, session: SessionId, owner: Ownership) -> bool:
        """Tell whether the registry names this owner, and did so before it was put back."""
        return self._world.registry.owner(session) == owner == self._known.get(session, owner)

    def has_lost(self, session: SessionId) -> bool:
        """Tell whether the registry knows nothing of the session since it was put back."""
        return session in self._lost

    def recorded(self, checkpoint: Checkpoint, changelog: PlainChangelog) -> None:
        """A checkpoint is to be written: no session is made anew where its site's changelog has it (rule 28)."""
        if not checkpoint.is_first or checkpoint.session not in self._lost:
            return
        for known in changelog.latest(checkpoint.session):
            if known.serial > 0 and checkpoint.rank > known.rank:
                self._world.add_violation(
                    f"ANEW {checkpoint.session} is made, and the changelog has it at {known.epoch}"
                )

    def began(self, proxy: ProxyId, session: SessionId, *, is_made: bool) -> bool:
        """A proxy serves the session from now on; tell whether it is made anew, in the place of one that was lost.

        One that goes on after its owner ended may go on from what was before that owner.
        """
        world, is_anew = self._world, is_made and session in self._lost
        why = self._disturbed.pop(session, "")
        if why and not is_made:
            world.void = why
        for node in world.nodes.values() if is_anew else ():
            if node.engine is not None and node.proxy != proxy and node.could_act_for(node.settings.rows_back_ms):
                copy = node.engine.sessions.get(session)
                if copy is not None and copy.role is Role.SERVING:
                    world.add_violation(f"ANEW {proxy} makes {session}, and {node.proxy} serves it at {copy.epoch}")
        self._lost.discard(session)
        if is_made:
            self._known.pop(session, None)
        return is_anew


def _has_row(registry: PlainRegistry, session: SessionId) -> bool:
    row = registry.owners.get(session)
    return row is not None and not row.deleted
