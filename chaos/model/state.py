"""What a state of the model is made of: immutable values, so that a state can be looked up.

There is one origin, the site of proxy `a`; its notifications are numbered 1, 2, 3, ..., so a frontier is one number.

In all of the model, a proxy is named by its index, A or B. A function that returns a state changes nothing: it returns
the state after the step. `State | None`: None if the step cannot happen in this state. Kinds of notification are bits
of a mask.
"""

from __future__ import annotations

from typing import NamedTuple

A, B = 0, 1
NAMES = ("a", "b")


SORTS = frozenset(("crash", "lease", "message", "claim", "timeout"))


class Configuration(NamedTuple):
    """How large a world is. `kinds[n - 1]` is what notification n is about: 0, wanted from the beginning, or 1, wanted
    once the client has asked for it. `far`: proxy b is at another site.
    """

    name: str
    kinds: tuple[int, ...] = (0, 0)
    faults: int = 1
    """The number of faults of any sort in one run."""
    moves: int = 1
    """Handovers that are begun: by a client that goes to the other proxy, or by an operator."""
    far: bool = False
    initial_owner: int = A
    subscribes: bool = False
    """The client asks for the second kind midway."""
    sorts: frozenset[str] = SORTS
    """The sorts of faults that there may be."""


class Setup(NamedTuple):
    """A configuration of the model, and the rules that are switched off in it, to show that each is needed.

    Args:
        world: what there is, and which faults may happen.
        off: the names of the rules that do not hold.
    """

    world: Configuration
    off: frozenset[str] = frozenset()


class Gate(NamedTuple):
    """The state of a `handover.gate.Gate`.

    Args:
        seen: C, the offset up to which the session has all; None: not known (a shadow).
        above: the frontier when the gate began to keep matches.
        kept: the numbers of the matches that wait.
    """

    seen: int | None
    above: int
    kept: tuple[int, ...] = ()


class Interest(NamedTuple):
    """The subscription to the second kind, an interval of the one origin (handover rule 7).

    Args:
        start: L, the offset above which it matches.
        promise_floor: no promise lies below this offset.
        promised: X0, the offset above which every match is owed; None: not promised yet.
    """

    start: int
    promise_floor: int
    promised: int | None = None


class Copy(NamedTuple):
    """One proxy's copy of the session.

    Args:
        role: the name of a `proxy.session.session.Role`.
        epoch: at which it is, or was, served.
        gate: its gate, which keeps matches back; None: it has none.
        stored: the numbers of stored notifications.
        second: its interest in the second kind; None: the client has not asked for it.
    """

    role: str
    epoch: int
    gate: Gate | None
    stored: tuple[int, ...]
    acked: int
    """What the receiver has by its own word."""
    known: int = 0
    """What the receiver reported when it attached."""
    second: Interest | None = None
    serial: int = 0
    """The serial of the last checkpoint at this epoch."""


class Disk(NamedTuple):
    """What was saved last, and where in the log that was."""

    read: int
    copy: Copy | None


class Out(NamedTuple):
    """A transfer from here. `state`: the name of a `SourceState`."""

    state: str
    transfer: int
    epoch: int
    attach: bool
    above: int | None = None


class In(NamedTuple):
    """A transfer to here. `state`: the name of a `TargetState`."""

    state: str
    transfer: int
    epoch: int
    attach: bool


class Checkpoint(NamedTuple):
    """Compares by (epoch, serial)."""

    epoch: int
    serial: int
    acknowledged: int
    cursor: int
    second: Interest | None


class Row(NamedTuple):
    """The registry's. `rebuilt`: by a failover; nobody but the invariants looks at it."""

    owner: int
    epoch: int
    rebuilt: bool = False


class Claim(NamedTuple):
    """A request to the registry that is under way: a compare-and-set of the session's row, or a read of it.

    Args:
        owner: the expected owner; `epoch`: the expected epoch. The new row is (`by`, `epoch` + 1).
        by: the proxy that asks.
        kind: handover, thaw, restart or failover.
        transfer: id of the transfer that it belongs to; 0: none.
        checkpoint: from which a failover rebuilds the session.
        read: whether the row is only read.
        answer: the row after the registry has handled the request; None: it has not yet.
        won: whether the compare-and-set was applied.
    """

    owner: int
    epoch: int
    by: int
    kind: str
    transfer: int = 0
    checkpoint: Checkpoint | None = None
    read: bool = False
    answer: Row | None = None
    won: bool = False


class Proxy(NamedTuple):
    """`status`: up; fenced (it serves nothing, its lease still counts); out (its lease has ended); down and dead, the
    same without a process; rogue (its lease has ended, and it did not stop).
    """

    status: str
    incarnation: int
    read: int
    copy: Copy | None
    disk: Disk
    out: Out | None = None
    into: In | None = None
    claim: Claim | None = None
    over: frozenset[int] = frozenset()
    """Transfers that are over, as long as a message of theirs is under way."""


class Client(NamedTuple):
    """The receiver's library and its application."""

    at: int
    attached: bool = False
    frontier: int = 0
    inbox: int = 0
    """What came and was not given yet; 0: nothing."""
    owes: bool = False
    """Whether the client has what is not acknowledged yet."""
    second: int = 0
    """The second kind: 0 not asked for, 1 asked for, 2 confirmed."""


class Message(NamedTuple):
    """A message of a transfer to proxy `to`. `kind`: the name of a message of `handover.messages`.

    Args:
        transfer: id of the transfer.
        epoch: of the source.
        attach: of a Prepare: whether a client's attach triggered the transfer.
        cut: of a Frozen: the source's frontier; of a Ready: the offset from which the target is covered.
        stored: of a Frozen: the numbers of the stored notifications.
        acked: the receiver's cursor.
        second: the subscription to the second kind.
    """

    to: int
    kind: str
    transfer: int
    epoch: int
    attach: bool = True
    cut: int | None = None
    stored: tuple[int, ...] = ()
    acked: int = 0
    second: Interest | None = None


Record = tuple[str, int, int, int]
"""A record of the far site's log; see `site.py`."""


class State(NamedTuple):
    """One state of the world.

    Only the invariants read `delivered` (what the application got), `promised` (above which offset the second kind was
    promised to the client) and `violation` (the first invariant that a step broke; empty: none).
    """

    published: int
    far: tuple[Record, ...]
    filter: tuple[tuple[int, int], ...]
    """What the link lets through to the far site: kinds, each with its installation."""
    row: Row
    proxies: tuple[Proxy, Proxy]
    client: Client
    messages: frozenset[Message]
    late: frozenset[Claim]
    """Claims whose answer nobody waits for any more; they may still be applied."""
    writes: frozenset[Checkpoint]
    checkpoint: Checkpoint
    """What a reader of the changelog finds."""
    faults: int
    moves: int
    delivered: frozenset[int] = frozenset()
    promised: int | None = None
    violation: str = ""


class Step(NamedTuple):
    """What happened, and the state after it; `fault`: of which sort, if something had to break."""

    label: str
    state: State
    fault: str = ""


def change(state: State, index: int, proxy: Proxy) -> State:
    """Return the state with `proxy` in the place of the proxy whose index, A or B, is `index`."""
    a, b = state.proxies
    return state._replace(proxies=(proxy, b) if index == A else (a, proxy))


def violated(state: State, name: str) -> State:
    """Return the state with a note that a step broke the invariant `name`; unchanged if it has a note already."""
    return state if state.violation else state._replace(violation=name)
