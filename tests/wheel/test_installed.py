"""The installed wheel offers one name, and everything that Waypost does works by it.

``make wheel`` runs the tests of the rooms that WAYPOST_WHEEL_TESTS names against it; without that, those of a few.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chaos.servers.process import LOOPBACK, Process, free_port, port_open
from tests.helpers.installed_wheel import (
    ROOMS,
    ROOT,
    Installation,
    build,
    copy_tests,
    install,
    output,
    write_modules_of_a_user,
)

TESTED = os.environ.get("WAYPOST_WHEEL_TESTS", "tests/handover tests/waypost").split()
"""The folders of tests that are run against the wheel."""
USED_BY_TESTS = ("tests/__init__.py", "tests/lanes.py", "tests/helpers", "tests/properties")
SETTINGS = """
[pytest]
addopts = --import-mode=importlib -p tests.lanes
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
filterwarnings = error
"""
SEEDS = 200
START_S = 60

IMPORT_ALL = """
import importlib, pkgutil, sys, waypost
names = [module.name for module in pkgutil.walk_packages(waypost.__path__, "waypost.", onerror=print)]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(*names, *sys.modules, sep="\\n")
"""
CLIENTS = """
import asyncio, sys, waypost

async def main():
    async with (
        waypost.attach("travellers/alice", proxy=sys.argv[1]) as receiver,
        waypost.produce("tower", proxy=sys.argv[1]) as producer,
    ):
        await receiver.subscribe("dep_delay > 30")
        await producer.publish({"dep_delay": 45})
        print((await anext(receiver))["dep_delay"])

asyncio.run(main())
"""
FINDING = """
import sys, waypost
waypost.attach("travellers/alice")  # no address: the finder is loaded, which the entry point names
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The current folder of a user who has modules of the rooms' names, and a program that finds them first."""
    folder = tmp_path / "of-a-user"
    folder.mkdir()
    write_modules_of_a_user(folder)
    return folder


def test_an_installed_wheel_offers_waypost_alone(installed: Installation) -> None:
    names = {path.name for path in installed.packages.iterdir()}
    assert names == {"waypost", "waypost-0.1.0.dist-info", "libraries.pth"}


def test_every_module_of_the_wheel_is_imported_below_waypost(installed: Installation, tmp_path: Path) -> None:
    names = set(output(installed.python, "-c", IMPORT_ALL, cwd=tmp_path).split())
    sources = [path for room in ROOMS for path in (ROOT / room).rglob("*.py") if path.name != "__init__.py"]
    assert {f"waypost.{path.relative_to(ROOT).with_suffix('')}".replace("/", ".") for path in sources} <= names
    assert {name for name in names if name.partition(".")[0] in ROOMS} == set()


def test_a_wheel_of_the_source_distribution_is_the_same(installed: Installation, tmp_path: Path) -> None:
    output("tar", "-xzf", build("sdist", ROOT, tmp_path / "sdist"), cwd=tmp_path)
    wheel = build("wheel", tmp_path / "waypost-0.1.0", tmp_path / "dist")
    (first,) = (installed.root.parent / "dist").glob("*.whl")
    assert wheel.read_bytes() == first.read_bytes()


def test_every_command_shows_its_help(installed: Installation, folder: Path) -> None:
    def help_of(*command: str) -> str:
        return output(installed.waypost, *command, "--help", cwd=folder, PYTHONPATH=str(folder))

    listed = help_of().partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    commands = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert {"serve", "audit", "demo", "sim"} <= set(commands)
    with ThreadPoolExecutor(2) as pool:
        for command, text in zip(commands, pool.map(help_of, commands), strict=True):
            assert f"waypost {command}" in text


def test_attach_loads_its_finder_although_the_user_has_a_discovery_too(installed: Installation, folder: Path) -> None:
    modules = output(installed.python, "-c", FINDING, cwd=folder).split()
    assert "waypost.discovery.browse" in modules
    assert not set(modules) & set(ROOMS)


def test_a_users_own_modules_do_not_stand_in_the_way_of_a_proxy_and_its_clients(
    installed: Installation, folder: Path, tmp_path: Path
) -> None:
    port = free_port()
    url = f"ws://{LOOPBACK}:{port}"
    command = [str(installed.waypost), "serve", f"--data={tmp_path / 'run'}", f"--port={port}", "--no-discovery"]
    variables = {"PYTHONPATH": str(folder)}
    with Process("a", command, log=tmp_path / "a.log", env=variables, cwd=folder) as proxy:
        proxy.wait_until(lambda: port_open(port), timeout_s=START_S, what="listening")
        printed = output(installed.python, "-c", CLIENTS, url, cwd=folder)
        shown = output(installed.waypost, "sessions", "ls", "--proxy", url, cwd=folder, **variables)
    assert printed == "45\n"
    assert "travellers/alice" in shown


def test_the_wheels_simulator_plays_seeds_and_keeps_every_promise(installed: Installation, folder: Path) -> None:
    output(installed.waypost, "sim", "--seeds", f"0..{SEEDS}", cwd=folder, PYTHONPATH=str(folder))


@pytest.mark.parametrize("tests", TESTED)
def test_the_tests_of_a_room_pass_on_the_wheel(installed: Installation, tmp_path: Path, tests: str) -> None:
    copy_tests([*USED_BY_TESTS, tests], tmp_path)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    output(installed.python, "-m", "pytest", "-q", "-c", "pytest.ini", tests, cwd=tmp_path)
