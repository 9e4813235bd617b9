"""Files and folders that a proxy makes: private from the first moment; those of others are left as they are."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from federation.embedded.private_files import make_file, make_folder, open_file


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_may_be_made_by_several_at_a_time(tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def make(number: int) -> None:
        both.wait()
        make_folder(tmp_path / str(number) / "sites" / "A")

    with ThreadPoolExecutor(2) as threads:
        for number in range(200):
            for made in [threads.submit(make, number) for _ in range(2)]:
                made.result()


def test_folders_that_are_missing_are_made_private_and_others_stay(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(0o755)
    make_folder(shared / "one" / "two")
    make_folder(shared / "one" / "two")
    assert [mode(folder) for folder in (shared, shared / "one", shared / "one" / "two")] == [0o755, 0o700, 0o700]


def test_file_is_made_private_and_one_that_is_there_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "one" / "file"
    make_file(path)
    assert mode(path) == 0o600
    path.write_text("kept")
    path.chmod(0o640)
    make_file(path)
    os.close(open_file(path, os.O_RDWR | os.O_APPEND))
    assert (mode(path), path.read_text()) == (0o640, "kept")


def test_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError):
        make_file(tmp_path / "file" / "below")
