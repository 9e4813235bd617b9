"""The build hook of the wheel: every room goes below `waypost`, and what names a room's module says so.

`pyproject.toml` maps the folders (`tool.hatch.build.targets.wheel.sources`: `proxy` becomes `waypost/proxy`). The hook
does the rest by one rule, *a room's name gets `waypost.` in front*:

    from proxy.engine import Engine         from waypost.proxy.engine import Engine
    import node.tls as tls                  import waypost.node.tls as tls
    "python -m chaos.model"                 "python -m waypost.chaos.model"
    sim = "chaos.simulator.command:sim"     sim = "waypost.chaos.simulator.command:sim"     (an entry point)

A string names a module where a dotted name begins with one that exists, so `"spark.sql.ansi.enabled"` stays; and behind
`python -m`. No line is added or removed: a traceback of the wheel points into the repository too. What the rule cannot
keep right fails the build (:class:`Unmovable`). An editable install has the repository's tree: the hook does nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from configparser import ConfigParser
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "waypost"
PREFIX = f"{PACKAGE}."
_FROM = re.compile(rb"from[ \t]+(?=\w)")
_NAMED = re.compile(rb"(?<=python -m )[a-z]\w*|(?<![\w.:/@-])[a-z]\w*\.[a-z]\w*")


class Unmovable(Exception):
    """A module whose names cannot be rewritten, or a wheel that would offer more than `waypost`."""


class Layout:
    """Which modules there are, and which of them move below `waypost`."""

    def __init__(self, rooms: Iterable[str], files: Iterable[str]) -> None:
        """Take the names of the folders that move, and the paths of all Python files, such as `proxy/engine.py`."""
        self._rooms = frozenset(rooms)
        self._modules = frozenset(module for file in files for module in _modules(file))

    def renamed(self, name: str) -> str:
        """Return what a module, or the object of an entry point, is called in the wheel."""
        return PREFIX + name if self.moves(name.partition(":")[0]) else name

    def rewritten(self, source: bytes, where: str) -> bytes:
        """Return a module's source as the wheel has it; `where` names it in an error.

        Raises:
            Unmovable: `import proxy.engine` without `as` binds the name `proxy`, which the wheel does not have; or a
                string names a module in a way that cannot be seen in the source, such as an f-string.
        """
        for place in sorted(_Module(self, source, where).places(), reverse=True):
            source = source[:place] + PREFIX.encode() + source[place:]
        return source

    def named(self, text: bytes) -> list[int]:
        """Return where in a text modules that move are named."""
        return [found.start() for found in _NAMED.finditer(text) if self._is_named(found[0].decode())]

    def moves(self, module: str) -> bool:
        """Tell whether a module is in a room that moves."""
        return module.partition(".")[0] in self._rooms

    def _is_named(self, name: str) -> bool:
        return name in self._modules and self.moves(name)


class _Module:
    """One module, on its way to the wheel."""

    def __init__(self, layout: Layout, source: bytes, where: str) -> None:
        self._layout = layout
        self._source = source
        self._where = where
        self._line_starts = [0, *accumulate(len(line) for line in source.splitlines(keepends=True))]

    def places(self) -> Iterator[int]:
        """Give the offset of each name that moves."""
        nodes = list(ast.walk(ast.parse(self._source, self._where)))
        in_f_strings = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            match node:
                case ast.Import():
                    yield from self._imported(node)
                case ast.ImportFrom(level=0, module=str(module)) if self._layout.moves(module):
                    yield self._imported_from(node)
                case ast.Constant(value=str(text)) if named := self._layout.named(text.encode(errors="ignore")):
                    yield from self._in_string(node, named, is_plain=id(node) not in in_f_strings)

    def _imported(self, node: ast.Import) -> Iterator[int]:
        for name in node.names:
            if self._layout.moves(name.name):
                if name.asname is None:
                    raise self._unmovable(node, f"`import {name.name}` binds the room's name; give it an `as`")
                yield self._line_starts[name.lineno - 1] + name.col_offset

    def _imported_from(self, node: ast.ImportFrom) -> int:
        keyword = _FROM.match(self._source, self._line_starts[node.lineno - 1] + node.col_offset)
        if keyword is None:
            raise self._unmovable(node, "`from` and its module stand on two lines")
        return keyword.end()

    def _in_string(self, node: ast.Constant, named: list[int], *, is_plain: bool) -> list[int]:
        start = self._line_starts[node.lineno - 1] + node.col_offset
        end = self._line_starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        found = [start + place for place in self._layout.named(self._source[start:end])]
        if not is_plain or len(found) != len(named):
            raise self._unmovable(node, "a module is named in an f-string, or in a string of pieces; write it in one")
        return found

    def _unmovable(self, node: ast.stmt | ast.expr, why: str) -> Unmovable:
        return Unmovable(f"{self._where}:{node.lineno}: {why}")


def _modules(file: str) -> Iterator[str]:
    """Give the module that a file is, and the packages that it is in."""
    parts = Path(file).with_suffix("").parts
    return (".".join(parts[:count]) for count in range(1, len(parts) + 1))


class RoomsBelowWaypost(BuildHookInterface[Any]):
    """Puts rewritten modules in the place of the repository's, and looks at the wheel that comes of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Rewrite the modules and the entry points of a wheel that is not an editable one."""
        if version != "standard":
            return
        files = [file for file in self.build_config.builder.recurse_included_files() if file.path.endswith(".py")]
        layout = Layout(self._rooms(), [file.relative_path for file in files])
        self._folder = TemporaryDirectory(prefix="waypost-wheel-")
        for number, file in enumerate(files):
            copy = Path(self._folder.name) / f"{number}.py"
            copy.write_bytes(layout.rewritten(Path(file.path).read_bytes(), file.relative_path))
            build_data["force_include"][str(copy)] = file.distribution_path
        core = self.metadata.core
        for entries in (core.scripts, *core.entry_points.values()):
            entries.update({name: layout.renamed(target) for name, target in entries.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Refuse a wheel that offers another name than `waypost`, or whose entry points lead elsewhere."""
        if version == "standard":
            self._folder.cleanup()
            check(Path(artifact_path))

    def _rooms(self) -> list[str]:
        rooms = [Path(folder).name for folder in self.build_config.sources]
        for place in (Path(self.root) / PACKAGE / room for room in rooms):
            if place.exists() or place.with_suffix(".py").exists():
                raise Unmovable(f"{PACKAGE} has a {place.name} of its own, where the room is to be")
        return rooms


def check(wheel: Path) -> None:
    """Look whether a wheel offers `waypost` alone.

    Raises:
        Unmovable: another name stands beside it, a file is there twice, or an entry point leads elsewhere.
    """
    entries = ConfigParser(delimiters="=")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (path,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
        entries.read_string(archive.read(path).decode())
    if strange := {name.partition("/")[0] for name in names} - {PACKAGE, path.partition("/")[0]}:
        raise Unmovable(f"the wheel offers {', '.join(sorted(strange))} too")
    if len(names) != len(set(names)):
        raise Unmovable("the wheel has a file twice")
    for group in entries.sections():
        for name, target in entries[group].items():
            if not target.startswith(PREFIX):
                raise Unmovable(f"the entry point {name} of {group} leads to {target}")
