from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidecar.config.model import Models
from sidecar.dialects.reading import Operation, ProviderTimes, Reading, ReasoningShown, RequestFacts, Usage
from sidecar.exchange import CacheState, Exchange, Phase
from sidecar.failures import Code, Failure
from sidecar.metrics.recorder import Recorder

Make = Callable[..., Any]
UPSTREAM_FAMILIES = (
    "request_phase_seconds",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "inter_chunk_seconds",
    "tokens_total",
    "network_ratio",
    "time_seconds_total",
    "token_count_source_total",
    "slo_requests_total",
)


@pytest.mark.parametrize("state", [CacheState.HIT, CacheState.STALE, CacheState.COALESCED])
def test_what_the_cache_served_enters_requests_and_duration_only(
    state: CacheState, recorder: Recorder, look: Any, exchange: Make, chat: Any
) -> None:
    recorder.record(exchange(cache=state), chat)
    assert look.total("requests_total") == 1
    assert look.samples("request_duration_seconds", stream="true", cache=state.value) == (1, 2.5)
    for name in UPSTREAM_FAMILIES:
        assert look.total(name) == 0


def test_a_tunnel_has_phases_tokens_and_a_duration_and_no_speed(
    recorder: Recorder, look: Any, exchange: Make, reading: Make
) -> None:
    recorder.record(exchange(status=101, tunnel=True), RequestFacts(Operation.REALTIME, "gpt"))
    assert look.samples("request_duration_seconds", stream="true", cache="none") == (1, 2.5)
    assert look.total("request_phase_seconds") == 4
    assert look.value("tokens_total", type="output") == 21
    for name in ("time_to_first_token_seconds", "inter_chunk_seconds", "network_ratio", "time_seconds_total"):
        assert look.total(name) == 0
    assert look.total("slo_requests_total") == look.total("streams_without_token_total") == 0


def test_requests_without_an_upstream_are_counted_and_cost_no_series(
    recorder: Recorder, look: Any, exchange: Make, chat: Any
) -> None:
    failure = Failure(Code.NO_UPSTREAM, "x")
    for name in ("", "none"):
        recorder.record(exchange(upstream=name, status=404, failure=failure, reading=None), chat)
    labels = {"operation": "chat", "code": "404", "outcome": "rejected", "stream": "true", "cache": "none"}
    assert look.value("requests_total", **labels, upstream="none", model="unknown") == 2
    assert look.total("request_duration_seconds") == 0


def test_exchanges_of_a_removed_upstream_do_not_bring_it_back(
    recorder: Recorder, look: Any, exchange: Make, chat: Any
) -> None:
    recorder.record(exchange(upstream="gone"), chat)
    assert look.total("requests_total") == 0


def test_a_trace_becomes_the_exemplar_and_a_strange_one_does_not(recorder: Recorder, exchange: Make, chat: Any) -> None:
    durations = recorder.families.histograms["request_duration_seconds"]
    for strange in ("", 'x"} 1', "ä" * 8, "f" * 200):
        recorder.record(exchange(trace_id=strange), chat)
    child = durations.child("api", "gpt", "true", "none")
    assert child.exemplars is None
    recorder.record(exchange(trace_id="0af7651916cd43dd8448eb211c80319c"), chat)
    assert child.exemplars is not None
    assert [found for found in child.exemplars if found] == [("0af7651916cd43dd8448eb211c80319c", 2.5, 1_700_000_002.5)]


def test_met_16_random_models_that_fail_leave_room_for_real_ones(config: Make, exchange: Make, reading: Make) -> None:
    recorder = Recorder(config(models=Models(limit=2)))
    for number in range(3000):
        facts = RequestFacts(Operation.CHAT, f"random-{number}")
        recorder.record(exchange(status=404, reading=reading(streamed=False)), facts)
    for name in ("real", "x" * 5000, None):
        recorder.record(exchange(), RequestFacts(Operation.CHAT, name, stream=True))
    models = {labels[1] for labels in recorder.families.counters["requests_total"].children}
    assert models == {"other", "real", "x" * 128, "unknown"}
    assert recorder.families.counters["label_overflow_total"].child("model").value == 3000


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)
COUNTS = st.none() | st.integers(min_value=-(10**30), max_value=10**30)
READINGS = st.builds(
    Reading,
    streamed=st.booleans(),
    usage=st.none() | st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans()),
    token_events=st.integers(0, 10**9),
    first_token_at=st.none() | NUMBERS,
    first_output_at=st.none() | NUMBERS,
    last_token_at=st.none() | NUMBERS,
    first_token_tokens=COUNTS,
    gaps=st.lists(NUMBERS, max_size=3),
    reasoning_shown=st.sampled_from(ReasoningShown),
    complete=st.booleans(),
    error_code=st.none() | st.just("x"),
    provider=st.builds(ProviderTimes, *[st.none() | NUMBERS] * 6),
    ratelimit_remaining=st.dictionaries(st.sampled_from(["requests", "tokens", "x"]), NUMBERS),
)
FAILURES = st.builds(Failure, st.sampled_from(Code), st.just("x"), st.none() | st.sampled_from(Phase))
EXCHANGES = st.builds(
    Exchange,
    upstream=st.just("api"),
    dialect=st.just("openai"),
    method=st.just("POST"),
    target=st.just("/"),
    trace_id=st.sampled_from(["", "abc"]),
    status=st.sampled_from([0, 101, 200, 404, 500, 10**9, -1]),
    response_overheads=st.lists(NUMBERS, max_size=3),
    retransmits=st.integers(-1, 10**20),
    failure=st.none() | FAILURES,
    client_gone=st.booleans(),
    reading=st.none() | READINGS,
    cache=st.sampled_from(CacheState),
    tunnel=st.booleans(),
    **dict.fromkeys(
        ["t0", "started_at", "t_conn", "t_send0", "t_send1", "dns", "connect", "tls", "t_hdr", "t_end", "rtt"], NUMBERS
    ),
    client_wait=NUMBERS,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(EXCHANGES, min_size=1, max_size=4), st.booleans())
def test_met_06_no_marks_however_absurd_spoil_a_metric(config: Make, exchanges: list[Exchange], streamed: bool) -> None:
    recorder = Recorder(config())
    for ended in exchanges:
        recorder.record(ended, RequestFacts(Operation.CHAT, "gpt", streamed))
    families = recorder.families
    values = [child.value for family in families.counters.values() for child in family.children.values()]
    values += [child.value or 0.0 for family in families.gauges.values() for child in family.children.values()]
    values += [child.sum for family in families.histograms.values() for child in family.children.values()]
    assert all(math.isfinite(value) and value >= 0.0 for value in values)
