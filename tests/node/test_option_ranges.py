"""Numbers of options that are out of their range: refused when options are read, before anything else is done."""

from __future__ import annotations

from dataclasses import fields

import pytest
from typer.testing import CliRunner

from node.cli.app import app
from node.configuration.config import NodeConfig

NUMBERS = [field for field in fields(NodeConfig) if "ge" in field.metadata["bounds"] and not field.metadata["check"]]
TOO_LOW = [(field.name, field.metadata["bounds"]["ge"] - 1) for field in NUMBERS]
TOO_HIGH = [(field.name, field.metadata["bounds"]["le"] + 1) for field in NUMBERS if "le" in field.metadata["bounds"]]
OTHERS = [
    ["sub", "n > 0", "--ttl", "-1"],
    ["sub", "n > 0", "--ttl", "0"],
    ["sub", "n > 0", "--ttl", "99999999999"],
    ["sub", "n > 0", "--max-count", "-3"],
    ["sub", "n > 0", "--max-count", "99999999"],
    ["sub", "n > 0", "--wait", "-1"],
    ["sub", "n > 0", "--wait", "nan"],
    ["sub", "n > 0", "--wait", "inf"],
    ["sub", "n > 0", "--count", "-1"],
    ["gateway", "n > 0", "--name", "g", "--lease", "0"],
    ["gateway", "n > 0", "--name", "g", "--cost", "0"],
    ["gateway", "n > 0", "--name", "g", "--ttl", "256"],
    ["gateway", "n > 0", "--name", "g", "--port", "70000"],
    ["drain", "a", "--rate", "0"],
    ["drain", "a", "--rate", "nan"],
    ["token", "x", "--hours", "-1"],
    ["sessions", "set", "s", "--expiry", "99999999999"],
    ["sessions", "set", "s", "--max-count", "99999999999"],
    ["sessions", "set", "s", "--max-bytes", "99999999999999999999"],
    ["sessions", "retain", "s", "x", "--ttl", "-1"],
    ["sessions", "retain", "s", "x", "--ttl", "99999999999"],
    ["sessions", "retain", "s", "x", "--max-count", "99999999"],
    ["rendezvous", "receive", "folder", "--as", "a", "--wait", "inf"],
    ["rendezvous", "receive", "folder", "--as", "a", "--count", "-1"],
]


@pytest.fixture(autouse=True)
def nothing_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a configuration is judged, nor a proxy looked for."""

    def begun(*_: object, **__: object) -> None:
        raise AssertionError("something was begun")

    monkeypatch.setattr("node.cli.app.load_serving", begun)
    monkeypatch.setattr("node.cli.options.load_config", begun)
    monkeypatch.setattr("node.cli.commands.interrupt.run", begun)
    monkeypatch.setattr("node.cli.commands.session_admin.address", begun)
    monkeypatch.setattr("node.cli.commands.moves.address", begun)


def refusal(words: list[str]) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2, done.output
    return " ".join(done.output.split())


@pytest.mark.parametrize(("name", "number"), [*TOO_LOW, *TOO_HIGH])
def test_setting_of_a_proxy_out_of_its_range_is_refused(name: str, number: int) -> None:
    option = f"--{name.replace('_', '-')}"
    assert f"Invalid value for '{option}'" in refusal(["serve", f"{option}={number}"])


@pytest.mark.parametrize("words", OTHERS, ids=" ".join)
def test_option_out_of_its_range_is_refused(words: list[str]) -> None:
    assert "Invalid value for" in refusal(words)


def test_every_bound_of_a_setting_is_one_that_the_command_line_checks() -> None:
    """Those of text are checked when it is read."""
    for field in fields(NodeConfig):
        numbers = {"ge", "le"} & field.metadata["bounds"].keys()
        assert not numbers or field in NUMBERS or field.metadata["check"]


@pytest.mark.parametrize(
    ("words", "option"), [(["retain", "s", "x"], "--ttl"), (["set", "s"], "--expiry")], ids=["retain", "set"]
)
def test_change_that_changes_nothing_is_refused_with_what_to_write(words: list[str], option: str) -> None:
    done = CliRunner().invoke(app, ["sessions", *words])
    assert "say what is to be changed" in str(done.exception)
    assert option in str(done.exception)
