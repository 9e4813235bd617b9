"""The checker finds a planted loss, repeat and change of order, in summaries and end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from chaos.checker import Delivered, check
from chaos.cluster import Cluster, ProxySpec
from chaos.workloads.audience import BatchFilter, Guest
from chaos.workloads.roamers import Roaming
from tests.helpers.polling import until
from waypost.client.received_notification import Received
from waypost.identity import Incarnation, NotificationId, Origin

SEED = 11
ONE, TWO = (NotificationId("p", Incarnation("i"), each) for each in (1, 2))
PUBLISHED = {ONE: {"n": 1}, TWO: {"n": 2}}
A, B = Origin("A/0"), Origin("B/0")


def at(origin: Origin, *ids: NotificationId) -> list[Delivered]:
    return [Delivered(each, origin) for each in ids]


def test_a_clean_run_is_clean() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": at(A, ONE, TWO)}).clean


def test_a_loss_is_named() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": at(A, ONE)}).lost == [("r", TWO)]


def test_a_repeat_is_named() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": at(A, ONE, TWO, TWO)}).duplicated == [("r", TWO)]


def test_notification_that_matches_no_subscription_is_reported_as_phantom() -> None:
    assert check(PUBLISHED, {"r": ["n == 1"]}, {"r": at(A, ONE, TWO)}).phantom == [("r", TWO)]


def test_notification_after_a_later_one_of_its_producer_is_reported_as_reordered() -> None:
    result = check(PUBLISHED, {"r": ["n > 0"]}, {"r": at(A, TWO, ONE)})
    assert result.reordered == [("r", ONE)]
    assert not result.clean


def test_a_repeat_is_not_called_reordered_too() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": at(A, ONE, TWO, ONE)}).reordered == []


def test_no_order_is_asked_between_origins_or_between_lives_of_a_producer() -> None:
    other_life = NotificationId("p", Incarnation("j"), 1)
    published = PUBLISHED | {other_life: {"n": 3}}
    assert check(published, {"r": ["n > 0"]}, {"r": [*at(A, TWO, other_life), *at(B, ONE)]}).clean


def _swapping() -> tuple[BatchFilter, list[NotificationId]]:
    """Keep the tenth notification back, and give it after the next one of the same producer."""
    seen = 0
    kept: list[Received] = []
    planted: list[NotificationId] = []

    def give(batch: Sequence[Received]) -> list[Received]:
        nonlocal seen
        given: list[Received] = []
        for received in batch:
            seen += 1
            if seen == 10:
                kept.append(received)
                continue
            given.append(received)
            if kept and received.id.producer == kept[0].id.producer:
                planted.append(kept[0].id)
                given.append(kept.pop())
        return given

    return give, planted


def _planting(copies: int) -> tuple[BatchFilter, list[NotificationId]]:
    """Give the tenth notification `copies` times: 0 swallows, 2 repeats."""
    seen, planted = 0, list[NotificationId]()

    def give(batch: Sequence[Received]) -> list[Received]:
        nonlocal seen
        given: list[Received] = []
        for received in batch:
            seen += 1
            given += [received] * (copies if seen == 10 else 1)
            if seen == 10:
                planted.append(received.id)
        return given

    return give, planted


@pytest.mark.parametrize(
    ("planting", "called"),
    [(partial(_planting, 0), "lost"), (partial(_planting, 2), "duplicated"), (_swapping, "reordered")],
    ids=["swallows", "repeats", "swaps"],
)
async def test_checker_finds_a_notification_that_a_client_lost_repeated_or_reordered(
    planting: Callable[[], tuple[BatchFilter, list[NotificationId]]],
    called: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("chaos.workloads.audience.TIMEOUT_S", 10)
    cluster = Cluster([ProxySpec("a1", "A", {"no-discovery": ""})], [], tmp_path)
    await asyncio.to_thread(cluster.__enter__)
    try:
        give, planted = planting()
        monkeypatch.setattr(Guest, "filter_batch", staticmethod(give))
        work = Roaming({"A": [cluster.proxies["a1"].url]}, SEED, clients=1)
        await work.setup()
        work.start()
        await until(lambda: bool(planted), "a client is given its tenth notification")
        result = await work.check()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
    assert len(planted) == 1
    assert {name: [identity for _, identity in cases] for name, cases in result.worst.items()} == {called: planted}
