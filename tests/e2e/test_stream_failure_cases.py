"""Streams that break off, stop short or carry an error: the client can tell, and nothing is sent twice."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, MESSAGES_REQUEST, RawClient, request_bytes
from tests.kit.metrics import delta, outcomes
from tests.kit.process import ROOT
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell
from tests.kit.upstream import Connection

LAST_CHUNK = b"0\r\n\r\n"
BOOM = events.event({"error": {"message": "boom", "type": "server_error"}})
OVERLOADED = events.event(
    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "error"
)  # fmt: skip


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    with shared_sidecar(tmp_path_factory.mktemp("failures")) as running:
        yield running


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_sse_16_an_upstream_cut_mid_stream_never_looks_complete(
    sidecar: SharedSidecar, upstream: UpstreamFactory, how: str
) -> None:
    seen = asyncio.Event()

    async def cut(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.sse_head() + events.chunk(events.ROLE) + events.chunk(events.T("half")))
        # A reset takes back what was not read yet.
        await seen.wait()
        getattr(connection, how)()

    server = await upstream(cut, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(CHAT_REQUEST)
        await client.arrival(events.T("half"))
        seen.set()
        response = await client.response()
        await client.wait_closed()
    after = await sidecar.metrics_after(before)
    assert response.body == events.ROLE + events.T("half")
    assert not response.clean_end
    assert LAST_CHUNK not in response.raw
    assert len(server.requests) == 1
    assert outcomes(before, after) == {"network_error": 1}
    assert delta(before, after, "ttft").count == 1


@pytest.mark.parametrize(
    ("head", "clean"),
    [
        (events.head("200 OK", ("Content-Type", "text/event-stream"), ("Content-Length", "5000")), False),
        (events.head("200 OK", ("Content-Type", "text/event-stream"), ("Connection", "close")), True),
    ],
    ids=["shorter than its Content-Length", "ended by the connection"],
)
async def test_sse_16_other_framings_end_as_the_upstream_ended_them(
    sidecar: SharedSidecar, upstream: UpstreamFactory, head: bytes, clean: bool
) -> None:
    script = Telling(events.ROLE, events.T("half"), head=head, end=b"", framed=False)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.response.body == script.body
    assert told.response.clean_end is clean
    assert told.outcomes == ({"stream_truncated": 1} if clean else {"network_error": 1})


async def test_sse_16_a_reset_stream_without_framing_is_reset_for_the_client_too(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    seen = asyncio.Event()

    async def cut(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.head("200 OK", ("Content-Type", "text/event-stream")) + events.T("half"))
        await seen.wait()
        connection.rst()

    await upstream(cut, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        await client.send(CHAT_REQUEST)
        await client.arrival(events.T("half"))
        seen.set()
        end = await client.wait_closed()
    assert end.how == "rst", "a FIN would be the regular end of such a body"
    assert outcomes(before, await sidecar.metrics_after(before)) == {"network_error": 1}


@pytest.mark.parametrize(
    ("parts", "request_"),
    [
        ((events.ROLE, events.T("a")), CHAT_REQUEST),
        ((events.ROLE, events.T("a"), events.DONE), CHAT_REQUEST),
        ((events.MS(5, 1), events.AD("a")), MESSAGES_REQUEST),
        ((events.MS(5, 1), events.AD("a"), events.MD({"output_tokens": 3}, "")), MESSAGES_REQUEST),
    ],
    ids=["neither reason nor DONE", "DONE without a reason", "no message_stop", "an empty stop reason"],
)
async def test_sse_18_an_unfinished_stream_that_ends_tidily_is_truncated(
    sidecar: SharedSidecar, upstream: UpstreamFactory, parts: tuple[bytes, ...], request_: bytes
) -> None:
    script = Telling(*parts)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, request_)
    assert told.response.body == script.body, "nothing is made up"
    assert told.response.clean_end
    assert told.outcomes == {"stream_truncated": 1}


async def test_sse_19_an_error_after_output_is_a_stream_error(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    script = Telling(events.ROLE, events.T("a"), BOOM, events.DONE)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar)
    assert told.response.body == script.body
    assert told.response.clean_end
    assert told.outcomes == {"stream_error": 1}
    assert told.delta("ttft").count == 1


@pytest.mark.parametrize("request_", [CHAT_REQUEST, MESSAGES_REQUEST], ids=["chat", "messages"])
async def test_sse_19_an_error_as_the_first_event_is_a_stream_error_without_a_token(
    sidecar: SharedSidecar, upstream: UpstreamFactory, request_: bytes
) -> None:
    script = Telling(OVERLOADED)
    await upstream(script, port=sidecar.upstream_port)
    told = await tell(sidecar, request_)
    assert told.response.body == script.body
    assert told.outcomes == {"stream_error": 1}
    assert told.delta("ttft").count == 0
    assert told.delta("streams_without_token_total", reason="error").value == 1


async def test_sse_21_output_that_reached_the_client_is_never_asked_for_again(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    attempts = 0
    seen = asyncio.Event()

    async def first_breaks(connection: Connection) -> None:
        nonlocal attempts
        while True:
            await connection.read_request()
            attempts += 1
            if attempts == 2:
                await connection.send(events.sse_head() + events.chunk(events.ROLE) + events.chunk(events.T("A")))
                await seen.wait()
                connection.rst()
                return
            await connection.stream(events.ROLE, events.T("A"), events.T("B"), events.FIN, events.DONE)

    server = await upstream(first_breaks, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        # A kept connection is what a retry would be most likely on.
        assert (await client.chat()).clean_end
        await client.send(CHAT_REQUEST)
        await client.arrival(events.T("B"))
        await client.until(lambda: client.received.count(events.T("A")) == 2)
        seen.set()
        response = await client.response()
        await client.wait_closed()
    assert response.body == events.ROLE + events.T("A")
    assert not response.clean_end
    after = await sidecar.metrics_after(before, requests=2)
    assert outcomes(before, after) == {"ok": 1, "network_error": 1}
    assert delta(before, after, "retries_total").value == 0
    assert len(server.requests) == 2


@pytest.mark.parametrize("how", ["fin", "rst"])
async def test_sse_21_a_request_that_was_read_is_not_sent_again_before_the_answer_either(
    sidecar: SharedSidecar, upstream: UpstreamFactory, how: str
) -> None:
    async def drop_the_second(connection: Connection) -> None:
        await connection.read_request()
        await connection.stream(events.ROLE, events.T("A"), events.FIN, events.DONE)
        await connection.read_request()
        getattr(connection, how)()

    server = await upstream(drop_the_second, port=sidecar.upstream_port)
    before = await sidecar.metrics()
    async with await sidecar.client() as client:
        assert (await client.chat()).clean_end
        refused = await client.chat()
    assert refused.status == 502
    assert refused.value("x-sidecar-error") == b"upstream_closed"
    after = await sidecar.metrics_after(before, requests=2)
    assert outcomes(before, after) == {"ok": 1, "network_error": 1}
    assert delta(before, after, "retries_total").value == 0
    assert len(server.requests) == 2


class SimulatorProcess:
    """`python -m sidecar simulate`: an upstream that can be killed as a process is."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sidecar", "simulate", "--listen", "127.0.0.1:0"],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def address(self) -> str:
        """Wait for it to listen: its URL."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()[-1]

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self.process.kill()
        self.process.wait(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


async def test_an_upstream_killed_during_fifty_streams_leaves_none_that_looks_complete(
    sidecar_factory: SidecarFactory,
) -> None:
    simulator = SimulatorProcess()
    try:
        sidecar = await sidecar_factory(await asyncio.to_thread(simulator.address))
        before = await sidecar.metrics()
        request = request_bytes(
            headers=[*events.DEFAULT_HEADERS, (b"x-sim-ttft", b"0.05"), (b"x-sim-itl", b"0.05"),
                     (b"x-sim-tokens", b"5000")],
            body=events.DEFAULT_BODY,
        )  # fmt: skip
        clients = [await RawClient.connect(sidecar.data) for _ in range(50)]
        try:
            for client in clients:
                await client.send(request)
            await asyncio.gather(*(client.arrival(b'"content":"') for client in clients))
            assert (await sidecar.metrics()).value("inflight") == 50
            await asyncio.to_thread(simulator.kill)
            await asyncio.gather(*(client.wait_closed() for client in clients))
            assert all(LAST_CHUNK not in client.received for client in clients)
            assert all((response := client.partial()) and not response.clean_end for client in clients)
        finally:
            for client in clients:
                await client.close()
        after = await sidecar.metrics_after(before, requests=50)
        assert outcomes(before, after) == {"network_error": 50}
        assert after.value("inflight") == 0
        assert after.value("connections") == 0
    finally:
        await asyncio.to_thread(simulator.kill)
