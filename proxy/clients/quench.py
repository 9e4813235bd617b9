"""Quench: producers who ask are told what anybody wants, so that they can stop sending what nobody does.

What is wanted anywhere stands in the site's state, as expressions with the keys by which they are wanted: what sessions
here need, and what neighbours ask for, who ask for what is wanted behind them. A producer is told of those *terms* that
have to do with attributes that it names. A term is one alternative of an expression, what stands between its outermost
``||``. An expression is true only if one of its terms is, and a term only if an attribute that it names is there, or
if it is true of every notification, as ``equals(0, x, 0)`` is. A producer hears of terms of that last kind whatever it
names. So a producer that names all the attributes that it sends hears of every term that could want what it sends.

Expressions are taken apart only where somebody asks, and compared with what is asked, so many at a time for all
producers together: one that asks again and again costs nobody else anything. Until all are, the producer is not told
that it knows everything, and sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from proxy.core.effects import Send
from proxy.core.environment import Environment
from proxy.core.output import Output
from waypost.clock import NEVER
from waypost.keys import PRODUCER, Key, Protection, primed
from waypost.limits import QUENCH_COMPARED, QUENCH_EXAMINED, QUENCH_EXAMINED_BYTES, QUENCH_TERMS
from waypost.messages import Interest, Quench
from waypost.subscription import SubscriptionError, parse
from waypost.subscription.canonical import write
from waypost.subscription.tree import Compare, Logic, Name, Node, names


class Term(NamedTuple):
    """One alternative: its canonical text, the attributes that it names, and whether it is true without any."""

    text: str
    names: frozenset[str]
    is_always: bool

    def concerns(self, attributes: Collection[str]) -> bool:
        """Tell whether the term can be true of a notification because of one of these attributes, or without any."""
        return self.is_always or not self.names.isdisjoint(attributes)


@dataclass(slots=True, kw_only=True)
class _Requester:
    """One producer's question, and what it was told."""

    number: int
    names: frozenset[str]
    own: tuple[Key, ...]
    """Keys that were said with the question; those of the connection come to them."""
    protection: Protection
    waiting: dict[str, None]
    """Expressions that are to be compared with the question."""
    terms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The terms that it is to know, by expression."""
    wanted: Counter[str] = field(default_factory=Counter)
    """By how many expressions each term is."""
    announced: set[str] = field(default_factory=set)
    changed: dict[str, None] = field(default_factory=dict)
    """Terms that may have come or gone since then."""
    caught_up: bool = False


class QuenchHandler:
    """Tells producers which of the terms that they ask for are wanted (quench)."""

    def __init__(self, env: Environment, output: Output) -> None:
        self._env = env
        self._output = output
        self._requesters: dict[int, _Requester] = {}
        self._terms: dict[str, tuple[Term, ...]] = {}
        """The terms of each expression that was taken apart."""
        self._waiting: dict[str, None] = {}
        """Expressions that are to be looked at."""

    def _answer(self, connection: int, answer: Interest) -> None:
        self._output.emit(Send(connection, answer))

    def quench(self, connection: int, message: Quench, keys: tuple[Key, ...]) -> None:
        """Tell a producer from now on which terms (alternatives of subscriptions' expressions) are wanted.

        This takes the place of what the producer asked before. The first answers come with :meth:`tick`; a message
        without names is answered at once, and ends the telling.

        Args:
            connection: the number of the producer's connection.
            keys: the public keys that go with all that is published on the connection.
        """
        self.leave(connection)
        if not message.names:
            self._answer(connection, Interest(message.number, [], [], True))
            return
        if not self._requesters:
            self._waiting = dict.fromkeys(sorted(self._env.state.all_interests()))
        own = primed(PRODUCER, message.keys)
        protection = Protection.of(keys, own, insecure=message.insecure)
        self._requesters[connection] = _Requester(
            number=message.number,
            names=frozenset(message.names),
            own=own,
            protection=protection,
            waiting=dict.fromkeys(self._terms),
        )

    def keys_changed(self, connection: int, keys: tuple[Key, ...]) -> None:
        """Replace the public keys that go with all that a connection publishes; the next calls of :meth:`tick` compare
        all terms anew, and tell the producer what has come or gone. Nothing is done if it has not asked for terms.
        """
        requester = self._requesters.get(connection)
        if requester is not None:
            requester.protection = Protection.of(keys, requester.own, insecure=requester.protection.insecure)
            requester.waiting = dict.fromkeys(self._terms)

    def leave(self, connection: int) -> None:
        """Tell the producer of a connection no more; nothing is done if it has not asked for terms."""
        self._requesters.pop(connection, None)
        if not self._requesters:
            self._terms.clear()
            self._waiting.clear()

    def changed(self, expressions: Iterable[str]) -> None:
        """Note expressions whose interests have come, gone or changed keys; :meth:`tick` tells producers what follows.

        Args:
            expressions: in canonical form.
        """
        if self._requesters:
            self._waiting.update(dict.fromkeys(expressions))

    # ------------------------------------------------------------ time

    def tick(self) -> None:
        """Take apart a bounded number of the noted expressions, and tell producers which terms have come or gone."""
        size = 0
        for expression in list(islice(self._waiting, QUENCH_EXAMINED)):
            del self._waiting[expression]
            self._take_apart(expression)
            size += len(expression)
            if size > QUENCH_EXAMINED_BYTES:
                break
        self._compare_next()
        for connection, requester in self._requesters.items():
            self._send_interest(connection, requester)

    def _compare_next(self) -> None:
        """Compare the next expressions with what producers ask; whoever had its turn is the last one next time."""
        terms_left = QUENCH_COMPARED
        for connection in list(self._requesters):
            requester = self._requesters.pop(connection)
            self._requesters[connection] = requester
            while requester.waiting:
                expression = next(iter(requester.waiting))
                del requester.waiting[expression]
                terms = self._terms.get(expression, ())
                self._match_terms(requester, expression, terms)
                terms_left -= 1 + len(terms)
                if terms_left <= 0:
                    return

    def next_deadline(self) -> int:
        """Return now if there is something to look at or to tell, in ms of the engine's clock; NEVER: nothing."""
        unannounced = (
            requester.waiting or requester.changed or not (requester.caught_up or self._env.rereading)
            for requester in self._requesters.values()
        )
        due = self._waiting or any(unannounced)
        return self._env.time.now_ms if due else NEVER

    def _take_apart(self, expression: str) -> None:
        if not self._env.state.interests(expression):
            self._terms.pop(expression, None)
        elif expression not in self._terms:
            try:
                self._terms[expression] = alternatives_of(expression)
            except SubscriptionError:
                # One of a later version's language may be of everything.
                self._terms[expression] = (Term(expression, frozenset(), True),)
        for requester in self._requesters.values():
            requester.waiting[expression] = None

    def _match_terms(self, requester: _Requester, expression: str, terms: tuple[Term, ...]) -> None:
        """Find out which terms of the expression the producer is to know of now."""
        before = requester.terms.pop(expression, ())
        after: tuple[str, ...] = ()
        concerned = tuple(term.text for term in terms if term.concerns(requester.names))
        if concerned and any(
            protection.allows(requester.protection) for protection in self._env.state.interests(expression)
        ):
            after = requester.terms[expression] = concerned
        requester.wanted.subtract(before)
        requester.wanted.update(after)
        requester.changed.update(dict.fromkeys((*before, *after)))

    def _send_interest(self, connection: int, requester: _Requester) -> None:
        level = not self._waiting and not requester.waiting and not self._env.rereading
        if not requester.changed and requester.caught_up >= level:
            return
        added = [term for term in requester.changed if requester.wanted[term] > 0 and term not in requester.announced]
        removed = [term for term in requester.changed if requester.wanted[term] <= 0 and term in requester.announced]
        requester.announced.update(added)
        requester.announced.difference_update(removed)
        for term in requester.changed:
            if not requester.wanted[term]:
                del requester.wanted[term]
        requester.changed.clear()
        while len(added) + len(removed) > QUENCH_TERMS:
            self._output.emit(
                Send(connection, Interest(requester.number, added[:QUENCH_TERMS], removed[:QUENCH_TERMS], False))
            )
            added, removed = added[QUENCH_TERMS:], removed[QUENCH_TERMS:]
        if added or removed or (level and not requester.caught_up):
            self._answer(connection, Interest(requester.number, added, removed, level))
        requester.caught_up = requester.caught_up or level


def alternatives_of(expression: str) -> tuple[Term, ...]:
    """Return the terms of a valid expression: it matches exactly where one of these alternatives does.

    An alternative without an attribute is left out: it is bottom for every notification. Raises SubscriptionError: the
    expression is not valid.
    """
    tree = parse(expression).tree
    alternatives = tree.legs if isinstance(tree, Logic) and tree.operator == "||" else (tree,)
    # Had it another value, the parser would have folded it.
    return tuple(_term(alternative) for alternative in alternatives if names(alternative))


def _term(alternative: Node) -> Term:
    text = write(alternative)
    # A comparison of an attribute is true of no notification that has it not; of the rest the evaluator knows.
    is_plain = isinstance(alternative, Compare) and isinstance(alternative.left, Name)
    return Term(text, names(alternative), not is_plain and bool(parse(text).matches({})))
