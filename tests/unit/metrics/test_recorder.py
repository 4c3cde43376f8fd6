from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.dialects.reading import Operation, ProviderTimes, ReasoningShown, RequestFacts, Usage
from sidecar.exchange import Phase
from sidecar.failures import Code, Failure
from sidecar.metrics.recorder import Recorder

Make = Callable[..., Any]


def test_a_stream_is_counted_once_with_all_its_labels(recorder: Recorder, look: Any, exchange: Make, chat: Any) -> None:
    recorder.record(exchange(), chat)
    labels = {"operation": "chat", "code": "200", "outcome": "ok", "stream": "true", "cache": "none"}
    assert look.value("requests_total", **labels) == 1
    assert look.total("requests_total") == 1
    assert look.samples("request_duration_seconds", stream="true", cache="none") == (1, 2.5)


def test_first_token_is_measured_from_the_request_head(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    recorder.record(exchange(reading=reading(first_output_at=101.5)), chat)
    assert look.samples("time_to_first_token_seconds", connection="new") == (1, 1.0)
    assert look.samples("time_to_first_token_seconds", connection="reused") == (0, 0.0)
    assert look.samples("time_to_first_output_token_seconds") == (1, 1.5)
    recorder.record(exchange(connection_reused=True), chat)
    assert look.samples("time_to_first_token_seconds", connection="reused") == (1, 1.0)


def test_met_07_speed_is_per_token_and_gaps_are_per_chunk(
    recorder: Recorder, look: Any, exchange: Make, chat: Any
) -> None:
    recorder.record(exchange(), chat)
    assert look.samples("time_per_output_token_seconds") == (1, pytest.approx(0.05))
    assert look.samples("output_tokens_per_second") == (1, pytest.approx(20.0))
    assert look.samples("inter_chunk_seconds") == (2, 1.0)
    assert look.samples("generation_seconds", output_size="le128") == (1, 1.0)


def test_met_04_an_answer_that_is_no_stream_has_no_first_token_and_no_speed(
    recorder: Recorder, look: Any, exchange: Make, reading: Make
) -> None:
    recorder.record(exchange(reading=reading(streamed=False)), RequestFacts(Operation.CHAT, "gpt"))
    assert look.samples("request_duration_seconds", stream="false", cache="none") == (1, 2.5)
    for name in ("time_to_first_token_seconds", "time_per_output_token_seconds", "inter_chunk_seconds"):
        assert look.total(name) == 0
    assert look.total("streams_without_token_total") == 0
    assert look.value("tokens_total", type="output") == 21


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"last_token_at": 101.0, "gaps": [0.0, 0.0]}, id="one write"),
        pytest.param({"last_token_at": 101.0, "gaps": [], "token_events": 1, "usage": Usage(output=1)}, id="one token"),
        pytest.param({"usage": Usage(output=0)}, id="no tokens reported"),
        pytest.param({"reasoning_shown": ReasoningShown.SUMMARY}, id="summary only"),
    ],
)
def test_met_06_no_speed_is_invented(changes: dict[str, Any], measure: Make) -> None:
    look = measure({}, changes)
    assert look.total("time_to_first_token_seconds") == 1
    assert look.total("time_per_output_token_seconds") == 0
    assert look.total("output_tokens_per_second") == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "no_output"),
        ({"client_gone": True, "status": 0, "t_hdr": 0.0, "reading": None}, "client_cancelled"),
        ({"failure": Failure(Code.IDLE_TIMEOUT, "x", Phase.RECEIVE)}, "timeout"),
        ({"failure": Failure(Code.UPSTREAM_CLOSED, "x", Phase.RECEIVE)}, "error"),
        ({"status": 500}, None),
        ({"status": 429}, None),
    ],
)
def test_a_stream_without_a_token_counts_by_its_reason(
    changes: dict[str, Any], reason: str | None, measure: Make
) -> None:
    never = {"first_token_at": None, "first_output_at": None, "last_token_at": None}
    look = measure(changes, {**never, "token_events": 0, "gaps": [], "usage": None})
    assert look.total("time_to_first_token_seconds") == 0
    assert look.total("streams_without_token_total") == (reason is not None)
    if reason is not None:
        assert look.value("streams_without_token_total", reason=reason) == 1


def test_phases_add_up_to_the_duration(recorder: Recorder, look: Any, exchange: Make, chat: Any) -> None:
    recorder.record(exchange(), chat)
    phases = [look.samples("request_phase_seconds", phase=phase) for phase in ("blocked", "send", "wait", "receive")]
    assert phases == [(1, 0.25), (1, 0.125), (1, 0.375), (1, 1.5)]
    assert look.total("connection_phase_seconds") == 0


def test_overhead_is_what_the_sidecar_held(recorder: Recorder, look: Any, exchange: Make, chat: Any) -> None:
    recorder.record(exchange(response_overheads=[0.125, 0.25]), chat)
    assert look.samples("overhead_seconds", direction="request") == (1, 0.0625)
    assert look.samples("overhead_seconds", direction="response") == (2, 0.375)


def test_tokens_are_what_the_usage_says_made_comparable(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    usage = Usage(25, 15, cached_input=100, cache_creation_input=5, reasoning=3, input_excludes_cache=True)
    recorder.record(exchange(reading=reading(usage=usage)), chat)
    kinds = ("input", "output", "cached_input", "cache_creation_input", "reasoning")
    assert [look.value("tokens_total", type=kind) for kind in kinds] == [130, 15, 100, 5, 3]
    assert look.samples("request_tokens", type="input") == (1, 130)
    assert look.samples("request_tokens", type="output") == (1, 15)
    assert look.value("token_count_source_total", source="usage") == 1


def test_without_usage_events_give_a_speed_and_no_tokens(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    recorder.record(exchange(reading=reading(usage=None)), chat)
    assert look.samples("time_per_output_token_seconds") == (1, 0.5)
    assert look.total("tokens_total") == 0
    assert look.total("request_tokens") == 0
    assert look.value("token_count_source_total", source="events") == 1


def test_an_answer_without_events_and_usage_has_no_token_count(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    silent = {"usage": None, "token_events": 0, "first_token_at": None, "streamed": False}
    recorder.record(exchange(reading=reading(**silent)), chat)
    assert look.value("token_count_source_total", source="none") == 1
    recorder.record(exchange(reading=reading(**silent)), RequestFacts(Operation.OTHER))
    recorder.record(exchange(status=500, reading=reading(**silent)), chat)
    assert look.total("token_count_source_total") == 1


def test_network_ratio_and_attribution(recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any) -> None:
    reported = reading(provider=ProviderTimes(until_headers=0.25))
    recorder.record(exchange(reading=reported, client_wait=0.5), chat)
    assert look.samples("network_ratio", basis="reported") == (1, 0.4375 / 2.5)
    components = ("network", "provider", "sidecar", "client")
    assert [look.value("time_seconds_total", component=name) for name in components] == [0.4375, 1.25, 0.3125, 0.5]
    recorder.record(exchange(rtt=0.0625), chat)
    assert look.samples("network_ratio", basis="estimated") == (1, 0.375 / 2.5)
    assert look.total("time_seconds_total") == 5.0


def test_times_and_limits_that_the_provider_reports_are_shown(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    times = ProviderTimes(total=1.0, queue=0.25, load=0.5, prompt=0.125, generation=0.75)
    left = {"requests": 0.0, "tokens": -1.0, "pages": 3.0}
    recorder.record(exchange(reading=reading(provider=times, ratelimit_remaining=left)), chat)
    phases = ("total", "queue", "load", "prompt", "generation")
    sums = [look.samples("provider_phase_seconds", phase=phase)[1] for phase in phases]
    assert sums == [1.0, 0.25, 0.5, 0.125, 0.75]
    assert look.value("ratelimit_remaining", kind="requests") == 0.0
    gauges = recorder.families.gauges["ratelimit_remaining"].children
    assert {labels: gauge.value for labels, gauge in gauges.items()}[("api", "tokens")] is None


def test_the_kernel_s_view_of_the_connection_is_recorded(
    recorder: Recorder, look: Any, exchange: Make, chat: Any
) -> None:
    recorder.record(exchange(rtt=0.02, retransmits=3), chat)
    recorder.record(exchange(), chat)
    assert look.samples("tcp_rtt_seconds") == (1, 0.02)
    assert look.value("tcp_retransmits_total") == 3


def test_what_could_not_be_read_is_counted(
    recorder: Recorder, look: Any, exchange: Make, reading: Make, chat: Any
) -> None:
    recorder.record(exchange(reading=reading(parse_errors={"json": 2})), chat)
    assert look.value("parse_errors_total", reason="json") == 2


@pytest.mark.parametrize(
    ("changes", "read", "good", "bad"),
    [
        ({}, {}, 1, 0),
        ({}, {"first_token_at": 100.5, "last_token_at": 102.5, "gaps": []}, 1, 0),
        ({"t_end": 110.0}, {"first_token_at": 103.5, "last_token_at": 103.6}, 0, 1),
        ({"t_end": 110.0}, {"last_token_at": 104.0}, 0, 1),
        ({}, {"streamed": False}, 1, 0),
        ({}, {"complete": False}, 0, 1),
        ({"status": 500}, {"streamed": False}, 0, 1),
        ({"status": 429}, {"streamed": False}, 0, 1),
        ({"status": 400}, {"streamed": False}, 0, 0),
        ({"client_gone": True}, {"complete": False}, 0, 0),
        ({"failure": Failure(Code.OVERLOADED, "x", Phase.BLOCKED)}, {}, 0, 0),
        ({"failure": Failure(Code.HEADERS_TIMEOUT, "x", Phase.WAIT)}, {}, 0, 1),
    ],
)
def test_objectives(changes: dict[str, Any], read: dict[str, Any], good: int, bad: int, measure: Make) -> None:
    look = measure(changes, read, RequestFacts(Operation.CHAT, "gpt"))
    children = look.recorder.families.counters["slo_requests_total"].children
    results = {
        result: sum(c.value for labels, c in children.items() if labels[2] == result) for result in ("good", "bad")
    }
    assert results == {"good": good, "bad": bad}
