from __future__ import annotations

import pytest

from sidecar.demo.kinds import KINDS, Kind
from sidecar.demo.report import Row, agrees, progress, rows, table
from sidecar.demo.scrape import Sample

CHAT = Kind("chat", "/v1", "{}", "openai", ttft=0.3, itl=0.02, tokens=40, tls_delay=0.03, rate=1.0)
WHOLE = Kind("emb", "/v1", "{}", "openai", ttft=0.08, itl=0.0, tokens=1, tls_delay=0.03, rate=1.0, streamed=False)


def test_streams_are_held_against_their_first_token_and_their_speed() -> None:
    found = rows(
        CHAT,
        Sample(
            'llm_sidecar_time_to_first_token_seconds_sum{upstream="chat",connection="reused"} 0.6\n'
            'llm_sidecar_time_to_first_token_seconds_count{upstream="chat",connection="reused"} 2\n'
            'llm_sidecar_time_to_first_token_seconds_sum{upstream="chat",connection="new"} 9\n'
            'llm_sidecar_time_to_first_token_seconds_count{upstream="chat",connection="new"} 2\n'
            'llm_sidecar_connection_phase_seconds_sum{upstream="chat",phase="tls"} 0.031\n'
            'llm_sidecar_connection_phase_seconds_count{upstream="chat",phase="tls"} 1\n'
        ),
    )
    assert found == [
        ("chat", "first token", 0.3, 0.3),
        ("chat", "time per token", 0.02, None),
        ("chat", "connect", 0.0, None),
        ("chat", "tls", 0.03, 0.031),
    ]


def test_other_answers_are_held_against_their_wait() -> None:
    assert [row[1] for row in rows(WHOLE, Sample(""))] == ["wait", "connect", "tls"]


def test_every_kind_of_the_demo_has_truths_of_its_own() -> None:
    assert len({kind.ttft for kind in KINDS}) == len({kind.tls_delay for kind in KINDS}) == len(KINDS)
    assert all(rows(kind, Sample("")) for kind in KINDS)


@pytest.mark.parametrize(
    ("simulated", "measured", "agreed"),
    [
        (0.3, 0.3149, True),
        (0.3, 0.3151, False),
        (0.3, 0.2849, False),
        (0.02, 0.0249, True),
        (0.02, 0.0251, False),
        (0.0, 0.0, True),
        (0.3, None, False),
    ],
)
def test_measured_agrees_within_5_ms_or_5_percent(simulated: float, measured: float | None, agreed: bool) -> None:
    assert agrees(("chat", "first token", simulated, measured)) is agreed


def test_the_table_has_a_verdict_for_each_row() -> None:
    made: list[Row] = [("chat", "first token", 0.3, 0.301), ("chat", "tls", 0.03, 0.05), ("emb", "wait", 0.08, None)]
    head, *lines = table(made).splitlines()
    assert head.split() == ["traffic", "quantity", "simulated", "measured"]
    assert [line.split() for line in lines] == [
        ["chat", "first", "token", "300.00", "ms", "301.00", "ms", "ok"],
        ["chat", "tls", "30.00", "ms", "50.00", "ms", "OFF"],
        ["emb", "wait", "80.00", "ms", "-", "OFF"],
    ]


BEFORE = """\
llm_sidecar_requests_total{cache="none"} 10
llm_sidecar_time_to_first_token_seconds_sum 10
llm_sidecar_time_to_first_token_seconds_count 10
llm_sidecar_time_seconds_total{component="network"} 1
llm_sidecar_time_seconds_total{component="provider"} 9
"""
NOW = """\
llm_sidecar_requests_total{cache="none"} 14
llm_sidecar_requests_total{cache="hit"} 2
llm_sidecar_time_to_first_token_seconds_sum 12
llm_sidecar_time_to_first_token_seconds_count 14
llm_sidecar_output_tokens_per_second_sum 200
llm_sidecar_output_tokens_per_second_count 4
llm_sidecar_time_seconds_total{component="network"} 2
llm_sidecar_time_seconds_total{component="provider"} 12
"""


def test_a_line_of_progress_is_about_the_last_seconds_only() -> None:
    line = progress(Sample(NOW), Sample(BEFORE))
    assert " ".join(line.split()) == (
        "6 requests first token 500.00 ms 50.0 tokens/s per stream network share 25.0 % cache hits 2"
    )


def test_a_line_of_progress_without_traffic() -> None:
    line = progress(Sample(NOW), Sample(NOW))
    assert " ".join(line.split()) == ("0 requests first token - 0.0 tokens/s per stream network share - cache hits 0")
