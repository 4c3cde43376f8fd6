"""What can go wrong before there is a connection, each in its phase; two address families (RFC 8305)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.client import CHAT_REQUEST, get
from tests.kit.local import LocalSidecars, name_server
from tests.kit.metrics import delta, outcomes
from tests.kit.on_the_way import blackhole, connecting_sockets
from tests.kit.process import refusing_port
from tests.kit.upstream import answering

OK = events.body_response(b"ok")


@pytest.mark.parametrize("first", ["silent", "refusing"])
async def test_net_06_a_broken_first_address_costs_no_second(
    first: str, upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    with ExitStack() as held:
        port = held.enter_context(blackhole("::1")) if first == "silent" else refusing_port("::1")
        fillers = connecting_sockets(port)
        lookup = name_server({"api.example.test": [("::1", port), ("127.0.0.1", server.port)]})
        sidecar = await sidecars(f"http://api.example.test:{server.port}", lookup=lookup)
        before = await sidecar.metrics()
        began = time.monotonic()
        response = await get(sidecar.data, "/v1/models")
        took = time.monotonic() - began
        assert connecting_sockets(port) == fillers, "the abandoned attempt leaves no socket"
    after = await sidecar.metrics_after(before)
    assert response.status == 200
    assert took < 1
    assert delta(before, after, "connect").count == 1
    assert delta(before, after, "dns").count == 1
    assert delta(before, after, "connection_errors_total").value == 0


async def test_net_06_localhost_is_found_on_the_family_that_listens(
    upstream: UpstreamFactory, sidecars: LocalSidecars
) -> None:
    server = await upstream(answering(OK))
    sidecar = await sidecars(f"http://localhost:{server.port}")
    began = time.monotonic()
    assert (await get(sidecar.data, "/v1/models")).status == 200
    assert time.monotonic() - began < 1


async def until(condition: Callable[[], bool], timeout: float = 2.0) -> None:
    """Look at something outside of this process until it holds."""
    ends = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.01)


async def test_a_client_that_leaves_while_its_connection_is_dialled_ends_the_dialling(
    sidecars: LocalSidecars,
) -> None:
    with blackhole("127.0.0.1") as port:
        sidecar = await sidecars(f"http://127.0.0.1:{port}")
        fillers = connecting_sockets(port)
        before = await sidecar.metrics()
        async with await sidecar.client() as client:
            await client.send(CHAT_REQUEST)
            await until(lambda: connecting_sockets(port) > fillers)
        after = await sidecar.metrics_after(before, timeout=1)
        assert connecting_sockets(port) == fillers
    assert outcomes(before, after) == {"client_cancelled": 1}


async def never(host: str, port: int) -> tuple[list[object], float]:
    await asyncio.sleep(60)
    raise AssertionError("the name server was waited for")


async def test_a_refused_connection_is_a_502_that_names_the_phase(sidecars: LocalSidecars) -> None:
    sidecar = await sidecars(f"http://127.0.0.1:{refusing_port()}")
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (502, b"connect_failed")
    assert delta(before, after, "connection_errors_total", phase="connect", reason="refused").value == 1
    assert delta(before, after, "connect").count == 0
    assert outcomes(before, after) == {"network_error": 1}


async def test_a_connection_that_nobody_answers_is_a_504(sidecars: LocalSidecars) -> None:
    with blackhole("127.0.0.1") as port:
        sidecar = await sidecars(f"http://127.0.0.1:{port}", settings={"timeouts": {"connect": "300ms"}})
        before = await sidecar.metrics()
        response = await get(sidecar.data, "/v1/models")
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (504, b"connect_timeout")
    assert delta(before, after, "connection_errors_total", phase="connect", reason="timeout").value == 1
    assert outcomes(before, after) == {"timeout": 1}


async def test_a_name_that_does_not_exist_is_a_502(sidecars: LocalSidecars) -> None:
    sidecar = await sidecars("http://nowhere.example.test", lookup=name_server({}))
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (502, b"dns_failed")
    assert b"nowhere.example.test" in response.body
    assert delta(before, after, "connection_errors_total", phase="dns", reason="not_found").value == 1


async def test_a_name_server_that_does_not_answer_is_a_504(sidecars: LocalSidecars) -> None:
    sidecar = await sidecars("http://api.example.test", settings={"timeouts": {"dns": "200ms"}}, lookup=never)
    before = await sidecar.metrics()
    response = await get(sidecar.data, "/v1/models")
    after = await sidecar.metrics_after(before)
    assert (response.status, response.value("x-sidecar-error")) == (504, b"dns_timeout")
    assert delta(before, after, "connection_errors_total", phase="dns", reason="timeout").value == 1
