"""A node is ready as long as its lease certainly holds, whether anybody told it of the end or not."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request

from federation.ports import DrainChanged, DrainRow, Reloaded
from node.configuration.config import NodeConfig
from node.health.dependency_health import Dependency
from node.http.api import ANSWERS, routes
from node.machines.lifecycle import Announced, LogConfirmed, LogEndFound, LogIdentified, LogRead, SecretLearnt, Start
from node.shell.links import Links
from node.shell.name_claim import NameClaim
from node.shell.node import APPENDS_FAIL_MS, Node
from node.startup.backends import Backends
from proxy.core.inputs import LeaseGranted, LeaseRenewed, RegistryReported
from proxy.core.settings import Settings
from proxy.engine import Engine
from waypost.clock import ManualClock
from waypost.errors import NotServed
from waypost.identity import Incarnation, ProxyId, SessionId, SiteId

INCARNATION = Incarnation("a#1")
LEASE_MS = 3_000


async def no_backends() -> Backends:
    raise AssertionError("not started")


def started(clock: ManualClock) -> tuple[Node, Engine]:
    node = Node(NodeConfig(name="a", site="A"), no_backends, INCARNATION, lambda: "ws://a:1", clock)
    assert node.why_not_ready == "it is starting"
    node.links = cast(Links, SimpleNamespace(leading=[]))
    node.name = cast(NameClaim, SimpleNamespace(waits_for=""))
    node.engine = Engine(
        Settings(proxy=ProxyId("a"), site=SiteId("A")), random.Random(0), INCARNATION, now_ms=clock.now_ms(), unix_ms=0
    )
    node.engine.step(RegistryReported(Reloaded({}, {}, {}, {})), 0)
    return node, node.engine


def test_node_that_compares_its_log_says_so() -> None:
    node, _ = started(ManualClock())
    for input in (Start(), LogEndFound(0), LogRead(), LogIdentified(), SecretLearnt(), Announced(3_000)):
        node._lifecycle.step(input, 0)
    assert why_not(node) == "it waits for other proxies to say what they have seen of its site's log"
    node._lifecycle.step(LogConfirmed(), 0)
    assert why_not(node) == "it has no lease"


def why_not(node: Node) -> str:
    return node.why_not_ready


async def asked(node: Node) -> tuple[int, bool, str | None]:
    """Return the status of /readyz, and what its body says."""
    (respond,) = [route.endpoint for route in routes(node) if route.path == "/readyz"]
    answer = await respond(Request({"type": "http"}))
    status = json.loads(answer.body)
    return answer.status_code, status["ready"], status["why_not"]


SESSION: dict[str, object] = {"session": "s"}
BODIES: dict[str, dict[str, object]] = {
    "/v1/sessions/delete": SESSION,
    "/v1/sessions/access": SESSION | {"grants": {}},
    "/v1/sessions/policy": SESSION | {"expiry_s": 1},
    "/v1/sessions/retention": SESSION | {"subscription": "x", "ttl_s": 1},
    "/v1/sessions/unsubscribe": SESSION | {"subscription": "x"},
    "/v1/sessions/forget": SESSION | {"receiver": "x"},
    "/v1/drains": {"proxy": "a", "rate": 1.0},
}


@pytest.mark.parametrize(("method", "path"), ANSWERS)
async def test_every_page_of_a_node_that_is_starting_says_so(method: str, path: str) -> None:
    """A session that is deleted then would be gone from the registry, and no fact would say so."""
    node = Node(NodeConfig(name="a", site="A"), no_backends, INCARNATION, lambda: "ws://a:1", ManualClock())
    body = json.dumps(BODIES[path]).encode() if method == "POST" and path in BODIES else b""

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body}

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    (respond,) = [route.endpoint for route in routes(node) if route.path == path and method in (route.methods or ())]
    answer = await respond(Request(scope, receive))
    if path in ("/livez", "/v1/status"):
        assert answer.status_code == 200
    else:
        assert (answer.status_code, "starting" in json.loads(answer.body)["error"]["message"]) == (503, True)


async def test_a_node_whose_lease_is_not_renewed_in_time_says_that_it_is_not_ready() -> None:
    clock = ManualClock(1_000)
    node, engine = started(clock)
    assert why_not(node) == "it has no lease"
    engine.step(LeaseGranted(INCARNATION, clock.now_ms() + LEASE_MS), 0)
    assert why_not(node) == ""
    clock.advance(LEASE_MS)
    assert why_not(node) == "it has no lease"
    engine.step(LeaseRenewed(clock.now_ms() + LEASE_MS), 0)
    assert why_not(node) == ""


async def test_a_node_that_is_drained_says_so_by_its_status_and_in_words() -> None:
    node, engine = started(ManualClock(1_000))
    engine.step(LeaseGranted(INCARNATION, 1_000_000), 0)
    assert await asked(node) == (200, True, None)
    engine.step(RegistryReported(DrainChanged(ProxyId("a"), DrainRow(rate=5))), 0)
    assert await asked(node) == (503, False, "it is being drained")
    engine.step(RegistryReported(DrainChanged(ProxyId("a"), None)), 0)
    assert await asked(node) == (200, True, None)


@pytest.mark.parametrize(
    ("dependency", "why"),
    [
        (Dependency.LOG, "the log of its site does not answer"),
        (Dependency.JOURNAL, "its journal takes no facts"),
    ],
)
async def test_node_without_its_site_log_or_its_journal_is_not_ready_until_it_answers(
    dependency: Dependency, why: str
) -> None:
    node, engine = started(ManualClock(1_000))
    engine.step(LeaseGranted(INCARNATION, 1_000_000), 0)
    node.health.unavailable(dependency, TimeoutError())
    assert await asked(node) == (503, False, why)
    node.health.available(dependency)
    assert await asked(node) == (200, True, None)


async def test_a_node_whose_site_log_takes_no_appends_is_not_ready_for_a_while() -> None:
    """Whether it takes them again only shows when somebody needs it."""
    clock = ManualClock(1_000)
    node, engine = started(clock)
    engine.step(LeaseGranted(INCARNATION, 1_000_000), 0)
    node.health.unavailable(Dependency.APPENDS, TimeoutError())
    assert await asked(node) == (503, False, "the log of its site takes no appends")
    clock.advance(APPENDS_FAIL_MS)
    assert await asked(node) == (200, True, None)
    node.health.unavailable(Dependency.APPENDS, TimeoutError())
    assert await asked(node) == (503, False, "the log of its site takes no appends")
    node.health.available(Dependency.APPENDS)
    assert await asked(node) == (200, True, None)


async def test_a_node_that_has_not_read_the_registry_is_not_ready_and_does_not_say_that_there_is_no_session() -> None:
    node, engine = started(ManualClock(1_000))
    engine.step(LeaseGranted(INCARNATION, 1_000_000), 0)
    engine.env.cluster.is_watching = False
    assert why_not(node) == "it has not read the registry yet"
    (respond,) = [route.endpoint for route in routes(node) if route.path == "/v1/sessions"]
    answer = await respond(Request({"type": "http", "query_string": b"session=s", "headers": [], "method": "GET"}))
    assert (answer.status_code, json.loads(answer.body)["error"]["code"]) == (503, "NOT_SERVED")
    with pytest.raises(NotServed):
        engine.dispatcher.administration.session(SessionId("s"))
