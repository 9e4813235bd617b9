"""The one error tree.

Families by who is at fault: :class:`Refused` (the caller asked for something that cannot be), :class:`Unreachable`
(a part is not there; trying again may help), :class:`Internal` (Waypost broke its own rules). Each says
whether the action certainly did not happen (``definite``) or may have.
"""

from __future__ import annotations


class WaypostError(Exception):
    """What every error of Waypost is. `code` is stable; `message` is one line for people."""

    code = "ERROR"
    definite = True
    exit_status = 70

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint
        self.retry_after_ms = retry_after_ms

    @property
    def kind(self) -> str:
        """The code in words: one of a few, by which errors are counted, never what somebody made up."""
        return self.code.lower().replace("_", " ")

    def __str__(self) -> str:
        place = f"{self.field}: " if self.field else ""
        return f"{self.code}: {place}{self.message}"


class Refused(WaypostError):
    """The request is wrong as it stands; the same request will be refused again."""

    code = "REFUSED"
    exit_status = 2


class BadArgument(Refused, TypeError, ValueError):
    """An argument of the public API is of a wrong type, or out of its range. `field` names it. Nothing was done."""

    code = "BAD_ARGUMENT"


class BadNotification(Refused):
    code = "BAD_NOTIFICATION"


class BadMessage(Refused):
    """A frame or message that is unknown, malformed or of the wrong shape."""

    code = "BAD_MESSAGE"


class WrongVersion(BadMessage):
    """The other side speaks a version of the protocol that is not spoken here."""

    code = "WRONG_VERSION"


class BadConfiguration(Refused):
    code = "BAD_CONFIGURATION"


class LimitExceeded(Refused):
    code = "LIMIT_EXCEEDED"


class NotFound(Refused):
    code = "NOT_FOUND"
    exit_status = 5


class NotServed(Refused):
    """The session is not served on this connection at the moment; the same request may do after the next attach."""

    code = "NOT_SERVED"


class SessionDeleted(Refused):
    """The session was deleted, by somebody who may, or because nobody was attached to it for as long as it lasts."""

    code = "SESSION_DELETED"
    exit_status = 5


class SessionLost(Refused):
    """There is such a session, and nobody has it any more: neither a proxy's store nor any changelog."""

    code = "SESSION_LOST"
    exit_status = 5


class ReceiverTaken(Refused):
    """Another client attached under this receiver's name."""

    code = "RECEIVER_TAKEN"
    exit_status = 5


class Forbidden(Refused):
    """The session's access does not allow it: the password is not right, or a right is missing."""

    code = "FORBIDDEN"


class ForeignOrigin(Refused):
    """A web page of this origin may not use the proxy."""

    code = "FOREIGN_ORIGIN"


class Misdirected(Refused):
    """The request was sent to a host name that is none of this proxy's."""

    code = "MISDIRECTED"


class WrongContentType(Refused):
    """The body of a request does not say that it is JSON."""

    code = "WRONG_CONTENT_TYPE"


class NameTaken(Refused):
    """A proxy's name is in use by another process."""

    code = "NAME_TAKEN"
    exit_status = 5


class Unproven(Refused):
    """Whoever is at the other end has not shown that it is the proxy that it says it is. `message` names why."""

    code = "UNPROVEN"


class UnexpectedInput(Refused):
    """A machine was given an input that its table does not list for its state. Nothing was changed."""

    code = "UNEXPECTED_INPUT"


class Unreachable(WaypostError):
    """A part that is needed does not answer; the action may or may not have happened."""

    code = "UNREACHABLE"
    definite = False
    exit_status = 3


class NoProxy(Unreachable):
    code = "NO_PROXY"
    definite = True


class LogUnavailable(Unreachable):
    code = "LOG_UNAVAILABLE"


class LogReplaced(LogUnavailable):
    """The log is shorter than what was read of it, or another one from some place on.

    `end`: from here on it has lost all, as far as is known; None: nothing is known of that.
    """

    code = "LOG_REPLACED"

    def __init__(self, message: str, *, end: int | None = None) -> None:
        super().__init__(message)
        self.end = end


class CheckpointOutdated(LogUnavailable):
    """A changelog has a checkpoint that counts more than one that was to be written. That was not written.

    `epoch`: of the one that is there. `by_owner`: who owned the session wrote it, and clients may have been answered
    what it says; else it is one from before a session was created, or damaged.
    """

    code = "CHECKPOINT_OUTDATED"

    def __init__(self, message: str, epoch: int, *, by_owner: bool) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.by_owner = by_owner


class Altered(Unreachable):
    """What came is not what was sent: its checksum is wrong. Nothing of it was taken, and it is to be sent again."""

    code = "ALTERED"
    definite = True


class RegistryUnavailable(Unreachable):
    code = "REGISTRY_UNAVAILABLE"


class NoAnswer(Unreachable):
    """What was asked for was not answered in time; it may have been done."""

    code = "NO_ANSWER"


class StoreFailed(WaypostError):
    """The local disk did not take a transaction; nothing of it was kept."""

    code = "STORE_FAILED"


class StoreDamaged(StoreFailed):
    """What the local disk has is not what was written; nothing of it is used."""

    code = "STORE_DAMAGED"


class HistoryTruncated(WaypostError):
    """A log no longer holds what was asked for; `first` is the earliest offset it has."""

    code = "HISTORY_TRUNCATED"

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class LogDamaged(WaypostError):
    """A record of a log cannot be read; `offset` is where it stands."""

    code = "LOG_DAMAGED"

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class OutputFailed(WaypostError):
    """What was to be printed could not be; a disk may be full."""

    code = "OUTPUT_FAILED"
    exit_status = 3


class BadRecord(WaypostError):
    """What was written down cannot be read: it is damaged, or of a version that is not known here."""

    code = "BAD_RECORD"


class Internal(WaypostError):
    code = "INTERNAL"


def from_wire(code: str, message: str, field: str | None = None) -> WaypostError:
    """Return the error that was sent as these words; one of an unknown code is a plain refusal with that code."""
    kind = _BY_CODE.get(code, Refused)
    error = kind.__new__(kind)
    WaypostError.__init__(error, message, field=field)
    error.code = code
    return error


def _tree(kind: type[WaypostError]) -> dict[str, type[WaypostError]]:
    found = {kind.code: kind}
    for each in kind.__subclasses__():
        found |= _tree(each)
    return found


_BY_CODE = _tree(WaypostError)
