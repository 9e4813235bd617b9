"""What a session has stored, by number: which of it is in memory, and which on the disk only.

Theory
------
Entries are numbered 1, 2, 3, ... in the order in which the session took them; the number travels in a
handover and means nothing outside the session. Numbers ascend, and may have holes: what nobody holds any more
(proxy/session/retention.py) goes from the middle too. From the front an entry goes when all receivers have it
(non-destructive receipt; a receiver's cursor: proxy/session/receivers.py). Entries that are stored durably leave memory
past a bound, and are read back from the store when a receiver gets there. So there are three numbers behind the next
one: all below `first_number` are with everybody, all up to `saved_number` are in the store, and those above
`unloaded_number` are in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from proxy.session.stored_notification import Entry, StoredNotification
from proxy.session.subscription import Matched


class MessageQueue:
    """The entries of one session."""

    def __init__(self) -> None:
        self.next_number = 1
        self.first_number = 1
        self.saved_number = 0
        """Entries up to this one are in the store."""
        self.unloaded_number = 0
        """Entries up to this one are to be read from the store, those above it are in memory."""
        self._in_memory: list[Entry] = []
        self._bytes = 0
        """The size of the entries in memory."""

    # ------------------------------------------------------------ what there is

    @property
    def last_number(self) -> int:
        """The number of the newest entry; `first_number` - 1: there are no entries."""
        return self.next_number - 1

    @property
    def count(self) -> int:
        """An upper bound of the number of stored entries: all numbers from the oldest to the newest, holes included."""
        return self.next_number - self.first_number

    @property
    def unsaved_count(self) -> int:
        """An upper bound of the number of entries that the store does not have yet."""
        return self.last_number - self.saved_number

    @property
    def in_memory(self) -> Sequence[Entry]:
        """The newest entries, in order of number; older ones are in the store alone."""
        return self._in_memory

    @property
    def saved_in_memory(self) -> int:
        """The number of entries in memory that the store has as well."""
        return self._index_of(self.saved_number)

    def fitting(self, max_entries: int, max_bytes: int) -> int:
        """Return how many of the newest entries may stay in memory.

        Args:
            max_entries: the most entries; returned as it is if the bytes in memory are within their bound.
            max_bytes: the most bytes of encoded notifications.
        """
        if self._bytes <= max_bytes:
            return max_entries
        count = 0
        for _, stored, _ in reversed(self._in_memory):
            max_bytes -= stored.size
            if count == max_entries or max_bytes < 0:
                break
            count += 1
        return count

    def _index_of(self, number: int) -> int:
        """Return where in memory the entries above `number` begin."""
        return bisect_left(self._in_memory, (number + 1,))

    def after(self, number: int, limit: int) -> list[Entry] | None:
        """Return up to `limit` entries numbered above `number`, in order; None: some of them are in the store only.

        An empty list means that there are no entries above `number`.
        """
        number = max(number, self.first_number - 1)
        if number < self.unloaded_number:
            return None
        index = self._index_of(number)
        return self._in_memory[index : index + limit]

    # ------------------------------------------------------------ what comes, and goes

    def add(self, stored: StoredNotification, matched: Matched) -> Entry:
        """Append a notification under the next number; return the entry."""
        entry = (self.next_number, stored, matched)
        self._in_memory.append(entry)
        self._bytes += stored.size
        self.next_number += 1
        return entry

    def append_numbered(self, entry: Entry) -> bool:
        """Append an entry that another proxy has numbered, in ascending order; an empty queue begins with it.

        Returns:
            False: the number is not above the last one, and the entry, a repeat, is dropped.
        """
        number = entry[0]
        if number < self.next_number and self.count:
            return False
        if not self.count:
            self.first_number = number
            self.saved_number = number - 1
        self._in_memory.append(entry)
        self._bytes += entry[1].size
        self.next_number = number + 1
        return True

    def drop_below(self, number: int) -> None:
        """Drop the entries numbered below `number`: all receivers have them."""
        self.first_number = number
        self._drop(self._index_of(number - 1))

    def _drop(self, count: int) -> None:
        """Take the oldest out of memory."""
        self._bytes -= sum([stored.size for _, stored, _ in self._in_memory[:count]])
        del self._in_memory[:count]

    def remove(self, number: int) -> None:
        """Drop a single entry from memory, if it is there; its number stays a hole."""
        index = self._index_of(number - 1)
        if index < len(self._in_memory) and self._in_memory[index][0] == number:
            self._bytes -= self._in_memory.pop(index)[1].size

    def restore(self, first: int, following: int) -> None:
        """Begin with entries that are all in the store, numbered from `first` up to, not including, `following`. Call
        it on a new queue: entries in memory are not dropped.
        """
        self.first_number, self.next_number = first, following
        self.saved_number = self.unloaded_number = following - 1

    # ------------------------------------------------------------ the store

    def unsaved(self, keep: int | None) -> tuple[list[Entry], int]:
        """Return the entries to store now, and the number up to which the store then has all that it must have.

        The queue does not change; :meth:`saved` notes the write.

        Args:
            keep: return only the oldest entries beyond so many in memory; None: return all that the store lacks.
        """
        entries = self._in_memory[self._index_of(self.saved_number) :]
        if keep is None:
            return entries, self.last_number
        surplus = entries[: max(0, len(self._in_memory) - keep)]
        return surplus, surplus[-1][0] if surplus else self.saved_number

    def saved(self, number: int, keep: int) -> None:
        """Note that the store has all entries up to a number. Of those that it has, the oldest leave memory, until
        `keep` entries are left there; :meth:`after` does not return what has left.

        Args:
            number: of the last entry that the store has; after a lower number than before the store still counts as
                having all up to the higher one.
            keep: how many entries may stay in memory, whatever `number` says.
        """
        self.saved_number = max(self.saved_number, number)
        surplus = min(len(self._in_memory) - keep, self._index_of(self.saved_number))
        if surplus > 0:
            self.unloaded_number = self._in_memory[surplus - 1][0]
            self._drop(surplus)
