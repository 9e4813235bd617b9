"""What subscriptions cost a proxy: each distinct expression once, for the whole proxy and for each client that pays.

A client pays for what it subscribed to, as long as that is subscribed here: a principal that proved itself, or the
address of those who are nobody in particular. Who pays goes with the session, to the store and to other proxies, so
that nobody gets round the bound by moving; and with a relay, so that it counts where the session is served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from proxy.session.session import Session
from waypost.errors import LimitExceeded
from waypost.identity import SessionId
from waypost.limits import (
    FREE_NODES,
    MATCH_MS_CLIENT,
    MATCH_MS_EXPRESSION,
    MATCH_MS_SESSION,
    NODES_CLIENT,
    NODES_PROXY,
    NODES_SESSION,
)
from waypost.subscription import Expression
from waypost.subscription.cost import Cost

ADVICE = (
    "compare with == or begins-with(), which cost nothing, put fewer texts and smaller patterns into contains(), "
    "regex() and wildcard(), or subscribe to less"
)


class Account:
    """A number of subscriptions, and the cost of their distinct expressions. Its length: distinct expressions."""

    def __init__(self) -> None:
        self._expressions: Counter[Expression] = Counter()
        self.cost = Cost()
        self.subscriptions = 0

    def add(self, expression: Expression) -> None:
        """Add a subscription with this expression; each distinct expression costs once."""
        self.subscriptions += 1
        if not self._expressions[expression]:
            self.cost += charge(expression)
        self._expressions[expression] += 1

    def remove(self, expression: Expression) -> None:
        """Remove a subscription with this expression. It must have been added."""
        self.subscriptions -= 1
        self._expressions[expression] -= 1
        if not self._expressions[expression]:
            del self._expressions[expression]
            self.cost -= charge(expression)

    def with_one_more(self, expression: Expression) -> Cost:
        """Return what the cost would be with one more subscription of that expression; the account stays as it is."""
        return self.cost if expression in self._expressions else self.cost + charge(expression)

    def __len__(self) -> int:
        return len(self._expressions)


class CostBudget:
    """The accounts of one proxy: one for itself, and one for each client that pays."""

    def __init__(self) -> None:
        self.proxy = Account()
        self._clients: dict[str, Account] = {}
        self._of_session: dict[SessionId, list[tuple[str, Expression]]] = {}

    def put(self, session: Session) -> None:
        """Charge the session's active subscriptions as they are now, in place of those charged before.

        Nothing is refused: bounds are checked before, by the methods that begin with `require`.
        """
        before = self._of_session.get(session.id, [])
        now = self._of_session[session.id] = [(sub.payer, sub.expression) for sub in session.subscriptions.active()]
        # Mostly one more has come, behind those that were there.
        kept = len(before) if now[: len(before)] == before else 0
        # First what comes: an account that would be empty in between is kept.
        for payer, expression in now[kept:]:
            self.proxy.add(expression)
            if payer:
                self._clients.setdefault(payer, Account()).add(expression)
        self._release(before[kept:])

    def remove(self, session: SessionId) -> None:
        """Release what the session's subscriptions cost; nothing happens if it was not charged."""
        self._release(self._of_session.pop(session, ()))

    def _release(self, charged: Iterable[tuple[str, Expression]]) -> None:
        for payer, expression in charged:
            self.proxy.remove(expression)
            if payer:
                self._clients[payer].remove(expression)
                if not self._clients[payer]:
                    del self._clients[payer]

    def require_room(self, payer: str, max_subscriptions: int) -> None:
        """Check that the number of subscriptions leaves room for one more.

        Args:
            payer: the client that pays for it; empty: nobody, and only the proxy's bound counts.
            max_subscriptions: the most that the proxy may have; one client may have half of them.

        Raises:
            LimitExceeded: the proxy, or the client, has that many.
        """
        if self.proxy.subscriptions >= max_subscriptions:
            raise LimitExceeded(
                f"this proxy has {max_subscriptions} subscriptions, and takes no more; attach at another one"
            )
        account = self._clients.get(payer)
        if account is not None and account.subscriptions >= max_subscriptions // 2:
            raise LimitExceeded(
                f"one client has {max_subscriptions // 2} subscriptions at this proxy, and may have no more"
            )

    def require(self, session: Session, expression: Expression, payer: str, match_ms: int) -> None:
        """Check that a new subscription stays within the bounds of expression, session, client and proxy. Nothing is
        charged here: :meth:`put` does that.

        Args:
            session: the session that is to have it; subscriptions that have ended, but are still owed, count too.
            payer: the client that pays for it; empty: nobody, and no client's bound counts.
            match_ms: how long the proxy may take, by estimate, to match the largest notification against all its
                expressions, in ms; 0: there are no bounds at all.

        Raises:
            LimitExceeded: a bound would be passed; the message names which.
        """
        if not match_ms:
            return
        _require("one expression", charge(expression), MATCH_MS_EXPRESSION, None)
        session_account = Account()
        for distinct in {sub.expression for sub in session.subscriptions.all()}:
            session_account.add(distinct)
        _require("a session", session_account.with_one_more(expression), MATCH_MS_SESSION, NODES_SESSION)
        if payer:
            account = self._clients.get(payer, Account())
            _require("one client", account.with_one_more(expression), MATCH_MS_CLIENT, NODES_CLIENT)
        _require("a proxy", self.proxy.with_one_more(expression), match_ms, NODES_PROXY)


def charge(expression: Expression) -> Cost:
    """Return the cost of an expression, as it is charged; nothing is charged here. Its first FREE_NODES nodes are free,
    its matching time never is.
    """
    return Cost(max(0, expression.cost.nodes - FREE_NODES), expression.cost.work_ns)


def _require(whose: str, cost: Cost, match_ms: int, nodes: int | None) -> None:
    if cost.work_ns > match_ms * 1_000_000:
        raise LimitExceeded(
            f"the largest notification would take {cost.work_ns / 1e6:.0f} ms to match the expressions of {whose}, "
            f"and may take {match_ms} ms; {ADVICE}",
            field="expression",
        )
    if nodes is not None and cost.nodes > nodes:
        raise LimitExceeded(
            f"the expressions of {whose} would have {cost.nodes} parts that count, and may have {nodes}; an expression "
            f"of at most {FREE_NODES} parts (names, values, operators) does not count",
            field="expression",
        )
