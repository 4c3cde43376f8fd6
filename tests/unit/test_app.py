from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.app import App
from sidecar.config.model import Address, Config, Pool, Tls, Upstream, Url
from sidecar.exchange import Outcome
from sidecar.failures import Code
from sidecar.proxy.finished import Finished
from tests.conftest import UpstreamFactory
from tests.kit.client import RawClient, get, request_bytes
from tests.kit.events import sse_head
from tests.kit.h1 import RawRequest
from tests.kit.upstream import Connection, ScriptedUpstream, answering, each_request

ANYWHERE = Address("127.0.0.1", 0)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; what it asks for makes no event."""
    ends = time.monotonic() + 5.0
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.005)


class Running:
    """An app before some upstreams."""

    def __init__(self, app: App) -> None:
        self.app = app

    @property
    def recorded(self) -> list[Finished]:
        """The exchanges that it has recorded."""
        return list(self.app.ledger.last)

    async def client(self) -> RawClient:
        return await RawClient.connect((self.app.data_address.host, self.app.data_address.port))

    async def in_flight(self, number: int) -> None:
        """Wait until so many exchanges run."""
        await until(lambda: self.app.proxy.in_flight == number)

    def outcomes(self) -> list[tuple[str | None, Outcome]]:
        """Code of the failure, and outcome, of all that was recorded."""
        return [(exchange.error, exchange.outcome) for exchange in self.recorded]


Start = Callable[..., Awaitable[Running]]


def at(listening: ScriptedUpstream, **settings: Any) -> Upstream:
    return Upstream("api", Url("http", "127.0.0.1", listening.port), **settings)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[App] = []

    async def started(*upstreams: Upstream, **settings: Any) -> Running:
        app = App(Config(upstreams, **{"listen": ANYWHERE, "admin": ANYWHERE, **settings}))
        await app.start()
        running.append(app)
        return Running(app)

    yield started
    for app in running:
        await asyncio.wait_for(app.stop(), 10)


async def waiting(connection: Connection, request: RawRequest) -> None:
    """Never answers."""
    await connection.until(lambda: False, 60)


async def half(connection: Connection, request: RawRequest) -> None:
    """Begins a stream and does not end it."""
    await connection.send(sse_head())
    await connection.chunk(b"data: {}\n\n")
    await connection.until(lambda: False, 60)


# ---- start ----


async def test_it_is_ready_when_it_listens_and_not_any_more_when_it_drains(
    start: Start, upstream: UpstreamFactory
) -> None:
    app = App(Config((at(await upstream(answering(OK))),), listen=ANYWHERE, admin=ANYWHERE))
    assert (app.started, app.ready) == (False, False)
    await app.start()
    assert (app.started, app.ready) == (True, True)
    assert app.data_address.port
    assert (await get((app.admin_address.host, app.admin_address.port), "/readyz")).status == 200
    app.drain()
    assert (app.started, app.ready) == (True, False)
    assert (await get((app.admin_address.host, app.admin_address.port), "/readyz")).status == 503
    response = await get((app.data_address.host, app.data_address.port), "/")
    assert (response.body, response.value("connection")) == (b"ok", b"close"), "it serves on"
    await app.stop()


@pytest.mark.parametrize("which", ["listen", "admin"])
async def test_an_address_that_is_taken_is_an_error_and_leaves_nothing_open(which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        app = App(
            Config(
                (Upstream("api", Url("http", "a.example", 80)),),
                **{"listen": ANYWHERE, "admin": ANYWHERE, which: address},
            )
        )
        with pytest.raises(OSError, match="ddress already in use"):
            await app.start()
        assert not app.started


# ---- quiet ----


async def test_it_is_quiet_from_the_end_of_the_last_exchange(start: Start, upstream: UpstreamFactory) -> None:
    running = await start(at(await upstream(each_request(half))))
    began = running.app.quiet_since
    assert began is not None
    client = await running.client()
    await client.send(request_bytes("GET", "/"))
    await running.in_flight(1)
    assert running.app.quiet_since is None
    await client.close()
    await running.in_flight(0)
    assert running.app.quiet_since is not None
    assert running.app.quiet_since > began


# ---- stop ----


async def test_a_stream_that_is_broken_off_by_the_stop_is_recorded_and_logged_once(
    start: Start, upstream: UpstreamFactory, caplog: pytest.LogCaptureFixture
) -> None:
    listening = await upstream(each_request(half))
    running = await start(at(listening))
    async with await running.client() as client:
        await client.send(request_bytes("GET", "/v1/chat/completions"))
        await client.arrival(b"data: {}")
        with caplog.at_level(logging.WARNING, "sidecar"):
            await asyncio.wait_for(running.app.stop(), 5)
        await client.wait_closed()
        assert not client.received.endswith(b"0\r\n\r\n"), "nobody can take it for whole"
    assert running.outcomes() == [("stopping", Outcome.SIDECAR_ERROR)]
    assert running.recorded[0].status == 200
    assert [record.message for record in caplog.records] == ["exchanges_aborted"]
    await listening.connections[0].wait_closed()


async def test_requests_without_an_answer_yet_are_told_that_it_stops(
    start: Start, upstream: UpstreamFactory, caplog: pytest.LogCaptureFixture
) -> None:
    running = await start(at(await upstream(each_request(waiting)), pool=Pool(max_connections=1)))
    waits, queues = await running.client(), await running.client()
    for number, client in enumerate((waits, queues), start=1):
        await client.send(request_bytes(body=b"{}"))
        await running.in_flight(number)
    answers = [asyncio.ensure_future(client.response()) for client in (waits, queues)]
    with caplog.at_level(logging.WARNING, "sidecar"):
        await asyncio.wait_for(running.app.stop(), 5)
    for response in await asyncio.gather(*answers):
        assert (response.status, response.value("x-sidecar-error")) == (503, b"stopping")
    assert running.outcomes() == [("stopping", Outcome.SIDECAR_ERROR)] * 2
    messages = [record.message for record in caplog.records]
    assert messages.count("exchanges_aborted") == 1
    assert messages.count("request_not_carried") == 2
    for client in (waits, queues):
        await client.close()


async def test_a_dial_is_broken_off_by_the_stop(start: Start) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections into its backlog and says nothing
    port = silent.getsockname()[1]
    running = await start(Upstream("api", Url("https", "127.0.0.1", port)))
    async with await running.client() as client:
        await client.send(request_bytes("GET", "/"))
        await running.in_flight(1)
        answer = asyncio.ensure_future(client.response())
        await asyncio.wait_for(running.app.stop(), 3)
        assert (await answer).value("x-sidecar-error") == b"stopping"
    assert running.outcomes() == [("stopping", Outcome.SIDECAR_ERROR)]
    silent.close()


async def test_idle_connections_do_not_hold_the_stop(start: Start, upstream: UpstreamFactory) -> None:
    running = await start(at(await upstream(answering(OK))))
    async with await running.client() as client:
        assert (await client.request("GET", "/")).body == b"ok"
        began = asyncio.get_running_loop().time()
        await running.app.stop()
        assert asyncio.get_running_loop().time() - began < 1.0
        await client.wait_closed()
    assert len(running.recorded) == 1, "what had ended is recorded at the latest now"


# ---- reload ----


async def test_a_reload_serves_new_requests_by_the_new_configuration(start: Start, upstream: UpstreamFactory) -> None:
    old, new = await upstream(each_request(half)), await upstream(answering(OK))
    running = await start(at(old))
    app = running.app
    stream, client = await running.client(), await running.client()
    await stream.send(request_bytes("GET", "/"))
    await stream.arrival(b"data: {}")
    (before,) = app.proxy.router.origins

    await app.reload(replace(app.config, upstreams=(at(new),)))
    assert (await client.request("GET", "/")).body == b"ok"
    assert stream.end is None, "what runs ends by the old one"
    assert app._retired == [before]
    await stream.close()
    await until(lambda: not app._retired)
    await old.connections[0].wait_closed()
    await client.close()


async def test_a_reload_that_changes_nothing_keeps_the_connections(start: Start, upstream: UpstreamFactory) -> None:
    listening = await upstream(answering(OK))
    running = await start(at(listening))
    async with await running.client() as client:
        await client.request("GET", "/")
        await running.app.reload(replace(running.app.config))
        await client.request("GET", "/")
    assert listening.accepted == 1


async def test_a_reload_that_fails_changes_nothing(start: Start, upstream: UpstreamFactory) -> None:
    running = await start(at(await upstream(answering(OK))))
    app = running.app
    config, router = app.config, app.proxy.router
    broken = Upstream("api", Url("https", "a.example", 443), tls=Tls(ca_file="/nowhere/ca.pem"))
    with pytest.raises(OSError, match="No such file"):
        await app.reload(replace(config, upstreams=(broken,)))
    assert app.config is config
    assert app.proxy.config is config
    assert app.proxy.router is router


async def test_a_reload_says_what_it_cannot_do(
    start: Start, upstream: UpstreamFactory, caplog: pytest.LogCaptureFixture
) -> None:
    running = await start(at(await upstream(answering(OK))))
    with caplog.at_level(logging.WARNING, "sidecar"):
        await running.app.reload(replace(running.app.config, listen=Address("127.0.0.1", 1)))
    assert caplog.messages == ["reload_needs_restart"]


# ---- what the admin port shows ----


async def test_what_was_no_request_is_counted(start: Start, upstream: UpstreamFactory) -> None:
    running = await start(at(await upstream(answering(OK))))
    async with await running.client() as client:
        await client.send(b"NOT HTTP\r\n\r\n")
        assert (await client.response()).value("x-sidecar-error") == Code.BAD_REQUEST.encode()
    body, _ = await running.app.metrics("", "")
    (line,) = [found for found in body.decode().splitlines() if found.startswith("llm_sidecar_requests_total{")]
    assert {'upstream="none"', 'code="400"', 'outcome="rejected"'} <= set(line[line.index("{") + 1 : -5].split(",")), (
        line
    )


async def test_the_newest_exchange_is_shown_first(start: Start, upstream: UpstreamFactory) -> None:
    running = await start(at(await upstream(answering(OK))))
    async with await running.client() as client:
        for path in ("/one", "/two", "/three"):
            await client.request("GET", path)
    assert [shown["path"] for shown in running.app.exchanges(2)] == ["/three", "/two"]
    assert running.app.effective_config()["upstreams"][0]["name"] == "api"
