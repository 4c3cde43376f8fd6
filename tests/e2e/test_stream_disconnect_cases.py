"""Clients that leave: the upstream stops working for them at once, and nothing of them stays behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, MESSAGES_REQUEST, RawClient, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.metrics import delta, outcomes
from tests.kit.shared import SharedSidecar, leave, shared_sidecar
from tests.kit.upstream import Connection, ScriptedUpstream, each_request
from tests.kit.wire import ConnectionEnded, End

SOON = 1.0
"""Seconds after which the upstream must know that the client has left."""
WHOLE_REQUEST = request_bytes(headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY.replace(b"true", b"false"))
CHUNKED_UPLOAD = b"POST /v1/files HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
CLOSE_WAIT = "08"
TWO = CHAT_REQUEST.replace(b"POST /v1", b"POST /two/v1")
"""To the upstream with a pool of two connections."""


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    two = {"name": "two", "prefix": "/two", "pool": {"max_connections": 2, "max_idle": 2, "acquire_timeout": "5s"}}
    with shared_sidecar(tmp_path_factory.mktemp("disconnects"), {}, two) as running:
        yield running


@pytest.fixture
async def guests() -> AsyncIterator[AsyncExitStack]:
    """Closes the clients that enter it, also when their test failed."""
    async with AsyncExitStack() as stack:
        yield stack


async def silent(connection: Connection) -> None:
    """Read one request and say nothing."""
    await connection.read_request()
    await connection.wait_closed(20)


async def end_seen_by(server: ScriptedUpstream, number: int = 0) -> End:
    """How and when a connection of the upstream was ended by the sidecar."""
    await server.wait_for_connections(number + 1)
    return await server.connections[number].wait_closed(5)


@pytest.mark.parametrize("how", ["close", "rst"])
@pytest.mark.parametrize(
    "request_", [CHAT_REQUEST, WHOLE_REQUEST, MESSAGES_REQUEST], ids=["a stream", "a whole answer", "messages"]
)
async def test_sse_22_a_client_gone_before_the_head_ends_its_upstream_exchange(
    sidecar: SharedSidecar, upstream: UpstreamFactory, guests: AsyncExitStack, request_: bytes, how: str
) -> None:
    server = await upstream(silent, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    client = await guests.enter_async_context(await sidecar.client())
    await client.send(request_)
    await server.wait_for_requests(1)
    left = await leave(client, how)
    end = await end_seen_by(server)
    after = await sidecar.metrics_after(before)
    assert end.at - left < SOON
    assert outcomes(before, after) == {"client_cancelled": 1}
    assert delta(before, after, "requests_total", code="0").value == 1
    assert after.value("inflight") == 0
    assert delta(before, after, "ttft").count == 0
    assert delta(before, after, "connection_errors_total").value == 0, "no fault of the upstream's"
    asked_for_stream = request_ is not WHOLE_REQUEST
    assert delta(before, after, "streams_without_token_total", reason="client_cancelled").value == asked_for_stream


async def test_sse_22_a_client_gone_during_its_upload_ends_its_upstream_exchange(
    sidecar: SharedSidecar, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    async def script(connection: Connection) -> None:
        with suppress(ConnectionEnded):
            await connection.read_request()

    server = await upstream(script, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    client = await guests.enter_async_context(await sidecar.client())
    await client.send(CHUNKED_UPLOAD)
    await server.wait_for_connections(1)
    await server.connections[0].arrival(b"hello")
    left = await leave(client, "close")
    end = await end_seen_by(server)
    assert end.at - left < SOON
    assert b"0\r\n\r\n" not in server.connections[0].received, "the upstream must not take the upload for complete"
    after = await sidecar.metrics_after(before)
    assert outcomes(before, after) == {"client_cancelled": 1}
    assert after.value("inflight") == 0


async def test_sse_22_a_client_gone_while_it_waits_for_a_connection_leaves_no_trace_in_the_pool(
    sidecar: SharedSidecar, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    server = await upstream(silent, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    busy = [await guests.enter_async_context(await sidecar.client()) for _ in range(2)]
    for client in busy:
        await client.send(TWO)
    await server.wait_for_requests(2)
    waiting = [await guests.enter_async_context(await sidecar.client()) for _ in range(5)]
    for client in waiting:
        await client.send(TWO)
    await sidecar.metrics_when(lambda metrics: metrics.value("inflight") == 7)
    for client in waiting:
        await leave(client, "close")
    await sidecar.metrics_when(lambda metrics: metrics.value("inflight") == 2)
    for client in busy:
        await leave(client, "close")
    after = await sidecar.metrics_after(before, requests=7)
    assert outcomes(before, after) == {"client_cancelled": 7}
    assert after.value("connections") == 0
    assert server.accepted == 2


@pytest.mark.parametrize("how", ["close", "rst"])
async def test_sse_23_a_client_gone_mid_stream_is_noticed_while_the_upstream_is_silent(
    sidecar: SharedSidecar, upstream: UpstreamFactory, guests: AsyncExitStack, how: str
) -> None:
    async def one_token(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.T("a")))
        await connection.wait_closed(20)

    server = await upstream(one_token, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    client = await guests.enter_async_context(await sidecar.client())
    await client.send(CHAT_REQUEST)
    await client.arrival(events.T("a"))
    left = await leave(client, how)
    end = await end_seen_by(server)
    assert end.at - left < SOON
    after = await sidecar.metrics_after(before)
    assert outcomes(before, after) == {"client_cancelled": 1}
    assert delta(before, after, "ttft").count == 1
    assert after.value("inflight") == 0
    assert not [line for line in sidecar.lines if "Traceback" in line]


async def test_sse_23_a_client_that_hangs_up_after_the_last_event_had_its_answer(
    sidecar: SharedSidecar, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    async def never_ends(connection: Connection) -> None:
        await connection.read_request()
        parts = events.ROLE + events.T("a") + events.FIN + events.DONE
        await connection.send(events.sse_head() + events.chunk(parts))
        await connection.wait_closed(20)

    server = await upstream(never_ends, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    client = await guests.enter_async_context(await sidecar.client())
    await client.send(CHAT_REQUEST)
    await client.arrival(events.DONE)
    left = await leave(client, "close")
    assert (await end_seen_by(server)).at - left < SOON
    assert outcomes(before, await sidecar.metrics_after(before)) == {"ok": 1}


def sockets_in_close_wait(*ports: int) -> int:
    """TCP sockets of this machine whose peer has closed, with one of these ports at either end."""
    wanted = {f"{port:04X}" for port in ports}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        found += state == CLOSE_WAIT and bool({local.split(":")[1], remote.split(":")[1]} & wanted)
    return found


async def test_sse_24_dropped_streams_free_their_places_in_the_pool(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    piece = events.T("x" * 16_000)
    small = events.chat_completion()

    async def answer(connection: Connection, request: RawRequest) -> None:
        if b'"stream":true' not in request.body:
            await connection.send(small)
            return
        await connection.send(events.sse_head())
        for _ in range(5_000_000 // len(piece)):
            await connection.chunk(piece)
        await connection.last_chunk()

    server = await upstream(each_request(answer), port=sidecar.upstream_port)
    before = await sidecar.metrics()

    async def drop(number: int) -> None:
        client = await RawClient.connect(sidecar.data, receive_buffer=16 * 1024)
        await client.send(TWO)
        await client.until(lambda: len(client.received) > 64 * 1024)
        client.pause_reading()
        await asyncio.sleep(0.01)
        await leave(client, "rst" if number % 2 else "close")

    for number in range(0, 30, 2):
        await asyncio.gather(drop(number), drop(number + 1))
        assert len(server.open_connections) <= 2
    dropped = await sidecar.metrics_after(before, requests=30)
    assert outcomes(before, dropped) == {"client_cancelled": 30}

    body = events.DEFAULT_BODY.replace(b'"stream":true', b'"stream":false')
    started = time.monotonic()
    answers = await asyncio.gather(*(small_request(sidecar, body) for _ in range(10)))
    assert time.monotonic() - started < 1
    assert answers == [200] * 10
    assert len(server.open_connections) <= 2
    after = await sidecar.metrics_after(dropped, requests=10)
    assert outcomes(dropped, after) == {"ok": 10}
    assert after.value("inflight") == 0
    assert after.value("connections", upstream="two", state="active") == 0
    assert sockets_in_close_wait(sidecar.data[1], sidecar.upstream_port) == 0


async def small_request(sidecar: SharedSidecar, body: bytes) -> int:
    async with await sidecar.client() as client:
        await client.send(request_bytes(target="/two/v1/chat/completions", headers=events.DEFAULT_HEADERS, body=body))
        return (await client.response()).status
