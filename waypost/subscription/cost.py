"""What an expression costs, estimated from its tree before any notification is seen.

The figures are of the worst notification that is allowed, MAX_NOTIFICATION_BYTES of the text that suits the expression
least; they were measured, and rounded up. The expensive parts are those that read every character: searches, patterns,
and the functions that make another text. RE2 leaves its automaton for one that is slower by the size of the pattern if
a text makes it build a state for nearly every byte, so a pattern counts as if it always did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from waypost.limits import MAX_NOTIFICATION_BYTES
from waypost.subscription.patterns import instructions
from waypost.subscription.tree import Call, Compare, Literal, Node, walk

NODE_NS = 200
"""Cost of any node, whatever the text, in ns."""
SEARCH_NS = 4.0
"""For each byte of the text and each text that is looked for in it."""
ENCODE_NS = 0.5
COMPARE_NS = 0.2
"""Cost of comparing two attributes that are equal up to the last byte."""
MAKE_NS = {"fold-case": 4.0, "decompose": 200.0, "decompose-compat": 200.0, "size": ENCODE_NS}
GROWTH = {"fold-case": 3.0, "decompose": 3.0, "decompose-compat": 12.0}
"""Factors by which a function can make a text larger."""
SMALL_PATTERN = 20
"""Instructions of a pattern; below it what costs is to build the states."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an expression. `nodes`: of its tree, which memory grows with; `work_ns`: of one evaluation, at
    most.
    """

    nodes: int = 0
    work_ns: int = 0

    def of(self, size: int) -> float:
        """Return the nanoseconds of one evaluation, at most, for a notification of `size` bytes."""
        fixed = min(self.work_ns, self.nodes * NODE_NS)
        return fixed + (self.work_ns - fixed) * size / MAX_NOTIFICATION_BYTES

    def __add__(self, other: Self) -> Cost:
        return Cost(self.nodes + other.nodes, self.work_ns + other.work_ns)

    def __sub__(self, other: Self) -> Cost:
        return Cost(self.nodes - other.nodes, self.work_ns - other.work_ns)


def cost_of(tree: Node) -> Cost:
    """Return the cost of a checked tree: the upper bounds of its size and of one evaluation."""
    nodes, per_byte = 0, 0.0
    for node, _ in walk(tree):
        nodes += 1
        per_byte += _per_byte(node)
    return Cost(nodes, int(nodes * NODE_NS + per_byte * MAX_NOTIFICATION_BYTES))


def _per_byte(node: Node) -> float:
    """Return nanoseconds for each byte of a text, of this node without those below it."""
    match node:
        case Compare(left=left, right=right):
            return 0.0 if isinstance(left, Literal) or isinstance(right, Literal) else COMPARE_NS
        case Call(function="contains", arguments=(subject, *texts)):
            return SEARCH_NS * len(texts) * _growth(subject)
        case Call(function="regex" | "wildcard" as function, arguments=(subject, *patterns)):
            return (ENCODE_NS + sum(_pattern_ns(function, pattern) for pattern in patterns)) * _growth(subject)
        case Call(function="equals", arguments=(_, *others)):
            return COMPARE_NS * sum(not isinstance(other, Literal) for other in others)
        case Call(function=function, arguments=(subject, *_)) if function in MAKE_NS:
            return MAKE_NS[function] * _growth(subject)
    return 0.0


def _pattern_ns(function: str, pattern: Node) -> float:
    assert isinstance(pattern, Literal) and isinstance(pattern.value, str)
    size = instructions(function, pattern.value)
    return 6.0 * size if size <= SMALL_PATTERN else 100.0 + 1.3 * size


def _growth(subject: Node) -> float:
    """Return how many times as large as the attribute a text can be. What was made once does not grow by it again."""
    made: set[str] = set()
    while isinstance(subject, Call):
        made.add(subject.function)
        subject = subject.arguments[0]
    growth = 1.0
    for function in made:
        growth *= GROWTH.get(function, 1.0)
    return growth
