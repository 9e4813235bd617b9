"""The decisions of `node/http/policy.py`, without a network."""

from __future__ import annotations

import pytest
from starlette.datastructures import Headers

from node.configuration.config import load_config
from node.http.policy import WebPolicy, host_name, is_json
from waypost.errors import BadConfiguration, BadMessage, ForeignOrigin, Misdirected, Refused, WrongContentType

LOOPBACK = WebPolicy.of(load_config({"host_names": "Proxy.Example", "allow_origins": "https://board.example"}, None))
EVERYWHERE = WebPolicy.of(
    load_config({"host": "0.0.0.0", "advertise": "ws://a.example:7301", "operators": "olga"}, None)
)
ONE = WebPolicy.of(load_config({"host": "10.0.0.7", "operators": "olga"}, None))


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("127.0.0.1:7301", "127.0.0.1"),
        ("Proxy.Example.", "proxy.example"),
        ("[::1]:7301", "::1"),
        ("[::1]", "::1"),
        ("", ""),
        ("a:b", ""),
        ("a:99999", ""),
        ("localhost@evil.example", ""),
        ("localhost/evil", ""),
        ("localhost#evil", ""),
        ("[::1", ""),
    ],
)
def test_host_name_of_a_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize(
    ("policy", "host", "accepted"),
    [
        (LOOPBACK, "127.0.0.1:7301", True),
        (LOOPBACK, "localhost", True),
        (LOOPBACK, "[::1]:7301", True),
        (LOOPBACK, "proxy.example:80", True),
        (LOOPBACK, "evil.example:7301", False),
        (LOOPBACK, "127.0.0.1.evil.example", False),
        (LOOPBACK, "10.0.0.7", False),
        (EVERYWHERE, "10.0.0.7:7301", True),
        (EVERYWHERE, "a.example", True),
        (EVERYWHERE, "localhost:7301", True),
        (EVERYWHERE, "evil.example", False),
        (ONE, "10.0.0.7:7301", True),
        (ONE, "localhost:7301", False),
        (ONE, "10.0.0.8:7301", False),
        (ONE, "", False),
    ],
)
def test_host_is_accepted_if_it_names_this_node(policy: WebPolicy, host: str, accepted: bool) -> None:
    assert policy.is_ours(host) is accepted


HOST = ("host", "127.0.0.1:7301")
BODY = ("content-length", "2")


@pytest.mark.parametrize(
    ("kind", "method", "path", "headers", "error"),
    [
        ("websocket", "GET", "/v1/client", [HOST], None),
        ("websocket", "GET", "/v1/client", [HOST, ("origin", "https://board.example")], None),
        ("websocket", "GET", "/v1/client", [HOST, ("origin", "https://evil.example")], ForeignOrigin),
        ("websocket", "GET", "/v1/client", [HOST, ("origin", "null")], ForeignOrigin),
        (
            "websocket",
            "GET",
            "/v1/client",
            [HOST, ("origin", "https://board.example"), ("origin", "https://evil.example")],
            ForeignOrigin,
        ),
        ("websocket", "GET", "/v1/peer", [("host", "evil.example")], Misdirected),
        ("http", "GET", "/v1/sessions", [("host", "evil.example")], Misdirected),
        ("http", "GET", "/v1/sessions", [HOST, ("host", "evil.example")], Misdirected),
        ("http", "GET", "/v1/sessions", [], Misdirected),
        ("http", "GET", "/readyz", [("host", "evil.example")], None),
        ("http", "GET", "/v1/sessions", [HOST, ("origin", "https://evil.example")], None),
        ("http", "POST", "/v1/marker", [HOST], None),
        ("http", "POST", "/v1/marker", [HOST, ("content-length", "0")], None),
        ("http", "POST", "/v1/marker", [HOST, ("origin", "https://evil.example")], ForeignOrigin),
        ("http", "POST", "/v1/drains", [HOST, BODY, ("content-type", "Application/JSON; charset=utf-8")], None),
        ("http", "POST", "/v1/drains", [HOST, BODY, ("content-type", "text/plain")], WrongContentType),
        ("http", "POST", "/v1/drains", [HOST, BODY], WrongContentType),
        ("http", "POST", "/v1/drains", [HOST, ("transfer-encoding", "chunked")], WrongContentType),
        ("http", "POST", "/v1/drains", [HOST, BODY, ("transfer-encoding", "chunked")], BadMessage),
    ],
)
def test_request_is_refused_by_its_headers(
    kind: str, method: str, path: str, headers: list[tuple[str, str]], error: type[Refused] | None
) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers]
    refusal = LOOPBACK.refusal(kind, method, path, Headers(raw=raw))
    assert (type(refusal) if refusal else None) is error


@pytest.mark.parametrize("content_type", ["application/json", "application/json;charset=utf-8", " application/json "])
def test_json_content_types(content_type: str) -> None:
    assert is_json(content_type)
    assert not is_json(content_type.replace("json", "x-json"))


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        ({"allow_origins": "board.example"}, "allow_origins"),
        ({"allow_origins": "https://board.example/"}, "allow_origins"),
        ({"allow_origins": "null"}, "allow_origins"),
        ({"allow_origins": "https://*.example"}, "allow_origins"),
        ({"host_names": "https://a.example"}, "host_names"),
        ({"host_names": "a.example:7301"}, "host_names"),
        ({"host_names": "*"}, "host_names"),
    ],
)
def test_setting_that_no_header_could_match_is_refused(flags: dict[str, str], field: str) -> None:
    with pytest.raises(BadConfiguration) as refusal:
        load_config(flags, None)
    assert refusal.value.field == field
