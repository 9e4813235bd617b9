"""From tree to test: a Python closure that says true, false or bottom of a notification's attributes.

The logic has three values, Lukasiewicz's: True, False, and None for bottom. An attribute that is absent or of
a type that does not suit makes the predicate around it bottom; bottom is passed on by `!` and `^^`, loses
against a false leg of `&&` and a true leg of `||`, and never delivers (docs/subscription-language.md, Truth).

Everything that can be known beforehand is done when the closure is made: patterns are compiled, and a
comparison of an attribute with a literal, which is what most subscriptions are made of, becomes one function
without detours. The closures never raise, whatever the mapping holds, and have no state, so any thread may
call them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waypost.errors import Internal
from waypost.notification import INT32_MAX, INT32_MIN, Int64, Value
from waypost.subscription.arithmetic import BINARY, COMPARISONS, RELATIONS, UNARY, exact
from waypost.subscription.decomposition import decomposer
from waypost.subscription.patterns import globber, searcher
from waypost.subscription.tree import Binary, Call, Compare, Literal, Logic, Name, Node, Not, Unary

Attributes = Mapping[str, Value]
Test = Callable[[Attributes], bool | None]
Operand = Callable[[Attributes], Value | None]

_READY = frozenset({Int64, float, str, bytes, type(None)})
_EXACT_IN_A_DOUBLE = 2**53
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def compile_test(node: Node) -> Test:
    """Return the test that a checked tree describes: it returns True, False, or None for bottom, and never raises.

    Raises:
        Internal: the tree is a value and no predicate.
    """
    match node:
        case Compare():
            return _comparison(node)
        case Logic(operator=operator, legs=legs):
            return _LOGIC[operator]([compile_test(operand) for operand in legs])
        case Not(operand=operand):
            return _negation(compile_test(operand))
        case Call(function=function, arguments=arguments) if function in _PREDICATES:
            return _PREDICATES[function](arguments)
    raise Internal(f"{type(node).__name__} is no test")


def compile_operand(node: Node) -> Operand:
    """Return the function that computes a checked value from a notification's attributes; it returns None for bottom,
    and never raises.

    Raises:
        Internal: the tree is a predicate and no value.
    """
    match node:
        case Name(name=name):
            return _attribute(name)
        case Literal(value=value):
            return lambda attributes: value
        case Unary(operator=operator, operand=operand):
            return _applied(UNARY[operator], compile_operand(operand))
        case Binary(operator=operator, left=left, right=right):
            return _applied_to_two(BINARY[operator], compile_operand(left), compile_operand(right))
        case Call(function=function, arguments=arguments) if function in _VALUES:
            return _applied(_VALUES[function], compile_operand(arguments[0]))
    raise Internal(f"{type(node).__name__} is no value")


# ---------------------------------------------------------------- logic


def _negation(test: Test) -> Test:
    def negated(attributes: Attributes) -> bool | None:
        result = test(attributes)
        return None if result is None else not result

    return negated


def _decided_by(decisive: bool) -> Callable[[Sequence[Test]], Test]:
    """Make `&&`, which one False decides, or `||`, which one True does; bottom is what remains of doubt."""

    def connect(legs: Sequence[Test]) -> Test:
        if len(legs) == 2:
            return _pair(legs[0], legs[1], decisive)

        def connected(attributes: Attributes) -> bool | None:
            result: bool | None = not decisive
            for operand in legs:
                truth = operand(attributes)
                if truth is decisive:
                    return decisive
                if truth is None:
                    result = None
            return result

        return connected

    return connect


def _pair(left: Test, right: Test, decisive: bool) -> Test:
    other = not decisive

    def connected(attributes: Attributes) -> bool | None:
        first = left(attributes)
        if first is decisive:
            return decisive
        second = right(attributes)
        if second is decisive:
            return decisive
        return None if first is None or second is None else other

    return connected


def _parity(legs: Sequence[Test]) -> Test:
    def odd(attributes: Attributes) -> bool | None:
        result = False
        for operand in legs:
            truth = operand(attributes)
            if truth is None:
                return None
            result ^= truth
        return result

    return odd


_LOGIC: dict[str, Callable[[Sequence[Test]], Test]] = {
    "&&": _decided_by(False),
    "||": _decided_by(True),
    "^^": _parity,
}


# ---------------------------------------------------------------- comparison


def _comparison(node: Compare) -> Test:
    left, right, operator = node.left, node.right, node.operator
    if isinstance(left, Literal) and isinstance(right, Name):
        left, right, operator = right, left, _MIRRORED[operator]
    if isinstance(left, Name) and isinstance(right, Literal):
        return _comparison_with_literal(operator, left.name, right.value)
    return _applied_to_two(RELATIONS[operator], compile_operand(left), compile_operand(right))


def _comparison_with_literal(operator: str, name: str, literal: Value) -> Test:
    general, read = RELATIONS[operator], _attribute(name)

    def slow(attributes: Attributes) -> bool | None:
        return general(read(attributes), literal)

    kinds = _comparable_as_they_are(operator, literal)
    if len(kinds) == 1:
        return _direct_on_one(operator, name, literal, kinds[0], slow)
    return _direct(operator, name, literal, frozenset(kinds), slow) if kinds else slow


def _comparable_as_they_are(operator: str, literal: Value) -> tuple[type, ...]:
    """Return the types whose values Python compares with the literal as the language would.

    An integer and a real are among them as long as promotion cannot round the integer.
    """
    if isinstance(literal, str):
        return (str,) if operator in ("==", "!=") else ()
    if isinstance(literal, float):
        return (float, int)
    if isinstance(literal, int):
        small = -_EXACT_IN_A_DOUBLE <= literal <= _EXACT_IN_A_DOUBLE
        return (int, Int64, float) if small else (Int64,)
    return ()


def _direct_on_one(operator: str, name: str, literal: Value, kind: type, slow: Test) -> Test:
    if operator == "==":

        def equal(attributes: Attributes) -> bool | None:
            value = attributes.get(name)
            return value == literal if type(value) is kind else slow(attributes)

        return equal
    return _direct(operator, name, literal, frozenset({kind}), slow)


def _direct(operator: str, name: str, literal: Value, kinds: frozenset[type], slow: Test) -> Test:
    holds = COMPARISONS[operator]

    def compared(attributes: Attributes) -> bool | None:
        value = attributes.get(name)
        return holds(value, literal) if type(value) in kinds else slow(attributes)

    return compared


# ---------------------------------------------------------------- values


def _attribute(name: str) -> Operand:
    def read(attributes: Attributes) -> Value | None:
        value = attributes.get(name)
        kind = type(value)
        if kind in _READY or (kind is int and INT32_MIN <= value <= INT32_MAX):  # type: ignore[operator]
            return value
        return exact(value)

    return read


def _applied(function: Callable[[Any], Any], operand: Operand) -> Callable[[Attributes], Any]:
    return lambda attributes: function(operand(attributes))


def _applied_to_two(function: Callable[[Any, Any], Any], left: Operand, right: Operand) -> Callable[[Attributes], Any]:
    return lambda attributes: function(left(attributes), right(attributes))


def _size(value: Any) -> int | None:
    if type(value) is str:
        return len(value.encode("utf-8", "surrogatepass"))
    return len(value) if type(value) is bytes else None


def _of_string(function: Callable[[str], str]) -> Callable[[Any], str | None]:
    return lambda value: function(value) if type(value) is str else None


_VALUES: dict[str, Callable[[Any], Value | None]] = {
    "size": _size,
    "fold-case": _of_string(str.casefold),
    "decompose": _of_string(decomposer("NFD")),
    "decompose-compat": _of_string(decomposer("NFKD")),
}


# ---------------------------------------------------------------- predicates


def _require(arguments: Sequence[Node]) -> Test:
    name = _name(arguments[0])
    return lambda attributes: True if name in attributes else None


def _type_test(kind: type) -> Callable[[Sequence[Node]], Test]:
    def build(arguments: Sequence[Node]) -> Test:
        read = _attribute(_name(arguments[0]))

        def is_of_type(attributes: Attributes) -> bool | None:
            value = read(attributes)
            return None if value is None else type(value) is kind

        return is_of_type

    return build


def _nan(arguments: Sequence[Node]) -> Test:
    read = _attribute(_name(arguments[0]))

    def is_nan(attributes: Attributes) -> bool | None:
        value = read(attributes)
        return value != value if type(value) is float else None

    return is_nan


def _equals(arguments: Sequence[Node]) -> Test:
    first = arguments[0]
    tests = [_comparison(Compare("==", first, argument)) for argument in arguments[1:]]
    return tests[0] if len(tests) == 1 else _LOGIC["||"](tests)


def _string_test(make: Callable[[Sequence[str]], Callable[[str], bool]]) -> Callable[[Sequence[Node]], Test]:
    def build(arguments: Sequence[Node]) -> Test:
        subject = compile_operand(arguments[0])
        holds = make([_string(argument) for argument in arguments[1:]])

        def test(attributes: Attributes) -> bool | None:
            text = subject(attributes)
            return holds(text) if type(text) is str else None

        return test

    return build


def _beginning(texts: Sequence[str]) -> Callable[[str], bool]:
    beginnings = tuple(texts)
    return lambda text: text.startswith(beginnings)


def _ending(texts: Sequence[str]) -> Callable[[str], bool]:
    endings = tuple(texts)
    return lambda text: text.endswith(endings)


def _containing(texts: Sequence[str]) -> Callable[[str], bool]:
    if len(texts) == 1:
        part = texts[0]
        return lambda text: part in text
    return lambda text: any(part in text for part in texts)


_PREDICATES: dict[str, Callable[[Sequence[Node]], Test]] = {
    "require": _require,
    "int32": _type_test(int),
    "int64": _type_test(Int64),
    "real64": _type_test(float),
    "string": _type_test(str),
    "opaque": _type_test(bytes),
    "nan": _nan,
    "equals": _equals,
    "begins-with": _string_test(_beginning),
    "ends-with": _string_test(_ending),
    "contains": _string_test(_containing),
    "wildcard": _string_test(globber),
    "regex": _string_test(searcher),
}


def _name(node: Node) -> str:
    if not isinstance(node, Name):
        raise Internal(f"{type(node).__name__} where a name was checked for")
    return node.name


def _string(node: Node) -> str:
    if not isinstance(node, Literal) or not isinstance(node.value, str):
        raise Internal(f"{type(node).__name__} where a string was checked for")
    return node.value
