from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sidecar.dialects.reading import Operation, Reading, RequestFacts
from sidecar.exchange import Exchange, Outcome
from sidecar.failures import ANSWERS, Code, Failure
from sidecar.metrics.outcomes import code_of, is_stream, no_token_reason, outcome_of

Make = Callable[..., Any]


@pytest.mark.parametrize("code", Code)
def test_a_failure_names_its_outcome(code: Code, exchange: Make) -> None:
    assert outcome_of(exchange(failure=Failure(code, "x"), client_gone=True)) is ANSWERS[code][1]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.OK),
        (304, Outcome.OK),
        (400, Outcome.CLIENT_ERROR),
        (404, Outcome.CLIENT_ERROR),
        (429, Outcome.RATE_LIMITED),
        (500, Outcome.UPSTREAM_ERROR),
        (529, Outcome.UPSTREAM_ERROR),
        (0, Outcome.SIDECAR_ERROR),
    ],
)
def test_without_a_failure_the_status_decides(status: int, outcome: Outcome, exchange: Make) -> None:
    assert outcome_of(exchange(status=status, reading=None)) is outcome


def test_a_200_is_not_ok_when_its_body_carries_an_error(exchange: Make, reading: Make) -> None:
    assert outcome_of(exchange(reading=reading(error_type="overloaded"))) is Outcome.STREAM_ERROR
    assert outcome_of(exchange(reading=reading(error_code="503", streamed=False))) is Outcome.UPSTREAM_ERROR


def test_a_stream_without_its_end_is_truncated(exchange: Make, reading: Make) -> None:
    assert outcome_of(exchange(reading=reading(complete=False))) is Outcome.STREAM_TRUNCATED
    assert outcome_of(exchange(reading=reading(complete=False, streamed=False))) is Outcome.OK


def test_a_client_that_left_cancelled_unless_it_had_the_whole_stream(exchange: Make, reading: Make) -> None:
    assert outcome_of(exchange(client_gone=True, reading=reading(complete=False))) is Outcome.CLIENT_CANCELLED
    assert outcome_of(exchange(client_gone=True, status=0, reading=None)) is Outcome.CLIENT_CANCELLED
    assert outcome_of(exchange(client_gone=True)) is Outcome.OK


def test_a_tunnel_needs_no_terminal_event(exchange: Make, reading: Make) -> None:
    assert outcome_of(exchange(status=101, tunnel=True, reading=reading(complete=False))) is Outcome.OK
    assert outcome_of(exchange(status=101, tunnel=True, reading=reading(error_type="x"))) is Outcome.STREAM_ERROR


def test_the_code_is_what_the_application_received(exchange: Make) -> None:
    failure = Failure(Code.CONNECT_TIMEOUT, "x")
    assert code_of(exchange()) == 200
    assert code_of(exchange(status=0, failure=failure)) == 504
    assert code_of(exchange(status=200, failure=failure)) == 200
    assert code_of(exchange(status=0, failure=failure, client_gone=True)) == 0
    assert code_of(exchange(status=0)) == 0
    assert code_of(exchange(status=999)) == 0


@pytest.mark.parametrize("asked", [True, False])
def test_a_success_is_a_stream_by_what_it_was_and_a_failure_by_what_was_asked(
    asked: bool, exchange: Callable[..., Exchange], reading: Callable[..., Reading]
) -> None:
    facts = RequestFacts(Operation.CHAT, "gpt", stream=asked)
    assert is_stream(exchange(), facts) is True
    assert is_stream(exchange(reading=reading(streamed=False)), facts) is False
    assert is_stream(exchange(status=500, reading=reading(streamed=False)), facts) is asked
    assert is_stream(exchange(status=0, reading=None), facts) is asked
    assert is_stream(exchange(status=101, tunnel=True, reading=None), facts) is True


def test_every_outcome_has_decided_whether_there_was_a_stream() -> None:
    refused = {Outcome.CLIENT_ERROR, Outcome.RATE_LIMITED, Outcome.UPSTREAM_ERROR, Outcome.REJECTED}
    assert {outcome for outcome in Outcome if no_token_reason(outcome) is None} == refused
