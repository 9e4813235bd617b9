"""The wheel as a user has it: built, and installed far from the repository; and tests that are rewritten for it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hatch_build import Layout

ROOT = Path(__file__).parents[2]
WHEEL = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
ROOMS: tuple[str, ...] = tuple(WHEEL["sources"])
"""The rooms that the wheel has below `waypost`."""
RUN_S = 300


def run(*words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder. It does not see the repository; `variables` go to its environment."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "WAYPOST_PARTS")}
    return subprocess.run(
        words, cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, timeout=RUN_S, check=False
    )


def output(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Return what a command prints. It must end well."""
    done = run(*words, cwd=cwd, **variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(target: str, root: Path, into: Path) -> Path:
    """Build `sdist`, `wheel` or `wheel:editable` of the project at `root`, by what is installed here."""
    output(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", into, cwd=root)
    (artifact,) = (path for path in into.iterdir() if path.name.startswith("waypost-"))
    return artifact


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment with the wheel. All other libraries are those of the environment that tests run in."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "bin/python"

    @property
    def waypost(self) -> Path:
        """The command, as the installer made it of the wheel's entry points."""
        return self.root / "bin/waypost"

    @property
    def packages(self) -> Path:
        (packages,) = self.root.glob("lib/python3*/site-packages")
        return packages


def install(into: Path) -> Installation:
    """Build the wheel of the repository, and install it."""
    wheel = build("wheel", ROOT, into / "dist")
    here = Installation(into / "venv")
    output(sys.executable, "-m", "venv", "--without-pip", here.root, cwd=into)
    (here.packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    uv = Path(sys.executable).with_name("uv")
    output(uv, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", here.python, wheel, cwd=into)
    return here


def write_modules_of_a_user(folder: Path) -> None:
    """Write a user's own modules into a folder, named as the rooms are. None of them is for Waypost to import."""
    for room in ROOMS:
        (folder / f"{room}.py").write_text(f"raise RuntimeError('{room}.py of the user was imported')\n")


@cache
def layout() -> Layout:
    """Return the layout of this repository, as the build hook sees it."""
    files = [path for room in ("waypost", *ROOMS) for path in (ROOT / room).rglob("*.py")]
    return Layout(ROOMS, [str(path.relative_to(ROOT)) for path in files])


def copy_tests(places: Iterable[str], into: Path) -> None:
    """Copy tests, files or folders, for a run against the wheel: names of modules are rewritten as the wheel's are."""
    for folder in places:
        for path in sorted([ROOT / folder, *(ROOT / folder).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                copy = into / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                source = path.read_bytes()
                copy.write_bytes(layout().rewritten(source, str(path)) if path.suffix == ".py" else source)
