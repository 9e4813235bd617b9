"""Rendezvous: requests and parts of resources as notifications, and how resources are put together."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waypost.errors import BadNotification, LimitExceeded
from waypost.keys import CONSUMER, Key
from waypost.limits import MAX_PATH_LENGTH, MAX_RESOURCE_BYTES, RESOURCE_CHUNK_BYTES
from waypost.notification import Notification, Value
from waypost.rendezvous import (
    DATA,
    DIGEST,
    ID,
    KEY,
    MAX_NUMBER,
    PART,
    PARTS,
    SCHEME,
    Assembly,
    Request,
    Resource,
    answers_to,
    requests_to,
)
from waypost.subscription import parse

REQUEST = Request(id="r1", owner="bob", requester="alice", path="photos/1.jpg")


def taken(assembly: Assembly, parts: list[Notification]) -> list[Resource]:
    came = [assembly.add(part, 0) for part in parts]
    return [resource for resource in came if resource is not None]


def test_a_request_is_read_as_it_was_written() -> None:
    key = Key("sha256-consumer", CONSUMER, b"public")
    for request in (REQUEST, replace(REQUEST, key=key, max_bytes=7)):
        assert Request.of(request.notification()) == request


@pytest.mark.parametrize("name", ["bob", "o'brien", 'quo"ted', "back\\slash", "&& true", "日本"])
def test_rendezvous_message_matches_only_the_subscription_of_its_addressee(name: str) -> None:
    to_owner = replace(REQUEST, owner=name).notification()
    answer = next(replace(REQUEST, requester=name).answer("a", b""))
    assert parse(requests_to(name)).matches(to_owner.attributes)
    assert parse(answers_to(name)).matches(answer.attributes)
    assert not parse(requests_to(name + "x")).matches(to_owner.attributes)
    assert not parse(answers_to(name)).matches(to_owner.attributes)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({ID: 7}, ID),
        ({MAX_NUMBER: 0}, MAX_NUMBER),
        ({MAX_NUMBER: MAX_RESOURCE_BYTES + 1}, MAX_NUMBER),
        ({KEY: b"x", SCHEME: "sha256-producer"}, SCHEME),
        ({KEY: b"x", SCHEME: "rot13"}, SCHEME),
        ({KEY: b"x"}, SCHEME),
        ({KEY: "x", SCHEME: "sha256-consumer"}, KEY),
        ({KEY: b"", SCHEME: "sha256-consumer"}, KEY),
    ],
)
def test_a_request_that_is_none_is_refused_by_the_name_of_what_is_wrong(wrong: dict[str, Value], field: str) -> None:
    with pytest.raises(BadNotification) as refused:
        Request.of({**REQUEST.notification(), **wrong})
    assert refused.value.field == field


@pytest.mark.parametrize("request_", [replace(REQUEST, path=""), replace(REQUEST, path="x" * (MAX_PATH_LENGTH + 1))])
def test_a_path_that_is_too_long_is_not_asked_for(request_: Request) -> None:
    with pytest.raises(LimitExceeded, match="a path has 1 to"):
        request_.notification()


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 3 * RESOURCE_CHUNK_BYTES + 1), min_size=1, max_size=3),
    seed=st.integers(0, 2**32),
    repeats=st.booleans(),
)
def test_resources_come_whole_whatever_the_order_of_their_parts(sizes: list[int], seed: int, *, repeats: bool) -> None:
    rng = random.Random(seed)
    whole = {f"r{number}": rng.randbytes(size) for number, size in enumerate(sizes)}
    parts = [part for identity, data in whole.items() for part in replace(REQUEST, id=identity).answer("a", data)]
    if repeats:
        parts += rng.sample(parts, len(parts) // 2)
    rng.shuffle(parts)
    assembly = Assembly()
    came = taken(assembly, parts)
    assert {resource.id: resource.data for resource in came} == whole
    assert len(came) == len(whole)
    assert not any(resource.error for resource in came)
    assert assembly.holding == 0


def test_an_answer_that_was_broken_off_does_not_spoil_the_next_one() -> None:
    first = list(REQUEST.answer("first", b"1" * (2 * RESOURCE_CHUNK_BYTES)))
    second = list(REQUEST.answer("second", b"2" * (2 * RESOURCE_CHUNK_BYTES)))
    assembly = Assembly()
    (came,) = taken(assembly, [first[0], second[0], second[1], first[1]])
    assert came == Resource("r1", "bob", "photos/1.jpg", b"2" * (2 * RESOURCE_CHUNK_BYTES))
    assert assembly.holding == 0


def test_a_resource_whose_checksum_is_wrong_is_not_given_as_one() -> None:
    parts = list(REQUEST.answer("a", b"x" * (RESOURCE_CHUNK_BYTES + 1)))
    spoiled = Notification({**parts[1], DATA: b"y"})
    assert [resource.error for resource in taken(Assembly(), [parts[0], spoiled])] == ["its checksum is wrong"]


def test_parts_that_do_not_fit_together_are_refused() -> None:
    assembly = Assembly()
    first, second = REQUEST.answer("a", b"x" * (RESOURCE_CHUNK_BYTES + 1))
    assembly.add(first, 0)
    for wrong in ({DIGEST: b"other"}, {PARTS: 3}, {PART: 2}, {PART: -1}, {DATA: b"x" * (RESOURCE_CHUNK_BYTES + 1)}):
        with pytest.raises(BadNotification):
            assembly.add({**second, **wrong}, 0)
    assert assembly.add(second, 0) is not None


def test_resource_larger_than_the_requesters_limit_is_refused_with_a_message() -> None:
    request = replace(REQUEST, max_bytes=3)
    (came,) = taken(Assembly(), list(request.answer("a", b"four")))
    assert came.error == "4 bytes; alice takes 3"
    (came,) = taken(Assembly(), list(request.answer("a", b"two")))
    assert came.data == b"two"


def test_unfinished_resource_expires_and_can_begin_anew() -> None:
    assembly = Assembly()
    parts = list(REQUEST.answer("a", b"x" * (RESOURCE_CHUNK_BYTES + 1)))
    assembly.add(parts[0], 1_000)
    assembly.expire(1_000)
    assert assembly.holding == 1
    assembly.expire(1_001)
    assert assembly.holding == 0
    assert [resource.data for resource in taken(assembly, list(REQUEST.answer("b", b"again")))] == [b"again"]


def test_evicted_resource_ends_with_an_error() -> None:
    assembly = Assembly()
    for number in (1, 2):
        assembly.add(next(replace(REQUEST, id=f"r{number}").answer("a", b"x" * (RESOURCE_CHUNK_BYTES + 1))), number)
    given_up = assembly.evict_oldest()
    assert given_up is not None
    assert (given_up.id, given_up.error) == ("r1", "too many resources come at one time; ask again")
    assert assembly.holding == 1
    assert taken(assembly, list(replace(REQUEST, id="r1").answer("a", b"late"))) == []
