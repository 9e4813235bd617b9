"""The embedded journal: one file of JSON lines for each writer, which the audit reads as it is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from federation.embedded.private_files import open_file
from waypost.errors import LogUnavailable
from waypost.records import Fact, decode_fact, encode_fact


def journal_path(folder: Path | str, writer: str) -> Path:
    return Path(folder) / f"{quote(writer, safe='')}.jsonl"


def read_facts(folder: Path | str, writer: str) -> list[Fact]:
    """Return the facts of `writer` in their order, without a last line that is still being written."""
    data = journal_path(folder, writer).read_bytes()
    whole, _, _torn = data.rpartition(b"\n")
    return [decode_fact(line) for line in whole.splitlines()]


class EmbeddedJournal:
    """Appends to `folder`/<writer>.jsonl; one process at a time is that writer.

    Facts are with the operating system when `attest` returns, which outlives this process; with `durable`
    they are on the disk. When it raises LogUnavailable (a full disk, say) the file holds whole lines only:
    what was written of these facts has been taken back.
    """

    def __init__(self, folder: Path | str, writer: str, *, durable: bool = False) -> None:
        self.path = journal_path(folder, writer)
        self._durable = durable
        self._file: int | None = None
        # One thread, so that facts land in the order of the calls.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    async def start(self) -> None:
        """Open the file now and not at the first use. Raises LogUnavailable."""
        await self.attest([])

    async def attest(self, facts: Sequence[Fact]) -> None:
        lines = b"".join(_lines(facts))
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, lines)
        except (OSError, RuntimeError) as error:
            raise LogUnavailable(
                f"the journal {self.path} cannot be written: {error}",
                hint="is the folder there, writable and not full?",
            ) from error

    async def close(self) -> None:
        await asyncio.to_thread(self._thread.shutdown)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, lines: bytes) -> None:
        if self._file is None:
            self._file = _open(self.path)
        if not lines:
            return
        start = os.fstat(self._file).st_size
        try:
            _write_all(self._file, lines)
            if self._durable:
                os.fdatasync(self._file)
        except OSError:
            # Half a line would swallow the next fact.
            os.ftruncate(self._file, start)
            raise


def _lines(facts: Sequence[Fact]) -> Iterator[bytes]:
    for fact in facts:
        yield encode_fact(fact)
        yield b"\n"


def _open(path: Path) -> int:
    """Open for appending; a line that a crash cut short is cut off, for nobody was told that it is safe."""
    file = open_file(path, os.O_RDWR | os.O_APPEND)
    os.ftruncate(file, _end_of_last_line(file))
    return file


def _end_of_last_line(file: int, step: int = 65_536) -> int:
    end = os.fstat(file).st_size
    while end > 0:
        start = max(end - step, 0)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
