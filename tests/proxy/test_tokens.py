"""A token proves the principal that it names, as long as it lasts, and nothing else does."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clients.tokens import Named, issue, read, token_key
from proxy.core.inputs import ClientConnected, SecretRead
from tests.helpers.engine_harness import SESSION, EngineHarness
from tests.proxy.test_access import ALL, access_seen, change, guarded, kinds
from waypost.access import READ
from waypost.errors import Forbidden
from waypost.messages import (
    VERSION,
    AccessChanged,
    Attach,
    Attached,
    Credential,
    DeliverEncoded,
    Granted,
    Hello,
    Problem,
    Publish,
    Wait,
)
from waypost.notification import Notification

SECRET = b"s" * 32
KEY = token_key(SECRET)
HOUR_MS = 3_600_000
EVE = {"": Granted(ALL, "secret"), "eve": Granted([READ], by_token=True)}


def test_issued_token_is_valid_until_its_expiry() -> None:
    token = issue(KEY, Named("eve", 10_000))
    assert read(KEY, token, 9_999) == Named("eve", 10_000)
    with pytest.raises(Forbidden, match="has ended"):
        read(KEY, token, 10_000)


CLAIMS = {"sub": "eve", "exp": 3_600, "aud": "waypost"}
FOREIGN = {
    "another key": issue(token_key(b"o" * 32), Named("eve", HOUR_MS)),
    "the secret itself": issue(SECRET, Named("eve", HOUR_MS)),
    "unsigned": jwt.encode(CLAIMS, "", "none"),
    "for another": jwt.encode(CLAIMS | {"aud": "another service"}, KEY, "HS256"),
    "endless": jwt.encode({"sub": "eve", "aud": "waypost"}, KEY, "HS256"),
    "of nobody": jwt.encode({"exp": 3_600, "aud": "waypost"}, KEY, "HS256"),
    "no time": jwt.encode(CLAIMS | {"exp": "soon"}, KEY, "HS256"),
    "no token": "eve",
    "nothing": "",
}


@pytest.mark.parametrize("token", FOREIGN.values(), ids=FOREIGN.keys())
def test_token_of_another_issuer_is_refused(token: str) -> None:
    with pytest.raises(Forbidden, match="no token of this federation"):
        read(KEY, token, 0)


@given(st.text())
def test_malformed_token_is_refused_as_forbidden(token: str) -> None:
    with pytest.raises(Forbidden):
        read(KEY, token, 0)


# ---------------------------------------------------------------- on attach


def token_for(harness: EngineHarness, principal: str = "eve", for_ms: int = HOUR_MS) -> str:
    return issue(KEY, Named(principal, harness.clock.unix_ms() + for_ms))


def comes(harness: EngineHarness, token: str, principal: str = "", connection: int = 2) -> list[Any]:
    """Attach another receiver by a token; return what it hears."""
    harness.step(ClientConnected(connection))
    harness.send(connection, Hello(VERSION, "eve"))
    harness.received(connection)
    attach = Attach(
        session=SESSION, receiver="eve", incarnation="life", frontier={}, credential=Credential(principal, token=token)
    )
    harness.send(connection, attach)
    harness.complete_writes()
    return harness.received(connection)


def serving() -> EngineHarness:
    harness = guarded(EVE)
    harness.step(SecretRead(SECRET))
    return harness


def test_a_token_lets_its_principal_in_without_a_password() -> None:
    harness = serving()
    assert Attached in kinds(comes(harness, token_for(harness)))
    assert Attached in kinds(comes(harness, token_for(harness), principal="eve", connection=3))


def test_a_principal_that_is_proven_by_token_is_not_believed_by_name_nor_by_password() -> None:
    for credential in (Credential("eve"), Credential("eve", "*"), Credential("eve", "secret")):
        harness = serving()
        harness.step(ClientConnected(2))
        harness.send(2, Hello(VERSION, "eve"))
        harness.send(2, Attach(session=SESSION, receiver="eve", incarnation="life", frontier={}, credential=credential))
        # It costs what a wrong password costs: who has one is not to be told from who has none.
        access_seen(harness)
        assert harness.received(2)[-1].code == Forbidden.code


@pytest.mark.parametrize("principal", ["bob", ""])
def test_token_of_a_principal_without_a_grant_is_refused(principal: str) -> None:
    harness = guarded({"owner": Granted(ALL, "secret")} | {"eve": EVE["eve"]} | {"": Granted(ALL, "x")})
    harness.step(SecretRead(SECRET))
    (refused,) = comes(harness, token_for(harness, "nobody"), principal=principal)
    assert isinstance(refused, Problem) and refused.code == Forbidden.code


def test_a_token_that_names_another_principal_than_is_asked_for_is_refused() -> None:
    harness = serving()
    (refused,) = comes(harness, token_for(harness), principal="bob")
    assert isinstance(refused, Problem) and "that of principal eve" in refused.message


def test_a_proxy_that_does_not_know_the_secret_yet_says_to_come_again() -> None:
    harness = guarded(EVE)
    (wait,) = comes(harness, token_for(harness))
    assert isinstance(wait, Wait)


def test_when_a_token_ends_its_receiver_gets_nothing_more_until_it_comes_with_another() -> None:
    harness = serving()
    comes(harness, token_for(harness, for_ms=10_000))
    harness.pass_time(9_000)
    assert Wait not in kinds(harness.received(2))
    harness.pass_time(1_000)
    (wait,) = harness.received(2)
    assert isinstance(wait, Wait) and wait.retry_after_ms == 0
    harness.send(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    harness.read_log()
    assert DeliverEncoded not in kinds(harness.received(2))
    assert Attached in kinds(comes(harness, token_for(harness), connection=3))


def test_access_change_keeps_receivers_with_tokens_attached() -> None:
    harness = serving()
    comes(harness, token_for(harness))
    change(harness, EVE | {"eve": Granted([READ], "a password now")})
    assert AccessChanged in kinds(harness.received(1))
    assert harness.received(2) == []
    assert "detached" not in [fact.kind for fact in harness.facts]
    change(harness, {"": EVE[""]})
    assert kinds(harness.received(2)) == [Problem]
    (detached,) = [fact for fact in harness.facts if fact.kind == "detached"]
    assert detached.receiver and detached.frontier == harness.engine.state.frontier


def test_grant_by_token_needs_a_principal_name_and_no_password() -> None:
    harness = guarded()
    for grants in ({"": Granted(ALL, by_token=True)}, {"": Granted(ALL), "eve": Granted([READ], "x", by_token=True)}):
        change(harness, grants)
        (refused,) = harness.received(1)
        assert refused.code == "REFUSED" and "a token names a principal" in refused.message
