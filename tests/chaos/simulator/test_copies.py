"""Copies of large sessions: one that is broken off goes on where it stopped, and nobody waits for a long one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from chaos.simulator import world
from chaos.simulator.checks.invariants import Invariants
from chaos.simulator.runs.scenario import Scenario
from handover.messages import Chunk, Prepared
from proxy.core.settings import EngineBounds
from proxy.ownership import incoming_transfers
from proxy.stream import store_writer
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


class Transcript:
    """A scenario, and the chunks of it: (transfer, numbers) in the order in which they came or were lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **bounds: int) -> None:
        monkeypatch.setattr(world, "SMALL", EngineBounds(chunk_entries=4, chunk_window=1, **bounds))
        self.scenario = Scenario()
        self.chunks: list[tuple[str, list[int]]] = []
        self.prepared: list[Prepared] = []
        says = Invariants.on_message

        def listen(invariants: Invariants, proxy: ProxyId, message: Any) -> None:
            says(invariants, proxy, message)
            if isinstance(message, Chunk):
                self.chunks.append((message.transfer, [stored_entry.number for stored_entry in message.entries]))
            elif isinstance(message, Prepared):
                self.prepared.append(message)

        monkeypatch.setattr(Invariants, "on_message", listen)
        self.record(BEGIN)

    def record(self, text: str) -> str:
        transcript = self.scenario.run(text.strip("\n") + "\n----\n")
        assert "it did not come to this" not in transcript
        return transcript

    def begin_and_break_off(self) -> set[int]:
        """Copy a part, then lose every chunk until the target gives up; return what it has, stored."""
        self.record("move c a2\nuntil a2 -> a1 ChunkStored\nuntil a2 -> a1 ChunkStored\nuntil a2 -> a1 ChunkStored")
        self.scenario.world.lose_next["Chunk"] = 1 << 30
        self.record("leave c\nwithin 20000 a2 is target aborted")
        self.scenario.world.lose_next.clear()
        self.record("run 1000")
        return set(self.rows("a2"))

    def rows(self, proxy: str) -> list[int]:
        return sorted(self.scenario.world.nodes[ProxyId(proxy)].store.rows.get(S, {}))

    def end_well(self) -> None:
        assert self.record("check").rstrip().endswith("all is well")
        given = [number for _, _, number in self.scenario.world.clients["c"].delivered]
        assert given == list(range(1, MANY + 1))


def test_resumed_transfer_does_not_send_received_entries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript(monkeypatch)
    has = transcript.begin_and_break_off()
    assert len(has) >= 8
    before = len(transcript.chunks)
    transcript.record("move c a2\nwithin 20000 a2 serves s")
    again = [number for _, numbers in transcript.chunks[before:] for number in numbers]
    assert again and not has & set(again)
    assert sorted([*has, *again]) == list(range(min(has), MANY + 1))
    transcript.end_well()


def test_entries_acknowledged_between_two_transfers_are_neither_kept_nor_sent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transcript = Transcript(monkeypatch)
    has = transcript.begin_and_break_off()
    transcript.record("resume c\nmove c a1\nrun 60\nleave c\nrun 500")
    source = transcript.scenario.world.nodes[ProxyId("a1")].engine
    assert source is not None
    oldest = source.sessions[S].entries.first_number
    assert min(has) < oldest <= MANY
    transcript.record("pause c\nmove c a2\nwithin 20000 a2 serves s\nrun 500")
    left = transcript.rows("a2")
    assert left[0] >= oldest and left == list(range(left[0], MANY + 1))
    transcript.record("resume c\nrun 1000")
    assert transcript.rows("a2") == []
    transcript.end_well()


def test_a_source_that_began_anew_sends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers may mean other entries now."""
    transcript = Transcript(monkeypatch)
    transcript.begin_and_break_off()
    transcript.record("crash a1\nstart a1\nwithin 20000 a1 serves s")
    before = len(transcript.chunks)
    transcript.record("move c a2\nwithin 20000 a2 serves s")
    assert transcript.prepared[0].copy != transcript.prepared[-1].copy
    again = [number for _, numbers in transcript.chunks[before:] for number in numbers]
    assert again == list(range(again[0], MANY + 1))
    assert set(transcript.rows("a2")) <= set(again)
    transcript.end_well()


def test_partial_copy_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_transfers, "COPY_KEPT_MS", 3_000)
    transcript = Transcript(monkeypatch)
    assert transcript.begin_and_break_off()
    transcript.record("run 4000")
    assert transcript.rows("a2") == []
    transcript.record("move c a2\nwithin 20000 a2 serves s")
    transcript.end_well()


def test_of_too_many_parts_of_copies_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incoming_transfers, "COPIES_KEPT", 0)
    transcript = Transcript(monkeypatch)
    assert not transcript.begin_and_break_off()
    transcript.end_well()


def test_client_is_relayed_during_a_long_copy_and_the_session_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    """F42: what is given does not wait for what is copied."""
    transcript = Transcript(monkeypatch, copy_at_attach=10)
    went = transcript.record("resume c\nmove c a2\nwithin 20000 a2 serves s").splitlines()
    given = [line for line in went[: went.index("a1 is source frozen")] if line.startswith("c is given")]
    assert "a2 is target relayed: the session follows when it is copied" in went
    assert (
        went.index("a1 -> a2 TransferDeclined")
        < went.index("a1 -> a2 HandoverOffer")
        < went.index("a1 is source frozen")
    )
    assert given
    transcript.end_well()


def test_a_copy_that_is_nearly_there_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript(monkeypatch)
    has = transcript.begin_and_break_off()
    engine = transcript.scenario.world.nodes["a1"].engine
    assert engine is not None
    bounds = replace(engine.env.settings.bounds, copy_at_attach=MANY - len(has))
    engine.env.settings = replace(engine.env.settings, bounds=bounds)
    assert "a1 -> a2 TransferDeclined" not in transcript.record("move c a2\nwithin 20000 a2 serves s")
    transcript.end_well()


def test_nothing_is_frozen_before_all_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the pause would be as long as the rest of the copy."""
    transcript = Transcript(monkeypatch)
    transcript.record("move c a2\nuntil a2 -> a1 ChunkStored")
    transcript.scenario.world.lose_next["Chunk"] = 1 << 30
    assert "a2 is target ready" not in transcript.record("run 2000")
    transcript.scenario.world.lose_next.clear()
    transcript.record("within 5000 a2 serves s")
    transcript.end_well()


def test_copy_of_acknowledged_entries_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = Transcript(monkeypatch)
    transcript.scenario.world.lose_next["Chunk"] = 1 << 30
    transcript.record("resume c\nmove c a1\ngive s a2\nuntil a2 is target shadowing\nrun 1000")
    transcript.scenario.world.lose_next.clear()
    transcript.record("within 1000 a2 serves s")
    assert transcript.chunks[-1][1] == []
    transcript.end_well()


def copied_to_a_slow_disk(monkeypatch: pytest.MonkeyPatch, copy_at_attach: int) -> Transcript:
    """All is copied to a2, which writes only when it must, and it says that it is ready."""
    transcript = Transcript(monkeypatch, copy_at_attach=copy_at_attach, copy_unsaved=1_000)
    monkeypatch.setattr(store_writer, "STORE_BATCH", 1_000_000)
    transcript.scenario.world.nodes[ProxyId("a2")].slow_until = 1 << 30
    transcript.record("move c a2\nwithin 5000 a2 -> a1 Ready")
    return transcript


def test_a_long_copy_is_on_the_disk_before_the_source_freezes(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = copied_to_a_slow_disk(monkeypatch, copy_at_attach=6)
    # What comes in one chunk may still wait.
    assert len(transcript.rows("a2")) >= MANY - 4
    transcript.record("run 3000")
    transcript.end_well()


def test_a_short_copy_for_which_the_client_waits_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    transcript = copied_to_a_slow_disk(monkeypatch, copy_at_attach=1_000)
    assert len(transcript.rows("a2")) < MANY - 4
    transcript.record("run 3000")
    transcript.end_well()
