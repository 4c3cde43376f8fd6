"""Clocks, the phases of a connection and of a request, and one exchange kept apart from another."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conftest import UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars
from tests.kit.metrics import delta, outcomes
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell
from tests.kit.upstream import Connection, each_request, streaming

STREAM = (events.ROLE, events.T("a"), 0.02, events.T("b"), events.FIN, events.USE(9, 2), events.DONE)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    with shared_sidecar(tmp_path_factory.mktemp("timing")) as running:
        yield running


@pytest.fixture
async def sidecars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalSidecars]:
    async with LocalSidecars(tmp_path, caplog) as starting:
        yield starting


async def test_met_22_steps_of_the_wall_clock_move_no_duration(
    sidecars: LocalSidecars, upstream: UpstreamFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_clock, step = time.time, 0.0
    monkeypatch.setattr(time, "time", lambda: wall_clock() + step)

    async def script(connection: Connection) -> None:
        nonlocal step
        while True:
            await connection.read_request()
            step = -3600.0
            await connection.send(events.sse_head() + events.chunk(events.ROLE))
            await asyncio.sleep(0.1)
            await connection.chunk(events.T("a"))
            await asyncio.sleep(0.1)
            step = 3600.0
            await connection.chunk(events.T("b") + events.FIN + events.USE(9, 2) + events.DONE)
            await connection.last_chunk()

    local = await sidecars(await upstream(script))
    told = await tell(local)
    elapsed = time.monotonic() - told.sent_at
    histograms = [name for name, type_ in told.after.types.items() if type_ == "histogram"]
    seconds = [name for name in histograms if name.endswith("_seconds")]
    assert len(seconds) > 10
    for name in seconds:
        change = delta(told.before, told.after, name.removeprefix("llm_sidecar_"))
        assert -1e-9 <= change.sum <= max(elapsed, 2.0), name
    assert 0.1 <= told.delta("ttft").sum <= elapsed
    assert 0.2 <= told.delta("request_duration").sum <= elapsed
    assert told.delta("time_seconds_total").value == pytest.approx(told.delta("request_duration").sum)
    assert told.outcomes == {"ok": 1}


DNS_DELAY, TLS_DELAY = 0.3, 0.4


async def test_met_23_the_phases_of_a_connection_are_told_apart_and_counted_once(
    sidecars: LocalSidecars, upstream: UpstreamFactory, tmp_path: Path
) -> None:
    server = await upstream(streaming(*STREAM), tls=server_context("api.test"), handshake_delay=TLS_DELAY)
    asked: list[str] = []

    async def slow_lookup(host: str, port: int) -> tuple[list[object], float]:
        asked.append(host)
        await asyncio.sleep(DNS_DELAY)
        return await asyncio.get_running_loop().getaddrinfo("127.0.0.1", port, type=1), 60.0  # type: ignore[return-value]

    url = f"https://api.test:{server.port}"
    local = await sidecars(url, settings={"tls": {"ca_file": str(ca_file(tmp_path))}}, lookup=slow_lookup)
    start = await local.metrics()
    async with await local.client() as client:
        began = time.monotonic()
        assert (await client.chat()).clean_end
        elapsed = time.monotonic() - began
        first = await local.metrics_after(start)
        assert (await client.chat()).clean_end
        second = await local.metrics_after(first)

    dns, connect, tls = (delta(start, first, phase) for phase in ("dns", "connect", "tls"))
    assert [phase.count for phase in (dns, connect, tls)] == [1, 1, 1]
    assert dns.sum >= DNS_DELAY - 0.005
    assert tls.sum >= TLS_DELAY - 0.005
    assert connect.sum < 0.15
    # A delay that is counted in two phases would not fit in the time there was.
    assert dns.sum + connect.sum + tls.sum <= elapsed
    assert DNS_DELAY + TLS_DELAY - 0.01 <= delta(start, first, "ttft", connection="new").sum <= elapsed
    (exchange,) = first_exchanges(await local.exchanges())
    assert exchange["phases_ms"]["dns"] == pytest.approx(dns.sum * 1000, abs=0.01)
    assert exchange["phases_ms"]["tls"] == pytest.approx(tls.sum * 1000, abs=0.01)

    assert [delta(first, second, phase).count for phase in ("dns", "connect", "tls")] == [0, 0, 0]
    assert delta(first, second, "ttft", connection="reused").count == 1
    assert delta(first, second, "ttft", connection="new").count == 0
    assert delta(first, second, "ttft").sum < DNS_DELAY
    assert asked == ["api.test"]
    assert server.server_names == ["api.test"]


def first_exchanges(answer: object) -> list[dict[str, dict[str, float]]]:
    """The exchanges that dialled."""
    listed = answer["exchanges"] if isinstance(answer, dict) else answer
    assert isinstance(listed, list)
    return [exchange for exchange in listed if not exchange["connection_reused"]]


async def test_met_23_the_phases_of_a_request_add_up_to_its_duration(
    sidecars: LocalSidecars, upstream: UpstreamFactory, tmp_path: Path
) -> None:
    server = await upstream(streaming(0.05, *STREAM), tls=server_context("localhost"), handshake_delay=0.1)
    settings = {"tls": {"ca_file": str(ca_file(tmp_path))}}
    local = await sidecars(f"https://localhost:{server.port}", settings=settings)
    told = await tell(local)
    phases = [told.delta(phase).sum for phase in ("blocked", "dns", "connect", "tls", "send", "wait", "receive")]
    assert sum(phases) == pytest.approx(told.delta("request_duration").sum, abs=1e-6)
    assert told.delta("time_seconds_total").value == pytest.approx(told.delta("request_duration").sum, abs=1e-6)


async def test_met_23_a_plain_upstream_by_address_has_neither_dns_nor_tls(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    await upstream(Telling(*STREAM), port=sidecar.upstream_port)
    told = await tell(sidecar, CHAT_REQUEST)
    assert [told.delta(phase).count for phase in ("dns", "connect", "tls")] == [0, 1, 0]


async def test_met_25_two_hundred_exchanges_at_once_keep_apart(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    chance = random.Random(25)

    async def echo(connection: Connection, request: RawRequest) -> None:
        await asyncio.sleep(chance.random() * 0.2)
        prompt = json.loads(request.body)["messages"][0]["content"]
        trace = (request.value("traceparent") or b"").decode()
        usage = events.USE(1, int(prompt.removeprefix("prompt ")))
        await connection.stream(events.ROLE, events.T(f"{prompt} {trace}"), events.FIN, usage, events.DONE)

    server = await upstream(each_request(echo), port=sidecar.upstream_port)
    before = await sidecar.metrics()

    async def one(number: int) -> None:
        trace = f"00-{number:032x}-{number:016x}-01"
        body = events.DEFAULT_BODY.replace(b'"hi"', b'"prompt %d"' % number)
        async with await RawClient.connect(sidecar.data) as client:
            headers = [*events.DEFAULT_HEADERS, (b"traceparent", trace.encode())]
            await client.send(request_bytes(headers=headers, body=body))
            response = await client.response(timeout=20)
        assert events.T(f"prompt {number} {trace}") in response.body

    await asyncio.gather(*(one(number) for number in range(1, 201)))
    after = await sidecar.metrics_after(before, requests=200)
    assert len({request.value("traceparent") for request in server.requests}) == 200
    assert outcomes(before, after) == {"ok": 200}
    assert delta(before, after, "tokens_out").value == sum(range(1, 201)), "each usage was counted once"
    listed = json.loads((await get(sidecar.admin, "/exchanges?limit=200")).body)["exchanges"]
    assert {exchange["trace_id"] for exchange in listed} == {f"{number:032x}" for number in range(1, 201)}
    for exchange in listed:
        assert exchange["reading"]["output_tokens"] == int(exchange["trace_id"], 16)
