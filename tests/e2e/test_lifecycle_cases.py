"""The end of a sidecar's life, and big bodies during it: running streams end well, last calls are served."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.process import SidecarProcess
from tests.kit.shared import leave
from tests.kit.upstream import Connection, streaming

QUIET = 1.0
"""Seconds without an exchange after which a drain ends (docs say so)."""
SHORT = (events.ROLE, events.T("short"), events.FIN, events.DONE)
SHORT_BODY = b"".join(SHORT)


class HeldStreams:
    """A script whose streams go on until `release`; `/short` is answered at once."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, connection: Connection) -> None:
        while True:
            request = await connection.read_request(timeout=600)
            if request.target.startswith(b"/short"):
                await connection.stream(*SHORT)
                continue
            await connection.send(events.sse_head() + events.chunk(events.ROLE) + events.chunk(events.T("first")))
            await self.release.wait()
            await connection.send(events.chunk(events.T("last") + events.FIN + events.DONE) + events.LAST_CHUNK)

    body = events.ROLE + events.T("first") + events.T("last") + events.FIN + events.DONE


@pytest.fixture
async def guests() -> AsyncIterator[AsyncExitStack]:
    """Closes the clients that enter it."""
    async with AsyncExitStack() as stack:
        yield stack


async def open_stream(sidecar: SidecarProcess, guests: AsyncExitStack) -> RawClient:
    """A client whose stream has begun."""
    client = await guests.enter_async_context(await sidecar.client())
    await client.send(CHAT_REQUEST)
    await client.arrival(events.T("first"))
    return client


async def terminate(sidecar: SidecarProcess) -> None:
    """SIGTERM, and wait until the drain has begun."""
    sidecar.signal(signal.SIGTERM)
    await sidecar.wait_for_event("draining")


SHORT_REQUEST = request_bytes(target="/short", headers=events.DEFAULT_HEADERS, body=events.DEFAULT_BODY)


async def test_k8s_02_sigterm_lets_the_stream_end_and_serves_the_last_calls(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    script = HeldStreams()
    sidecar = await sidecar_factory(await upstream(script), drain_timeout="10s")
    idle = await guests.enter_async_context(await sidecar.client())
    await idle.send(SHORT_REQUEST)
    before = await idle.response()
    assert before.value("connection") is None
    stream = await open_stream(sidecar, guests)
    await terminate(sidecar)

    assert (await get(sidecar.admin, "/readyz")).status == 503
    assert (await get(sidecar.admin, "/livez")).status == 200
    assert (await sidecar.metrics()).value("draining") == 1
    async with await sidecar.client() as fresh:
        await fresh.send(SHORT_REQUEST)
        served = await fresh.response()
    assert (served.status, served.body, served.value("connection")) == (200, SHORT_BODY, b"close")
    await idle.send(SHORT_REQUEST)
    reused = await idle.response()
    assert (reused.status, reused.body, reused.value("connection")) == (200, SHORT_BODY, b"close")
    await idle.wait_closed()

    await asyncio.sleep(QUIET + 0.3)
    assert sidecar.process.poll() is None, "a stream that runs holds the process"
    script.release.set()
    response = await stream.response()
    ended = time.monotonic()
    assert response.body == HeldStreams.body
    assert response.clean_end
    metrics = await sidecar.metrics()
    assert metrics.value("requests", outcome="ok") == 4, "metrics are there until the end"
    assert await sidecar.wait() == 0
    assert QUIET - 0.1 <= time.monotonic() - ended < QUIET + 1.5


async def test_k8s_02_idle_connections_do_not_hold_the_process(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    sidecar = await sidecar_factory(await upstream(streaming(*SHORT)), drain_timeout="60s")
    used, unused = [await guests.enter_async_context(await sidecar.client()) for _ in range(2)]
    assert (await used.chat()).clean_end
    started = time.monotonic()
    sidecar.signal(signal.SIGTERM)
    assert await sidecar.wait() == 0
    assert time.monotonic() - started < QUIET + 2
    assert (await used.wait_closed()).how == "eof"
    assert (await unused.wait_closed()).how == "eof"


async def test_k8s_02_a_second_sigterm_stops_at_once_and_the_cut_stream_does_not_look_complete(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    sidecar = await sidecar_factory(await upstream(HeldStreams()), drain_timeout="60s")
    stream = await open_stream(sidecar, guests)
    await terminate(sidecar)
    started = time.monotonic()
    sidecar.signal(signal.SIGTERM)
    assert await sidecar.wait() == 0
    assert time.monotonic() - started < 2
    await stream.wait_closed()
    assert events.LAST_CHUNK not in stream.received


async def test_k8s_02_the_drain_ends_at_its_timeout_whatever_still_runs(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    server = await upstream(HeldStreams())
    sidecar = await sidecar_factory(server, drain_timeout="500ms")
    stream = await open_stream(sidecar, guests)
    started = time.monotonic()
    sidecar.signal(signal.SIGTERM)
    assert await sidecar.wait() == 0
    assert 0.4 < time.monotonic() - started < 3
    await stream.wait_closed()
    assert events.LAST_CHUNK not in stream.received
    await server.connections[0].wait_closed()
    assert sidecar.events("drain_timeout")


async def test_k8s_02_fifty_streams_that_run_at_sigterm_all_complete(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    script = HeldStreams()
    sidecar = await sidecar_factory(await upstream(script), drain_timeout="30s")
    streams = await asyncio.gather(*(open_stream(sidecar, guests) for _ in range(50)))
    await terminate(sidecar)
    assert (await sidecar.metrics()).value("inflight") == 50
    script.release.set()
    responses = await asyncio.gather(*(stream.response() for stream in streams))
    assert [response.body for response in responses] == [HeldStreams.body] * 50
    assert all(response.clean_end for response in responses)
    assert (await sidecar.metrics()).value("requests", outcome="ok") == 50
    assert await sidecar.wait() == 0


async def test_sse_24_clients_that_leave_during_the_drain_end_it(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, guests: AsyncExitStack
) -> None:
    server = await upstream(HeldStreams())
    sidecar = await sidecar_factory(server, upstream_settings={"pool": {"max_connections": 2}}, drain_timeout="60s")
    streams = [await open_stream(sidecar, guests) for _ in range(2)]
    await terminate(sidecar)
    for stream, how in zip(streams, ("close", "rst"), strict=True):
        await leave(stream, how)
    for connection in server.connections:
        await connection.wait_closed()
    metrics = await sidecar.metrics_when(lambda now: now.value("requests") == 2)
    assert metrics.value("requests", outcome="client_cancelled") == 2
    assert metrics.value("inflight") == 0
    started = time.monotonic()
    assert await sidecar.wait() == 0
    assert time.monotonic() - started < QUIET + 2


async def test_a_signal_at_the_very_moment_it_listens_ends_it_in_order() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sidecar", "serve", "--upstream", "http://127.0.0.1:1",
            "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        assert b"listening" in await asyncio.wait_for(process.stderr.readline(), 15)
        process.send_signal(number)
        assert await asyncio.wait_for(process.wait(), 10) == 0
