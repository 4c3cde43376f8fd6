"""Where a message ends must be told one way only: what is ambiguous is refused (RFC 9112 §6.3, §11.2)."""

from __future__ import annotations

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import answering

OK = events.body_response(b"ok")
POST = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n"
AMBIGUOUS = {
    "a: both framings": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a: both, the other way round": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "b: two lengths": POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    "b: the same length twice": POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "b: a list of lengths": POST + b"Content-Length: 5, 5\r\n\r\nabcde",
    "c: a sign": POST + b"Content-Length: +5\r\n\r\nabcde",
    "c: negative": POST + b"Content-Length: -5\r\n\r\nabcde",
    "c: hexadecimal": POST + b"Content-Length: 0x5\r\n\r\nabcde",
    "c: digits of another script": POST + "Content-Length: \u0665\r\n\r\nabcde".encode(),
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
    "g: a chunk size beyond 64 bits": POST
    + b"Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\nabcde\r\n0\r\n\r\n",
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


async def test_htp_06_h_a_chunk_extension_of_100_kb_goes_no_further(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n5;" + b"x" * 100_000 + b"\r\nabcde\r\n0\r\n\r\n")
        response = await client.response()
    assert response.status == 200
    assert server.requests[0].body == b"abcde"
    assert b"xxx" not in server.connections[0].received


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
