"""The parts of this room that the rooms above work with, as one."""

from __future__ import annotations

from dataclasses import dataclass

from proxy.stream.coverage import Coverage
from proxy.stream.expiry import Expiry
from proxy.stream.persister import Persister
from proxy.stream.promises import Promises


@dataclass(frozen=True, slots=True)
class Stream:
    """What happens to the notifications of sessions between the site log and the receivers.

    Args:
        persister: writes sessions to store and changelog.
        promises: says from where on subscriptions are effective.
        coverage: says where each origin is complete, and fetches what is missing.
        expiry: removes what has grown too old, or too much.
    """

    persister: Persister
    promises: Promises
    coverage: Coverage
    expiry: Expiry
