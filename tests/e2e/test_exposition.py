"""/metrics of a sidecar under traffic: formats, exemplars, and that every family moves with what it measures."""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from tests.kit import events
from tests.kit.client import RawClient, get, post
from tests.kit.metrics import Metrics, delta
from tests.kit.process import refusing_port
from tests.kit.sdk import ATTEMPTS, HANDSHAKE, ITL, Call, Stage
from tests.kit.upstream import Connection, ScriptedUpstream, answering

pytestmark = pytest.mark.asyncio(loop_scope="module")

PREFIX = "llm_sidecar_"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
NONSENSE = events.json_response(b'{"id": nonsense')
OPENMETRICS = [(b"Accept", b"application/openmetrics-text; version=1.0.0")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async def forgetful(connection: Connection) -> None:
        await connection.read_request()
        await connection.send(events.json_response({"object": "list", "data": []}))
        await connection.read_request(timeout=600)

    async with AsyncExitStack() as running:
        broken = await running.enter_async_context(
            ScriptedUpstream(answering(events.json_response(b'{"id": nonsense')))
        )
        fading = await running.enter_async_context(ScriptedUpstream(forgetful))
        settings: dict[str, dict[str, Any]] = {
            "/sim": {},
            "/fresh": {},
            "/refused": {"url": f"http://127.0.0.1:{refusing_port()}", "tls": {}},
            "/broken": {"url": broken.url, "tls": {}},
            "/fading": {"url": fading.url, "tls": {}},
        }
        yield await running.enter_async_context(Stage(tmp_path_factory.mktemp("exposition"), settings))


def chat_body(model: str = "a", text: str = "hi") -> bytes:
    """A streamed chat with usage."""
    asked = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    return json.dumps({**asked, "messages": [{"role": "user", "content": text}]}).encode()


class Round(NamedTuple):
    """Traffic of every kind, each request `times` times; `held` streams run at once while the gauges are read."""

    times: int
    held: int
    wishes: dict[str, str]

    def headers(self, **more: str) -> list[tuple[bytes, bytes]]:
        """The wishes as header fields, with `more` of them."""
        named = {**self.wishes, **{f"x-sim-{name.replace('_', '-')}": value for name, value in more.items()}}
        return [(name.encode(), value.encode()) for name, value in named.items()]

    def chat(self, model: str = "a") -> bytes:
        """A body that is the longer, the more of it there is."""
        return chat_body(model, "hi " * 50 * self.times)

    def requests(self, stage: Stage) -> Iterable[Awaitable[Any]]:
        """The requests of one repetition."""
        data = stage.sidecar.data
        yield post(data, "/sim/v1/chat/completions", self.chat(), self.headers(close="1"))
        yield post(data, "/sim/v1/messages", b'{"model":"b","stream":true,"max_tokens":999}', self.headers())
        yield post(data, "/sim/api/chat", b'{"model":"c"}', self.headers(close="1"))
        yield post(data, "/sim/v1/embeddings", b'{"model":"d","input":"x"}', self.headers())
        # One model more than the label takes.
        yield post(data, "/sim/v1/chat/completions", self.chat("e"), self.headers(error_event="0"))
        yield post(data, "/refused/v1/embeddings", b"{}")
        yield post(data, "/broken/v1/chat/completions", b'{"model":"a"}')
        yield get(data, "/fading/v1/models")
        # Kept alive, and closed by the server when it is asked again: a GET is repeated.
        yield get(data, "/fading/v1/models")


async def play(stage: Stage, traffic: Round) -> tuple[Metrics, Metrics]:
    """Scrapes while the held streams run, and when everything has been recorded."""
    before = await stage.sidecar.metrics()
    expected = 0
    for _ in range(traffic.times):
        for request in traffic.requests(stage):
            await request
            expected += 1
    seen = stage.simulator.requests
    async with asyncio.TaskGroup() as group:
        for _ in range(traffic.held):
            held = post(stage.sidecar.data, "/sim/v1/chat/completions", traffic.chat(), traffic.headers(ttft="0.4"))
            group.create_task(held)
        await stage.requests_after(seen + traffic.held - 1)
        during = await stage.sidecar.metrics()
    return during, await stage.sidecar.metrics_after(before, expected + traffic.held)


STANDING = {
    "build_info": "names the build",
    "config_info": "names the configuration",
    "upstream_info": "names an upstream's address",
    "config_last_reload_success_timestamp_seconds": "nothing was reloaded",
    "config_reload_failures": "nothing was reloaded",
    "slo_threshold_seconds": "comes from the configuration",
    "draining": "nothing was drained",
    "tcp_retransmits": "the loopback loses nothing",
}
"""Families that stay as they are under these two rounds, each with its reason."""

STANDING_PREFIXES = {
    "cache_": "no upstream has a cache",
    "credential_": "no upstream has credentials of the sidecar's",
    "process_": "the library's",
    "python_": "the library's",
}


def stands(family: str) -> bool:
    """There is a reason for `family` to stay as it is."""
    name = family.removeprefix(PREFIX)
    return name in STANDING or name.startswith(tuple(STANDING_PREFIXES))


@pytest.mark.slow
async def test_every_family_moves_with_what_it_measures(stage: Stage) -> None:
    start = await stage.sidecar.metrics()
    first_gauges, first = await play(stage, Round(1, 1, {}))
    second_gauges, second = await play(stage, Round(2, 3, {"x-sim-ttft": "0.25", "x-sim-itl": "0.005"}))
    constant = []
    for family, kind in second.types.items():
        if stands(family):
            continue
        if kind == "gauge":
            values = [scrape.value(family) for scrape in (start, first_gauges, second_gauges)]
            moves = len(set(values)) == 3
        elif kind == "counter":
            name = f"{family}_total"
            one, two = delta(start, first, name).value, delta(first, second, name).value
            moves = 0 < one != two > 0
        else:
            one, two = delta(start, first, family), delta(first, second, family)
            moves = 0 < one.count != two.count > 0
            moves = moves and not math.isclose(one.sum / one.count, two.sum / two.count, rel_tol=1e-6)
        if not moves:
            constant.append(family)
    assert constant == []
    assert second.not_finite() == []


async def test_what_a_request_is_held_up_by_us_is_no_constant(stage: Stage) -> None:
    async with stage.call() as call:
        await post(stage.sidecar.data, "/sim/v1/embeddings", b'{"model":"d","input":"x"}')
    held_up = call.delta("overhead_seconds", direction="request")
    assert held_up.count == 1
    assert 0 < held_up.sum < 0.1


async def test_one_streamed_request_over_tls_fills_the_histograms_of_its_phases(stage: Stage) -> None:
    async with stage.call() as call:
        await post(stage.sidecar.data, "/fresh/v1/chat/completions", chat_body())
    least = {"connect": 0.0, "tls": HANDSHAKE * 0.9, "ttft": call.true_ttft() * 0.8, "tokens_per_second": 0.0}
    for name, low in least.items():
        change = call.delta(name, upstream="fresh")
        assert change.count == 1
        assert change.sum > low
        assert filled(call, name) == [bucket_of(call.after, name, change.sum)]
    assert call.delta("ttft").sum < call.delta("request_duration").sum
    assert call.delta("tokens_per_second").sum == pytest.approx(1 / ITL, rel=0.5)


def filled(call: Call, name: str) -> list[float]:
    """Upper bounds of the buckets of upstream `fresh` that hold a sample, not cumulative."""
    buckets = call.after.buckets(name, upstream="fresh")
    before = call.before.buckets(name, upstream="fresh")
    counts = [count - before.get(bound, 0.0) for bound, count in buckets.items()]
    return [bound for bound, count, lower in zip(buckets, counts, [0.0, *counts], strict=False) if count > lower]


def bucket_of(metrics: Metrics, name: str, value: float) -> float:
    """The upper bound of the bucket for `value`."""
    return next(bound for bound in metrics.buckets(name, upstream="fresh") if value <= bound)


async def test_exemplars_carry_the_trace_id_of_the_request_and_only_in_openmetrics(stage: Stage) -> None:
    trace = [(b"traceparent", f"00-{TRACE}-00f067aa0ba902b7-01".encode())]
    async with stage.call():
        await post(stage.sidecar.data, "/sim/v1/chat/completions", chat_body(), trace)
    response = await get(stage.sidecar.admin, "/metrics", OPENMETRICS)
    assert dict(response.headers)[b"Content-Type"].startswith(b"application/openmetrics-text; version=1.0.0")
    text = response.body.decode()
    assert text.endswith("# EOF\n")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for name in ("request_duration_seconds", "time_to_first_token_seconds", "time_per_output_token_seconds"):
        found = [sample.exemplar for sample in families[PREFIX + name].samples if sample.exemplar]
        mine = [exemplar for exemplar in found if exemplar.labels == {"trace_id": TRACE}]
        assert mine, name
        assert all(exemplar.value > 0 and abs(float(exemplar.timestamp) - time.time()) < 60 for exemplar in mine)
    assert TRACE not in (await stage.sidecar.metrics()).text


async def test_promtool_finds_no_fault(stage: Stage) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: prometheus), so its lint was not run")
    await play(stage, Round(1, 1, {}))
    text = (await stage.sidecar.metrics()).text
    done = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


STREAMS = 20
WISHES = [(b"x-sim-tokens", b"70"), (b"x-sim-itl", b"0.02"), (b"x-sim-ttft", b"0.1")]


async def longest_gap(stage: Stage) -> float:
    """Seconds of the longest silence in one of 50 events per second."""
    async with await RawClient.connect(stage.sidecar.data) as client:
        headers = [*events.DEFAULT_HEADERS, *WISHES]
        response = await client.request("POST", "/sim/v1/chat/completions", headers, chat_body())
        assert response.clean_end
        return max(later - earlier for (earlier, _), (later, _) in itertools.pairwise(client.log))


async def longest_gap_of_all(stage: Stage, scrapes: list[bytes] | None) -> float:
    """The same over STREAMS at once; with `scrapes`, into which /metrics is read again and again meanwhile.

    Not parsed yet: that would hold up the simulator, which runs in this process.
    """
    seen = stage.simulator.requests
    async with stage.call(STREAMS), asyncio.TaskGroup() as group:
        streams = [group.create_task(longest_gap(stage)) for _ in range(STREAMS)]
        await stage.requests_after(seen + STREAMS - 1)
        while scrapes is not None and not any(task.done() for task in streams):
            scrapes.append((await get(stage.sidecar.admin, "/metrics")).body)
            await asyncio.sleep(0.1)
    return max(task.result() for task in streams)


@pytest.mark.slow
async def test_scrapes_are_complete_and_stall_no_stream(stage: Stage) -> None:
    for _ in range(ATTEMPTS):
        scrapes: list[bytes] = []
        undisturbed = await longest_gap_of_all(stage, None)
        disturbed = await longest_gap_of_all(stage, scrapes)
        assert len(scrapes) >= 2
        assert len({frozenset(Metrics(scrape.decode()).types) for scrape in scrapes}) == 1
        # A busy machine makes gaps of its own.
        if disturbed < max(0.25, 2 * undisturbed):
            return
    pytest.fail(f"{disturbed:.3f} s without an event while scraped, {undisturbed:.3f} s else")
