"""What the metrics are made of: labels that nobody can multiply, buckets that reach, scrapes that are whole."""

from __future__ import annotations

import asyncio
import json
import random
import string
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conftest import SidecarFactory, UpstreamFactory
from tests.kit import events
from tests.kit.client import request_bytes
from tests.kit.h1 import RawRequest
from tests.kit.local import LocalSidecars
from tests.kit.metrics import Metrics, delta, outcomes
from tests.kit.shared import SharedSidecar, shared_sidecar, tell
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


async def test_a_scrape_during_traffic_is_whole(sidecar: SharedSidecar, upstream: UpstreamFactory) -> None:
    await upstream(streaming(*STREAM), port=sidecar.upstream_port)

    async def scrape() -> list[Metrics]:
        return [await sidecar.metrics() for _ in range(10)]

    async def load() -> None:
        async with await sidecar.client() as client:
            for _ in range(10):
                assert (await client.chat()).clean_end

    scrapes, *_ = await asyncio.gather(scrape(), load(), load())
    totals = [metrics.value("requests") for metrics in scrapes]
    assert totals == sorted(totals), "a counter never goes back"
    for metrics in scrapes:
        assert metrics.not_finite() == []
        for name in ("ttft", "request_duration"):
            buckets = list(metrics.buckets(name).values())
            assert buckets == sorted(buckets)
            assert buckets[-1] == metrics.count(name)
