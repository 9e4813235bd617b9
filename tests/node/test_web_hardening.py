"""A running proxy against hostile pages, silent clients, deep nesting, password guessing and curious users."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest
import websockets
from websockets.frames import Frame, Opcode

import waypost
from chaos.cluster import ProxyProcess, ProxySpec
from node.cli.commands.rendezvous import file_name
from tests.node.test_command_line import run
from waypost.client.rendezvous import WAITING
from waypost.frames import decode_proxy_message, encode_message
from waypost.keys import NO_KEYS
from waypost.limits import HELLO_WITHIN_S, MAX_BODY_BYTES, UNPROVEN_BYTES
from waypost.messages import VERSION, Attach, Attached, Credential, Hello, Problem, Wait, Welcome
from waypost.rendezvous import Request, answers_to, session_of_requester

PAGE = "https://board.example"
FLAGS = {"no-discovery": "", "no-durable": ""}
DEEP = 200_000
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hardening")


@pytest.fixture(scope="module")
def proxy(root: Path) -> Iterator[ProxyProcess]:
    # A usual umask, whoever runs the tests: private modes must not come from it.
    before = os.umask(0o022)
    process = ProxyProcess(ProxySpec("a", "A", FLAGS | OPTIONAL), (), root / "made" / "data")
    try:
        process.process.start()
    finally:
        os.umask(before)
    process.process.wait_until(process.ready, timeout_s=20, what="ready")
    yield process
    process.stop()


OPTIONAL = {"allow-origins": PAGE, "host-names": "proxy.example,other.example"}


def ask(proxy: ProxyProcess, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, Any, Any]:
    """Return status, body and headers of an answer; a header `a_b` is `a-b`."""
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    try:
        connection.request(method, path, body or None, {name.replace("_", "-"): headers[name] for name in headers})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null"), answer.headers
    finally:
        connection.close()


def refusals(proxy: ProxyProcess) -> dict[str, int]:
    """Return what clients said and was refused, by name, as the metrics have it."""
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    named = (line.split('"') for line in lines if line.startswith("waypost_client_refusals_total{"))
    return {what: int(float(value.split()[-1])) for _, what, value in named}


@contextlib.contextmanager
def counted(proxy: ProxyProcess, what: str) -> Iterator[None]:
    before = refusals(proxy).get(what, 0)
    yield
    assert refusals(proxy).get(what, 0) > before, what


# ---------------------------------------------------------------- pages in a browser


async def handshake(proxy: ProxyProcess, path: str = "/v1/client", **headers: str) -> int:
    """Return the status that a WebSocket handshake with these headers is answered with."""
    wanted = {name: value for name, value in headers.items() if name != "Host"}
    try:
        async with websockets.connect(
            proxy.url + path, additional_headers=wanted, create_connection=_named(headers.get("Host"))
        ):
            return 101
    except websockets.InvalidStatus as refusal:
        return refusal.response.status_code


def _named(host: str | None) -> type[websockets.ClientConnection]:
    class Named(websockets.ClientConnection):
        """A handshake with another Host header."""

        async def handshake(self, *arguments: Any, **options: Any) -> None:
            connect = self.protocol.connect

            def renamed() -> Any:
                request = connect()
                if host is not None:
                    del request.headers["Host"]
                    request.headers["Host"] = host
                return request

            self.protocol.connect = renamed  # type: ignore[method-assign]
            await super().handshake(*arguments, **options)

    return Named


@pytest.mark.parametrize("path", ["/v1/client", "/v1/peer"])
async def test_websocket_of_a_foreign_page_is_refused_before_accept(proxy: ProxyProcess, path: str) -> None:
    with counted(proxy, "foreign origin"):
        assert await handshake(proxy, path, Origin="https://evil.example") == 403
        assert await handshake(proxy, path, Origin="null") == 403
        assert await handshake(proxy, path, Origin=f"http://127.0.0.1:{proxy.port}") == 403
    assert "[error" not in proxy.process.log.read_text()


async def test_websocket_to_a_rebound_host_name_is_refused_before_accept(proxy: ProxyProcess) -> None:
    with counted(proxy, "misdirected"):
        assert await handshake(proxy, Host=f"evil.example:{proxy.port}") == 403


async def test_websocket_of_programs_and_of_configured_pages_and_hosts_is_accepted(proxy: ProxyProcess) -> None:
    assert await handshake(proxy) == 101
    assert await handshake(proxy, Origin=PAGE) == 101
    for host in ("localhost", f"localhost:{proxy.port}", "[::1]:1", "proxy.example:80", "Other.Example."):
        assert await handshake(proxy, Host=host) == 101, host


def test_post_of_a_foreign_page_is_refused(proxy: ProxyProcess) -> None:
    with counted(proxy, "foreign origin"):
        status, body, _ = ask(proxy, "POST", "/v1/marker", Origin="https://evil.example")
    assert status == 403
    assert body["v"] == 1 and body["error"]["code"] == "FOREIGN_ORIGIN" and body["error"]["field"] == "origin"


@pytest.mark.parametrize(("method", "path"), [("POST", "/v1/marker"), ("GET", "/v1/sessions"), ("GET", "/metrics")])
def test_request_to_a_rebound_host_name_is_refused(proxy: ProxyProcess, method: str, path: str) -> None:
    with counted(proxy, "misdirected"):
        status, body, _ = ask(proxy, method, path, Host=f"evil.example:{proxy.port}")
    assert (status, body["error"]["code"], body["error"]["field"]) == (421, "MISDIRECTED", "host")


def test_probe_answers_whatever_host_it_is_asked_at(proxy: ProxyProcess) -> None:
    assert [ask(proxy, "GET", path, Host="10.1.2.3")[0] for path in ("/livez", "/readyz")] == [200, 200]


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_post_whose_body_is_not_said_to_be_json_is_refused(proxy: ProxyProcess, content_type: str) -> None:
    headers = {"Content_Type": content_type} if content_type else {}
    with counted(proxy, "wrong content type"):
        status, body, _ = ask(proxy, "POST", "/v1/sessions/delete", b'{"session": "nosuch"}', **headers)
    assert (status, body["error"]["code"]) == (415, "WRONG_CONTENT_TYPE")
    status, body, _ = ask(
        proxy, "POST", "/v1/sessions/delete", b'{"session": "nosuch"}', Content_Type="application/json"
    )
    assert (status, body["error"]["code"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "field"),
    [("GET", "/v1/nosuch", 404, "NOT_FOUND", "path"), ("POST", "/readyz", 405, "BAD_MESSAGE", "method")],
)
def test_unknown_route_is_refused_in_the_common_form(
    proxy: ProxyProcess, method: str, path: str, status: int, code: str, field: str
) -> None:
    found, body, headers = ask(proxy, method, path, b"{}" if method == "POST" else b"", Content_Type="application/json")
    assert (found, body["error"]["code"], body["error"]["field"]) == (status, code, field)
    assert path in body["error"]["message"] and "openapi" in body["error"]["message"]
    assert ("allow" in {name.lower() for name in headers}) == (status == 405)


def test_configured_page_may_post_and_read_the_answer(proxy: ProxyProcess) -> None:
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    connection = HTTPConnection("127.0.0.1", proxy.port, timeout=10)
    asked = {name.replace("_", "-"): value for name, value in preflight.items()}
    connection.request("OPTIONS", "/v1/marker", headers={"Origin": PAGE} | asked)
    allowed = connection.getresponse()
    allowed.read()
    connection.close()
    assert (allowed.status, allowed.headers["access-control-allow-origin"]) == (200, PAGE)
    status, body, headers = ask(proxy, "POST", "/v1/marker", Origin=PAGE)
    assert status == 200 and "offset" in body
    assert headers["access-control-allow-origin"] == PAGE
    assert ask(proxy, "GET", "/v1/status", Origin="https://evil.example")[2]["access-control-allow-origin"] is None


# ---------------------------------------------------------------- passwords


async def guess(proxy: ProxyProcess, session: str, principal: str) -> tuple[type, float]:
    """Return the answer to an attach with a wrong password, and the seconds that it took."""
    async with websockets.connect(f"{proxy.url}/v1/client") as line:
        await line.send(encode_message(Hello(VERSION, "tests")))
        assert isinstance(decode_proxy_message(await line.recv()), Welcome)
        began = time.perf_counter()
        credential = Credential(principal, "wrong")
        await line.send(
            encode_message(
                Attach(session=session, receiver="thief", incarnation="i", frontier={}, credential=credential)
            )
        )
        answer = decode_proxy_message(await line.recv())
        return type(answer), time.perf_counter() - began


async def test_wrong_password_costs_the_same_whether_the_principal_exists_or_not(proxy: ProxyProcess) -> None:
    known, unknown = [f"known{n}" for n in range(6)], [f"other{n}" for n in range(6)]
    async with asyncio.timeout(TIMEOUT_S), waypost.attach("guarded/times", proxy=proxy.url) as session:
        grants = {name: waypost.grant("user", password="right") for name in known}
        await session.set_access({"": waypost.grant("owner", password="secret"), **grants})
        took: dict[str, list[float]] = {"known": [], "other": []}
        names = known + unknown
        random.Random(1).shuffle(names)
        for name in names:
            kind, seconds = await guess(proxy, "guarded/times", name)
            assert kind is Problem
            took[name[:5]].append(seconds)
        await session.delete()
    # Not the mean: others use this machine too. A hash takes tens of milliseconds, an answer without one less than two.
    ratio = statistics.median(took["other"]) / statistics.median(took["known"])
    assert 0.5 < ratio < 2, took


async def test_wrong_passwords_of_an_unknown_principal_have_to_wait_as_those_of_a_known_one(
    proxy: ProxyProcess,
) -> None:
    async with asyncio.timeout(TIMEOUT_S), waypost.attach("guarded/often", proxy=proxy.url) as session:
        await session.set_access(
            {
                "": waypost.grant("owner", password="secret"),
                "known": waypost.grant("user", password="right"),
                "token": waypost.grant("user", by_token=True),
            }
        )
        answers = {
            name: [(await guess(proxy, "guarded/often", name))[0] for _ in range(4)]
            for name in ("known", "nobody", "token")
        }
        await session.delete()
    assert answers["known"] == [Problem, Problem, Problem, Wait]
    assert answers["nobody"] == answers["token"] == answers["known"]


# ---------------------------------------------------------------- nesting


@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * (DEEP // 4), "[" * (DEEP // 2) + "]" * (DEEP // 2)])
def test_deep_nesting_in_a_body_is_refused_by_name(proxy: ProxyProcess, text: str) -> None:
    status, body, _ = ask(proxy, "POST", "/v1/drains", text.encode(), Content_Type="application/json")
    assert (status, body["error"]["code"]) == (400, "BAD_MESSAGE")
    assert "nested too deeply" in body["error"]["message"]


NULL = b"\xc0"
HELLO = msgspec.msgpack.encode(["hello", VERSION, "tests"])
FRAMES = {
    "arrays": b"\x91" * DEEP + NULL,
    "maps": b"\x81\xa1a" * DEEP + NULL,
    "a field that is not known": b"\x9f" + HELLO[1:] + b"\x91" * DEEP + NULL * 12,
    "cut off": b"\x91" * DEEP,
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_deep_nesting_in_a_frame_is_refused_by_name_and_the_connection_goes_on(
    proxy: ProxyProcess, frame: bytes
) -> None:
    async with asyncio.timeout(TIMEOUT_S), websockets.connect(f"{proxy.url}/v1/client") as line:
        await line.send(encode_message(Hello(VERSION, "tests")))
        assert isinstance(decode_proxy_message(await line.recv()), Welcome)
        await line.send(frame)
        answer = decode_proxy_message(await line.recv())
        assert isinstance(answer, Problem) and answer.code == "BAD_MESSAGE"
        await line.send(encode_message(Hello(VERSION, "tests")))
        assert isinstance(decode_proxy_message(await line.recv()), Welcome)


async def test_client_before_its_hello_may_send_64_kib(proxy: ProxyProcess) -> None:
    for sizes in [(UNPROVEN_BYTES + 1,), (10_000,) * 8]:
        async with asyncio.timeout(TIMEOUT_S), websockets.connect(f"{proxy.url}/v1/client") as line:
            with pytest.raises(websockets.ConnectionClosed) as closed:
                for size in sizes:
                    await line.send(bytes(size))
                while True:
                    await line.recv()
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009


@pytest.mark.parametrize("text", ["[" * DEEP, '{"a":' * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP])
def test_deep_nesting_in_what_commands_read_is_refused_by_name(proxy: ProxyProcess, text: str) -> None:
    for words in (("pub", "-"), ("pub", "--lines")):
        done = run(*words, "--proxy", proxy.url, stdin=text)
        assert done.returncode == 2 and done.stderr.startswith("error: BAD_MESSAGE: "), done.stderr[:300]
        assert done.stderr.count("\n") == 1 and "nested too deeply" in done.stderr
    batch = run("match", "--batch", "-", stdin=f'{{"expr": "a == 1", "notification": {text}')
    assert json.loads(batch.stdout)["code"] == "BAD_MESSAGE" and batch.stderr == ""


def test_deep_nesting_in_an_argument_of_match_is_refused_by_name() -> None:
    # An argument has 128 KiB at most on Linux.
    done = run("match", "a == 1", "[" * 100_000)
    assert done.returncode == 2 and done.stderr.startswith("error: BAD_MESSAGE: "), done.stderr[:300]


# What a program may do in HTTP is done rightly, however its bytes come.


def answers(proxy: ProxyProcess, *pieces: bytes, half_closed: bool = False) -> list[dict[str, Any]]:
    """Send the pieces on one connection; return the JSON bodies of its answers in order, until it is closed."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=TIMEOUT_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        if half_closed:
            connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65_536), b""))
    bodies = [answer.partition(b"\r\n\r\n")[2] for answer in received.split(b"HTTP/1.1 ")[1:]]
    return [json.loads(body) for body in bodies]


def head(proxy: ProxyProcess, request: str, *headers: str) -> bytes:
    return "\r\n".join([f"{request} HTTP/1.1", f"Host: 127.0.0.1:{proxy.port}", *headers, "", ""]).encode()


@pytest.mark.parametrize("size", [1, 7, 5_000])
def test_body_in_chunks_of_any_size_is_one_body(proxy: ProxyProcess, size: int) -> None:
    body = json.dumps({"session": "none", "unknown": "x" * min(2_000 * size, 20_000)}).encode()
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (len(body[at : at + size]), body[at : at + size]) for at in range(0, len(body), size)
    )
    kind, way = "Content-Type: application/json", "Transfer-Encoding: chunked"
    asked = head(proxy, "POST /v1/sessions/delete", kind, way, "Connection: close")
    (answer,) = answers(proxy, asked, chunked, b"0\r\n\r\n")
    assert answer["error"]["field"] == "unknown", answer


def test_body_with_two_lengths_is_refused_with_a_reason(proxy: ProxyProcess) -> None:
    both = ("Content-Type: application/json", "Transfer-Encoding: chunked", "Content-Length: 5")
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(head(proxy, "POST /v1/sessions/delete", *both, "Connection: close") + b"0\r\n\r\n")
        received = _until_closed(connection)
    assert received.startswith(b"HTTP/1.1 400") and b"BAD_MESSAGE" in received


def test_client_that_asks_before_it_sends_too_much_is_not_told_to_send_it(proxy: ProxyProcess) -> None:
    headers = (f"Content-Length: {MAX_BODY_BYTES + 1}", "Content-Type: application/json", "Expect: 100-continue")
    (answer,) = answers(proxy, head(proxy, "POST /v1/sessions/delete", *headers, "Connection: close"))
    assert answer["error"]["code"] == "LIMIT_EXCEEDED"


@pytest.mark.parametrize(
    "wrong",
    [
        "Content-Length: 100",
        "Transfer-Encoding: chunked",
        "X-Long: " + "x" * 9_000,
        "\r\n".join(f"X-{number}: 1" for number in range(200)),
        "X-Odd: a\x01b",
    ],
    ids=["a body", "a body in chunks", "a long header", "many headers", "a control character"],
)
def test_handshake_that_cannot_be_read_is_answered_and_ended(wrong: str, proxy: ProxyProcess) -> None:
    key = ("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
    asked = head(proxy, "GET /v1/client", "Upgrade: websocket", "Connection: Upgrade", *key, wrong)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as connection:
        connection.sendall(asked)
        received = _until_closed(connection)
    assert received.startswith(b"HTTP/1.1 4")


@pytest.mark.parametrize("asked", ["GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "GET /{} HTTP/1.1\r\n\r\n"])
def test_request_that_is_too_long_is_answered_once(asked: str, proxy: ProxyProcess) -> None:
    """Its rest is no second request, wherever the pieces of it end: the log of the proxy has no fault of it."""
    for _ in range(20):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as sent:
            sent.sendall(asked.format("a" * 70_000).encode())
            assert _until_closed(sent).startswith(b"HTTP/1.1 4")


def test_client_that_sends_no_more_gets_the_answers_to_what_it_sent(proxy: ProxyProcess) -> None:
    body = json.dumps({"session": "none", "unknown": "x" * 9_000}).encode()
    post = head(proxy, "POST /v1/sessions/delete", "Content-Type: application/json", f"Content-Length: {len(body)}")
    began = time.monotonic()
    found = answers(proxy, post + body, post + body, half_closed=True)
    assert [answer["error"]["field"] for answer in found] == ["unknown", "unknown"]
    # The connection ends with the last answer, and not when nobody has asked anything for a while.
    assert time.monotonic() - began < TIMEOUT_S / 10


def test_requests_that_come_together_are_answered_in_their_order(proxy: ProxyProcess) -> None:
    body = json.dumps({"session": "none", "unknown": "x" * 9_000}).encode()
    length = f"Content-Length: {len(body)}"
    post = head(proxy, "POST /v1/sessions/delete", "Content-Type: application/json", length) + body
    last = head(proxy, "GET /v1/nowhere", "Connection: close")
    found = answers(proxy, (head(proxy, "GET /v1/status") + post) * 5 + last)
    assert [answer.get("proxy") or answer["error"]["code"] for answer in found] == [
        *["a", "BAD_MESSAGE"] * 5,
        "NOT_FOUND",
    ]


def test_nothing_of_this_is_a_fault_of_the_proxy(proxy: ProxyProcess) -> None:
    logged = proxy.process.log.read_text()
    assert "Traceback" not in logged and "RecursionError" not in logged
    assert proxy.process.exit_status is None


# ---------------------------------------------------------------- files


async def test_files_and_folders_that_a_proxy_makes_are_private(proxy: ProxyProcess, root: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), waypost.attach("files/one", proxy=proxy.url) as session:
        await session.subscribe("require(n)")
        await session.publish({"n": 1})
        await anext(session)
    made = [path for path in (root / "made" / "data").rglob("*") if path != proxy.process.log]
    names = {path.name for path in made}
    assert {"store.db", "log.db", "changelog.db", "registry.db", "lock", "journal"} <= names
    assert any(path.suffix == ".jsonl" for path in made)
    modes = {str(path.relative_to(root)): oct(path.stat().st_mode & 0o777) for path in made}
    wanted = {str(path.relative_to(root)): oct(0o700 if path.is_dir() else 0o600) for path in made}
    assert modes == wanted


# ---------------------------------------------------------------- names that a sender chooses


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("photos/1.jpg", "1.jpg"),
        ("/etc/passwd", "passwd"),
        ("../../.ssh/authorized_keys", "authorized_keys"),
        ("..", "resource"),
        ("a/..", "resource"),
        ("/", "resource"),
        ("a/.bashrc", "bashrc"),
        ("-rf", "_rf"),
        ("a/--help", "_-help"),
        (". .-x", "_x"),
        ("a\n-rf\x1b[31m", "a_-rf_[31m"),
        ("a\0b", "a_b"),
        ("gnp\u202ecod.exe", "gnp_cod.exe"),
        ("\t\n", "__"),
        ("x" * 46 + "a-" + "b" * 49, "_" + "b" * 49),
    ],
)
def test_file_name_of_a_resource_is_harmless(path: str, name: str) -> None:
    assert file_name(path) == name


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def test_take_writes_no_file_by_a_name_that_its_sender_made_up(proxy: ProxyProcess, tmp_path: Path) -> None:
    into = tmp_path / "into"
    into.mkdir()
    paths = ["-rf", "x\x1b[2Jy\nz", "..", "/tmp/waypost-absolute", "../above", "a/\u202etxt.exe"]
    async with asyncio.timeout(TIMEOUT_S), waypost.attach(session_of_requester("mallory"), proxy=proxy.url) as session:
        await session.subscribe(answers_to("mallory"), id=WAITING, keys=NO_KEYS, insecure=True)
        async with waypost.produce("sender", proxy=proxy.url) as sender:
            for number, path in enumerate(paths):
                request = Request(id=f"id{number}", owner="bob", requester="mallory", path=path)
                for part in request.answer("attempt", path.encode()):
                    await sender.publish(part)
    took = await asyncio.to_thread(
        run,
        "rendezvous",
        "receive",
        str(into),
        "--as",
        "mallory",
        "-C",
        str(len(paths)),
        "-W",
        "20",
        "--proxy",
        proxy.url,
    )
    assert took.returncode == 0, took.stderr
    assert took.stdout.count("\n") == len(paths) and "\x1b" not in took.stdout
    assert _names(into) == {
        "_rf",
        "x_[2Jy_z",
        "resource",
        "waypost-absolute",
        "above",
        "_txt.exe",
    }
    assert _names(tmp_path) == {"into"}
    assert "waypost-absolute" not in _names(Path("/tmp"))


# ---------------------------------------------------------------- silence


async def closed_after(line: websockets.ClientConnection, most_s: float) -> float:
    """Return after how many seconds the proxy closed; what it says before that is passed over."""
    began = time.monotonic()
    with contextlib.suppress(websockets.ConnectionClosed):
        async with asyncio.timeout(most_s):
            while True:
                await line.recv()
    return time.monotonic() - began


async def half_sent(proxy: ProxyProcess) -> websockets.ClientConnection:
    """Return a connection whose first message has begun and does not end."""
    line = await websockets.connect(f"{proxy.url}/v1/client")
    frame = Frame(Opcode.BINARY, encode_message(Hello(VERSION, "tests")), fin=False).serialize(mask=True)
    line.transport.write(frame)
    return line


async def chattering(line: websockets.ClientConnection) -> None:
    with contextlib.suppress(websockets.ConnectionClosed):
        while True:
            await line.send(b"no hello")
            await asyncio.sleep(0.5)


async def test_websocket_without_a_hello_is_closed_in_time_and_others_stay(proxy: ProxyProcess) -> None:
    most_s = HELLO_WITHIN_S + 8
    silent, garbage, other_version, polite = [await websockets.connect(f"{proxy.url}/v1/client") for _ in range(4)]
    half = await half_sent(proxy)
    await polite.send(encode_message(Hello(VERSION, "tests")))
    await other_version.send(encode_message(Hello(VERSION + 1, "tests")))
    talking = asyncio.create_task(chattering(garbage))
    lines = (silent, half, garbage, other_version)
    took = await asyncio.gather(*(closed_after(line, most_s) for line in lines))
    await talking
    for line, seconds in zip(lines, took, strict=True):
        assert HELLO_WITHIN_S - 2 < seconds < most_s - 1, took
        assert line.close_code == 1008 and f"no hello within {HELLO_WITHIN_S:g} s" in (line.close_reason or "")
    assert isinstance(decode_proxy_message(await polite.recv()), Welcome)
    await polite.send(encode_message(Attach(session="polite", receiver="r", incarnation="i", frontier={})))
    async with asyncio.timeout(TIMEOUT_S):
        while not isinstance(decode_proxy_message(await polite.recv()), Attached):
            pass
    await polite.close()


async def test_half_sent_hello_is_closed_although_its_sender_never_answers(proxy: ProxyProcess) -> None:
    """The TCP connection ends too, of a client that speaks no WebSocket after its handshake."""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=HELLO_WITHIN_S + 20) as line:
        key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
        upgrade = f"Host: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{key}"
        line.sendall(f"GET /v1/client HTTP/1.1\r\n{upgrade}\r\n\r\n\x02".encode())
        received = await asyncio.to_thread(_until_closed, line)
    assert received.startswith(b"HTTP/1.1 101 ") and b"no hello within" in received


def _until_closed(line: socket.socket) -> bytes:
    received = b""
    while part := line.recv(4096):
        received += part
    return received


# ---------------------------------------------------------------- listening beyond loopback


def test_proxy_without_protection_does_not_listen_beyond_loopback(tmp_path: Path) -> None:
    words = ("serve", "--host", "0.0.0.0", "--advertise", "ws://proxy.example:7301", "--data", str(tmp_path / "run"))
    refused = run(*words, "--no-discovery")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: BAD_CONFIGURATION: host: ") and "--insecure" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("protection", [{"insecure": ""}, {"operators": "olga"}, {"publishers": "desk"}])
def test_proxy_with_protection_or_insecure_listens_everywhere(tmp_path: Path, protection: dict[str, str]) -> None:
    there = {"host": "0.0.0.0", "advertise": "ws://proxy.example:7301"}
    process = ProxyProcess(ProxySpec("a", "A", FLAGS | there | protection), (), tmp_path)
    try:
        process.start()
        assert process.ready()
    finally:
        process.stop()
