"""What goes on record of a session's subscriptions and receivers, so that the audit can tell what was owed, and given.

What a receiver has, its own library attests; that is written as it is. Of a subscription a fact is written after what
it says is kept, so a crash may come between the two. Therefore all is said again at every start of serving; a
subscription that ended is not forgotten before its end is on record. Whoever reads takes what is said of one generation
of a subscription for one thing, however often it is said.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.core.journal import Journal
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from waypost.facts import Fact, FactKind, GapCause
from waypost.identity import Origin, ReceiverId, SessionId
from waypost.keys import texts
from waypost.messages import Attestation
from waypost.queue import UNBOUNDED


def subscribed(journal: Journal, session: Session, made: Subscription) -> None:
    """Attest that the subscription was accepted, with its expression, keys and start."""
    _attest(journal, FactKind.SUBSCRIBED, session, made, **_interest(made), frontier=dict(made.start))


def policy(journal: Journal, session: Session, subscription: Subscription) -> None:
    """Attest the subscription's time to live and maximum count; the audit excuses no other removal."""
    _attest(journal, FactKind.POLICY, session, subscription, **_policy(subscription))


def effective(journal: Journal, session: Session, subscription: Subscription, promised: dict[Origin, int]) -> None:
    """Attest a promise of the subscription.

    Args:
        promised: origin -> the offset above which every match is owed (handover rule 7).
    """
    _attest(journal, FactKind.EFFECTIVE, session, subscription, frontier=promised)


def unsubscribed(journal: Journal, session: Session, ended: Subscription) -> None:
    """Attest the end of the subscription, as far as it is known.

    The session forgets the subscription only once the journal has the fact: until then its `is_end_on_record` is False.
    """

    def on_record() -> None:
        ended.end_attested(on_record=True)

    ended.end_attested(on_record=False)
    _attest(
        journal,
        FactKind.UNSUBSCRIBED,
        session,
        ended,
        frontier=ended.known_end,
        unknown_ends=ended.unknown_ends,
        unconfirmed_ends=sorted(ended.unconfirmed_ends),
    )
    journal.once_attested(on_record)


def restated(journal: Journal, session: Session) -> None:
    """Attest all subscriptions again, when serving begins: one fact for each, and one more for each that has ended.

    The bounds of the session's queue are attested again too, if it has any.
    """
    for subscription in session.subscriptions.all():
        _attest(
            journal,
            FactKind.RESTATED,
            session,
            subscription,
            **_interest(subscription),
            frontier=subscription.durable_promises,
            **_policy(subscription),
        )
    for ended in session.subscriptions.ended:
        unsubscribed(journal, session, ended)
    if session.queue_limits is not None:
        bounded(journal, session)


def bounded(journal: Journal, session: Session) -> None:
    """Attest the bounds of the session's queue, by which entries may be discarded; zeros: it has none, or no more."""
    queue = session.queue_limits.queue if session.queue_limits is not None else UNBOUNDED
    journal.attest(
        FactKind.POLICY,
        session,
        max_count=queue.max_count or 0,
        bytes=queue.max_bytes or 0,
        discard=queue.discard,
        deadlines=queue.deadlines,
    )


def lost_with_process(journal: Journal, session: Session) -> None:
    """Attest the gaps of best-effort events that were lost with a process, one fact for each receiver.

    A gap is attested at every start of serving, until its receiver has confirmed it.
    """
    for gap in session.gaps:
        if gap.cause == GapCause.LOST_WITH_PROCESS:
            for receiver in gap.unconfirmed:
                journal.attest(
                    FactKind.GAP,
                    session,
                    receiver=receiver,
                    origin=gap.origin,
                    offsets=[gap.first, gap.last],
                    cause=GapCause.LOST_WITH_PROCESS,
                )


def received(
    session: SessionId, receiver: ReceiverId, incarnation: str, attestations: Iterable[Attestation], at_ms: int
) -> list[Fact]:
    """Return the facts that a receiver's library attests; the library is their writer, and has numbered them.

    Args:
        incarnation: of the receiver that is attached; part of the name of the writer of what names no other one.
        at_ms: when the attestations came, in Unix time.
    """
    return [
        Fact(
            writer=f"receiver/{session}/{receiver}/{attestation.incarnation or incarnation}",
            number=attestation.number,
            at_ms=at_ms,
            kind=FactKind.RECEIVED,
            proxy=attestation.proxy,
            session=session,
            epoch=attestation.epoch,
            receiver=receiver,
            origin=attestation.origin,
            offsets=attestation.offsets,
            digests=attestation.digests,
            order=attestation.order,
        )
        for attestation in attestations
    ]


def _interest(subscription: Subscription) -> dict[str, object]:
    protection = subscription.protection
    return {
        "expression": subscription.expression.text,
        "keys": texts(protection.keys),
        "secure_only": not protection.insecure,
    }


def _policy(subscription: Subscription) -> dict[str, int]:
    return {"ttl_s": subscription.ttl_s or 0, "max_count": subscription.max_count or 0}


def _attest(journal: Journal, kind: FactKind, session: Session, about: Subscription, **fields: object) -> None:
    journal.attest(kind, session, subscription=about.id, subscription_generation=about.generation, **fields)
