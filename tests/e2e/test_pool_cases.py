"""The pool is bounded: waiting for a place is told apart from connecting, and no place is lost."""

from __future__ import annotations

import asyncio
import time

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars, StubbedSidecar
from tests.kit.metrics import delta, outcomes
from tests.kit.upstream import Connection, answering, each_request, streaming

OK = events.body_response(b"ok")


async def first_event(sidecar: StubbedSidecar, client: RawClient) -> int:
    await client.send(CHAT_REQUEST)
    status, _ = await client.recv_head()
    if status == 200:
        await client.arrival(events.T("a"))
    return status


async def test_net_04_150_streams_on_a_pool_of_100(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    """A hundred start at once; the others are told after `acquire_timeout`, and have waited in the phase blocked."""
    ended = asyncio.Event()

    async def stream(connection: Connection, _: RawRequest) -> None:
        await connection.send(events.sse_head() + events.chunk(events.T("a")))
        await ended.wait()
        await connection.send(events.chunk(events.FIN + events.DONE) + events.LAST_CHUNK)

    server = await upstream(each_request(stream))
    sidecar = await sidecars(server, settings={"pool": {"max_connections": 100, "acquire_timeout": "1s"}})
    before = await sidecar.metrics()
    clients = [await sidecar.client() for _ in range(150)]
    try:
        began = time.monotonic()
        tasks = [asyncio.ensure_future(first_event(sidecar, client)) for client in clients]
        await asyncio.wait(tasks[:100], timeout=2)
        assert [task.result() for task in tasks[:100]] == [200] * 100
        statuses = await asyncio.gather(*tasks[100:])
        assert 0.9 < time.monotonic() - began < 5
        responses = [await client.response() for client in clients[100:]]
        ended.set()
        assert all([(await client.response()).clean_end for client in clients[:100]])
    finally:
        await asyncio.gather(*[client.close() for client in clients])
    after = await sidecar.metrics_after(before, 150)
    assert statuses == [503] * 50
    assert {response.value("x-sidecar-error") for response in responses} == {b"pool_exhausted"}
    assert {response.value("retry-after") for response in responses} == {b"1"}
    assert server.accepted == 100
    assert outcomes(before, after) == {"ok": 100, "rejected": 50}
    assert delta(before, after, "connect").count == 100
    assert delta(before, after, "connect").sum < 1
    assert delta(before, after, "blocked").sum >= 50 * 0.95


async def test_net_04_waiting_for_a_connection_is_blocked_and_not_connect(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(streaming(events.T("a"), 0.3, events.FIN, events.DONE))
    sidecar = await sidecars(server, settings={"pool": {"max_connections": 1}})
    before = await sidecar.metrics()
    first, second = await sidecar.client(), await sidecar.client()
    async with first, second:
        await first_event(sidecar, first)
        await second.send(CHAT_REQUEST)
        assert [(await client.response()).status for client in (first, second)] == [200, 200]
    after = await sidecar.metrics_after(before, 2)
    assert server.accepted == 1
    assert delta(before, after, "connect").count == 1
    assert delta(before, after, "blocked").sum >= 0.25
    assert delta(before, after, "connections_reused_total").value == 1


async def test_a_place_in_the_pool_comes_back_however_its_exchange_ended(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    ways = iter(["fin", "rst", "stay", "answer", "garbage"])

    async def script(connection: Connection) -> None:
        await connection.read_request()
        match next(ways, "answer"):
            case "fin":
                connection.fin()
            case "rst":
                connection.rst()
            case "stay":
                await connection.wait_closed()
            case "garbage":
                await connection.send(b"nonsense\r\n\r\n")
            case "answer":
                await connection.send(events.body_response(b"ok", ("Connection", "close")))

    server = await upstream(script)
    sidecar = await sidecars(server, settings={"pool": {"max_connections": 1, "acquire_timeout": "200ms"}})
    assert (await get(sidecar.data, "/fin")).status == 502
    assert (await get(sidecar.data, "/rst")).status == 502
    async with await sidecar.client() as leaving:
        await leaving.send(request_bytes("GET", "/stay"))
        await server.wait_for_requests(3)
    await sidecar.until_quiet(timeout=1)
    assert (await get(sidecar.data, "/answer")).status == 200
    assert (await get(sidecar.data, "/garbage")).status == 502
    assert (await get(sidecar.data, "/answer")).status == 200


async def test_a_client_that_leaves_the_queue_leaves_its_place_to_the_next(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    go_on = asyncio.Event()

    async def wait(connection: Connection, _: RawRequest) -> None:
        await go_on.wait()
        await connection.send(OK)

    server = await upstream(each_request(wait))
    sidecar = await sidecars(server, settings={"pool": {"max_connections": 1, "acquire_timeout": "5s"}})
    first, leaving, last = [await sidecar.client() for _ in range(3)]
    async with first, last:
        await first.send(request_bytes("GET", "/1"))
        await server.wait_for_requests(1)
        await leaving.send(request_bytes("GET", "/2"))
        await last.send(request_bytes("GET", "/3"))
        await leaving.close()
        go_on.set()
        assert [(await client.response("GET")).status for client in (first, last)] == [200, 200]
    assert [request.target for request in server.requests] == [b"/1", b"/3"]


async def test_idle_connections_close_after_their_time(upstream: UpstreamFactory, sidecars: LocalSidecars) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(server, settings={"pool": {"idle_timeout": "300ms"}})
    assert (await get(sidecar.data, "/v1/models")).status == 200
    began = time.monotonic()
    await server.connections[0].wait_closed(timeout=2)
    assert 0.2 < time.monotonic() - began < 1
    assert (await get(sidecar.data, "/v1/models")).status == 200
