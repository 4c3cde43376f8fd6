"""Bodies keep the kind of their framing; what has no body does not wait for one (RFC 9112 §6.3, §7.1)."""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import request_bytes
from tests.kit.h1 import Framing, RawRequest, split_head
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import Connection, answering, each_request
from tests.kit.wire import Ended

AT_ONCE = 1.0
"""Seconds: far above what it takes, far below what waiting for a body would."""
OK = events.body_response(b"ok")
POST = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"
HEAD_ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        *[("HEAD", answer) for answer in HEAD_ANSWERS],
        ("GET", b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\nETag: x\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n"),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n"),
        ("POST", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
        ("POST", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ],
)
async def test_htp_14_an_answer_without_a_body_is_complete_at_once(
    method: str, answer: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(answer, OK))
    sidecar = await sidecars(server, server_timing=False)
    async with await sidecar.client() as client:
        began = time.monotonic()
        first = await client.request(method, "/v1/models", [(b"If-None-Match", b"x")])
        assert time.monotonic() - began < AT_ONCE
        second = await client.request("GET", "/v1/models")
    sent = split_head(answer)
    assert sent is not None
    hop = {b"Transfer-Encoding"} if first.framing is not Framing.CHUNKED else set()
    assert first.headers == [field for field in sent[1] if field[0] not in hop]
    assert first.body == b""
    assert (second.status, second.body) == (200, b"ok")
    assert server.accepted == 1, "both requests went over one connection to the upstream"


async def test_htp_14_an_answer_to_head_without_any_length_is_complete_at_once(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(b"HTTP/1.1 200 OK\r\n\r\n"))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        began = time.monotonic()
        responses = [await client.request("HEAD", "/v1/models") for _ in range(2)]
        assert time.monotonic() - began < AT_ONCE
    assert [response.status for response in responses] == [200, 200]


async def test_a_body_after_head_is_not_passed_and_its_connection_not_used_again(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(events.body_response(b"body")))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        first = await client.request("HEAD", "/v1/models")
        server.script = answering(OK)
        second = await client.request("GET", "/v1/models")
    assert (first.status, first.body, second.body) == (200, b"", b"ok")
    assert server.accepted == 2


async def test_an_error_of_our_own_to_head_has_no_body(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, settings={"prefix": "/api"})
    async with await sidecar.client() as client:
        first = await client.request("HEAD", "/v1/models")
        second = await client.request("GET", "/api/v1/models")
    assert (first.status, second.body) == (404, b"ok")


@pytest.mark.parametrize("framing", ["length", "chunked", "close"])
async def test_the_kind_of_framing_and_the_bytes_pass(
    framing: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    parts = [b"a" * 10, b"b" * 100_000, b"c"]
    body = b"".join(parts)

    async def script(connection: Connection) -> None:
        await connection.read_request()
        if framing == "length":
            await connection.send(events.body_response(body))
            await connection.wait_closed()
        elif framing == "chunked":
            await connection.send(events.head("200 OK", ("Transfer-Encoding", "chunked")))
            for part in parts:
                await connection.chunk(part)
            await connection.last_chunk()
            await connection.wait_closed()
        else:
            await connection.send(events.head("200 OK") + body)

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models")
        if framing == "close":
            assert (await client.wait_closed()).how is Ended.EOF
    assert response.framing == framing
    assert response.body == body
    assert response.clean_end
    assert (response.value("connection") == b"close") == (framing == "close")


async def test_trailers_pass(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    async def script(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.head("200 OK", ("Trailer", "X-Sum, x-Empty"), ("Transfer-Encoding", "chunked")))
        await connection.chunk(b"data")
        await connection.last_chunk(b"X-Sum: 1\r\nx-Empty: \r\n")
        await connection.wait_closed()

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models", [(b"Connection", b"TE"), (b"TE", b"trailers")])
        again = client.buffer
    assert response.value("trailer") == b"X-Sum, x-Empty"
    assert response.trailers == [(b"X-Sum", b"1"), (b"x-Empty", b"")]
    assert response.body == b"data"
    assert not again


async def test_chunked_uploads_arrive_chunked_with_the_same_bytes(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    head = POST + b"Transfer-Encoding: Chunked\r\n\r\n"
    async with await sidecar.client() as client:
        await client.send(head + events.chunk(b"at once") + events.LAST_CHUNK)
        first = await client.response()
        await client.send(head + events.chunk(b"in "))
        await server.connections[0].arrival(b"in ")
        await client.send(events.chunk(b"parts;") + b"3;name=value\r\nand\r\n")
        await client.send(b"0\r\nX-Trailer: 1\r\n\r\n")
        second = await client.response()
        await client.send(head + events.LAST_CHUNK)
        third = await client.response()
    assert [response.status for response in (first, second, third)] == [200, 200, 200]
    assert [request.body for request in server.requests] == [b"at once", b"in parts;and", b""]
    assert all(request.value("transfer-encoding") == b"chunked" for request in server.requests)
    assert all(request.value("content-length") is None for request in server.requests)


async def test_a_chunked_upload_that_turns_out_malformed_never_ends_at_the_upstream(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n" + events.chunk(b"good"))
        await server.wait_for_connections(1)
        await server.connections[0].arrival(b"good")
        await client.send(b"zz\r\nbad\r\n")
        response = await client.response()
        await client.wait_closed(timeout=2)
        await server.connections[0].wait_closed(timeout=1)
    assert (response.status, response.value("x-sidecar-error")) == (400, b"bad_request")
    assert b"0\r\n\r\n" not in server.connections[0].received
    assert not server.requests
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}


async def test_a_pipelined_upload_that_turns_out_malformed_is_refused_too(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    go_on = asyncio.Event()

    async def slowly(connection: Connection, _: RawRequest) -> None:
        await go_on.wait()
        await connection.send(OK)

    server = await upstream(each_request(slowly))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(
            request_bytes("GET", "/v1/1") + POST + b"Transfer-Encoding: chunked\r\n\r\n" + events.chunk(b"good")
        )
        await server.wait_for_requests(1)
        await client.send(b"zz\r\nbad\r\n")
        await asyncio.sleep(0.05)
        go_on.set()
        responses = [await client.response() for _ in range(2)]
        await client.wait_closed(timeout=2)
    assert [response.status for response in responses] == [200, 400]
    assert not client.buffer
    assert [request.target for request in server.requests] == [b"/v1/1"]


async def test_get_with_a_body_passes(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        assert (await client.request("GET", "/v1/search", body=b'{"q":1}')).status == 200
        assert (await client.request("DELETE", "/v1/x", body=b"")).status == 200
    assert [request.body for request in server.requests] == [b'{"q":1}', b""]
    assert server.requests[1].value("content-length") == b"0"


async def test_pipelined_requests_are_answered_in_order(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    async def echo(connection: Connection, request: RawRequest) -> None:
        await connection.send(events.body_response(request.target + b" " + request.body))

    server = await upstream(each_request(echo))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(
            request_bytes("POST", "/1", body=b"one")
            + request_bytes("GET", "/2")
            + request_bytes("POST", "/3", [(b"Transfer-Encoding", b"chunked")], b"5\r\nthree\r\n0\r\n\r\n")
            + b"".join(request_bytes("GET", f"/{n}") for n in range(4, 40))
        )
        bodies = [(await client.response()).body for _ in range(39)]
    assert bodies[:3] == [b"/1 one", b"/2 ", b"/3 three"]
    assert bodies[3:] == [b"/%d " % n for n in range(4, 40)]


async def test_an_upstream_that_says_close_is_not_used_again(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("Connection", "close"))))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        first, second = [await client.request("GET", "/v1/models") for _ in range(2)]
    assert (first.value("connection"), second.body) == (None, b"ok"), "Connection is of one hop"
    assert server.accepted == 2
