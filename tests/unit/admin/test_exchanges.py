from __future__ import annotations

import json
from typing import Any

import pytest

from sidecar.admin.exchanges import describe
from sidecar.dialects.reading import Operation, Reading, RequestFacts, Usage
from sidecar.exchange import Outcome
from sidecar.failures import Code, Failure
from sidecar.proxy.finished import finished
from tests.kit.fakes import make_exchange

FACTS = RequestFacts(Operation.CHAT, "gpt", stream=True)


def described(facts: RequestFacts = FACTS, **values: Any) -> dict[str, Any]:
    """As it comes out of the admin port."""
    shown = describe(finished(make_exchange(**values), facts, Outcome.OK))
    found: dict[str, Any] = json.loads(json.dumps(shown))
    return found


def test_phases_are_milliseconds_that_add_up() -> None:
    shown = described(
        t_conn=100.5, dns=0.125, connect=0.0625, tls=0.0625, t_send0=100.5, t_send1=100.625, t_hdr=101.0, t_end=103.0
    )
    assert shown["phases_ms"] == {
        "blocked": 250.0,
        "dns": 125.0,
        "connect": 62.5,
        "tls": 62.5,
        "send": 125.0,
        "wait": 375.0,
        "receive": 2000.0,
    }
    assert sum(shown["phases_ms"].values()) == shown["duration_ms"] == 3000.0


def test_phases_that_were_not_reached_are_none() -> None:
    shown = described(t_end=100.25, failure=Failure(Code.DNS_FAILED, "no such name: secret.example"), status=502)
    phases = shown["phases_ms"]
    assert (phases["send"], phases["wait"], phases["receive"], shown["reading"], shown["rtt_ms"]) == (None,) * 5
    assert (shown["error"], shown["status"]) == ("dns_failed", 502)


@pytest.mark.parametrize(
    "target", ["/v1/models?key=hunter2", "/v1/models?", "/v1/models?a=b?key=hunter2", "/v1/models?x#hunter2"]
)
def test_queries_are_never_shown(target: str) -> None:
    shown = described(target=target)
    assert shown["path"] == "/v1/models"
    assert "hunter2" not in json.dumps(shown)


def test_neither_fields_nor_bodies_are_shown() -> None:
    shown = described(
        response_headers=[(b"Set-Cookie", b"hunter2")],
        request_copy=b"hunter2",
        reading=Reading(error_type="x", error_code="y"),
    )
    assert "hunter2" not in json.dumps(shown)


def test_what_was_read_is_shown_relative_to_the_start() -> None:
    reading = Reading(
        dialect="openai",
        streamed=True,
        model="gpt-2026",
        usage=Usage(input=10, output=20, cached_input=4),
        events=7,
        token_events=5,
        first_token_at=100.5,
        first_output_at=100.75,
        last_token_at=102.0,
        finish_reasons=["stop"],
        complete=True,
        parse_errors={"json": 1},
    )
    assert described(t_end=103.0, reading=reading)["reading"] == {
        "model": "gpt-2026",
        "events": 7,
        "token_events": 5,
        "first_token_ms": 500.0,
        "first_output_ms": 750.0,
        "last_token_ms": 2000.0,
        "input_tokens": 10,
        "output_tokens": 20,
        "cached_input_tokens": 4,
        "reasoning_tokens": 0,
        "finish_reasons": ["stop"],
        "complete": True,
        "parse_errors": {"json": 1},
    }


def test_whether_it_streamed_is_what_came_and_else_what_was_asked() -> None:
    assert described()["stream"] is True
    assert described(reading=Reading(streamed=False))["stream"] is False


def test_the_start_is_a_wall_clock_time_with_its_zone() -> None:
    assert described(started_at=1_700_000_000.5)["started"] == "2023-11-14T22:13:20.500+00:00"


def test_what_no_upstream_was_found_for_has_none() -> None:
    assert described(upstream="")["upstream"] is None
