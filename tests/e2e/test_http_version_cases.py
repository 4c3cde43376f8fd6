"""HTTP/1.0 on either side, interim answers, upgrades to other protocols, and what is no HTTP at all."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import get, request_bytes
from tests.kit.h1 import split_head
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import Connection, answering, each_request
from tests.kit.wire import Ended

OK = events.body_response(b"ok")
POST = b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n"


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
