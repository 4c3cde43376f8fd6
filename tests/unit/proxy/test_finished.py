from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from sidecar.dialects.reading import Operation, Reading, RequestFacts, Usage
from sidecar.exchange import Exchange, Outcome
from sidecar.failures import Code, Failure
from sidecar.proxy.finished import Finished, Marks, finished
from tests.kit.fakes import make_exchange

FACTS = RequestFacts(Operation.CHAT, "gpt", stream=True)
INSTANTS = ("t0", "t_conn", "t_send0", "t_send1", "t_hdr", "t_end")
NUMBERS = (*INSTANTS, "started_at", "dns", "connect", "tls", "rtt", "request_bytes", "response_bytes")


def kept(facts: RequestFacts = FACTS, **values: Any) -> Finished:
    return finished(make_exchange(**values), facts, Outcome.OK)


def test_every_number_comes_back_under_its_name() -> None:
    # None of them twice; `blocked` is what is left of the time until t_conn.
    numbers = {name: 1000.0 * number + 1 / 3 for name, number in zip(NUMBERS, count(1), strict=False)}
    dialling = {"dns": 1 / 3, "connect": 1 / 7, "tls": 1 / 11, "request_bytes": 2**40 + 1, "response_bytes": 2**41 + 1}
    reading = Reading(first_token_at=7.125, first_output_at=8.125, last_token_at=9.125)
    exchange = make_exchange(reading=reading, **{**numbers, **dialling})
    marks = finished(exchange, FACTS, Outcome.OK).marks
    assert exchange.blocked > 0.0
    assert len(set(marks)) == len(Marks._fields)
    for name, value in marks._asdict().items():
        assert value == getattr(exchange if hasattr(exchange, name) else reading, name), name


def test_everything_else_comes_back_under_its_name() -> None:
    exchange = make_exchange(
        upstream="there",
        dialect="auto",
        method="PUT",
        target="/path",
        status=207,
        retried="reset",
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        connection_reused=True,
        failure=Failure(Code.UPSTREAM_CLOSED, "it closed"),
        reading=Reading(
            model="gpt-2026",
            streamed=False,
            events=7,
            token_events=5,
            usage=Usage(input=10, output=5, cached_input=4, reasoning=3),
            finish_reasons=["stop", "length"],
            complete=True,
            parse_errors={"json": 2},
        ),
    )
    made = finished(exchange, FACTS, Outcome.STREAM_TRUNCATED)
    assert made._replace(numbers=b"") == Finished(
        upstream="there",
        dialect="auto",
        method="PUT",
        path="/path",
        operation="chat",
        model="gpt",
        answered_model="gpt-2026",
        stream=False,
        status=207,
        outcome=Outcome.STREAM_TRUNCATED,
        error="upstream_closed",
        retried="reset",
        trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        connection_reused=True,
        events=7,
        token_events=5,
        read=True,
        usage=(10, 5, 4, 3),
        finish_reasons=("stop", "length"),
        complete=True,
        parse_errors={"json": 2},
        numbers=b"",
    )


def test_what_never_happened_is_zero() -> None:
    marks = kept(reading=Reading()).marks
    assert (marks.t0, marks.started_at) == (100.0, 1_700_000_000.0)
    assert {value for name, value in marks._asdict().items() if name not in ("t0", "started_at")} == {0.0}


@pytest.mark.parametrize("stream", [True, False])
def test_without_an_answer_to_read_it_streamed_when_that_was_asked_for(stream: bool) -> None:
    made = kept(RequestFacts(Operation.CHAT, "gpt", stream=stream))
    assert made.stream is stream
    assert (made.read, made.complete, made.answered_model, made.usage) == (False, False, None, None)
    assert (made.events, made.token_events, made.finish_reasons, made.parse_errors) == (0, 0, (), None)
    assert kept(reading=Reading(streamed=not stream)).stream is not stream, "else what came counts"


def test_an_answer_in_which_nothing_was_found_was_read_all_the_same() -> None:
    made = kept(reading=Reading())
    assert (made.read, made.usage, made.parse_errors, made.finish_reasons) == (True, None, None, ())


def test_tokens_are_kept_as_comparable_counts() -> None:
    usage = Usage(input=10, output=5, cached_input=100, cache_creation_input=20, input_excludes_cache=True)
    assert kept(reading=Reading(usage=usage)).usage == (130, 5, 100, 0)
    assert kept(reading=Reading(usage=Usage(output=5))).usage == (None, 5, 0, 0)


def test_of_a_failure_only_its_code_is_kept() -> None:
    made = kept(failure=Failure(Code.DNS_FAILED, "no such name: hunter2.example"), status=502)
    assert (made.error, made.status) == ("dns_failed", 502)
    assert "hunter2" not in repr(made)
    assert kept().error is None


def test_nothing_of_fields_and_bodies_is_kept() -> None:
    made = kept(
        response_headers=[(b"Set-Cookie", b"hunter2")],
        request_copy=b"hunter2",
        response_overheads=[0.25],
        reading=Reading(error_type="hunter2", error_code="hunter2"),
    )
    assert "hunter2" not in repr(made)


def test_it_consists_of_plain_values_so_that_the_exchange_can_go() -> None:
    made = kept(reading=Reading(usage=Usage(input=1)), failure=Failure(Code.INTERNAL, "x"))
    for name, value in made._asdict().items():
        assert value is None or isinstance(value, str | int | bytes | tuple | dict), name
        assert not isinstance(value, Exchange), name
