"""Every file here tells a story; what the world tells must be what stands beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.helpers.scenario import run_file

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_story_goes_as_it_is_written(path: Path) -> None:
    expected, found = run_file(path, rewrite="REWRITE_SCENARIOS" in os.environ)
    assert found == expected or "REWRITE_SCENARIOS" in os.environ


def test_a_story_goes_the_same_way_twice() -> None:
    path = FILES[0]
    assert run_file(path, rewrite=False) == run_file(path, rewrite=False)
