"""Either end of a WebSocket holds the other when it does not read, and takes it along when it leaves."""

from __future__ import annotations

import asyncio

import pytest

from tests.conftest import UpstreamFactory
from tests.kit.local import LocalSidecars
from tests.kit.metrics import delta, outcomes
from tests.kit.tunnel import BLOCK, MIB, accept, opened
from tests.kit.upstream import Connection


async def hold(connection: Connection) -> None:
    await accept(connection)
    await connection.wait_closed(timeout=30)


async def test_an_upstream_that_does_not_read_holds_the_client(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    go_on = asyncio.Event()

    async def slow(connection: Connection) -> None:
        await accept(connection)
        connection.pause_reading()
        await go_on.wait()
        connection.resume_reading()
        await connection.wait_closed()

    size = 32 * MIB
    server = await upstream(slow)
    sidecar = await sidecars(server)
    async with await opened(sidecar) as client:
        sending = asyncio.ensure_future(client.send(BLOCK * (size // len(BLOCK))))
        accepted = -1
        while accepted != client.accepted:
            accepted = client.accepted
            await asyncio.sleep(0.1)
        assert accepted < size // 2
        go_on.set()
        await sending
        (connection,) = server.connections
        await connection.until(lambda: len(connection.buffer) >= size)
        assert connection.buffer == BLOCK * (size // len(BLOCK))


async def test_a_client_that_does_not_read_holds_the_upstream(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    size = 32 * MIB

    async def flood(connection: Connection) -> None:
        await accept(connection)
        await connection.send(BLOCK * (size // len(BLOCK)))
        await connection.wait_closed()

    server = await upstream(flood)
    sidecar = await sidecars(server)
    async with await opened(sidecar, receive_buffer=64 * 1024) as client:
        client.pause_reading()
        (connection,) = server.connections
        accepted = -1
        while accepted != connection.accepted:
            accepted = connection.accepted
            await asyncio.sleep(0.1)
        assert accepted < size // 2
        client.resume_reading()
        await client.until(lambda: len(client.buffer) >= size)
        assert client.buffer == BLOCK * (size // len(BLOCK))


@pytest.mark.parametrize("how", ["fin", "rst", "half_close"])
async def test_a_client_that_leaves_closes_the_upstream(
    how: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """A client that has done with it sends a Close frame and lets the server close, which is `ok` (RFC 6455 §7.1.1)."""
    server = await upstream(hold)
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await opened(sidecar) as client:
        getattr(client, how)()
        await server.connections[0].wait_closed(timeout=1)
        await client.wait_closed(timeout=1)
    after = await sidecar.metrics_after(before, timeout=1)
    assert outcomes(before, after) == {"client_cancelled": 1}
    assert after.value("inflight") == 0


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_an_upstream_that_leaves_closes_the_client_after_its_last_bytes(
    how: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def leave(connection: Connection) -> None:
        await accept(connection)
        await connection.send(b"last words")
        if how == "rst":
            await connection.until(lambda: connection.buffer == b"heard")
        getattr(connection, how)()

    server = await upstream(leave)
    sidecar = await sidecars(server)
    async with await opened(sidecar) as client:
        await client.until(lambda: client.buffer == b"last words")
        if how == "rst":
            await client.send(b"heard")
        await client.wait_closed(timeout=1)
        assert client.buffer == b"last words"


async def test_an_open_websocket_counts_as_in_flight_until_it_ends(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(hold)
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await opened(sidecar):
        during = await sidecar.metrics()
        assert during.value("inflight") == 1
        assert during.value("connections", state="active") == 1
        assert during.value("requests") == before.value("requests")
    after = await sidecar.metrics_after(before)
    assert after.value("inflight") == 0
    assert delta(before, after, "requests", code="101", operation="realtime").value == 1


async def test_a_websocket_is_not_cut_by_the_timeout_of_headers(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def late(connection: Connection) -> None:
        await accept(connection)
        await asyncio.sleep(0.6)
        await connection.send(b"still here")

    server = await upstream(late)
    sidecar = await sidecars(server, settings={"timeouts": {"headers": "200ms"}})
    async with await opened(sidecar) as client:
        await client.wait_closed()
        assert client.buffer == b"still here"


async def test_a_silent_websocket_ends_when_neither_side_has_spoken_for_the_idle_timeout(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    """Bytes in either direction are signs of life: a client that talks to a quiet server is not cut."""
    server = await upstream(hold)
    sidecar = await sidecars(server, settings={"timeouts": {"idle": "400ms"}})
    async with await opened(sidecar) as client:
        for _ in range(8):
            await asyncio.sleep(0.1)
            await client.send(b"x")
        assert client.end is None
        await client.wait_closed(timeout=2)
        await server.connections[0].wait_closed(timeout=1)
