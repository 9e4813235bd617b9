"""Mutants of access: who may do what stays behind, or nobody asks for it."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.clients.access_changes import AccessControl
from proxy.clients.authorization import Admitted, Authorizer
from proxy.session.session import Session
from tests.chaos.simulator.mutation import Mutant, replaced
from waypost.access import EVERYTHING, Grant
from waypost.checkpoint import Descriptor
from waypost.messages import Attach

_descriptor = Session.descriptor


def _without_access(session: Session) -> Descriptor:
    return replace(_descriptor(session), access={})


def _let_in(guard: Authorizer, session: Session, attach: Attach, *_: object) -> Admitted:
    return Admitted(attach.credential.principal, Grant(EVERYTHING))


MUTANTS = (
    Mutant(
        "access stays behind",
        "who may do what does not go with the session",
        replaced(Session, "descriptor", _without_access),
        ("RIGHTS",),
        scenarios=("password_changed_before_the_cut",),
    ),
    Mutant(
        "nobody is put out",
        "who loses the right to read stays attached",
        replaced(AccessControl, "why_detached", lambda changes, session, connection: None),
        ("RIGHTS",),
        scenarios=("password_changed_before_the_cut",),
    ),
    Mutant(
        "nobody is asked",
        "a receiver is let in whatever it says",
        replaced(Authorizer, "admit", _let_in),
        ("RIGHTS",),
        scenarios=("access_after_a_failover",),
    ),
)
