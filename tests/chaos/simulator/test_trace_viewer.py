"""The picture of a run: every message and note is in it, in the lane of its own, and what goes wrong is marked."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from chaos.simulator.kernel.recorder import STEPS, VIOLATED, Recording
from chaos.simulator.runs.generator import draw
from chaos.simulator.runs.schedule import KEPT, Kept, violations_of
from chaos.simulator.trace_viewer import FAULTY, drawn
from tests.chaos.simulator.mutants import MUTANTS


class Shapes(HTMLParser):
    """What a page shows, by kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.arrows = self.lost = self.steps = self.wrong = self.spans = 0
        self._in_text = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        kind = dict(attrs).get("class") or ""
        self._in_text = tag in ("text", "p", "li")
        self.arrows += tag == "path" and kind.startswith("arrow")
        self.lost += kind == "arrow lost"
        self.steps += kind == "step"
        self.wrong += kind == "wrong"
        self.spans += tag == "title"

    def handle_data(self, data: str) -> None:
        if self._in_text:
            self.texts.append(data)


def recorded(seed: int) -> tuple[Recording, Shapes]:
    run_of, text = draw(seed), drawn(draw(seed), f"seed {seed}")[0]
    world = run_of.world(recorded=True)
    run_of.play(world=world)
    assert world.recording is not None
    return world.recording, Shapes(text)


@pytest.mark.parametrize("seed", [7, 11, 84080264])
def test_a_run_is_drawn_with_all_that_happened_in_it(seed: int) -> None:
    recording, shapes = recorded(seed)
    assert shapes.arrows == len(recording.messages) > 50
    assert shapes.lost == sum(message.arrives_ms is None for message in recording.messages)
    assert shapes.steps == len(draw(seed).script) == sum(note.lane == STEPS for note in recording.notes)
    assert (shapes.wrong, shapes.texts.count("all is well")) == (0, 1)
    assert {span.condition for span in recording.spans} >= {"serving", "frozen", "shadow"}


@pytest.mark.parametrize("seed", [7, 11])
def test_a_run_that_is_recorded_is_the_same_run(seed: int) -> None:
    plain, recorded_too = draw(seed).world(), draw(seed).world(recorded=True)
    for world in (plain, recorded_too):
        draw(seed).play(world=world)
    assert plain.hash() == recorded_too.hash()


def test_picture_marks_a_fault_where_it_occurs() -> None:
    mutant = MUTANTS["frozen and let go of"]
    with mutant.switch():
        kept = Kept.read(KEPT / f"{mutant.kept[0]}.json")
        runs = [kept.schedule, *(replace(kept.schedule, seed=seed) for seed in kept.seeds)]
        run = next(run for run in runs if violations_of(run) == ["FAULT KeyError: 's'"])
        text, wrong = drawn(run, mutant.name)
    assert wrong == ["FAULT KeyError: 's'"]
    shapes = Shapes(text)
    assert shapes.wrong == 1 and "WRONG FAULT KeyError: 's'" in shapes.texts


def test_recording_has_when_a_process_was_down() -> None:
    recording, _ = recorded(84080264)
    down = [span for span in recording.spans if span.condition == "down"]
    assert [(span.lane, span.from_ms) for span in down] == [("a2", 4630), ("b1", 7338), ("a1", 9683)]
    assert all(span.until_ms is not None and span.until_ms > span.from_ms for span in down)
    assert not [note for note in recording.notes if note.lane == VIOLATED]


def test_recording_has_what_was_away_cut_full_and_slow() -> None:
    """Each fault of the environment that a schedule has is a band of its own."""
    script = [
        (10, "slow the disk", 4_001),
        (10, "fill the disk", 2_000),
        (10, "slow the log", 1_999),
        (10, "slow the journal", 2_998),
        (10, "cut a link", 3_000),
        (10, "part two proxies", 5_008),
        (10, "lose the quorum", 3_001),
        (10, "lose the end of a log", 0),
    ]
    run = replace(draw(7), sites={"A": ["a1", "a2"], "B": ["b1"]}, script=script)
    world = run.world(recorded=True)
    run.play(world=world)
    assert world.recording is not None
    bands = {(span.of, span.condition) for span in world.recording.spans if span.condition in FAULTY}
    assert bands >= {("writes", "slow"), ("disk", "full"), ("appends", "slow"), ("journal", "slow"), ("", "away")}
    assert {span.lane for span in world.recording.spans if span.condition == "away"} == {"registry", "log A"}
    assert {of.split()[0] for of, condition in bands if condition == "cut"} >= {"records", "to"}


def test_command_writes_the_page_and_refuses_more_than_one_seed(tmp_path: Path) -> None:
    def sim(*words: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("waypost")), "sim", *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)

    page = tmp_path / "run.html"
    done = sim("--seeds", "7..8", "--html", str(page))
    assert (done.returncode, done.stdout.splitlines()) == (0, ["all is well", f"picture: {page}"])
    assert page.read_text().startswith("<!doctype html>")
    for words, heading in (
        (("--kept", "96999658"), "kept schedule 96999658"),
        (("--scenario", "a_third_site_is_away"), "scenario a_third_site_is_away"),
    ):
        done = sim(*words, "--html", str(page))
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"picture: {page}")
        assert f"<h1>{heading}</h1>" in page.read_text()
    unknown = sim("--kept", "9699965", "--html", str(page))
    assert unknown.returncode == 5 and "hint: did you mean 96999658" in unknown.stderr
    refused = sim("--seeds", "7..9", "--html", str(page))
    assert refused.returncode == 2 and "a picture is of one seed, such as 7..8" in refused.stderr
