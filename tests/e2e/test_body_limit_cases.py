"""Request bodies above the limit get 413, whether they say so or it turns out."""

from __future__ import annotations

import json

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import request_bytes
from tests.kit.local import LocalSidecars
from tests.kit.metrics import outcomes
from tests.kit.upstream import answering

MIB = 1024 * 1024
OK = events.body_response(b"ok")


def chunked(body: bytes, size: int = 60_000) -> bytes:
    return b"".join(events.chunk(body[at : at + size]) for at in range(0, len(body), size)) + events.LAST_CHUNK


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
async def test_a_declared_length_above_the_limit_gets_413_at_once(
    dialect: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, settings={"dialect": dialect}, limits={"max_request_body": "1MiB"})
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(b"POST /v1/x HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n")
        response = await client.response()
    assert (response.status, response.value("x-sidecar-error")) == (413, b"body_too_large")
    error = json.loads(response.body)["error"]
    assert error["type"] == ("request_too_large" if dialect == "anthropic" else "invalid_request_error")
    assert "1048576" in error["message"]
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}
    assert not server.accepted


async def test_a_413_is_read_by_a_client_that_sends_on(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """The rest of the body is read and thrown away: a reset would take the answer from the client."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, limits={"max_request_body": "1MiB"})
    async with await sidecar.client() as client:
        await client.send(request_bytes(body=b"x" * (8 * MIB)))
        response = await client.response()
        end = await client.wait_closed(timeout=2)
    assert (response.status, response.value("connection")) == (413, b"close")
    assert end.how == "eof"


@pytest.mark.parametrize("arrives", ["at once", "in parts"])
async def test_a_chunked_body_that_grows_above_the_limit_gets_413(
    arrives: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, limits={"max_request_body": "100KiB"})
    before = await sidecar.metrics()
    head = b"POST /v1/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with await sidecar.client() as client:
        if arrives == "at once":
            await client.send(head + chunked(b"x" * 102_401))
        else:
            await client.send(head + events.chunk(b"x" * 102_400))
            await server.wait_for_connections(1)
            await server.connections[0].arrival(b"x" * 1000)
            await client.send(events.chunk(b"x"))
        response = await client.response()
    assert (response.status, response.value("x-sidecar-error")) == (413, b"body_too_large")
    assert outcomes(before, await sidecar.metrics_after(before)) == {"rejected": 1}
    assert not server.requests, "the upstream never saw the end of the body"


async def test_a_body_of_just_the_limit_passes(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, limits={"max_request_body": "100KiB"})
    async with await sidecar.client() as client:
        first = await client.request(body=b"x" * 102_400)
        second = await client.request(headers=[(b"Transfer-Encoding", b"chunked")], body=chunked(b"x" * 102_400))
    assert (first.status, second.status) == (200, 200)
    assert [len(request.body) for request in server.requests] == [102_400, 102_400]
