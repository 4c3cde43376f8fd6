"""Which responder answers a request."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from sidecar.simulator.answer import Ask, Call, Route
from sidecar.simulator.api_responder import ApiResponder
from sidecar.simulator.apis import find_route, openai
from sidecar.simulator.plumbing import MAX_BYTES, Bytes, Certificate, Echo, Sink, Truths
from sidecar.simulator.realtime import Realtime
from sidecar.simulator.request import Request
from sidecar.simulator.responder import Link, Refusal, Responder, Setting
from sidecar.simulator.truths import ConnectionFacts, Truth

_find_route = lru_cache(maxsize=256)(find_route)

_METHODS = {
    "/x-sim/echo": ("POST", "PUT"),
    "/x-sim/sink": ("POST", "PUT"),
    "/x-sim/bytes": ("GET", "HEAD"),
    "/x-sim/truths": ("GET",),
    "/x-sim/ca.pem": ("GET",),
}


def choose(link: Link, request: Request, facts: ConnectionFacts, setting: Setting, problem: str) -> Responder:
    """The responder for `request`; `problem` is what was wrong with its knobs, "" when nothing was."""
    at = request.path.rfind("/x-sim/")
    path = request.path[at:] if at >= 0 else ""
    if path in ("/x-sim/truths", "/x-sim/ca.pem") and not problem:
        return _about(link, request, facts, setting, path)
    route = None if path else _find_route(request.path)
    websocket = request.upgrade and request.path.endswith("/realtime")
    api = path[1:] or ("openai.realtime" if websocket else route.api if route else "unknown")
    truth = setting.ledger.open_request(facts, api, request.method, request.target, request.head_at)
    if problem:
        return _refusal(link, request, truth, setting, status=400, message=problem, route=route)
    if path:
        return _plumbing(link, request, truth, setting, path)
    if websocket:
        if b"sec-websocket-key" not in request.headers:
            return _refusal(link, request, truth, setting, status=400, message="Sec-WebSocket-Key is missing")
        return Realtime(link, request, truth, setting)
    if route is None:
        return _refusal(
            link, request, truth, setting, status=404, message=f"no simulated API has the path {request.path}"
        )
    return ApiResponder(link, request, truth, setting, route)


def _about(link: Link, request: Request, facts: ConnectionFacts, setting: Setting, path: str) -> Responder:
    """Questions about the simulator leave no trace in what they ask for."""
    truth = Truth(0, path[1:], request.method, request.target, facts, 0, request.head_at)
    if request.method not in _METHODS[path]:
        return _not_allowed(link, request, truth, setting, path)
    return (Truths if path == "/x-sim/truths" else Certificate)(link, request, truth, setting)


def _plumbing(link: Link, request: Request, truth: Truth, setting: Setting, path: str) -> Responder:
    if path not in _METHODS:
        return _refusal(link, request, truth, setting, status=404, message=f"there is no {path}")
    if request.method not in _METHODS[path]:
        return _not_allowed(link, request, truth, setting, path)
    if path == "/x-sim/echo":
        return Echo(link, request, truth, setting)
    if path == "/x-sim/sink":
        return Sink(link, request, truth, setting)
    size = request.query.get("n", "")
    if not (size.isascii() and size.isdigit()) or int(size) > MAX_BYTES:
        return _refusal(link, request, truth, setting, status=400, message="the query n takes a count of bytes")
    return Bytes(link, request, truth, setting, int(size))


def _not_allowed(link: Link, request: Request, truth: Truth, setting: Setting, path: str) -> Responder:
    allowed = ", ".join(_METHODS[path])
    body = msgspec.json.encode({"error": {"message": f"{path} takes {allowed}"}})
    return Refusal(link, request, truth, setting, 405, body, f"allow: {allowed}\r\n".encode())


def _refusal(
    link: Link,
    request: Request,
    truth: Truth,
    setting: Setting,
    *,
    status: int,
    message: str,
    route: Route | None = None,
) -> Responder:
    """A refusal in the error shape of the API that was meant, OpenAI's when none was."""
    family = route.family if route else openai.FAMILY
    call = Call(truth.id, request.method, request.path, request.query, "", b"", request.knobs, 0.0, Ask())
    return Refusal(link, request, truth, setting, status, family.error(call, status, message))
