"""Planted bugs of access: who may do what stays behind, or nobody asks for it."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.access import AccessChanges
from proxy.guard import Admitted, Guard
from proxy.session import Session
from tests.chaos.simulator.planting import Plant, replaced
from waypost.access import EVERYTHING, Grant
from waypost.checkpoint import Descriptor
from waypost.messages import Attach

_descriptor = Session.descriptor


def _without_access(session: Session) -> Descriptor:
    return replace(_descriptor(session), access={})


def _let_in(guard: Guard, session: Session, attach: Attach, *_: object) -> Admitted:
    return Admitted(attach.credential.principal, Grant(EVERYTHING))


PLANTS = (
    Plant(
        "access stays behind",
        "who may do what does not go with the session",
        replaced(Session, "descriptor", _without_access),
        ("RIGHTS",),
        stories=("password_changed_before_the_cut",),
    ),
    Plant(
        "nobody is put out",
        "who loses the right to read stays attached",
        replaced(AccessChanges, "put_out", lambda changes, session: None),
        ("RIGHTS",),
        stories=("password_changed_before_the_cut",),
    ),
    Plant(
        "nobody is asked",
        "a receiver is let in whatever it says",
        replaced(Guard, "admit", _let_in),
        ("RIGHTS",),
        stories=("access_after_a_failover",),
    ),
)
