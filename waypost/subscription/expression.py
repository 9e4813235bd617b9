"""A subscription expression, read, checked, folded and ready to match.

The passes, in order: text to tokens (`lexis`), tokens to tree (`parser`), static checks (`check`), folding of
constants (`folding`), the canonical text (`canonical`), the closure (`evaluate`). Each can refuse, and the
first that does decides the error; none of the later ones can fail.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from waypost.notification import Notification, Value
from waypost.subscription.canonical import write
from waypost.subscription.check import check
from waypost.subscription.evaluate import Test, compile_test
from waypost.subscription.folding import fold_or_refuse
from waypost.subscription.parser import read, refuse_too_deep, refuse_too_long
from waypost.subscription.tree import Node
from waypost.subscription.tree import names as names_of

_CACHED_EXPRESSIONS = 1024
"""Expressions kept ready; the least recently used go first, and are parsed again when asked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A filter. Equal to another if the canonical texts are equal; the source and its blanks do not count.

    Attributes:
        text: the source.
        tree: the expression tree, constants folded.
        canonical: the one text of the tree; parsing it gives an equal expression.
        names: the attributes that the tree refers to.
    """

    text: str
    tree: Node = field(repr=False)
    canonical: str = field(repr=False)
    names: frozenset[str] = field(repr=False)
    _test: Test = field(repr=False)

    def matches(self, attributes: Mapping[str, Value]) -> bool | None:
        """Return True, False, or None for bottom. Only True delivers. Never raises."""
        if type(attributes) is Notification:
            attributes = attributes.attributes
        return self._test(attributes)

    def __eq__(self, other: object) -> bool:
        return self.canonical == other.canonical if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __reduce__(self) -> tuple[Callable[[str], Expression], tuple[str]]:
        return parse, (self.text,)


@lru_cache(maxsize=_CACHED_EXPRESSIONS)
def parse(text: str) -> Expression:
    """Return the expression that `text` is.

    Raises:
        SubscriptionError: it is none, or may not be registered. Codes and numbers are Elvin's, 2101 to 2112.
    """
    written = read(text)
    check(written)
    tree = fold_or_refuse(written, text)
    canonical = write(tree)
    # The canonical text travels between sites and is parsed there, so it must keep the limits too.
    refuse_too_deep(tree)
    refuse_too_long(canonical, text)
    return Expression(text, tree, canonical, names_of(tree), compile_test(tree))
