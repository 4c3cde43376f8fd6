from __future__ import annotations

import json

import pytest

from sidecar import dialects
from sidecar.dialects.reading import Operation, Reading, ReasoningShown, RequestFacts, Usage

SSE = [(b"content-type", b"text/event-stream; charset=utf-8")]
CACHED = {"input_tokens": 25, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 0}


def read(*events: tuple[float, dict[str, object]], named: bool = True, target: str = "/v1/messages") -> Reading:
    facts = RequestFacts(Operation.MESSAGES, "m2", stream=True)
    reader = dialects.open_reader("anthropic", facts, "POST", target, 200, SSE)
    for at, data in events:
        name = f"event: {data['type']}\n" if named else ""
        reader.feed(f"{name}data: {json.dumps(data)}   \n\n".encode(), at)
    return reader.finish(clean=True)


def start(**usage: int) -> dict[str, object]:
    return {"type": "message_start", "message": {"model": "m2", "content": [], "usage": usage}}


def block(**content: object) -> dict[str, object]:
    return {"type": "content_block_start", "index": 0, "content_block": content}


def delta(**content: object) -> dict[str, object]:
    return {"type": "content_block_delta", "index": 0, "delta": content}


def end(**usage: int) -> dict[str, object]:
    return {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}


PING: dict[str, object] = {"type": "ping"}
STOP: dict[str, object] = {"type": "message_stop"}
HI = delta(type="text_delta", text="a")


def test_frames_before_the_first_delta_are_no_tokens() -> None:
    for named in (True, False):
        reading = read(
            (0.2, start(input_tokens=1)), (0.3, block(type="text", text="")), (0.4, PING), (1.2, HI), named=named
        )
        assert (reading.first_token_at, reading.token_events, reading.events) == (1.2, 1, 4)


def test_cumulative_usage_replaces_field_by_field() -> None:
    reading = read(
        (1.0, start(**CACHED, output_tokens=1)), (1.0, HI), (1.0, HI), (2.0, end(output_tokens=15)), (2.0, STOP)
    )
    assert reading.usage == Usage(25, 15, 100, 0, input_excludes_cache=True)
    assert reading.usage.normalised().input == 125


def test_the_input_may_be_raised_at_the_end() -> None:
    reading = read((1.0, start(**CACHED)), (2.0, end(input_tokens=90, output_tokens=2)), (2.0, STOP))
    assert reading.usage is not None
    assert (reading.usage.input, reading.usage.cached_input) == (90, 100)


def test_thinking_is_a_token_and_no_output() -> None:
    reading = read((0.5, delta(type="thinking_delta", thinking="hm")), (3.0, HI))
    assert (reading.first_token_at, reading.first_output_at) == (0.5, 3.0)
    assert reading.reasoning_shown is ReasoningShown.TEXT


@pytest.mark.parametrize(
    ("content", "first", "output"),
    [
        (block(type="redacted_thinking", data="AA"), 0.5, 3.0),
        (block(type="tool_use", name="f", input={}), 0.5, 0.5),
        (block(type="web_search_tool_result", content=[]), 0.5, 0.5),
        (block(type="text", text="a"), 0.5, 0.5),
        (block(type="thinking", thinking=""), 3.0, 3.0),
        (delta(type="input_json_delta", partial_json=""), 3.0, 3.0),
        (delta(type="signature_delta", signature="x"), 3.0, 3.0),
        (delta(type="citations_delta", citation={"cited_text": "x"}), 3.0, 3.0),
    ],
)
def test_blocks_count_when_they_open_with_content(content: dict[str, object], first: float, output: float) -> None:
    reading = read((0.5, content), (3.0, HI))
    assert (reading.first_token_at, reading.first_output_at) == (first, output)


def test_only_message_stop_completes_a_message() -> None:
    whole = [(1.0, start(input_tokens=1)), (1.0, HI), (1.0, end(output_tokens=2)), (1.0, STOP)]
    reading = read(*whole)
    assert (reading.complete, reading.terminator, reading.finish_reasons) == (True, "message_stop", ["end_turn"])
    for length in range(4):
        assert not read(*whole[:length]).complete


def test_an_error_event_fails_the_stream() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "secret"}}
    reading = read((1.0, error))
    assert (reading.error_type, reading.first_token_at, reading.complete) == ("overloaded_error", None, False)


def test_text_completions_end_with_a_stop_reason() -> None:
    text: dict[str, object] = {"type": "completion", "completion": " a", "stop_reason": None, "model": "c"}
    last: dict[str, object] = {"type": "completion", "completion": "", "stop_reason": "stop_sequence", "model": "c"}
    reading = read((1.0, text), (2.0, last), target="/v1/complete")
    assert (reading.n_text, reading.finish_reasons, reading.complete) == (1, ["stop_sequence"], True)
    assert not read((1.0, text), target="/v1/complete").complete


def test_bedrock_behind_a_gateway_reports_its_time() -> None:
    metrics = {"invocationLatency": 1708, "firstByteLatency": 1405}
    reading = read((1.0, {"type": "message_stop", "amazon-bedrock-invocationMetrics": metrics}))
    assert (reading.provider.total, reading.provider.prompt) == (1.708, 1.405)
