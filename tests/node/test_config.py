"""Configuration: flags over environment over file over defaults; every refusal names field and source."""

from __future__ import annotations

from pathlib import Path

import pytest

from node.config import load_config
from waypost.errors import BadConfiguration


def test_a_flag_wins_over_the_environment_which_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "waypost.toml"
    file.write_text('name = "from-file"\nsite = "from-file"\nport = 1\n')
    monkeypatch.setenv("WAYPOST_SITE", "from-environment")
    monkeypatch.setenv("WAYPOST_PORT", "2")
    config = load_config({"port": 3, "host": None}, file)
    assert (config.name, config.site, config.port) == ("from-file", "from-environment", 3)
    assert config.host == "127.0.0.1"


def test_neighbours_are_separated_by_commas() -> None:
    assert load_config({"neighbours": "B,C"}, None).neighbours == ("B", "C")


@pytest.mark.parametrize(
    ("flags", "field", "source"),
    [
        ({"port": 70_000}, "port", "flag"),
        ({"name": ""}, "name", "flag"),
        ({"site": "a/b"}, "site", "flag"),
        ({"lease_ttl_ms": 1}, "lease_ttl_ms", "flag"),
        ({"prefix": "no blanks please"}, "prefix", "flag"),
    ],
)
def test_a_bad_flag_is_refused_by_name(flags: dict[str, object], field: str, source: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        load_config(flags, None)
    assert refusal.value.field == field
    assert source in refusal.value.message


def test_a_bad_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_PORT", "many")
    with pytest.raises(BadConfiguration, match="WAYPOST_PORT"):
        load_config({}, None)


def test_an_unknown_key_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "waypost.toml"
    file.write_text("prot = 7301\n")
    with pytest.raises(BadConfiguration) as refusal:
        load_config({}, file)
    assert refusal.value.field == "prot"
    assert str(file) in refusal.value.message


@pytest.mark.parametrize("text", [None, "name = "])
def test_a_file_that_is_missing_or_broken_is_named(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "waypost.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(BadConfiguration, match=r"waypost\.toml"):
        load_config({}, file)
