"""What is owed of a subscription that has ended: up to where at least, and beyond which nothing may be given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from waypost.facts import Fact, FactKind
from waypost.identity import NOTHING, Origin

if TYPE_CHECKING:
    from chaos.simulator.processes.clients import Client


def least_ends(client: Client, subscription: str) -> dict[Origin, int]:
    """Return origin -> the last offset that is owed of a subscription at least, in all present and former origins.

    A subscription that has not ended has no such bound: a huge offset, 1 << 60, stands for it. For an ended one it
    is the lowest attested end. What the logs had when the client asked for the end is owed in any case, but for
    that of a site that did not say in time how far its log went: then what the owner's site had read (handover rule
    7).
    """
    origins = {at.origin for at in client.world.published}.union(client.world.logs_by_origin)
    if subscription not in client.ended:
        return dict.fromkeys(origins, 1 << 60)
    name, found = (client.session or client.name, subscription), _attested(client, subscription, FactKind.UNSUBSCRIBED)
    unconfirmed = {origin for fact in found for origin in fact.unconfirmed_ends}
    before = client.world.published_before.get(name)
    return {
        origin: max(
            NOTHING if before is None else before.floor(origin, is_confirmed=origin not in unconfirmed),
            min([fact.frontier[origin] for fact in found if origin in fact.frontier], default=NOTHING),
        )
        for origin in origins
    }


def highest_ends(client: Client, subscription: str) -> dict[Origin, int]:
    """Return origin -> the highest attested end of an ended subscription, above which nothing may be given.

    An origin of which none was attested is not in it, nor one whose site did not answer at the end of the last
    generation. Empty: the subscription, or a generation of it, has not ended, or the session was deleted: then
    nobody attests the ends of the last generations.
    """
    if subscription not in client.ended:
        return {}
    if client.session in client.world.deletions:
        # Also where its owner crashed before that was on record.
        return {}
    ends = _attested(client, subscription, FactKind.UNSUBSCRIBED)
    begun = _attested(client, subscription, FactKind.EFFECTIVE, FactKind.RESTATED)
    if {fact.subscription_generation for fact in begun} - {fact.subscription_generation for fact in ends}:
        return {}
    highest: dict[Origin, int] = {}
    for fact in ends:
        for origin, end in fact.frontier.items():
            highest[Origin(origin)] = max(highest.get(Origin(origin), NOTHING), end)
    last = max((fact.subscription_generation for fact in ends), default=0)
    known = {origin for fact in ends if fact.subscription_generation == last for origin in fact.frontier}
    return {origin: end for origin, end in highest.items() if origin in known}


def _attested(client: Client, subscription: str, *kinds: FactKind) -> list[Fact]:
    name = (client.session or client.name, subscription)
    return [
        fact for fact in client.world.facts if fact.kind in kinds and client.world.reused_names.name_of(fact) == name
    ]
