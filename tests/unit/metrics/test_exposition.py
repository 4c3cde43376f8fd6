from __future__ import annotations

import asyncio
import gzip
import itertools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.exposition import choose_encoder
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from prometheus_client.registry import CollectorRegistry

from sidecar.dialects.reading import Operation, ProviderTimes, RequestFacts
from sidecar.exchange import Phase
from sidecar.metrics import exposition as module
from sidecar.metrics.collector import SidecarCollector
from sidecar.metrics.exposition import Exposition
from sidecar.metrics.recorder import Recorder

Make = Callable[..., Any]
ROOT = Path(__file__).parents[3]
OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def busy(recorder: Recorder, exchange: Make, reading: Make) -> Recorder:
    """Four models in full use, streamed and not, on new and reused connections."""
    times = ProviderTimes(until_headers=0.25, total=1.0)
    for model, reused, streamed in itertools.product("abcd", (False, True), (False, True)):
        answer = reading(streamed=streamed, provider=times, ratelimit_remaining={"requests": 5, "tokens": 9})
        ended = exchange(connection_reused=reused, reading=answer, rtt=0.02, trace_id=TRACE)
        recorder.record(ended, RequestFacts(Operation.CHAT, f"model-{model}", streamed))
    recorder.connection_opened("api", 0.001, 0.02, 0.03)
    recorder.connections("api", lambda: 1, lambda: 2)
    recorder.config_reloaded(True, 1_700_000_000.0)
    recorder.build_info("1.0", "3.11")
    recorder.upstream_info("api", "openai", "http/1.1", 'api.example.com:443"\\')
    return recorder


async def text_of(recorder: Recorder, accept: str = "") -> str:
    body, _ = await Exposition(recorder, lambda: 0.0).render(accept)
    return body.decode()


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_the_lines_are_those_of_the_library(accept: str, busy: Recorder) -> None:
    registry = CollectorRegistry()
    registry.register(SidecarCollector(busy.families))
    encoder, _ = choose_encoder(accept)
    theirs = encoder(registry).decode().removesuffix("# EOF\n")
    assert (await text_of(busy, accept)).startswith(theirs)
    assert "le=" in theirs


async def test_a_family_in_parts_has_one_head(busy: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = await text_of(busy)
    monkeypatch.setattr(module, "SLICE_CHILDREN", 1)
    monkeypatch.setattr(module, "SLICE_SAMPLES", 3)
    ours = re.compile(r"^llm_sidecar_.*", re.MULTILINE)
    assert ours.findall(await text_of(busy)) == ours.findall(whole)
    assert (await text_of(busy)).count("# HELP llm_sidecar_connection_errors_total ") == 1


async def test_text_parses_and_is_negotiated(busy: Recorder) -> None:
    body, headers = await Exposition(busy, time.perf_counter).render("text/html, */*")
    assert dict(headers)["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {sample.name: sample for family in parse_text(body.decode()) for sample in family.samples}
    assert samples["llm_sidecar_upstream_info"].labels["address"] == 'api.example.com:443"\\'
    assert "process_cpu_seconds_total" in samples
    assert "python_info" in samples
    assert TRACE.encode() not in body
    assert b"_created" not in body


async def test_openmetrics_parses_and_has_exemplars(busy: Recorder) -> None:
    body, headers = await Exposition(busy, time.perf_counter).render(OPENMETRICS)
    assert dict(headers)["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")
    assert body.count(b"# EOF") == 1
    assert b"_created" not in body
    families = {family.name: family for family in parse_openmetrics(body.decode())}
    exemplars = [sample.exemplar for sample in families["llm_sidecar_request_duration_seconds"].samples]
    found = next(exemplar for exemplar in exemplars if exemplar)
    assert (found.labels, found.value, float(found.timestamp)) == ({"trace_id": TRACE}, 2.5, 1_700_000_002.5)


@pytest.mark.parametrize(
    "accept",
    ["application/openmetrics-text;version=one", "text/plain;version=x.y", ";;,=", "application/openmetrics-text"],
)
async def test_a_strange_accept_gets_an_answer(accept: str, busy: Recorder) -> None:
    assert "llm_sidecar_requests_total" in await text_of(busy, accept)


async def test_compression_on_request(busy: Recorder) -> None:
    exposition = Exposition(busy, lambda: 0.0)
    plain, headers = await exposition.render("", "identity")
    assert "Content-Encoding" not in dict(headers)
    packed, headers = await exposition.render("", "deflate, gzip;q=0.5")
    assert dict(headers)["Content-Encoding"] == "gzip"
    ours = plain.split(b"# HELP process_")[0]
    assert gzip.decompress(packed).startswith(ours)
    assert len(packed) < len(plain) / 5


async def test_one_upstream_and_four_models_stay_under_1500_lines(busy: Recorder) -> None:
    assert (await text_of(busy)).count("\n") < 1500
    assert (await text_of(busy, OPENMETRICS)).count("\n") < 1500


async def test_met_16_a_flood_of_models_stays_small(busy: Recorder, exchange: Make) -> None:
    for number in range(3000):
        busy.record(exchange(status=404, reading=None), RequestFacts(Operation.CHAT, f"{number:0>12}"))
    text = await text_of(busy)
    assert len(text) < 2_000_000
    assert set(re.findall(r'model="([^"]*)"', text)) == {"model-a", "model-b", "model-c", "model-d", "other"}


async def test_met_06_no_value_is_nan_or_infinite(busy: Recorder) -> None:
    for family in parse_text(await text_of(busy)):
        for sample in family.samples:
            assert 0.0 <= sample.value < float("inf") or family.name.startswith(("process_", "python_")), sample


async def test_histograms_are_cumulative_and_agree_with_their_count(busy: Recorder) -> None:
    for family in parse_text(await text_of(busy)):
        if family.type != "histogram":
            continue
        counts = {}
        for sample in family.samples:
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "le"))
            if sample.name.endswith("_bucket"):
                assert sample.value >= counts.get(key, 0.0)
                counts[key] = sample.value
            elif sample.name.endswith("_count"):
                assert sample.value == counts[key]


async def test_other_work_goes_on_between_the_slices(busy: Recorder) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await Exposition(busy, time.perf_counter).render()
    counting.cancel()
    assert turns >= 30


async def test_scrapes_at_the_same_time_all_get_the_whole_page(busy: Recorder) -> None:
    exposition = Exposition(busy, lambda: 0.0)
    bodies = [body for body, _ in await asyncio.gather(*(exposition.render() for _ in range(4)))]
    assert len({body.split(b"# HELP process_")[0] for body in bodies}) == 1


async def test_the_time_of_the_last_scrape_is_shown(recorder: Recorder) -> None:
    ticks = itertools.count()
    await Exposition(recorder, lambda: float(next(ticks))).render()
    value = recorder.families.gauges["scrape_render_seconds"].child().value
    assert value is not None
    # Each slice takes two readings of this clock, one second apart; there is a slice for each family that shows a line.
    assert 10 <= value <= 60


async def test_series_of_a_removed_upstream_vanish_from_the_page(config: Make, exchange: Make, chat: Any) -> None:
    recorder = Recorder(config("a", "b"))
    exposition = Exposition(recorder, time.perf_counter)
    recorder.record(exchange(upstream="a"), chat)
    assert b'upstream="a"' in (await exposition.render())[0]
    recorder.configure(config("b"))
    assert b'upstream="a"' not in (await exposition.render())[0]


async def test_promtool_has_no_complaint(busy: Recorder) -> None:
    busy.connection_error("api", Phase.TLS, "certificate")
    busy.parse_error("api", "json")
    busy.retry("api", "closed")
    busy.config_info("abc")
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool comes with the package `prometheus`"
    text = await text_of(busy)
    command = [promtool, "check", "metrics"]
    run = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


SCRAPE = """
import asyncio, time
from sidecar.config.model import Config, Upstream, Url
from sidecar.dialects.reading import Operation, RequestFacts
from sidecar.exchange import Exchange
from sidecar.metrics.exposition import Exposition
from sidecar.metrics.recorder import Recorder

recorder = Recorder(Config((Upstream("api", Url("https", "example.com", 443)),)))
for _ in range(3):
    ended = Exchange("api", "openai", "POST", "/", 1.0, 1.0, status=200, t_conn=1.1, t_end=2.0)
    recorder.record(ended, RequestFacts(Operation.CHAT, "gpt"))
print(asyncio.run(Exposition(recorder, time.perf_counter).render())[0].decode())
"""


@pytest.mark.parametrize("there", [True, False])
def test_met_20_a_multiprocess_directory_changes_nothing(there: bool, tmp_path: Path) -> None:
    directory = tmp_path / "multiproc"
    if there:
        directory.mkdir()
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(directory), "prometheus_multiproc_dir": str(directory)}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRAPE], capture_output=True, text=True, check=True, cwd=ROOT, env=env
    )
    samples = {sample.name: sample for family in parse_text(run.stdout) for sample in family.samples}
    assert samples["llm_sidecar_requests_total"].value == 3
    assert samples["llm_sidecar_request_duration_seconds_count"].value == 3
    assert "process_resident_memory_bytes" in samples
    assert not list(tmp_path.rglob("*.db"))
