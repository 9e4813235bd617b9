"""The one error tree.

Families by what is at fault: :class:`Refused` (the caller asked for something that cannot be), :class:`Unreachable`
(a dependency is not there; trying again may help), :class:`Internal` (Waypost broke its own rules), and those of a disk
or a log that gave what cannot be used, each by itself. Each says whether the action certainly did not happen
(``definite``) or may have.
"""

from __future__ import annotations


class WaypostError(Exception):
    """The base of every error of Waypost.

    `code` is stable; `message` is one line for people. `definite`: the action certainly did not happen. `exit_status`:
    of the command line.

    Args:
        message: one line for people.
        field: the argument or field at fault; None: there is none.
        hint: how to do it instead; None: there is none.
    """

    code = "ERROR"
    definite = True
    exit_status = 70

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.hint = hint

    @property
    def kind(self) -> str:
        """The code in words, by which errors are counted: of a small fixed set, but for an error that :func:`from_wire`
        made of an unknown code.
        """
        return self.code.lower().replace("_", " ")

    def __str__(self) -> str:
        field = f"{self.field}: " if self.field else ""
        return f"{self.code}: {field}{self.message}"


class Refused(WaypostError):
    """The request is wrong as it stands; the same request will be refused again, unless the class says otherwise."""

    code = "REFUSED"
    exit_status = 2


class BadArgument(Refused, TypeError, ValueError):
    """An argument of the public API is of a wrong type, or out of its range. `field` names it. Nothing was done."""

    code = "BAD_ARGUMENT"


class BadNotification(Refused):
    """A notification that is not allowed: a name, type or range of an attribute, or its size."""

    code = "BAD_NOTIFICATION"


class BadMessage(Refused):
    """A frame or message that is unknown, malformed or of the wrong shape."""

    code = "BAD_MESSAGE"


class WrongVersion(BadMessage):
    """The other side speaks another version of the protocol."""

    code = "WRONG_VERSION"


class BadConfiguration(Refused):
    """A setting, a flag or a file that they name is not valid."""

    code = "BAD_CONFIGURATION"


class LimitExceeded(Refused):
    """A limit is exceeded (waypost/limits.py)."""

    code = "LIMIT_EXCEEDED"


class NotFound(Refused):
    """The session, subscription, proxy or other object does not exist."""

    code = "NOT_FOUND"
    exit_status = 5


class NotServed(Refused):
    """The session is not served on this connection at the moment; the same request may succeed after the next
    attach.
    """

    code = "NOT_SERVED"


class AnotherFederation(Refused):
    """The proxy is of another federation than the one in which this client has published."""

    code = "ANOTHER_FEDERATION"


class SessionDeleted(Refused):
    """The session was deleted, by a client or operator with the right to, or by its expiry."""

    code = "SESSION_DELETED"
    exit_status = 5


class SessionLost(Refused):
    """The session exists in the registry, but neither a proxy's store nor any changelog has it any more."""

    code = "SESSION_LOST"
    exit_status = 5


class ReceiverTaken(Refused):
    """Another client attached under this receiver's name."""

    code = "RECEIVER_TAKEN"
    exit_status = 5


class Forbidden(Refused):
    """The session's access does not allow it: the password is not right, or a right is missing."""

    code = "FORBIDDEN"
    exit_status = 4


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


class InUse(Refused):
    """Something is in the way that still runs: a process that has the port, or the proxies of a site."""

    code = "IN_USE"
    exit_status = 5


class Unproven(Refused):
    """The other end has not proven that it is the proxy that it claims to be. `message` names why."""

    code = "UNPROVEN"


class UnexpectedInput(Refused):
    """A machine was given an input that its table does not list for its state. Nothing was changed."""

    code = "UNEXPECTED_INPUT"


class Unreachable(WaypostError):
    """A part that is needed does not answer. `definite`: whether the action certainly did not happen."""

    code = "UNREACHABLE"
    definite = False
    exit_status = 3


class NoProxy(Unreachable):
    """No proxy was found or reached."""

    code = "NO_PROXY"
    definite = True


class LogUnavailable(Unreachable):
    """A site log, journal or changelog does not answer, or rejects a write."""

    code = "LOG_UNAVAILABLE"


class LogReplaced(LogUnavailable):
    """The log is shorter than what was read of it, or differs from it from some offset on.

    `end`: the offset from which on all of it is lost, as far as known; None: it is not known.
    """

    code = "LOG_REPLACED"

    def __init__(self, message: str, *, end: int | None = None) -> None:
        super().__init__(message)
        self.end = end


class CheckpointOutdated(LogUnavailable):
    """A changelog has a checkpoint that counts more than the one to be written, which was not written.

    `epoch`: of the one that is there. `by_owner`: the session's owner wrote it, and clients may have been answered by
    it; else it is damaged, or one from before the session was created, above another such one.
    """

    code = "CHECKPOINT_OUTDATED"

    def __init__(self, message: str, epoch: int, *, by_owner: bool) -> None:
        super().__init__(message)
        self.epoch = epoch
        self.by_owner = by_owner


class Altered(Unreachable):
    """Data is not what was sent: its checksum is wrong. None of it was accepted; it is to be sent again."""

    code = "ALTERED"
    definite = True


class RegistryUnavailable(Unreachable):
    """The registry does not answer."""

    code = "REGISTRY_UNAVAILABLE"


class NoAnswer(Unreachable):
    """No answer came in time; the action may have happened."""

    code = "NO_ANSWER"


class StoreFailed(WaypostError):
    """The local disk rejected a transaction; none of it was kept."""

    code = "STORE_FAILED"


class StoreDamaged(StoreFailed):
    """The local disk returns other data than was written; none of it is used."""

    code = "STORE_DAMAGED"


class HistoryTruncated(WaypostError):
    """A log no longer has the requested records; `first` is the earliest offset that it has."""

    code = "HISTORY_TRUNCATED"

    def __init__(self, message: str, *, first: int) -> None:
        super().__init__(message)
        self.first = first


class LogDamaged(WaypostError):
    """A record of a log cannot be read; `offset` is its."""

    code = "LOG_DAMAGED"

    def __init__(self, message: str, *, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class OutputFailed(WaypostError):
    """Output could not be written; a disk may be full."""

    code = "OUTPUT_FAILED"
    exit_status = 3


class BadRecord(WaypostError):
    """A stored record cannot be read: it is damaged, or of an unknown version."""

    code = "BAD_RECORD"


class Internal(WaypostError):
    """A defect of Waypost itself."""

    code = "INTERNAL"


def from_wire(code: str, message: str, field: str | None = None) -> WaypostError:
    """Return the error of a message of another process.

    Args:
        code: an unknown one gives a Refused with that code; so does the code of a class of another module.
        message: one line for people.
        field: at fault; None: there is none.

    Returns:
        An error of the class of that code. Attributes that only this class has, such as `end` or `first`, are not set.
    """
    kind = _BY_CODE.get(code, Refused)
    error = kind.__new__(kind)
    WaypostError.__init__(error, message, field=field)
    error.code = code
    return error


def _tree(kind: type[WaypostError]) -> dict[str, type[WaypostError]]:
    found = {kind.code: kind}
    for subclass in kind.__subclasses__():
        found |= _tree(subclass)
    return found


_BY_CODE = _tree(WaypostError)
