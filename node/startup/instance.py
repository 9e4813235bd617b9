"""The identity of a proxy: an id in its data folder, and the incarnations of it that have ended.

`proxies/NAME/identity` has the id, made once, and `proxies/NAME/site` the site. `proxies/NAME/incarnations` has those
that were announced last, with the inode and change time of the identity, which a copy of the folder does not have. A
process that starts with a folder, under its lock, may replace the incarnations that the folder announced, for they have
certainly ended; with a copy of the folder it may not, and waits for the lease to end.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from federation.embedded.private_files import open_file
from waypost.errors import BadConfiguration
from waypost.identity import Incarnation, SiteId, new_incarnation

REMEMBERED = 3
"""Incarnations: the one before, and those of starts that did not come to an announcement."""


class Instance:
    """The identity of a proxy, kept in its own folder.

    A folder that cannot be written is no error: the id is another one after each start, and a restart after a crash
    waits for the old lease to end.

    Args:
        folder: of this proxy (:func:`node.startup.backends.own_folder`), under its lock.

    Raises:
        BadConfiguration: a proxy of another site has served with this folder.
    """

    def __init__(self, folder: Path, site: SiteId) -> None:
        self._site = site
        self._identity = folder / "identity"
        self._incarnations = folder / "incarnations"
        self._site_file = folder / "site"
        self._check_site()
        self.id = self._read_id() or self._make_id()
        self.earlier = self._read_incarnations()
        """Incarnations that have ended."""

    def record_incarnation(self, incarnation: Incarnation) -> None:
        """Write down an incarnation that is about to be announced; call it before the announcement, and not on the
        event loop: it blocks on the disk.

        The incarnation counts as ended for the next process with this folder, and is in :attr:`earlier` from now on. A
        folder that cannot be written is no error.
        """
        self.earlier = [*self.earlier, incarnation][-REMEMBERED:]
        with suppress(OSError):
            _replace(self._site_file, self._site)
        with suppress(OSError):
            text = json.dumps({"home": self._file_identity(), "incarnations": self.earlier})
            _replace(self._incarnations, text)

    def _check_site(self) -> None:
        with suppress(OSError, UnicodeDecodeError):
            if (earlier := self._site_file.read_text(encoding="utf-8")) != self._site:
                raise BadConfiguration(
                    f"{self._site_file.parent} is the folder of a proxy of site {earlier}",
                    field="site",
                    hint=f"--site {earlier}; or another --name or --data for a proxy of site {self._site}",
                )

    def _file_identity(self) -> list[int]:
        found = self._identity.stat()
        return [found.st_ino, found.st_ctime_ns]

    def _read_id(self) -> str:
        with suppress(OSError, UnicodeDecodeError):
            return self._identity.read_text().strip()
        return ""

    def _make_id(self) -> str:
        made = str(new_incarnation())
        with suppress(OSError):
            _replace(self._identity, made)
        return made

    def _read_incarnations(self) -> list[Incarnation]:
        try:
            found = json.loads(self._incarnations.read_text())
            if found["home"] != self._file_identity():
                return []
            return [Incarnation(incarnation) for incarnation in found["incarnations"]]
        except (OSError, ValueError, KeyError, TypeError):
            return []


def _replace(path: Path, text: str) -> None:
    """Write the file whole or not at all."""
    aside = path.with_suffix(".new")
    with os.fdopen(open_file(aside, os.O_WRONLY | os.O_TRUNC), "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
