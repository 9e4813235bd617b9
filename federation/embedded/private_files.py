"""Files and folders of a proxy that nobody but their owner may read: what is stored is what clients said.

What is there already keeps its mode: an operator may have shared it with a group.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing. Raises OSError."""
    missing = [directory for directory in (folder, *folder.parents) if not directory.exists()]
    for directory in reversed(missing):
        # Another process may make it at this moment; `mkdir(parents=True)` would give those above the umask's mode.
        directory.mkdir(FOLDER_MODE, exist_ok=True)


def open_file(path: Path, flags: int) -> int:
    """Return a descriptor of the file, which is made, and its folders too, if it is missing. Raises OSError."""
    make_folder(path.parent)
    return os.open(path, flags | os.O_CREAT, FILE_MODE)


def make_file(path: Path) -> None:
    """Make an empty file unless it is there. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(open_file(path, os.O_RDWR | os.O_EXCL))
