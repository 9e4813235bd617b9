"""Files and folders of a proxy that nobody but their owner may read: what is stored is what clients said.

What is there already keeps its mode: an operator may have shared it with a group.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

FILE_MODE = 0o600
FOLDER_MODE = 0o700


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it that are missing, readable by their owner alone; one that exists keeps its
    mode.

    Raises:
        OSError: a folder cannot be made.
    """
    missing = [directory for directory in (folder, *folder.parents) if not directory.is_dir()]
    for directory in reversed(missing):
        # Another process may make it at this moment; `mkdir(parents=True)` would give those above the umask's mode.
        try:
            directory.mkdir(FOLDER_MODE, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory)) from None


def open_file(path: Path, flags: int) -> int:
    """Open a file, and return its descriptor, which the caller closes. Raises OSError.

    A file or folder that is missing is made, readable by its owner alone.

    Args:
        path: of the file.
        flags: of :func:`os.open`; O_CREAT is added.
    """
    make_folder(path.parent)
    return os.open(path, flags | os.O_CREAT, FILE_MODE)


def make_file(path: Path) -> None:
    """Make an empty file, readable by its owner alone, unless it exists; missing folders too. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.close(open_file(path, os.O_RDWR | os.O_EXCL))
