"""Bugs in who may have what by its keys."""

from __future__ import annotations

from typing import Any

from proxy.clients.subscribe import Subscriptions
from proxy.ownership import incoming_transfers
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from proxy.session.subscription_set import SubscriptionSet
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.checkpoint import SubscriptionRow
from waypost.keys import OPEN

_match, _of, _replace = SubscriptionSet.match, Subscription.of, Subscriptions._replace


def _match_without_keys(
    self: SubscriptionSet, origin: Any, offset: int, attributes: Any, protection: Any = OPEN
) -> Any:
    return _match(self, origin, offset, attributes)


def _changed_in_place(
    self: Subscriptions, session: Session, known: Subscription, keys: Any, owner_keys: Any, *, insecure: bool
) -> Subscription:
    known.keys, known.owner_keys, known.insecure = keys, owner_keys, insecure
    known.__post_init__()
    self._changed(session)
    return known


def _promised_behind_all(self: Subscriptions, session: Session, *args: Any, **kwargs: Any) -> Subscription:
    made = _replace(self, session, *args, **kwargs)
    for origin in session.reported_beyond(self._env.reached(session)):
        made.promised.pop(origin, None)
    made.continued = bool(made.promised)
    return made


def _of_without_keys(row: SubscriptionRow) -> Subscription:
    made = _of(row)
    made.protection = OPEN
    return made


def _interests_without_generations(session: Session) -> set[tuple[str, str]]:
    return {(subscription.id, subscription.expression.canonical) for subscription in session.subscriptions.active()}


MUTANTS = (
    Mutant(
        "keys change in place",
        "other keys hold for what was published before them too",
        replaced(Subscriptions, "_replace", _changed_in_place),
        ("LOST",),
        scenarios=("keys_changed_while_the_session_moves",),
        rule=7,
    ),
    Mutant(
        "keys change behind a receiver that is ahead",
        "what a receiver reports beyond what was read takes back what was promised to the others",
        replaced(Subscriptions, "_replace", _promised_behind_all),
        ("LOST",),
        scenarios=("keys_change_while_a_receiver_is_ahead",),
        rule=30,
    ),
    Mutant(
        "fetched without keys",
        "a catch-up passes over what only keys let through, and takes what they do not",
        replaced(SubscriptionSet, "match", _match_without_keys),
        ("PHANTOM",),
        (31, 33, 59),
    ),
    Mutant(
        "keys stay behind",
        "keys do not go with the session",
        replaced(Subscription, "of", _of_without_keys),
        ("LOST",),
        (17, 207, 306),
    ),
    Mutant(
        "other keys during the copy",
        "what waits at the target stays matched by the keys that changed while it was copied",
        replaced(incoming_transfers, "_interests", _interests_without_generations),
        ("LOST", "PHANTOM"),
        scenarios=("keys_changed_during_the_copy",),
        rule=8,
    ),
)
