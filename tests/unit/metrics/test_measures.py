from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.dialects.reading import ProviderTimes, ReasoningShown, Usage
from sidecar.exchange import Phase
from sidecar.failures import Code, Failure
from sidecar.metrics.measures import Spans, network_of, output_size, seconds_per_token, spans_of, split_of

Make = Callable[..., Any]


def test_phases_with_the_dialling_add_up_to_the_duration(exchange: Make) -> None:
    spans = spans_of(exchange())
    assert spans == Spans(blocked=0.25, send=0.125, wait=0.375, receive=1.5, overhead=0.0625)
    assert 0.25 + 0.25 + 0.125 + 0.375 + 1.5 == 102.5 - 100.0


def test_a_head_before_the_request_was_sent_counts_no_time_twice(exchange: Make) -> None:
    early = spans_of(exchange(t_send1=101.5))
    assert (early.send, early.wait, early.receive) == (0.5, 0.0, 1.5)
    never = spans_of(exchange(t_send1=0.0))
    assert (never.send, never.wait, never.receive) == (0.5, 0.0, 1.5)


def test_a_phase_that_was_cut_short_lasts_until_the_end(exchange: Make) -> None:
    waiting = spans_of(exchange(t_hdr=0.0, status=0))
    assert (waiting.send, waiting.wait, waiting.receive) == (0.125, 1.875, None)
    sending = spans_of(exchange(t_hdr=0.0, t_send1=0.0, status=0))
    assert (sending.send, sending.wait, sending.receive) == (2.0, None, None)


def test_without_a_connection_only_a_wait_for_a_place_is_a_phase(exchange: Make) -> None:
    marks = {"t_conn": 0.0, "t_send0": 0.0, "t_send1": 0.0, "t_hdr": 0.0, "dns": 0.0, "connect": 0.0, "tls": 0.0}
    full = exchange(**marks, failure=Failure(Code.POOL_EXHAUSTED, "x", Phase.BLOCKED))
    refused = exchange(**marks, failure=Failure(Code.CONNECT_FAILED, "x", Phase.CONNECT))
    assert spans_of(full).blocked == 2.5
    assert spans_of(refused) == Spans(None, None, None, None, 0.0)


def test_reported_network_is_dialling_sending_and_the_rest_of_the_wait(exchange: Make, reading: Make) -> None:
    streamed = exchange(reading=reading(provider=ProviderTimes(until_headers=0.25, total=9.0)))
    assert network_of(streamed, spans_of(streamed), True) == (0.25 + 0.0625 + 0.125, "reported")
    whole = exchange(reading=reading(streamed=False, provider=ProviderTimes(total=0.25)))
    assert network_of(whole, spans_of(whole), False) == (0.25 + 0.0625 + 0.125, "reported")


def test_a_report_longer_than_the_wait_leaves_no_negative_network(exchange: Make, reading: Make) -> None:
    slow = exchange(connection_reused=True, dns=0.0, connect=0.0, tls=0.0, t_send1=100.5625)
    slow.reading = reading(provider=ProviderTimes(until_headers=5.0))
    assert network_of(slow, spans_of(slow), True) == (0.0, "reported")


def test_the_total_of_a_stream_is_not_used_and_network_is_estimated(exchange: Make, reading: Make) -> None:
    streamed = exchange(rtt=0.0625, reading=reading(provider=ProviderTimes(total=1.0)))
    assert network_of(streamed, spans_of(streamed), True) == (0.25 + 0.0625 + 0.0625, "estimated")


def test_without_a_round_trip_time_nothing_is_estimated(exchange: Make) -> None:
    assert network_of(exchange(), spans_of(exchange()), True) == (0.25 + 0.0625, None)


def test_a_total_that_leaves_the_queue_out_gets_it_added(exchange: Make, reading: Make) -> None:
    apart = ProviderTimes(total=0.125, queue=0.125, prompt=0.0625, generation=0.0625)
    within = ProviderTimes(total=0.25, queue=0.125, prompt=0.0625, generation=0.0625)
    for times in (apart, within):
        whole = exchange(reading=reading(streamed=False, provider=times))
        assert network_of(whole, spans_of(whole), False)[0] == 0.25 + 0.0625 + 0.125


def test_a_dialling_that_failed_was_network(exchange: Make) -> None:
    failed = exchange(t_conn=0.0, t_hdr=0.0, failure=Failure(Code.CONNECT_TIMEOUT, "x", Phase.CONNECT))
    assert network_of(failed, spans_of(failed), True) == (2.5, None)


def test_the_parts_of_an_exchange_add_up_to_its_duration(exchange: Make) -> None:
    slow = exchange(response_overheads=[0.125, 0.125], client_wait=0.5)
    parts = split_of(slow, spans_of(slow), 0.25)
    assert parts == (0.25, 2.5 - 0.25 - 0.5625 - 0.5, 0.25 + 0.0625 + 0.25, 0.5)
    assert sum(parts) == 2.5


def test_an_estimate_takes_no_more_than_there_is(exchange: Make) -> None:
    network, provider, sidecar, client = split_of(exchange(), spans_of(exchange()), 60.0)
    assert (network, provider) == (2.5 - 0.3125, 0.0)
    assert (sidecar, client) == (0.3125, 0.0)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1.0 / 20),
        ({"first_token_tokens": 11}, 1.0 / 10),
        ({"usage": None}, 1.0 / 2),
        ({"usage": Usage(input=5)}, 1.0 / 2),
        ({"usage": Usage(output=2)}, 1.0),
    ],
)
def test_time_per_token_is_the_time_of_the_tokens_after_the_first_event(
    changes: dict[str, Any], expected: float, reading: Make
) -> None:
    answer = reading(**changes)
    assert seconds_per_token(answer, answer.usage) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [(ReasoningShown.NONE, 1.0 / 10), (ReasoningShown.TEXT, 1.0 / 20), (ReasoningShown.SUMMARY, None)],
)
def test_reasoning_counts_only_when_it_was_streamed(
    shown: ReasoningShown, expected: float | None, reading: Make
) -> None:
    answer = reading(usage=Usage(output=21, reasoning=10), reasoning_shown=shown)
    assert seconds_per_token(answer, answer.usage) == expected


def test_hidden_reasoning_in_a_running_count_is_not_taken_out_twice(reading: Make) -> None:
    answer = reading(usage=Usage(output=21, reasoning=10), first_token_tokens=12)
    assert seconds_per_token(answer, answer.usage) == pytest.approx(1.0 / 9)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"last_token_at": 101.0, "gaps": [0.0, 0.0]}, id="all in one write"),
        pytest.param({"token_events": 1, "last_token_at": 101.0, "gaps": []}, id="one chunk"),
        pytest.param({"usage": Usage(output=1)}, id="one token"),
        pytest.param({"usage": Usage(output=0)}, id="no tokens"),
        pytest.param({"usage": Usage(output=5), "first_token_tokens": 5}, id="all tokens in the first event"),
        pytest.param({"first_token_at": None, "last_token_at": None, "token_events": 0}, id="no token event"),
        pytest.param({"last_token_at": 100.0}, id="a clock that went back"),
    ],
)
def test_met_06_no_rate_where_no_time_or_no_second_token_is(changes: dict[str, Any], reading: Make) -> None:
    answer = reading(**changes)
    assert seconds_per_token(answer, answer.usage) is None


@pytest.mark.parametrize(
    ("tokens", "size"),
    [(0, "le128"), (128, "le128"), (129, "le512"), (512, "le512"), (2048, "le2048"), (2049, "gt2048")],
)
def test_output_sizes(tokens: int, size: str) -> None:
    assert output_size(tokens) == size
