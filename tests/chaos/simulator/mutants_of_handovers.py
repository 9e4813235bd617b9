"""Bugs in handovers, and in who owns a session."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

from handover import acquisition, acquisition_rows, machine, source, target
from handover import acquisition_inputs as inputs
from handover.acquisition import AcquisitionState
from handover.acquisition_effects import CommitCopy
from handover.messages import Aborted, Chunk, Frozen, Prepare, ToSource, TransferRefused
from handover.source import SourceState
from handover.target import TargetState, TargetTransfer
from proxy.core.lease import Lease
from proxy.core.session_table import SessionTable
from proxy.engine import Engine
from proxy.ownership import incoming_transfers, outgoing_transfers
from proxy.ownership.acquisition_answers import AcquisitionAnswers
from proxy.ownership.acquisitions import Acquisitions
from proxy.ownership.incoming_transfers import Incoming, IncomingTransfers
from proxy.ownership.outgoing_transfers import Outgoing, OutgoingTransfers
from proxy.ownership.row_checks import RowChecks
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.session.stored_notification import StoredNotification
from proxy.session.subscription import Matched
from tests.chaos.simulator.mutation import Mutant, replaced, rows
from waypost.facts import OwnedCause
from waypost.identity import Epoch, Origin, Ownership, ProxyId, SessionId
from waypost.table_machine import Deadline

_S, _T, _A = SourceState, TargetState, AcquisitionState
_mark_changed = SessionTable.mark_changed
_arrive, _owned_input, _named = Session.arrive, AcquisitionAnswers._owned_input, TargetTransfer.__init__
_owner_changed, _take_chunk = Engine._owner_changed, IncomingTransfers._take_chunk
_orphan_input, _sweep = acquisition_rows.orphan_input, RowChecks._sweep


def _freeze_without_gates(self: Session, site: Mapping[Origin, int]) -> dict[Origin, int]:
    self.become(Role.FROZEN)
    return self.frontier(site)


def _read_past_the_transfer(self: Engine, session: SessionId, current: Ownership | None) -> None:
    here = self.sessions.get(session)
    if here is not None and here.role is Role.FROZEN and current is not None and current.epoch > here.epoch:
        self.served_sessions.release(here, current)
    else:
        _owner_changed(self, session, current)


def _arrive_frozen(self: Session, stored: StoredNotification, matched: Matched) -> bool:
    if self.role is not Role.FROZEN:
        return _arrive(self, stored, matched)
    self.accept(stored, matched)
    return True


def _serving_or_frozen(self: SessionTable, session: SessionId) -> Session | None:
    found = self.get(session)
    served = found is not None and found.role in (Role.SERVING, Role.FROZEN) and self._lease.may_serve()
    return found if served else None


def _why_not(
    self: OutgoingTransfers, requester: ProxyId, message: Prepare, running: Outgoing | None
) -> outgoing_transfers._Refusal | None:
    session = self._sessions.get(message.session)
    here = session is not None and session.role in (Role.SERVING, Role.FROZEN)
    return None if here else outgoing_transfers._Refusal("the session is not here")


def _named_alike(self: TargetTransfer, session: SessionId, source: Ownership, proxy: ProxyId, *rest: Any) -> None:
    _named(self, session, source, proxy, f"{proxy}-{session}", *rest[1:])


def _activate_as_it_was(self: Acquisitions, copy: Session, *, is_waited_for: bool = False) -> None:
    if self._env.lease.may_serve():
        self._served.serve(copy, copy.epoch, OwnedCause.RESTART)


def _sweep_the_own_only(self: RowChecks, owned: Any, rows: Any, holds: Any) -> None:
    _sweep(self, owned, (), holds)


def _owned_input_for_others(self: AcquisitionAnswers, session: SessionId, row: Ownership) -> object:
    if row.proxy == self._env.proxy:
        return inputs.Unavailable(inputs.RetryLater("the session is not here"))
    return _owned_input(self, session, row)


def _no_orphan_input(
    epoch: Epoch, proxy: ProxyId, source: ProxyId | None, row: Ownership | None, *, read: bool, is_last: bool
) -> object:
    return inputs.Unavailable(inputs.RetryLater("no row")) if row is None else inputs.CopySuperseded()


def _orphan_input_of_the_very_epoch(
    epoch: Epoch, proxy: ProxyId, source: ProxyId | None, row: Ownership | None, *, read: bool, is_last: bool
) -> object:
    if row is not None and row.proxy != proxy:
        return inputs.CopySuperseded()
    return _orphan_input(epoch, proxy, source, row, read=read, is_last=is_last)


def _take_chunk_and_wait_anew(self: IncomingTransfers, into: Incoming, chunk: Chunk) -> None:
    _take_chunk(self, into, chunk)
    into.progress_ms = self._env.time.now_ms


@contextmanager
def _answers_outlive_leases() -> Iterator[None]:
    """What was asked under one lease counts under the next, whatever has changed since: no key is compared."""

    def why_stale(self: Acquisitions, running: object, key: acquisition.ReplyKey) -> acquisition.StaleReply | None:
        return None if running is not None else acquisition.StaleReply.ANOTHER_ATTEMPT

    with (
        mock.patch.object(Acquisitions, "_why_stale", why_stale),
        mock.patch.object(Acquisitions, "_why_void", lambda self, running: None),
        mock.patch.object(Acquisitions, "fence", lambda self: None),
    ):
        yield


def _say_nothing(self: OutgoingTransfers, sender: ProxyId, message: ToSource) -> None:
    if isinstance(message, Prepare):
        self.prepare(sender, message)
        return
    out = self.running.get(message.session)
    if out is not None and out.machine.transfer == message.transfer and out.machine.target == sender:
        self.feed(out, message)


def _arrive_without_a_gate(self: Session, stored: StoredNotification, matched: Matched) -> bool:
    # A frozen session closes a gate at the first match of an origin, too (F127).
    return not (self.role is Role.FROZEN and stored.origin not in self.gates) and _arrive(self, stored, matched)


@contextmanager
def _no_gates_at_the_source() -> Iterator[None]:
    with (
        mock.patch.object(Session, "freeze", _freeze_without_gates),
        mock.patch.object(Session, "arrive", _arrive_without_a_gate),
    ):
        yield


def _mark_but_frozen(self: SessionTable, identity: SessionId) -> None:
    session = self.get(identity)
    if session is None or session.role is not Role.FROZEN or not session.gates:
        _mark_changed(self, identity)


MUTANTS = (
    Mutant(
        "answers outlive leases",
        "answers that were asked for something that has changed since are taken all the same",
        _answers_outlive_leases,
        ("STUCK", "FAULT", "SIDES"),
        (21, 29),
        kept=("5042786", "153"),
    ),
    Mutant(
        "buries the living",
        "an owner is taken over although the watch has not told of its row: perhaps an earlier incarnation of it ended",
        replaced(AcquisitionAnswers, "_is_gone", lambda self, session, owner: True),
        ("PHANTOM", "STUCK"),
        kept=("5010098", "5042786"),
        rule=26,
    ),
    Mutant(
        "no barrier at the source",
        "a frozen source goes on to store what comes",
        replaced(Session, "arrive", _arrive_frozen),
        ("CUT",),
        kept=("mutant-82",),
    ),
    Mutant(
        "forgets what arrives of an origin that was learnt after the freeze",
        "the store has no gate that closes while the session is frozen",
        replaced(SessionTable, "mark_changed", _mark_but_frozen),
        ("LOST",),
        kept=("98014668",),
    ),
    Mutant(
        "served while frozen",
        "a frozen source takes acknowledgements and changes as if it served",
        replaced(SessionTable, "serving", _serving_or_frozen),
        ("CUT",),
        kept=("mutant-523",),
    ),
    Mutant(
        "thaw without the claim",
        "a source that times out serves on without the compare-and-set",
        rows(
            source.TABLE,
            {(_S.FROZEN, kind): ((source.Thaw,), _S.ENDED) for kind in (Deadline, machine.PeerGone, Aborted)},
        ),
        ("SIDES",),
        (901, 1150, 1637),
        rule=1,
    ),
    Mutant(
        "delete before release",
        "the source deletes the session when it has sent the cut, and does not wait for the registry",
        rows(
            source.TABLE,
            {(_S.WAITING, source.Passed): ((source.Freeze, source.SendFrozen, source.Release), _S.ENDED)},
        ),
        ("RELEASE",),
        (0, 1, 4),
    ),
    Mutant(
        "two targets",
        "a source that has frozen for one target begins to hand over to another one",
        replaced(OutgoingTransfers, "_why_not", _why_not),
        ("FAULT",),
        (127, 137, 153),
    ),
    Mutant(
        "reuse of a transfer id",
        "a target gives all its transfers of a session one id",
        replaced(TargetTransfer, "__init__", _named_alike),
        ("STUCK",),
        (76, 1185, 1394),
    ),
    Mutant(
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
    Mutant(
        "no barrier at an orphan",
        "a proxy commits a copy whose transfer has ended before it has stored it",
        rows(acquisition.TABLE, {(_A.CONFIRMING, inputs.NothingFound): ((CommitCopy,), _A.COMMITTING)}),
        ("STAGE",),
        (376,),
    ),
    Mutant(
        "adopted without the claim",
        "the target serves what it has stored without the compare-and-set",
        rows(target.TABLE, {(_T.STAGING, target.Staged): ((target.Adopt,), _T.ENDED)}),
        ("EPOCH", "SIDES"),
        (14, 21, 22),
        rule=1,
    ),
    Mutant(
        "chunks missing",
        "the target merges although chunks are missing",
        replaced(incoming_transfers, "_whole", lambda into, frozen: into.shadow is not None),
        ("LOST",),
        (61, 76, 193),
    ),
    Mutant(
        "chunks as they come",
        "the target takes chunks in any order",
        replaced(incoming_transfers, "_misfit", lambda into, chunk: ""),
        ("LOST",),
        (70, 266, 344),
    ),
    Mutant(
        "restart at the old epoch",
        "a proxy that starts serves what its store has, at the epoch that it had",
        replaced(Acquisitions, "activate", _activate_as_it_was),
        ("EPOCH",),
        (5, 8, 9),
        rule=1,
    ),
    Mutant(
        "no sweep",
        "nobody looks for rows that name a proxy without the session",
        replaced(RowChecks, "_sweep", _sweep_the_own_only),
        ("NEVER",),
        scenarios=("owner_without_its_session_and_nobody_asks",),
        rule=2,
    ),
    Mutant(
        "own row not believed",
        "a proxy that the row names, and that has nothing, does nothing",
        replaced(AcquisitionAnswers, "_owned_input", _owned_input_for_others),
        ("SIDES", "STUCK"),
        (2, 5, 10),
        rule=2,
    ),
    Mutant(
        "staged copy dropped",
        "a staged copy whose transfer is gone is deleted, also if the row names it",
        replaced(acquisition_rows, "orphan_input", _no_orphan_input),
        ("DROP",),
        scenarios=("target_crashes_after_the_commit",),
        rule=2,
    ),
    Mutant(
        "staged copy given up",
        "a staged copy whose transfer is gone is deleted while the row still names the source",
        replaced(acquisition_rows, "orphan_input", _orphan_input_of_the_very_epoch),
        ("NEVER",),
        scenarios=("staged_copy_without_its_transfer_commits",),
        rule=5,
    ),
    Mutant(
        "no margin",
        "a proxy serves until it hears that its lease has ended",
        replaced(Lease, "may_serve", lambda self: self.fence_at_ms is not None),
        ("LEASE",),
        (308, 385, 505),
        rule=3,
    ),
    Mutant(
        "lease not watched",
        "a target that has not staged waits on although the source's lease has ended",
        rows(
            target.TABLE,
            {(state, machine.PeerGone): ((), state) for state in (_T.PREPARING, _T.SHADOWING, _T.READY)},
        ),
        ("NEVER",),
        scenarios=("source_dies_before_the_target_has_staged",),
        rule=4,
    ),
    Mutant(
        "staged and given up",
        "a target drops its staged copy when the source's lease ends",
        rows(
            target.TABLE,
            {(state, machine.PeerGone): ((target.Discard,), _T.ENDED) for state in (_T.STAGING, _T.COMMITTING)},
        ),
        ("NEVER",),
        scenarios=("source_dies_after_the_target_has_staged",),
        rule=4,
    ),
    Mutant(
        "silence for a refusal",
        "a source does not answer about a transfer that it does not know",
        replaced(OutgoingTransfers, "message", _say_nothing),
        ("NEVER",),
        scenarios=("refused_ready_of_a_transfer_that_is_over",),
        rule=5,
    ),
    Mutant(
        "chunks put off the end of the wait",
        "each chunk of what is published meanwhile begins the wait for coverage anew",
        replaced(IncomingTransfers, "_take_chunk", _take_chunk_and_wait_anew),
        ("NEVER",),
        scenarios=("move_under_publishing_while_a_site_is_away",),
    ),
    Mutant(
        "silence to a frozen source",
        "a target does not answer about a transfer that it does not know",
        replaced(IncomingTransfers, "_unknown_transfer", lambda self, sender, message: None),
        ("NEVER",),
        scenarios=("frozen_for_a_target_that_began_anew",),
        rule=5,
    ),
    Mutant(
        "staged and refused",
        "a target drops its staged copy when the source refuses",
        rows(
            target.TABLE,
            {(state, TransferRefused): ((target.Discard,), _T.ENDED) for state in (_T.STAGING, _T.COMMITTING)},
        ),
        ("DROP",),
        scenarios=("refused_while_the_commit_is_not_known",),
        rule=5,
    ),
    Mutant(
        "no gates at the source",
        "a frozen source closes no gates, and does not know from where on it missed something",
        _no_gates_at_the_source,
        ("LOST",),
        scenarios=("source_crashes_while_frozen",),
    ),
    Mutant(
        "frozen and let go of",
        "a frozen session is let go of past its transfer, which ends it once more",
        replaced(Engine, "_owner_changed", _read_past_the_transfer),
        ("FAULT",),
        kept=("84080264",),
    ),
)
