"""Why one notification was given to a session, or was not: what the files of a run say of it, a line each.

The audit judges a whole run; this reads what concerns one notification and one session, without Spark, in the time that
it takes to look through the journals. It repeats what the journals say and believes it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from spark.evaluation import UNUSABLE, Attributes, compiled
from spark.source import BadInput, Folder, opened
from waypost.errors import BadNotification, BadRecord
from waypost.facts import TRANSFER_ENDS, Fact, FactKind, decode_fact
from waypost.identity import Coordinate, Origin, SiteId, log_epoch_of, origin_of, site_of
from waypost.keys import SIDES, texts
from waypost.notification import decode_body
from waypost.records import LogBegun, Published, decode_record
from waypost.subscription.canonical import write
from waypost.subscription.parser import read
from waypost.subscription.tree import Logic, Node, names

MAX_NAMED = 10
"""Coordinates that are named where more than one notification was meant."""
MAX_VALUE = 60
"""Characters of a value that are shown."""

LOG_BEGUN = b"\xa9log-begun"
"""What follows the first byte of an encoded LogBegun."""

_COORDINATE = re.compile(r"(?P<origin>\S+/\d+(?:\.\d+)?)[: ](?P<offset>\d+)")
_ID = re.compile(r"(?P<producer>[^\s()]+)/(?P<incarnation>[^\s/()]+)/(?P<sequence>\d+)")


@dataclass(frozen=True, slots=True)
class Line:
    """What one fact or record says.

    Args:
        at_ms: Unix time, by the clock of whoever wrote it; None: it has none.
        what: one word.
        where: file and line, or file and offset.
    """

    at_ms: int | None
    what: str
    text: str
    where: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What became of a notification: one sentence, and the lines that it rests on, by time."""

    sentence: str
    lines: list[Line]


def explain(run: Folder, notification: str, session: str, receiver: str = "") -> Explanation:
    """Return the explanation why a notification was given to a session's receivers, or was not.

    A coordinate at which no notification stands is explained too. Lines of journals that are no facts are passed over.

    Args:
        run: the files.
        notification: its coordinate, ORIGIN:OFFSET; or its id, PRODUCER/INCARNATION/SEQUENCE; or an expression that is
            true of it alone.
        session: of the receivers.
        receiver: the one that is asked about; "": any of the session.

    Raises:
        BadInput: a file is no site log, or the run has none of the coordinate's site; `notification` has none of these
            forms, or there is none, or more than one, by that id or expression; nothing is known of the session, or of
            the receiver.
        OSError: a journal cannot be read.
    """
    found = _found(run, notification)
    evidence = _Evidence(found, session, receiver)
    for fact, where in _facts(run, found.at, session):
        evidence.add(fact, where)
    if not evidence.is_known:
        raise BadInput(f"no journal of the run speaks of session {session}", field="session", hint="is --run right?")
    if receiver and receiver not in evidence.receivers:
        there = f"; there is {', '.join(sorted(evidence.receivers))}" if evidence.receivers else ""
        raise BadInput(
            f"no journal of the run speaks of receiver {receiver} of session {session}{there}", field="receiver"
        )
    return evidence.explanation()


# ---------------------------------------------------------------- the notification


@dataclass(frozen=True, slots=True)
class _Found:
    """A notification as it was published; `record` None: none stands at the coordinate."""

    at: Coordinate
    record: Published | None
    where: str


def _found(run: Folder, notification: str) -> _Found:
    if match := _COORDINATE.fullmatch(notification):
        return _at(run, Coordinate(Origin(match["origin"]), int(match["offset"])))
    if match := _ID.fullmatch(notification):
        wanted = match["producer"], match["incarnation"], int(match["sequence"])
        all_found = [each for each in _published(run) if _id(each) == wanted]
    else:
        all_found = list(_matching(run, notification))
    if len(all_found) == 1:
        return all_found[0]
    if not all_found:
        raise BadInput(f"no log has a notification {notification}", field="notification")
    named = ", ".join(f"{each.at.origin}:{each.at.offset}" for each in all_found[:MAX_NAMED])
    more = f" and {len(all_found) - MAX_NAMED:,} more" if len(all_found) > MAX_NAMED else ""
    raise BadInput(f"{len(all_found):,} notifications are meant: {named}{more}", field="notification", hint="name one")


def _id(found: _Found) -> tuple[str, str, int] | None:
    record = found.record
    return None if record is None else (record.producer, str(record.incarnation), record.sequence)


def _matching(run: Folder, expression: str) -> Iterator[_Found]:
    try:
        test = compiled(read(expression))
    except UNUSABLE as error:
        raise BadInput(
            f"{expression} is no coordinate (ORIGIN:OFFSET), no id (PRODUCER/INCARNATION/SEQUENCE) and no expression: "
            f"{error}",
            field="notification",
        ) from None
    for found in _published(run):
        attributes = _attributes(found.record)
        if attributes is not None and test(attributes):
            yield found


def _attributes(record: Published | None) -> Attributes | None:
    try:
        return None if record is None else decode_body(record.body)
    except BadNotification:
        return None


def _at(run: Folder, at: Coordinate) -> _Found:
    site = str(site_of(at.origin))
    if site not in run.logs:
        raise BadInput(f"the run has no log of site {site}; it has {', '.join(run.logs)}", field="notification")
    path = run.logs[site]
    if _log_epoch_at(path, at.offset) != log_epoch_of(at.origin):
        # The log has lost its end since, and has a record of another origin there.
        return _Found(at, None, f"{path}:{at.offset}")
    for _, data in _rows(path, "SELECT offset, record FROM log WHERE offset = ?", at.offset):
        record = decode_record(data)
        return _Found(at, record if isinstance(record, Published) else None, f"{path}:{at.offset}")
    return _Found(at, None, f"{path}:{at.offset}")


def _log_epoch_at(path: Path, offset: int) -> int:
    """Return the log epoch of the record at an offset, by the nearest record that names one."""
    wanted = f"SELECT offset, record FROM log WHERE substr(record, 2, {len(LOG_BEGUN)}) = X'{LOG_BEGUN.hex()}'"
    for _, data in _rows(path, f"{wanted} AND offset <= ? ORDER BY offset DESC LIMIT 1", offset):
        return _begun(data).log_epoch
    for _, data in _rows(path, f"{wanted} AND offset > ? ORDER BY offset LIMIT 1", offset):
        # The record that named the log epoch first may be gone from the log's beginning.
        if _begun(data).again:
            return _begun(data).log_epoch
    return 1


def _begun(data: bytes) -> LogBegun:
    record = decode_record(data)
    assert isinstance(record, LogBegun)
    return record


def _published(run: Folder) -> Iterator[_Found]:
    for site, path in run.logs.items():
        log_epoch = 1
        for offset, data in _rows(path, "SELECT offset, record FROM log ORDER BY offset"):
            record = decode_record(data)
            if isinstance(record, LogBegun):
                log_epoch = record.log_epoch
            elif isinstance(record, Published):
                at = Coordinate(origin_of(SiteId(site), log_epoch=log_epoch), offset)
                yield _Found(at, record, f"{path}:{offset}")


def _rows(path: Path, query: str, *values: int) -> Iterator[tuple[int, bytes]]:
    try:
        with closing(opened(path)) as log:
            yield from log.execute(query, values)
    except sqlite3.Error as error:
        raise BadInput(f"{path} is no site log: {error}") from None


# ---------------------------------------------------------------- the facts


def _facts(run: Folder, at: Coordinate, session: str) -> Iterator[tuple[Fact, str]]:
    """Yield the facts about the session, and who acknowledged the notification, each with file and line."""
    about = b'"session":' + msgspec.json.encode(session)
    origin = b'"origin":' + msgspec.json.encode(str(at.origin))
    for paths in run.journals.values():
        for path in paths:
            with path.open("rb") as lines:
                for number, line in enumerate(lines, start=1):
                    if about not in line and not (b'"acknowledged"' in line and origin in line):
                        continue
                    try:
                        yield decode_fact(line), f"{path}:{number}"
                    except BadRecord:
                        continue


@dataclass(kw_only=True)
class _Subscription:
    expression: str
    keys: list[str]
    secure_only: bool
    where: str
    above: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)


class _Evidence:
    """What was read of one notification and one session."""

    def __init__(self, found: _Found, session: str, receiver: str) -> None:
        self._found, self._session, self._receiver = found, session, receiver
        self._lines: list[Line] = []
        self._subscriptions: dict[tuple[str, str], _Subscription] = {}
        self._given: list[str] = []
        self._removed: list[str] = []
        self._gaps: list[str] = []
        self._ends: list[str] = []
        self.is_known = False
        """Whether any fact speaks of the session."""
        self.receivers: set[str] = set()
        """Those of which a fact of the session speaks."""

    def add(self, fact: Fact, where: str) -> None:
        """Take a fact of the run into account."""
        if fact.session == self._session:
            self.is_known = True
            self.receivers |= {fact.receiver} - {""}
        text = self._text(fact, where)
        if text:
            self._lines.append(Line(fact.at_ms, str(fact.kind), text, where))

    def explanation(self) -> Explanation:
        """Return what all the facts say."""
        record, at = self._found.record, self._found.at
        published = []
        if record is not None:
            who = f"by {record.producer}/{record.incarnation}/{record.sequence}, {len(record.body):,} bytes"
            published.append(Line(record.at_ms, "published", who, self._found.where))
        lines = sorted([*published, *self._lines], key=lambda line: line.at_ms or 0)
        matches = list(self._matches()) if record is not None else []
        lines += [line for _, line in matches]
        return Explanation(
            f"{at.origin}:{at.offset} and session {self._session}: {self._sentence([why for why, _ in matches])}", lines
        )

    # ---- what a fact says

    def _text(self, fact: Fact, where: str) -> str:
        at = self._found.at
        name = fact.subscription
        match fact.kind:
            case FactKind.ACKNOWLEDGED:
                return f"to its producer by {fact.writer}" if self._is_named(fact) else ""
            case FactKind.SUBSCRIBED | FactKind.RESTATED:
                self._subscribe(fact, where)
                return f"{name}: {fact.expression}" if fact.kind == FactKind.SUBSCRIBED else ""
            case FactKind.EFFECTIVE:
                self._promise(fact, where)
                above = fact.frontier.get(str(at.origin))
                return f"{name}: {at.origin} above {above}" if above is not None else ""
            case FactKind.UNSUBSCRIBED:
                self._subscription(fact, where).until |= fact.frontier
                return f"{name}: owed up to {fact.frontier.get(str(at.origin), 'what nobody knows')} of {at.origin}"
            case FactKind.POLICY:
                bounds = {"ttl_s": fact.ttl_s, "max_count": fact.max_count, "bytes": fact.bytes}
                stated = ", ".join(f"{key} {value:,}" for key, value in bounds.items() if value)
                return f"{name or 'the queue'}: {stated or 'no bound'}"
            case FactKind.OWNED:
                return f"by {fact.proxy} at epoch {fact.epoch} ({fact.cause})"
            case FactKind.HANDOVER if fact.phase in TRANSFER_ENDS:
                return f"{fact.phase} as {fact.role} at {fact.writer}, epoch {fact.epoch}"
            case FactKind.RECEIVED if self._is_named(fact) and self._is_asked_about(fact):
                self._given.append(fact.receiver)
                return f"{fact.receiver} has it from {fact.proxy} at epoch {fact.epoch}"
            case FactKind.REMOVED if self._is_named(fact):
                self._removed.append(" and ".join(fact.policies))
                return f"by {fact.writer}: {self._removed[-1]}"
            case FactKind.GAP if self._is_in_gap(fact) and self._is_asked_about(fact):
                self._gaps.append(fact.cause)
                return f"{fact.offsets[0]} to {fact.offsets[1]} of {fact.origin}: {fact.cause} {fact.reason}".strip()
            case FactKind.DELETED:
                self._ends.append("the session was deleted")
                return f"{at.origin} at {fact.frontier.get(str(at.origin), 'an unknown place')}"
            case FactKind.ACCESS:
                return f"by {fact.receiver}: {fact.reason}"
            case FactKind.REGISTERED | FactKind.UNREGISTERED | FactKind.ATTACHED | FactKind.DETACHED | FactKind.DRAINED:
                return self._of_receiver(fact)
            case _:
                return ""

    def _of_receiver(self, fact: Fact) -> str:
        if not self._is_asked_about(fact):
            return ""
        if fact.kind == FactKind.UNREGISTERED:
            self._ends.append(f"{fact.receiver} left for good ({fact.cause})")
        upto = fact.frontier.get(str(self._found.at.origin))
        place = "" if upto is None else f", {self._found.at.origin} up to {upto}"
        return f"{fact.receiver}{place}"

    def _is_named(self, fact: Fact) -> bool:
        return fact.origin == self._found.at.origin and self._found.at.offset in fact.offsets

    def _is_in_gap(self, fact: Fact) -> bool:
        at = self._found.at
        return fact.origin == at.origin and len(fact.offsets) == 2 and fact.offsets[0] <= at.offset <= fact.offsets[1]

    def _is_asked_about(self, fact: Fact) -> bool:
        return not self._receiver or fact.receiver in ("", self._receiver)

    # ---- subscriptions

    def _subscribe(self, fact: Fact, where: str) -> None:
        subscription = self._subscription(fact, where)
        subscription.expression, subscription.where = fact.expression, where
        subscription.keys, subscription.secure_only = fact.keys, fact.secure_only
        if fact.kind == FactKind.RESTATED:
            self._promise(fact, where)

    def _subscription(self, fact: Fact, where: str) -> _Subscription:
        key = fact.subscription, fact.subscription_generation
        return self._subscriptions.setdefault(
            key, _Subscription(expression="", keys=[], secure_only=False, where=where)
        )

    def _promise(self, fact: Fact, where: str) -> None:
        above = self._subscription(fact, where).above
        for origin, upto in fact.frontier.items():
            above[origin] = min(upto, above.get(origin, upto))

    def _matches(self) -> Iterator[tuple[str, Line]]:
        """Yield for each subscription why it does not take the notification, or "", and a line that says so."""
        attributes = _attributes(self._found.record)
        for (name, _), subscription in self._subscriptions.items():
            why = "its body cannot be read" if attributes is None else self._why_not(subscription, attributes)
            what = "not matched" if why else "matched"
            yield why, Line(None, what, f"{name}: {why or subscription.expression}", subscription.where)

    def _why_not(self, subscription: _Subscription, attributes: Attributes) -> str:
        at, record = self._found.at, self._found.record
        try:
            reasons = why_not(read(subscription.expression), attributes)
        except UNUSABLE as error:
            return f"its expression cannot be evaluated: {error}"
        if reasons:
            return "; ".join(reasons)
        if record is not None and not _meet(subscription, record):
            return "the keys of the two sides do not meet"
        above = _bound(subscription.above, at.origin)
        if above is None:
            return f"it took no effect at {site_of(at.origin)}"
        if at.offset <= above:
            return f"it took effect above {above} of {at.origin}, behind the notification"
        until = subscription.until.get(str(at.origin))
        if until is None or at.offset <= until:
            return ""
        return f"it ended at {until} of {at.origin}, before the notification"

    def _sentence(self, whys: list[str]) -> str:
        asked = self._receiver or "a receiver"
        receivers = sorted(set(self._given))
        given = f"{', '.join(receivers)} {'has' if len(receivers) == 1 else 'have'} it"
        often = f", {len(self._given)} times" if len(self._given) > len(receivers) else ""
        verdicts: Iterable[tuple[bool, str]] = (
            (self._found.record is None and bool(self._given), f"{given}, though no notification stands there"),
            (self._found.record is None, "no notification stands there"),
            (bool(self._given), given + often),
            (not whys, "it was not owed: the session has no subscription"),
            (all(whys), f"it was not owed: none of {len(whys)} subscriptions takes it"),
            (bool(self._removed), f"it was owed, and removed by {', '.join(sorted(set(self._removed)))}"),
            (bool(self._gaps), f"it was owed, and {asked} was told of a gap ({', '.join(sorted(set(self._gaps)))})"),
            (bool(self._ends), f"it was owed; {self._ends[-1] if self._ends else ''}"),
        )
        waits = "it was owed, and nobody says who has it: it waits, or is lost; `waypost audit` says which"
        return next((sentence for holds, sentence in verdicts if holds), waits)


def _bound(above: dict[str, int], origin: Origin) -> int | None:
    """Return the offset above which a promise holds. One for an origin holds for all of those that follow it."""
    if str(origin) in above:
        return above[str(origin)]
    earlier = (origin_of(site_of(origin), log_epoch=number) for number in range(1, log_epoch_of(origin)))
    return -1 if any(str(each) in above for each in earlier) else None


def _meet(subscription: _Subscription, record: Published) -> bool:
    """Return whether the keys let the notification through; the rule: :mod:`spark.keys`."""
    if not subscription.secure_only and record.protection.insecure:
        return True
    common = set(subscription.keys) & set(texts(record.protection.keys))
    met = {tuple(text.split()[:2]) for text in common}
    return any(all((scheme, side) in met for side in sides) for scheme, sides in SIDES.items())


def why_not(tree: Node, attributes: Attributes) -> list[str]:
    """Return why an expression is not true of attributes, one reason for each predicate that is to blame; empty: it is
    true.

    Raises:
        Unusable: the tree cannot be evaluated (:func:`spark.evaluation.compiled`).
    """
    found = compiled(tree)(attributes)
    if found:
        return []
    if isinstance(tree, Logic) and tree.operator in ("&&", "||"):
        return [reason for leg in tree.legs for reason in why_not(leg, attributes)]
    values = ", ".join(f"{name} is {_shown(attributes, name)}" for name in sorted(names(tree)))
    return [f"{write(tree)} is {'bottom' if found is None else 'false'}" + (f", as {values}" if values else "")]


def _shown(attributes: Attributes, name: str) -> str:
    if name not in attributes:
        return "absent"
    text = repr(attributes[name])
    return text if len(text) <= MAX_VALUE else f"{text[:MAX_VALUE]}..."
