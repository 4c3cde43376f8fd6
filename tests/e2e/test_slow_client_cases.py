"""SSE-12: a client that does not read holds its upstream back, and costs the sidecar no memory."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, RawClient
from tests.kit.h1 import Body, Framing
from tests.kit.shared import SharedSidecar, shared_sidecar
from tests.kit.upstream import Connection
from tests.kit.wire import ConnectionEnded

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    with shared_sidecar(tmp_path_factory.mktemp("slow")) as running:
        yield running


class HashingClient(RawClient):
    """A client that keeps a digest of the body instead of the body."""

    def __init__(self) -> None:
        super().__init__()
        self.digest = hashlib.sha256()
        self.size = 0
        self.body: Body | None = None

    def data_received(self, data: bytes) -> None:
        if self.body is None:
            super().data_received(data)
            head, blank, data = bytes(self.buffer).partition(b"\r\n\r\n")
            if not blank:
                return
            assert b"\r\nTransfer-Encoding: chunked" in head
            self.body = Body(Framing.CHUNKED)
        self.body.feed(data)
        self.digest.update(self.body.data)
        self.size += len(self.body.data)
        self.body.data.clear()
        self.body.chunk_sizes.clear()
        if self.body.complete:
            self._changed.set()


async def stalled(connection: Connection) -> int:
    """Wait until the connection's peer has taken nothing for half a second; all the bytes it took."""
    accepted, since = -1, time.monotonic()
    while time.monotonic() - since < 0.5:
        if connection.accepted != accepted:
            accepted, since = connection.accepted, time.monotonic()
        await asyncio.sleep(0.02)
    return accepted


async def test_sse_12_a_client_that_does_not_read_stalls_the_upstream_and_costs_no_memory(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    piece = b"".join(events.T(f"{number:04}" + "x" * 16_000) for number in range(64))
    pieces = 200_000_000 // len(piece)

    async def flood(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head())
        with suppress(ConnectionEnded):
            for _ in range(pieces):
                await connection.chunk(piece)
            await connection.chunk(events.FIN + events.DONE)
            await connection.last_chunk()

    server = await upstream(flood, port=sidecar.upstream_port)
    before, resident = await sidecar.metrics(), sidecar.rss()
    async with await HashingClient.connect(sidecar.data, receive_buffer=64 * 1024) as client:
        await client.send(CHAT_REQUEST)
        await client.recv_head()
        client.pause_reading()
        accepted = await stalled(server.connections[0])
        grown = sidecar.rss() - resident
        assert accepted < 16 * MIB
        assert grown < 32 * MIB
        client.resume_reading()
        await client.until(lambda: client.body is not None and client.body.complete, timeout=60)
    expected = hashlib.sha256()
    for _ in range(pieces):
        expected.update(piece)
    expected.update(events.FIN + events.DONE)
    assert client.digest.digest() == expected.digest()
    after = await sidecar.metrics_after(before)
    assert after.value("time_seconds_total", component="client") > before.value(
        "time_seconds_total", component="client"
    )
    assert sidecar.rss() - resident < 32 * MIB
