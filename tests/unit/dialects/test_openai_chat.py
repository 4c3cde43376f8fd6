from __future__ import annotations

import json

import pytest

from sidecar import dialects
from sidecar.dialects.reading import Operation, Reading, RequestFacts, Usage

SSE = [(b"Content-Type", b"text/event-stream")]


def chunk(delta: dict[str, object] | None = None, index: int = 0, finish: str | None = None, **more: object) -> str:
    choices = [] if delta is None else [{"index": index, "delta": delta, "finish_reason": finish}]
    return json.dumps({"id": "c1", "object": "chat.completion.chunk", "model": "m1", "choices": choices, **more})


def text(content: str, index: int = 0) -> str:
    return chunk({"content": content}, index)


ROLE = chunk({"role": "assistant", "content": ""})
FIN = chunk({}, finish="stop")
DONE = "[DONE]"


def use(prompt: int, completion: int) -> str:
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return chunk(usage=usage)


def read(*events: tuple[float, str] | str, choices: int = 1, clean: bool = True) -> Reading:
    facts = RequestFacts(Operation.CHAT, "m1", stream=True, choices=choices)
    reader = dialects.open_reader("openai", facts, "POST", "/v1/chat/completions", 200, SSE)
    for event in events:
        at, data = event if isinstance(event, tuple) else (1.0, event)
        reader.feed(f"data: {data}\n\n".encode(), at)
    return reader.finish(clean=clean)


def test_the_role_is_no_token() -> None:
    reading = read((0.2, ROLE), (1.2, text("a")), (1.3, FIN), (1.3, DONE))
    assert (reading.first_token_at, reading.token_events, reading.gaps) == (1.2, 1, [])


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
def test_reasoning_is_the_first_token_and_text_the_first_output(member: str) -> None:
    reading = read(
        (0.1, ROLE), (0.5, chunk({"content": None, member: "x"})), (1.0, chunk({member: "y"})), (3.0, text("a"))
    )
    assert (reading.first_token_at, reading.first_output_at) == (0.5, 3.0)


@pytest.mark.parametrize(
    "delta",
    [
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
        {"reasoning_details": [{"type": "reasoning.summary", "summary": "hm"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "AA"}]},
    ],
)
def test_reasoning_in_other_places_is_a_token_and_no_output(delta: dict[str, object]) -> None:
    reading = read((0.5, chunk(delta)))
    assert (reading.first_token_at, reading.first_output_at) == (0.5, None)


@pytest.mark.parametrize(
    "delta",
    [
        {"refusal": "no"},
        {"content": [{"type": "text", "text": "a"}]},
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": {"a": 1}}}]},
        {"tool_calls": [{"index": 0, "custom": {"name": "f"}}]},
        {"function_call": {"name": "f"}},
        {"audio": {"data": "AA"}},
        {"images": [{"type": "image_url"}]},
    ],
)
def test_all_kinds_of_output_start_the_clock(delta: dict[str, object]) -> None:
    assert read((0.5, chunk(delta))).first_output_at == 0.5


@pytest.mark.parametrize(
    "event",
    [
        ROLE,
        FIN,
        use(1, 1),
        chunk({"content": None}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "", "arguments": ""}}]}),
        chunk({"tool_calls": []}),
        json.dumps({"choices": [{"index": 0, "content_filter_results": {}}], "model": ""}),
        "{}",
        DONE,
    ],
)
def test_structure_is_no_token(event: str) -> None:
    assert read((0.5, event)).token_events == 0


def test_usage_on_every_chunk_is_never_added_up() -> None:
    usages = [{"prompt_tokens": 10, "completion_tokens": n} for n in (1, 2, 3)]
    reading = read(*[chunk({"content": "a"}, usage=usage) for usage in usages], chunk(usage=usages[-1]), FIN, DONE)
    assert reading.usage == Usage(10, 3)
    assert reading.first_token_tokens == 1


def test_groqs_own_usage_counts_where_there_is_no_other() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "queue_time": 0.1, "total_time": 0.5, "prompt_time": 0.2}
    reading = read(text("a"), chunk({}, finish="stop", x_groq={"id": "r", "usage": usage}), DONE)
    assert reading.usage == Usage(3, 2)
    assert (reading.provider.total, reading.provider.queue, reading.provider.prompt) == (0.5, 0.1, 0.2)


def test_a_stream_with_finish_reason_and_done_is_complete() -> None:
    reading = read(ROLE, text("a"), FIN, use(5, 1), DONE)
    assert reading.complete
    assert (reading.terminator, reading.finish_reasons, reading.events) == ("[DONE]", ["stop"], 4)


def test_a_clean_end_stands_for_done() -> None:
    assert read(text("a"), FIN).complete
    assert not read(text("a"), FIN, clean=False).complete
    assert read(text("a"), FIN, DONE, clean=False).complete


def test_streams_that_end_before_their_end_are_not_complete() -> None:
    assert not read(ROLE, text("a")).complete
    assert not read(ROLE, text("a"), DONE).complete
    assert not read().complete


def test_servers_that_never_give_a_finish_reason_end_with_usage_and_done() -> None:
    assert read(text("4"), chunk({"content": ""}), use(22, 5), DONE).complete
    assert not read(text("4"), use(22, 5)).complete
    assert not read(chunk({"content": "4"}, usage={"completion_tokens": 1}), DONE).complete


def test_each_of_several_answers_must_give_its_finish_reason() -> None:
    both = [text("a"), text("b", 1), chunk({}, 0, "stop")]
    assert read(*both, chunk({}, 1, "stop"), use(6, 10), DONE, choices=2).complete
    assert not read(*both, use(6, 10), DONE, choices=2).complete
    assert not read(*both, use(6, 10), DONE).complete
    assert not read(text("a"), FIN, DONE, choices=2).complete


def test_an_error_object_in_a_stream_is_a_failure() -> None:
    reading = read(ROLE, text("a"), '{"error":{"message":"boom","type":"server_error"}}', DONE)
    assert (reading.error_type, reading.complete, reading.failed) == ("server_error", False, True)


@pytest.mark.parametrize("error", ['{"error":"boom"}', '{"error":{"message":"boom"},"message":"boom"}'])
def test_errors_without_type_are_failures_too(error: str) -> None:
    assert read(error, FIN, DONE).failed


def test_a_named_error_event_is_a_failure_whatever_it_holds() -> None:
    facts = RequestFacts(Operation.CHAT, stream=True)
    for data in (b"boom", b"{}", b'{"error":{"type":"x"}}'):
        reader = dialects.open_reader("openai", facts, "POST", "/v1/chat/completions", 200, SSE)
        reader.feed(b"event: error\ndata: " + data + b"\n\n", 1.0)
        assert reader.finish(clean=True).failed


def test_odd_types_cost_only_themselves() -> None:
    odd = json.dumps(
        {
            "model": {"a": 1},
            "choices": [{"index": "0", "delta": {"content": "a"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": "7", "completion_tokens": 3.0, "total_tokens": []},
        }
    )
    reading = read(odd, DONE)
    assert (reading.model, reading.n_text, reading.usage) == (None, 1, Usage(7, 3))
    assert (reading.complete, reading.parse_errors) == (True, {})


def test_what_is_no_json_is_counted_and_passed_over() -> None:
    reading = read(text("a"), "not json", '{"choices":', FIN, DONE)
    assert (reading.complete, reading.parse_errors) == (True, {"json": 2})


def test_the_last_model_that_is_named_counts() -> None:
    reading = read(chunk(model=""), chunk({"content": "a"}, model="real"), chunk({}, finish="stop", model=""))
    assert reading.model == "real"
