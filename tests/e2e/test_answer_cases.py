"""Answers of the API pass as they are, those of the sidecar itself can be told apart and read by every SDK."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, post, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.process import refusing_port
from tests.kit.upstream import Connection, answering, each_request

OK = events.body_response(b"ok")
KEYS = [(b"Authorization", b"Bearer K1"), (b"x-api-key", b"K2")]


@pytest.mark.parametrize("location", ["http://localhost:{port}/x", "http://127.0.0.1:{port}/x", "/v2/x", "x"])
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_htp_15_redirects_are_for_the_client_to_follow(
    status: int, location: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    other = await upstream(answering(OK))
    place = location.format(port=other.port)
    server = await upstream(answering(events.body_response(b"", ("Location", place), status=f"{status} Moved")))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("POST", "/v1/x", KEYS, b"{}")
    assert (response.status, response.value("location")) == (status, place.encode())
    assert len(server.requests) == 1
    assert not other.accepted


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"
LIMITED = [
    ("429 Too Many Requests", "7", "rate_limited"),
    ("503 Service Unavailable", DATE, "upstream_error"),
    ("529 Overloaded", DATE, "upstream_error"),
    ("500 Internal Server Error", "1", "upstream_error"),
    ("403 Forbidden", "1", "client_error"),
]


@pytest.mark.parametrize(("status", "retry_after", "outcome"), LIMITED)
async def test_htp_17_limits_pass_with_their_fields_and_nothing_is_tried_again(
    status: str, retry_after: str, outcome: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    answer = events.json_response(
        {"error": {"message": "slow down", "type": "rate_limit", "code": "limit"}},
        ("Retry-After", retry_after),
        ("retry-after-ms", "7000"),
        ("x-ratelimit-remaining-tokens", "0"),
        ("anthropic-ratelimit-unified-status", "rejected"),
        status=status,
    )
    server = await upstream(answering(answer))
    sidecar = await sidecars(server, server_timing=False)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        first = await client.chat()
        second = await client.request("GET", "/v1/models")
    assert first.raw == second.raw == answer
    assert len(server.requests) == 2
    assert outcomes(before, await sidecar.metrics_after(before, 2)) == {outcome: 2}


def openai(body: Any) -> tuple[str, str]:
    assert set(body) == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return body["error"]["code"], body["error"]["type"]


def anthropic(body: Any) -> tuple[str, str]:
    assert body["type"] == "error"
    return body["error"]["code"], body["error"]["type"]


def gemini(body: Any) -> tuple[str, str]:
    assert body["error"]["code"] == 502
    return body["error"]["details"][0]["reason"].lower(), body["error"]["status"]


def flat(body: Any) -> tuple[str, str]:
    return body["code"], body["message"]


def ollama(body: Any) -> tuple[str, str]:
    return body["code"], body["error"]


SHAPES: list[tuple[str, str, Callable[[Any], tuple[str, str]], str]] = [
    ("auto", "/v1/chat/completions", openai, "server_error"),
    ("auto", "/v1/messages", anthropic, "api_error"),
    ("auto", "/v1beta/models/g:generateContent", gemini, "UNAVAILABLE"),
    ("auto", "/api/chat", ollama, "cannot connect"),
    ("auto", "/model/a.b/converse", flat, "cannot connect"),
    ("auto", "/v2/chat", flat, "cannot connect"),
    ("auto", "/nothing/known", openai, "server_error"),
    ("anthropic", "/nothing/known", anthropic, "api_error"),
    ("cohere", "/nothing/known", flat, "cannot connect"),
]


@pytest.mark.parametrize(("dialect", "target", "read", "says"), SHAPES)
async def test_errors_of_our_own_have_the_shape_of_the_dialect(
    dialect: str, target: str, read: Callable[[Any], tuple[str, str]], says: str, sidecars: LocalSidecars
) -> None:
    sidecar = await sidecars(f"http://127.0.0.1:{refusing_port()}", settings={"dialect": dialect})
    response = await post(sidecar.data, target, b"{}")
    assert (response.status, response.value("x-sidecar-error")) == (502, b"connect_failed")
    assert response.value("content-type") == b"application/json"
    code, rest = read(json.loads(response.body))
    assert code == "connect_failed"
    assert says in rest


async def test_errors_of_our_own_leave_the_connection_open(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, settings={"prefix": "/api"})
    async with await sidecar.client() as client:
        responses = [await client.request("GET", target) for target in ("/x", "/api/x", "http://a/b", "/api/y")]
    assert [response.status for response in responses] == [404, 200, 400, 200]


async def test_more_requests_than_the_limit_get_503_with_retry_after(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    go_on = asyncio.Event()

    async def wait(connection: Connection, _: RawRequest) -> None:
        await go_on.wait()
        await connection.send(OK)

    server = await upstream(each_request(wait))
    sidecar = await sidecars(server, limits={"max_in_flight": 2})
    before = await sidecar.metrics()
    first, second, third = [await sidecar.client() for _ in range(3)]
    async with first, second, third:
        await first.send(request_bytes("GET", "/1"))
        await second.send(request_bytes("GET", "/2"))
        await server.wait_for_requests(2)
        refused = await third.request("POST", "/v1/messages", body=b"{}")
        go_on.set()
        assert [(await client.response("GET")).status for client in (first, second)] == [200, 200]
        assert (await third.request("GET", "/4")).status == 200
    assert (refused.status, refused.value("x-sidecar-error")) == (503, b"overloaded")
    assert refused.value("retry-after") == b"1"
    assert json.loads(refused.body)["error"]["type"] == "overloaded_error"
    assert sorted(request.target for request in server.requests) == [b"/1", b"/2", b"/4"]
    assert outcomes(before, await sidecar.metrics_after(before, 4)) == {"ok": 3, "rejected": 1}


async def test_a_place_is_given_back_when_a_client_leaves(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(each_request(lambda connection, _: connection.wait_closed()))
    sidecar = await sidecars(server, limits={"max_in_flight": 1})
    async with await sidecar.client() as client:
        await client.send(request_bytes("GET", "/1"))
        await server.wait_for_requests(1)
        assert (await get(sidecar.data, "/2")).status == 503
    await sidecar.until_quiet(timeout=1)
    server.script = answering(OK)
    assert (await get(sidecar.data, "/3")).status == 200


@pytest.mark.parametrize(
    ("timeouts", "script", "code", "phase"),
    [
        ({"headers": "200ms"}, "silent", b"headers_timeout", "headers"),
        ({"idle": "200ms"}, "deaf", b"send_timeout", "took no byte"),
    ],
)
async def test_a_timeout_is_a_504_that_names_the_phase(
    timeouts: dict[str, str],
    script: str,
    code: bytes,
    phase: str,
    *,
    upstream: UpstreamFactory,
    sidecars: LocalSidecars,
) -> None:
    async def silent(connection: Connection) -> None:
        if script == "deaf":
            connection.pause_reading()
        else:
            await connection.read_request()
        await asyncio.sleep(5)

    server = await upstream(silent)
    sidecar = await sidecars(server, settings={"timeouts": timeouts})
    before = await sidecar.metrics()
    body = b"x" * (16 * 1024 * 1024 if script == "deaf" else 10)
    async with await sidecar.client() as client:
        sending = asyncio.ensure_future(client.send(request_bytes(body=body)))
        response = await client.response(timeout=2)
        sending.cancel()
    assert (response.status, response.value("x-sidecar-error")) == (504, code)
    assert phase in json.loads(response.body)["error"]["message"]
    assert outcomes(before, await sidecar.metrics_after(before)) == {"timeout": 1}
