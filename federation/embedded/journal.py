"""The embedded journal: JSON lines, which the audit reads as they are, in a file for each writer.

Of a journal in parts (federation/journal_segments.py) that file is the part that is being written; the ones before it
lie beside it, numbered: ``WRITER.000001.jsonl``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

from federation.embedded.private_files import open_file
from federation.journal_segments import JournalSegments, Rotation, segment_name, segment_number
from waypost.errors import LogUnavailable
from waypost.facts import Fact, decode_fact, encode_fact


def journal_path(folder: Path | str, writer: str) -> Path:
    """Return the path of the file that has the part being written of the journal of `writer`; it may not exist.

    Its name does not begin with `_`: Spark passes over such files without a word.
    """
    name = quote(writer, safe="")
    return Path(folder) / f"{'%5F' + name[1:] if name.startswith('_') else name}.jsonl"


def segment_paths(folder: Path | str, writer: str) -> list[Path]:
    """Return the files of the parts of the journal of `writer` that exist, in order; the one being written is last.
    Empty: there is no file of it.
    """
    current = journal_path(folder, writer)
    earlier = _put_aside(current)
    return [*(earlier[number] for number in sorted(earlier)), *([current] if current.exists() else ())]


def _put_aside(current: Path) -> dict[int, Path]:
    """Return the finished parts, by number."""
    paths = current.parent.glob("*.jsonl")
    return {number: path for path in paths if (number := segment_number(current.stem, path.stem))}


def read_facts(folder: Path | str, writer: str) -> list[Fact]:
    """Return the facts in the journal of `writer`, in the order of writing, those that begin its parts included,
    without a last line that is still being written.

    A journal without a file has none. Facts may be missing if a part begins during the call: its writer renames the
    file then.

    Raises:
        OSError: a file cannot be read, or was removed meanwhile.
        BadRecord: a line is no fact.
    """
    return [fact for path in segment_paths(folder, writer) for fact in _facts_of(path)]


def _facts_of(path: Path) -> list[Fact]:
    whole, _, _torn = path.read_bytes().rpartition(b"\n")
    return [decode_fact(line) for line in whole.splitlines()]


class EmbeddedJournal:
    """The journal in `folder`/<writer>.jsonl; one process at a time is that writer.

    Facts are with the operating system when `attest` returns, which outlives this process. When it raises
    LogUnavailable (a full disk, say) the file has complete lines only: a partial write was taken back.

    Args:
        folder: of the file; it is made if it is missing.
        writer: the name of the writer.
        durable: write facts through to the disk before `attest` returns.
        rotation: when the next part begins; nothing is ever removed here. None: no parts.
    """

    def __init__(
        self, folder: Path | str, writer: str, *, durable: bool = False, rotation: Rotation | None = None
    ) -> None:
        self.path = journal_path(folder, writer)
        self._durable = durable
        self._segments = JournalSegments(writer, rotation or Rotation())
        self._file: int | None = None
        # One thread, so that facts land in the order of the calls.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    async def start(self) -> None:
        """Open the file now and not at the first use; it and its folder are made if they are missing. A last line that
        a crash has cut short is removed from it.

        Raises:
            LogUnavailable: the file cannot be opened, or this handle is closed.
            BadRecord: the journal is in parts, and a line of the last one is no fact.
        """
        await self.attest([])

    async def attest(self, facts: Sequence[Fact]) -> None:
        """Write facts in this order, and begin the next part of the journal before them if it is due; return once the
        facts survive a crash of this process (:meth:`federation.ports.Journal.attest`).

        Raises:
            LogUnavailable: the file cannot be written, and a partial write was taken back if that was possible; or this
                handle is closed.
            BadRecord: the file was not open yet, the journal is in parts, and a line of the last one is no fact.
        """
        facts = tuple(facts)
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._attest, facts)
        except (OSError, RuntimeError) as error:
            raise LogUnavailable(
                f"the journal {self.path} cannot be written: {error}",
                hint="is the folder there, writable and not full?",
            ) from error

    async def close(self) -> None:
        """Finish the writes under way, and close the file; a later :meth:`attest` raises LogUnavailable. What was
        written stays (:meth:`federation.ports.Journal.close`).
        """
        await asyncio.to_thread(self._thread.shutdown)
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _attest(self, facts: Sequence[Fact]) -> None:
        if self._file is None:
            self._open()
        lines = b"".join(_lines(facts))
        if not lines:
            return
        beginning = self._segments.begin_if_due(len(lines), int(time.time() * 1_000), time.monotonic())
        if beginning is not None:
            try:
                self._begin_segment(beginning)
            except OSError:
                self._segments.failed(beginning)
                raise
        self._append(lines)
        self._segments.wrote(facts, len(lines))

    def _open(self) -> None:
        """Open the file; go on with the parts that an earlier process left, if there are to be any."""
        if self._segments.rotation.is_on and not self._segments.number:
            earlier = _put_aside(self.path)
            number = max(earlier, default=0)
            # The last part says at its beginning what stood in the parts before.
            last = self.path if self.path.exists() else earlier.get(number)
            if last is not None:
                self._segments.found(number, _facts_of(last), time.monotonic())
        self._file = _open(self.path)
        self._segments.wrote((), os.fstat(self._file).st_size)

    def _begin_segment(self, beginning: Fact) -> None:
        """Put the present part aside, if there is one; the next begins with what says so, before anything else."""
        if self._file is not None and beginning.number > 1 and os.fstat(self._file).st_size:
            aside = self.path.with_name(f"{segment_name(self.path.stem, beginning.number - 1)}.jsonl")
            if aside.exists():
                raise FileExistsError(f"there is a {aside} already")
            os.rename(self.path, aside)
            os.close(self._file)
            self._file = None
        if self._file is None:
            self._file = _open(self.path)
        line = b"".join(_lines([beginning]))
        self._append(line)
        self._segments.wrote((), len(line))

    def _append(self, lines: bytes) -> None:
        file = self._file
        assert file is not None
        start = os.fstat(file).st_size
        try:
            _write_all(file, lines)
            if self._durable:
                os.fdatasync(file)
        except OSError:
            # Half a line would swallow the next fact.
            os.ftruncate(file, start)
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
