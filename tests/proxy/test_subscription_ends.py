"""Where a subscription ends, and when that is known."""

from __future__ import annotations

from federation.messages import LogEndRequest, LogEndResponse
from federation.ports import OwnerChanged
from proxy.core import effects
from proxy.core.inputs import ClientSent, LeaseGranted, LeaseLost, PeerSent, RegistryReported
from tests.helpers.engine_harness import SESSION, EngineHarness, owner, row
from waypost.errors import LogUnavailable
from waypost.facts import FactKind, OwnedCause
from waypost.identity import Epoch, Incarnation, Origin, ProxyId, SessionId, SiteId, SubscriptionId
from waypost.limits import LOG_END_MS, LOG_END_RETRY_MS
from waypost.messages import AboutSubscription, Problem, Subscribe, Unsubscribe, Unsubscribed
from waypost.notification import Notification
from waypost.records import Effective, Forwarded, Progress, Published

A, B = Origin("A/0"), Origin("B/0")
B_SITE = SiteId("B")
NEIGHBOUR = ProxyId("b1")
BODY = Notification({"n": 1}).body


def published() -> Published:
    return Published(producer="p", incarnation=Incarnation("i"), sequence=1, at_ms=0, body=BODY)


def forwarded(offset: int) -> Forwarded:
    return Forwarded(
        link=B_SITE,
        link_epoch=1,
        origin=B,
        offset=offset,
        path=(B_SITE,),
        producer="p",
        incarnation=Incarnation("i"),
        sequence=offset,
        at_ms=0,
        body=BODY,
    )


def subscribed(*, neighbour: bool = False) -> EngineHarness:
    """Return a proxy with a subscription that is effective at its own site and, if it has one, at the next."""
    harness = EngineHarness(neighbours=("B",) if neighbour else ())
    harness.serve()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    if neighbour:
        harness.engine.env.cluster.proxy_up(row("b1", "B"))
        harness.read_log()
        number = harness.engine.state.requested(B_SITE)["n > 0"]
        harness.log += [
            Effective(link=B_SITE, link_epoch=1, expression="n > 0", installation=number, origin=B, above=4),
            Progress(B_SITE, 1, B, 4),
        ]
    harness.read_log()
    harness.complete_writes()
    return harness


def unsubscribe(harness: EngineHarness) -> None:
    harness.send(1, Unsubscribe("x"))
    harness.complete_writes()


def stored(harness: EngineHarness) -> list[tuple[Origin, int]]:
    entries = harness.engine.sessions[SESSION].entries.in_memory
    return [(notification.origin, notification.offset) for _, notification, _ in entries]


def is_held(harness: EngineHarness) -> bool:
    return bool(harness.engine.sessions[SESSION].subscriptions.interest_expressions())


def asked(harness: EngineHarness) -> list[LogEndRequest]:
    """Return what site B was asked since the last time."""
    sent = [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    harness.pending = [effect for effect in harness.pending if effect not in sent]
    return [effect.message for effect in sent if isinstance(effect.message, LogEndRequest)]


def answer(harness: EngineHarness, request: LogEndRequest, offset: int) -> None:
    harness.step(PeerSent(NEIGHBOUR, LogEndResponse(request.incarnation, request.request, {B: offset})))
    harness.run_effects()


def test_notification_logged_before_the_unsubscribe_is_stored_though_it_is_read_later() -> None:
    harness = subscribed()
    at = len(harness.log)
    harness.log.append(published())
    unsubscribe(harness)
    harness.read_log()
    harness.log.append(published())
    harness.read_log()
    assert stored(harness) == [(A, at)]
    assert not is_held(harness)
    ends = [fact for fact in harness.facts if fact.kind == FactKind.UNSUBSCRIBED]
    assert [(fact.frontier, fact.unknown_ends) for fact in ends] == [({}, [A]), ({A: at}, [])]


def test_failed_request_for_a_log_end_is_repeated() -> None:
    harness = subscribed()
    session = harness.engine.sessions[SESSION]
    harness.step(ClientSent(1, Unsubscribe("x")))
    (found,) = [effect for effect in harness.take_effects() if isinstance(effect, effects.FindLogEnd)]
    harness.finish(found, LogUnavailable("no answer"))
    harness.run_effects()
    harness.complete_writes()
    assert session.subscriptions.ended[0].unknown_ends == [A]
    harness.pass_time(LOG_END_RETRY_MS)
    harness.read_log()
    assert not is_held(harness)


def test_at_another_site_it_ends_where_that_sites_log_does() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    (request,) = asked(harness)
    harness.log += [forwarded(6), forwarded(7)]
    answer(harness, request, 7)
    assert is_held(harness)
    harness.read_log()
    assert not is_held(harness)
    harness.log.append(forwarded(9))
    harness.read_log()
    assert stored(harness) == [(B, 6), (B, 7)]


def test_silence_that_is_spoken_settles_it_too() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    answer(harness, asked(harness)[0], 8)
    harness.log.append(Progress(B_SITE, 1, B, 8))
    harness.read_log()
    assert not is_held(harness)


def test_silent_site_is_given_up_only_when_the_own_log_is_read_which_has_what_came_from_it() -> None:
    harness = subscribed(neighbour=True)
    harness.log.append(forwarded(6))
    unsubscribe(harness)
    harness.pass_time(2 * LOG_END_MS)
    assert is_held(harness)
    harness.read_log()
    harness.pass_time(1)
    assert stored(harness) == [(B, 6)]
    assert not is_held(harness)
    (*_, end) = (fact for fact in harness.facts if fact.kind == FactKind.UNSUBSCRIBED)
    assert (end.frontier[B], end.unconfirmed_ends) == (6, [B])


def test_a_site_that_does_not_answer_is_asked_again_and_then_not_waited_for() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    harness.read_log()
    requests = asked(harness)
    for _ in range(LOG_END_MS // LOG_END_RETRY_MS - 1):
        harness.pass_time(LOG_END_RETRY_MS)
        requests += asked(harness)
    assert len(requests) == LOG_END_MS // LOG_END_RETRY_MS and len(set(requests)) == 1
    assert is_held(harness)
    harness.pass_time(LOG_END_RETRY_MS)
    assert not is_held(harness)
    last = [fact for fact in harness.facts if fact.kind == FactKind.UNSUBSCRIBED][-1]
    assert (last.frontier[B], last.unconfirmed_ends) == (4, [B])
    harness.pass_time(LOG_END_MS)
    assert asked(harness) == []


def test_answer_to_an_earlier_log_end_request_is_ignored() -> None:
    """By an earlier incarnation, or before the subscription was ended: more may have been acknowledged since."""
    harness = subscribed(neighbour=True)
    harness.send(1, Subscribe(subscription="y", expression="n > 0"))
    harness.complete_writes()
    unsubscribe(harness)
    (first,) = asked(harness)
    harness.send(1, Unsubscribe("y"))
    harness.complete_writes()
    assert asked(harness) == []
    answer(harness, LogEndRequest(Incarnation("me#0"), first.request), 4)
    harness.read_log()
    assert is_held(harness)
    answer(harness, first, 4)
    (second,) = asked(harness)
    session = harness.engine.sessions[SESSION]
    assert [
        (subscription.id, subscription.unknown_ends)
        for subscription in session.subscriptions.ended
        if subscription.has_unknown_end
    ] == [("y", [B])]
    answer(harness, second, 4)
    assert not is_held(harness)


def test_next_owner_requests_the_unknown_log_ends_anew() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    asked(harness)
    session = harness.engine.sessions[SESSION]
    harness.step(LeaseLost())
    harness.pass_time(1)
    harness.step(LeaseGranted(Incarnation("me#1"), 1 << 40))
    harness.engine.served_sessions.serve(session, Epoch(2), OwnedCause.RESTART)
    harness.pass_time(LOG_END_RETRY_MS)
    while requests := asked(harness):
        answer(harness, requests[0], 4)
    harness.read_log()
    assert not is_held(harness)


def test_a_proxy_that_is_asked_answers_when_it_has_read_all_that_the_log_had() -> None:
    harness = EngineHarness()
    harness.read_log()
    at = len(harness.log)
    harness.log.append(published())
    request = LogEndRequest(Incarnation("b1#1"), 3)
    harness.step(PeerSent(NEIGHBOUR, request))
    harness.run_effects()
    assert not [effect for effect in harness.pending if isinstance(effect, effects.SendPeer)]
    harness.read_log()
    sent = harness.next(effects.SendPeer)
    assert (sent.proxy, sent.message) == (NEIGHBOUR, LogEndResponse(request.incarnation, 3, {A: at}))


def test_ended_subscription_and_its_successor_of_the_same_name_match_once() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.log.append(forwarded(6))
    harness.read_log()
    ((_, _, matched),) = harness.engine.sessions[SessionId(SESSION)].entries.in_memory
    assert matched == ("x",)


def test_a_site_that_has_said_how_far_its_log_goes_is_waited_for_and_nothing_above_matches() -> None:
    """The link from there may be slow, or its leader cut off, for longer than anybody waits for an answer."""
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    answer(harness, asked(harness)[0], 7)
    harness.read_log()
    harness.pass_time(2 * LOG_END_MS)
    assert is_held(harness)
    harness.log += [forwarded(6), forwarded(7), forwarded(8)]
    harness.read_log()
    assert stored(harness) == [(B, 6), (B, 7)]
    assert not is_held(harness)


def test_subscription_that_ends_during_an_unanswered_request_gets_a_request_of_its_own() -> None:
    harness = subscribed(neighbour=True)
    harness.send(1, Subscribe(subscription="y", expression="n > 0"))
    harness.complete_writes()
    unsubscribe(harness)
    harness.read_log()
    harness.pass_time(LOG_END_MS - 1)
    harness.send(1, Unsubscribe("y"))
    harness.complete_writes()
    harness.read_log()
    asked(harness)
    harness.pass_time(LOG_END_RETRY_MS)
    (second,) = asked(harness)[-1:]
    assert second.request == 2
    answer(harness, second, 4)
    harness.read_log()
    ended = harness.engine.sessions[SESSION].subscriptions.ended
    assert not any("B/0" in subscription.unconfirmed_ends for subscription in ended if subscription.id == "y")
    assert not is_held(harness)


def test_a_site_that_answers_late_but_before_the_end_is_known_confirms_it() -> None:
    harness = subscribed(neighbour=True)
    session = harness.engine.sessions[SESSION]
    unsubscribe(harness)
    harness.read_log()
    # Nobody knows from where on the log is complete: the registration was lost.
    harness.engine.state.registered.clear()
    harness.engine.coverage.broken(session)
    harness.pass_time(2 * LOG_END_MS)
    assert is_held(harness) and B in session.gates
    answer(harness, asked(harness)[0], 4)
    assert session.subscriptions.ended[0].unconfirmed_ends == set()


def test_an_end_that_is_known_reaches_the_changelog_though_no_receiver_comes_any_further() -> None:
    """Else whoever takes the session over asks how far the logs go then, and all that came meanwhile matches."""
    harness = subscribed()
    harness.send(1, Subscribe(subscription="y", expression="n > 0"))
    harness.complete_writes()
    harness.log.append(published())
    harness.read_log()
    harness.pass_time(2 * harness.engine.env.settings.checkpoint_ms)
    harness.log.append(published())
    unsubscribe(harness)
    harness.pass_time(LOG_END_MS)
    harness.complete_writes()
    assert is_answered(harness), "without the end"
    harness.read_log()
    harness.changelog_waits = True
    harness.pass_time(2 * harness.engine.env.settings.checkpoint_ms)
    harness.complete_all(effects.Save, None)
    harness.pass_time(2 * harness.engine.env.settings.checkpoint_ms)
    written = harness.next(effects.PutCheckpoint).checkpoint.descriptor.subscriptions
    (x,) = [subscription for subscription in written if subscription.id == "x"]
    assert x.end is not None and x.end[A] < len(harness.log)


def is_answered(harness: EngineHarness) -> bool:
    return any(isinstance(message, Unsubscribed) for message in harness.received())


def test_an_unsubscribe_is_answered_once_its_end_is_known_and_durable() -> None:
    """What is published after the answer is not delivered."""
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    (request,) = asked(harness)
    harness.read_log()
    harness.complete_writes()
    assert not is_answered(harness), "site B has not answered"
    harness.step(PeerSent(NEIGHBOUR, LogEndResponse(request.incarnation, request.request, {B: 5})))
    harness.log.append(Progress(B_SITE, 1, B, 5))
    harness.read_log()
    assert not is_answered(harness), "the end is not written"
    harness.complete_writes()
    assert is_answered(harness)
    before = stored(harness)
    harness.log += [published(), forwarded(6)]
    harness.read_log()
    assert stored(harness) == before


def test_an_unsubscribe_is_answered_though_a_site_is_silent() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    harness.read_log()
    harness.pass_time(LOG_END_MS - 1)
    harness.complete_writes()
    assert not is_answered(harness)
    harness.pass_time(1)
    harness.complete_writes()
    assert is_answered(harness)


def test_an_unsubscribe_is_answered_though_the_own_log_cannot_be_read() -> None:
    harness = subscribed()
    harness.log.append(published())
    unsubscribe(harness)
    harness.pass_time(LOG_END_MS)
    harness.complete_writes()
    assert is_answered(harness)


def test_an_unsubscribe_that_is_requested_again_is_answered_when_its_end_is_known() -> None:
    harness = subscribed(neighbour=True)
    unsubscribe(harness)
    unsubscribe(harness)
    (request,) = asked(harness)
    assert not is_answered(harness)
    harness.step(PeerSent(NEIGHBOUR, LogEndResponse(request.incarnation, request.request, {B: 4})))
    harness.read_log()
    harness.complete_writes()
    assert is_answered(harness)


def test_an_unsubscribe_is_answered_when_the_session_leaves_and_nothing_more_of_it_is_written() -> None:
    harness = subscribed(neighbour=True)
    harness.reload({SESSION: owner("me", 1)}, "b1")
    harness.send(1, Unsubscribe("x"))
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("b1", 2))))
    harness.run_effects()
    answers = [message for message in harness.received() if isinstance(message, Problem)]
    assert [(answer.code, answer.about) for answer in answers] == [
        ("NOT_SERVED", AboutSubscription(SubscriptionId("x")))
    ]
    harness.pending.clear()
    harness.pass_time(LOG_END_MS)
    assert not [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint)]
