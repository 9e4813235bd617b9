"""Quench: producers who ask are told what anybody wants, so that they can stop sending what nobody does.

What is wanted anywhere stands in the site's state, as expressions with the keys by which they are wanted: what sessions
here need, and what neighbours ask for, who ask for what is wanted behind them. A producer is told of those *terms* that
have to do with attributes that it names. A term is one alternative of an expression, what stands between its outermost
``||``. An expression is true only if one of its terms is, and a term only if an attribute that it names is there, or
if it is true of every notification, as ``equals(0, x, 0)`` is. So who names all the attributes that it sends, and is
told of the latter whatever it names, is told of all that could want it.

Expressions are taken apart only where somebody asks, so many at a time; until all are, the producer is not told that it
knows everything, and sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from proxy.context import Context
from waypost.clock import NEVER
from waypost.keys import PRODUCER, Key, Protection, primed
from waypost.limits import QUENCH_LOOKED_AT, QUENCH_LOOKED_AT_BYTES, QUENCH_TERMS
from waypost.messages import Interest, Quench
from waypost.subscription import parse
from waypost.subscription.canonical import write
from waypost.subscription.tree import Compare, Logic, Name, Node, names


class Term(NamedTuple):
    """One alternative: its canonical text, the attributes that it names, and whether it is true without any."""

    text: str
    names: frozenset[str]
    is_always: bool

    def concerns(self, attributes: Collection[str]) -> bool:
        """Tell whether it could want a notification with one of these attributes because of it."""
        return self.is_always or not self.names.isdisjoint(attributes)


@dataclass(slots=True)
class _Asker:
    """One producer's question, and what it was told."""

    number: int
    names: frozenset[str]
    own: tuple[Key, ...]
    """Keys that were said with the question; those of the connection come to them."""
    protection: Protection
    terms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of each expression, the terms of which it is to know."""
    wanted: Counter[str] = field(default_factory=Counter)
    """By how many expressions each term is."""
    told: set[str] = field(default_factory=set)
    changed: dict[str, None] = field(default_factory=dict)
    """Terms that may have come or gone since then."""
    level: bool = False


class Quenching:
    """All producers that ask."""

    def __init__(self, context: Context, say: Callable[[int, Interest], None]) -> None:
        self._context = context
        self._say = say
        self._askers: dict[int, _Asker] = {}
        self._terms: dict[str, tuple[Term, ...]] = {}
        """Of each expression that anybody wants and that was taken apart."""
        self._waiting: dict[str, None] = {}
        """Expressions that are to be looked at."""

    def ask(self, connection: int, message: Quench, keys: tuple[Key, ...]) -> None:
        """Answer a producer from now on; the answers to what it asked before end."""
        self.leave(connection)
        if not message.names:
            self._say(connection, Interest(message.number, [], [], True))
            return
        if not self._askers:
            self._waiting = dict.fromkeys(sorted(self._context.state.all_interests()))
        own = primed(PRODUCER, message.keys)
        protection = Protection.of(keys, own, insecure=message.insecure)
        asker = self._askers[connection] = _Asker(message.number, frozenset(message.names), own, protection)
        for expression, terms in self._terms.items():
            self._look(asker, expression, terms)

    def keys_changed(self, connection: int, keys: tuple[Key, ...]) -> None:
        """Other keys go with all that the connection publishes."""
        asker = self._askers.get(connection)
        if asker is not None:
            asker.protection = Protection.of(keys, asker.own, insecure=asker.protection.insecure)
            for expression, terms in self._terms.items():
                self._look(asker, expression, terms)

    def leave(self, connection: int) -> None:
        """The connection asks no more."""
        self._askers.pop(connection, None)
        if not self._askers:
            self._terms.clear()
            self._waiting.clear()

    def changed(self, expressions: Iterable[str]) -> None:
        """Somebody more wants these, or nobody any more, or by other keys."""
        if self._askers:
            self._waiting.update(dict.fromkeys(expressions))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Take apart the next expressions, and tell what has changed."""
        size = 0
        for expression in list(islice(self._waiting, QUENCH_LOOKED_AT)):
            del self._waiting[expression]
            self._take_apart(expression)
            size += len(expression)
            if size > QUENCH_LOOKED_AT_BYTES:
                break
        for connection, asker in self._askers.items():
            self._tell(connection, asker)

    def next_deadline(self) -> int:
        untold = (asker.changed or not (asker.level or self._context.rereading) for asker in self._askers.values())
        due = self._waiting or any(untold)
        return self._context.clock.now_ms() if due else NEVER

    def _take_apart(self, expression: str) -> None:
        if not self._context.state.interests(expression):
            self._terms.pop(expression, None)
        elif expression not in self._terms:
            self._terms[expression] = terms_of(expression)
        for asker in self._askers.values():
            self._look(asker, expression, self._terms.get(expression, ()))

    def _look(self, asker: _Asker, expression: str, terms: tuple[Term, ...]) -> None:
        """Find out which terms of the expression the producer is to know of now."""
        before = asker.terms.pop(expression, ())
        after: tuple[str, ...] = ()
        mine = tuple(term.text for term in terms if term.concerns(asker.names))
        if mine and any(each.lets(asker.protection) for each in self._context.state.interests(expression)):
            after = asker.terms[expression] = mine
        asker.wanted.subtract(before)
        asker.wanted.update(after)
        asker.changed.update(dict.fromkeys((*before, *after)))

    def _tell(self, connection: int, asker: _Asker) -> None:
        level = not self._waiting and not self._context.rereading
        if not asker.changed and asker.level >= level:
            return
        added = [term for term in asker.changed if asker.wanted[term] > 0 and term not in asker.told]
        removed = [term for term in asker.changed if asker.wanted[term] <= 0 and term in asker.told]
        asker.told.update(added)
        asker.told.difference_update(removed)
        for term in asker.changed:
            if not asker.wanted[term]:
                del asker.wanted[term]
        asker.changed.clear()
        while len(added) + len(removed) > QUENCH_TERMS:
            self._say(connection, Interest(asker.number, added[:QUENCH_TERMS], removed[:QUENCH_TERMS], False))
            added, removed = added[QUENCH_TERMS:], removed[QUENCH_TERMS:]
        if added or removed or (level and not asker.level):
            self._say(connection, Interest(asker.number, added, removed, level))
        asker.level = asker.level or level


def terms_of(expression: str) -> tuple[Term, ...]:
    """Return the alternatives of an expression."""
    tree = parse(expression).tree
    legs = tree.legs if isinstance(tree, Logic) and tree.operator == "||" else (tree,)
    return tuple(map(_term, legs))


def _term(leg: Node) -> Term:
    text = write(leg)
    # A comparison of an attribute is true of no notification that has it not; of the rest the evaluator knows.
    is_plain = isinstance(leg, Compare) and isinstance(leg.left, Name)
    return Term(text, names(leg), not is_plain and bool(parse(text).matches({})))
