"""Bugs where the registry was put back to an older copy, and where a disk has what is none of the session any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from chaos.simulator.environment.fake_backends import PlainChangelog
from federation.links.link_receiver import LinkReceiver
from handover import machine, source
from handover.acquisition_inputs import NothingFound
from handover.messages import Aborted, Frozen, ToTarget
from handover.source import SourceState
from proxy.core.effects import ClaimRow, SendPeer, ignore_result
from proxy.core.registry_memory import RegistryMemory
from proxy.ownership import acquisition_answers
from proxy.ownership.incoming_transfers import IncomingTransfers
from proxy.ownership.outgoing_transfers import OutgoingTransfers
from proxy.ownership.served_sessions import ServedSessions
from proxy.ownership.transfer_driver import TransferDriver
from proxy.session.role import Role
from proxy.session.session import Session
from proxy.stream.coverage import Coverage
from proxy.stream.store_writer import StoreWriter
from proxy.stream.subscription_ends import _Ending
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.checkpoint import Checkpoint, GapRow, decode_checkpoint, encode_checkpoint
from waypost.facts import GapCause
from waypost.identity import Origin, Ownership, ProxyId, SessionId
from waypost.table_machine import Deadline

_record = RegistryMemory.row_lost
_become = Session.become
_open = LinkReceiver._open_if_caught_up


def _sends_back(self: IncomingTransfers, sender: ProxyId, message: ToTarget) -> None:
    row = self._env.cluster.owners.get(message.session)
    if isinstance(message, Frozen) and (row is None or row.proxy != self._env.proxy):
        gone = Aborted(message.session, message.transfer, message.epoch, "no such transfer")
        self._output.emit(SendPeer(sender, gone))


@contextmanager
def _takes_back_without_a_look() -> Iterator[None]:
    """No changelog is asked, no row is waited for, and a target that serves sends the source back."""
    claims = ((machine.Claim,), SourceState.RECLAIMING)
    ways = (Aborted, machine.PeerGone, Deadline)
    with (
        mock.patch.dict(source.TABLE, {(SourceState.FROZEN, way): claims for way in ways}),
        mock.patch.object(OutgoingTransfers, "_claim", TransferDriver._claim),
        mock.patch.object(IncomingTransfers, "_unknown_transfer", _sends_back),
    ):
        yield


def _opens_unnamed(self: LinkReceiver, now_ms: int) -> None:
    if not self._is_named and self._known_epoch > self.epoch:
        self.epoch += self._known_epoch
    self._is_named = True
    _open(self, now_ms)


def _knows_only_when(self: RegistryMemory, session: SessionId, row: Ownership) -> None:
    _record(self, session, row)
    self._lost_rows.clear()


def _keeps_limits(*roles: Role) -> Callable[[Session, Role], None]:
    """Return what keeps them where a session becomes one of these."""

    def become(self: Session, role: Role) -> None:
        limits = {subscription.generation: dict(subscription.limits) for subscription in self.subscriptions.ended}
        _become(self, role)
        for subscription in self.subscriptions.ended if role in roles else ():
            subscription.limits.update(limits[subscription.generation])

    return become


def _put_whatever_it_is(self: PlainChangelog, checkpoint: Checkpoint) -> None:
    known = self.latest(checkpoint.session)
    for other in known:
        checkpoint.check_above(other.rank)
    self.highest.forget({checkpoint.session: checkpoint.epoch})
    self.highest.put(decode_checkpoint(encode_checkpoint(checkpoint)))


def _delete_by_the_watch(self: ServedSessions, session: Session, reason: str) -> None:
    self._reasons[session.id] = session.epoch, reason
    own_row = Ownership(self._env.proxy, session.epoch)
    self._output.emit(ClaimRow(session.id, own_row, own_row.gone(), ignore_result))


def _announces_all(self: Coverage, session: Session, origin: Origin, offsets: Sequence[int], cause: GapCause) -> None:
    session.gaps.append(GapRow(origin, offsets[0], offsets[-1], cause, list(session.receivers)))
    for receiver in list(session.receivers.values()):
        self.announce_gaps(session, receiver)


MUTANTS = (
    Mutant(
        "matches to its limit frozen",
        "a source takes no more for a subscription that ends than its site had when it was asked, is owner again, and "
        "asks anew",
        replaced(Session, "become", _keeps_limits(Role.FROZEN)),
        ("LOST",),
        kept=("93562669",),
    ),
    Mutant(
        "believes an answer of before",
        "an owner whose lease ended, and who is owner again, has a subscription end where it was itself then",
        replaced(_Ending, "is_for", lambda self, subscription, session: self.subscription is subscription),
        ("LOST",),
        kept=("93287439",),
    ),
    Mutant(
        "takes a session back from a registry that went back",
        "a frozen source claims the epoch at which its target has committed, in a registry that has lost that row",
        _takes_back_without_a_look,
        ("EPOCH",),
        kept=("96988196",),
    ),
    Mutant(
        "a first checkpoint refuses an owner's",
        "a session goes on in the generation of one that nobody made; its receivers count as those of a deleted one",
        replaced(PlainChangelog, "put", _put_whatever_it_is),
        ("GENERATION",),
        kept=("8101138",),
    ),
    Mutant(
        "lets in until the watch tells",
        "a receiver is let into a session that was deleted here, though the registry has answered that it was",
        replaced(ServedSessions, "delete", _delete_by_the_watch),
        ("PROBLEM",),
        kept=("97095278",),
    ),
    Mutant(
        "activates by the row alone",
        "a copy is activated by the very row that it had, in a registry that was put back after another took it over",
        replaced(acquisition_answers, "_checked_input", lambda machine, answer: NothingFound(is_certain=True)),
        ("EPOCH",),
        kept=("96999658",),
    ),
)
MASKED = (
    Mutant(
        "forgets lost rows",
        "a proxy that knows a later row than a registry that went back acts by the earlier one",
        replaced(RegistryMemory, "row_lost", _knows_only_when),
        masked_by="restarts that ask all changelogs where others may have owned the session, in thousands of schedules",
    ),
    Mutant(
        "claims over an old copy",
        "a session is claimed while the disk has a copy of it from before, which a restart takes for the latest one",
        replaced(StoreWriter, "is_dropping", lambda self, session: False),
        masked_by="restarts that go by the changelog where the disk lacks what it has",
    ),
    Mutant(
        "tells gaps that wait for the journal",
        "a receiver is told of all gaps as soon as one of them is on record",
        replaced(Coverage, "_report_gap", _announces_all),
        masked_by="gaps that are on record before the next one begins, in thousands of schedules",
    ),
    Mutant(
        "leads without a claim",
        "a leader of a link says what it wants before its epoch is in the log: another had that epoch, in a registry "
        "that went back since",
        replaced(LinkReceiver, "_open_if_caught_up", _opens_unnamed),
        rule=12,
        masked_by="neighbours that tell a leader what was said later",
    ),
)
