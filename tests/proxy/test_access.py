"""Who may do what is asked where the session is served, before anything is delivered; guessing costs nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from handover.messages import ATTACH, Prepare, StayReason, TransferDeclined
from proxy.clients import authorization
from proxy.clients.authorization import MISSING, TOO_OFTEN, UNPROVEN
from proxy.core import effects
from tests.helpers.alone import SESSION, Alone, owner
from waypost.access import ADMINISTER, EVERYTHING, READ, SUBSCRIBE, Grant, Right
from waypost.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from waypost.errors import BadRecord
from waypost.facts import encode_fact
from waypost.identity import ProxyId, ReceiverId
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


def look(alone: Alone) -> None:
    """Look at all passwords, and hash those that are new: a hash is its password here."""
    for effect in [each for each in alone.waiting if isinstance(each, effects.Verify | effects.Hash)]:
        alone.waiting.remove(effect)
        if isinstance(effect, effects.Verify):
            effect.on_done(effect.password == effect.hash)
        else:
            effect.on_done(list(effect.passwords))
    alone.settle()


def guarded(grants: dict[str, Granted] | None = None) -> Alone:
    """Serve a session whose access the receiver `r` has set, who is there without a name."""
    alone = Alone()
    alone.serve()
    change(alone, grants or LEVELS)
    assert kinds(alone.heard()) == [AccessChanged]
    return alone


def change(alone: Alone, grants: dict[str, Granted], connection: int = 1) -> None:
    alone.says(connection, SetAccess(7, grants))
    look(alone)
    alone.keep()


def attach(
    alone: Alone, connection: int, password: str = "", principal: str = "", session_expiry_s: int | None = None
) -> list[Any]:
    """Attach receiver `x<connection>`, and return what it hears."""
    name = f"x{connection}"
    alone.says(
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
    look(alone)
    alone.keep()
    return [each for each in alone.heard(connection) if type(each).__name__ != "Welcome"]


def refusals(messages: list[Any]) -> list[tuple[str, object]]:
    return [(each.code, each.about) for each in messages if isinstance(each, Problem)]


FORBIDDEN = [("FORBIDDEN", AboutSession(SESSION))]


def test_whoever_says_the_password_is_let_in_and_nobody_else_is() -> None:
    alone = guarded()
    assert kinds(attach(alone, 2, "secret")) == [Attached]
    assert refusals(attach(alone, 3, "another")) == FORBIDDEN
    assert refusals(attach(alone, 4)) == FORBIDDEN
    assert refusals(attach(alone, 5, "secret", "user")) == FORBIDDEN
    assert refusals(attach(alone, 6, "secret", "nobody")) == FORBIDDEN
    assert alone.engine.context.counters.forbidden == {UNPROVEN: 4}
    assert alone.engine.context.sessions[SESSION].receivers.attached() == {"r", "x2"}


def test_of_two_changes_the_later_one_is_in_force_though_its_passwords_are_hashed_first() -> None:
    alone = guarded()
    owner = Granted(["read", "subscribe", "administer"], "slow")
    alone.says(1, SetAccess(8, {"": owner}))
    alone.says(1, SetAccess(9, {}))
    alone.keep()
    look(alone)
    alone.keep()
    assert alone.engine.context.sessions[SESSION].access == {}
    heard = alone.heard()
    assert [each for each in heard if isinstance(each, AccessChanged)] == [AccessChanged(9)]
    assert refusals(heard) == [("REFUSED", AboutAccess(8))]


def test_a_change_that_is_refused_does_not_overtake_the_one_before_it() -> None:
    alone = guarded()
    owner = Granted(["read", "subscribe", "administer"], "slow")
    alone.says(1, SetAccess(8, {"": owner}))
    alone.says(1, SetAccess(9, {"nobody": Granted(["read"], None)}))
    look(alone)
    alone.keep()
    heard = alone.heard()
    assert [each for each in heard if isinstance(each, AccessChanged)] == [AccessChanged(8)]
    assert refusals(heard) == [("REFUSED", AboutAccess(9))]


def test_who_is_not_let_in_leaves_no_receiver_behind() -> None:
    alone = guarded()
    attach(alone, 2, "another")
    assert ReceiverId("x2") not in alone.engine.context.sessions[SESSION].receivers


def test_nothing_is_delivered_while_a_password_is_looked_at() -> None:
    alone = guarded()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    alone.read_log()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    alone.keep()
    assert kinds(alone.heard(2)[1:]) == []
    look(alone)
    alone.keep()
    assert DeliverEncoded in kinds(alone.heard(2))


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
        alone = guarded()
        assert kinds(attach(alone, 2, password, principal)) == [Attached]
        alone.says(2, message)
        look(alone)
        alone.keep()
        refused = refusals(alone.heard(2))
        assert refused == ([] if type(message) in may else [("FORBIDDEN", about)])
        deleting = any(isinstance(each, effects.ClaimRow) for each in alone.waiting)
        assert deleting is (isinstance(message, Delete) and Delete in may)
    assert alone.engine.context.counters.forbidden[MISSING] == (0 if Delete in may else 1)


def test_for_how_long_a_session_lasts_is_said_by_who_administers_it() -> None:
    alone = guarded()
    assert refusals(attach(alone, 2, "reads", "user", session_expiry_s=1)) == FORBIDDEN
    assert alone.engine.context.sessions[SESSION].expiry_s is None
    assert kinds(attach(alone, 3, "secret", session_expiry_s=9)) == [Attached]
    assert alone.engine.context.sessions[SESSION].expiry_s == 9


def test_an_open_session_lets_everybody_do_everything_whatever_they_say_they_are() -> None:
    alone = Alone()
    alone.serve()
    assert kinds(attach(alone, 2, "anything", "anybody")) == [Attached]
    alone.says(2, Subscribe(subscription="y", expression="n > 1"))
    alone.keep()
    assert kinds(alone.heard(2)) == [Subscribed]
    assert not any(isinstance(each, effects.Verify) for each in alone.waiting)


def test_a_change_is_answered_once_store_and_changelog_have_it() -> None:
    alone = Alone()
    alone.serve()
    alone.says(1, SetAccess(7, LEVELS))
    look(alone)
    alone.answer_all(effects.Save, None)
    assert alone.heard() == []
    alone.answer_all(effects.PutCheckpoint, None)
    assert kinds(alone.heard()) == [AccessChanged]


def test_who_loses_the_right_to_read_is_told_and_gets_nothing_from_then_on() -> None:
    alone = guarded()
    alone.says(1, Subscribe(subscription="x", expression="n > 0"))
    alone.keep()
    alone.read_log()
    attach(alone, 2, "reads", "user")
    attach(alone, 3, "subscribes", "admin")
    change(alone, {"": Granted(ALL), "admin": Granted([READ, SUBSCRIBE])})
    assert refusals(alone.heard(2)) == FORBIDDEN
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    alone.read_log()
    assert alone.heard(2) == []
    assert kinds(alone.heard(3)) == [DeliverEncoded]
    alone.says(2, Subscribe(subscription="y", expression="n > 1"))
    assert [code for code, _ in refusals(alone.heard(2))] == ["NOT_SERVED"]


def test_who_has_another_password_now_has_to_say_it_and_who_set_it_does_not() -> None:
    alone = guarded()
    attach(alone, 2, "secret")
    change(alone, {"": Granted(ALL, "newer")})
    assert kinds(alone.heard(1)) == [AccessChanged]
    assert kinds(alone.heard(2)) == [Wait]
    assert refusals(attach(alone, 2, "secret")) == FORBIDDEN
    assert kinds(attach(alone, 2, "newer")) == [Attached]


def test_a_password_that_is_changed_while_it_is_looked_at_is_looked_at_again() -> None:
    alone = guarded()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    late = alone.next(effects.Verify)
    change(alone, {"": Granted(ALL, "newer")})
    late.on_done(True)
    alone.settle()
    assert Attached not in kinds(alone.heard(2))
    look(alone)
    assert refusals(alone.heard(2)) == FORBIDDEN


def test_a_password_found_right_after_the_client_has_gone_lets_nobody_in() -> None:
    alone = guarded()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    alone.engine.client_disconnected(2)
    look(alone)
    assert alone.engine.context.sessions[SESSION].receivers.attached() == {"r"}


def test_a_password_of_an_earlier_attach_is_not_one_of_the_next() -> None:
    alone = guarded()
    assert kinds(attach(alone, 2, "reads", "user")) == [Attached]
    assert refusals(attach(alone, 2, "wrong", "user")) == FORBIDDEN
    assert alone.engine.context.sessions[SESSION].receivers.attached() == {"r"}


def test_the_more_wrong_passwords_the_longer_the_next_one_waits_and_nobody_else_does() -> None:
    alone = guarded()
    attach(alone, 3, "reads", "user")
    for _ in range(FREE_TRIES):
        assert refusals(attach(alone, 2, "wrong")) == FORBIDDEN
    waits = []
    for _ in range(9):
        (wait,) = attach(alone, 2, "wrong")
        assert isinstance(wait, Wait)
        waits.append(wait.retry_after_ms)
        alone.clock.advance(wait.retry_after_ms)
        assert refusals(attach(alone, 2, "wrong")) == FORBIDDEN
    assert waits == [min(1_000 << n, LONGEST_WAIT_MS) for n in range(9)]
    assert alone.engine.context.counters.forbidden == {UNPROVEN: FREE_TRIES + 9, TOO_OFTEN: 9}
    assert kinds(attach(alone, 4, "reads", "user")) == [Attached]


def test_guessing_does_not_keep_out_who_was_in_before() -> None:
    alone = guarded()
    attach(alone, 2, "secret")
    for _ in range(FREE_TRIES):
        attach(alone, 3, "wrong")
    assert kinds(attach(alone, 3, "wrong")) == [Wait]
    assert kinds(attach(alone, 2, "secret")) == [Attached]


def test_the_right_password_ends_the_waiting() -> None:
    alone = guarded()
    for _ in range(FREE_TRIES):
        attach(alone, 2, "wrong")
    alone.clock.advance(1_000)
    assert kinds(attach(alone, 2, "secret")) == [Attached]
    assert refusals(attach(alone, 3, "wrong")) == FORBIDDEN
    assert refusals(attach(alone, 3, "wrong")) == FORBIDDEN


def test_passwords_of_one_principal_that_are_looked_at_in_one_moment_are_few() -> None:
    alone = guarded()
    for connection in range(2, 2 + PASSWORDS_OF_ONE + 1):
        alone.says(
            connection,
            Attach(
                session=SESSION,
                receiver=f"x{connection}",
                incarnation="i",
                frontier={},
                credential=Credential("", "wrong"),
            ),
        )
    assert sum(isinstance(each, effects.Verify) for each in alone.waiting) == PASSWORDS_OF_ONE
    assert kinds(alone.heard(connection))[1:] == [Wait]


def test_passwords_that_one_proxy_looks_at_in_one_moment_are_bounded() -> None:
    alone = guarded({"": Granted(ALL, "secret")} | {f"p{n}": Granted(USER, f"s{n}") for n in range(31)})
    for connection in range(2, 2 + PASSWORDS_AT_ONCE + 1):
        credential = Credential(f"p{connection % 31}", "wrong")
        alone.says(
            connection,
            Attach(session=SESSION, receiver=f"x{connection}", incarnation="i", frontier={}, credential=credential),
        )
    assert sum(isinstance(each, effects.Verify) for each in alone.waiting) == PASSWORDS_AT_ONCE
    assert kinds(alone.heard(connection))[1:] == [Wait]
    look(alone)
    assert alone.engine.dispatcher.authorizer.verifying == 0


BY_TOKEN_TOO = LEVELS | {"token": Granted(USER, by_token=True)}


@pytest.mark.parametrize("principal", ["user", "nobody", "token"])
def test_wrong_password_is_verified_and_counted_alike_whether_the_principal_exists_or_not(principal: str) -> None:
    alone = guarded(BY_TOKEN_TOO)
    wrong = Credential(principal, "wrong")
    for _ in range(FREE_TRIES):
        alone.says(2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=wrong))
        assert sum(isinstance(each, effects.Verify) for each in alone.waiting) == 1
        look(alone)
        assert refusals(alone.heard(2)) == FORBIDDEN
    alone.says(2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=wrong))
    assert not any(isinstance(each, effects.Verify) for each in alone.waiting)
    (wait,) = [each for each in alone.heard(2) if isinstance(each, Wait)]
    assert wait.retry_after_ms == 1_000
    assert alone.engine.context.counters.forbidden == {UNPROVEN: FREE_TRIES, TOO_OFTEN: 1}


@pytest.mark.parametrize("principal", ["user", "nobody"])
def test_attach_without_a_password_is_refused_without_a_hash(principal: str) -> None:
    alone = guarded()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential(principal, ""))
    )
    assert not any(isinstance(each, effects.Verify) for each in alone.waiting)
    assert refusals(alone.heard(2)) == FORBIDDEN


def test_passwords_of_unknown_principals_share_the_bound_of_the_proxy() -> None:
    alone = guarded()
    for connection in range(2, 2 + PASSWORDS_AT_ONCE + 1):
        credential = Credential(f"nobody{connection}", "wrong")
        alone.says(
            connection,
            Attach(session=SESSION, receiver=f"x{connection}", incarnation="i", frontier={}, credential=credential),
        )
    assert sum(isinstance(each, effects.Verify) for each in alone.waiting) == PASSWORDS_AT_ONCE
    assert kinds(alone.heard(connection))[1:] == [Wait]
    look(alone)
    assert alone.engine.dispatcher.authorizer.verifying == 0


def test_unknown_principals_that_are_remembered_are_bounded_and_known_ones_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(authorization, "UNKNOWN_PRINCIPALS_REMEMBERED", 5)
    alone = guarded()
    for number, name in enumerate(["user", *(f"nobody{n}" for n in range(20))]):
        attach(alone, 2 + number, "wrong", name)
    tries = alone.engine.context.sessions[SESSION].tries
    assert {*tries} - {""} == {"user", *(f"nobody{n}" for n in range(15, 20))}


def test_a_password_of_nobody_lets_nobody_in_even_if_it_is_verified() -> None:
    alone = guarded()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("nobody", "x"))
    )
    alone.answer(effects.Verify, True)
    assert refusals(alone.heard(2)) == FORBIDDEN


def test_a_hash_that_cannot_be_read_lets_nobody_in_and_is_no_wrong_password() -> None:
    alone = guarded()
    alone.says(
        2, Attach(session=SESSION, receiver="x2", incarnation="i", frontier={}, credential=Credential("", "secret"))
    )
    alone.answer(effects.Verify, BadRecord("damaged"))
    assert kinds(alone.heard(2))[1:] == [Wait]
    assert alone.engine.context.counters.forbidden == {}


@pytest.mark.parametrize(
    ("grants", "what"),
    [
        ({"user": Granted(USER, "x")}, "could never change it again"),
        ({"": Granted(USER, "x")}, "could never change it again"),
        ({"": Granted(ALL, "x"), "new": Granted(USER)}, "has no password yet"),
    ],
)
def test_a_change_that_locks_out_who_asks_or_lets_in_without_a_word_is_refused(
    grants: dict[str, Granted], what: str
) -> None:
    alone = guarded()
    before = dict(alone.engine.context.sessions[SESSION].access)
    change(alone, grants)
    (problem,) = alone.heard()
    assert (problem.code, problem.field, problem.about) == ("REFUSED", "grants", AboutAccess(7))
    assert what in problem.message
    assert alone.engine.context.sessions[SESSION].access == before


def test_a_session_can_be_opened_again() -> None:
    alone = guarded()
    change(alone, {})
    assert kinds(alone.heard()) == [AccessChanged]
    assert kinds(attach(alone, 2)) == [Attached]


def test_the_access_is_in_the_checkpoint_and_the_password_is_in_nothing_that_is_written() -> None:
    alone = Alone()
    alone.serve()
    alone.says(1, SetAccess(7, {"": Granted(ALL, "secret"), "eve": Granted(USER, "")}))
    alone.answer(effects.Hash, ["#1"])
    written = [each for each in alone.waiting if isinstance(each, effects.PutCheckpoint | effects.Save)]
    checkpoints = [each.checkpoint for each in written if isinstance(each, effects.PutCheckpoint)]
    assert isinstance(checkpoints[-1], Checkpoint)
    read = decode_checkpoint(encode_checkpoint(checkpoints[-1]))
    assert read.descriptor.access == {"": Grant(EVERYTHING, "#1"), "eve": Grant((READ,), "")}
    assert "secret" not in repr(written)
    assert b"secret" not in b"".join(encode_fact(fact) for fact in alone.facts)
    assert [fact.reason for fact in alone.facts if fact.kind == "access"] == [
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
    alone = guarded()
    alone.engine.client_disconnected(1)
    alone.reload({SESSION: owner("me", 1)}, "other")
    prepare = Prepare(
        session=SESSION, transfer="t", epoch=alone.engine.context.sessions[SESSION].epoch, reason=ATTACH, receiver="r"
    )
    alone.engine.peer_message(ProxyId("other"), prepare)
    said = [each.message for each in alone.engine.take_effects() if isinstance(each, effects.SendPeer)]
    assert said == [TransferDeclined(SESSION, "t", prepare.epoch, StayReason.ACCESS)]
