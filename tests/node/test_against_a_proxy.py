"""The commands and the blocking facade against one real `waypost serve`, on embedded parts."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import waypost
from chaos.cluster import Cluster, ProxyProcess, ProxySpec
from tests.node.test_command_line import WAYPOST, run
from waypost.errors import NoProxy, Refused, WaypostError
from waypost.facts import decode_fact
from waypost.identity import new_incarnation
from waypost.notification import Value

WAIT_S = 10


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    process = ProxyProcess(
        ProxySpec("a", "A", {"no-discovery": "", "no-durable": ""}), (), tmp_path_factory.mktemp("run")
    )
    process.start()
    yield process
    process.stop()


@pytest.fixture
def session() -> str:
    return f"tests/{new_incarnation()}"


class Sub:
    """One `waypost sub` that is attached."""

    def __init__(self, proxy: ProxyProcess, *arguments: str) -> None:
        command = [WAYPOST, "sub", *arguments, "--proxy", proxy.url]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_obey_ctrl_c
        )
        assert self.process.stderr is not None
        self.has_logged = self.process.stderr.readline()
        assert self.has_logged.startswith(("attached to a@A, session ", '{"v": 1, "attached": ')), self.has_logged

    def end(self, how: signal.Signals | None = None) -> tuple[int, str, str]:
        """Return the exit status, and what came on stdout and stderr."""
        if how is not None:
            self.process.send_signal(how)
        try:
            out, err = self.process.communicate(timeout=WAIT_S)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


def _obey_ctrl_c() -> None:
    """A shell has what runs in the background ignore SIGINT, and children inherit that: the tests may run so."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def publish(proxy: ProxyProcess, *arguments: str, stdin: str = "") -> list[str]:
    done = run("pub", *arguments, "--proxy", proxy.url, stdin=stdin)
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.splitlines()


def produce(proxy: ProxyProcess, notification: Mapping[str, Value]) -> None:
    with waypost.blocking.produce("tests", proxy=proxy.url) as producer:
        producer.publish(notification)


def test_published_attributes_arrive_with_their_types(proxy: ProxyProcess, session: str) -> None:
    sub = Sub(proxy, "require(n)", "--session", session, "--json", "--count", "2")
    first = publish(proxy, "n=1", "r=2.5", "s=JFK", "long:int64=3", "data:opaque=ff00", "t:string=7")
    last = publish(proxy, "-", "--json", stdin='{"n": {"real64": "nan"}}')
    status, out, err = sub.end()
    assert (status, err) == (0, "")
    received = [json.loads(line) for line in out.splitlines()]
    assert received[0]["notification"] == {
        "n": {"int32": 1},
        "r": {"real64": 2.5},
        "s": {"string": "JFK"},
        "long": {"int64": "3"},
        "data": {"opaque": "ff00"},
        "t": {"string": "7"},
    }
    assert received[1]["notification"] == {"n": {"real64": "nan"}}
    assert received[0]["subscriptions"] == ["require(n)"]
    printed = json.loads(last[0])
    assert [" ".join(map(str, received[0]["coordinate"]))] == first
    assert received[1]["coordinate"] == [printed["origin"], printed["offset"]]


def test_a_batch_from_stdin_is_published_in_its_order(proxy: ProxyProcess, session: str) -> None:
    sub = Sub(proxy, "n > 0", "--session", session, "--count", "20", "--format", "{n}{nosuch}")
    lines = "".join(f'{{"n": {number}}}\n' for number in range(1, 21))
    coordinates = [line.split() for line in publish(proxy, "--lines", stdin=lines)]
    assert [origin for origin, _ in coordinates] == ["A/0"] * 20
    offsets = [int(offset) for _, offset in coordinates]
    assert offsets == sorted(offsets)
    assert sub.end() == (0, "".join(f"{number}\n" for number in range(1, 21)), "")


def test_bad_line_ends_a_batch_and_earlier_lines_are_printed(proxy: ProxyProcess) -> None:
    done = run("pub", "--lines", "--proxy", proxy.url, stdin='{"n": 1}\n{"n": \n{"n": 3}\n')
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == "error: BAD_NOTIFICATION: line 2: no JSON: Expecting value at character 8\n"


def test_lines_are_published_also_when_nobody_reads_their_coordinates_any_more(
    proxy: ProxyProcess, tmp_path: Path
) -> None:
    before = proxy.request("/v1/status")["position"]
    lines = tmp_path / "lines"
    lines.write_text('{"n": 1}\n' * 50)
    command = f"{WAYPOST} pub --lines --proxy {proxy.url} < {lines} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert proxy.request("/v1/status")["position"] >= before + 50


def test_sessions_are_listed_and_shown(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        alice.subscribe("a == 1", id="ones")
        listed = run("sessions", "ls", "--proxy", proxy.url)
        printed = json.loads(run("sessions", "ls", "--json", "--proxy", proxy.url).stdout)
        shown = json.loads(run("sessions", "show", session, "--json", "--proxy", proxy.url).stdout)
    row = next(line.split() for line in listed.stdout.splitlines() if session in line)
    assert row == [session, "a", "1", "serving", "0", "1", "1"]
    assert shown["subscriptions"] == {"ones": {"expression": "a == 1", "owner": "main", "keys": 0, "insecure": True}}
    assert {"v": 1} | next(row for row in printed["sessions"] if row["session"] == session) == shown
    missing = run("sessions", "show", "tests/nosuch", "--proxy", proxy.url)
    assert missing.returncode == 5
    assert missing.stderr == "error: NOT_FOUND: session: there is no session tests/nosuch\n"


def test_ctrl_c_ends_a_sub_with_130_and_deletes_the_session_that_was_its_own(proxy: ProxyProcess) -> None:
    sub = Sub(proxy, "a == 1")
    own = sub.has_logged.split()[4].rstrip(",")
    assert sub.end(signal.SIGINT) == (130, "", "")
    assert run("sessions", "show", own, "--proxy", proxy.url).returncode == 5


def test_a_sub_that_waited_in_vain_says_so(proxy: ProxyProcess) -> None:
    sub = Sub(proxy, "a == 1", "--wait", "2")
    assert sub.end() == (27, "", "error: WAITED_IN_VAIN: nothing more came within 2 s\n")


def test_a_sub_says_from_where_on_it_misses_nothing(proxy: ProxyProcess, session: str) -> None:
    sub = Sub(proxy, "a == 1", "--session", session)
    assert re.fullmatch(r"attached .*, 0 stored, effective from A/0 above -?\d+\n", sub.has_logged)
    sub.end(signal.SIGINT)
    sub = Sub(proxy, "a == 1", "--session", session, "--json")
    printed = json.loads(sub.has_logged)["attached"]
    assert (printed["proxy"], printed["site"], printed["session"], printed["stored"]) == ("a", "A", session, 0)
    assert list(printed["effective"]) == ["A/0"]
    sub.end(signal.SIGINT)


def test_a_reader_that_closes_the_pipe_ends_a_sub_quietly(proxy: ProxyProcess, session: str) -> None:
    sub = Sub(proxy, "n > 0", "--session", session)
    assert sub.process.stdout is not None
    produce(proxy, {"n": 1})
    assert sub.process.stdout.readline() == "n=1\n"
    sub.process.stdout.close()
    produce(proxy, {"n": 2})
    assert sub.process.stderr is not None
    with sub.process.stderr as stderr:
        assert (stderr.read(), sub.process.wait(WAIT_S)) == ("", 0)
    # What could not be printed is not had: it comes to the next one.
    produce(proxy, {"n": 3})
    assert Sub(proxy, "n > 0", "--session", session, "--count", "2").end() == (0, "n=2\nn=3\n", "")


def test_sub_with_a_full_disk_fails_in_one_line_and_its_notification_comes_again(
    proxy: ProxyProcess, session: str
) -> None:
    with Path("/dev/full").open("w") as full:
        command = [WAYPOST, "sub", "n > 0", "--session", session, "--proxy", proxy.url]
        with subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("attached to ")
            produce(proxy, {"n": 1})
            printed = process.stderr.read()
            assert process.wait(WAIT_S) == 3
    assert printed == "error: OUTPUT_FAILED: stdout cannot be written: No space left on device\n"
    assert Sub(proxy, "n > 0", "--session", session, "--count", "1").end() == (0, "n=1\n", "")


def test_a_proxy_that_is_asked_to_end_ends_in_order_with_status_0(tmp_path: Path) -> None:
    for how in (signal.SIGTERM, signal.SIGINT):
        command = [WAYPOST, "serve", "--json", "--no-discovery", "--data", str(tmp_path / how.name)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["site"] == "A"
            process.send_signal(how)
            out, err = process.communicate(timeout=WAIT_S)
        assert (process.returncode, out) == (0, "")
        logged = [json.loads(line)["event"] for line in err.splitlines()]
        assert [word for word in logged if word != "ready"] == ["starting", "shutting down", "shut down"]


def test_a_proxy_that_ends_under_load_complains_of_nothing_that_it_closes_itself(tmp_path: Path, session: str) -> None:
    proxy = ProxyProcess(ProxySpec("a", "A", {"no-discovery": ""}), (), tmp_path)
    proxy.start()
    sub = Sub(proxy, "n > 0", "--session", session)
    publishing = [WAYPOST, "pub", "--lines", "--proxy", proxy.url]
    with (
        subprocess.Popen(["yes", '{"n": 1}'], stdout=subprocess.PIPE) as source,
        subprocess.Popen(publishing, stdin=source.stdout, stdout=subprocess.PIPE) as pub,
    ):
        try:
            assert pub.stdout is not None
            assert pub.stdout.readline()
            proxy.stop()
        finally:
            source.kill()
            pub.kill()
            sub.end(signal.SIGKILL)
    logged = (tmp_path / "a.log").read_text(encoding="utf-8")
    assert "shut down" in logged
    assert not re.search(r"\[(warning|error)", logged), logged


# ---------------------------------------------------------------- the blocking facade


def test_the_facade_receives_what_it_publishes_and_goes_on_where_it_stopped(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        assert alice.subscribe("n > 0", id="numbers") == "numbers"
        coordinates = [alice.publish({"n": number}) for number in (1, 2, 3)]
        first = alice.next(WAIT_S)
        assert first is not None
        assert (first["n"], first.coordinate, first.subscriptions) == (1, coordinates[0], ("numbers",))
        second = alice.next(WAIT_S)
        assert second is not None
        state = alice.state
    with waypost.blocking.attach(session, proxy=proxy.url, state=state) as again:
        third = again.next(WAIT_S)
        assert third is not None
        assert (third["n"], third.coordinate) == (3, coordinates[2])


def test_notification_past_its_time_to_live_is_not_delivered(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        alice.subscribe("n > 0", id="short", ttl_s=1)
        alice.subscribe("n > 1", id="newest", max_count=1)
        state = alice.state
    for n in (1, 2, 3):
        produce(proxy, {"n": n})
    # A second of life, and one more, for ages are known by the second.
    time.sleep(2.5)
    with waypost.blocking.attach(session, proxy=proxy.url, state=state) as again:
        received = again.next(WAIT_S)
        assert received is not None
        assert (received["n"], received.subscriptions) == (3, ("newest",))
        with pytest.raises(TimeoutError):
            again.next(0.2)
    journal = "".join(path.read_text() for path in proxy.process.log.parent.rglob("*.jsonl"))
    removed = [json.loads(line) for line in journal.splitlines() if '"kind":"removed"' in line]
    assert {tuple(fact["policies"]) for fact in removed if fact["session"] == session} == {
        ("time-to-live",),
        ("time-to-live", "max-count"),
    }


def test_a_deleted_session_is_gone_for_all_its_receivers(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url, receiver="other") as other:
        with waypost.blocking.attach(session, proxy=proxy.url) as alice:
            alice.subscribe("n > 0")
            alice.delete()
        with pytest.raises(WaypostError, match="SESSION_DELETED"):
            other.next(WAIT_S)
    with (
        pytest.raises(WaypostError, match="NOT_FOUND"),
        waypost.blocking.attach(session, proxy=proxy.url, create=False),
    ):
        pass
    assert run("sessions", "show", session, "--proxy", proxy.url).returncode == 5


def test_an_operator_deletes_a_session(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        done = run("sessions", "rm", session, "--proxy", proxy.url)
        assert (done.returncode, done.stderr) == (0, "")
        with pytest.raises(WaypostError, match="SESSION_DELETED"):
            alice.next(WAIT_S)
    again = run("sessions", "rm", session, "--proxy", proxy.url)
    assert (again.returncode, again.stderr) == (5, f"error: NOT_FOUND: session: there is no session {session}\n")


def test_proxy_that_deletes_a_session_of_a_dead_owner_journals_the_deletion(session: str, tmp_path: Path) -> None:
    places = [ProxySpec(name, "A", {"no-discovery": ""}) for name in ("a", "b")]
    with Cluster(places, [], tmp_path) as cluster:
        dead, alive = cluster.proxies["a"], cluster.proxies["b"]
        with waypost.blocking.attach(session, proxy=dead.url) as alice:
            alice.subscribe("n > 0", id="numbers")
            _, epoch = dead.owner(session) or ("", 0)
            dead.kill()
            assert alive.request("/v1/sessions/delete", {"session": session})["deleted"]
    journals = (tmp_path / "sites" / "A" / "journal").glob("*.jsonl")
    facts = [decode_fact(line) for journal in journals for line in journal.read_bytes().splitlines()]
    # A proxy that ends while it writes facts writes them again, under the same numbers.
    (logged,) = {(fact.writer, fact.number): fact for fact in facts if fact.kind == "deleted"}.values()
    assert (logged.session, logged.epoch, logged.proxy) == (session, epoch, "b")


def test_the_facade_says_that_nothing_came(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        alice.subscribe("n > 0", id="numbers")
        with pytest.raises(TimeoutError):
            alice.next(0.1)
        alice.unsubscribe("numbers")
        alice.publish({"n": 1})
        with pytest.raises(TimeoutError):
            alice.next(0.2)


def test_blocking_facade_raises_the_refusal(proxy: ProxyProcess, session: str) -> None:
    with waypost.blocking.attach(session, proxy=proxy.url) as alice, pytest.raises(WaypostError, match="PARSE_ERROR"):
        alice.subscribe("n >")


def test_closing_the_facade_from_another_thread_ends_a_loop_over_it(proxy: ProxyProcess, session: str) -> None:
    threads = threading.active_count()
    with waypost.blocking.attach(session, proxy=proxy.url) as alice:
        alice.subscribe("n > 0")
        closing = threading.Timer(0.2, alice.close)
        closing.start()
        assert list(alice) == []
        closing.join()
    assert threading.active_count() <= threads


def test_two_threads_that_end_a_facade_at_once_both_come_back(proxy: ProxyProcess, session: str) -> None:
    for _ in range(10):
        with waypost.blocking.attach(session, proxy=proxy.url) as alice:
            closing = [threading.Thread(target=alice.close, daemon=True) for _ in range(3)]
            for thread in closing:
                thread.start()
        for thread in closing:
            thread.join(WAIT_S)
        assert not any(thread.is_alive() for thread in closing)
    assert alice.next() is None
    with pytest.raises(WaypostError, match="SESSION_CLOSED"):
        alice.publish({"n": 1})


def test_blocking_facade_without_a_proxy_leaves_no_thread_behind() -> None:
    threads = threading.active_count()
    with pytest.raises(NoProxy), waypost.blocking.produce("p", proxy="ws://127.0.0.1:1", timeout_s=0.2):
        pass
    assert threading.active_count() == threads


def test_delete_of_a_closed_blocking_session_raises_session_closed(proxy: ProxyProcess, session: str) -> None:
    closed = waypost.blocking.attach(session, proxy=proxy.url)
    closed.close()
    with pytest.raises(waypost.blocking.SessionClosed):
        closed.delete()


def test_a_blocking_session_that_cannot_be_made_leaves_no_thread_behind(proxy: ProxyProcess, session: str) -> None:
    before = threading.active_count()
    with pytest.raises(Refused):
        waypost.blocking.attach(session, proxy=proxy.url, session_expiry_s=0)
    assert threading.active_count() == before
