from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from sidecar.config.model import Address
from sidecar.demo.kinds import Kind
from sidecar.demo.load import NEW_CONNECTION_EVERY, Load

KIND = Kind("chat", "/v1/chat", '{"model":"m"}', "openai", ttft=0.0, itl=0.0, tokens=1, tls_delay=0.0, rate=500.0)

Answering = Callable[[bytes], Awaitable[Address]]


@pytest.fixture
async def answering(requests: list[bytes]) -> AsyncIterator[Answering]:
    """Listens, and gives each request the same answer."""
    servers: list[asyncio.Server] = []

    async def start(answer: bytes) -> Address:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            requests.append(await reader.readuntil(KIND.body.encode()))
            writer.write(answer)
            await writer.drain()
            writer.close()

        servers.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        return Address(*servers[-1].sockets[0].getsockname())

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def requests() -> list[bytes]:
    return []


async def drive(load: Load, number: int) -> None:
    """Run until so many requests have ended, then stop."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(load.run(stop))
    ends = time.monotonic() + 10.0
    while load.done + load.failed < number:
        assert time.monotonic() < ends
        await asyncio.sleep(0.002)
    stop.set()
    await asyncio.wait_for(running, 10)


async def test_requests_go_to_the_prefix_of_their_kind(answering: Answering, requests: list[bytes]) -> None:
    load = Load(KIND, await answering(b"HTTP/1.1 200 OK\r\n\r\n"))
    await drive(load, NEW_CONNECTION_EVERY)
    assert load.failed == 0
    assert load.done == len(requests)
    head, _, body = requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /chat/v1/chat HTTP/1.1\r\n")
    assert f"Content-Length: {len(body)}".encode() in head
    assert json.loads(body) == {"model": "m"}


async def test_now_and_then_the_simulated_server_is_asked_to_close(answering: Answering, requests: list[bytes]) -> None:
    await drive(Load(KIND, await answering(b"HTTP/1.1 200 OK\r\n\r\n")), 2 * NEW_CONNECTION_EVERY)
    closing = sum(b"x-sim-close: 1" in request for request in requests)
    assert closing == len(requests) // NEW_CONNECTION_EVERY


async def test_another_status_is_a_failure(answering: Answering) -> None:
    load = Load(KIND, await answering(b"HTTP/1.1 502 Bad Gateway\r\n\r\n"))
    await drive(load, 3)
    assert load.done == 0
    assert load.failed >= 3


async def test_nobody_answering_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    load = Load(KIND, Address("127.0.0.1", port))
    await drive(load, 2)
    assert load.failed >= 2
