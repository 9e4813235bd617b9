"""Wrong configurations: each is answered in one line that names the setting, by `config check` as by `serve`."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from node.cli.app import main
from node.configuration.config import NodeConfig, load_serving
from waypost.errors import BadConfiguration

REAL = ("--kafka=k:9092", "--etcd=e:2379")
WRONG: dict[str, tuple[tuple[str, ...], str, str]] = {
    "a name with a slash": (("--name=a/b",), "name", "no slash and no blank"),
    "no name": (("--name=",), "name", "it is empty"),
    "a name that is too long": ((f"--name={'a' * 1_000}",), "name", "at most"),
    "a site with a blank": (("--site=north pole",), "site", "no slash and no blank"),
    "its own site as a neighbour": (("--site=A", "--neighbours=B,A"), "neighbours", "A is the site of this proxy"),
    "a neighbour twice": (("--neighbours=B,C,B",), "neighbours", "B is named twice"),
    "a neighbour of no name": (("--neighbours=B,,C",), "neighbours", "a comma too many"),
    "a name that is too long for a folder": ((f"--name={'a' * 201}",), "name", "at most 200 bytes"),
    "a folder of no name": (("--data=",), "data", "no folder is named"),
    "a port that is none": (("--port=70000",), "", "too large: say 65535 or less"),
    "a negative port": (("--port=-1",), "", "too small: say 0 or more"),
    "every address, and none to advertise": (("--host=0.0.0.0",), "advertise", "no address that others can reach"),
    "an address with its port": (("--host=127.0.0.1:7000",), "host", "the port goes with --port"),
    "an address of IPv6 with its port": (("--host=fe80::1:7000:1::2",), "host", "the port goes with --port"),
    "an address with its scheme": (("--host=http://h",), "host", "is no host name or address"),
    "every address of IPv6": (("--host=::",), "advertise", "no address that others can reach"),
    "every address to advertise": (("--advertise=ws://0.0.0.0:1",), "advertise", "no address that others can reach"),
    "another scheme to advertise": (
        ("--advertise=http://h:1",),
        "advertise",
        "is no address of a proxy",
    ),
    "plain to advertise, with a certificate": (
        ("--advertise=ws://h:1", "--tls-cert=c.pem", "--tls-key=k.pem"),
        "advertise",
        "is reached at wss://",
    ),
    "a certificate of the port without its key": (("--tls-cert=pyproject.toml",), "tls_key", "it is missing"),
    "a certificate that is not there": (("--tls-cert=c.pem", "--tls-key=k.pem"), "tls_cert", "c.pem is no file"),
    "a key without its certificate": ((*REAL, "--backend-key=k.pem"), "backend_cert", "the key of no certificate"),
    "a certificate without its key": ((*REAL, "--backend-cert=c.pem"), "backend_key", "of no use without its key"),
    "a certificate without authorities": (
        (*REAL, "--backend-cert=c.pem", "--backend-key=k.pem"),
        "backend_ca",
        "shown over TLS only",
    ),
    "authorities of nobody": (("--backend-ca=pyproject.toml",), "backend_ca", "name them with --kafka and --etcd"),
    "TLS and none": (
        ("--kafka=h:1", "--etcd=http://h:2", "--backend-ca=pyproject.toml"),
        "etcd",
        "asks for TLS; leave out http://",
    ),
    "an operator twice": (("--operators=ann,ann",), "operators", "ann is named twice"),
    "semicolons between publishers": (("--publishers=ann;bob",), "publishers", "separated by commas"),
    "authorities that are not there": ((*REAL, "--backend-ca=ca.pem"), "backend_ca", "ca.pem is no file"),
    "nobody may publish": (("--publishers=,",), "publishers", "nobody is named"),
    "everybody may publish, by a star": (("--publishers=*",), "publishers", "name the principals"),
    "a star among the operators": (("--operators=ann,*",), "operators", "name the principals"),
    "more clients at one address than at all": (
        ("--max-connections-per-address=20", "--max-connections=10"),
        "max_connections_per_address",
        "more than --max-connections",
    ),
    "no operators": (("--operators=",), "operators", "nobody is named"),
    "a reliability that is none": (("--events=perfect",), "events", "'perfect' is neither"),
    "events kept for connections that are not": (("--connection=best-effort",), "connection", "mean nothing"),
    "a negative bound": (("--max-stored=-1",), "", "too small: say 0 or more"),
    "no clients at all": (("--max-connections=0",), "", "too small: say 1 or more"),
    "Kafka without etcd": (REAL[:1], "etcd", "if that is meant: --mixed-backends"),
    "etcd without Kafka": (REAL[1:], "kafka", "if that is meant: --mixed-backends"),
    "Kafka without a port": (("--kafka=k", "--etcd=e:2379"), "kafka", "'k' is not host:port"),
    "etcd with a path": (("--kafka=k:9092", "--etcd=http://e:2379/v3"), "etcd", "is not host:port"),
    "an empty address among several": (("--kafka=k:9092", "--etcd=e:1,"), "etcd", "'' is not host:port"),
    "an address with an empty label": (("--kafka=k..example:1", "--etcd=e:1"), "kafka", "is not host:port"),
    "an address with a label that is too long": (("--kafka=k:1", f"--etcd={'e' * 64}:1"), "etcd", "is not host:port"),
    "an address with a blank": (("--kafka=a b:1", "--etcd=e:1"), "kafka", "is not host:port"),
    "an address with a user": (("--kafka=u@a:1", "--etcd=e:1"), "kafka", "is not host:port"),
    "an address of IPv6 without brackets": (("--kafka=::1:9092", "--etcd=e:1"), "kafka", "is not host:port"),
    "an empty label to advertise": (
        ("--advertise=ws://proxy..example:1",),
        "advertise",
        "is no address of a proxy",
    ),
    "every address by another name": (
        ("--advertise=ws://0:1",),
        "advertise",
        "is no address of a proxy",
    ),
    "a path to advertise": (
        ("--advertise=ws://h:1/path",),
        "advertise",
        "is no address of a proxy",
    ),
    "an origin with a blank": (("--allow-origins=https://x y",), "allow_origins", "is not https://host"),
    "an origin without its port": (("--allow-origins=https://x:",), "allow_origins", "is not https://host"),
    "a principal that is too long": ((f"--operators={'o' * 300}",), "operators", "at most 256"),
    "a prefix with a blank": (("--prefix=way post",), "prefix", "is no such name"),
    "a site that is no name of a topic": ((*REAL, "--site=Ås"), "site", "letters, digits, dots"),
    "a site that makes a topic's name too long": (
        (*REAL, f"--prefix={'p' * 60}", f"--site={'A' * 199}"),
        "site",
        "Kafka allows 249",
    ),
    "a lease that is no lease": (("--lease-ttl-ms=1",), "", "too small: say 1000 or more"),
    "a lease that etcd does not give": ((*REAL, "--lease-ttl-ms=1999"), "lease_ttl_ms", "etcd's shortest lease"),
    "replicas without Kafka": (("--replication=3",), "replication", "name Kafka with --kafka"),
    "more in sync than there are": ((*REAL, "--replication=2", "--min-insync=3"), "min_insync", "is more than"),
    "parts of a journal of no size": (("--journal-rotate=often",), "journal_rotate", "neither off, nor a size"),
    "parts of a journal that are too small": (("--journal-rotate=10KiB",), "journal_rotate", "at least 1MiB"),
    "an option that is none": (("--neighbors=B",), "", "No such option: --neighbors"),
    "a number that is none": (("--port=many",), "", "it is no whole number"),
    "a file that is not there": (("--config=nowhere.toml",), "config", "No such file"),
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """Return the one line that the command answers; a hint may follow."""
    monkeypatch.setattr(sys, "argv", ["waypost", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not re.match(r"hint: |  ", line)]
    assert out == "" and len(lines) == 1, err
    return lines[0]


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_configuration_is_answered_in_one_line(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, field, why = WRONG[what]
    line = _refused(capsys, monkeypatch, "config", "check", *flags)
    assert line.startswith(f"error: BAD_CONFIGURATION: {field}: " if field else "error: ")
    assert why in line


def test_there_are_thirty_of_them() -> None:
    assert len(WRONG) >= 30


@pytest.mark.parametrize("what", ["Kafka without etcd", "a neighbour twice", "a lease that etcd does not give"])
def test_serve_refuses_what_the_check_refuses(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flags, field, why = WRONG[what]
    line = _refused(capsys, monkeypatch, "serve", *flags)
    assert line.startswith(f"error: BAD_CONFIGURATION: {field}: ") and why in line
    assert list(Path().iterdir()) == []


def test_a_misspelt_key_of_the_file_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("w.toml").write_text('neighbors = ["B"]\n')
    line = _refused(capsys, monkeypatch, "config", "check", "--config=w.toml")
    assert line.startswith("error: BAD_CONFIGURATION: neighbors: ") and "w.toml" in line
    assert "do you mean neighbours?" in line
    for text, problem in (
        ("[serve]\nname = 1\n", "in no table"),
        ("lease-ttl-ms = 3000\nlease_ttl_ms = 3000\n", "said twice"),
        ("zzzz = 1\n", "waypost config check shows"),
        ('name = "a b"\n', "name: 'a b' is no name: a name has no slash and no blank"),
        ("port = true\n", "port: true is no value of it"),
        ("neighbours = [1, 2]\n", "neighbours: a list of names, please"),
        ("operators = [true]\n", "operators: a list of names, please"),
    ):
        Path("w.toml").write_text(text)
        assert problem in _refused(capsys, monkeypatch, "config", "check", "--config=w.toml")


@pytest.mark.parametrize("real", [REAL[:1], REAL[1:]])
def test_mixed_backends_are_let_through_if_they_are_meant(real: tuple[str, ...]) -> None:
    key, _, address = real[0].removeprefix("--").partition("=")
    assert load_serving({key: address, "mixed_backends": True}, None).mixed_backends
    with pytest.raises(BadConfiguration):
        load_serving({key: address}, None)


# ---------------------------------------------------------------- what is shown


def test_every_setting_is_shown_with_its_value_and_where_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("w.toml").write_text('neighbours = ["B", "C"]\nname = "in the file, but"\nlease-ttl-ms = 3210\n')
    monkeypatch.setenv("WAYPOST_SITE", "north")
    monkeypatch.setattr(sys, "argv", ["waypost", "config", "check", "--config=w.toml", "--name=a1", "--json"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    settings = json.loads(capsys.readouterr().out)["settings"]
    assert list(settings) == list(NodeConfig.__dataclass_fields__)
    assert settings["name"] == {"value": "a1", "source": "flag"}
    assert settings["site"] == {"value": "north", "source": "WAYPOST_SITE"}
    assert settings["neighbours"] == {"value": ["B", "C"], "source": "file w.toml"}
    assert settings["lease_ttl_ms"] == {"value": 3210, "source": "file w.toml"}
    assert settings["port"] == {"value": 0, "source": "default"}


def test_people_are_shown_one_line_a_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["waypost", "config", "check", "--no-durable", "--neighbours=B,C"])
    with pytest.raises(SystemExit):
        main()
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == len(NodeConfig.__dataclass_fields__)
    assert ["durable", "no", "flag"] in lines and ["neighbours", "B,C", "flag"] in lines
    assert ["prefix", "waypost", "default"] in lines
