"""Connections to an API are kept, found dead in time, and no request is served twice (RFC 9110 §9.2.2)."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import request_bytes
from tests.kit.local import LocalSidecars
from tests.kit.metrics import delta, outcomes
from tests.kit.upstream import Connection, Script, answering

OK = events.body_response(b"ok")
BODY = b'{"model":"m1","messages":[{"role":"user","content":"' + b"x" * 20_000 + b'"}]}'


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_net_01_a_connection_that_died_while_idle_is_not_used(
    how: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def closes_the_first(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(OK)
        if len(server.connections) == 1:
            await asyncio.sleep(0.05)
            getattr(connection, how)()
        await connection.wait_closed()

    server = await upstream(closes_the_first)
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        first = await client.request(body=BODY)
        await asyncio.sleep(0.2)
        second = await client.request(body=BODY)
    after = await sidecar.metrics_after(before, 2)
    assert (first.status, second.status) == (200, 200)
    assert [len(connection.requests) for connection in server.connections] == [1, 1]
    assert delta(before, after, "retries_total").value == 0


async def test_net_01_a_connection_that_died_unseen_is_not_used_either(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """The FIN is in the kernel and the event loop has not come to it: it is asked for before each use."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.request(body=BODY)
        # Both in one turn of the loop that the sidecar shares with this test.
        server.connections[0].half_close()
        client.transport.write(request_bytes(body=BODY))
        assert (await client.response()).status == 200
    assert [len(connection.requests) for connection in server.connections] == [1, 1]


class DiesOnTheSecond:
    """Answers the first request of a connection; resets it when the next has come, with not a byte of it read."""

    def __init__(self, times: int = 1) -> None:
        self.left = times

    async def __call__(self, connection: Connection) -> None:
        await connection.read_request()
        await connection.send(OK)
        if self.left:
            self.left -= 1
            connection.pause_reading()
            await asyncio.sleep(0.2)
            connection.fin()
        else:
            while True:
                await connection.read_request()
                await connection.send(OK)


@pytest.mark.parametrize(("method", "status"), [("POST", 502), ("PATCH", 502), ("GET", 200), ("DELETE", 200)])
async def test_net_01_c_a_reset_under_a_request_is_retried_only_where_twice_is_as_good_as_once(
    method: str, status: int, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """Of a POST nobody can say that no byte was accepted: 502, for the application to decide (RFC 9110 §9.2.2)."""
    server = await upstream(DiesOnTheSecond())
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        first = await client.request(method, "/v1/x", body=b"{}")
        second = await client.request(method, "/v1/x", body=b"{}")
    after = await sidecar.metrics_after(before, 2)
    assert (first.status, second.status) == (200, status)
    assert len(server.requests) == (1 if status == 502 else 2), "never two executions of one request"
    assert delta(before, after, "retries_total").value == (status == 200)
    if status == 502:
        assert second.value("x-sidecar-error") == b"upstream_closed"
        assert outcomes(before, after) == {"ok": 1, "network_error": 1}


def closes_after(warm: bool, partial: bytes) -> Script:
    """Reads a request and closes without an answer, or with its first bytes; after one good answer when `warm`."""

    async def script(connection: Connection) -> None:
        if warm:
            await connection.read_request()
            await connection.send(OK)
        await connection.read_request()
        if partial:
            await connection.send(partial)

    return script


@pytest.mark.parametrize("partial", [b"", b"HTTP/1.1 200 OK\r\n"])
@pytest.mark.parametrize("warm", [True, False], ids=["reused", "fresh"])
async def test_net_02_a_request_that_was_read_is_not_sent_again(
    warm: bool, partial: bytes, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(closes_after(warm, partial))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        if warm:
            await client.request("GET", "/v1/models")
        before = await sidecar.metrics()
        response = await client.request(body=BODY)
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (502, b"upstream_closed")
    assert [request.method for request in server.requests].count("POST") == 1
    assert outcomes(before, after) == {"network_error": 1}
    assert delta(before, after, "retries_total").value == 0


@pytest.mark.parametrize("warm", [True, False], ids=["reused", "fresh"])
async def test_net_02_a_get_is_sent_again_once_and_only_after_a_reused_connection(
    warm: bool, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(closes_after(warm, b""))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        if warm:
            await client.request("GET", "/warm")
            server.script = answering(OK)
        response = await client.request("GET", "/v1/models")
    assert response.status == (200 if warm else 502)
    assert [request.target for request in server.requests].count(b"/v1/models") == (2 if warm else 1)


@pytest.mark.slow
async def test_net_03_an_applications_connection_is_kept_while_it_idles(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """Six seconds catch the usual default of five; the setting stands for the rest: longer than any client's pool."""
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        assert (await client.request(body=BODY)).status == 200
        (connection,) = sidecar.app._data.connections
        assert connection.keepalive_timeout >= 75
        await asyncio.sleep(6)
        assert (await client.request(body=BODY)).status == 200
        assert client.end is None


async def test_net_03_an_applications_last_answer_says_close_when_the_sidecar_stops(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        assert (await client.request(body=BODY)).value("connection") is None
        sidecar.app.drain()
        assert (await client.request(body=BODY)).value("connection") == b"close"
        await client.wait_closed(timeout=1)
