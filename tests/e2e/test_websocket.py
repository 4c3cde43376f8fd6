"""WebSockets pass as a tunnel: the handshake as it is, then the bytes both ways, read as they pass."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp

from sidecar.simulator.server import Simulator
from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import request_bytes
from tests.kit.h1 import split_head
from tests.kit.local import LocalSidecars
from tests.kit.metrics import delta, outcomes
from tests.kit.tunnel import ACCEPTED, BLOCK, MIB, REQUEST, UPGRADE, accept, opened
from tests.kit.upstream import Connection, answering


async def test_an_upgrade_passes_with_its_fields_and_the_bytes_after_it(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def echo(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(ACCEPTED + b"\x81\x05hello")
        while True:
            await connection.until(lambda: bool(connection.buffer))
            data = bytes(connection.buffer)
            connection.buffer.clear()
            await connection.send(data)

    server = await upstream(echo)
    sidecar = await sidecars(server, server_timing=False)
    client = await sidecar.client()
    async with client:
        await client.send(REQUEST)
        await client.until(lambda: b"hello" in client.buffer)
        head = split_head(client.buffer)
        assert head is not None
        assert head[0] == b"HTTP/1.1 101 Switching Protocols"
        assert sorted(head[1]) == [
            (b"Connection", b"Upgrade"),
            (b"Sec-WebSocket-Accept", b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            (b"Sec-WebSocket-Protocol", b"realtime"),
            (b"Upgrade", b"websocket"),
        ]
        assert client.buffer[head[2] :] == b"\x81\x05hello"
        client.buffer.clear()
        for size in (1, 100, MIB):
            message = (BLOCK * (size // len(BLOCK) + 1))[:size]
            await client.send(message)
            await client.until(lambda size=size: len(client.buffer) >= size)
            assert client.buffer == message
            client.buffer.clear()
    (request,) = server.requests
    end_to_end = [field for field in UPGRADE if field[0] not in (b"Connection", b"Upgrade")]
    assert [field for field in request.headers if field in UPGRADE] == end_to_end
    assert request.value("connection") == b"Upgrade"
    assert request.value("upgrade") == b"websocket"
    assert request.target == b"/v1/realtime?model=m1"


async def test_bytes_that_come_before_the_upgrade_is_accepted_arrive_after_it(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    go_on = asyncio.Event()

    async def late(connection: Connection) -> None:
        await connection.read_request()
        await go_on.wait()
        await connection.send(ACCEPTED)
        await connection.until(lambda: len(connection.buffer) >= 2 * len(early))
        assert connection.buffer == early * 2
        await connection.send(b"got it")
        await connection.wait_closed()

    early = BLOCK * 8
    server = await upstream(late)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(REQUEST + early)
        await server.wait_for_requests(1)
        sending = asyncio.ensure_future(client.send(early))
        await asyncio.sleep(0.05)
        go_on.set()
        await sending
        await client.until(lambda: client.buffer.endswith(b"got it"))


async def test_a_refused_upgrade_is_a_plain_answer_and_the_connection_goes_on(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    refusal = events.json_response(b'{"error":"no"}', status="403 Forbidden")
    server = await upstream(answering(refusal, events.body_response(b"ok")))
    sidecar = await sidecars(server, server_timing=False)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(REQUEST)
        first = await client.response("GET")
        second = await client.request("GET", "/v1/models")
        await client.send(REQUEST + request_bytes("GET", "/v1/models"))
        others = [await client.response("GET") for _ in range(2)]
    assert first.raw == refusal
    assert [second.status, *[response.status for response in others]] == [200, 200, 200]
    assert server.accepted == 1
    assert outcomes(before, await sidecar.metrics_after(before, 4)) == {"client_error": 1, "ok": 3}


async def test_an_upgrade_that_cannot_be_carried_is_an_error_of_our_own(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    async def drop(connection: Connection) -> None:
        await connection.read_request()

    server = await upstream(drop)
    sidecar = await sidecars(server)
    async with await sidecar.client() as client:
        await client.send(REQUEST)
        response = await client.response("GET")
    assert (response.status, response.value("x-sidecar-error")) == (502, b"upstream_closed")


async def test_an_upgrade_over_tls(upstream: UpstreamFactory, sidecars: LocalSidecars, tmp_path: Path) -> None:
    async def greet(connection: Connection) -> None:
        await accept(connection)
        await connection.until(lambda: connection.buffer == b"ping")
        await connection.send(b"pong")

    server = await upstream(greet, tls=server_context())
    sidecar = await sidecars(server, settings={"tls": {"ca_file": str(ca_file(tmp_path))}})
    async with await opened(sidecar) as client:
        await client.send(b"ping")
        await client.wait_closed()
        assert client.buffer == b"pong"


async def test_large_messages_pass_both_ways_at_once(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    down, up = BLOCK * 64, BLOCK[::-1] * 64

    async def exchange(connection: Connection) -> None:
        await accept(connection)
        await asyncio.gather(
            connection.send(down), connection.until(lambda: len(connection.buffer) >= len(up))
        )  # fmt: skip
        assert connection.buffer == up
        await connection.wait_closed()

    server = await upstream(exchange)
    sidecar = await sidecars(server)
    before = await sidecar.metrics()
    async with await opened(sidecar) as client:
        await asyncio.gather(client.send(up), client.until(lambda: len(client.buffer) >= len(down)))
        assert client.buffer == down
        await server.connections[0].until(lambda: len(server.connections[0].buffer) == len(up))
    after = await sidecar.metrics_after(before)
    assert delta(before, after, "requests", code="101").value == 1


async def test_realtime_responses_are_counted_and_timed(sidecars: LocalSidecars) -> None:
    simulator = Simulator(ttft=0.05, itl=0.002, tokens=12)
    address = await simulator.start()
    try:
        sidecar = await sidecars(f"http://{address}")
        before = await sidecar.metrics()
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{sidecar.data[1]}") as session,
            session.ws_connect("/v1/realtime?model=rt", compress=15) as socket,
        ):
            kinds: list[str] = []
            for _ in range(2):
                await socket.send_json({"type": "response.create"})
                while not kinds or kinds.count("response.done") == kinds.count("asked"):
                    message = json.loads(await socket.receive_str(timeout=5))
                    kinds.append(message["type"])
                kinds.append("asked")
        after = await sidecar.metrics_after(before)
    finally:
        await simulator.stop()
    assert kinds.count("response.done") == 2
    assert outcomes(before, after) == {"ok": 1}
    assert delta(before, after, "requests", code="101", model="rt", operation="realtime", stream="true").value == 1
    assert delta(before, after, "tokens_out").value == 24
    assert delta(before, after, "tokens_in").value == 16
    for phase in ("blocked", "send", "wait", "receive"):
        assert delta(before, after, phase).count == 1, phase
    assert delta(before, after, "receive").sum > 0.1
    assert delta(before, after, "connect").count == 1
