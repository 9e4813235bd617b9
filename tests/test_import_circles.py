"""No module of the house comes back to itself by its imports; what is imported for types alone counts too."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS: list[str] = SETTINGS["tool"]["importlinter"]["root_packages"]


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))}


def imported_by(path: Path) -> Iterator[str]:
    """Yield the modules of the house that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield from (each for each in (name if name in MODULES else node.module,) if each in MODULES)


def circle_among(imports: dict[str, set[str]]) -> list[str]:
    """Return the modules of a circle, in order; none: []."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_by_others() -> None:
    imports = {module: set(imported_by(path)) - {module} for module, path in MODULES.items()}
    assert circle_among(imports) == []


@pytest.mark.parametrize("room", ["chaos", "federation", "handover", "node", "proxy", "spark", "waypost"])
def test_no_room_within_a_room_comes_back_to_itself(room: str) -> None:
    """Files beside rooms count each for itself."""

    def entry_of(module: str) -> str:
        inner = module.split(".")
        return ".".join(inner[:2])

    imports: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module.startswith(f"{room}."):
            inside = {entry_of(each) for each in imported_by(path) if each.startswith(f"{room}.")}
            imports.setdefault(entry_of(module), set()).update(inside - {entry_of(module)})
    assert circle_among(imports) == []


def test_a_circle_is_found() -> None:
    assert circle_among({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
