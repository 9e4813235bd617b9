"""Answers to requests that end a subscription: given once it is known where it ends, or after LOG_END_MS.

So what is published after the answer is not delivered any more, as MQTT 5 has it (section 3.10.4). A site that does
not answer how far its log goes does not hold the answer back for longer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from proxy.core.environment import Environment
from proxy.session.session import Session
from waypost.clock import NEVER
from waypost.identity import SessionId, SubscriptionId
from waypost.limits import LOG_END_MS


class _Waiting(NamedTuple):
    session: Session
    subscription: SubscriptionId
    until: int
    answer: Callable[[], None]

    @property
    def is_awaited(self) -> bool:
        """Whether it is not known yet, in some origin, where the subscription ends."""
        return any(
            ended.id == self.subscription and ended.has_unknown_end for ended in self.session.subscriptions.ended
        )


class EndReplies:
    """Holds the answers to those who end subscriptions."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._waiting: dict[Hashable, _Waiting] = {}
        """By requester and subscription; a repeated request takes the place of the one before."""

    def reply_when_known(
        self, session: Session, subscription: SubscriptionId, requester: Hashable, answer: Callable[[], None]
    ) -> None:
        """Call `answer` once the ends of the ended subscription are known in all origins, or after LOG_END_MS.

        `answer` is called at once if they are known already.

        Args:
            requester: who is answered: a connection's number, or an object of its own. A later call of the same
                requester for the same subscription takes the place of the one before, whose `answer` is never called.
        """
        waiting = _Waiting(session, subscription, self._env.time.now_ms + LOG_END_MS, answer)
        if waiting.is_awaited:
            self._waiting[requester, session.id, subscription] = waiting
        else:
            answer()

    def ends_changed(self, session: Session) -> None:
        """Call the answers of this session (:meth:`reply_when_known`) for subscriptions whose ends are known in all
        origins by now, each once; the others go on waiting.
        """
        self._give(lambda waiting: waiting.session is session and not waiting.is_awaited)

    def session_removed(self, session: SessionId) -> None:
        """Give all answers of a session that has left; the callbacks find that it is gone, and say so."""
        self._give(lambda waiting: waiting.session.id == session)

    def tick(self) -> None:
        """Give the answers that have waited for LOG_END_MS."""
        now = self._env.time.now_ms
        self._give(lambda waiting: waiting.until <= now)

    def next_deadline(self) -> int:
        """Return when :meth:`tick` has something to do, in ms of the engine's clock; NEVER: nothing."""
        return min((waiting.until for waiting in self._waiting.values()), default=NEVER)

    def _give(self, is_due: Callable[[_Waiting], bool]) -> None:
        for key, waiting in [*self._waiting.items()]:
            if is_due(waiting):
                del self._waiting[key]
                waiting.answer()
