"""The pages of a node for operators, over HTTP: health, metrics, status, sessions, handovers, drains, a rebalance."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from http import HTTPStatus
from operator import itemgetter
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from federation.links.link_receiver import ReceiverView
from federation.links.link_sender import SenderView
from federation.ports import DrainRow
from federation.site.state import SiteState
from node.configuration.wording import wording
from node.http import admin
from node.http.exposition import exposition, make_registry
from node.http.schemas import (
    AccessRequest,
    DeleteRequest,
    DrainRequest,
    PolicyRequest,
    ReceiverRequest,
    RetentionRequest,
    SubscriptionRequest,
    openapi,
)
from node.shell.node import Node
from proxy.clients.tokens import read
from proxy.core.inputs import DeletedByOperator, Rebalance
from proxy.engine import Engine
from proxy.session.receivers import Receiver
from proxy.session.session import Session
from proxy.session.subscription import Subscription
from waypost.access import BY_TOKEN, Grant
from waypost.errors import BadMessage, Forbidden, LimitExceeded, NotFound, NotServed, Unreachable, WaypostError
from waypost.identity import Ownership, ProxyId, SessionId, SiteId, log_epoch_of
from waypost.limits import MAX_BODY_BYTES, PAGE_S, PAGES_WAIT_S
from waypost.subscription.batch import NotJson, read_json

Answer = Callable[[Node, Request], Awaitable[dict[str, Any]]]
BodyT = TypeVar("BodyT", bound=BaseModel)
STATUS_OF = {2: 400, 5: 404}
"""HTTP status by the error's exit status; the others are 503: try again."""
SEEN_S = 2.0
"""How long to wait until the watch has reported a row that was written here."""


async def _sessions(node: Node, named: str | None) -> list[dict[str, Any]]:
    """Return all sessions, or the one that is named.

    Many are read a part at a time, so that others have their turn, and a request for many waits in line with all that
    cost the loop much.

    `url` is that of their owner, which alone knows more of them; None: it has no lease.

    Raises:
        NotServed: this proxy does not know yet which sessions there are, or too much waits in that line.
    """
    if node.engine is None or not node.engine.env.cluster.is_watching:
        raise NotServed("this proxy is starting, and has not read the registry yet; ask again")
    all_of_them = node.engine.env.cluster.owners
    count = len(all_of_them) if named is None else 1
    if count > TOGETHER:
        now_s = time.monotonic()
        if node.shares.requests.queued_s(now_s) > PAGES_WAIT_S:
            raise NotServed("clients that cost much have their turn before so many sessions; ask again")
        await asyncio.sleep(node.shares.requests.turn_s(count * SHOWN_S, now_s))
    identities = list(all_of_them) if named is None else [SessionId(named)]
    found = []
    for number, identity in enumerate(identities, 1):
        owner = all_of_them.get(identity)
        if owner is not None and not owner.deleted:
            found.append(_session(node.engine, identity, owner))
        if number % TOGETHER == 0:
            await asyncio.sleep(0)
    return sorted(found, key=itemgetter("session"))


TOGETHER, SHOWN_S = 500, 2e-5
"""The sessions that are read in one go; and the seconds that each takes about, with its part of the answer."""


def _session(engine: Engine, identity: SessionId, owner: Ownership) -> dict[str, Any]:
    session = engine.sessions.get(identity)
    owned = session if session is not None and owner.proxy == engine.env.proxy else None
    row = engine.env.cluster.proxies.get(owner.proxy)
    return {
        "session": identity,
        "owner": owner.proxy,
        "url": row.url if row else None,
        "epoch": owner.epoch,
        "state": owned.role.value if owned else "elsewhere" if row else "unserved",
        "stored": owned.entries.count if owned else None,
        "attached": len(owned.receivers.attached()) if owned else None,
        "registered": len(owned.receivers) if owned else None,
        "subscriptions": {sub.id: _settings(sub) for sub in owned.subscriptions.active()} if owned else None,
        "expiry_s": owned.idle_time.expiry_s if owned else None,
        "queue": _queue(owned) if owned else None,
        "reliability": str(owned.reliability) if owned else None,
        "registrations": {receiver.id: _registration(receiver, owned) for receiver in owned.receivers.values()}
        if owned
        else None,
        "access": {name: _grant(grant) for name, grant in owned.access.items()} if owned else None,
    }


def _grant(grant: Grant) -> dict[str, Any]:
    proof = "a token" if grant.hash == BY_TOKEN else "a password" if grant.hash else "its name"
    return {"rights": list(grant.rights), "proof": proof}


def _queue(session: Session) -> dict[str, Any] | None:
    """Return the bounds of the session's queue here, its own and the proxy's together; None: there are none."""
    if session.queue_limits is None:
        return None
    queue = session.queue_limits.queue
    return {field: getattr(queue, field) for field in queue.__struct_fields__}


def _registration(receiver: Receiver, session: Session) -> dict[str, Any]:
    """Return the state of a receiver; `behind`: the entries between its last acknowledged one and the newest."""
    return {
        "attached": receiver.connection is not None,
        "behind": session.entries.last_number - max(receiver.acknowledged, session.entries.first_number - 1),
        "expiry_s": receiver.idle_time.expiry_s,
        "reliability": str(receiver.reliability),
        "order": receiver.order,
    }


def _settings(subscription: Subscription) -> dict[str, Any]:
    settings = subscription.settings()
    values = {field: getattr(settings, field) for field in settings.__struct_fields__}
    return {field: value for field, value in values.items() if value is not None}


def _status(node: Node) -> dict[str, Any]:
    engine = node.engine
    row = engine.session_moves.drain_row if engine else None
    return {
        "v": 1,
        "proxy": node.proxy,
        "site": node.site,
        "federation": node.engine.env.cluster.federation if node.engine is not None else "",
        "ready": not node.why_not_ready,
        "why_not": node.why_not_ready or None,
        "draining": row.model_dump() if row else None,
        "troubles": node.health.now,
        "log_epoch": log_epoch_of(engine.state.origin) if engine else 0,
        "position": engine.state.position if engine else 0,
        "frontier": engine.state.frontier if engine else {},
        "proxies": sorted(engine.env.cluster.proxies) if engine else [],
        "leading": node.leading,
        "tree": {"epoch": engine.state.tree.epoch, "links": engine.state.tree.edges} if engine else None,
        "unrecorded": node.unrecorded,
        "sessions": len(engine.sessions) if engine else 0,
        "peer_bytes": node.peers.sent_bytes,
        "relayed": len(engine.dispatcher.relays.near) + len(engine.dispatcher.relays.far) if engine else 0,
        "gates": sum(len(session.gates) for session in engine.sessions.values()) if engine else 0,
        "stored": sum(session.entries.count for session in engine.sessions.values()) if engine else 0,
        "refused": dict(engine.output.refused.counts) if engine else {},
    }


async def _set_drain(node: Node, request: Request) -> dict[str, Any]:
    body = await _parsed(DrainRequest, request)
    engine = node.serving_engine
    proxy = ProxyId(body.proxy)
    if proxy not in engine.env.cluster.proxies and proxy not in engine.env.cluster.drains:
        raise NotFound(
            f"there is no proxy {proxy}; there are {', '.join(sorted(engine.env.cluster.proxies))}", field="proxy"
        )
    running, named = engine.env.cluster.drains.get(proxy), body.model_fields_set
    if not named.intersection(("rate", "paused")):
        raise BadMessage("nothing is to be changed; name rate, paused, or both", field="rate")
    if running is None and body.rate is None:
        end = "stop" if "rate" in named else "pause" if body.paused else "go on with"
        raise NotFound(f"proxy {proxy} is not being drained, so there is nothing to {end}", field="proxy")
    rate = body.rate if "rate" in named or running is None else running.rate
    paused = body.paused if "paused" in named or running is None else running.paused
    row = None if rate is None else DrainRow(rate=rate, paused=paused)
    await node.backends.registry.drain(proxy, row)
    # The next change in part is one of this row: it is answered once the watch has it.
    with suppress(TimeoutError):
        async with asyncio.timeout(SEEN_S):
            while engine.env.cluster.drains.get(proxy) != row:
                await asyncio.sleep(0.01)
    return {"proxy": proxy, "draining": row.model_dump() if row else None}


async def _delete_session(node: Node, request: Request) -> dict[str, Any]:
    """Delete a session wherever it is, served or not: the registry's row decides, and its owner reads that."""
    body = await _parsed(DeleteRequest, request)
    session, registry = SessionId(body.session), node.backends.registry
    current = await registry.owner(session)
    if current is None or current.deleted:
        raise NotFound(f"there is no session {session}", field="session")
    if not (await registry.claim(session, current, current.gone())).won:
        raise NotServed(f"session {session} changes hands at this moment; ask again", field="session")
    node.step(DeletedByOperator(session, current, "an operator asked for it"))
    return {"session": session, "deleted": True}


def _changing(kind: type[BodyT], change: Callable[[Node, BodyT], Awaitable[SessionId]]) -> Answer:
    """Return a handler that makes the change, and answers with the session as it is then."""

    async def answer(node: Node, request: Request) -> dict[str, Any]:
        identity = await change(node, await _parsed(kind, request))
        engine = node.serving_engine
        return {"session": _session(engine, identity, engine.env.cluster.owners[identity])}

    return answer


async def _body(request: Request) -> bytes:
    """Return the body. Raises LimitExceeded, before more of it is read, and before a client is told to send it."""
    body, announced = bytearray(), request.headers.get("content-length", "")
    if announced.isdecimal():
        _check_length(int(announced))
    async for part in request.stream():
        body += part
        _check_length(len(body))
    return bytes(body)


def _check_length(length: int) -> None:
    if length > MAX_BODY_BYTES:
        raise LimitExceeded(f"a body has {MAX_BODY_BYTES} bytes at most", field="body")


async def _check_no_body(request: Request, instead: str = "") -> None:
    """Raises BadMessage: there is a body; the message ends with what to do `instead`."""
    if await _body(request):
        raise BadMessage(f"this question has no body{instead}", field="body")


async def _parsed(kind: type[BodyT], request: Request) -> BodyT:
    try:
        return kind.model_validate(read_json((await _body(request)).decode()), strict=True)
    except (NotJson, UnicodeDecodeError) as error:
        raise BadMessage(str(error)) from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadMessage(wording(first), field=".".join(str(part) for part in first["loc"]) or None) from None


# ---------------------------------------------------------------- the routes


async def _live(node: Node, request: Request) -> dict[str, Any]:
    return {"live": True}


def _asked(request: Request, name: str) -> str | None:
    """Return the one parameter that a question may have; None: it has none. Raises BadMessage: it has others."""
    given = request.query_params.multi_items()
    unknown = next((key for key, _ in given if key != name), None)
    if unknown is not None:
        raise BadMessage(f"there is no such parameter; there is {name}", field=unknown)
    if len(given) > 1:
        raise BadMessage("it is given twice", field=name)
    return given[0][1] if given else None


async def _shown_status(node: Node, request: Request) -> dict[str, Any]:
    return _status(node)


async def _shown_sessions(node: Node, request: Request) -> dict[str, Any]:
    return {"sessions": await _sessions(node, _asked(request, "session"))}


async def _handovers(node: Node, request: Request) -> dict[str, Any]:
    return {
        "proxy": node.proxy,
        "handovers": [asdict(view) | {"outcome": view.outcome or ""} for view in node.serving_engine.transfers.views()],
    }


async def _links(node: Node, request: Request) -> dict[str, Any]:
    """Show the two ends that this proxy has of each link, or may have: another one of the site may lead it."""
    state, (pulling, sending) = node.serving_engine.state, node.links.shown()
    sent = {end.neighbour: end for end in sending}
    return {"proxy": node.proxy, "site": node.site, "links": [_link(state, end, sent) for end in pulling]}


def _link(state: SiteState, end: ReceiverView, sent: Mapping[SiteId, SenderView]) -> dict[str, Any]:
    site, out = end.neighbour, sent.get(end.neighbour)
    return {
        "neighbour": site,
        "in_tree": not end.stands_by,
        "puller": end.puller,
        "from": {
            "leads": end.leads,
            "leader": end.leader,
            "phase": end.phase,
            "peer": end.peer,
            "silent_ms": end.silent_ms,
            "filters": len(state.requested(site)),
            "covered": state.covered(site),
            "answered": end.is_answered,
            "origins": {
                origin: offset for origin, offset in state.frontier.items() if state.upstream.get(origin) == site
            },
        },
        "to": None
        if out is None
        else {
            "peer": out.peer,
            "behind": out.behind,
            "under_way": out.under_way,
            "filters": len(state.filters_of(site).filters),
            "lags": out.lags,
        },
    }


async def _marker(node: Node, request: Request) -> dict[str, Any]:
    await _check_no_body(request)
    return {"offset": await node.mark()}


async def _drains(node: Node, request: Request) -> dict[str, Any]:
    cluster = node.serving_engine.env.cluster
    loads = cluster.loads()
    undrained = cluster.proxies.keys() - cluster.drains.keys()
    return {
        "drains": [
            {"proxy": proxy, **row.model_dump(), "left": loads[proxy], "targets": len(undrained)}
            for proxy, row in sorted(cluster.drains.items())
        ]
    }


async def _rebalance(node: Node, request: Request) -> dict[str, Any]:
    """Show the moves that would level the load; to a POST, have them made."""
    apply = request.method == "POST"
    if apply:
        await _check_no_body(request, "; ask GET /v1/rebalance what would move")
    moves = node.serving_engine.planned_moves()
    if apply:
        node.step(Rebalance())
    listed = [{"session": move.session, "from": move.owner.proxy, "to": move.target} for move in moves]
    return {"applied": apply, "moves": listed}


ANSWERS: dict[tuple[str, str], Answer] = {
    ("GET", "/livez"): _live,
    ("GET", "/v1/status"): _shown_status,
    ("GET", "/v1/sessions"): _shown_sessions,
    ("POST", "/v1/sessions/delete"): _delete_session,
    ("POST", "/v1/sessions/access"): _changing(AccessRequest, admin.set_access),
    ("POST", "/v1/sessions/policy"): _changing(PolicyRequest, admin.set_policy),
    ("POST", "/v1/sessions/retention"): _changing(RetentionRequest, admin.set_retention),
    ("POST", "/v1/sessions/unsubscribe"): _changing(SubscriptionRequest, admin.unsubscribe),
    ("POST", "/v1/sessions/forget"): _changing(ReceiverRequest, admin.forget),
    ("GET", "/v1/handovers"): _handovers,
    ("GET", "/v1/links"): _links,
    ("POST", "/v1/marker"): _marker,
    ("GET", "/v1/drains"): _drains,
    ("POST", "/v1/drains"): _set_drain,
    ("GET", "/v1/rebalance"): _rebalance,
    ("POST", "/v1/rebalance"): _rebalance,
}
"""Method and path -> the handler of that page of :data:`node.http.schemas.PAGES`."""


class _NoOperator(Forbidden):
    """The token is valid, and names no operator."""


def _let_in(node: Node, request: Request) -> None:
    """Raises Forbidden: not everybody may use these pages, and no token names somebody who may."""
    if not node.config.operators:
        return
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise Forbidden("say who you are, by a token: Authorization: Bearer TOKEN", field="authorization")
    engine = node.serving_engine
    if not engine.env.cluster.token_key:
        raise Unreachable("the registry has not told yet by what tokens are known")
    named = read(engine.env.cluster.token_key, token, node.clock.unix_ms())
    if named.principal not in node.config.operators:
        raise _NoOperator(f"principal {named.principal} is no operator of this proxy", field="authorization")


async def _respond(answer: Answer, node: Node, request: Request) -> Response:
    """Answer in JSON; an error as ``{"v": 1, "error": {code, message, field}}``."""
    try:
        if answer is not _live:
            _let_in(node, request)
            await _turn(node, request)
        if request.method == "POST":
            # A change is attested by the proxy that makes it, and one that is starting could not.
            _ = node.serving_engine
        return await _encoded({"v": 1} | await answer(node, request))
    except ClientDisconnect:
        # Nobody reads it.
        return Response(status_code=HTTPStatus.BAD_REQUEST)
    except WaypostError as error:
        return _refusal(error)


async def _encoded(body: dict[str, Any]) -> Response:
    """Return the answer; one with a long list is encoded in a thread."""
    if max((len(value) for value in body.values() if isinstance(value, list)), default=0) <= TOGETHER:
        return JSONResponse(body)
    return await asyncio.to_thread(JSONResponse, body)


def _refusal(error: WaypostError) -> Response:
    # It may say again what was asked, which JSON can have and UTF-8 cannot.
    message = error.message.encode(errors="replace").decode()
    body = {"v": 1, "error": {"code": error.code, "message": message, "field": error.field}}
    if isinstance(error, Forbidden):
        if isinstance(error, _NoOperator):
            return JSONResponse(body, 403)
        return JSONResponse(body, 401, headers={"www-authenticate": "Bearer"})
    status = 503 if isinstance(error, NotServed) else STATUS_OF.get(error.exit_status, 503)
    return JSONResponse(body, status)


async def _readyz(node: Node, request: Request) -> Response:
    """Answer whether new clients are to be sent here. Needs no token; load balancers ask often."""
    why = node.why_not_ready
    body = {"v": 1, "proxy": node.proxy, "ready": not why, "why_not": why or None}
    return JSONResponse(body, 503 if why else 200)


async def _metrics(node: Node, expose: Callable[[str], tuple[bytes, str]], request: Request) -> Response:
    try:
        _let_in(node, request)
    except WaypostError as error:
        return _refusal(error)
    body, content_type = expose(request.headers.get("accept", ""))
    return Response(body, media_type=content_type)


async def _in_line(node: Node, answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
    """Answer when it is this page's turn."""
    try:
        await _turn(node, request)
    except NotServed as error:
        return _refusal(error)
    return await answer(request)


async def _turn(node: Node, request: Request) -> None:
    """Wait until it is this page's turn: many at once would hold up the clients. What has a body is waited for anyway.

    Raises:
        NotServed: more of them wait than are answered within PAGES_WAIT_S.
    """
    if request.method == "POST":
        return
    now_s = time.monotonic()
    if node.shares.pages.queued_s(now_s) > PAGES_WAIT_S:
        raise NotServed("too many pages are requested at this moment; ask again")
    await asyncio.sleep(node.shares.pages.turn_s(PAGE_S, now_s))


async def _openapi(request: Request) -> Response:
    return JSONResponse(openapi())


async def not_routed(request: Request, error: Exception) -> Response:
    """Return the answer to a request for a path that has no route, or that has none for this method.

    Args:
        error: an HTTPException; its status is that of the answer.
    """
    assert isinstance(error, HTTPException)
    problem = "nothing is at" if error.status_code == HTTPStatus.NOT_FOUND else f"{request.method} is not answered at"
    kind, field = (NotFound, "path") if error.status_code == HTTPStatus.NOT_FOUND else (BadMessage, "method")
    refusal = _refusal(kind(f"{problem} {request.url.path}; what there is: GET /v1/openapi.json", field=field))
    refusal.status_code = error.status_code
    refusal.headers.update(error.headers or {})
    return refusal


def routes(node: Node) -> list[Route]:
    """Return the routes of all pages for operators."""
    metrics = partial(_metrics, node, partial(exposition, make_registry(node)))
    return [
        Route("/readyz", partial(_readyz, node)),
        Route("/metrics", partial(_in_line, node, metrics)),
        Route("/v1/openapi.json", partial(_in_line, node, _openapi)),
        *(Route(path, partial(_respond, answer, node), methods=[method]) for (method, path), answer in ANSWERS.items()),
    ]
