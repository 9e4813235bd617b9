"""Configuration: flags over environment over file over defaults; every refusal names field and source."""

from __future__ import annotations

import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from node.cli.app import serve
from node.configuration.config import NodeConfig, load_config, load_serving
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


def test_a_list_in_a_file_is_looked_at_as_text_is(tmp_path: Path) -> None:
    """Nobody named who may publish is not everybody."""
    file = tmp_path / "waypost.toml"
    for name in ("publishers", "operators"):
        file.write_text(f"{name} = []\n")
        with pytest.raises(BadConfiguration, match="nobody is named"):
            load_config({}, file)
    file.write_text('publishers = [" olga "]\nneighbours = ["B"]\n')
    config = load_config({}, file)
    assert (config.publishers, config.neighbours) == (("olga",), ("B",))


@pytest.mark.parametrize(
    ("flags", "variables", "says"),
    [
        ({}, {"WAYPOST_PROT": "7301"}, "do you mean WAYPOST_PORT"),
        ({}, {"WAYPOST_NEIGHBORS": "B"}, "do you mean WAYPOST_NEIGHBOURS"),
        ({}, {"WAYPOST_ETCD_ENDPOINTS": "e:2379"}, "do you mean WAYPOST_ETCD"),
        ({}, {"WAYPOST_KAFKA_PORT_TYPO": "1"}, "do you mean WAYPOST_KAFKA"),
        ({"tls_ca": "ca.pem"}, {}, "nothing is encrypted"),
        ({"tls_key": "key.pem"}, {}, "nothing is encrypted"),
        ({"kafka": "h:1:2", "etcd": "h:1"}, {}, "is not host:port"),
    ],
)
def test_invalid_setting_is_refused(
    flags: dict[str, object], variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BadConfiguration, match=says):
        load_serving(flags, None)


@pytest.mark.parametrize(
    "variable",
    [
        "PORT_7311_TCP",
        "SERVICE_HOST",
        "ETCD_SERVICE_HOST",
        "ETCD_PORT",
        "KAFKA_PORT_9092_TCP_ADDR",
        "SITE_A_SERVICE_PORT",
    ],
)
def test_service_variables_of_kubernetes_are_no_settings(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"WAYPOST_{variable}", "tcp://10.0.0.1:1")
    load_serving({}, None)


def test_neighbours_are_separated_by_commas() -> None:
    assert load_config({"neighbours": "B,C"}, None).neighbours == ("B", "C")


@pytest.mark.parametrize(
    ("flags", "field", "source"),
    [
        ({"port": 70_000}, "port", "from --port"),
        ({"name": ""}, "name", "from --name"),
        ({"site": "a/b"}, "site", "from --site"),
        ({"lease_ttl_ms": 1}, "lease_ttl_ms", "from --lease-ttl-ms"),
        ({"prefix": "no blanks please"}, "prefix", "from --prefix"),
        ({"site": "C", "neighbours": "B,C"}, "neighbours", "C is the site of this proxy itself"),
        ({"advertise": "ws://host:many"}, "advertise", "from --advertise"),
        ({"host": "0.0.0.0"}, "advertise", "0.0.0.0 is no address that others can reach; say with --advertise"),
        ({"host": ""}, "advertise", "every address is no address that others can reach; say with --advertise"),
        ({"backend_cert": "c.pem", "etcd": "h:1"}, "backend_key", "c.pem is of no use without its key"),
        ({"backend_key": "c.key", "etcd": "h:1"}, "backend_cert", "c.key is the key of no certificate"),
        (
            {"backend_cert": "c.pem", "backend_key": "c.key", "etcd": "h:1"},
            "backend_ca",
            "name the file of who certifies",
        ),
        ({"replication": 3}, "replication", "3 is of Kafka's topics; name Kafka with --kafka"),
        ({"kafka": "h:1", "replication": 2, "min_insync": 3}, "min_insync", "3 is more than --replication 2"),
        ({"advertise": "ws://0.0.0.0:7301"}, "advertise", "ws://0.0.0.0:7301 is no address that others can reach"),
        ({"advertise": "ws://h"}, "advertise", "'ws://h' is no address of a proxy; it is written as ws://host:7301"),
        ({"advertise": "ws://u:p@h:1"}, "advertise", "is no address of a proxy; it is written as ws://host:7301"),
        ({"name": ".."}, "name", "'..' is no name"),
        ({"site": "a\x01"}, "site", "no control character"),
        ({"neighbours": "B/C"}, "neighbours", "no slash"),
        ({"neighbours": '["B"]'}, "neighbours", "is no name"),
        ({"prefix": "p" * 101}, "prefix", "from --prefix"),
        ({"sweep_s": 100_000}, "sweep_s", "from --sweep-s"),
        ({"lease_ttl_ms": 99_999_999_999}, "lease_ttl_ms", "from --lease-ttl-ms"),
    ],
)
def test_a_bad_flag_is_refused_by_name(flags: dict[str, object], field: str, source: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        load_config(flags, None)
    assert refusal.value.field == field
    assert source in refusal.value.message


def test_proxy_with_an_advertised_address_may_listen_on_all_interfaces() -> None:
    config = load_config({"host": "0.0.0.0", "advertise": "ws://10.0.0.7:7301", "insecure": True}, None)
    assert (config.host, config.advertise) == ("0.0.0.0", "ws://10.0.0.7:7301")


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "proxy.example", "::"])
def test_listening_beyond_loopback_needs_protection_or_insecure(host: str) -> None:
    flags = {"host": host, "advertise": "ws://proxy.example:7301"}
    with pytest.raises(BadConfiguration, match="--insecure") as refusal:
        load_config(flags, None)
    assert refusal.value.field == "host"
    load_config(flags | {"insecure": True}, None)
    load_config(flags | {"operators": "olga"}, None)
    load_config(flags | {"publishers": "desk"}, None)
    load_config(flags | {"advertise": "wss://proxy.example:7301", "tls_cert": "a.pem"}, None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "::1"])
def test_listening_on_loopback_needs_nothing(host: str) -> None:
    assert load_config({"host": host}, None).host == host


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


def test_neighbours_are_separated_by_commas_in_the_environment_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYPOST_NEIGHBOURS", "B,C")
    assert load_config({}, None).neighbours == ("B", "C")


def test_a_list_in_the_file_is_a_list(tmp_path: Path) -> None:
    file = tmp_path / "waypost.toml"
    file.write_text('neighbours = ["B", "C"]\ndurable = false\n')
    config = load_config({}, file)
    assert (config.neighbours, config.durable) == (("B", "C"), False)


@pytest.mark.parametrize("url", ["proxy.example:7301", "http://proxy.example:7301", "ws://:7301", "ws://h:port"])
def test_malformed_advertised_address_is_refused(url: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        load_config({"advertise": url}, None)
    assert refusal.value.field == "advertise"


def test_every_setting_is_a_flag_an_environment_variable_and_a_key_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [parameter.name for parameter in inspect.signature(serve).parameters.values()]
    assert set(options) - {"config", "json_"} == {field.name for field in fields(NodeConfig)}
    (tmp_path / "waypost.toml").write_text('prefix = "file"\n')
    monkeypatch.setenv("WAYPOST_KAFKA", "environment:9092")
    config = load_config({"etcd": "flag:2379"}, tmp_path / "waypost.toml")
    assert (config.prefix, config.kafka, config.etcd) == ("file", "environment:9092", "flag:2379")
