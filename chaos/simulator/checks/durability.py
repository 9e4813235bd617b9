"""Whether what a proxy tells is durable by then: the law of `proxy/core/durability_law.py`, looked at from outside.

The evidence is what the plain parts have - disk, changelog, journal, log - and never what the proxy believes to have
written. Where something may have changed again since, the evidence is weaker: that there is any trace of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, assert_never

import msgspec

from chaos.simulator.environment.environment import Process
from handover.target import TargetState
from proxy.core.durability_law import LAW, Durable
from proxy.core.effects import ClaimRow, CreateRow
from proxy.session.role import Role
from waypost.checkpoint import Descriptor, SubscriptionRow
from waypost.facts import FactKind
from waypost.identity import SiteId
from waypost.messages import (
    AccessChanged,
    Acknowledged,
    Attached,
    Attested,
    BecameEffective,
    Forgotten,
    Gap,
    KeysChanged,
    Subscribed,
    Unsubscribed,
)

if TYPE_CHECKING:
    from proxy.session.session import Session

PROMISES = (FactKind.EFFECTIVE, FactKind.RESTATED)


class Statement:
    """One message to a client, of a session that the proxy serves.

    Args:
        node: the process of the owner, which sends it.
        session: as its engine has it now.
        receiver: the name of the receiver that gets it.
        message: of the protocol, decoded.
    """

    def __init__(self, node: Process, session: Session, receiver: str, message: Any) -> None:
        self._node = node
        self._session = session
        self._receiver = receiver
        self._message = message

    def missing(self) -> list[str]:
        """Return the places, sorted and in words, in which the message has to be durable by law, and is not.

        Empty if the law (`proxy/core/durability_law.py`) is kept, or demands nothing of such a message. Store and
        changelog count as kept where the session was deleted meanwhile.
        """
        law = LAW.get(type(self._message), frozenset())
        return sorted(where.value for where in law if not self._is_durable(where))

    def _is_durable(self, where: Durable) -> bool:
        match where:
            case Durable.STORE:
                return self._shows(self._stored())
            case Durable.CHANGELOG:
                return self._shows(self._checkpoint_of(self._node.site))
            case Durable.STORE_OR_CHANGELOG:
                sites = map(SiteId, self._node.world.changelogs)
                return any(map(self._shows, [self._stored(), *map(self._checkpoint_of, sites)]))
            case Durable.JOURNAL:
                return self._is_journalled()
            case Durable.SITE_LOG:
                return is_logged(self._node, self._message)
            case _:
                assert_never(where)

    def _stored(self) -> Descriptor | None:
        kept = self._node.store.descriptors.get(self._session.id)
        return None if kept is None else msgspec.json.decode(kept, type=Descriptor)

    def _checkpoint_of(self, site: SiteId) -> Descriptor | None:
        latest = self._node.world.changelogs[site].latest(self._session.id)
        return latest[0].descriptor if latest else None

    def _is_deleted(self) -> bool:
        """Tell whether the session was deleted meanwhile: then nothing needs to show what its last owner tells."""
        row = self._node.world.registry.owner(self._session.id)
        return row is not None and row.is_later_generation_than(self._session.epoch)

    def _shows(self, descriptor: Descriptor | None) -> bool:
        if self._is_deleted():
            return True
        if descriptor is None:
            return False
        return _SHOWS[type(self._message)](self._session, descriptor, self._message, self._receiver)

    def _is_journalled(self) -> bool:
        name, message = self._session.id, self._message
        facts = [fact for fact in self._node.world.journal if fact.session == name]
        if isinstance(message, Attested):
            writer = f"receiver/{name}/{self._receiver}/"
            facts = [fact for fact in self._node.world.journal if fact.writer.startswith(writer)]
            return any(fact.number >= message.number for fact in facts)
        if isinstance(message, Gap):
            return any(fact.kind == FactKind.GAP and fact.origin == message.origin for fact in facts)
        announced = {
            origin
            for fact in facts
            if fact.kind in PROMISES and fact.subscription == message.subscription
            for origin in fact.frontier
        }
        return announced.issuperset(message.above)


def is_logged(node: Process, message: Acknowledged) -> bool:
    """Tell whether the proxy's site log has all offsets that are acknowledged to a producer.

    True also if the log has ever lost its end: it proves nothing then.
    """
    log = node.world.logs[node.site]
    return Durable.SITE_LOG not in LAW[Acknowledged] or log.losses > 0 or max(message.offsets, default=-1) < len(log)


def claim_is_durable(node: Process, claim: CreateRow | ClaimRow) -> bool:
    """Tell whether a changelog has the first checkpoint of the session that a claim makes.

    True also for a claim that makes no session: a deletion, one in the place of an owner, or one of a session that the
    process has already. The law is in `proxy/core/durability_law.py`.
    """
    new = claim.ownership if isinstance(claim, CreateRow) else claim.new
    expected = None if isinstance(claim, CreateRow) else claim.expected
    is_new = not new.deleted and (expected is None or expected.deleted)
    if node.engine is not None and claim.session in node.engine.sessions:
        # The registry has lost its row.
        is_new = False
    if not is_new or Durable.CHANGELOG not in LAW[CreateRow]:
        return True
    # One whose row is lost may be in another site's.
    return any(changelog.latest(claim.session) for changelog in node.world.changelogs.values())


def commit_is_stored(node: Process, claim: ClaimRow) -> bool:
    """Tell whether a process has on its disk the staged copy of a session that a claim commits.

    True also for a claim that commits no staged copy: an activation, a failover, a deletion. A copy is staged until its
    transfer ends, and then an orphan, which may commit after all. The law is in `proxy/core/durability_law.py`.
    """
    assert node.engine is not None
    copy, into = node.engine.sessions.get(claim.session), node.engine.transfers.targets.running.get(claim.session)
    is_handed_over = into is not None and into.machine.state is TargetState.COMMITTING
    is_orphan = copy is not None and copy.role is Role.ORPHAN and copy.epoch == claim.new.epoch
    if not (is_handed_over or is_orphan) or Durable.STORE not in LAW[ClaimRow]:
        return True
    stored = node.store.sessions.get(claim.session)
    return stored is not None and stored.epoch == claim.new.epoch


def _rows(descriptor: Descriptor, name: str) -> list[SubscriptionRow]:
    return [row for row in descriptor.subscriptions if row.id == name]


def _subscribed(session: Session, descriptor: Descriptor, message: Subscribed, _: str) -> bool:
    """A row of it; unless it has ended since, and perhaps been forgotten, of which another answer tells."""
    return bool(_rows(descriptor, message.subscription)) or message.subscription not in session.subscriptions


def _unsubscribed(session: Session, descriptor: Descriptor, message: Unsubscribed, _: str) -> bool:
    """No row of it is active; but one that was made since, of which another answer tells."""
    now = session.subscriptions.get(message.subscription)
    active = [row.generation for row in _rows(descriptor, message.subscription) if row.end is None]
    return not active or (now is not None and active == [now.generation])


def _promised(_: Session, descriptor: Descriptor, message: BecameEffective, __: str) -> bool:
    rows = _rows(descriptor, message.subscription)
    return all(any(origin in row.promised for row in rows) for origin in message.above)


def _registered(_: Session, descriptor: Descriptor, __: Attached, receiver: str) -> bool:
    return receiver in descriptor.receivers


def _forgotten(session: Session, descriptor: Descriptor, message: Forgotten, _: str) -> bool:
    return message.receiver in session.receivers or message.receiver not in descriptor.receivers


def _access(session: Session, descriptor: Descriptor, _: AccessChanged, __: str) -> bool:
    return len(descriptor.access) == len(session.access) or not descriptor.access or not session.access


def _keys(session: Session, descriptor: Descriptor, _: KeysChanged, receiver: str) -> bool:
    return receiver in descriptor.receivers or receiver not in session.receivers


_SHOWS: Mapping[type, Callable[[Session, Descriptor, Any, str], bool]] = {
    Subscribed: _subscribed,
    Unsubscribed: _unsubscribed,
    BecameEffective: _promised,
    Attached: _registered,
    Forgotten: _forgotten,
    AccessChanged: _access,
    KeysChanged: _keys,
}
"""What shows that a descriptor knows of it."""
