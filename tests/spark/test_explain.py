"""What became of a notification, as the files of a run tell it: one scenario for each end that it can have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from spark.command import explain as command
from spark.evaluation import Attributes
from spark.explain import Explanation, explain, why_not
from spark.source import BadInput, Folder, locate
from tests.spark.runs import Run
from waypost.facts import Departure, GapCause, RemovalPolicy
from waypost.identity import Coordinate
from waypost.keys import Key, Protection
from waypost.subscription.parser import read

A = "A/0"
WANTED = "topic == 'x' && n > 0"

app = typer.Typer(rich_markup_mode=None)
app.command()(command)


def prepared() -> tuple[Run, list[Coordinate]]:
    """A session that wants topic x with n above 0, of which four were published."""
    run = Run()
    sent = [run.publish("A", topic="x", n=n) for n in range(4)]
    run.subscribe("s", WANTED, {A: -1})
    run.own("s", "a", 1)
    return run, sent


def explained(run: Run, folder: Path, which: str, **options: str) -> Explanation:
    source = locate(str(run.write(folder)))
    assert isinstance(source, Folder)
    return explain(source, which, options.pop("session", "s"), **options)


def given(run: Run, at: Coordinate) -> None:
    run.receive("s", at)


def given_twice(run: Run, at: Coordinate) -> None:
    run.receive("s", at)
    run.receive("s", at)


def removed(run: Run, at: Coordinate) -> None:
    run.attest("removed", "s", origin=A, offsets=[at.offset], policies=[RemovalPolicy.MAX_COUNT], epoch=1)


def told_of_a_gap(run: Run, at: Coordinate) -> None:
    run.attest(
        "gap", "s", receiver="r", origin=A, offsets=[at.offset, at.offset + 1], cause=GapCause.RETENTION, epoch=1
    )


def deleted(run: Run, at: Coordinate) -> None:
    run.attest("deleted", "s", frontier={A: at.offset}, epoch=1)


def left_for_good(run: Run, at: Coordinate) -> None:
    run.attest("unregistered", "s", receiver="r", cause=Departure.LEFT, frontier={A: 0}, epoch=1)


def nothing(run: Run, at: Coordinate) -> None:
    pass


@pytest.mark.parametrize(
    ("scenario", "sentence"),
    [
        (given, "r has it"),
        (given_twice, "r has it, 2 times"),
        (removed, "it was owed, and removed by max-count"),
        (told_of_a_gap, "it was owed, and a receiver was told of a gap (retention)"),
        (deleted, "it was owed; the session was deleted"),
        (left_for_good, "it was owed; r left for good (left)"),
        (nothing, "it was owed, and nobody says who has it: it waits, or is lost; `waypost audit` says which"),
    ],
)
def test_every_end_is_explained(scenario: Callable[[Run, Coordinate], None], sentence: str, tmp_path: Path) -> None:
    run, sent = prepared()
    scenario(run, sent[2])
    found = explained(run, tmp_path, "A/0 2")
    assert found.sentence == f"A/0:2 and session s: {sentence}"
    whats = [line.what for line in found.lines]
    assert "published" in whats and whats[-1] == "matched"
    times = [line.at_ms for line in found.lines if line.at_ms is not None]
    assert times == sorted(times)
    assert {"subscribed", "effective", "owned"} <= set(whats)


def test_each_line_names_the_place_where_it_stands(tmp_path: Path) -> None:
    run, sent = prepared()
    given(run, sent[2])
    for line in explained(run, tmp_path, "A/0:2").lines:
        name, _, line_number = line.where.rpartition(":")
        file = Path(name)
        if file.suffix == ".jsonl":
            assert f'"{line.what}"' in file.read_text().splitlines()[int(line_number) - 1] or line.what == "matched"
        else:
            assert (file.name, line_number) == ("log.db", "2")


@pytest.mark.parametrize(
    ("offset", "reason"),
    [
        (0, "n > 0 is false, as n is 0"),
        (4, "topic == \"x\" is false, as topic is 'y'; n > 0 is bottom, as n is absent"),
    ],
)
def test_predicate_that_is_to_blame_is_named(offset: int, reason: str, tmp_path: Path) -> None:
    run, _ = prepared()
    run.publish("A", topic="y")
    found = explained(run, tmp_path, f"A/0:{offset}")
    assert found.sentence.endswith("it was not owed: none of 1 subscriptions takes it")
    assert (found.lines[-1].what, found.lines[-1].text) == ("not matched", f"s1: {reason}")


def test_notification_outside_of_a_subscriptions_time_was_not_owed(tmp_path: Path) -> None:
    run = Run()
    for n in range(1, 6):
        run.publish("A", topic="x", n=n)
    run.subscribe("s", WANTED, {A: 1})
    run.attest("unsubscribed", "s", subscription="s1", frontier={A: 3}, epoch=1)
    texts = [explained(run, tmp_path / str(n), f"A/0:{n}").lines[-1].text for n in (0, 3, 4)]
    assert texts[0] == "s1: it took effect above 1 of A/0, behind the notification"
    assert texts[1] == f"s1: {WANTED}"
    assert texts[2] == "s1: it ended at 3 of A/0, before the notification"


@pytest.mark.parametrize(("consumer", "meets"), [(b"right", True), (b"other", False)])
def test_keys_that_do_not_meet_are_a_reason(consumer: bytes, meets: bool, tmp_path: Path) -> None:
    def protected(key: bytes) -> Protection:
        public = Key("sha256-dual", "producer", b"p"), Key("sha256-dual", "consumer", key)
        return Protection(public, insecure=False)

    run = Run()
    run.publish("A", topic="x", n=1, protection=protected(b"right"))
    run.subscribe("s", WANTED, {A: -1}, protection=protected(consumer))
    what = explained(run, tmp_path, "A/0:0").lines[-1].text
    assert what == ("s1: " + WANTED if meets else "s1: the keys of the two sides do not meet")


def test_notification_is_found_by_id_and_by_expression(tmp_path: Path) -> None:
    run, _ = prepared()
    folder = run.write(tmp_path)
    source = locate(str(folder))
    assert isinstance(source, Folder)
    for which in ("p/life/3", "n == 2", "A/0:2"):
        assert explain(source, which, "s").sentence.startswith("A/0:2 and session s: ")


@pytest.mark.parametrize(
    ("which", "complaint"),
    [
        ("n >= 2", "2 notifications are meant: A/0:2, A/0:3"),
        ("n == 9", "no log has a notification n == 9"),
        ("p/life/9", "no log has a notification p/life/9"),
        ("C/0:1", "the run has no log of site C; it has A"),
        ("n ==", "n == is no coordinate (ORIGIN:OFFSET), no id (PRODUCER/INCARNATION/SEQUENCE) and no expression: "),
    ],
)
def test_what_names_no_single_notification_is_refused_in_one_line(which: str, complaint: str, tmp_path: Path) -> None:
    run, _ = prepared()
    with pytest.raises(BadInput) as refused:
        explained(run, tmp_path, which)
    assert refused.value.message.startswith(complaint)
    assert "\n" not in refused.value.message


def test_coordinate_is_of_one_log_epoch(tmp_path: Path) -> None:
    run, sent = prepared()
    run.begin_epoch("A", {A: (sent[2].offset, sent[3].offset)})
    later = run.publish("A", topic="x", n=9)
    assert later.origin == "A/0.2"
    assert explained(run, tmp_path / "1", f"A/0.2:{later.offset}").sentence
    for number, elsewhere in enumerate((f"A/0:{later.offset}", f"A/0.2:{sent[1].offset}")):
        assert explained(run, tmp_path / f"2{number}", elsewhere).sentence.endswith("no notification stands there")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    run, _ = prepared()
    assert explained(run, tmp_path / "1", "A/0:99").sentence.endswith("no notification stands there")
    with pytest.raises(BadInput, match="no journal of the run speaks of session t"):
        explained(run, tmp_path / "2", "A/0:2", session="t")


def test_another_receivers_delivery_does_not_count(tmp_path: Path) -> None:
    run, sent = prepared()
    given(run, sent[2])
    assert explained(run, tmp_path / "1", "A/0:2", receiver="r").sentence.endswith("r has it")
    with pytest.raises(BadInput, match="no journal of the run speaks of receiver other of session s; there is r"):
        explained(run, tmp_path / "2", "A/0:2", receiver="other")
    run.attest("attached", "s", receiver="other")
    assert "nobody says who has it" in explained(run, tmp_path / "3", "A/0:2", receiver="other").sentence


@pytest.mark.parametrize(
    ("expression", "attributes", "reasons"),
    [
        ("a == 1", {"a": 1}, []),
        ("a == 1 || b == 2", {"a": 2}, ["a == 1 is false, as a is 2", "b == 2 is bottom, as b is absent"]),
        ("!(a == 1)", {"a": 1}, ["!a == 1 is false, as a is 1"]),
        ("a == 1 ^^ b == 2", {"a": 1, "b": 2}, ["a == 1 ^^ b == 2 is false, as a is 1, b is 2"]),
        ("a == 1 && (b == 1 || c == 1)", {"a": 1, "c": "x" * 99}, [
            "b == 1 is bottom, as b is absent", f"c == 1 is bottom, as c is '{'x' * 59}..."
        ]),
    ],
)  # fmt: skip
def test_reasons(expression: str, attributes: Attributes, reasons: list[str]) -> None:
    assert why_not(read(expression), attributes) == reasons


def test_people_read_lines_and_programs_json(tmp_path: Path) -> None:
    run, sent = prepared()
    given(run, sent[2])
    folder = str(run.write(tmp_path))
    done = CliRunner().invoke(app, ["A/0:2", "--session", "s", "--run", folder])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == "A/0:2 and session s: r has it"
    assert "1970-01-01 00:00:00.000  received      r has it from a at epoch 1  [" in done.stdout
    printed = CliRunner().invoke(app, ["A/0:2", "--session", "s", "--run", folder, "--json"]).stdout
    assert '"sentence": "A/0:2 and session s: r has it"' in printed
