"""From tree to text: the one way to write a tree.

The text is the identity of a filter between sites, so two trees have the same text exactly if they are equal,
and parsing the text gives the tree again. Brackets stand only where the precedence of the grammar needs them;
there is at most one pair a level of the tree, and so a tree within the bound on depth has a text within it.
"""

from __future__ import annotations

from typing import assert_never

from waypost.notification import Int64
from waypost.subscription.lexis import write_name, write_string
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary

_PRECEDENCES = (
    ("||",),
    ("^^",),
    ("&&",),
    ("!",),
    ("==", "!=", "<", "<=", ">", ">="),
    ("+", "-"),
    ("*", "/", "%"),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>", ">>>"),
)
_PRECEDENCE = {operator: level for level, operators in enumerate(_PRECEDENCES) for operator in operators}
_NOT, _SUM, _UNARY, _PRIMARY = _PRECEDENCE["!"], _PRECEDENCE["+"], len(_PRECEDENCES), len(_PRECEDENCES) + 1


def write(node: Node) -> str:
    """Return the canonical text of a tree."""
    match node:
        case Name(name=name):
            return write_name(name)
        case Literal(value=value):
            return _literal(value)
        case Call(function=function, arguments=arguments):
            return f"{write_name(function)}({', '.join(map(write, arguments))})"
        case Not(operand=operand):
            return "!" + _at(operand, _NOT)
        case Unary(operator=operator, operand=operand):
            return operator + _at(operand, _PRIMARY if isinstance(operand, Literal) else _UNARY)
        case Logic(operator=operator, legs=legs):
            return f" {operator} ".join(_at(operand, _PRECEDENCE[operator] + 1) for operand in legs)
        case Compare(operator=operator, left=left, right=right):
            return f"{_at(left, _SUM)} {operator} {_at(right, _SUM)}"
        case Binary(operator=operator, left=left, right=right):
            level = _PRECEDENCE[operator]
            return f"{_at(left, level)} {operator} {_at(right, level + 1)}"
        case _:
            assert_never(node)


def _at(node: Node, precedence: int) -> str:
    """Write a node where only this level of precedence, or a tighter one, may stand without brackets."""
    text = write(node)
    return text if _precedence(node) >= precedence else f"({text})"


def _precedence(node: Node) -> int:
    match node:
        case Not():
            return _NOT
        case Unary():
            return _UNARY
        case Literal():
            # A minus in front of a bare number would become part of it.
            return _UNARY
        case Logic(operator=operator) | Compare(operator=operator) | Binary(operator=operator):
            return _PRECEDENCE[operator]
        case _:
            pass
    return _PRIMARY


def _literal(value: object) -> str:
    if isinstance(value, str):
        return write_string(value)
    if isinstance(value, float):
        return _real(value)
    return f"{value:d}L" if isinstance(value, Int64) else str(value)


def _real(value: float) -> str:
    """Write a finite real so that it reads back as itself; the language wants digits around the point."""
    text = repr(value)
    if "." in text:
        return text
    return text.replace("e", ".0e")
