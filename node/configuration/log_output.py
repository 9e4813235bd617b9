"""The stream of log lines, which may be full or gone without harm to the proxy."""

from __future__ import annotations

import io
from typing import TextIO


class LogOutput(io.TextIOBase):
    """Writes to `stream`. Text that it does not take is dropped; the number of such writes comes with the next line.

    A log that cannot be written must not end a proxy: its disk may be full of that very log.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_cut = False
        """Part of a line may have been written."""
        self.dropped = 0
        """Writes since the last one that was taken."""

    def write(self, text: str) -> int:
        """Write the text, or drop it where the stream fails; return its length either way."""
        try:
            if self.dropped:
                begin = "\n" if self._is_cut else ""
                self._write(f"{begin}{self.dropped} log lines could not be written here\n")
                self.dropped, self._is_cut = 0, False
            self._write(text)
        except (OSError, ValueError):
            self.dropped += 1
            self._is_cut = True
        return len(text)

    def _write(self, text: str) -> None:
        # Past the stream's own buffer: what stays in it after a failure would be written twice, or at the exit.
        buffer = getattr(self._stream, "buffer", None)
        raw = getattr(buffer, "raw", None)
        if raw is None:
            self._stream.write(text)
            self._stream.flush()
            return
        self._stream.flush()
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            written = raw.write(rest)
            if written is None:
                # A stream that does not block is full.
                raise BlockingIOError
            rest = rest[written:]

    def flush(self) -> None:
        """Do nothing: every write is flushed at once."""

    def writable(self) -> bool:
        """Return True: this stream takes writes."""
        return True
