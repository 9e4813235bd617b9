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
    """This proxy has a lease: it takes part in elections from now on."""


@dataclass(frozen=True, slots=True)
class LinksLeaseLost:
    """The lease has ended, or may have: no link is led any more."""


@dataclass(frozen=True, slots=True)
class RecordsFolded:
    """The site's state was folded further, by these records."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class RegistryChanged:
    """The registry's watch has reported something else than an owner."""

    event: RegistryEvent


@dataclass(frozen=True, slots=True)
class LogAnswers:
    """Our site's log answers, or has stopped to answer."""

    answers: bool


@dataclass(frozen=True, slots=True)
class NeighbourSent:
    """A proxy of a neighbour has sent a message; the caller has verified that it is `peer`."""

    peer: ProxyId
    message: LinkMessage


@dataclass(frozen=True, slots=True)
class LinkEffectCompleted:
    """An effect has its answer, which its own `on_done` takes, with the time."""

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
