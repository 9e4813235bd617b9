"""The pages for operators, as the OpenAPI document at ``/v1/openapi.json`` describes them: what each takes and gives.

What is described here is what `node/http/api.py` answers; a test asks every page for everything that its description
allows, and much that it does not (schemathesis), and holds the answers against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from waypost.access import Right
from waypost.limits import (
    MAX_COUNT,
    MAX_ID_LENGTH,
    MAX_PASSWORD_LENGTH,
    MAX_PRINCIPALS,
    MAX_STORED,
    MAX_STORED_BYTES,
    MAX_TTL_S,
)
from waypost.queue import Discard
from waypost.reliability import Degree

TOKEN = {"token": {"type": "http", "scheme": "bearer", "description": "Where `--operators` names who may."}}
COMPONENTS = "#/components/schemas/"


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _unsaid(default: Any, **bounds: Any) -> Any:
    """Return a field that stays as it was where it is not named: what stands here then means nothing."""

    def forget(schema: dict[str, Any]) -> None:
        schema.pop("default", None)

    return Field(default, json_schema_extra=forget, **bounds)


class DrainRequest(_Shape):
    """Have a proxy emptied, at so many sessions a second; `rate` null: drain no more; `paused`: stay where it is. What
    is not named stays as it is.
    """

    proxy: str
    rate: float | None = _unsaid(None, gt=0, le=10_000)
    paused: bool = _unsaid(False)


Principal = Annotated[str, Field(max_length=MAX_ID_LENGTH)]


class SessionRequest(_Shape):
    """The common field of the requests about one session.

    Args:
        session: its name.
    """

    session: str = Field(min_length=1, max_length=MAX_ID_LENGTH)


class DeleteRequest(SessionRequest):
    """Delete this session, with all that is stored for any receiver of it."""


class GrantRequest(_Shape):
    """What a principal may do. `password` proves it; empty: its name does; null: the one that it has. `by_token`: only
    a token does.
    """

    rights: list[Right] = Field(min_length=1)
    password: str | None = Field(None, max_length=MAX_PASSWORD_LENGTH)
    by_token: bool = False


class AccessRequest(SessionRequest):
    """The principals of a session and their rights; nobody else has any. No principals: everybody may do everything.
    The empty name stands for clients that name no principal.
    """

    grants: dict[Principal, GrantRequest] = Field(max_length=MAX_PRINCIPALS)


class QueueSet(_Shape):
    """The bounds of what a session stores. What is not named stays as it was.

    Args:
        max_count: in notifications; null: without a bound.
        max_bytes: in bytes of their bodies; null: without a bound.
        discard: which goes when it is more: any, fifo, lifo, priority or deadline (:mod:`waypost.queue`).
        deadlines: whether notifications go at their own deadlines.
    """

    max_count: int | None = _unsaid(None, ge=1, le=MAX_STORED)
    max_bytes: int | None = _unsaid(None, ge=1, le=MAX_STORED_BYTES)
    discard: Discard = _unsaid("fifo")
    deadlines: bool = _unsaid(False)


class ReliabilitySet(_Shape):
    """The levels that the receivers of a session may not exceed, from their next attach on. What is not named stays as
    it was. Persistent events over a best-effort connection are refused.

    Args:
        events: of what is stored for a receiver that is away.
        connection: of the connection to a receiver.
    """

    events: Degree = _unsaid("persistent")
    connection: Degree = _unsaid("persistent")


class PolicyRequest(SessionRequest):
    """Set what holds for the session as a whole; what is not named stays. `expiry_s` null: without an end; `queue`
    null: without bounds of its own.
    """

    expiry_s: int | None = _unsaid(None, ge=1, le=MAX_TTL_S)
    queue: QueueSet | None = _unsaid(None)
    reliability: ReliabilitySet = _unsaid(ReliabilitySet())


class SubscriptionRequest(SessionRequest):
    """A request to end a subscription, for all receivers of its session.

    Args:
        subscription: its id.
    """

    subscription: str = Field(min_length=1, max_length=MAX_ID_LENGTH)


class RetentionRequest(SubscriptionRequest):
    """Store what this subscription matches for so many seconds, and so many of it; null: without that bound. What is
    not named stays as it was.
    """

    ttl_s: int | None = _unsaid(None, ge=1, le=MAX_TTL_S)
    max_count: int | None = _unsaid(None, ge=1, le=MAX_COUNT)


class ReceiverRequest(SessionRequest):
    """A request to unregister a receiver that is away: nothing is stored for it any more.

    Args:
        receiver: its name.
    """

    receiver: str = Field(min_length=1, max_length=MAX_ID_LENGTH)


class _Answer(_Shape):
    v: int


class Live(_Answer):
    """Whether the process answers at all."""

    live: bool


class Ready(_Answer):
    """Whether new clients are to be sent to this proxy.

    Args:
        proxy: its name.
        ready: whether they are.
        why_not: for people; null: they are.
    """

    proxy: str
    ready: bool
    why_not: str | None


class DrainRow(_Shape):
    """A drain, as the registry has it: `rate` sessions a second leave the proxy; `paused`: none at the moment."""

    rate: float
    paused: bool


class Tree(BaseModel):
    """The dispatching tree in the site's log: its epoch, and the pairs of sites that forward to each other."""

    epoch: int
    links: list[tuple[str, str]]


class Status(_Answer):
    """The answer to GET /v1/status: one page of everything. Before the proxy has started, numbers are 0 and lists
    empty.

    Args:
        proxy: the name of the proxy that answers.
        site: its site.
        federation: its identity; "": the proxy has not read the registry's secret yet.
        ready: whether new clients are to be sent here.
        why_not: for people; null: they are.
        draining: the operator's order to drain this proxy; null: there is none.
        troubles: by dependency that does not answer, what is known of it, in words.
        log_epoch: of the site log.
        position: the offset up to which the site log is read.
        frontier: by origin, up to where the site has everything that it requested.
        proxies: the live proxies of the federation.
        leading: the neighbours whose link this proxy leads.
        tree: the dispatching tree in the site's log; null: there is none.
        unrecorded: how many things are not on record yet; 0: all is.
        sessions: how many sessions have a copy here, served or not.
        peer_bytes: bytes that were sent to other proxies since the start.
        relayed: how many clients are relayed, from here or to here.
        gates: how many origins these copies are to catch up with, counted for each copy.
        stored: how many notifications these copies have.
        refused: by name of the reason, how many messages of other proxies were refused.
    """

    proxy: str
    site: str
    federation: str
    ready: bool
    why_not: str | None
    draining: DrainRow | None
    troubles: dict[str, str]
    log_epoch: int
    position: int
    frontier: dict[str, int]
    proxies: list[str]
    leading: list[str]
    tree: Tree | None
    unrecorded: int
    sessions: int
    peer_bytes: int
    relayed: int
    gates: int
    stored: int
    refused: dict[str, int]


class SubscriptionShown(_Shape):
    """A subscription, as its session has it.

    Args:
        expression: as it was requested.
        ttl_s: how long what it matches is stored, in seconds; absent: until all receivers have it.
        max_count: how many of the newest are stored; absent: all, until all receivers have them.
        owner: the receiver that made it.
        keys: how many keys belong to it.
        insecure: whether it also takes what has no key in common with it.
    """

    expression: str
    ttl_s: int | None = None
    max_count: int | None = None
    owner: str
    keys: int
    insecure: bool


class QueueShown(_Shape):
    """How much a session stores at most, by its own bounds and the proxy's together.

    Args:
        max_count: in notifications; null: without a bound.
        max_bytes: in bytes of their bodies; null: without a bound.
        discard: which goes when it is more: any, fifo, lifo, priority or deadline (:mod:`waypost.queue`).
        deadlines: whether notifications go at their own deadlines.
    """

    max_count: int | None
    max_bytes: int | None
    discard: str
    deadlines: bool


class GrantShown(_Shape):
    """The rights of one principal, as a page shows them: never with a password or its hash.

    Args:
        rights: of ``read``, ``subscribe`` and ``administer``.
        proof: what proves the principal: ``a token``, ``a password`` or ``its name``, which is nothing more.
    """

    rights: list[str]
    proof: str


class ReceiverShown(_Shape):
    """A registered receiver of a session.

    Args:
        attached: whether a client is attached by its name.
        behind: how many numbers lie between what it has acknowledged and the newest entry.
        expiry_s: how long its registration lasts while it is away, in seconds; null: for ever.
        reliability: its levels, as ``EVENTS events, CONNECTION connection``.
        order: which notification the application gets first: any, fifo, priority or deadline.
    """

    attached: bool
    behind: int
    expiry_s: int | None
    reliability: str
    order: str


SessionState = Literal["shadow", "staged", "dormant", "serving", "frozen", "orphan", "elsewhere", "unserved"]


class SessionShown(_Shape):
    """A session. Only its owner knows what is null here.

    Args:
        session: its name.
        owner: the proxy that the registry names.
        url: the address of the owner; null: it has no lease.
        epoch: of the ownership.
        state: the role of the copy that is here; elsewhere: another proxy owns it; unserved: that one has no lease.
        stored: how many notifications are stored.
        attached: how many receivers are attached now.
        registered: how many receivers are registered, attached or away.
        subscriptions: by id.
        expiry_s: after how many seconds without a receiver it is deleted; null: never, or not known.
        queue: the bounds of what it stores; null: there are none, or they are not known.
        reliability: the levels that its receivers may not exceed, as ``EVENTS events, CONNECTION connection``.
        registrations: by name of the receiver.
        access: by principal, "" for clients that name none; empty: everybody has all rights.
    """

    session: str
    owner: str
    url: str | None
    epoch: int
    state: SessionState
    stored: int | None
    attached: int | None
    registered: int | None
    subscriptions: dict[str, SubscriptionShown] | None
    expiry_s: int | None
    queue: QueueShown | None
    reliability: str | None
    registrations: dict[str, ReceiverShown] | None
    access: dict[str, GrantShown] | None


class Changed(_Answer):
    """The answer to a change of a session, which its proxy and its changelog have.

    Args:
        session: the session as it is now.
    """

    session: SessionShown


class Sessions(_Answer):
    """The sessions that were asked for."""

    sessions: list[SessionShown]


class Deleted(_Answer):
    """The answer to a deletion. A session that is not there is refused with NOT_FOUND.

    Args:
        session: its name.
        deleted: true.
    """

    session: str
    deleted: bool


class HandoverShown(_Shape):
    """A handover that runs, or ended lately, as :class:`proxy.core.transfer_record.TransferView` describes it."""

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
    pre_copied: int


class Handovers(_Answer):
    """The answer to GET /v1/handovers: the handovers of the proxy that answers, those that run and the last ones that
    ended, the latest first.

    Args:
        proxy: the name of the proxy.
        handovers: of either role; of each at most TRANSFERS_SHOWN that have ended.
    """

    proxy: str
    handovers: list[HandoverShown]


class LinkFrom(_Shape):
    """What comes from a neighbour.

    Args:
        leads: whether this proxy leads it.
        leader: the proxy of this site that leads it; null: none does.
        phase: of this proxy's end: resting, unreached, electing, waiting, pausing, syncing, naming or pulling.
        peer: the neighbour's proxy from which it pulls; null: none.
        silent_ms: for how long nothing has come from it, in milliseconds; null: nothing is pulled.
        filters: how many filters are requested there.
        covered: how many others are needed, and come with these.
        answered: whether what was requested is in force.
        origins: by origin that comes over it, the offset up to which it has come.
    """

    leads: bool
    leader: str | None
    phase: str
    peer: str | None
    silent_ms: int | None
    filters: int
    covered: int
    answered: bool
    origins: dict[str, int]


class LinkTo(_Shape):
    """What this proxy sends to a neighbour.

    Args:
        peer: the neighbour's proxy that has opened the link here.
        behind: how many records of our log were not read for it yet.
        under_way: how many records were sent and not acknowledged.
        filters: how many filters the neighbour has here.
        lags: by origin, the number of offsets that it was not told of.
    """

    peer: str
    behind: int
    under_way: int
    filters: int
    lags: dict[str, int]


class LinkShown(_Shape):
    """A link of the site.

    Args:
        neighbour: the site at its other end.
        in_tree: everything goes over it; else it stands by.
        puller: the neighbour's proxy that leads the other direction; null: none does.
        from_: what comes from the neighbour.
        to: what this proxy sends to it; null: another proxy does, or nobody.
    """

    neighbour: str
    in_tree: bool
    puller: str | None
    from_: LinkFrom = Field(alias="from")
    to: LinkTo | None


class Links(_Answer):
    """The links of a proxy's site, and what of them is here."""

    proxy: str
    site: str
    links: list[LinkShown]


class Marker(_Answer):
    """The closing marker's offset in the site log."""

    offset: int


class Drain(DrainRow):
    """The drain of one proxy. `left`: so many sessions are still there; `targets`: so many other live proxies take
    them.
    """

    proxy: str
    left: int
    targets: int


class Drains(_Answer):
    """The drains of all proxies."""

    drains: list[Drain]


class DrainSet(_Answer):
    """The drain of a proxy as it is from now on; null: it is not drained."""

    proxy: str
    draining: DrainRow | None


class Move(_Shape):
    """A session that has another owner once the load is level.

    Args:
        session: its name.
        from_: the name of the proxy that it goes from.
        to: the name of the proxy that it goes to.
    """

    session: str
    from_: str = Field(alias="from")
    to: str


class Moves(_Answer):
    """The moves that make the load level. `applied`: they have begun; else they would be these."""

    applied: bool
    moves: list[Move]


class ErrorShown(_Shape):
    """An error, as a program reads it.

    Args:
        code: stable; that of a class of waypost/errors.py.
        message: one line for people.
        field: what is wrong in the request; null: no field of it.
    """

    code: str
    message: str
    field: str | None


class Refusal(_Answer):
    """The answer to a request that was not done.

    Args:
        error: why.
    """

    error: ErrorShown


class Page(NamedTuple):
    """One route of the API for operators.

    Args:
        method: of HTTP.
        path: of the URL.
        summary: for the OpenAPI description.
        response: shape of the answer.
        body: shape of the request's body; None: it has none.
        free: whether no token is asked for.
        names: the name of an optional query parameter that selects one object; "": there is none.
    """

    method: str
    path: str
    summary: str
    response: type[_Answer]
    body: type[_Shape] | None = None
    free: bool = False
    names: str = ""
    """What may be named behind the path; else there is all."""


PAGES = (
    Page("GET", "/livez", "Whether the process lives and answers.", Live, free=True),
    Page("GET", "/readyz", "Whether it takes new clients; 503: it does not.", Ready, free=True),
    Page("GET", "/v1/status", "Everything about the proxy.", Status),
    Page("GET", "/v1/sessions", "All sessions of the federation, or one of them.", Sessions, names="session"),
    Page("POST", "/v1/sessions/delete", "Delete a session, whoever owns it.", Deleted, DeleteRequest),
    Page("POST", "/v1/sessions/access", "Say who may do what with a session.", Changed, AccessRequest),
    Page(
        "POST",
        "/v1/sessions/policy",
        "Say how long it lasts, how much it stores, how reliably.",
        Changed,
        PolicyRequest,
    ),
    Page("POST", "/v1/sessions/retention", "Say how long a subscription stores.", Changed, RetentionRequest),
    Page("POST", "/v1/sessions/unsubscribe", "End a subscription of a session.", Changed, SubscriptionRequest),
    Page("POST", "/v1/sessions/forget", "Unregister a receiver that is away.", Changed, ReceiverRequest),
    Page("GET", "/v1/handovers", "Handovers that run, or ended lately.", Handovers),
    Page("GET", "/v1/links", "The links of its site, and what of them is here.", Links),
    Page("POST", "/v1/marker", "Append a closing marker, for the audit.", Marker),
    Page("GET", "/v1/drains", "Proxies that are being emptied.", Drains),
    Page("POST", "/v1/drains", "Have a proxy emptied, or no more.", DrainSet, DrainRequest),
    Page("GET", "/v1/rebalance", "The moves that would level the load.", Moves),
    Page("POST", "/v1/rebalance", "Have them made.", Moves),
)


@cache
def openapi() -> dict[str, Any]:
    """Return the description of all pages, as OpenAPI 3.1 has it."""
    paths: dict[str, dict[str, Any]] = {}
    for page in PAGES:
        paths.setdefault(page.path, {})[page.method.lower()] = _operation(page)
    shapes = {shape for page in PAGES for shape in (page.response, page.body) if shape} | {Refusal}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Waypost", "version": version("waypost"), "description": "One proxy, for its operators."},
        "paths": paths,
        "components": {"schemas": _schemas(shapes), "securitySchemes": TOKEN},
    }


def _operation(page: Page) -> dict[str, Any]:
    answers = {"200": _content(page.response, "Done.")}
    if page.path == "/readyz":
        answers["503"] = _content(page.response, "Not ready.")
    elif not page.free:
        answers |= {
            "400": _content(Refusal, "What is asked cannot be; the field says why."),
            "401": _content(Refusal, "No token says who asks."),
            "403": _content(Refusal, "Who asks is no operator of this proxy, or a web page that it does not allow."),
            "404": _content(Refusal, "There is no such thing."),
            "421": _content(Refusal, "The Host header names no host of this proxy."),
            "503": _content(Refusal, "A part that is needed does not answer; try again."),
        }
    if page.method == "POST":
        answers["415"] = _content(Refusal, "The body does not say that it is JSON.")
    operation: dict[str, Any] = {"summary": page.summary, "responses": answers}
    if page.names:
        operation["parameters"] = [{"name": page.names, "in": "query", "schema": {"type": "string"}}]
    if page.body is not None:
        operation["requestBody"] = {"required": True} | _content(page.body, page.body.__doc__ or "")
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
