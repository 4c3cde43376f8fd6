"""What the metrics are made of: labels, buckets, clocks, phases of a connection, and one exchange apart from another."""

from __future__ import annotations

import asyncio
import json
import random
import string
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.authority import ca_file, server_context
from tests.kit.client import CHAT_REQUEST, RawClient, get, request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars
from tests.kit.metrics import Metrics, delta, outcomes
from tests.kit.shared import SharedSidecar, Telling, shared_sidecar, tell
from tests.kit.upstream import Connection, Script, each_request, streaming

MODEL_LIMIT = 4
STREAM = (events.ROLE, events.T("a"), 0.02, events.T("b"), events.FIN, events.USE(9, 2), events.DONE)


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSidecar]:
    models = {"limit": MODEL_LIMIT, "allow": ["known"]}
    with shared_sidecar(tmp_path_factory.mktemp("metrics"), models=models) as running:
        yield running


@pytest.fixture
async def sidecars(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[LocalSidecars]:
    async with LocalSidecars(tmp_path, caplog) as starting:
        yield starting


def knowing(*models: object) -> Script:
    """An upstream that answers for these models, and 404 for all others."""
    missing = events.json_response({"error": {"message": "no such model"}}, status="404 Not Found")
    answer = events.chat_completion()

    async def handler(connection: Connection, request: RawRequest) -> None:
        await connection.send(answer if json.loads(request.body).get("model") in models else missing)

    return each_request(handler)


def asking(model: object) -> bytes:
    members = {} if model is None else {"model": model}
    body = json.dumps({**members, "messages": []}).encode()
    return request_bytes(headers=events.DEFAULT_HEADERS, body=body)


async def ask_all(sidecar: SharedSidecar, models: list[object]) -> list[int]:
    """Ask for each model, on eight connections; the statuses."""
    waiting = iter(models)
    statuses: list[int] = []

    async def one_after_the_other() -> None:
        async with await sidecar.client() as client:
            for model in waiting:
                await client.send(asking(model))
                statuses.append((await client.response()).status)

    await asyncio.gather(*(one_after_the_other() for _ in range(8)))
    return statuses


async def test_met_16_three_thousand_invented_models_make_a_handful_of_series(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    await upstream(knowing("known", "new"), port=sidecar.upstream_port)
    before = await sidecar.metrics()
    chance = random.Random(16)
    invented: list[object] = ["".join(chance.choices(string.ascii_lowercase, k=12)) for _ in range(3000)]
    invented += [letter * 5000 for letter in "abcdefghij"]
    absurd: list[object] = [{"a": 1}, [1], 7, None, None, None]
    statuses = await ask_all(sidecar, invented + absurd)
    assert statuses == [404] * len(statuses)
    assert await ask_all(sidecar, ["known", "new"]) == [200, 200]
    total = len(statuses) + 2
    after = await sidecar.metrics_after(before, requests=total)
    labels = after.label_values("requests", "model")
    assert labels <= {"known", "new", "other", "unknown"}
    assert {"known", "new"} <= labels, "what exists has a label of its own, however much was invented before"
    assert delta(before, after, "requests", model="other").value == len(invented)
    assert delta(before, after, "requests", model="unknown").value == len(absurd)
    assert delta(before, after, "label_overflow_total", label="model").value == len(invented)
    assert len(after.text) < 2_000_000


async def test_met_16_models_that_exist_are_limited_too_and_their_names_cut(
    sidecars: LocalSidecars, upstream: UpstreamFactory
) -> None:
    names: list[object] = [f"real-{number}" for number in range(20)]
    long = "n" * 5000
    server = await upstream(knowing(long, *names))
    local = await sidecars(server, models={"limit": MODEL_LIMIT})
    before = await local.metrics()
    async with await local.client() as client:
        for model in [long, *names, *names]:
            await client.send(asking(model))
            assert (await client.response()).status == 200
    after = await local.metrics_after(before, requests=41)
    labels = after.label_values("requests", "model")
    assert labels == {"n" * 128, "real-0", "real-1", "real-2", "other"}
    assert outcomes(before, after) == {"ok": 41}


BOUNDS = {
    "request_duration": (0.05, 600),
    "ttft": (0.01, 120),
    "inter_token": (0.005, 2.5),
    "time_per_token": (0.005, 2.5),
    "dns": (0.001, 10),
    "connect": (0.001, 10),
    "tls": (0.001, 10),
    "wait": (0.05, 600),
    "tokens_per_second": (1, 1000),
    "request_tokens": (1, 128_000),
}
"""Highest lowest and lowest highest finite bound of each histogram: what a quantile of it must be able to say."""


async def test_met_18_buckets_reach_from_the_fastest_answer_to_the_slowest(
    sidecar: SharedSidecar, upstream: UpstreamFactory
) -> None:
    await upstream(streaming(*STREAM), port=sidecar.upstream_port)
    metrics = (await tell(sidecar)).after
    for name, (lowest, highest) in BOUNDS.items():
        bounds = [bound for bound in metrics.buckets(name) if bound != float("inf")]
        assert bounds == sorted(set(bounds)), name
        assert bounds[0] <= lowest, name
        assert bounds[-1] >= highest, name
        assert float("inf") in metrics.buckets(name), name


@pytest.mark.parametrize("directory", ["empty", "missing"])
async def test_met_20_a_directory_for_many_processes_is_left_alone(
    sidecar_factory: SidecarFactory, upstream: UpstreamFactory, tmp_path: Path, directory: str
) -> None:
    multiprocess = tmp_path / "prometheus"
    if directory == "empty":
        multiprocess.mkdir()
    running = await sidecar_factory(
        await upstream(streaming(*STREAM)), environment={"PROMETHEUS_MULTIPROC_DIR": str(multiprocess)}
    )
    told = await tell(running)
    assert told.outcomes == {"ok": 1}
    assert told.delta("ttft").count == 1
    assert told.tokens() == {"input": 9, "output": 2}
    assert told.after.value("process_resident_memory_bytes") > 10_000_000
    assert list(multiprocess.glob("*")) == []


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


async def test_a_scrape_during_traffic_is_whole(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    await upstream(streaming(*STREAM), port=sidecar.upstream_port)
    scrapes: list[Metrics] = []

    async def scrape() -> None:
        for _ in range(10):
            scrapes.append(await sidecar.metrics())

    async def load() -> None:
        async with await sidecar.client() as client:
            for _ in range(10):
                assert (await client.chat()).clean_end

    await asyncio.gather(scrape(), load(), load())
    totals = [metrics.value("requests") for metrics in scrapes]
    assert totals == sorted(totals), "a counter never goes back"
    for metrics in scrapes:
        assert metrics.not_finite() == []
        for name in ("ttft", "request_duration"):
            buckets = list(metrics.buckets(name).values())
            assert buckets == sorted(buckets)
            assert buckets[-1] == metrics.count(name)
