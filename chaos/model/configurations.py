"""The worlds that are explored, and the rules that can be taken out of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from chaos.model.acquisitions import OUTDATED, TWO_OWNERS, UNNAMED, Acquisitions
from chaos.model.clients import LOSS, REPEAT
from chaos.model.handover import KEPT, OWNER, PROPERTY_WHOLE, Handover
from chaos.model.log_epochs import LOST, LogEpochs
from chaos.model.owners import ASCENDS, STORED
from chaos.model.partitions import GIVEN, Partitions
from chaos.model.protocol import FORGOTTEN
from chaos.model.registries import TWO, Registries
from chaos.model.state import B, Configuration, Setup

CRASH, MESSAGE = frozenset(("crash",)), frozenset(("message", "timeout"))

SITE = Configuration("site", kinds=(0,), faults=1, moves=1)
QUICK = Configuration("quick", kinds=(0,), faults=1, moves=1, sorts=MESSAGE)
OWNERS = Configuration("owners", kinds=(0,), faults=1, moves=0)
TWICE = Configuration("twice", kinds=(0,), faults=2, moves=0)
THERE = Configuration("there", faults=0, moves=1)
THERE_AND_BACK = Configuration("there-and-back", faults=0, moves=2)
FAR = Configuration("far", faults=0, moves=1, far=True)
FAR_CRASH = Configuration("far-crash", kinds=(0,), faults=1, moves=0, far=True, initial_owner=B, sorts=CRASH)
SECOND = Configuration("second", kinds=(1,), faults=0, moves=1, subscribes=True)
SECOND_CRASH = Configuration("second-crash", kinds=(1,), faults=1, moves=0, subscribes=True, sorts=CRASH)

DEFAULT = SITE.name
CONFIGURATIONS = {
    configuration.name: configuration
    for configuration in (SITE, QUICK, OWNERS, TWICE, THERE, THERE_AND_BACK, FAR, FAR_CRASH, SECOND, SECOND_CRASH)
}


World = Configuration | LogEpochs | Acquisitions | Partitions | Registries


class Rule(NamedTuple):
    """A rule that can be taken out: what is lost with it, and the smallest world in which that shows."""

    statement: str
    breaks: str
    world: World


ACQUISITIONS = {
    "new": Acquisitions(begins="none", faults=2),
    "owned": Acquisitions(begins="owned", faults=3),
    "staged": Acquisitions(begins="staged", faults=2),
    "lost": Acquisitions(begins="lost", faults=2),
    "restored": Acquisitions(begins="restored", faults=2),
}
"""Worlds in which a session is acquired without a transfer."""

LOGS = {
    "log": LogEpochs(publishes=3),
    "log-crash": LogEpochs(publishes=3, crashes=1),
    "log-twice": LogEpochs(publishes=3, losses=2, crashes=1),
}
"""Worlds of a log that loses its end."""

PARTITIONS = {"partitions": Partitions(publishes=1), "partitions-two": Partitions(publishes=2)}
"""Worlds of a site with two partitions."""
REGISTRIES = {"registries": Registries()}
"""Worlds of two registries with a wide area between them."""

RULES = {
    "RESTART": Rule("a restart takes a new epoch before it serves (rule 1)", OWNER, SITE),
    "THAW": Rule("a source that times out takes a new epoch before it thaws (rule 1)", OWNER, SITE),
    "LEASE": Rule("an answer to a claim counts only under the lease under which it was asked (rule 1)", OWNER, TWICE),
    "FENCE": Rule("a proxy stops serving before its lease can end", OWNER, SITE),
    "COMMIT": Rule("the commit compares before it sets", ASCENDS, SITE),
    "STORE": Rule("the target stores before it commits", STORED, SITE),
    "ORPHAN": Rule("a staged copy waits for the registry, also when its transfer is gone (rule 5)", STORED, SITE),
    "RELEASE": Rule("the source releases on the registry's word, not on the target's", PROPERTY_WHOLE, SITE),
    "DELETE": Rule("the source keeps the session until it is released", PROPERTY_WHOLE, SITE),
    "REPLAY": Rule("a gate that opens gives what waited behind it", LOSS, SITE),
    "GATE": Rule("a shadow keeps what it matches, behind gates", LOSS, THERE),
    "GIVEN": Rule("the client's frontier moves when its application was given something", LOSS, SITE),
    "DROP": Rule("the client drops what lies at or below its frontier", REPEAT, THERE_AND_BACK),
    "MERGE": Rule("the merge is made for the subscriptions at the cut (rule 8)", LOSS, SECOND),
    "ANSWER": Rule("a subscription is in store and changelog before it is confirmed (rule 6)", LOSS, SECOND_CRASH),
    "PROMISE": Rule("a promise is told when the store has the subscription, too (rule 6)", KEPT, SECOND_CRASH),
    "BROKEN": Rule("a hole that the site made closes the gates (rule 9)", LOSS, FAR_CRASH),
    "RANK": Rule("the checkpoint of the highest rank wins, not the last one (rule 19)", FORGOTTEN, OWNERS),
    "STALE": Rule("an answer that was asked under an earlier lease is refused", UNNAMED, ACQUISITIONS["new"]),
    "AGAIN": Rule(
        "a copy that sleeps takes a new epoch before it is served (rule 1)", TWO_OWNERS, ACQUISITIONS["owned"]
    ),
    "CHECK": Rule(
        "a copy is activated if the changelog has nothing that a later owner wrote (rule 28)",
        OUTDATED,
        ACQUISITIONS["restored"],
    ),
    "LOOK": Rule("a log that was out of reach is looked at before it is appended to (rule 27)", LOST, LOGS["log"]),
    "WAIT": Rule("it is looked at when all have said what they have seen of it (rule 27)", LOST, LOGS["log"]),
    "EPOCH": Rule("the log says that another log epoch begins (rule 27)", LOST, LOGS["log"]),
    "VECTOR": Rule("a cut is a place in each partition (ADR 30)", GIVEN, PARTITIONS["partitions"]),
    "OWN": Rule("a partition's own log says from where on it is covered (ADR 30)", GIVEN, PARTITIONS["partitions"]),
    "EACH": Rule("interest is registered in each partition (ADR 30)", GIVEN, PARTITIONS["partitions"]),
    "ITS": Rule("a session is served under the lease of its own registry (ADR 31)", TWO, REGISTRIES["registries"]),
    "STAYS": Rule("a session's row stays in its registry (ADR 31)", TWO, REGISTRIES["registries"]),
    "TELL": Rule("who has less of an origin that ended is told what is lost (rule 27)", LOST, LOGS["log"]),
}


def model(
    world: World, without: frozenset[str] = frozenset()
) -> Handover | LogEpochs | Acquisitions | Partitions | Registries:
    """Return the model of a world, with some rules taken out, for :func:`chaos.model.explore.explore`.

    Args:
        world: of this module, such as SITE.
        without: names of rules, keys of RULES; a rule of another kind of model than that of `world` has no effect, and
            neither has an unknown name.
    """
    return Handover(Setup(world, without)) if isinstance(world, Configuration) else replace(world, without=without)
