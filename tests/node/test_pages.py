"""The pages for operators are what their description says, whatever is asked of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

import waypost
from chaos.cluster import Cluster, ProxySpec
from node.http.api import ANSWERS
from node.http.schemas import PAGES, openapi

SCHEMA = schemathesis.openapi.from_dict(openapi())


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy with a session, whose pages have something to show."""
    places = [ProxySpec(name, site, {"no-discovery": ""}) for name, site in (("a1", "A"), ("a2", "A"), ("b1", "B"))]
    with Cluster(places, [("A", "B")], tmp_path_factory.mktemp("pages")) as cluster:
        asyncio.run(_something(cluster))
        yield f"http://127.0.0.1:{cluster.proxies['a1'].port}"


async def _something(cluster: Cluster) -> None:
    async with waypost.attach("pages/one", proxy=cluster.proxies["a2"].url) as session:
        await session.subscribe("n > 0", ttl_s=60)
        await session.move(cluster.proxies["a1"].url)
        await session.wait_attached()


@SCHEMA.parametrize()
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_of_the_shape_that_is_described(case: schemathesis.Case[Any], address: str) -> None:
    """What is described is asked, and much that is not: no page fails, and what is wrong is told in the shape of it."""
    response = case.call(base_url=address)
    if response.status_code in (404, 405) and case.method.upper() not in _methods(case.path):
        return
    case.validate_response(
        response, checks=[not_a_server_error_but_503, response_schema_conformance, status_code_conformance]
    )


def _methods(path: str) -> set[str]:
    return {page.method for page in PAGES if page.path == path}


def not_a_server_error_but_503(context: Any, response: Any, case: Any) -> bool | None:
    """A part that is away is no fault of the page."""
    return None if response.status_code == 503 else not_a_server_error(context, response, case)


def test_every_page_is_described_and_answered() -> None:
    described = {(page.method, page.path) for page in PAGES}
    assert described == {*ANSWERS, ("GET", "/readyz")}


def test_a_proxy_hands_out_its_description(address: str) -> None:
    with urlopen(f"{address}/v1/openapi.json") as answer:
        assert json.load(answer) == openapi()
