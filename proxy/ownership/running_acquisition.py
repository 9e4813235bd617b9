"""An acquisition that runs here: its machine, and what its effects need."""

from __future__ import annotations

from dataclasses import dataclass, field

from handover.acquisition import Acquisition
from proxy.core.events import AcquireRequest
from proxy.session.session import Session


@dataclass(slots=True)
class RunningAcquisition:
    """An acquisition, and what its effects need.

    Args:
        copy: of the session, if there is one here.
    """

    machine: Acquisition
    request: AcquireRequest
    copy: Session | None = None
    is_waited_for: bool = field(default=False, init=False)
    """Whether a client, or another proxy, waits for the session."""
    attempt: int = field(default=0, init=False)
    """The number of the question that is under way."""
    is_row_read: bool = field(default=False, init=False)
    """Whether the row was read from the registry, and not reported by the watch, or expected."""

    def copy_found(self, copy: Session) -> None:
        """Set the copy of the session that is here now; the machine goes on with its epoch."""
        self.copy = copy
        epoch, _ = copy.checkpointed
        self.machine.copy_found(copy.epoch, epoch)

    def row_read(self, copy: Session | None) -> None:
        """Note that the row was read from the registry.

        Args:
            copy: the copy of the session that was here then; None: there was none.
        """
        self.is_row_read = True
        if copy is not None:
            self.copy_found(copy)
