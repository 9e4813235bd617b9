"""Every file here tells a scenario; what the world tells must be what stands beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from chaos.simulator.runs.scenario import SCENARIOS, run_file

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_scenario_goes_as_it_is_written(path: Path) -> None:
    """A file that was written anew fails once all the same: somebody must read the difference."""
    expected, found = run_file(path, rewrite="REWRITE_SCENARIOS" in os.environ)
    assert found == expected


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_every_scenario_ends_well(path: Path) -> None:
    """What is wrong must not become what is expected by writing the file anew."""
    scenario = path.read_text()
    assert scenario.rstrip().endswith("\nall is well")
    assert "\nWRONG " not in scenario and "it did not come to this" not in scenario


def test_a_scenario_that_goes_otherwise_is_found_out(tmp_path: Path) -> None:
    tampered = tmp_path / "tampered.txt"
    tampered.write_text(FILES[0].read_text().replace("all is well", "all is lost"))
    expected, found = run_file(tampered, rewrite=False)
    assert found != expected
    assert found == FILES[0].read_text()


def test_a_scenario_goes_the_same_way_twice() -> None:
    path = FILES[0]
    assert run_file(path, rewrite=False) == run_file(path, rewrite=False)
