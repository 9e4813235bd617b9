"""Folding of constants: the same answer from a smaller tree.

A part without a name is computed once, here, by the evaluator itself, so that the two cannot differ. A true
leg of `&&` and a false leg of `||` vanish, the opposite decides the whole; in `^^` a false leg vanishes and a
true one becomes a negation. What cannot be written as a literal stays as it is: bottom, NaN and the
infinities (docs/subscription-language.md, Truth).

An expression that is constant after folding asks nothing of a notification, and is refused as trivial.
"""

from __future__ import annotations

import math
from dataclasses import replace

from waypost.notification import Value
from waypost.subscription.errors import SubscriptionError, quoted
from waypost.subscription.evaluate import compile_operand, compile_test
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Node, Not, Unary, join, names


def fold_or_refuse(tree: Node, text: str) -> Node:
    """Return the tree with its constant parts computed.

    Args:
        tree: checked (:func:`waypost.subscription.check.check`).
        text: the source, for the error.

    Raises:
        SubscriptionError: EXP_IS_TRIVIAL: the expression has the same result for every notification.
    """
    folded = fold(tree)
    if not isinstance(folded, bool) and names(folded):
        return folded
    always = {True: "true", False: "false"}.get(folded, "bottom") if isinstance(folded, bool) else "bottom"
    message = f"the expression is {always} for every notification; let it depend on an attribute"
    raise SubscriptionError("EXP_IS_TRIVIAL", 0, message, quoted(text))


def fold(node: Node) -> Node | bool:
    """Return a checked test with its constant parts computed: a smaller tree, or True or False if the whole is
    constant. A test that is bottom for every notification remains a tree.
    """
    match node:
        case Not(operand=operand):
            inner = fold(operand)
            return not inner if isinstance(inner, bool) else replace(node, operand=inner)
        case Logic(operator="^^"):
            return _fold_parity(node)
        case Logic():
            return _fold_logic(node)
        case Compare():
            return _decided(replace(node, left=_fold_value(node.left), right=_fold_value(node.right)))
        case Call():
            return _decided(_fold_arguments(node))
        case _:
            pass
    return node


def _decided(node: Node) -> Node | bool:
    if names(node):
        return node
    result = compile_test(node)({})
    return node if result is None else result


def _fold_logic(node: Logic) -> Node | bool:
    decisive = node.operator == "||"
    legs: list[Node] = []
    for operand in map(fold, node.legs):
        if operand is decisive:
            return decisive
        if not isinstance(operand, bool):
            legs.append(operand)
    return _joined(node, legs) if legs else not decisive


def _fold_parity(node: Logic) -> Node | bool:
    odd, legs = False, []
    for operand in map(fold, node.legs):
        if isinstance(operand, bool):
            odd ^= operand
        else:
            legs.append(operand)
    if not legs:
        return odd
    rest = _joined(node, legs)
    return Not(rest, rest.offset) if odd else rest


def _joined(node: Logic, legs: list[Node]) -> Node:
    return legs[0] if len(legs) == 1 else join(node.operator, legs, node.offset)


def _fold_value(node: Node) -> Node:
    match node:
        case Unary(operand=operand):
            return _computed(replace(node, operand=_fold_value(operand)))
        case Binary(left=left, right=right):
            return _computed(replace(node, left=_fold_value(left), right=_fold_value(right)))
        case Call():
            return _computed(_fold_arguments(node))
        case _:
            pass
    return node


def _fold_arguments(node: Call) -> Call:
    return replace(node, arguments=tuple(map(_fold_value, node.arguments)))


def _computed(node: Node) -> Node:
    if names(node):
        return node
    value = compile_operand(node)({})
    return Literal(value, node.offset) if _is_writable(value) and value is not None else node


def _is_writable(value: Value | None) -> bool:
    """Say whether the language has a literal for the value."""
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, int | str)
