"""What operators may ask of a node by HTTP: health, metrics, status, sessions, handovers, drains, a rebalance."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from federation.ports import DrainRow
from node.metrics import exposition, make_registry
from node.node import Node
from proxy.session import Subscription
from waypost.errors import BadMessage, NotFound, NotServed, WaypostError
from waypost.identity import ProxyId, SessionId
from waypost.limits import MAX_ID_LENGTH

WishT = TypeVar("WishT", bound=BaseModel)
STATUS_OF = {2: 400, 5: 404}
"""HTTP status by the error's exit status; the others are 503: try again."""


class DrainWish(BaseModel):
    """`rate` None: drain no more."""

    model_config = ConfigDict(extra="forbid")

    proxy: str
    rate: float | None = Field(None, gt=0, le=10_000)
    paused: bool = False


class DeleteWish(BaseModel):
    """The body of a question to delete a session."""

    model_config = ConfigDict(extra="forbid")

    session: str = Field(min_length=1, max_length=MAX_ID_LENGTH)


def _sessions(node: Node) -> list[dict[str, Any]]:
    if node.engine is None:
        return []
    context = node.engine.context
    rows = []
    for identity, owner in sorted(context.owners.items()):
        if owner.deleted:
            continue
        session = context.sessions.get(identity)
        here = session if session is not None and owner.proxy == node.proxy else None
        rows.append(
            {
                "session": identity,
                "owner": owner.proxy,
                "epoch": owner.epoch,
                "state": here.role.value if here else "elsewhere",
                "stored": here.stored_count if here else None,
                "receivers": len(here.receivers) if here else None,
                "subscriptions": {sub.id: _settings(sub) for sub in here.active()} if here else None,
                "lasts_s": here.lasts_s if here else None,
            }
        )
    return rows


def _settings(subscription: Subscription) -> dict[str, Any]:
    said = subscription.settings()
    return {field: getattr(said, field) for field in said.__struct_fields__ if getattr(said, field) is not None}


def _status(node: Node) -> dict[str, Any]:
    engine = node.engine
    row = engine.moving.row if engine else None
    return {
        "v": 1,
        "proxy": node.proxy,
        "site": node.site,
        "ready": node.ready,
        "draining": row.model_dump() if row else None,
        "troubles": node.troubles,
        "position": engine.state.position if engine else 0,
        "frontier": engine.state.frontier if engine else {},
        "proxies": sorted(engine.context.proxies) if engine else [],
        "leading": node.leading,
        "unsettled": node.unsettled,
        "sessions": len(engine.context.sessions) if engine else 0,
        "peer_bytes": node.peers.sent_bytes,
        "relayed": engine.door.relays.near + engine.door.relays.far if engine else 0,
        "gates": sum(len(each.gates) for each in engine.context.sessions.values()) if engine else 0,
        "stored": sum(each.stored_count for each in engine.context.sessions.values()) if engine else 0,
        "refused": dict(engine.context.refused.counts) if engine else {},
    }


async def _set_drain(node: Node, request: Request) -> dict[str, Any]:
    wish = await _wish(DrainWish, request)
    context = node.serving_engine.context
    proxy = ProxyId(wish.proxy)
    if proxy not in context.proxies and proxy not in context.drains:
        raise NotFound(f"there is no proxy {proxy}; there are {', '.join(sorted(context.proxies))}", field="proxy")
    if wish.paused and proxy not in context.drains:
        raise NotFound(f"proxy {proxy} is not being drained, so there is nothing to pause", field="proxy")
    row = None if wish.rate is None else DrainRow(rate=wish.rate, paused=wish.paused)
    await node.parts.registry.drain(proxy, row)
    return {"proxy": proxy, "draining": row.model_dump() if row else None}


async def _delete_session(node: Node, request: Request) -> dict[str, Any]:
    """Delete a session wherever it is, also if nobody serves it: the registry's row decides, its owner reads so."""
    wish = await _wish(DeleteWish, request)
    engine, session, registry = node.serving_engine, SessionId(wish.session), node.parts.registry
    current = await registry.owner(session)
    if current is None or current.deleted:
        raise NotFound(f"there is no session {session}", field="session")
    if not (await registry.claim(session, current, current.gone())).won:
        raise NotServed(f"session {session} changes hands at this moment; ask again", field="session")
    engine.deleted(session, current, "an operator asked for it")
    node.drain()
    return {"session": session, "deleted": True}


async def _wish(kind: type[WishT], request: Request) -> WishT:
    try:
        return kind.model_validate_json(await request.body())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadMessage(first["msg"], field=".".join(str(each) for each in first["loc"]) or None) from None


def _drains(node: Node) -> dict[str, Any]:
    context = node.serving_engine.context
    left = {proxy: sum(owner.proxy == proxy for owner in context.owners.values()) for proxy in context.drains}
    rows = [{"proxy": proxy, **row.model_dump(), "left": left[proxy]} for proxy, row in sorted(context.drains.items())]
    return {"drains": rows}


def _rebalance(node: Node, *, apply: bool) -> dict[str, Any]:
    moves = node.serving_engine.rebalance(apply=apply)
    node.drain()
    listed = [{"session": move.session, "from": move.owner.proxy, "to": move.target} for move in moves]
    return {"applied": apply, "moves": listed}


def routes(node: Node) -> list[Route]:
    """Return the routes, each answering in JSON; an error as ``{"v": 1, "error": {code, message, field}}``."""

    def route(path: str, answer: Callable[[Request], Awaitable[dict[str, Any]]], method: str = "GET") -> Route:
        async def respond(request: Request) -> Response:
            try:
                return JSONResponse({"v": 1} | await answer(request))
            except (WaypostError, TimeoutError) as error:
                said = error if isinstance(error, WaypostError) else WaypostError("no answer from log or journal")
                body = {"code": said.code, "message": said.message, "field": said.field}
                return JSONResponse({"v": 1, "error": body}, STATUS_OF.get(said.exit_status, 503))

        return Route(path, respond, methods=[method])

    async def readyz(_: Request) -> Response:
        healthy = node.ready and (node.engine is None or node.engine.moving.row is None)
        return JSONResponse(_status(node), 200 if healthy else 503)

    async def live(_: Request) -> dict[str, Any]:
        return {"live": True}

    async def status(_: Request) -> dict[str, Any]:
        return _status(node)

    async def sessions(_: Request) -> dict[str, Any]:
        return {"sessions": _sessions(node)}

    async def delete_session(request: Request) -> dict[str, Any]:
        return await _delete_session(node, request)

    async def handovers(_: Request) -> dict[str, Any]:
        return {"proxy": node.proxy, "handovers": [each._asdict() for each in node.serving_engine.transfers.shown()]}

    async def marker(_: Request) -> dict[str, Any]:
        return {"offset": await node.mark()}

    async def drains(_: Request) -> dict[str, Any]:
        return _drains(node)

    async def set_drain(request: Request) -> dict[str, Any]:
        return await _set_drain(node, request)

    async def plan(_: Request) -> dict[str, Any]:
        return _rebalance(node, apply=False)

    async def rebalance(request: Request) -> dict[str, Any]:
        if await request.body():
            raise BadMessage("this question has no body; ask GET /v1/rebalance what would move", field="body")
        return _rebalance(node, apply=True)

    registry = make_registry(node)

    async def metrics(request: Request) -> Response:
        body, content_type = exposition(registry, request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return [
        Route("/readyz", readyz),
        Route("/metrics", metrics),
        route("/livez", live),
        route("/v1/status", status),
        route("/v1/sessions", sessions),
        route("/v1/sessions/delete", delete_session, "POST"),
        route("/v1/handovers", handovers),
        route("/v1/marker", marker, "POST"),
        route("/v1/drains", drains),
        route("/v1/drains", set_drain, "POST"),
        route("/v1/rebalance", plan),
        route("/v1/rebalance", rebalance, "POST"),
    ]
