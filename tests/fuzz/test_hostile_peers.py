"""Peers that send anything: the sidecar survives them, keeps nothing of them, and logs no traceback.

What they send is drawn from a seed, so that a failure can be repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.process import SidecarProcess
from tests.kit.upstream import Connection, answering, each_request
from tests.kit.wire import ConnectionEnded

ROUNDS = 600
AT_ONCE = 12
QUIET = 0.05
"""Seconds of silence after which a hostile peer goes on to its next try."""

CHUNKED = [(b"Transfer-Encoding", b"chunked")]
UPGRADE = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]
REQUESTS = [
    CHAT_REQUEST,
    request_bytes("GET", "/v1/models?x=%20"),
    request_bytes("POST", "/v1/files", CHUNKED, b"5\r\nabcde\r\n3;x=y\r\nfgh\r\n0\r\nX: y\r\n\r\n"),
    request_bytes("POST", "/v1/x", [(b"Expect", b"100-continue")], b"body"),
    request_bytes("GET", "/v1/realtime", UPGRADE) + b"\x81\x85abcdefghi",
    request_bytes("HEAD", "/v1/models") + request_bytes("GET", "/v1/models"),
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
]  # fmt: skip
RESPONSES = [
    events.chat_completion(),
    events.sse_head() + events.chunk(events.ROLE) + events.chunk(events.T("a") + events.USE(9, 2)) + events.LAST_CHUNK,
    events.head("200 OK", ("Transfer-Encoding", "chunked"), ("Trailer", "X")) + b"3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n",
    events.head("200 OK", ("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")) + b"\x1f\x8b\x08\x00abc",
    events.head("103 Early Hints", ("Link", "</a>")) + events.body_response(b"ok"),
    events.head("101 Switching Protocols", ("Upgrade", "websocket"), ("Connection", "Upgrade")) + b"\x81\x05hello",
    events.head("204 No Content") + events.head("304 Not Modified", ("Content-Length", "5")),
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
]  # fmt: skip
TOKENS = [
    b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\x00", b":", b" ", b"\xff" * 9, b"HTTP/1.1", b"0\r\n\r\n", b"fffff\r\n",
    b"-1\r\n", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Connection: upgrade\r\n", b"Upgrade: websocket\r\n", b"Expect: 100-continue\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n", b"data: {\"usage\":",
]  # fmt: skip


def mutated(good: bytes, rng: random.Random) -> bytes:
    """`good` with a few bytes cut out, doubled, changed, or put in between; now and then nothing of it."""
    if rng.random() < 0.1:
        return rng.randbytes(rng.randrange(1, 3_000))
    data = bytearray(good)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.randrange(1, 40))
        match rng.randrange(5):
            case 0:
                del data[at:to]
            case 1:
                data[at:at] = data[at:to] * rng.randrange(1, 4)
            case 2:
                data[at:to] = rng.randbytes(to - at)
            case 3:
                data[at:at] = rng.choice(TOKENS)
            case _:
                data[at:at] = rng.choice(TOKENS) * rng.randrange(1, 200)
    return bytes(data)


async def send_in_pieces(wire: RawClient | Connection, data: bytes, rng: random.Random) -> None:
    """Send `data` in up to four pieces, then leave in one of the ways there are."""
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
    for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
        await wire.send(data[start:stop])
        await asyncio.sleep(0)


def leave(wire: RawClient | Connection, rng: random.Random) -> None:
    rng.choice([wire.fin, wire.rst, wire.fin])()


async def in_parallel(one: Callable[[random.Random], Awaitable[None]], seed: int) -> None:
    """ROUNDS calls of `one`, each with its own generator, AT_ONCE at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def run(number: int) -> None:
        async with places:
            await one(random.Random(f"{seed}/{number}"))

    await asyncio.gather(*[run(number) for number in range(ROUNDS)])


async def assert_sound(sidecar: SidecarProcess) -> None:
    """It serves, nothing is in flight any more, and nobody had to log a traceback."""
    metrics = await sidecar.metrics_when(lambda now: now.value("inflight") == 0)
    assert metrics.value("connections", state="active") == 0
    assert not metrics.not_finite()
    assert metrics.value("requests", outcome="sidecar_error") == 0
    response = await get(sidecar.data, "/good/models")
    assert (response.status, response.body) == (200, b"ok")
    assert not [line for line in sidecar.lines if "Traceback" in line or '"level":"error"' in line.replace(" ", "")]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
async def test_hostile_clients_are_survived(
    seed: int, upstream: UpstreamFactory, sidecar_factory: SidecarFactory
) -> None:
    server = await upstream(answering(events.body_response(b"ok")))
    sidecar = await sidecar_factory(server)
    await get(sidecar.data, "/good/models")
    before = sidecar.rss()

    async def one(rng: random.Random) -> None:
        async with await sidecar.client() as client:
            with contextlib.suppress(ConnectionEnded, TimeoutError):
                await send_in_pieces(client, mutated(rng.choice(REQUESTS), rng), rng)
                await client.wait_closed(timeout=QUIET)
            leave(client, rng)

    await in_parallel(one, seed)
    await assert_sound(sidecar)
    assert sidecar.rss() - before < 32 * 1024 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
async def test_hostile_upstreams_are_survived(
    seed: int, upstream: UpstreamFactory, sidecar_factory: SidecarFactory
) -> None:
    number = 0

    async def hostile(connection: Connection) -> None:
        nonlocal number
        number += 1
        rng = random.Random(f"{seed}/{number}")
        while True:
            await connection.read_request(timeout=60)
            await send_in_pieces(connection, mutated(rng.choice(RESPONSES), rng), rng)
            if rng.random() < 0.5:
                leave(connection, rng)

    good = await upstream(each_request(lambda connection, _: connection.send(events.body_response(b"ok"))))
    bad = await upstream(hostile)
    sidecar = await sidecar_factory(
        upstreams=[
            {"name": "bad", "url": bad.url, "stream_usage": "inject"},
            {"name": "good", "url": good.url, "prefix": "/good"},
        ]
    )
    await get(sidecar.data, "/good/models")
    before = sidecar.rss()

    async def one(rng: random.Random) -> None:
        async with await sidecar.client() as client:
            with contextlib.suppress(ConnectionEnded, TimeoutError):
                await client.send(rng.choice(REQUESTS[:3]))
                await client.until(lambda: client.end is not None, QUIET)
            assert not client.received or client.received.startswith(b"HTTP/1.1 ")
            leave(client, rng)

    await in_parallel(one, seed)
    await assert_sound(sidecar)
    assert sidecar.rss() - before < 32 * 1024 * 1024
