"""Elvin's subscription language: a filter as text, as a tree, and as a test of notifications.

`parse` is the entry: it returns an :class:`Expression` or raises :class:`SubscriptionError`. An expression is
true, false or bottom (``None``) of a notification; only true delivers. The tree is public,
:mod:`waypost.subscription.tree`; so is the table of functions, :mod:`waypost.subscription.functions`.

Source: the Elvin client protocol, draft 4.0, section 6.1; docs/subscription-language.md decides what it leaves open.
"""

from waypost.subscription.errors import SubscriptionError
from waypost.subscription.expression import Expression, parse
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary

__all__ = [
    "Binary",
    "Call",
    "Compare",
    "Expression",
    "Literal",
    "Logic",
    "Name",
    "Node",
    "Not",
    "SubscriptionError",
    "Unary",
    "parse",
]
