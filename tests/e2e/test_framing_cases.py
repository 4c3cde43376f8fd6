"""Where messages begin and end: what is ambiguous is refused, what has no body does not wait for one (RFC 9112 §6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, request_bytes
from tests.kit.h1 import Framing, RawRequest, split_head
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import Connection, answering, each_request
from tests.kit.wire import Ended

OK = events.body_response(b"ok")
POST = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture
async def sidecars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalSidecars]:
    async with LocalSidecars(tmp_path, caplog) as start:
        yield start


AMBIGUOUS = {
    "a: both framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a: both, the other way round": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "b: two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "b: the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "b: a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nabcde",
    "c: a sign": POST + b"Content-Length: +5\r\n\r\nabcde",
    "c: negative": POST + b"Content-Length: -5\r\n\r\nabcde",
    "c: hexadecimal": POST + b"Content-Length: 0x5\r\n\r\nabcde",
    "c: digits of another script": POST + "Content-Length: ٥\r\n\r\nabcde".encode(),
    "c: empty": POST + b"Content-Length: \r\n\r\n",
    "c: beyond 64 bits": POST + b"Content-Length: 18446744073709551617\r\n\r\na",
    "d: an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "d: chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "d: a coding that would be lost": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "d: chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "d: identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "e: a space before the colon": POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    "e: a space before the name": POST + b" Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "e: a folded field": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "e: a control byte in the value": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "e: a NUL in a value": POST + b"X-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "e: a bare CR in a value": POST + b"X-A: a\rContent-Length: 5\r\n\r\n",
    "g: a prefix of the chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
    "g: a negative chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabcde\r\n0\r\n\r\n",
    "g: a chunk size beyond 64 bits": POST + b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n",
    "two Hosts": b"GET /v1/x HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "no version": b"GET /v1/x\r\n\r\n",
    "another version": b"GET /v1/x HTTP/3.7\r\nHost: a\r\n\r\n",
}


@pytest.mark.parametrize("name", AMBIGUOUS)
async def test_htp_06_ambiguous_requests_get_400_and_reach_nobody(
    name: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """With (a) both framings, RFC 9112 §6.1 leaves the choice of refusing: it is taken."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(AMBIGUOUS[name] + SMUGGLED)
        received = await client.read_all(timeout=2)
    assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert received.count(b"x-sidecar-error") == 1
    assert b"x-sidecar-error: bad_request\r\n" in received
    assert not server.requests
    assert set(outcomes(before, await sidecar.metrics_after(before))) == {"rejected"}


async def test_htp_06_f_bare_line_feeds_are_never_two_requests(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(b"GET /v1/x HTTP/1.1\nHost: localhost\nX: 1\n\n" + SMUGGLED.replace(b"\r", b""))
        received = await client.read_all(timeout=2)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert not server.requests


async def test_htp_06_f_bare_line_feeds_after_a_chunk_size_are_refused(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\n0\n\n" + SMUGGLED)
        received = await client.read_all(timeout=2)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert not server.requests


async def test_htp_06_h_a_chunk_extension_of_100_kb_is_refused(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n")
        response = await client.response()
    assert response.status in (400, 200)
    if response.status == 200:
        assert server.requests[0].body == b"abcde"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nabcde",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-A: a\x00b\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
    ],
)
async def test_htp_06_an_ambiguous_answer_is_a_502_and_its_connection_is_not_used_again(
    answer: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(answer))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        first = await client.request("GET", "/v1/models")
        await server.connections[0].wait_closed(timeout=1)
        server.script = answering(OK)
        second = await client.request("GET", "/v1/models")
    assert (first.status, first.value("x-sidecar-error")) == (502, b"upstream_protocol")
    assert (second.status, second.body) == (200, b"ok")
    assert server.accepted == 2
    assert outcomes(before, await sidecar.metrics_after(before, 2)) == {"network_error": 1, "ok": 1}


async def test_htp_06_a_second_answer_to_one_request_goes_to_nobody(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK + events.body_response(b"poison")))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        first = await client.request("GET", "/v1/models")
        server.script = answering(OK)
        second = await client.request("GET", "/v1/models")
        assert not client.buffer
    assert (first.body, second.body) == (b"ok", b"ok")
    assert server.accepted == 2


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
        assert time.monotonic() - began < 0.3
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
        assert time.monotonic() - began < 0.3
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


async def test_a_client_that_closes_its_sending_side_has_left(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """A FIN is all that is seen of a client that went away: waiting to see would let the upstream generate on."""
    server = await upstream(each_request(lambda connection, _: connection.wait_closed()))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(request_bytes(body=events.DEFAULT_BODY))
        await server.wait_for_requests(1)
        client.half_close()
        await server.connections[0].wait_closed(timeout=1)
        await client.wait_closed(timeout=1)
    assert outcomes(before, await sidecar.metrics_after(before)) == {"client_cancelled": 1}


async def test_a_client_of_http_1_0_gets_what_it_can_read(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """No chunks and no 1xx (RFC 9112 §7.1, RFC 9110 §15.2): the end of the connection ends the body."""

    async def script(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.head("103 Early Hints", ("Link", "</a>")))
        await connection.stream(events.ROLE, events.T("a"), events.DONE)
        await connection.wait_closed()

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        received = await client.read_all()
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"chunked" not in head
    assert b"Connection: close" in head
    assert body == events.ROLE + events.T("a") + events.DONE
    assert server.requests[0].version == b"HTTP/1.1"


async def test_a_client_of_http_1_0_may_keep_its_connection(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        for _ in range(2):
            await client.send(b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            response = await client.response()
            assert response.value("connection") == b"keep-alive"
            assert response.body == b"ok"
    assert server.accepted == 1


async def test_a_client_of_http_1_0_is_told_when_its_answer_broke_off(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def script(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.T("a")))
        connection.rst()

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        end = await client.wait_closed()
    assert end.how is Ended.RST


@pytest.mark.parametrize("keep", [True, False])
async def test_an_upstream_of_http_1_0_is_understood(
    keep: bool, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    framing = b"Connection: keep-alive\r\nContent-Length: 2\r\n" if keep else b""

    async def script(connection: Connection) -> None:
        while True:
            await connection.read_request()
            await connection.send(b"HTTP/1.0 200 OK\r\n" + framing + b"\r\nok")
            if not keep:
                return

    server = await upstream(script)
    sidecar = await sidecars(server)
    responses = [await get(sidecar.data, "/v1/models") for _ in range(2)]
    assert [response.body for response in responses] == [b"ok", b"ok"]
    assert all(response.clean_end for response in responses)
    assert server.accepted == (1 if keep else 2)


async def test_an_upstream_that_says_close_is_not_used_again(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(events.body_response(b"ok", ("Connection", "close"))))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        first, second = [await client.request("GET", "/v1/models") for _ in range(2)]
    assert (first.value("connection"), second.body) == (None, b"ok"), "Connection is of one hop"
    assert server.accepted == 2


async def test_expect_100_continue_passes_and_the_upstreams_100_too(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def script(connection: Connection) -> None:
        await connection.read_request(interim=b"HTTP/1.1 100 Continue\r\n\r\n")
        await connection.send(OK)
        await connection.wait_closed()

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        await client.until(lambda: b"100 Continue\r\n\r\n" in client.buffer)
        await client.send(b"body")
        response = await client.response()
    assert [status for status, _ in response.informational] == [100]
    assert response.body == b"ok"
    assert server.requests[0].value("expect") == b"100-continue"
    assert server.requests[0].body == b"body"


async def test_expect_100_continue_with_an_upstream_that_ignores_it(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """RFC 9110 §10.1.1: the client sends its body after a while; the sidecar never says 100 by itself."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        await server.wait_for_connections(1)
        await server.connections[0].arrival(b"100-continue")
        await asyncio.sleep(0.2)
        assert not client.received
        await client.send(b"body")
        response = await client.response()
    assert (response.status, response.informational) == (200, [])
    assert server.requests[0].body == b"body"


async def test_expect_100_continue_refused_before_the_body(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """The body will not come, so nothing can follow on either connection: the client is told that its own closes."""

    async def script(connection: Connection) -> None:
        await connection.until(lambda: split_head(connection.buffer) is not None)
        await connection.send(events.body_response(b"no", status="417 Expectation Failed"))
        await connection.wait_closed(timeout=2)

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        response = await client.response()
        await server.connections[0].wait_closed(timeout=1)
    assert (response.status, response.body, response.informational) == (417, b"no", [])
    assert response.value("connection") == b"close"


async def test_early_hints_and_other_1xx_pass(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    async def script(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await connection.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nlink: </b>\r\nConnection: X\r\n\r\n" + OK)
        await connection.wait_closed()

    server = await upstream(script)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        response = await client.request("GET", "/v1/models")
    assert response.informational == [(102, []), (103, [(b"Link", b"</a>"), (b"link", b"</b>")])]
    assert response.body == b"ok"


async def test_an_upgrade_nobody_asked_for_is_a_502(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """RFC 9110 §15.2.2: a server switches only to what the client offered."""
    server = await upstream(
        answering(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nxyz")
    )
    sidecar = await sidecars(server)
    response = await get(sidecar.data, "/v1/models")
    assert (response.status, response.value("x-sidecar-error")) == (502, b"upstream_protocol")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x42" * 506,
        b"\x16\x03\x01",
        b"\x00" * 100,
        b"\xff\xfb\x1f\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.9\r\n",
        b"HELO example.test\r\n",
        b"\r\n\r\n\r\nnonsense\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    ids=["TLS hello", "start of a TLS hello", "zeros", "telnet", "SSH", "SMTP", "text", "a NUL", "a response"],
)
async def test_h2g_10_e_garbage_is_closed_within_a_second(
    garbage: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(garbage)
        await client.wait_closed(timeout=1)
        received = client.received
    assert received.startswith(b"HTTP/1.1 400 ")
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}
    assert (await get(sidecar.data, "/v1/models")).body == b"ok"


async def test_h2g_10_b_plain_http_1_1_is_served(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    assert (await get(sidecar.data, "/v1/models")).body == b"ok"


@pytest.mark.parametrize("body", [None, b"{}"])
async def test_h2g_10_c_an_upgrade_to_h2c_is_ignored(
    body: bytes | None, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """RFC 9113 §3.1 made it obsolete, RFC 9110 §7.8 lets a server ignore it."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    fields = [
        (b"Connection", b"Upgrade, HTTP2-Settings"),
        (b"Upgrade", b"h2c"),
        (b"HTTP2-Settings", b"AAMAAABkAAQAoAAAAAIAAAAA"),
        (b"X-Kept", b"1"),
    ]
    method = "POST" if body else "GET"
    async with await sidecar.client() as client:
        first = await client.request(method, "/v1/x", fields, body)
        second = await client.request("GET", "/v1/x")
    assert (first.status, second.status) == (200, 200)
    names = [name for name, _ in server.requests[0].headers]
    assert names == [b"Host", b"X-Kept", *([b"Content-Length"] if body else [])]
    assert server.requests[0].body == (body or b"")
