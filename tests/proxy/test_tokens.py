"""A token proves the principal that it names, as long as it lasts, and nothing else does."""

from __future__ import annotations

from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.clients.tokens import Named, issue, read, token_key
from tests.helpers.alone import SESSION, Alone
from tests.proxy.test_access import ALL, change, guarded, kinds, look
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


def test_what_was_issued_is_read_until_it_ends_and_no_longer() -> None:
    token = issue(KEY, Named("eve", 10_000))
    assert read(KEY, token, 9_999) == Named("eve", 10_000)
    with pytest.raises(Forbidden, match="has ended"):
        read(KEY, token, 10_000)


SAID = {"sub": "eve", "exp": 3_600, "aud": "waypost"}
FOREIGN = {
    "another key": issue(token_key(b"o" * 32), Named("eve", HOUR_MS)),
    "the secret itself": issue(SECRET, Named("eve", HOUR_MS)),
    "unsigned": jwt.encode(SAID, "", "none"),
    "for another": jwt.encode(SAID | {"aud": "another service"}, KEY, "HS256"),
    "endless": jwt.encode({"sub": "eve", "aud": "waypost"}, KEY, "HS256"),
    "of nobody": jwt.encode({"exp": 3_600, "aud": "waypost"}, KEY, "HS256"),
    "no time": jwt.encode(SAID | {"exp": "soon"}, KEY, "HS256"),
    "no token": "eve",
    "nothing": "",
}


@pytest.mark.parametrize("token", FOREIGN.values(), ids=FOREIGN.keys())
def test_what_was_not_issued_here_proves_nothing(token: str) -> None:
    with pytest.raises(Forbidden, match="no token of this federation"):
        read(KEY, token, 0)


@given(st.text())
def test_whatever_is_said_in_its_place_is_refused_by_name(token: str) -> None:
    with pytest.raises(Forbidden):
        read(KEY, token, 0)


# ---------------------------------------------------------------- on attach


def token_for(alone: Alone, principal: str = "eve", for_ms: int = HOUR_MS) -> str:
    return issue(KEY, Named(principal, alone.clock.unix_ms() + for_ms))


def comes(alone: Alone, token: str, principal: str = "", connection: int = 2) -> list[Any]:
    """Attach another receiver by a token; return what it hears."""
    alone.engine.client_connected(connection)
    alone.says(connection, Hello(VERSION, "eve"))
    alone.heard(connection)
    attach = Attach(
        session=SESSION, receiver="eve", incarnation="life", frontier={}, credential=Credential(principal, token=token)
    )
    alone.says(connection, attach)
    alone.keep()
    return alone.heard(connection)


def serving() -> Alone:
    alone = guarded(EVE)
    alone.engine.secret_told(SECRET)
    return alone


def test_a_token_lets_its_principal_in_without_a_password() -> None:
    alone = serving()
    assert Attached in kinds(comes(alone, token_for(alone)))
    assert Attached in kinds(comes(alone, token_for(alone), principal="eve", connection=3))


def test_a_principal_that_is_proven_by_token_is_not_believed_by_name_nor_by_password() -> None:
    for credential in (Credential("eve"), Credential("eve", "*"), Credential("eve", "secret")):
        alone = serving()
        alone.engine.client_connected(2)
        alone.says(2, Hello(VERSION, "eve"))
        alone.says(2, Attach(session=SESSION, receiver="eve", incarnation="life", frontier={}, credential=credential))
        # It costs what a wrong password costs: who has one is not to be told from who has none.
        look(alone)
        assert alone.heard(2)[-1].code == Forbidden.code


@pytest.mark.parametrize("principal", ["bob", ""])
def test_a_token_of_somebody_whom_the_session_does_not_know_is_refused(principal: str) -> None:
    alone = guarded({"owner": Granted(ALL, "secret")} | {"eve": EVE["eve"]} | {"": Granted(ALL, "x")})
    alone.engine.secret_told(SECRET)
    (refused,) = comes(alone, token_for(alone, "nobody"), principal=principal)
    assert isinstance(refused, Problem) and refused.code == Forbidden.code


def test_a_token_that_names_another_principal_than_is_asked_for_is_refused() -> None:
    alone = serving()
    (refused,) = comes(alone, token_for(alone), principal="bob")
    assert isinstance(refused, Problem) and "that of principal eve" in refused.message


def test_a_proxy_that_does_not_know_the_secret_yet_says_to_come_again() -> None:
    alone = guarded(EVE)
    (wait,) = comes(alone, token_for(alone))
    assert isinstance(wait, Wait)


def test_when_a_token_ends_its_receiver_gets_nothing_more_until_it_comes_with_another() -> None:
    alone = serving()
    comes(alone, token_for(alone, for_ms=10_000))
    alone.pass_time(9_000)
    assert Wait not in kinds(alone.heard(2))
    alone.pass_time(1_000)
    (wait,) = alone.heard(2)
    assert isinstance(wait, Wait) and wait.retry_after_ms == 0
    alone.says(1, Publish(producer="p", secret="i", first=0, bodies=[Notification({"n": 1}).body]))
    alone.read_log()
    assert DeliverEncoded not in kinds(alone.heard(2))
    assert Attached in kinds(comes(alone, token_for(alone), connection=3))


def test_a_change_of_the_access_leaves_those_in_who_came_by_token() -> None:
    alone = serving()
    comes(alone, token_for(alone))
    change(alone, EVE | {"eve": Granted([READ], "a password now")})
    assert AccessChanged in kinds(alone.heard(1))
    assert alone.heard(2) == []
    change(alone, {"": EVE[""]})
    assert kinds(alone.heard(2)) == [Problem]


def test_who_is_proven_by_token_has_no_password_and_a_name() -> None:
    alone = guarded()
    for grants in ({"": Granted(ALL, by_token=True)}, {"": Granted(ALL), "eve": Granted([READ], "x", by_token=True)}):
        change(alone, grants)
        (refused,) = alone.heard(1)
        assert refused.code == "REFUSED" and "a token names a principal" in refused.message
