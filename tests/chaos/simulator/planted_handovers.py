"""Bugs in handovers, and in who owns a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handover import machine, source, target
from handover.messages import Aborted, Frozen, Prepare, Refused, ToSource
from handover.source import SourceState
from handover.target import TargetState, TargetTransfer
from proxy import incoming, outgoing
from proxy.context import Context
from proxy.engine import Engine
from proxy.incoming import Targets
from proxy.outgoing import Outgoing, Sources
from proxy.ownership import Claims, Wish
from proxy.retention import Matched
from proxy.session import Role, Session
from proxy.stored import Stored
from tests.chaos.simulator.planting import Plant, replaced, rows
from waypost.identity import Origin, Ownership, ProxyId, SessionId

_S, _T = SourceState, TargetState
_arrive, _decide, _named = Session.arrive, Claims._decide, TargetTransfer.__init__
_owner_changed = Engine._owner_changed
_settle_orphan, _sweep = Claims._settle_orphan, Claims._sweep


def _freeze_without_gates(self: Session, site: Mapping[Origin, int]) -> dict[Origin, int]:
    self.become(Role.FROZEN)
    return self.frontier(site)


def _read_past_the_transfer(self: Engine, session: SessionId, current: Ownership | None) -> None:
    here = self.context.sessions.get(session)
    if here is not None and here.role is Role.FROZEN and current is not None and current.epoch > here.epoch:
        self.claims.release(here, current)
    else:
        _owner_changed(self, session, current)


def _arrive_frozen(self: Session, stored: Stored, matched: Matched) -> bool:
    if self.role is not Role.FROZEN:
        return _arrive(self, stored, matched)
    self.accept(stored, matched)
    return True


def _serving_or_frozen(self: Context, session: SessionId) -> Session | None:
    found = self.sessions.get(session)
    served = found is not None and found.role in (Role.SERVING, Role.FROZEN) and self.may_serve()
    return found if served else None


def _why_not(self: Sources, asker: ProxyId, message: Prepare, running: Outgoing | None) -> outgoing._No | None:
    session = self._context.sessions.get(message.session)
    here = session is not None and session.role in (Role.SERVING, Role.FROZEN)
    return None if here else outgoing._No("the session is not here")


def _named_alike(self: TargetTransfer, session: SessionId, source: Ownership, proxy: ProxyId, *rest: Any) -> None:
    _named(self, session, source, proxy, f"{proxy}-{session}", *rest[1:])


def _wake_as_it_was(self: Claims, session: Session, *, waited_for: bool = False) -> None:
    if self._context.may_serve():
        self.serve(session, session.epoch, "restart")


def _sweep_the_own_only(self: Claims, mine: Any, rows: Any, holds: Any) -> None:
    _sweep(self, mine, (), holds)


def _decide_for_others(self: Claims, session: SessionId, current: Ownership, wish: Wish) -> None:
    if session not in self._context.sessions and current.proxy == self._context.proxy:
        self._give_up(session, "the session is not here")
    else:
        _decide(self, session, current, wish)


def _settle_any_orphan(self: Claims, session: Session, current: Ownership | None) -> None:
    if current is not None and current.proxy == self._context.proxy:
        session.become(Role.DORMANT)
        session.epoch = max(session.epoch, current.epoch)
        self.wake(session)
    elif current is not None:
        self.drop(session)


def _settle_no_orphan(self: Claims, session: Session, current: Ownership | None) -> None:
    if current is not None:
        self.drop(session)


def _settle_the_very_epoch_only(self: Claims, session: Session, current: Ownership | None) -> None:
    if current is not None and current.proxy != self._context.proxy:
        self.drop(session)
        self._unavailable(session.id, "the session was not handed over")
    else:
        _settle_orphan(self, session, current)


def _say_nothing(self: Sources, sender: ProxyId, message: ToSource) -> None:
    if isinstance(message, Prepare):
        self.prepare(sender, message)
        return
    out = self.running.get(message.session)
    if out is not None and out.machine.transfer == message.transfer and out.machine.target == sender:
        self.feed(out, message)


PLANTS = (
    Plant(
        "buries the living",
        "an owner is taken over although the watch has not told of its row: perhaps an earlier life of it ended",
        replaced(Claims, "_is_gone", lambda self, session, owner: True),
        ("PHANTOM", "STUCK"),
        kept=("5010098", "5042786"),
        rule=26,
    ),
    Plant(
        "no barrier at the source",
        "a frozen source goes on to store what comes",
        replaced(Session, "arrive", _arrive_frozen),
        ("CUT",),
        (21, 56, 82),
    ),
    Plant(
        "served while frozen",
        "a frozen source takes acknowledgements and changes as if it served",
        replaced(Context, "serving", _serving_or_frozen),
        ("CUT",),
        (34, 56, 88),
    ),
    Plant(
        "thaw without the claim",
        "a source that tires serves on without the compare-and-set",
        rows(
            source.TABLE,
            {(_S.FROZEN, each): ((source.Thaw,), _S.ENDED) for each in (machine.Deadline, machine.PeerGone, Aborted)},
        ),
        ("SIDES",),
        (10, 108, 152),
        rule=1,
    ),
    Plant(
        "delete before release",
        "the source deletes the session when it has sent the cut, and does not wait for the registry",
        rows(
            source.TABLE,
            {(_S.WAITING, source.Passed): ((source.Freeze, source.SendFrozen, source.Release), _S.ENDED)},
        ),
        ("RELEASE",),
        (0, 1, 4),
    ),
    Plant(
        "two targets",
        "a source that has frozen for one target begins to hand over to another one",
        replaced(Sources, "_why_not", _why_not),
        ("FAULT",),
        (137, 174, 258),
    ),
    Plant(
        "reuse of a transfer id",
        "a target gives all its transfers of a session one id",
        replaced(TargetTransfer, "__init__", _named_alike),
        ("STUCK",),
        (12, 32, 70),
    ),
    Plant(
        "no barrier at the target",
        "the target claims the session before it has stored it",
        rows(
            target.TABLE,
            {
                (_T.READY, Frozen): ((target.Merge, machine.Claim), _T.COMMITTING),
                (_T.COMMITTING, target.Staged): ((), _T.COMMITTING),
                (_T.COMMITTING, target.StoreFailed): ((), _T.COMMITTING),
            },
        ),
        ("STAGE",),
        (0, 1, 2),
    ),
    Plant(
        "adopted without the claim",
        "the target serves what it has stored without the compare-and-set",
        rows(target.TABLE, {(_T.STAGING, target.Staged): ((target.Adopt,), _T.ENDED)}),
        ("EPOCH", "SIDES"),
        (0, 1, 2),
        rule=1,
    ),
    Plant(
        "chunks missing",
        "the target merges although chunks are missing",
        replaced(incoming, "_whole", lambda into, frozen: into.shadow is not None),
        ("LOST",),
        (34, 75, 153),
    ),
    Plant(
        "chunks as they come",
        "the target takes chunks in any order",
        replaced(incoming, "_misfit", lambda into, chunk: ""),
        ("LOST",),
        (291, 297, 332),
    ),
    Plant(
        "restart at the old epoch",
        "a proxy that starts serves what its store has, at the epoch that it had",
        replaced(Claims, "wake", _wake_as_it_was),
        ("EPOCH",),
        (2, 3, 14),
        rule=1,
    ),
    Plant(
        "no sweep",
        "nobody looks for rows that name a proxy without the session",
        replaced(Claims, "_sweep", _sweep_the_own_only),
        ("SIDES", "STUCK"),
        (2, 12, 17),
        rule=2,
    ),
    Plant(
        "own row not believed",
        "a proxy that the row names, and that has nothing, does nothing",
        replaced(Claims, "_decide", _decide_for_others),
        ("SIDES", "STUCK"),
        (2, 5, 10),
        rule=2,
    ),
    Plant(
        "staged copy of any epoch",
        "a staged copy is served whatever epoch the row has",
        replaced(Claims, "_settle_orphan", _settle_any_orphan),
        ("LOST", "STUCK"),
        (12, 88, 194),
        rule=2,
    ),
    Plant(
        "staged copy dropped",
        "a staged copy whose transfer is gone is deleted, also if the row names it",
        replaced(Claims, "_settle_orphan", _settle_no_orphan),
        ("DROP",),
        stories=("target_crashes_after_the_commit",),
        rule=2,
    ),
    Plant(
        "staged copy given up",
        "a staged copy whose transfer is gone is deleted while the row still names the source",
        replaced(Claims, "_settle_orphan", _settle_the_very_epoch_only),
        ("NEVER",),
        stories=("staged_copy_without_its_transfer_commits",),
        rule=5,
    ),
    Plant(
        "no margin",
        "a proxy serves until it hears that its lease has ended",
        replaced(Context, "may_serve", lambda self: self.fence_at_ms is not None),
        ("LEASE",),
        (90, 259, 286),
        rule=3,
    ),
    Plant(
        "lease not watched",
        "a target that has not staged waits on although the source's lease has ended",
        rows(
            target.TABLE,
            {(state, machine.PeerGone): ((), state) for state in (_T.PREPARING, _T.SHADOWING, _T.READY)},
        ),
        ("NEVER",),
        stories=("source_dies_before_the_target_has_staged",),
        rule=4,
    ),
    Plant(
        "staged and given up",
        "a target drops its staged copy when the source's lease ends",
        rows(
            target.TABLE,
            {(state, machine.PeerGone): ((target.Discard,), _T.ENDED) for state in (_T.STAGING, _T.COMMITTING)},
        ),
        ("NEVER",),
        stories=("source_dies_after_the_target_has_staged",),
        rule=4,
    ),
    Plant(
        "silence for a refusal",
        "a source does not answer about a transfer that it does not know",
        replaced(Sources, "message", _say_nothing),
        ("NEVER",),
        stories=("refused_ready_of_a_transfer_that_is_over",),
        rule=5,
    ),
    Plant(
        "silence to a frozen source",
        "a target does not answer about a transfer that it does not know",
        replaced(Targets, "_unknown_transfer", lambda self, sender, message: None),
        ("NEVER",),
        stories=("frozen_for_a_target_that_began_anew",),
        rule=5,
    ),
    Plant(
        "staged and refused",
        "a target drops its staged copy when the source refuses",
        rows(
            target.TABLE,
            {(state, Refused): ((target.Discard,), _T.ENDED) for state in (_T.STAGING, _T.COMMITTING)},
        ),
        ("DROP",),
        stories=("refused_while_the_commit_is_not_known",),
        rule=5,
    ),
    Plant(
        "no gates at the source",
        "a frozen source closes no gates, and does not know from where on it missed something",
        replaced(Session, "freeze", _freeze_without_gates),
        ("LOST",),
        stories=("source_crashes_while_frozen",),
    ),
    Plant(
        "frozen and let go of",
        "a frozen session is let go of past its transfer, which ends it once more",
        replaced(Engine, "_owner_changed", _read_past_the_transfer),
        ("FAULT",),
        kept=("84080264",),
    ),
)
