"""Answers to what changes a session: given once the change would survive this proxy, by who may give them then.

Store and changelog must both have it: whatever dies next, one of them is what counts. And lease and epoch are looked at
again after the write (handover rule 6): it may have been made by an owner that is one no more, and what became of the
change is known to the owner now.
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.connection import Change, Connection, problem
from proxy.context import Context
from proxy.effects import Send
from proxy.keeper import Keeper
from proxy.session import Session
from waypost.errors import WaypostError
from waypost.messages import Detach, Wait


def once_kept(
    context: Context,
    keeper: Keeper,
    session: Session,
    kept: Callable[[], None],
    lost: Callable[[WaypostError | None], None],
) -> None:
    """Call `kept` once store and changelog have the session as it is now, and it is ours still; else `lost`, with why
    it was not written, or with None: it is ours no more."""
    epoch = session.epoch

    def then(failure: WaypostError | None) -> None:
        is_ours = context.serving(session.id) is session and session.epoch == epoch
        if failure is None and is_ours:
            kept()
        else:
            lost(failure)

    keeper.written(session, then)


class Answers:
    """Gives them.

    Args:
        again: takes a message again, as if it had come just now.
    """

    def __init__(self, context: Context, keeper: Keeper, again: Callable[[int, Change], None]) -> None:
        self._context = context
        self._keeper = keeper
        self._again = again

    def once_kept(self, connection: Connection, session: Session, message: Change, answer: Callable[[], None]) -> None:
        """Call `answer` once the session is kept as it is now; if it cannot be, tell the client why."""

        def lost(failure: WaypostError | None) -> None:
            if isinstance(message, Detach):
                # Who could not be forgotten comes again, and asks again.
                why = failure.message if failure is not None else "the session has moved"
                self._context.emit(Send(connection.number, Wait(why, self._context.settings.retry_ms)))
            elif failure is not None:
                self._context.emit(Send(connection.number, problem(failure, message)))
            else:
                self._again(connection.number, message)

        once_kept(self._context, self._keeper, session, answer, lost)
