"""Parts of proxy, links and the node's machines are made with all they work with: few other parts, and no functions."""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import pkgutil
import re
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest

ROOT = Path(__file__).parent.parent
MOST_PARTS = 5
MACHINE_ROOMS = ("proxy", "handover", "federation.links", "federation.site", "node.machines")
FILES = sorted(path for room in MACHINE_ROOMS for path in (ROOT / room.replace(".", "/")).rglob("*.py"))
VALUES = {
    "str",
    "int",
    "float",
    "bool",
    "Random",
    "Clock",
    "Settings",
    "ProxyId",
    "SiteId",
    "SessionId",
    "Epoch",
    "Mapping",
}
"""Types of arguments that are no parts."""
OF_SESSIONS = {"session", "shadow", "copy", "receiver", "subscription", "orphan"}
"""Names of variables that hold a session, or a part of one."""


def annotations_of(function: ast.FunctionDef) -> list[str]:
    """Return the annotations of a function's arguments."""
    arguments = [*function.args.args, *function.args.kwonlyargs]
    return [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]


def constructors() -> list[tuple[str, list[str]]]:
    """Return each class that has a constructor of its own, with the annotations of its arguments."""
    found = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ClassDef):
                continue
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    found.append((f"{path.relative_to(ROOT)}:{node.name}", annotations_of(item)))
    return found


CONSTRUCTORS = constructors()


@pytest.mark.parametrize(("name", "annotations"), CONSTRUCTORS, ids=[name for name, _ in CONSTRUCTORS])
def test_a_constructor_takes_few_parts_and_no_functions(name: str, annotations: list[str]) -> None:
    assert not [annotation for annotation in annotations if "Callable" in annotation]
    parts = [annotation for annotation in annotations if annotation.split("[")[0].split(".")[-1] not in VALUES]
    if name != "proxy/engine.py:Engine":
        # The engine is made of values, and makes the parts.
        assert len(parts) <= MOST_PARTS, parts


@pytest.mark.parametrize("path", [path for path in FILES if path.is_relative_to(ROOT / "proxy")], ids=str)
def test_only_a_connection_changes_what_it_knows_of_its_client(path: Path) -> None:
    assignments = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assign)]
    targets = [target for assignment in assignments for target in assignment.targets]
    assert not [target.lineno for target in targets if ast.unparse(target).startswith("connection.")]


@pytest.mark.parametrize(
    "path", [path for path in FILES if not path.is_relative_to(ROOT / "proxy/session")], ids=lambda path: path.name
)
def test_a_session_is_changed_by_itself_alone(path: Path) -> None:
    """Its copies, receivers and subscriptions too: each piece of state has one writer."""
    assignments = [
        node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Assign | ast.AugAssign)
    ]
    targets = [
        part
        for node in assignments
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        for part in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    changed = [ast.unparse(target) for target in targets if isinstance(target, ast.Attribute | ast.Subscript)]
    assert [target for target in changed if target.split(".")[0] in OF_SESSIONS and "." in target.split("[")[0]] == []


@pytest.mark.parametrize("room", MACHINE_ROOMS)
def test_no_constructor_takes_a_function_by_another_name(room: str) -> None:
    """An alias of its type does not hide one. Inputs and effects are values: they carry what takes their answer."""
    package = importlib.import_module(room)
    found = []
    for module in pkgutil.walk_packages(package.__path__, f"{room}."):
        if module.name.endswith("__main__"):
            continue
        for kind in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(kind) and kind.__module__ == module.name and "__init__" in vars(kind):
                hints = {} if is_dataclass(kind) else get_type_hints(vars(kind)["__init__"])
                found += [
                    f"{module.name}.{kind.__name__}: {name}"
                    for name, hint in hints.items()
                    if get_origin(hint) is collections.abc.Callable
                ]
    assert found == []


def takers() -> set[str]:
    """Return the methods of the proxy's parts that take a function, and the questions among the fields of effects."""
    found = set()
    for path in FILES:
        if not path.is_relative_to(ROOT / "proxy"):
            continue
        for kind in ast.walk(ast.parse(path.read_text())):
            if not isinstance(kind, ast.ClassDef) or kind.name.startswith("_"):
                continue
            for item in kind.body:
                if isinstance(item, ast.FunctionDef) and not item.name.startswith("_"):
                    hints = annotations_of(item)
                    found |= {f"{kind.name}.{item.name}" for hint in hints if "Callable" in hint or "OnDone" in hint}
                elif isinstance(item, ast.AnnAssign) and "Callable" in ast.unparse(item.annotation):
                    found |= {f"{kind.name}.{ast.unparse(item.target)}"} - {f"{kind.name}.on_done"}
    return found


def test_only_what_a_decision_names_takes_a_function() -> None:
    """docs/adr/0026-continuations.md."""
    text = (ROOT / "docs/adr/0026-continuations.md").read_text()
    named = text.partition("These take one, and no others")[2].partition("* A continuation")[0]
    assert takers() == set(re.findall(r"`([A-Z]\w+\.\w+)`", named))
