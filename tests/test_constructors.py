"""Parts of the proxy get what they work with when they are made: few others, and no functions of theirs."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MOST_PARTS = 5
FILES = sorted(path for room in ("proxy", "handover") for path in (ROOT / room).rglob("*.py"))
VALUES = {"str", "int", "float", "bool", "Random", "Clock", "Settings", "ProxyId", "SiteId", "SessionId", "Epoch"}
"""Types of arguments that are no parts."""


def constructors() -> list[tuple[str, list[str]]]:
    """Return each class that has a constructor of its own, with the annotations of its arguments."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    arguments = [*item.args.args[1:], *item.args.kwonlyargs]
                    annotations = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
                    found.append((f"{path.relative_to(ROOT)}:{node.name}", annotations))
    return found


CONSTRUCTORS = constructors()


@pytest.mark.parametrize(("name", "annotations"), CONSTRUCTORS, ids=[name for name, _ in CONSTRUCTORS])
def test_a_constructor_takes_few_parts_and_no_functions(name: str, annotations: list[str]) -> None:
    assert not [annotation for annotation in annotations if "Callable" in annotation]
    parts = [annotation for annotation in annotations if annotation.split("[")[0].split(".")[-1] not in VALUES]
    if name != "proxy/engine.py:Engine":
        # The engine is made of values, and makes the parts.
        assert len(parts) <= MOST_PARTS, parts
