"""What a node tells Prometheus: a real process, a node that has not started; and what the page for operators says."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from websockets.asyncio.client import connect

import waypost
from chaos.cluster import Cluster, ProxySpec
from handover.source import SourceState
from handover.target import TargetState
from node.configuration.config import NodeConfig
from node.health.dependency_health import STEADY_MS
from node.http.exposition import exposition, make_registry
from node.http.metrics import METRICS, table
from node.shell.node import Node
from node.startup.backends import Backends
from proxy.core.counters import MILLISECONDS, SIZES, Histogram
from proxy.core.transfer_record import Cause
from waypost.clock import Clock, ManualClock
from waypost.errors import Unreachable
from waypost.frames import encode_message
from waypost.identity import new_incarnation
from waypost.limits import MAX_FRAME_BYTES
from waypost.messages import VERSION, Hello
from waypost.notification import Notification

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/operating.md"
SESSION, RECEIVER, CLIENT = "team/4711", "pager", "maker-0815"
STORED = 300
Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two sites, and a session with something stored that has moved from a1 to a2."""
    flags = {"no-discovery": ""}
    places = [ProxySpec("a1", "A", flags), ProxySpec("a2", "A", flags), ProxySpec("b1", "B", flags)]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("metrics")) as cluster:
        asyncio.run(_move(cluster))
        yield cluster


async def _move(cluster: Cluster) -> None:
    urls = {name: proxy.url for name, proxy in cluster.proxies.items()}
    async with waypost.attach(SESSION, receiver=RECEIVER, proxy=urls["a1"]) as session:
        await session.wait_effective(await session.subscribe("number >= 0"), ["A/0", "B/0"])
    async with waypost.produce(CLIENT, proxy=urls["b1"]) as producer:
        for number in range(STORED):
            await producer.publish_soon(Notification({"number": number}))
        while producer.unacknowledged:
            await asyncio.sleep(0.02)
    async with asyncio.timeout(20):
        while scraped(cluster, "a1")["waypost_stored_notifications", ()] < STORED:
            await asyncio.sleep(0.05)
        async with waypost.attach(SESSION, receiver=RECEIVER, proxy=urls["a2"]) as session:
            got = 0
            async for _ in session:
                got += 1
                if got == STORED:
                    break
        while scraped(cluster, "a2")["waypost_acknowledged_total", ()] < STORED:
            await asyncio.sleep(0.05)
        # The source hears of the commit by the registry's watch.
        while not scraped(cluster, "a1").get(("waypost_handovers_total", ended("source"))):
            await asyncio.sleep(0.05)


def fetch(cluster: Cluster, proxy: str, accept: str = "") -> tuple[str, str]:
    """Return the content type and the text."""
    url = cluster.proxies[proxy].url.replace("ws://", "http://") + "/metrics"
    with urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=10) as answer:
        return answer.headers["Content-Type"], answer.read().decode()


def samples(text: str) -> Found:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def scraped(cluster: Cluster, proxy: str) -> Found:
    return samples(fetch(cluster, proxy)[1])


def ended(role: str, outcome: str = "committed", cause: str = "") -> tuple[tuple[str, str], ...]:
    return (("cause", cause), ("outcome", outcome), ("role", role), ("trigger", "attach"))


# ---------------------------------------------------------------- on real processes


def test_a_handover_is_counted_on_both_sides_with_the_time_of_every_phase(cluster: Cluster) -> None:
    source, target = scraped(cluster, "a1"), scraped(cluster, "a2")
    assert source["waypost_handovers_total", ended("source")] == 1
    assert target["waypost_handovers_total", ended("target")] == 1
    for found, role, phases in (
        (source, "source", ("copying", "waiting", "frozen")),
        (target, "target", ("preparing", "shadowing", "ready", "staging", "committing")),
    ):
        for phase in phases:
            assert found["waypost_handover_phase_seconds_count", (("phase", phase), ("role", role))] >= 1
            assert found["waypost_handovers_running", (("phase", phase), ("role", role))] == 0
    assert source["waypost_handover_pause_seconds_count", (("outcome", "committed"),)] == 1
    assert 0 <= source["waypost_handover_pause_seconds_sum", (("outcome", "committed"),)] < 60


def test_entries_copied_before_the_freeze_are_counted_at_source_and_target(cluster: Cluster) -> None:
    part = (("part", "ahead"), ("role", "source"))
    source = scraped(cluster, "a1")
    assert source["waypost_handover_copied_notifications_total", part] >= STORED
    assert source["waypost_handover_copied_bytes_total", part] > STORED * 10
    target = scraped(cluster, "a2")
    assert target["waypost_handover_copied_notifications_total", (("part", "ahead"), ("role", "target"))] == STORED


def test_published_and_delivered_notifications_are_counted_at_their_own_proxies(
    cluster: Cluster,
) -> None:
    published, delivered = scraped(cluster, "b1"), scraped(cluster, "a2")
    assert published["waypost_published_total", ()] == published["waypost_appended_total", ()] == STORED
    assert published["waypost_append_size_sum", ()] == STORED
    assert delivered["waypost_delivered_total", ()] == delivered["waypost_acknowledged_total", ()] == STORED
    assert delivered["waypost_delivery_size_sum", ()] == STORED
    assert published["waypost_delivered_total", ()] == 0


def test_a_session_is_counted_where_it_is_and_nowhere_else(cluster: Cluster) -> None:
    assert scraped(cluster, "a1")["waypost_sessions", (("role", "serving"),)] == 0
    here = scraped(cluster, "a2")
    assert here["waypost_sessions", (("role", "serving"),)] == 1
    assert here["waypost_receivers", (("state", "away"),)] == 1
    assert here["waypost_expressions", (("what", "distinct"),)] == 1
    assert here["waypost_expressions", (("what", "unindexed"),)] == 0
    assert here["waypost_starts_total", (("how", "handover"),)] == 1


def test_link_has_one_leader_in_a_site_and_a_lag_at_its_other_end(cluster: Cluster) -> None:
    leading = [scraped(cluster, proxy)["waypost_link_leading", (("neighbour", "B"),)] for proxy in ("a1", "a2")]
    assert sorted(leading) == [0, 1]
    sending = scraped(cluster, "b1")
    assert sending["waypost_link_unacknowledged_records", (("neighbour", "A"),)] >= 0
    assert sending["waypost_link_lag_offsets", (("neighbour", "A"), ("origin", "B/0"))] >= 0
    assert sending["waypost_frontier_offset", (("origin", "B/0"),)] >= STORED - 1


def test_a_proxy_in_good_health_says_so(cluster: Cluster) -> None:
    found = scraped(cluster, "a1")
    assert found["waypost_ready", ()] == 1
    assert 0 < found["waypost_lease_left_seconds", ()] <= 3
    assert found["waypost_proxies_alive", ()] == 3
    missing = {labels: value for (name, labels), value in found.items() if name == "waypost_part_missing"}
    assert len(missing) > 3
    assert set(missing.values()) == {0}
    assert found["waypost_store_write_seconds_count", ()] > 0
    assert found["process_open_fds", ()] > 0


def test_every_queue_has_a_bound_and_is_below_it(cluster: Cluster) -> None:
    found = scraped(cluster, "a2")
    lengths = {labels: value for (name, labels), value in found.items() if name == "waypost_queue_length"}
    bounds = {labels: value for (name, labels), value in found.items() if name == "waypost_queue_bound"}
    usual = {"log", "journal", "store", "peer", "moves", "receiver", "link in"}
    assert usual <= {queue for ((_, queue),) in lengths}
    assert lengths.keys() == bounds.keys()
    assert [queue for queue in lengths if not 0 <= lengths[queue] <= bounds[queue]] == []


def test_no_label_names_a_session_a_receiver_a_client_or_a_transfer(cluster: Cluster) -> None:
    (shown,) = cluster.proxies["a2"].request("/v1/handovers")["handovers"]
    private = {SESSION, RECEIVER, CLIENT, shown["transfer"]}
    for proxy in cluster.proxies:
        values = {value for _, labels in scraped(cluster, proxy) for _, value in labels}
        assert values & private == set()


async def test_refused_client_messages_are_counted_by_refusal(cluster: Cluster) -> None:
    made_up = b"\xc1 made up 0815"
    async with connect(f"{cluster.proxies['b1'].url}/v1/client") as socket:
        for frame in (made_up, made_up, "a text"):
            await socket.send(frame)
            await socket.recv()
        # Before a hello it may not be so large.
        await socket.send(encode_message(Hello(VERSION, "c")))
        await socket.recv()
        await socket.send(bytes(MAX_FRAME_BYTES + 1))
        await socket.recv()
    counts = {
        labels: value
        for (name, labels), value in scraped(cluster, "b1").items()
        if name == "waypost_client_refusals_total"
    }
    assert counts == {(("what", "bad message"),): 3, (("what", "limit exceeded"),): 1}


def test_every_metric_in_the_list_is_shown_and_no_other_one_of_ours(cluster: Cluster) -> None:
    shown = {
        family.name: (family.type, family.documentation)
        for family in parse_text(fetch(cluster, "a1")[1])
        if family.name.startswith("waypost_") and not family.name.endswith("_created")
    }
    listed = {described.name.removesuffix("_total"): (described.kind, described.meaning) for described in METRICS}
    assert shown == listed


def test_labels_are_as_the_list_says(cluster: Cluster) -> None:
    listed = {described.name: set(described.labels) for described in METRICS}
    for name, labels in scraped(cluster, "b1"):
        base = re.sub("_(bucket|sum|count)$", "", name)
        if base in listed:
            assert {label for label, _ in labels} - {"le"} == listed[base], name


def test_metrics_are_openmetrics_on_request_and_the_text_format_otherwise(cluster: Cluster) -> None:
    kind, text = fetch(cluster, "a1", "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    families = parse_openmetrics(text)  # type: ignore[no-untyped-call]  # it ships none for this
    assert {family.name for family in families} >= {"waypost_handovers", "waypost_ready"}
    kind, text = fetch(cluster, "a1", "*/*")
    assert kind.startswith("text/plain")
    assert "waypost_ready 1.0" in text.splitlines()


# ---------------------------------------------------------------- waypost handovers


def handovers(proxy: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("waypost")), "handovers", "--proxy", proxy, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_handovers_are_listed_in_columns_that_nothing_is_cut_off_from(cluster: Cluster) -> None:
    heading, row = handovers(cluster.proxies["a2"].url).stdout.splitlines()
    assert heading.split() == [
        "began",
        "session",
        "role",
        "peer",
        "epoch",
        "for",
        "phase",
        "time",
        "copied",
        "size",
        "why",
    ]
    assert re.match(rf"\d\d:\d\d:\d\d +{SESSION} +target +a1 +1 +attach +committed +\d", row)
    assert row.index("target") == heading.index("role")
    assert f" {STORED} " in row


def test_a_proxy_without_handovers_says_so(cluster: Cluster) -> None:
    done = handovers(cluster.proxies["b1"].url)
    assert done.stdout == "no handover runs at proxy b1, and none has ended there since it started\n"
    assert done.returncode == 0


def test_a_proxy_that_is_not_there_is_one_line_with_what_the_system_says() -> None:
    done = handovers("ws://127.0.0.1:1")
    assert done.stderr.splitlines()[0] == "error: UNREACHABLE: http://127.0.0.1:1/v1/handovers: Connection refused"
    assert (done.stdout, done.returncode) == ("", 3)


# ---------------------------------------------------------------- before it has started


def unstarted(clock: Clock | None = None, **health: str) -> Node:
    async def none() -> Backends:
        raise Unreachable("nothing here")

    node = Node(NodeConfig(name="me", site="A"), none, new_incarnation(), lambda: "ws://127.0.0.1:1", clock)
    for part, text in health.items():
        node.health.unavailable(part, Unreachable(text))
    return node


MISSING = "waypost_part_missing"


def looked(node: Node) -> Found:
    return samples(exposition(make_registry(node), "")[0].decode())


def test_a_node_that_waits_for_its_parts_says_which_are_missing_and_nothing_of_sessions() -> None:
    found = looked(unstarted(registry="away", etcd="away too"))
    assert found["waypost_ready", ()] == 0
    assert found["waypost_part_missing", (("part", "registry"),)] == 1
    assert found["waypost_part_missing", (("part", "log"),)] == 0
    assert found["waypost_part_missing", (("part", "other"),)] == 1
    assert not any(name == "waypost_sessions" for name, _ in found)


@pytest.mark.parametrize(
    ("trouble", "part"),
    [
        ("neighbour B", "neighbour"),
        ("advertised address", "advertised address"),
        ("progress of link from B", "progress"),
        ("changelog of site B", "another site"),
        ("something new", "other"),
    ],
)
def test_unavailable_dependency_is_counted_under_a_fixed_label(trouble: str, part: str) -> None:
    node = unstarted()
    node.health.unavailable(trouble, Unreachable("away"))
    missing = {dict(labels)["part"] for (name, labels), value in looked(node).items() if name == MISSING and value}
    assert missing == {part}


def test_an_outage_is_counted_once_however_often_it_is_noticed() -> None:
    clock = ManualClock()
    node = unstarted(clock, log="away")
    node.health.unavailable("log", Unreachable("still away"))
    assert looked(node)["waypost_part_outages_total", (("part", "log"),)] == 1
    node.health.available("log")
    clock.advance(STEADY_MS)
    node.health.unavailable("log", Unreachable("away again"))
    found = looked(node)
    assert found["waypost_part_outages_total", (("part", "log"),)] == 2
    assert found["waypost_part_missing", (("part", "log"),)] == 1


def test_times_are_shown_in_seconds_and_every_bucket_has_all_that_is_below_it() -> None:
    node = unstarted()
    for milliseconds in (1, 3, 400, 70_000):
        node.effect_runner.store_writes.note(milliseconds)
    found = looked(node)
    buckets = {
        labels[0][1]: value for (name, labels), value in found.items() if name == "waypost_store_write_seconds_bucket"
    }
    assert (buckets["0.001"], buckets["0.002"], buckets["0.005"], buckets["0.5"], buckets["60.0"]) == (1, 1, 2, 3, 3)
    assert buckets["+Inf"] == found["waypost_store_write_seconds_count", ()] == 4
    assert found["waypost_store_write_seconds_sum", ()] == pytest.approx(70.404)


@pytest.mark.parametrize("bounds", [MILLISECONDS, SIZES])
def test_a_value_at_a_bound_is_counted_as_at_most_that(bounds: tuple[int, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    spread = Histogram(bounds)
    for bound in bounds:
        spread.note(bound)
    spread.note(bounds[-1] + 1)
    assert spread.counts == [1] * (len(bounds) + 1)
    assert spread.total == sum(bounds) + bounds[-1] + 1


# ---------------------------------------------------------------- the page


def test_the_page_for_operators_has_the_list_as_it_is() -> None:
    """Else: `python -m node.http.metrics`."""
    assert table() in PAGE.read_text()


def test_every_metric_that_the_page_names_exists() -> None:
    shown: dict[str, Any] = {described.name: described for described in METRICS}
    for described in METRICS:
        if described.kind == "histogram":
            shown |= {f"{described.name}_{end}": described for end in ("bucket", "sum", "count")}
    assert set(re.findall(r"\bwaypost_[a-z_]+", PAGE.read_text())) <= set(shown)


def test_the_page_explains_every_cause_and_every_phase() -> None:
    causes = {cause.value for cause in Cause} - {""}
    phases = {state.name.lower() for state in (*SourceState, *TargetState)} - {"ended"}
    assert [label for label in sorted(causes | phases) if f"`{label}`" not in PAGE.read_text()] == []
