"""How the build hook names modules in the wheel, and what it refuses."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from hatch_build import Layout, Unmovable, check
from tests.helpers.installed_wheel import ROOMS, ROOT, WHEEL, build, layout, run

FILES = ["waypost/limits.py", "proxy/__init__.py", "proxy/engine.py", "spark/session.py", "node/cli/app.py"]
SMALL = Layout(["proxy", "spark", "node"], FILES)

PROJECT = """
[project]
name = "waypost"
version = "1"
scripts = { waypost = "node.app:main" }
entry-points = { "waypost.finder" = { mdns = "node.app:find" } }

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
packages = ["waypost", "node"]
dev-mode-dirs = ["."]
sources = { node = "waypost/node" }

[tool.hatch.build.targets.wheel.hooks.custom]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project of two rooms with the repository's hook."""
    root = tmp_path / "project"
    for name, text in {
        "pyproject.toml": PROJECT,
        "waypost/__init__.py": "",
        "node/__init__.py": "",
        "node/app.py": "from waypost import limits\nfrom node import tls\n",
        "node/page.html": "node.app",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    shutil.copy(ROOT / "hatch_build.py", root)
    return root


def files_of(wheel: Path) -> dict[str, str]:
    with ZipFile(wheel) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("source", "rewritten"),
    [
        ("from proxy.engine import Engine", "from waypost.proxy.engine import Engine"),
        ("from proxy import engine", "from waypost.proxy import engine"),
        ("if x: from  proxy import engine", "if x: from  waypost.proxy import engine"),
        ("from proxy.engine import (\n    a,\n    b,\n)", "from waypost.proxy.engine import (\n    a,\n    b,\n)"),
        ("import os, proxy.engine as e", "import os, waypost.proxy.engine as e"),
        ("'python -m node.cli -h'", "'python -m waypost.node.cli -h'"),
        ("'python -m proxy'", "'python -m waypost.proxy'"),
        ("'''Of\n:mod:`proxy.engine`.\n'''", "'''Of\n:mod:`waypost.proxy.engine`.\n'''"),
        ("'proxy.engine ' 'node.cli'", "'waypost.proxy.engine ' 'waypost.node.cli'"),
        ("'é', 'proxy.engine'; from proxy import a", "'é', 'waypost.proxy.engine'; from waypost.proxy import a"),
        ("'import x\\nfrom node.cli import y'", "'import x\\nfrom waypost.node.cli import y'"),
    ],
)
def test_name_of_a_room_module_gets_the_prefix(source: str, rewritten: str) -> None:
    assert SMALL.rewritten(source.encode(), "x.py").decode() == rewritten


@pytest.mark.parametrize(
    "source",
    [
        "from waypost.limits import x",
        "from waypost.proxy.engine import x",
        "from .engine import x",
        "from . import proxy",
        "import proxying",
        "proxy.engine.step()",
        "f'{node.cli}, {proxy.engine}'",
        "'spark.sql.ansi.enabled', 'node.id', 'my.proxy.engine', 'http://node.cli', 'a@node.cli', 'x/node.cli'",
        "'\\ud800 proxy'",
        "# proxy.engine",
    ],
)
def test_name_outside_the_rooms_stays(source: str) -> None:
    assert SMALL.rewritten(source.encode(), "x.py").decode() == source


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("\nimport proxy.engine", "x.py:2: `import proxy.engine` binds"),
        ("import proxy", "x.py:1: `import proxy` binds"),
        ("from \\\n  proxy import x", "x.py:1: `from` and its module"),
        ("f'{x} -m node.cli'", "x.py:1: a module is named in an f-string"),
        ("'node.' 'cli'", "in a string of pieces"),
        ("'\\tproxy.engine'", "in a string of pieces"),
    ],
)
def test_source_that_cannot_be_rewritten_is_refused_with_its_line(source: str, why: str) -> None:
    with pytest.raises(Unmovable, match=why):
        SMALL.rewritten(source.encode(), "x.py")


def test_an_entry_point_of_a_room_gets_the_prefix() -> None:
    assert SMALL.renamed("node.cli.app:main") == "waypost.node.cli.app:main"
    assert SMALL.renamed("waypost.limits:main") == "waypost.limits:main"


# ---------------------------------------------------------------- the repository


def test_every_room_but_waypost_moves_below_it() -> None:
    assert {"waypost", *ROOMS} == set(WHEEL["packages"])
    assert WHEEL["sources"] == {room: f"waypost/{room}" for room in ROOMS}


def test_no_string_of_a_room_is_rewritten_by_mistake() -> None:
    """Docstrings aside, these are all. A new one is for a person to look at: `"spark.session"` may mean a setting."""
    found = set()
    for path in (path for room in ("waypost", *ROOMS) for path in (ROOT / room).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
        prose = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
                text = node.value.encode(errors="ignore")
                found |= {text[index:].split()[0].decode() for index in layout().named(text)}
    assert found == {"chaos.model", "spark.connector.require(),"}


# ---------------------------------------------------------------- a build


def test_a_wheel_has_rewritten_modules_and_entry_points_and_all_other_files(project: Path, tmp_path: Path) -> None:
    files = files_of(build("wheel", project, tmp_path / "dist"))
    assert files["waypost/node/app.py"] == "from waypost import limits\nfrom waypost.node import tls\n"
    assert files["waypost/node/page.html"] == "node.app"
    assert "waypost = waypost.node.app:main" in files["waypost-1.dist-info/entry_points.txt"]
    assert "mdns = waypost.node.app:find" in files["waypost-1.dist-info/entry_points.txt"]
    assert {name.partition("/")[0] for name in files} == {"waypost", "waypost-1.dist-info"}


def test_an_editable_install_has_the_tree_of_the_repository(project: Path, tmp_path: Path) -> None:
    files = files_of(build("wheel:editable", project, tmp_path / "dist"))
    assert files["_waypost.pth"] == str(project)
    assert "waypost = node.app:main" in files["waypost-1.dist-info/entry_points.txt"]
    assert not [name for name in files if name.endswith(".py")]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("waypost/node.py", "", "waypost has a node of its own"),
        ("waypost/node/__init__.py", "", "waypost has a node of its own"),
        ("node/bad.py", "import node.app", "node/bad.py:1: `import node.app` binds"),
    ],
)
def test_a_build_that_would_go_wrong_fails(project: Path, tmp_path: Path, name: str, text: str, why: str) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text(text)
    done = run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "dist", cwd=project)
    assert done.returncode != 0
    assert why in done.stderr


@pytest.mark.parametrize(
    ("names", "target", "why"),
    [
        (["waypost/a.py", "node/a.py"], "waypost.a:b", "offers node too"),
        (["waypost/a.py", "a.py"], "waypost.a:b", "offers a.py too"),
        (["waypost/a.py"], "node.a:b", "the entry point c of d leads to node.a:b"),
    ],
)
def test_a_wheel_that_offers_more_than_waypost_is_refused(
    tmp_path: Path, names: list[str], target: str, why: str
) -> None:
    wheel = tmp_path / "waypost.whl"
    with ZipFile(wheel, "w") as archive:
        for name in names:
            archive.writestr(name, "")
        archive.writestr("waypost-1.dist-info/entry_points.txt", f"[d]\nc = {target}\n")
    with pytest.raises(Unmovable, match=why):
        check(wheel)
