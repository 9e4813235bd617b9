"""Static checks: what can be refused before any notification is seen.

The type of a node is the set of types its value may have: an attribute may be anything, a literal is one
thing, and an operator gives what it gives for each pair that suits it. A node whose set is empty could be
nothing but bottom on every notification; that is a mistake, and TYPE_MISMATCH says where
(docs/subscription-language.md, Functions, Values and Refusals).

The walk recurses, one call a level of the tree; the parser has bounded the levels.
"""

from __future__ import annotations

from typing import NoReturn, assert_never

from waypost.subscription.canonical import write
from waypost.subscription.errors import SubscriptionError, quoted
from waypost.subscription.functions import FUNCTIONS, STRING_FUNCTIONS, Argument, Function
from waypost.subscription.hints import glued, unknown_function
from waypost.subscription.patterns import MAX_INSTRUCTIONS, BadPattern, instructions
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary, walk

Types = frozenset[str]

_BOOLEAN: Types = frozenset({"boolean"})
_INTEGERS: Types = frozenset({"int32", "int64"})
_NUMBERS: Types = _INTEGERS | {"real64"}
_ANY: Types = _NUMBERS | {"string", "opaque"}
_WIDTH = {"int32": 0, "int64": 1, "real64": 2}

_INTEGERS_ONLY = frozenset({"%", "|", "^", "&", "<<", ">>", ">>>", "~"})
_WITH_PATTERNS = frozenset({"regex", "wildcard"})


def check(tree: Node) -> None:
    """Check a tree as it came from the parser: types, functions, arguments and patterns.

    Raises:
        SubscriptionError: TYPE_MISMATCH, UNKNOWN_FUNC, TOO_FEW_ARGS, TOO_MANY_ARGS, INVALID_REGEXP, REGEXP_TOO_COMPLEX;
            PARSE_ERROR for a name that contains an operator by mistake.
    """
    _check_test(tree)
    _check_patterns(tree)


def _check_test(node: Node) -> None:
    if isinstance(node, Name):
        raise _bare_name(node)
    if _types(node) != _BOOLEAN:
        _mismatch(node, f"{_text(node)} is a value where a test is needed; compare it with something")


def _bare_name(node: Name) -> SubscriptionError:
    message = glued(node.name)
    if message is not None:
        return SubscriptionError("PARSE_ERROR", node.offset, message, quoted(node.name))
    name = _text(node)
    message = f"{name} is an attribute and no test; compare it, or write require({name})"
    return SubscriptionError("TYPE_MISMATCH", node.offset, message, name)


def _types(node: Node) -> Types:
    match node:
        case Name():
            return _ANY
        case Literal():
            return frozenset({node.type})
        case Not(operand=operand):
            _check_test(operand)
            return _BOOLEAN
        case Logic(legs=legs):
            for leg in legs:
                _check_test(leg)
            return _BOOLEAN
        case Compare():
            return _compare_types(node)
        case Unary():
            return _suited(node.operand, node.operator)
        case Binary():
            return _binary_types(node)
        case Call():
            return _call_types(node)
        case _:
            assert_never(node)


def _value_types(node: Node) -> Types:
    types = _types(node)
    if types == _BOOLEAN:
        _mismatch(node, f"{_text(node)} is a test where a value is needed; join tests with && || ^^")
    return types


def _suited(node: Node, operator: str) -> Types:
    """Return the types that the node may have and the operator can use; refuse if there are none."""
    suitable = _INTEGERS if operator in _INTEGERS_ONLY else _NUMBERS
    types = _value_types(node)
    if not types & suitable:
        wanted = "integers" if suitable is _INTEGERS else "numbers"
        _mismatch(node, f"{operator} is for {wanted}, and {_text(node)} is of type {_named(types)}")
    return types & suitable


def _binary_types(node: Binary) -> Types:
    left, right = _suited(node.left, node.operator), _suited(node.right, node.operator)
    if node.operator == ">>>":
        return left
    return frozenset(max(x, y, key=_WIDTH.__getitem__) for x in left for y in right)


def _compare_types(node: Compare) -> Types:
    left, right = _value_types(node.left), _value_types(node.right)
    if not (left & _NUMBERS and right & _NUMBERS) and "string" not in left & right:
        culprit = node.right if isinstance(node.right, Literal) or not isinstance(node.left, Literal) else node.left
        both = f"{_text(node.left)} ({_named(left)}) and {_text(node.right)} ({_named(right)})"
        _mismatch(culprit, f"{both} can never be compared; use values of one type")
    return _BOOLEAN


def _named(types: Types) -> str:
    return " or ".join(sorted(types))


def _text(node: Node) -> str:
    return quoted(write(node))


def _mismatch(node: Node, message: str) -> NoReturn:
    raise SubscriptionError("TYPE_MISMATCH", node.offset, message, _text(node))


# ---------------------------------------------------------------- calls


def _call_types(node: Call) -> Types:
    function = FUNCTIONS.get(node.function)
    if function is None:
        message = glued(node.function, "(") or unknown_function(node.function)
        raise SubscriptionError("UNKNOWN_FUNC", node.offset, message, quoted(node.function))
    _check_count(node, function)
    for index, argument in enumerate(node.arguments):
        _check_argument(node, argument, function.first if index == 0 else function.rest)
    return frozenset({function.result})


def _check_count(node: Call, function: Function) -> None:
    count = len(node.arguments)
    if count < function.fewest:
        wanted = "one argument" if function.fewest == 1 else "two arguments or more"
        message = f"{node.function} takes {wanted}, and here are {count}"
        raise SubscriptionError("TOO_FEW_ARGS", node.offset, message, node.function)
    if function.most is not None and count > function.most:
        surplus = node.arguments[function.most]
        message = f"{node.function} takes one argument, and here are {count}"
        raise SubscriptionError("TOO_MANY_ARGS", surplus.offset, message, node.function)


def _check_argument(call: Call, argument: Node, wanted: Argument | None) -> None:
    if wanted is None or not _fits(argument, wanted):
        wanted = wanted or Argument.VALUE
        _mismatch(argument, f"{call.function} takes {wanted.value} here, and no {_text(argument)}")
    if not isinstance(argument, Name | Literal):
        _value_types(argument)


def _fits(argument: Node, wanted: Argument) -> bool:
    is_string = isinstance(argument, Literal) and isinstance(argument.value, str)
    is_function = isinstance(argument, Call) and argument.function in STRING_FUNCTIONS
    match wanted:
        case Argument.NAME:
            return isinstance(argument, Name)
        case Argument.SUBJECT:
            return isinstance(argument, Name) or is_function
        case Argument.TEXT:
            return isinstance(argument, Name) or is_function or is_string
        case Argument.STRING:
            return is_string
        case Argument.VALUE:
            return not isinstance(argument, Compare | Not | Logic)
        case _:
            assert_never(wanted)


# ---------------------------------------------------------------- patterns


def _check_patterns(tree: Node) -> None:
    """Compile every pattern, and refuse the one that makes all of them together too large."""
    total = 0
    for node, _ in walk(tree):
        if isinstance(node, Call) and node.function in _WITH_PATTERNS:
            for literal in node.arguments[1:]:
                total += _instructions(node, literal)
                if total > MAX_INSTRUCTIONS:
                    message = "the patterns of this expression are too large together; subscribe to them apart"
                    raise SubscriptionError("REGEXP_TOO_COMPLEX", literal.offset, message, _text(literal))


def _instructions(call: Call, literal: Node) -> int:
    assert isinstance(literal, Literal) and isinstance(literal.value, str)
    try:
        return instructions(call.function, literal.value)
    except BadPattern as error:
        token = quoted(literal.value)
        raise SubscriptionError(error.code, literal.offset, error.message, token) from None
