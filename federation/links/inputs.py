"""The inputs of the ends of links: all that they are told by the log, the registry, neighbours, and answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from federation.messages import LinkMessage
from federation.ports import Batch, RegistryEvent
from waypost.identity import ProxyId


@dataclass(frozen=True, slots=True)
class LinksLeaseGranted:
    """Input: this proxy has a lease of the registry; it takes part in elections from now on."""


@dataclass(frozen=True, slots=True)
class LinksLeaseLost:
    """Input: the lease has ended, or may have; no link is led any more."""


@dataclass(frozen=True, slots=True)
class RecordsFolded:
    """Input: the fold of our site log has taken these records; the state of the site has them already.

    Args:
        batch: the records, with their offsets.
    """

    batch: Batch


@dataclass(frozen=True, slots=True)
class RegistryChanged:
    """Input: the registry's watch has reported a change of proxies, leaders, links, the tree or sites. Changes of
    owners do not come here.

    Args:
        event: the change.
    """

    event: RegistryEvent


@dataclass(frozen=True, slots=True)
class LogAnswers:
    """Input: our site's log answers, or has stopped to answer: then neighbours are granted no lease, and give the links
    to this proxy up.

    Args:
        answers: whether it answers now.
    """

    answers: bool


@dataclass(frozen=True, slots=True)
class NeighbourSent:
    """Input: a proxy of a neighbour has sent a message.

    Args:
        peer: the sender, which the caller has verified.
        message: the decoded message.
    """

    peer: ProxyId
    message: LinkMessage


@dataclass(frozen=True, slots=True)
class LinkEffectCompleted:
    """Input: an effect has its answer.

    Args:
        on_done: the effect's own; the end of the link calls it with the result and the time.
        result: what the effect's docstring says, or an error.
    """

    on_done: Callable[[Any, int], None]
    result: Any


LinkInput = (
    LinksLeaseGranted
    | LinksLeaseLost
    | RecordsFolded
    | RegistryChanged
    | LogAnswers
    | NeighbourSent
    | LinkEffectCompleted
)
