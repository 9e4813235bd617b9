"""Bugs in the life of a process: its leases, its streams, what goes to the journal, and its orderly end."""

from __future__ import annotations

from collections.abc import Callable

from federation.links.inputs import RecordsFolded
from handover.acquisition import Acquisition
from node.machines import journal_queue, lifecycle
from node.machines.journal_queue import Answer, Failed, JournalQueue, JournalState
from node.machines.lease_keeper import LeaseKeeper
from node.machines.lifecycle import TABLE, LifecycleState
from node.machines.runtime import STREAM_TABLE, Runtime, RuntimeEffect, StreamState
from proxy.core.effects import Attest
from proxy.core.inputs import EngineInput, LeaseGranted, Leave, RecordsRead, RegistryReported
from proxy.ownership import acquisitions
from proxy.session.session import Session
from tests.chaos.simulator.mutation import Mutant, replaced, rows
from waypost.table_machine import Deadline

_S = LifecycleState


_step, _renewed = Runtime.step, LeaseKeeper.renewed


def _folded_by_links_first(
    self: Runtime, input: EngineInput, now_ms: int, unix_ms: int | None = None
) -> list[RuntimeEffect]:
    if not isinstance(input, RecordsRead):
        return _step(self, input, now_ms, unix_ms)
    return [*self.links.step(RecordsFolded(input.batch), now_ms), *self.engine.step(input, now_ms, unix_ms)]


def _by_engine_alone(kind: type[EngineInput]) -> Callable[..., list[RuntimeEffect]]:
    """Return a step of the runtime in which links do not hear of this kind of input."""

    def step(self: Runtime, input: EngineInput, now_ms: int, unix_ms: int | None = None) -> list[RuntimeEffect]:
        if not isinstance(input, kind):
            return _step(self, input, now_ms, unix_ms)
        return [*self.engine.step(input, now_ms, unix_ms)]

    return step


def _takes_all(self: JournalQueue) -> list[Attest]:
    """Also of what came while the write was under way."""
    self._under_way = len(self._waiting)
    return _take_written(self)


_take_written = JournalQueue._take_written


def _twice_as_long(self: LeaseKeeper, began_ms: int) -> int:
    until_ms = _renewed(self, began_ms)
    return until_ms + 2 * (until_ms - began_ms)


def _at_its_end(self: LeaseKeeper, began_ms: int) -> int:
    until_ms = _renewed(self, began_ms)
    self._due_ms = until_ms
    return until_ms


MUTANTS = (
    Mutant(
        "a restart forgets what the changelog knows",
        "a copy from a disk that was full goes on from older acknowledgements than those of its last checkpoint",
        replaced(Session, "learn_acknowledged", lambda self, rows: None),
        ("TWICE",),
        scenarios=("disk_is_full_over_a_start",),
    ),
    Mutant(
        "a restart goes by its disk",
        "a copy on a disk that has lost its last writes is served, whatever the changelog has",
        replaced(acquisitions, "_lacks_changes", lambda copy, checkpoint: False),
        ("BEYOND",),
        kept=("99494038",),
    ),
    Mutant(
        "a copy from before another owner",
        "a copy whose row is some epochs later is served where the site's own changelog has nothing newer",
        replaced(Acquisition, "has_skipped_epochs", False),
        ("LOST",),
        kept=("99495988",),
    ),
    Mutant(
        "believes in a lease for longer than it lasts",
        "a proxy counts on its lease for longer than the registry grants it",
        replaced(LeaseKeeper, "renewed", _twice_as_long),
        ("LEASE",),
        (90, 259, 286, 308),
    ),
    Mutant(
        "renews a lease at its end",
        "a lease is renewed when it ends, and not before",
        replaced(LeaseKeeper, "renewed", _at_its_end),
        ("STUCK",),
        (19, 21, 67),
    ),
    Mutant(
        "one lease and no other",
        "a process whose lease has ended announces no other incarnation",
        rows(TABLE, {(_S.SERVING, lifecycle.LeaseEnded): ((lifecycle.LoseLease,), _S.LEARNING)}),
        ("STUCK", "SIDES"),
        (3, 6, 18),
    ),
    Mutant(
        "a lease that is not prolonged",
        "the engine does not hear that the lease was renewed",
        rows(TABLE, {(_S.SERVING, lifecycle.Renewed): ((), _S.SERVING)}),
        ("STUCK",),
        (0, 1, 3),
    ),
    Mutant(
        "never ends",
        "a process that is told to end does not, where the registry does not take its lease back",
        rows(TABLE, {(_S.REVOKING, Deadline): ((), _S.REVOKING)}),
        ("STUCK",),
        (2452, 3163, 3882),
    ),
    Mutant(
        "a log that is read no more",
        "the site log's stream breaks, and nobody opens it again",
        rows(STREAM_TABLE, {(StreamState.BROKEN, Deadline): ((), StreamState.BROKEN)}),
        ("STUCK",),
        (0, 10, 12),
    ),
    Mutant(
        "links that see records first",
        "links pass on what the engine has not folded",
        replaced(Runtime, "step", _folded_by_links_first),
        ("STUCK", "QUENCH", "LOST"),
        (20045, 20067, 20080),
    ),
    Mutant(
        "links without a lease",
        "links are not told that there is a lease",
        replaced(Runtime, "step", _by_engine_alone(LeaseGranted)),
        ("STUCK",),
        (4, 6, 7),
    ),
    Mutant(
        "links of a proxy that has left",
        "links are not told that a process which ends gives its lease back",
        replaced(Runtime, "step", _by_engine_alone(Leave)),
        ("LEADS",),
        (0,),
        ("ends_in_good_order",),
    ),
    Mutant(
        "a journal that gives up",
        "what the journal did not take is not written again",
        rows(journal_queue.TABLE, {(JournalState.WRITING, Failed): ((Answer,), JournalState.IDLE)}),
        ("BEFORE", "LOST"),
        kept=("mutant-217",),
    ),
    Mutant(
        "answers what is not written",
        "whoever asked while a write was under way is answered with it",
        replaced(JournalQueue, "_take_written", _takes_all),
        ("BEFORE", "LOST"),
        (0, 1, 5),
    ),
)
MASKED = (
    Mutant(
        "links that hear of no proxies",
        "links are not told of what the registry's watch reports",
        replaced(Runtime, "step", _by_engine_alone(RegistryReported)),
        masked_by="links that look at the rows of proxies whenever something is due",
    ),
    Mutant(
        "serves on without a lease",
        "a process whose lease has ended does not tell its engine",
        rows(TABLE, {(_S.SERVING, lifecycle.LeaseEnded): ((lifecycle.LearnSecret,), _S.LEARNING)}),
        rule=1,
        masked_by="engines that stop by the clock before their lease can end",
    ),
    Mutant(
        "ends without a word",
        "a process that ends in good order gives its lease back and says nothing before",
        rows(TABLE, {(_S.HANDING_BACK, lifecycle.HandedBack): ((lifecycle.RevokeLease,), _S.REVOKING)}),
        masked_by="receivers that say themselves what they have",
    ),
)
