"""The checker finds a planted loss and a planted repeat, in tallies and end to end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.checker import check
from chaos.cluster import Cluster, Place
from chaos.workloads.roaming import Give, Roamer, Roaming
from tests.helpers.waiting import until
from waypost.client.session import Received
from waypost.identity import Incarnation, NotificationId

SEED = 11
ONE, TWO = (NotificationId("p", Incarnation("i"), each) for each in (1, 2))
PUBLISHED = {ONE: {"n": 1}, TWO: {"n": 2}}


def test_a_clean_run_is_clean() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": Counter([ONE, TWO])}).clean


def test_a_loss_is_named() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": Counter([ONE])}).lost == [("r", TWO)]


def test_a_repeat_is_named() -> None:
    assert check(PUBLISHED, {"r": ["n > 0"]}, {"r": Counter([ONE, TWO, TWO])}).duplicated == [("r", TWO)]


def test_what_nobody_asked_for_is_named() -> None:
    assert check(PUBLISHED, {"r": ["n == 1"]}, {"r": Counter([ONE, TWO])}).phantom == [("r", TWO)]


def _planting(copies: int) -> tuple[Give, list[NotificationId]]:
    """Give the tenth notification `copies` times: 0 swallows, 2 repeats."""
    seen, planted = 0, list[NotificationId]()

    def give(batch: Sequence[Received]) -> list[Received]:
        nonlocal seen
        given: list[Received] = []
        for each in batch:
            seen += 1
            given += [each] * (copies if seen == 10 else 1)
            if seen == 10:
                planted.append(each.id)
        return given

    return give, planted


@pytest.mark.parametrize("copies", [0, 2])
async def test_what_a_client_swallows_or_repeats_is_found(
    copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chaos.workloads.roaming.PATIENCE_S", 10)
    cluster = Cluster([Place("a1", "A", {"no-discovery": ""})], [], tmp_path)
    await asyncio.to_thread(cluster.__enter__)
    try:
        give, planted = _planting(copies)
        monkeypatch.setattr(Roamer, "give", staticmethod(give))
        work = Roaming({"A": [cluster.proxies["a1"].url]}, SEED, clients=2)
        await work.setup()
        work.start()
        await until(lambda: bool(planted), "a client is given its tenth notification")
        tally = await work.check()
    finally:
        await asyncio.to_thread(cluster.__exit__, None, None, None)
    assert len(planted) == 1
    found = tally.duplicated if copies else tally.lost
    assert [identity for _, identity in found] == planted
    assert len(tally.lost) + len(tally.duplicated) + len(tally.phantom) == 1
