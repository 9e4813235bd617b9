"""Who may do what is asked where the session is served, before anything is delivered; guessing costs nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from federation.ports import Claimed, OwnerChanged
from handover.messages import DeclineReason, Prepare, TransferDeclined
from proxy.clients import authorization
from proxy.clients.authorization import MISSING, TOO_OFTEN, UNPROVEN
from proxy.core import effects
from proxy.core.inputs import ClientDisconnected, PeerSent, RegistryReported
from tests.helpers.engine_harness import SESSION, EngineHarness, owner
from waypost.access import ADMINISTER, EVERYTHING, READ, SUBSCRIBE, Grant, Right
from waypost.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from waypost.errors import BadRecord
from waypost.facts import encode_fact
from waypost.identity import ProxyId, ReceiverId, SessionId
from waypost.limits import FREE_TRIES, LONGEST_WAIT_MS, PASSWORDS_AT_ONCE, PASSWORDS_OF_ONE
from waypost.messages import (
    AboutAccess,
    AboutDeletion,
    AboutSession,
    AboutSubscription,
    AccessChanged,
    Attach,
    Attached,
    ClientMessage,
    Credential,
    Delete,
    DeliverEncoded,
    Granted,
    Problem,
    Publish,
    SetAccess,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Wait,
)
from waypost.notification import Notification

USER: list[Right] = [READ]
ALL: list[Right] = [*EVERYTHING]
LEVELS = {
    "": Granted(ALL, "secret"),
    "user": Granted(USER, "reads"),
    "admin": Granted([READ, SUBSCRIBE], "subscribes"),
}


def kinds(messages: list[Any]) -> list[type]:
    return [type(message) for message in messages]


def access_seen(harness: EngineHarness) -> None:
    """Look at all passwords, and hash those that are new: a hash is its password here."""
    for effect in [effect for effect in harness.pending if isinstance(effect, effects.Verify | effects.Hash)]:
        harness.pending.remove(effect)
        if isinstance(effect, effects.Verify):
            harness.finish(effect, effect.password == effect.hash)
        else:
            harness.finish(effect, list(effect.passwords))
    harness.run_effects()


def guarded(grants: dict[str, Granted] | None = None) -> EngineHarness:
    """Serve a session whose access the receiver `r` has set, who is there without a name."""
    harness = EngineHarness()
    harness.serve()
    change(harness, grants or LEVELS)
    assert kinds(harness.received()) == [AccessChanged]
    return harness


def change(harness: EngineHarness, grants: dict[str, Granted], connection: int = 1) -> None:
    harness.send(connection, SetAccess(7, grants))
    access_seen(harness)
    harness.complete_writes()


def attach(
    harness: EngineHarness,
    connection: int,
    password: str = "",
    principal: str = "",
    session_expiry_s: int | None = None,
) -> list[Any]:
    """Attach receiver `x<connection>`, and return what it hears."""
    name = f"x{connection}"
    harness.send(
        connection,
        Attach(
            session=SESSION,
            receiver=name,
            incarnation=name,
            frontier={},
            session_expiry_s=session_expiry_s,
            credential=Credential(principal, password),
        ),
    )
    access_seen(harness)
    harness.complete_writes()
    return [message for message in harness.received(connection) if type(message).__name__ != "Welcome"]


def refusals(messages: list[Any]) -> list[tuple[str, object]]:
    return [(problem.code, problem.about) for problem in messages if isinstance(problem, Problem)]


FORBIDDEN = [("FORBIDDEN", AboutSession(SESSION))]


def test_only_clients_with_the_password_attach() -> None:
    harness = guarded()
    assert kinds(attach(harness, 2, "secret")) == [Attached]
    assert refusals(attach(harness, 3, "another")) == FORBIDDEN
    assert refusals(attach(harness, 4)) == FORBIDDEN
    assert refusals(attach(harness, 5, "secret", "user")) == FORBIDDEN
    assert refusals(attach(harness, 6, "secret", "nobody")) == FORBIDDEN
    assert harness.engine.output.counters.forbidden == {UNPROVEN: 4}
    assert harness.engine.sessions[SESSION].receivers.attached() == {"r", "x2"}


def test_of_two_changes_the_later_one_is_in_force_though_its_passwords_are_hashed_first() -> None:
    harness = guarded()
    owner = Granted(["read", "subscribe", "administer"], "slow")
    harness.send(1, SetAccess(8, {"": owner}))
    harness.send(1, SetAccess(9, {}))
    harness.complete_writes()
    access_seen(harness)
    harness.complete_writes()
    assert harness.engine.sessions[SESSION].access == {}
    answers = harness.received()
    assert [message for message in answers if isinstance(message, AccessChanged)] == [AccessChanged(9)]
    assert refusals(answers) == [("REFUSED", AboutAccess(8))]


def test_a_change_that_is_refused_does_not_overtake_the_one_before_it() -> None:
    harness = guarded()
    owner = Granted(["read", "subscribe", "administer"], "slow")
    harness.send(1, SetAccess(8, {"": owner}))
    harness.send(1, SetAccess(9, {"nobody": Granted(["read"], None)}))
    access_seen(harness)
    harness.complete_writes()
    answers = harness.received()
    assert [message for message in answers if isinstance(message, AccessChanged)] == [AccessChanged(8)]
    assert refusals(answers) == [("REFUSED", AboutAccess(9))]


def test_refused_attach_leaves_no_receiver_behind() -> None:
    harness = guarded()
    attach(harness, 2, "another")
    assert ReceiverId("x2") not in harness.engine.sessions[SESSION].receivers


def test_nothing_is_delivered_while_a_password_is_looked_at() -> None:
    harness = guarded()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    harness.read_log()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    harness.complete_writes()
    assert kinds(harness.received(2)[1:]) == []
    access_seen(harness)
    harness.complete_writes()
    assert DeliverEncoded in kinds(harness.received(2))


@pytest.mark.parametrize(
    ("principal", "password", "may"),
    [
        ("user", "reads", []),
        ("admin", "subscribes", [Subscribe, Unsubscribe]),
        ("", "secret", [Subscribe, Unsubscribe, SetAccess, Delete]),
    ],
)
def test_a_level_may_what_it_says_and_the_rest_is_refused_by_name(
    principal: str, password: str, may: list[type]
) -> None:
    asked: list[tuple[ClientMessage, object]] = [
        (Subscribe(subscription="y", expression="n > 1"), AboutSubscription("y")),  # type: ignore[arg-type]
        (Unsubscribe("y"), AboutSubscription("y")),  # type: ignore[arg-type]
        (SetAccess(7, LEVELS), AboutAccess(7)),
        (Delete(), AboutDeletion()),
    ]
    for message, about in asked:
        harness = guarded()
        assert kinds(attach(harness, 2, password, principal)) == [Attached]
        harness.send(2, message)
        access_seen(harness)
        harness.complete_writes()
        refused = refusals(harness.received(2))
        assert refused == ([] if type(message) in may else [("FORBIDDEN", about)])
        deleting = any(isinstance(effect, effects.ClaimRow) for effect in harness.pending)
        assert deleting is (isinstance(message, Delete) and Delete in may)
    assert harness.engine.output.counters.forbidden[MISSING] == (0 if Delete in may else 1)


def test_only_an_administrator_sets_the_session_expiry() -> None:
    harness = guarded()
    assert refusals(attach(harness, 2, "reads", "user", session_expiry_s=1)) == FORBIDDEN
    assert harness.engine.sessions[SESSION].idle_time.expiry_s is None
    assert kinds(attach(harness, 3, "secret", session_expiry_s=9)) == [Attached]
    assert harness.engine.sessions[SESSION].idle_time.expiry_s == 9


def test_open_session_grants_every_right_to_any_principal() -> None:
    harness = EngineHarness()
    harness.serve()
    assert kinds(attach(harness, 2, "anything", "anybody")) == [Attached]
    harness.send(2, Subscribe(subscription="y", expression="n > 1"))
    harness.complete_writes()
    assert kinds(harness.received(2)) == [Subscribed]
    assert not any(isinstance(effect, effects.Verify) for effect in harness.pending)


def test_a_change_is_answered_once_store_and_changelog_have_it() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, SetAccess(7, LEVELS))
    access_seen(harness)
    harness.complete_all(effects.Save, None)
    assert harness.received() == []
    harness.complete_all(effects.PutCheckpoint, None)
    assert kinds(harness.received()) == [AccessChanged]


def test_receiver_that_loses_the_right_to_read_is_refused_and_gets_no_more_messages() -> None:
    harness = guarded()
    harness.send(1, Subscribe(subscription="x", expression="n > 0"))
    harness.complete_writes()
    harness.read_log()
    attach(harness, 2, "reads", "user")
    attach(harness, 3, "subscribes", "admin")
    change(harness, {"": Granted(ALL), "admin": Granted([READ, SUBSCRIBE])})
    assert refusals(harness.received(2)) == FORBIDDEN
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    harness.read_log()
    assert harness.received(2) == []
    assert kinds(harness.received(3)) == [DeliverEncoded]
    harness.send(2, Subscribe(subscription="y", expression="n > 1"))
    assert [code for code, _ in refusals(harness.received(2))] == ["NOT_SERVED"]


def test_password_change_disconnects_clients_with_the_old_password_except_the_one_that_set_it() -> None:
    harness = guarded()
    attach(harness, 2, "secret")
    change(harness, {"": Granted(ALL, "newer")})
    assert kinds(harness.received(1)) == [AccessChanged]
    assert kinds(harness.received(2)) == [Wait]
    assert refusals(attach(harness, 2, "secret")) == FORBIDDEN
    assert kinds(attach(harness, 2, "newer")) == [Attached]


def test_a_password_that_is_changed_while_it_is_looked_at_is_looked_at_again() -> None:
    harness = guarded()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    late = harness.next(effects.Verify)
    change(harness, {"": Granted(ALL, "newer")})
    harness.finish(late, True)
    harness.run_effects()
    assert Attached not in kinds(harness.received(2))
    access_seen(harness)
    assert refusals(harness.received(2)) == FORBIDDEN


def test_password_verified_after_the_disconnect_attaches_no_client() -> None:
    harness = guarded()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    harness.step(ClientDisconnected(2))
    access_seen(harness)
    assert harness.engine.sessions[SESSION].receivers.attached() == {"r"}


def test_a_password_of_an_earlier_attach_is_not_one_of_the_next() -> None:
    harness = guarded()
    assert kinds(attach(harness, 2, "reads", "user")) == [Attached]
    assert refusals(attach(harness, 2, "wrong", "user")) == FORBIDDEN
    assert harness.engine.sessions[SESSION].receivers.attached() == {"r"}


def test_wrong_passwords_delay_the_next_attempt_of_their_client_only() -> None:
    harness = guarded()
    attach(harness, 3, "reads", "user")
    for _ in range(FREE_TRIES):
        assert refusals(attach(harness, 2, "wrong")) == FORBIDDEN
    waits = []
    for _ in range(9):
        (wait,) = attach(harness, 2, "wrong")
        assert isinstance(wait, Wait)
        waits.append(wait.retry_after_ms)
        harness.clock.advance(wait.retry_after_ms)
        assert refusals(attach(harness, 2, "wrong")) == FORBIDDEN
    assert waits == [min(1_000 << n, LONGEST_WAIT_MS) for n in range(9)]
    assert harness.engine.output.counters.forbidden == {UNPROVEN: FREE_TRIES + 9, TOO_OFTEN: 9}
    assert kinds(attach(harness, 4, "reads", "user")) == [Attached]


def test_password_guessing_does_not_delay_a_known_client() -> None:
    harness = guarded()
    attach(harness, 2, "secret")
    for _ in range(FREE_TRIES):
        attach(harness, 3, "wrong")
    assert kinds(attach(harness, 3, "wrong")) == [Wait]
    assert kinds(attach(harness, 2, "secret")) == [Attached]


def test_the_right_password_ends_the_waiting() -> None:
    harness = guarded()
    for _ in range(FREE_TRIES):
        attach(harness, 2, "wrong")
    harness.clock.advance(1_000)
    assert kinds(attach(harness, 2, "secret")) == [Attached]
    assert refusals(attach(harness, 3, "wrong")) == FORBIDDEN
    assert refusals(attach(harness, 3, "wrong")) == FORBIDDEN


def test_passwords_of_one_principal_that_are_looked_at_in_one_moment_are_few() -> None:
    harness = guarded()
    for connection in range(2, 2 + PASSWORDS_OF_ONE + 1):
        harness.send(
            connection,
            Attach(
                session=SESSION,
                receiver=f"x{connection}",
                incarnation="i",
                frontier={},
                credential=Credential("", "wrong"),
            ),
        )
    assert sum(isinstance(effect, effects.Verify) for effect in harness.pending) == PASSWORDS_OF_ONE
    assert kinds(harness.received(connection))[1:] == [Wait]


def test_passwords_that_one_proxy_looks_at_in_one_moment_are_bounded() -> None:
    harness = guarded({"": Granted(ALL, "secret")} | {f"p{n}": Granted(USER, f"s{n}") for n in range(31)})
    for connection in range(2, 2 + PASSWORDS_AT_ONCE + 1):
        credential = Credential(f"p{connection % 31}", "wrong")
        harness.send(
            connection,
            Attach(session=SESSION, receiver=f"x{connection}", incarnation="i", frontier={}, credential=credential),
        )
    assert sum(isinstance(effect, effects.Verify) for effect in harness.pending) == PASSWORDS_AT_ONCE
    assert kinds(harness.received(connection))[1:] == [Wait]
    access_seen(harness)
    assert harness.engine.dispatcher.authorizer.verifying == 0


BY_TOKEN_TOO = LEVELS | {"token": Granted(USER, by_token=True)}


@pytest.mark.parametrize("principal", ["user", "nobody", "token"])
def test_wrong_password_is_verified_and_counted_alike_whether_the_principal_exists_or_not(principal: str) -> None:
    harness = guarded(BY_TOKEN_TOO)
    credential = Credential(principal, "wrong")
    for _ in range(FREE_TRIES):
        harness.send(2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=credential))
        assert sum(isinstance(effect, effects.Verify) for effect in harness.pending) == 1
        access_seen(harness)
        assert refusals(harness.received(2)) == FORBIDDEN
    harness.send(2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=credential))
    assert not any(isinstance(effect, effects.Verify) for effect in harness.pending)
    (wait,) = [message for message in harness.received(2) if isinstance(message, Wait)]
    assert wait.retry_after_ms == 1_000
    assert harness.engine.output.counters.forbidden == {UNPROVEN: FREE_TRIES, TOO_OFTEN: 1}


@pytest.mark.parametrize("principal", ["user", "nobody"])
def test_attach_without_a_password_is_refused_without_a_hash(principal: str) -> None:
    harness = guarded()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential(principal, ""))
    )
    assert not any(isinstance(effect, effects.Verify) for effect in harness.pending)
    assert refusals(harness.received(2)) == FORBIDDEN


def test_passwords_of_unknown_principals_share_the_bound_of_the_proxy() -> None:
    harness = guarded()
    for connection in range(2, 2 + PASSWORDS_AT_ONCE + 1):
        credential = Credential(f"nobody{connection}", "wrong")
        harness.send(
            connection,
            Attach(session=SESSION, receiver=f"x{connection}", incarnation="i", frontier={}, credential=credential),
        )
    assert sum(isinstance(effect, effects.Verify) for effect in harness.pending) == PASSWORDS_AT_ONCE
    assert kinds(harness.received(connection))[1:] == [Wait]
    access_seen(harness)
    assert harness.engine.dispatcher.authorizer.verifying == 0


def test_unknown_principals_that_are_remembered_are_bounded_and_known_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorization, "UNKNOWN_PRINCIPALS_REMEMBERED", 5)
    harness = guarded()
    for number, name in enumerate(["user", *(f"nobody{n}" for n in range(20))]):
        attach(harness, 2 + number, "wrong", name)
    tries = harness.engine.sessions[SESSION].auth_failures
    assert {*tries} - {""} == {"user", *(f"nobody{n}" for n in range(15, 20))}


def test_verified_password_of_an_unknown_principal_is_refused() -> None:
    harness = guarded()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("nobody", "x"))
    )
    harness.complete(effects.Verify, True)
    assert refusals(harness.received(2)) == FORBIDDEN


def test_unreadable_password_hash_refuses_the_attach_and_counts_as_no_wrong_password() -> None:
    harness = guarded()
    harness.send(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    harness.complete(effects.Verify, BadRecord("damaged"))
    assert kinds(harness.received(2))[1:] == [Wait]
    assert harness.engine.output.counters.forbidden == {}


@pytest.mark.parametrize(
    ("grants", "what"),
    [
        ({"user": Granted(USER, "x")}, "could never change it again"),
        ({"": Granted(USER, "x")}, "could never change it again"),
        ({"": Granted(ALL, "x"), "new": Granted(USER)}, "has no password yet"),
    ],
)
def test_access_change_without_an_administrator_or_a_needed_password_is_refused(
    grants: dict[str, Granted], what: str
) -> None:
    harness = guarded()
    before = dict(harness.engine.sessions[SESSION].access)
    change(harness, grants)
    (problem,) = harness.received()
    assert (problem.code, problem.field, problem.about) == ("REFUSED", "grants", AboutAccess(7))
    assert what in problem.message
    assert harness.engine.sessions[SESSION].access == before


def test_a_session_can_be_opened_again() -> None:
    harness = guarded()
    change(harness, {})
    assert kinds(harness.received()) == [AccessChanged]
    assert kinds(attach(harness, 2)) == [Attached]


def test_the_access_is_in_the_checkpoint_and_the_password_is_in_nothing_that_is_written() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, SetAccess(7, {"": Granted(ALL, "secret"), "eve": Granted(USER, "")}))
    harness.complete(effects.Hash, ["#1"])
    written = [effect for effect in harness.pending if isinstance(effect, effects.PutCheckpoint | effects.Save)]
    checkpoints = [
        put_checkpoint.checkpoint for put_checkpoint in written if isinstance(put_checkpoint, effects.PutCheckpoint)
    ]
    assert isinstance(checkpoints[-1], Checkpoint)
    read = decode_checkpoint(encode_checkpoint(checkpoints[-1]))
    assert read.descriptor.access == {"": Grant(EVERYTHING, "#1"), "eve": Grant((READ,), "")}
    assert "secret" not in repr(written)
    assert b"secret" not in b"".join(encode_fact(fact) for fact in harness.facts)
    assert [fact.reason for fact in harness.facts if fact.kind == "access"] == [
        "anybody: read subscribe administer; eve: read"
    ]


def test_no_password_is_in_the_words_for_a_message() -> None:
    for message in (
        Attach(session="s", receiver="r", incarnation="i", frontier={}, credential=Credential("alice", "secret")),
        SetAccess(7, {"alice": Granted([ADMINISTER], "secret")}),
        effects.Verify("secret", "#secret", lambda _: None),
        effects.Hash(["secret"], lambda _: None),
    ):
        assert "secret" not in f"{message} {message!r}"


def test_a_receiver_that_attaches_elsewhere_is_relayed_until_it_has_shown_that_it_may() -> None:
    harness = guarded()
    harness.step(ClientDisconnected(1))
    harness.reload({SESSION: owner("me", 1)}, "other")
    prepare = Prepare(
        session=SESSION,
        transfer="t",
        epoch=harness.engine.sessions[SESSION].epoch,
        receiver="r",
    )
    harness.step(PeerSent(ProxyId("other"), prepare))
    sent = [send_peer.message for send_peer in harness.take_effects() if isinstance(send_peer, effects.SendPeer)]
    assert sent == [TransferDeclined(SESSION, "t", prepare.epoch, DeclineReason.ACCESS)]


def test_a_requested_access_is_of_the_session_that_was_attached_then_and_of_no_other() -> None:
    harness, other = EngineHarness(), SessionId("t")
    harness.serve()
    harness.send(1, SetAccess(7, LEVELS))
    harness.send(1, Attach(session=other, receiver="r", incarnation="i1", frontier={}, attach_seq=2))
    harness.complete(effects.ReadRow, None)
    harness.complete(effects.CreateRow, Claimed(True, owner("me", 1)))
    harness.complete_writes()
    access_seen(harness)
    harness.complete_writes()
    assert harness.engine.sessions[SESSION].access == harness.engine.sessions[other].access == {}
    assert AccessChanged not in kinds(harness.received())


def test_a_requested_access_is_answered_though_the_session_has_left_while_its_passwords_were_hashed() -> None:
    harness = EngineHarness()
    harness.serve()
    harness.send(1, SetAccess(7, LEVELS))
    harness.reload({SESSION: owner("me", 1)}, "p2")
    harness.step(RegistryReported(OwnerChanged(SESSION, owner("p2", 2))))
    harness.run_effects()
    harness.received()
    access_seen(harness)
    assert [problem.code for problem in harness.received() if isinstance(problem, Problem)] == ["NOT_SERVED"]
