"""Elvin's subscription language: a filter as text, as a tree, and as a test of notifications.

`parse` is the entry: it returns an :class:`Expression` or raises :class:`SubscriptionError`. An expression is
true, false or bottom (``None``) of a notification; only true delivers. The tree is public,
:mod:`waypost.subscription.tree`; so is the table of functions, :mod:`waypost.subscription.functions`.

Names are imported when they are first used: whoever only reads expressions (:mod:`waypost.subscription.parser`), as the
audit does, has nothing of what evaluates them.

Source: the Elvin client protocol, draft 4.0, section 6.1; docs/subscription-language.md decides what it leaves open.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_MODULES = {"SubscriptionError": "errors", "Expression": "expression", "parse": "expression"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'tree')}"), name)
    globals()[name] = value
    return value
