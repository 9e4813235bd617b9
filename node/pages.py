"""The pages for operators, as the OpenAPI document at ``/v1/openapi.json`` describes them: what each takes and gives.

What is described here is what `node/operators.py` answers; a test asks every page for everything that its description
allows, and much that it does not (schemathesis), and holds the answers against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from waypost.limits import MAX_ID_LENGTH

TOKEN = {"token": {"type": "http", "scheme": "bearer", "description": "Where `--operators` names who may."}}
COMPONENTS = "#/components/schemas/"


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DrainWish(_Shape):
    """Have a proxy emptied, at so many sessions a second; `rate` null: drain no more; `paused`: stay where it is."""

    proxy: str
    rate: float | None = Field(None, gt=0, le=10_000)
    paused: bool = False


class DeleteWish(_Shape):
    """Delete this session, with all that is stored for any receiver of it."""

    session: str = Field(min_length=1, max_length=MAX_ID_LENGTH)


class _Answer(_Shape):
    v: int


class Live(_Answer):
    live: bool


class Ready(_Answer):
    """`why_not`: why no new client is to be sent there."""

    proxy: str
    ready: bool
    why_not: str | None


class DrainRow(_Shape):
    rate: float
    paused: bool


class Status(_Answer):
    """One page of everything. `troubles`: which part does not answer, in words."""

    proxy: str
    site: str
    ready: bool
    why_not: str | None
    draining: DrainRow | None
    troubles: dict[str, str]
    position: int
    frontier: dict[str, int]
    proxies: list[str]
    leading: list[str]
    unsettled: int
    sessions: int
    peer_bytes: int
    relayed: int
    gates: int
    stored: int
    refused: dict[str, int]


class SubscriptionShown(_Shape):
    expression: str
    ttl_s: int | None = None
    max_count: int | None = None
    owner: str
    keys: int
    insecure: bool


class QueueShown(_Shape):
    max_count: int | None
    max_bytes: int | None
    discard: str
    deadlines: bool


class PlaceShown(_Shape):
    """A receiver. `behind`: so many numbers lie between what it has and the newest; `lasts_s`: its place stays."""

    attached: bool
    behind: int
    lasts_s: int | None
    reliability: str
    order: str


class SessionShown(_Shape):
    """`url`: where its owner is, which alone knows what is null here."""

    session: str
    owner: str
    url: str | None
    epoch: int
    state: str
    stored: int | None
    receivers: int | None
    subscriptions: dict[str, SubscriptionShown] | None
    lasts_s: int | None
    queue: QueueShown | None
    reliability: str | None
    places: dict[str, PlaceShown] | None


class Sessions(_Answer):
    sessions: list[SessionShown]


class Deleted(_Answer):
    session: str
    deleted: bool


class HandoverShown(_Shape):
    """One that runs, or ended lately. `outcome`, `cause` and `why` are empty while it runs."""

    session: str
    transfer: str
    role: str
    peer: str
    epoch: int
    trigger: str
    phase: str
    outcome: str
    cause: str
    why: str
    began_at_ms: int
    age_ms: int
    phase_ms: int
    phases_ms: dict[str, int]
    entries: int
    bytes: int
    ahead: int


class Handovers(_Answer):
    proxy: str
    handovers: list[HandoverShown]


class Marker(_Answer):
    """The closing marker's offset in the site log."""

    offset: int


class Drain(DrainRow):
    proxy: str
    left: int


class Drains(_Answer):
    drains: list[Drain]


class DrainSet(_Answer):
    proxy: str
    draining: DrainRow | None


class Move(_Shape):
    session: str
    from_: str = Field(alias="from")
    to: str


class Moves(_Answer):
    applied: bool
    moves: list[Move]


class ErrorShown(_Shape):
    """`code` is stable, `message` one line for people, `field` names what is wrong."""

    code: str
    message: str
    field: str | None


class Refusal(_Answer):
    error: ErrorShown


class Page(NamedTuple):
    """One question. `wants`: the shape of its body; None: it has none. `free`: nobody is asked for a token."""

    method: str
    path: str
    says: str
    gives: type[_Answer]
    wants: type[_Shape] | None = None
    free: bool = False


PAGES = (
    Page("GET", "/livez", "Whether the process lives and answers.", Live, free=True),
    Page("GET", "/readyz", "Whether it takes new clients; 503: it does not.", Ready, free=True),
    Page("GET", "/v1/status", "Everything about the proxy.", Status),
    Page("GET", "/v1/sessions", "All sessions of the federation.", Sessions),
    Page("POST", "/v1/sessions/delete", "Delete a session, whoever owns it.", Deleted, DeleteWish),
    Page("GET", "/v1/handovers", "Handovers that run, or ended lately.", Handovers),
    Page("POST", "/v1/marker", "Append a closing marker, for the audit.", Marker),
    Page("GET", "/v1/drains", "Proxies that are being emptied.", Drains),
    Page("POST", "/v1/drains", "Have a proxy emptied, or no more.", DrainSet, DrainWish),
    Page("GET", "/v1/rebalance", "The moves that would level the load.", Moves),
    Page("POST", "/v1/rebalance", "Have them made.", Moves),
)


def openapi() -> dict[str, Any]:
    """Return the description of all pages, as OpenAPI 3.1 has it."""
    paths: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        paths.setdefault(page.path, {})[page.method.lower()] = _operation(page)
    shapes = {shape for page in PAGES for shape in (page.gives, page.wants) if shape} | {Refusal}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waypost", "version": version("waypost"), "description": "One proxy, for its operators."},
        "paths": paths,
        "components": {"schemas": _schemas(shapes), "securitySchemes": TOKEN},
    }


def _operation(page: Page) -> dict[str, Any]:
    answers = {"200": _content(page.gives, "Done.")}
    if page.path == "/readyz":
        answers["503"] = _content(page.gives, "Not ready.")
    elif not page.free:
        answers |= {
            "400": _content(Refusal, "What is asked cannot be; the field says why."),
            "401": _content(Refusal, "No token names an operator of this proxy."),
            "404": _content(Refusal, "There is no such thing."),
            "503": _content(Refusal, "A part that is needed does not answer; try again."),
        }
    operation: dict[str, Any] = {"summary": page.says, "responses": answers}
    if page.wants is not None:
        operation["requestBody"] = {"required": True} | _content(page.wants, page.wants.__doc__ or "")
    if not page.free:
        operation["security"] = [{}, {"token": []}]
    return operation


def _content(shape: type[_Shape], says: str) -> dict[str, Any]:
    return {
        "description": says,
        "content": {"application/json": {"schema": {"$ref": COMPONENTS + shape.__name__}}},
    }


def _schemas(shapes: set[type[_Shape]]) -> Mapping[str, Any]:
    schemas: dict[str, Any] = {}
    for shape in sorted(shapes, key=lambda each: each.__name__):
        schema = shape.model_json_schema(ref_template=COMPONENTS + "{model}")
        schemas |= schema.pop("$defs", {})
        schemas[shape.__name__] = schema
    return schemas
