"""Spark's Kafka connector: its jars, their folder, and how they are fetched.

They are not in a wheel: 30 MB of Java that only an audit of Kafka needs. Looked for, in this order: in the folder
that WAYPOST_PARTS names; in `.parts/` of the repository, if this is one; in the user's cache folder. Else
Maven fetches them, by the coordinates in `connector.pom.xml`, which is in the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from waypost.errors import BadConfiguration, Unreachable

CONNECTOR = "spark-sql-kafka-0-10"
POM = Path(__file__).with_name("connector.pom.xml")
FOLDER = "spark-jars"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
FETCH_TIMEOUT_S = 600


def folder() -> Path:
    """Return the absolute path of the folder of third-party servers and jars, which may not exist: WAYPOST_PARTS, else
    `.parts` of the repository, else the user's cache folder.
    """
    if chosen := os.environ.get("WAYPOST_PARTS"):
        return Path(chosen).absolute()
    root = Path(__file__).parents[1]
    if (root / "pyproject.toml").exists():
        return root / ".parts"
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "waypost"


def jars() -> list[str]:
    """Return the paths of the jars of Spark's Kafka connector, sorted; empty: the connector is not installed."""
    found = sorted(str(jar) for jar in (folder() / FOLDER).glob("*.jar"))
    return found if any(CONNECTOR in jar for jar in found) else []


def require(progress: Callable[[str], None]) -> list[str]:
    """Return the paths of the jars of Spark's Kafka connector; fetch them with Maven into :func:`folder` if they are
    not installed. The call blocks meanwhile. Call it before the Spark session is started.

    Args:
        progress: called with a line for people before they are fetched.

    Raises:
        BadConfiguration: they are not installed and there is no Maven, or the folder cannot be written.
        Unreachable: Maven did not fetch them within FETCH_TIMEOUT_S seconds.
    """
    found = jars()
    if found:
        return found
    if shutil.which("mvn") is None:
        raise BadConfiguration(
            f"Spark's Kafka connector is not in {folder() / FOLDER}, and there is no Maven to fetch it",
            hint=f"install Apache Maven; or run `mvn -f {POM} {COPY} -DoutputDirectory={folder() / FOLDER}` elsewhere",
        )
    progress(f"fetching Spark's Kafka connector into {folder() / FOLDER}")
    _fetch()
    return jars()


def _fetch() -> None:
    target = folder() / FOLDER
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Made aside, and renamed: two audits that begin at once do not see half of it.
        with TemporaryDirectory(dir=target.parent, prefix=f".{FOLDER}-") as scratch:
            _run_maven(Path(scratch) / FOLDER)
            if not jars():
                shutil.rmtree(target, ignore_errors=True)
                (Path(scratch) / FOLDER).rename(target)
    except OSError as error:
        if not jars():
            raise BadConfiguration(f"{target} cannot be written: {error.strerror}", field="WAYPOST_PARTS") from None


def _run_maven(output: Path) -> None:
    command = ["mvn", "-q", "-B", "-f", str(POM), f"-DoutputDirectory={output}", "-DincludeScope=runtime", COPY]
    # Not in the wheel's folder: Maven leaves a `target` where it works, and that may not be ours to write.
    options = {"cwd": output.parent, "stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    try:
        done = subprocess.run(command, check=False, timeout=FETCH_TIMEOUT_S, **options)  # type: ignore[call-overload]
    except subprocess.TimeoutExpired:
        raise Unreachable(f"Maven did not fetch Spark's Kafka connector within {FETCH_TIMEOUT_S} s") from None
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-5:])
        raise Unreachable("Maven could not fetch Spark's Kafka connector", hint=last)
