"""A subscription expression, read, checked, folded and ready to match.

The passes, in order: text to tokens (``lexis``), tokens to tree (``parser``), static checks (``check``), folding of
constants (``constant_folding``), the canonical text (``canonical``), the closure (``evaluate``). Each can refuse, and
the first that does decides the error; none of the later ones can fail.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from weakref import WeakValueDictionary

from waypost.arguments import wrong_type
from waypost.notification import Notification, Value
from waypost.subscription.canonical import write
from waypost.subscription.check import check
from waypost.subscription.constant_folding import fold_or_refuse
from waypost.subscription.cost import Cost, cost_of
from waypost.subscription.evaluate import Test, compile_test
from waypost.subscription.parser import read, refuse_too_deep, refuse_too_long
from waypost.subscription.tree import Node
from waypost.subscription.tree import names as names_of

EXPRESSION = "an expression as text, such as 'dep_delay > 30'"
_CACHED_EXPRESSIONS = 1024
"""Parsed expressions that are cached; the least recently used are removed first."""
_CACHED_NODES = 15_000
"""The bound of the nodes of their trees: a node takes half a kilobyte with its closures."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True, kw_only=True)
class Expression:
    """A filter. Equal to another if the canonical texts are equal; the source and its blanks do not count.

    Attributes:
        text: the source.
        tree: the expression tree, constants folded.
        canonical: the one text of the tree; parsing it gives an equal expression.
        names: the attributes that the tree refers to.
        cost: the upper bounds of its evaluation time and of its size.
    """

    text: str
    tree: Node = field(repr=False)
    canonical: str = field(repr=False)
    names: frozenset[str] = field(repr=False)
    cost: Cost = field(repr=False)
    _test: Test = field(repr=False)

    def matches(self, attributes: Mapping[str, Value]) -> bool | None:
        """Return whether the expression matches a notification: True, False, or None for bottom. Only True delivers.

        Args:
            attributes: of the notification, or the notification itself.

        Raises:
            BadNotification: a :class:`Notification` made without a check has a body that is not valid.
        """
        if type(attributes) is Notification:
            attributes = attributes.attributes
        return self._test(attributes)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __reduce__(self) -> tuple[Callable[[str], Expression], tuple[str]]:
        return parse, (self.text,)


def parse(text: str) -> Expression:
    """Return the expression of a source text.

    Args:
        text: in the subscription language (docs/subscription-language.md).

    Raises:
        SubscriptionError: it is no expression, or one that may not be registered. Codes and numbers are Elvin's, 2101
            to 2112.
        BadArgument: it is no text.
    """
    if not isinstance(text, str):
        raise wrong_type(text, "expression", EXPRESSION)
    return _known.get(text) or _known.put(_parsed(text))


def _parsed(text: str) -> Expression:
    written = read(text)
    check(written)
    tree = fold_or_refuse(written, text)
    canonical = write(tree)
    # The canonical text travels between sites and is parsed there, so it must keep the limits too.
    refuse_too_deep(tree)
    refuse_too_long(canonical, text)
    return Expression(
        text=text, tree=tree, canonical=canonical, names=names_of(tree), cost=cost_of(tree), _test=compile_test(tree)
    )


class _Known:
    """A cache of expressions: those that are still referenced, and the most recent others."""

    def __init__(self) -> None:
        self._held: WeakValueDictionary[str, Expression] = WeakValueDictionary()
        self._recent: OrderedDict[str, Expression] = OrderedDict()
        self._nodes = 0
        self._lock = Lock()

    def get(self, text: str) -> Expression | None:
        with self._lock:
            if text in self._recent:
                self._recent.move_to_end(text)
            return self._held.get(text)

    def put(self, expression: Expression) -> Expression:
        with self._lock:
            expression = self._held.setdefault(expression.text, expression)
            if expression.text not in self._recent:
                self._recent[expression.text] = expression
                self._nodes += expression.cost.nodes
            while self._nodes > _CACHED_NODES or len(self._recent) > _CACHED_EXPRESSIONS:
                self._nodes -= self._recent.popitem(last=False)[1].cost.nodes
            return expression


_known = _Known()
