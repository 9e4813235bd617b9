"""The lock of a proxy's folder: a second process of the same name would write to the same store."""

from __future__ import annotations

import fcntl
import os
from typing import TextIO

from federation.embedded.private_files import open_file
from node.configuration.config import NodeConfig
from node.startup.backends import own_folder
from waypost.errors import BadConfiguration, NameTaken


def claim_name(config: NodeConfig) -> TextIO:
    """Keep every other process from running as this proxy with this folder.

    Returns:
        The lock file; the lock ends when it is closed, or with this process.

    Raises:
        NameTaken: another process has the lock.
        BadConfiguration: the folder cannot be written.
    """
    folder = own_folder(config)
    try:
        lock = os.fdopen(open_file(folder / "lock", os.O_RDWR | os.O_APPEND), "a+")
    except OSError as error:
        raise BadConfiguration(f"{folder} cannot be written: {error.strerror}", field="data") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise NameTaken(
            f"a process runs as proxy {config.name} in {config.data} already",
            field="name",
            hint="give every proxy a name of its own, or end the other one",
        ) from None
    except OSError as error:
        lock.close()
        raise BadConfiguration(f"{folder / 'lock'} cannot be locked: {error.strerror}", field="data") from None
    return lock
