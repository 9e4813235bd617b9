"""Backends in memory, for tests that run a node, or a part of one, in their own process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from federation.memory import (
    MemoryChangelog,
    MemoryChangelogStorage,
    MemoryJournal,
    MemoryJournalStorage,
    MemoryLogStorage,
    MemoryRegistry,
    MemoryRegistryStorage,
    MemorySiteLog,
)
from node.session_store.sqlite import SqliteSessionStore
from waypost.clock import SystemClock


def memory_ports(folder: Path) -> dict[str, Any]:
    """Return the ports of :class:`node.startup.backends.Backends` by name; the store is in `folder`."""
    return {
        "log": MemorySiteLog(MemoryLogStorage()),
        "registry": MemoryRegistry(MemoryRegistryStorage(), SystemClock()),
        "changelog": MemoryChangelog(MemoryChangelogStorage()),
        "journal": MemoryJournal(MemoryJournalStorage()),
        "store": SqliteSessionStore(folder / "store.db"),
    }
