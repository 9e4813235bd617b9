"""How two proxies come to own one session, without a transfer: another small model, explored to its end.

The decisions are the code's own: the table of `handover/acquisition.py`, its epochs, and what is said there that a row
means for a copy. The world is the registry's row, the changelog's last checkpoint, and two proxies with at most one
copy each. A question to registry or changelog is asked, taken and answered in three steps; between them a process may
crash, its lease may end and be granted anew. An answer may be lost. A question whose asker is gone may still be
taken, at any later time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from handover import acquisition_effects as effects
from handover import acquisition_inputs as inputs
from handover import acquisition_rows
from handover.acquisition import NO_EPOCH, Acquisition, AcquisitionState, ReplyKey
from handover.acquisition_effects import AcquisitionEffect
from handover.acquisition_inputs import AcquisitionInput, RetryLater, Unavailable
from waypost.checkpoint import Checkpoint, Descriptor
from waypost.identity import NO_PROXY, Epoch, Incarnation, Ownership, ProxyId, SessionId

TWO_OWNERS = "P4 at most one proxy serves"
EMPTY = "P5 no empty session takes the place of one that there is"
OUTDATED = "P5 no copy is served that is earlier than what a changelog has"
UNNAMED = "P4 whoever serves is named by the registry at that epoch"
GENERATION_KEPT = "rule 22: only a session that was deleted is followed by one of the next generation"
NEVER = "P5 the session comes to be served again"
NAMES = (ProxyId("a"), ProxyId("b"))
SESSION = SessionId("s")
State_ = AcquisitionState
SERVING, DORMANT, ORPHAN = "SERVING", "DORMANT", "ORPHAN"
PRESENT, STALE = 1, 0
"""Attempts: the question that an acquisition waits for, and all others."""
AWAY = Unavailable(RetryLater("the registry does not answer"))


class Copy(NamedTuple):
    """A copy of the session at a proxy. `content`: which session it is; 0: an empty one, made anew."""

    role: str
    epoch: int
    content: int
    was_served: bool = False


class Written(NamedTuple):
    """The last checkpoint in the changelog.

    Args:
        epoch: the ownership epoch in which it was written.
        serial: 0: written before the claim of a new session, which may have failed; else by an owner that serves.
        content: which session it holds, as a copy's; 0: an empty one, made anew.
    """

    epoch: int
    serial: int
    content: int


class Running(NamedTuple):
    """An acquisition that is under way, as its machine has it."""

    state: AcquisitionState
    lease: int
    copy_epoch: int
    row: Ownership | None
    found: Written | None
    outdated: inputs.RecordOutdated | None
    is_row_read: bool = False
    is_row_lost: bool = False


class Question(NamedTuple):
    """A request to the registry or a changelog that is under way.

    Args:
        key: the reply key, by which a stale answer is refused.
        kind: read, look, record, claim or find.
        expected: the row that a claim expects; None: none.
        new: the row that a claim writes.
        taken: whether it was handled, and its answer is on the way; the fields below are that answer.
        won: whether the claim was applied.
        row: the row then; None: none.
        found: the checkpoint that was found; None: none.
        outdated: a checkpoint that counts more than the one to be written; None: none.
    """

    key: ReplyKey
    kind: str
    expected: Ownership | None
    new: Ownership | None
    taken: bool = False
    won: bool = False
    row: Ownership | None = None
    found: Written | None = None
    outdated: Written | None = None


class Proxy(NamedTuple):
    """One proxy of the model.

    Args:
        status: up; out: its lease has ended, and it knows; down.
        lease: counts its leases.
        copy: its copy of the session; None: it has none.
        running: its acquisition; None: none is under way.
        asked: the questions that have no answer yet.
    """

    status: str
    lease: int
    copy: Copy | None
    running: Running | None
    asked: frozenset[Question] = frozenset()


class World(NamedTuple):
    """A state: who is served, by whom, and what is under way."""

    row: Ownership | None
    written: Written | None
    proxies: tuple[Proxy, Proxy]
    faults: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Acquisitions:
    """The model of two proxies that acquire one session without a transfer, for :class:`chaos.model.explore.Explorer`.

    Args:
        faults: the most faults in one run: crashes, ends of a lease, lost answers.
        begins: the first state. none: nobody has the session. owned: a serves it. staged: b has a staged copy whose
            transfer is gone, and its commit may still be under way. lost: the registry went back to before the session
            was created, a has a copy on its disk, and a changelog has a checkpoint of a later owner. restored: as lost,
            but the registry has the row of a's copy.
        without: names of the rules that are switched off.
    """

    faults: int = 1
    begins: str = "owned"
    without: frozenset[str] = frozenset()
    lost: str = field(default=NEVER, init=False)
    liveness: str = field(default=NEVER, init=False)

    def initial(self) -> World:
        """Return the state in which every run begins, as the field `begins` says; any word but none, staged, lost and
        restored counts as owned.
        """
        if self.begins == "none":
            idle = Proxy("up", 1, None, None)
            return World(None, None, (idle, idle), self.faults)
        if self.begins in ("lost", "restored"):
            sleeps, idle = Proxy("up", 1, Copy(DORMANT, 1, 1), None), Proxy("up", 1, None, None)
            row = Ownership(NAMES[0], Epoch(1)) if self.begins == "restored" else None
            return World(row, Written(2, 1, 2), (sleeps, idle), self.faults)
        serves = Proxy("up", 1, Copy(SERVING, 1, 1, was_served=True), None)
        row, written = Ownership(NAMES[0], Epoch(1)), Written(1, 1, 1)
        other = Proxy("up", 1, None, None)
        if self.begins == "staged":
            late = Question(ReplyKey(SESSION, Epoch(2), Incarnation("b0"), STALE), "claim", row, row.next(NAMES[1]))
            serves = serves._replace(copy=Copy("FROZEN", 1, 1, was_served=True))
            other = Proxy("up", 1, Copy(ORPHAN, 2, 1), None, frozenset((late,)))
        return World(row, written, (serves, other), self.faults)

    def broken(self, world: World) -> str:
        """Return the invariant that does not hold in a state, in words; "": all hold."""
        if world.wrong:
            return world.wrong
        serving = [proxy.copy for proxy in world.proxies if _serves(proxy)]
        if len(serving) > 1:
            return TWO_OWNERS
        return ""

    def is_quiescent(self, world: World) -> bool:
        """Tell whether a run may end in a state: a proxy serves the session, and the registry's row names it at that
        epoch.
        """
        return any(
            _serves(proxy) and world.row == Ownership(NAMES[index], Epoch(proxy.copy.epoch))
            for index, proxy in enumerate(world.proxies)
            if proxy.copy is not None
        )

    def steps(self, world: World) -> Iterator[tuple[str, World, str]]:
        """Yield what can happen in a state: a label, the state after it, and the sort of fault, such as "crash"; "":
        none.
        """
        for index in (0, 1):
            for label, after, fault in self._steps_of(world, index):
                if fault and not world.faults:
                    continue
                paid = after._replace(faults=world.faults - 1) if fault else after
                if paid != world:
                    yield f"{NAMES[index]}: {label}", paid, fault

    # ------------------------------------------------------------ what a proxy may do next

    def _steps_of(self, world: World, index: int) -> Iterator[tuple[str, World, str]]:
        proxy = world.proxies[index]
        if proxy.status == "up":
            yield from self._wants(world, index)
            yield "its lease ends", self._fence(world, index), "lease"
        if proxy.status == "out":
            up = proxy._replace(status="up", lease=proxy.lease + 1)
            yield "has a lease again", self._activate(_put(world, index, up), index), ""
        if proxy.status == "down":
            yield "starts", self._start(world, index), ""
        else:
            yield "crashes", self._crash(world, index), "crash"
        for question in sorted(proxy.asked, key=str):
            rest = proxy.asked - {question}
            if not question.taken:
                after, taken = self._take(world, question)
                answers = {taken} if question.key.attempt != STALE else set()
                yield f"its {question.kind} is taken", _asked(after, index, rest | answers), ""
                if question.key.attempt == STALE:
                    yield f"its late {question.kind} is lost", _asked(world, index, rest), ""
            else:
                world_ = _asked(world, index, rest)
                yield f"hears of its {question.kind}", self._reply(world_, index, question), ""
                away = self._reply(world_, index, question, lost=True)
                yield f"does not hear of its {question.kind}", away, "answer"

    def _wants(self, world: World, index: int) -> Iterator[tuple[str, World, str]]:
        proxy, copy = world.proxies[index], world.proxies[index].copy
        if proxy.running is not None:
            return
        begun = _begun(proxy, copy)
        if copy is None:
            yield "a client wants it", self._feed(world, index, begun, inputs.OwnerUnknown()), ""
        elif copy.role == ORPHAN:
            input = _staged(copy.epoch, index, world.row, read=False)
            yield "sweeps", self._feed(world, index, begun, input), ""
        elif copy.role == DORMANT:
            input = self._sleeping(world, index, world.row, read=False)
            yield "sweeps", self._feed(world, index, begun, input), ""
        elif (
            copy.role == "FROZEN" and world.row is not None and world.row != Ownership(NAMES[index], Epoch(copy.epoch))
        ):
            yield "releases it", _put(world, index, proxy._replace(copy=None)), ""

    def _fence(self, world: World, index: int) -> World:
        proxy, copy = world.proxies[index], world.proxies[index].copy
        if copy is not None and copy.role in (SERVING, "FROZEN"):
            copy = copy._replace(role=DORMANT)
        proxy = proxy._replace(status="out", copy=copy)
        if "STALE" in self.without:
            return _put(world, index, proxy)
        return _put(world, index, proxy._replace(running=None, asked=_stale(proxy.asked)))

    def _crash(self, world: World, index: int) -> World:
        proxy, copy = world.proxies[index], world.proxies[index].copy
        if copy is not None:
            copy = copy._replace(role=ORPHAN if copy.role == ORPHAN else DORMANT, was_served=False)
        # The registry may still do what was asked of it; nobody hears of that.
        return _put(world, index, Proxy("down", proxy.lease, copy, None, _stale(proxy.asked)))

    def _start(self, world: World, index: int) -> World:
        proxy = world.proxies[index]
        up = proxy._replace(status="up", lease=proxy.lease + 1)
        return self._activate(_put(world, index, up), index)

    def _activate(self, world: World, index: int) -> World:
        """Each copy that sleeps takes the next epoch, once there is a lease."""
        proxy, copy = world.proxies[index], world.proxies[index].copy
        if copy is None or copy.role != DORMANT or (proxy.running is not None and "STALE" in self.without):
            return world
        owned = Ownership(NAMES[index], Epoch(copy.epoch))
        return self._feed(world, index, _begun(proxy, copy), inputs.CopyToActivate(owned))

    # ------------------------------------------------------------ the machine

    def _feed(self, world: World, index: int, running: Running, input: AcquisitionInput) -> World:
        machine = _machine(index, running, world)
        steps = machine.step(input, 0)
        proxy = world.proxies[index]
        kept = None if machine.over else _running_of(machine, running)
        world = _put(world, index, proxy._replace(running=kept))
        for effect in steps:
            world = self._perform(world, index, machine, effect)
        return world

    def _perform(self, world: World, index: int, machine: Acquisition, effect: AcquisitionEffect) -> World:  # noqa: PLR0912 - a dispatch
        me = NAMES[index]
        proxy, wanted = world.proxies[index], Ownership(me, machine.epoch)
        match effect:
            case effects.ReadRow():
                return self._ask(world, index, "read")
            case effects.FindLaterCheckpoint() if "CHECK" in self.without and proxy.running is not None:
                return self._feed(world, index, proxy.running, inputs.NothingFound(is_certain=True))
            case effects.LookForLost() | effects.FindLaterCheckpoint():
                return self._ask(world, index, "look")
            case effects.RecordFirst(epoch=epoch):
                return self._ask(world, index, "record", new=Ownership(me, epoch))
            case effects.Create(before=before, epoch=epoch):
                return self._ask(world, index, "claim", before, Ownership(me, epoch))
            case effects.FindCheckpoint():
                return self._ask(world, index, "find")
            case effects.TakeOver(row=row):
                if row is not None and wanted.is_later_generation_than(row.epoch) and not row.deleted:
                    world = world._replace(wrong=GENERATION_KEPT)
                return self._ask(world, index, "claim", row, wanted)
            case effects.Enqueue():
                running = proxy.running
                assert running is not None
                if proxy.copy is not None and proxy.copy.role == ORPHAN:
                    proxy = proxy._replace(copy=proxy.copy._replace(role=DORMANT))
                return self._feed(_put(world, index, proxy), index, running, inputs.Dequeued())
            case effects.ClaimNext(row=row):
                if "AGAIN" in self.without and proxy.copy is not None:
                    return self._serve(world, index, proxy.copy, proxy.copy.epoch)
                return self._ask(world, index, "claim", row, wanted)
            case effects.StoreCopy():
                running = proxy.running
                assert running is not None
                return self._feed(world, index, running, inputs.Stored())
            case effects.CommitCopy(row=row):
                return self._ask(world, index, "claim", row, Ownership(me, machine.copy_epoch))
            case effects.ServeNew():
                is_there = world.written is not None and bool(world.written.content)
                world = world._replace(wrong=world.wrong or (EMPTY if is_there else ""))
                return self._serve(world, index, Copy(DORMANT, machine.epoch, 0), machine.epoch)
            case effects.ServeRebuilt(checkpoint=checkpoint):
                found = Copy(DORMANT, machine.epoch, checkpoint.serial)
                return self._serve(world, index, found, machine.epoch)
            case effects.ServeActivated() if proxy.copy is not None:
                return self._serve(world, index, proxy.copy, machine.epoch)
            case effects.ServeCommitted() if proxy.copy is not None:
                return self._serve(world, index, proxy.copy, proxy.copy.epoch)
            case effects.DropCopy() | effects.ReleaseCopy():
                return _put(world, index, proxy._replace(copy=None))
            case effects.Fetch():
                # A transfer is another model's: from here its owner does not hand the session over.
                return _put(world, index, proxy._replace(running=None))
            case _:
                pass
        return world

    def _serve(self, world: World, index: int, copy: Copy, epoch: int) -> World:
        if world.row != Ownership(NAMES[index], Epoch(epoch)) and world.proxies[index].status == "up":
            later = world.row is not None and world.row.epoch > epoch
            is_excused = later and "STALE" not in self.without
            world = world._replace(wrong=world.wrong or ("" if is_excused else UNNAMED))
        if copy.content and world.written is not None and copy.content < world.written.content:
            world = world._replace(wrong=world.wrong or OUTDATED)
        served = copy._replace(role=SERVING, epoch=epoch, was_served=True)
        written = max(world.written or Written(0, 0, 0), Written(epoch, 1, copy.content))
        proxy = world.proxies[index]._replace(copy=served, running=None)
        return _put(world._replace(written=written), index, proxy)

    # ------------------------------------------------------------ questions and answers

    def _ask(
        self, world: World, index: int, kind: str, expected: Ownership | None = None, new: Ownership | None = None
    ) -> World:
        proxy, running = world.proxies[index], world.proxies[index].running
        assert running is not None
        question = Question(_key(index, running), kind, expected, new)
        return _put(world, index, proxy._replace(asked=_stale(proxy.asked) | {question}))

    def _take(self, world: World, question: Question) -> tuple[World, Question]:
        """Registry or changelog takes the question, and does what it asks."""
        if question.kind == "read":
            return world, question._replace(taken=True, row=world.row)
        if question.kind in ("look", "find"):
            return world, question._replace(taken=True, row=world.row, found=world.written)
        assert question.new is not None
        if question.kind == "record":
            known = world.written
            if known is not None and (known.epoch, known.serial) > (question.new.epoch, 0):
                return world, question._replace(taken=True, outdated=known)
            return world._replace(written=Written(question.new.epoch, 0, 0)), question._replace(taken=True)
        won = world.row == question.expected
        if won:
            world = world._replace(row=question.new)
        return world, question._replace(taken=True, won=won, row=world.row)

    def _reply(self, world: World, index: int, question: Question, *, lost: bool = False) -> World:
        proxy, running = world.proxies[index], world.proxies[index].running
        is_stale = running is None or _key(index, running) != question.key or proxy.status != "up"
        if "STALE" in self.without:
            is_stale = question.key.attempt == STALE
        if is_stale or running is None:
            return world
        input = AWAY if lost else self._meaning(world, index, running, question)
        if question.kind == "read" and not lost:
            running = running._replace(is_row_read=True)
        return self._feed(world, index, running, input)

    def _meaning(self, world: World, index: int, running: Running, question: Question) -> AcquisitionInput:
        me, state, row = NAMES[index], running.state, question.row
        if question.kind == "record":
            return inputs.Recorded() if question.outdated is None else _outdated(question.outdated)
        if question.kind == "look":
            found, machine = question.found, _machine(index, running, world)
            counts = found is not None and machine.is_outdated_by(Epoch(found.epoch), found.serial)
            if counts and state is State_.CHECKING and not running.is_row_read:
                return inputs.CopyInDoubt()
            return _outdated(found) if found is not None and counts else inputs.NothingFound(is_certain=True)
        if question.kind == "find":
            found = question.found
            if found is None:
                return inputs.SessionUnrecoverable("no changelog has a checkpoint of it")
            return inputs.Found(Checkpoint(SESSION, Epoch(found.epoch), found.content, Descriptor(), {}))
        if question.won:
            return inputs.Won()
        if state is State_.ACTIVATING:
            epoch = Epoch(_machine(index, running, world).epoch - 1)
            return acquisition_rows.activation_input(epoch, me, row)
        if state is State_.TAKING_OVER:
            return AWAY
        if state is State_.COMMITTING:
            return _staged(running.copy_epoch, index, row, read=False)
        if state is State_.COMPARING and row == running.row:
            return inputs.RowLost() if running.outdated and running.outdated.by_owner else inputs.RowUnchanged()
        return self._row_meaning(world, index, row)

    def _row_meaning(self, world: World, index: int, row: Ownership | None) -> AcquisitionInput:
        proxy = world.proxies[index]
        if proxy.copy is not None:
            if proxy.copy.role == ORPHAN:
                return _staged(proxy.copy.epoch, index, row, read=True)
            return inputs.CopyServed() if _serves(proxy) else self._sleeping(world, index, row, read=True)
        if row is None or row.proxy == NO_PROXY:
            return inputs.RowAbsent(row)
        owner = NAMES.index(row.proxy)
        if owner != index and world.proxies[owner].status == "up":
            return inputs.OwnedElsewhere(row)
        return inputs.OwnerEnded(row)

    def _sleeping(self, world: World, index: int, row: Ownership | None, *, read: bool) -> AcquisitionInput:
        copy = world.proxies[index].copy
        assert copy is not None
        epoch = Epoch(copy.epoch)
        is_final = self.begins == "lost"
        return acquisition_rows.dormant_input(
            epoch, NAMES[index], row, read=read, was_served=copy.was_served, is_final=is_final
        )


def _staged(epoch: int, index: int, row: Ownership | None, *, read: bool) -> AcquisitionInput:
    """Return what a row means for a copy that was staged from a; its registry never goes back."""
    return acquisition_rows.orphan_input(Epoch(epoch), NAMES[index], NAMES[0], row, read=read, is_last=False)


def _outdated(written: Written) -> AcquisitionInput:
    return inputs.RecordOutdated(Epoch(written.epoch), written.serial > 0)


def _stale(asked: frozenset[Question]) -> frozenset[Question]:
    """Return what is left of questions whose asker is gone: what may still be done, at any time."""
    return frozenset(
        question._replace(key=question.key._replace(attempt=STALE))
        for question in asked
        if not question.taken and question.kind in ("claim", "record")
    )


def _serves(proxy: Proxy) -> bool:
    return proxy.status == "up" and proxy.copy is not None and proxy.copy.role == SERVING


def _begun(proxy: Proxy, copy: Copy | None) -> Running:
    return Running(State_.WANTED, proxy.lease, copy.epoch if copy else NO_EPOCH, None, None, None)


def _key(index: int, running: Running) -> ReplyKey:
    named = Incarnation(f"{NAMES[index]}{running.lease}")
    return ReplyKey(SESSION, Epoch(running.copy_epoch), named, PRESENT)


def _machine(index: int, running: Running, world: World) -> Acquisition:
    """Return the code's own machine, as the state has it."""
    named = Incarnation(f"{NAMES[index]}{running.lease}")
    copy = world.proxies[index].copy
    epoch = Epoch(copy.epoch) if copy is not None else Epoch(running.copy_epoch)
    machine = Acquisition(SESSION, NAMES[index], named, epoch)
    machine.state = running.state
    machine.row = running.row
    machine.outdated = running.outdated
    machine.is_row_lost = running.is_row_lost
    machine.checkpoint = _checkpoint(running.found)
    return machine


def _checkpoint(found: Written | None) -> Checkpoint | None:
    return None if found is None else Checkpoint(SESSION, Epoch(found.epoch), found.content, Descriptor(), {})


def _running_of(machine: Acquisition, before: Running) -> Running:
    state = machine.state
    assert isinstance(state, AcquisitionState)
    found = None if machine.checkpoint is None else Written(machine.checkpoint.epoch, 1, machine.checkpoint.serial)
    return before._replace(
        state=state,
        copy_epoch=machine.copy_epoch,
        row=machine.row,
        found=found,
        outdated=machine.outdated,
        is_row_lost=machine.is_row_lost,
    )


def _put(world: World, index: int, proxy: Proxy) -> World:
    a, b = world.proxies
    return world._replace(proxies=(proxy, b) if index == 0 else (a, proxy))


def _asked(world: World, index: int, asked: frozenset[Question]) -> World:
    return _put(world, index, world.proxies[index]._replace(asked=asked))
