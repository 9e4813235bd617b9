"""A registry that is put back to an older copy: when that may be, and what is promised then (F70).

Proxies run, and know better: whoever serves a session writes its row again. A session that was made since the copy, and
that nobody serves, goes on from its checkpoint; where no changelog that can be read has one, it may be made anew, and
is another one then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.simulator.environment.environment import Environment
from proxy.session.role import Role
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
        """Tell whether the promises still hold if the registry is put back to this copy now.

        They do not where a deleted session would be there again, where a row that is lost or changed has an owner that
        cannot correct it now, nor where a watch or the state of a log is not up to date.
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
        """Note which rows a copy lacks or has otherwise; the registry is not changed.

        Call this just before the registry is put back to the copy.
        """
        rows = self._world.registry.owners | self._known
        self._lost |= {session for session in rows if not _has_row(copy, session)}
        self._known = {session: row for session, row in rows.items() if copy.owners.get(session) != row}

    def row_changed(self, event: OwnerChanged) -> None:
        """Note that a session's row has changed.

        A row is corrected once it is as it was before the registry was put back, or of a later epoch.
        """
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
        """Note that a proxy ends, starts, stalls or loses touch with the registry (docs/operating.md).

        Nothing happens if all rows were corrected since the registry was put back. Else the promises may not hold for a
        session whose row was not corrected, and `World.void` gets the reason: at once, or, where the row was lost, once
        a proxy goes on with the session.

        Args:
            what: the disturbance, in words, for the reason.
        """
        for session in self._known:
            self._disturbed[session] = f"{what} before the row of {session} was corrected"
            if session not in self._lost:
                self._world.void = self._disturbed[session]

    def names(self, session: SessionId, owner: Ownership) -> bool:
        """Tell whether the registry names this owner at this epoch.

        Where a row was not corrected since the registry was put back, the row before that has to name the same owner
        and epoch.
        """
        return self._world.registry.owner(session) == owner == self._known.get(session, owner)

    def has_lost(self, session: SessionId) -> bool:
        """Tell whether the session's row was lost when the registry was put back, and was not corrected since."""
        return session in self._lost

    def recorded(self, checkpoint: Checkpoint, changelog: PlainChangelog) -> None:
        """Check, before it is written, the first checkpoint of a session whose row was lost with the registry.

        The changelog may have no checkpoint of an owner of that session with a lower rank. Other checkpoints are not
        looked at. A breach (handover rule 28) becomes a violation of the world.

        Args:
            checkpoint: the one to be written.
            changelog: where it is to be written.
        """
        if not checkpoint.is_first or checkpoint.session not in self._lost:
            return
        for known in changelog.latest(checkpoint.session):
            if known.serial > 0 and checkpoint.rank > known.rank:
                self._world.add_violation(
                    f"ANEW {checkpoint.session} is made, and the changelog has it at {known.epoch}"
                )

    def began(self, proxy: ProxyId, session: SessionId, *, is_made: bool) -> bool:
        """Note that a proxy serves a session from now on. One that is made anew, in the place of one whose row was lost
        by the restore, must be served by no other proxy that has a lease and was in touch with the registry for
        `row_repair_ms`; a breach becomes a violation of the world.

        A session that goes on after its owner ended may go on from what was before that owner: if that was noted by
        :meth:`disturbed`, no promise holds any more, and the world has the reason (`World.void`).

        Args:
            proxy: the proxy that serves the session.
            session: its name.
            is_made: whether the proxy has created the session.

        Returns:
            Whether the session is made anew, in the place of one whose row was lost.
        """
        world, is_anew = self._world, is_made and session in self._lost
        why = self._disturbed.pop(session, "")
        if why and not is_made:
            world.void = why
        for node in world.nodes.values() if is_anew else ():
            if node.engine is not None and node.proxy != proxy and node.could_act_for(node.settings.row_repair_ms):
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
