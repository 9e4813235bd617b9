"""Copies of large sessions: one that is broken off goes on where it stopped, and nobody waits for a long one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.simulator import world
from chaos.simulator.invariants import Invariants
from chaos.simulator.scenario import Scenario
from handover.messages import Chunk, Prepared
from proxy import incoming, keeper
from proxy.context import Bounds
from waypost.identity import ProxyId, SessionId

S = SessionId("s")
MANY = 40
BEGIN = f"""
sites small A: a1 a2
client c s at a1 window=1
subscribe c x n > 0
run 100
pause c
publish {" ".join(str(number) for number in range(1, MANY + 1))} at a1
run 500
leave c
run 100
"""


class Told:
    """A story, and the chunks of it: (transfer, numbers) in the order in which they came or were lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
        monkeypatch.setattr(world, "SMALL", Bounds(chunk_entries=4, chunk_window=1, **bounds))
        self.story = Scenario()
        self.chunks: list[tuple[str, list[int]]] = []
        self.prepared: list[Prepared] = []
        says = Invariants.says

        def listen(invariants: Invariants, proxy: ProxyId, message: Any) -> None:
            says(invariants, proxy, message)
            if isinstance(message, Chunk):
                self.chunks.append((message.transfer, [each.number for each in message.entries]))
            elif isinstance(message, Prepared):
                self.prepared.append(message)

        monkeypatch.setattr(Invariants, "says", listen)
        self.tell(BEGIN)

    def tell(self, text: str) -> str:
        told = self.story.run(text.strip("\n") + "\n----\n")
        assert "it did not come to this" not in told
        return told

    def begin_and_break_off(self) -> set[int]:
        """Copy a part, then lose every chunk until the target gives up; return what it has, stored."""
        self.tell("move c a2\nuntil a2 -> a1 ChunkStored\nuntil a2 -> a1 ChunkStored\nuntil a2 -> a1 ChunkStored")
        self.story.world.lose_next["Chunk"] = 1 << 30
        self.tell("leave c\nwithin 20000 a2 is target aborted")
        self.story.world.lose_next.clear()
        self.tell("run 1000")
        return set(self.rows("a2"))

    def rows(self, proxy: str) -> list[int]:
        return sorted(self.story.world.nodes[ProxyId(proxy)].store.rows.get(S, {}))

    def end_well(self) -> None:
        assert self.tell("check").rstrip().endswith("all is well")
        given = [number for _, _, number in self.story.world.clients["c"].given]
        assert given == list(range(1, MANY + 1))


def test_what_a_transfer_brought_before_it_was_broken_off_is_not_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    has = told.begin_and_break_off()
    assert len(has) >= 8
    before = len(told.chunks)
    told.tell("move c a2\nwithin 20000 a2 serves s")
    again = [number for _, numbers in told.chunks[before:] for number in numbers]
    assert again and not has & set(again)
    assert sorted([*has, *again]) == list(range(min(has), MANY + 1))
    told.end_well()


def test_what_all_receivers_got_between_two_transfers_is_neither_kept_nor_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told(monkeypatch)
    has = told.begin_and_break_off()
    told.tell("resume c\nmove c a1\nrun 60\nleave c\nrun 500")
    source = told.story.world.nodes[ProxyId("a1")].engine
    assert source is not None
    oldest = source.context.sessions[S].entries.first_number
    assert min(has) < oldest <= MANY
    told.tell("pause c\nmove c a2\nwithin 20000 a2 serves s\nrun 500")
    left = told.rows("a2")
    assert left[0] >= oldest and left == list(range(left[0], MANY + 1))
    told.tell("resume c\nrun 1000")
    assert told.rows("a2") == []
    told.end_well()


def test_a_source_that_began_anew_sends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers may mean other entries now."""
    told = Told(monkeypatch)
    told.begin_and_break_off()
    told.tell("crash a1\nstart a1\nwithin 20000 a1 serves s")
    before = len(told.chunks)
    told.tell("move c a2\nwithin 20000 a2 serves s")
    assert told.prepared[0].copy != told.prepared[-1].copy
    again = [number for _, numbers in told.chunks[before:] for number in numbers]
    assert again == list(range(again[0], MANY + 1))
    assert set(told.rows("a2")) <= set(again)
    told.end_well()


def test_what_came_of_a_copy_goes_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "COPY_KEPT_MS", 3_000)
    told = Told(monkeypatch)
    assert told.begin_and_break_off()
    told.tell("run 4000")
    assert told.rows("a2") == []
    told.tell("move c a2\nwithin 20000 a2 serves s")
    told.end_well()


def test_of_too_many_parts_of_copies_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming, "COPIES_KEPT", 0)
    told = Told(monkeypatch)
    assert not told.begin_and_break_off()
    told.end_well()


def test_who_would_wait_for_a_long_copy_is_relayed_and_the_session_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: what is given does not wait for what is copied."""
    told = Told(monkeypatch, copy_at_attach=10)
    went = told.tell("resume c\nmove c a2\nwithin 20000 a2 serves s").splitlines()
    given = [line for line in went[: went.index("a1 is source frozen")] if line.startswith("c is given")]
    assert "a2 is target relayed: the session follows when it is copied" in went
    assert went.index("a1 -> a2 Stay") < went.index("a1 -> a2 Offer") < went.index("a1 is source frozen")
    assert given
    told.end_well()


def test_a_copy_that_is_nearly_there_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    has = told.begin_and_break_off()
    engine = told.story.world.nodes["a1"].engine
    assert engine is not None
    bounds = replace(engine.context.settings.bounds, copy_at_attach=MANY - len(has))
    engine.context.settings = replace(engine.context.settings, bounds=bounds)
    assert "a1 -> a2 Stay" not in told.tell("move c a2\nwithin 20000 a2 serves s")
    told.end_well()


def test_nothing_is_frozen_before_all_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pause would be as long as the rest of the copy."""
    told = Told(monkeypatch)
    told.tell("move c a2\nuntil a2 -> a1 ChunkStored")
    told.story.world.lose_next["Chunk"] = 1 << 30
    assert "a2 is target ready" not in told.tell("run 2000")
    told.story.world.lose_next.clear()
    told.tell("within 5000 a2 serves s")
    told.end_well()


def test_a_copy_of_what_all_receivers_have_by_now_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(monkeypatch)
    told.story.world.lose_next["Chunk"] = 1 << 30
    told.tell("resume c\nmove c a1\ngive s a2\nuntil a2 is target shadowing\nrun 1000")
    told.story.world.lose_next.clear()
    told.tell("within 1000 a2 serves s")
    assert told.chunks[-1][1] == []
    told.end_well()


def copied_to_a_slow_disk(monkeypatch: pytest.MonkeyPatch, copy_at_attach: int) -> Told:
    """All is copied to a2, which writes only when it must, and it says that it is ready."""
    told = Told(monkeypatch, copy_at_attach=copy_at_attach, copy_unsaved=1_000)
    monkeypatch.setattr(keeper, "STORE_BATCH", 1_000_000)
    told.story.world.nodes[ProxyId("a2")].slow_until = 1 << 30
    told.tell("move c a2\nwithin 5000 a2 -> a1 Ready")
    return told


def test_a_long_copy_is_on_the_disk_before_the_source_freezes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = copied_to_a_slow_disk(monkeypatch, copy_at_attach=6)
    # What comes in one chunk may still wait.
    assert len(told.rows("a2")) >= MANY - 4
    told.tell("run 3000")
    told.end_well()


def test_a_short_copy_for_which_the_client_waits_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = copied_to_a_slow_disk(monkeypatch, copy_at_attach=1_000)
    assert len(told.rows("a2")) < MANY - 4
    told.tell("run 3000")
    told.end_well()
