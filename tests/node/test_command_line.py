"""The command line, as a process: one-line errors, exit statuses, JSON on demand."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from discovery import browse
from discovery.announce import Announcement
from node.cli.app import app
from node.cli.commands import receive
from waypost.errors import NoProxy, WaypostError

WAYPOST = str(Path(sys.executable).with_name("waypost"))


def run(*arguments: str, stdin: str = "", timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [WAYPOST, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.parametrize(
    ("expression", "notification", "word"),
    [
        ("dep_delay > 30", '{"dep_delay": 45}', "true"),
        ("dep_delay > 30", '{"dep_delay": 5}', "false"),
        ("dep_delay > 30", "{}", "bottom"),
        ("int64(n)", '{"n": 3000000000}', "true"),
        ("int32(n)", '{"n": 3}', "true"),
    ],
)
def test_match_prints_one_word(expression: str, notification: str, word: str) -> None:
    done = run("match", expression, notification)
    assert (done.stdout, done.stderr, done.returncode) == (f"{word}\n", "", 0)


def test_a_bad_expression_is_one_line_with_its_place_marked() -> None:
    done = run("match", "b == 1 && a==1", "{}")
    lines = done.stderr.splitlines()
    assert done.returncode == 2
    assert lines[0].startswith("error: PARSE_ERROR at 10: ")
    assert lines[2].index("^") - lines[1].index("b == 1") == 10


def test_batch_answers_every_line_with_one_line() -> None:
    lines = [
        '{"expr": "a == 1", "notification": {"a": {"int32": 1}}}',
        '{"expr": "a ==", "notification": {}}',
        "no JSON",
        '{"expr": "nan(r)", "notification": {"r": {"real64": "nan"}}}',
    ]
    done = run("match", "--batch", "-", stdin="\n".join(lines))
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [answer["result"] for answer in answers] == ["true", "error", "error", "true"]
    assert (answers[1]["code"], answers[1]["offset"]) == ("PARSE_ERROR", 4)


def test_version_is_that_of_the_installed_package() -> None:
    done = run("--version")
    assert (done.stdout, done.returncode) == (f"waypost {version('waypost')}\n", 0)


def test_help_whose_reader_has_gone_ends_in_peace() -> None:
    """With a line at a time, and with all of it written at the end."""
    for buffered in ("", "1"):
        with subprocess.Popen(
            [WAYPOST],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
        ) as child:
            assert child.stdout is not None and child.stderr is not None
            child.stdout.close()
            assert (child.stderr.read(), child.wait(60)) == (b"", 0)


def test_errors_are_json_where_json_is_asked_for() -> None:
    done = run("match", "nosuch(a)", "{}", "--json")
    error = json.loads(done.stdout)["error"]
    assert (error["code"], error["offset"], done.returncode) == ("UNKNOWN_FUNC", 0, 2)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["nosuch"], 2),
        (["sub"], 2),
        (["match", "a == 1"], 2),
        (["match", "--batch", "/no/such/file"], 5),
        (["pub", "noequals", "--proxy", "ws://127.0.0.1:1"], 2),
        (["pub", "n:int32=much", "--proxy", "ws://127.0.0.1:1"], 2),
        (["pub", "n==1", "--proxy", "ws://127.0.0.1:1"], 2),
        (["pub", "n=1", "--proxy", ""], 2),
        (["serve", "--port", "70000"], 2),
        (["sessions", "ls", "--proxy", "ws://127.0.0.1:1"], 3),
        (["audit", "/no/such/folder"], 2),
        (["sub", "a == 1", "--count", "-1"], 2),
        (["sub", "a == 1", "--wait", "-1"], 2),
        (["demo", "--data", "/proc/x"], 2),
        (["demo", "--data", __file__], 2),
    ],
)
def test_wrong_usage_is_one_line_perhaps_a_hint_and_a_status(arguments: list[str], status: int) -> None:
    done = run(*arguments)
    first, *rest = done.stderr.splitlines()
    assert done.returncode == status
    assert first.startswith("error: ")
    assert [line.partition(" ")[0] for line in rest] in ([], ["hint:"])
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (["--name", "a", "--site=A", "--name=b"], "REFUSED: name: it is given twice"),
        (["--neighbours", "B", "--neighbours", "C"], "REFUSED: neighbours: it is given twice"),
        (["--lease-ttl-ms", "3s"], "REFUSED: Invalid value for '--lease-ttl-ms': it is no whole number"),
    ],
)
def test_a_wrong_setting_is_refused_in_our_words(arguments: list[str], refusal: str) -> None:
    done = run("serve", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {refusal}")


@pytest.mark.parametrize(
    ("command", "refusal"),
    [
        (["sub", "a == 1", "-f", "{a!z}"], "REFUSED: format: '{a!z}' has the conversion !z; there are !r, !s and !a"),
        (["sub", "a == 1", "-f", "{"], "REFUSED: format: '{' is no format: "),
        (["sub", "a == 1", "--order", "x"], "BAD_ARGUMENT: order: 'x' is none of any, fifo, "),
        (["sub", "a == 1", "--secure"], "REFUSED: secure: nothing passes by --secure without keys"),
        (["pub", "a=1", "--secure"], "REFUSED: secure: nothing passes by --secure without keys"),
        (["sessions", "set", "s", "--events", "x"], "BAD_ARGUMENT: events: 'x' is none of best-effort, persistent"),
        (["sessions", "set", "s", "--discard", "x"], "BAD_ARGUMENT: discard: 'x' is none of any, fifo, "),
    ],
)
def test_a_wrong_option_is_refused_before_anybody_is_asked(command: list[str], refusal: str) -> None:
    refused = CliRunner().invoke(app, [*command, "--proxy", "ws://127.0.0.1:1"]).exception
    assert isinstance(refused, WaypostError)
    assert str(refused).startswith(refusal)


@pytest.mark.parametrize("address", ["http://127.0.0.1:7301", "garbage", "ws://", "ws://host:many"])
@pytest.mark.parametrize(
    "command", [["sub", "a == 1"], ["pub", "a=1"], ["sessions", "ls"], ["sessions", "show", "s"], ["drain", "a"]]
)
def test_an_address_that_can_be_no_proxys_is_refused_at_once(command: list[str], address: str) -> None:
    refusal = f"error: REFUSED: proxy: {address!r} is no address of a proxy; it is written as ws://host:7301\n"
    cli_runner = CliRunner().invoke(app, [*command, "--proxy", address])
    assert isinstance(cli_runner.exception, WaypostError)
    assert (f"error: {cli_runner.exception}\n", cli_runner.exception.exit_status) == (refusal, 2)


def test_an_address_in_the_environment_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_PROXY", "garbage")
    done = run("sub", "a == 1")
    assert (done.returncode, done.stderr) == (
        2,
        "error: REFUSED: proxy: 'garbage' is no address of a proxy; it is written as ws://host:7301\n",
    )


@pytest.mark.parametrize(
    ("attributes", "refusal"),
    [
        (["a:int32=99999999999"], "a: 99999999999 is not from -2147483648 to 2147483647"),
        (["a:int64=-9223372036854775809"], f"a: -9223372036854775809 is not from {-(2**63)} to {2**63 - 1}"),
        (["a:real64=1e999"], "a: 1e999 is too large for a real64"),
        (["a=1", "b=2", "a:string=2"], "a: given twice; a notification has one value of a name"),
        (["a:int8=1"], "a: 'int8' is none of int32, int64, real64, string, opaque"),
    ],
)
def test_attribute_that_does_not_fit_its_named_type_is_refused_by_name(attributes: list[str], refusal: str) -> None:
    done = run("pub", *attributes, "--proxy", "ws://127.0.0.1:1")
    assert (done.returncode, done.stderr) == (2, f"error: BAD_NOTIFICATION: {refusal}\n")


@pytest.mark.parametrize("where", ["/proc/nope", __file__])
def test_a_folder_that_cannot_be_written_is_told_before_anything_listens(where: str) -> None:
    done = run("serve", "--data", where, "--no-discovery")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: BAD_CONFIGURATION: data: {where}/proxies/a cannot be written: ")


def test_a_reader_that_has_enough_ends_a_batch_quietly(tmp_path: Path) -> None:
    many = tmp_path / "many.jsonl"
    many.write_text('{"expr": "a == 1", "notification": {"a": 1}}\n' * 20_000)
    command = f"{WAYPOST} match --batch {many} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ('{"result": "true"}\n', "", 0)


def test_a_disk_that_is_full_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        command = [WAYPOST, "match", "a == 1", '{"a": 1}']
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    printed = "error: OUTPUT_FAILED: stdout cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (3, printed)


def test_help_of_serve_shows_the_defaults() -> None:
    printed = " ".join(run("serve", "--help").stdout.split())
    for default in ("[default: (127.0.0.1)]", "[default: (3000); ", "[default: (run)]", "[default: (yes)]"):
        assert default in printed


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("serve", "sub", "pub", "match", "sessions", "audit", "demo"):
        assert f"  {command} " in done.stdout


@pytest.mark.parametrize("group", ["", "config", "sessions", "sites", "links", "key", "rendezvous", "experiment"])
def test_help_cuts_no_summary(group: str) -> None:
    listed = run(*group.split(), "--help").stdout.partition("Commands:")[2]
    assert listed and "..." not in listed


@pytest.mark.parametrize("command", ["serve", "sub", "pub", "match", "sessions", "sessions ls", "audit", "demo"])
def test_help_of_a_command_has_both_names_and_imports_no_library_of_the_command(command: str) -> None:
    script = f"""
import sys
from node.cli.app import main
sys.argv = ["waypost", *{command.split()!r}, sys.argv[1]]
try:
    main()
finally:
    print(*sorted({{"pydantic", "zeroconf", "pyspark", "rich", "asyncio"}} & sys.modules.keys()), file=sys.stderr)
"""
    printed = [
        subprocess.run([sys.executable, "-c", script, name], capture_output=True, text=True, timeout=60, check=False)
        for name in ("-h", "--help")
    ]
    assert printed[0].stdout.startswith(f"Usage: waypost {command} ")
    assert printed[0].stdout == printed[1].stdout
    assert [(each.stderr, each.returncode) for each in printed] == [("\n", 0)] * 2


def test_help_tells_the_exit_statuses() -> None:
    assert "Exit status: 0 done; 1 the answer is no" in " ".join(run("--help").stdout.split())


def test_a_fault_inside_is_one_line_and_status_70() -> None:
    script = """
import sys
from node.cli.app import main
from node.cli.commands import match
def fail(*_, **__): raise KeyError("x")
match.match_one = fail
sys.argv = ["waypost", "match", "a == 1", "{}"]
main()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 70
    assert done.stderr.splitlines()[0] == "error: INTERNAL: KeyError: 'x'"


async def test_sub_without_a_proxy_fails_in_one_line_in_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def nobody(*_: object) -> list[Announcement]:
        return []

    monkeypatch.setattr(browse, "browse", nobody)
    monkeypatch.setattr(receive, "ATTACH_S", 0.5)
    began = time.monotonic()
    with pytest.raises(NoProxy, match=r"^NO_PROXY: no proxy let us in within 0\.5 s: no proxy is known$") as lonely:
        await receive.receive(
            "a == 1", session=None, receiver="r", count=0, wait_s=0, form=None, proxy=None, as_json=False
        )
    assert time.monotonic() - began < 3
    assert lonely.value.exit_status == 3
    assert capsys.readouterr() == ("", "")


async def test_a_sub_that_is_to_wait_so_long_does_not_look_for_a_proxy_for_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def nobody(*_: object) -> list[Announcement]:
        await asyncio.sleep(60)
        return []

    monkeypatch.setattr(browse, "browse", nobody)
    began = time.monotonic()
    with pytest.raises(NoProxy, match=r"within 0\.3 s"):
        await receive.receive(
            "a == 1", session=None, receiver="r", count=0, wait_s=0.3, form=None, proxy=None, as_json=False
        )
    assert time.monotonic() - began < 3


@pytest.mark.parametrize(
    ("arguments", "stdin", "expected"),
    [
        (("sub", "n > 0", "-f", "{n"), "", "REFUSED: format: '{n' is no format"),
        (("sub", "n > 0", "-f", "{}"), "", "REFUSED: format: '{}' names an attribute by its position"),
        (("sub", "n > 0", "-f", "{n} {0}"), "", "REFUSED: format: '{n} {0}' names an attribute by its position"),
        (("sub", "n > 0", "--session", "s" * 257), "", "BAD_ARGUMENT: session: 257 characters"),
        (("pub", "-"), '{"a": 1e400}', "BAD_MESSAGE: 1e400 is too large for a real64"),
        (("pub", "-"), '{"a": 1, "a": 2}', "BAD_MESSAGE: a: given twice"),
        (("pub", "--lines", "n=1"), "", "BAD_NOTIFICATION: what is published is read from stdin"),
        (("drain", "a", "--pause", "--stop"), "", "BAD_ARGUMENT: pause: a drain stays where it is, or is over"),
        (
            ("sim", "--seeds", "7..8", "--scenario", "x"),
            "",
            "BAD_ARGUMENT: seeds: a scenario or a kept schedule is no seed",
        ),
    ],
)
def test_invalid_arguments_are_refused_in_one_line_without_a_connection(
    arguments: tuple[str, ...], stdin: str, expected: str
) -> None:
    done = run(*arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0].startswith(f"error: {expected}")


def test_a_trace_has_no_json_and_says_so_in_json() -> None:
    done = run("sim", "--seeds", "7..8", "--trace", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["field"] == "json"
